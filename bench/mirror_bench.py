#!/usr/bin/env python3
"""What a second drive brings: two loop devices with unequal limits, one copy of a model on each.

usage: mirror_bench.py MILLRACE [--folder DIR] [--rates 200,100] [--repeats 3]

Makes a model of about 1 GiB and two file systems in DIR, reads it from each drive alone and from
both, whole slices and striped, by turns. Prints the rate of each way and its share of the sum of
what the drives reach alone; fails below 0.9. Then one drive fails in the middle of a run, which has
to end with the same bits. Needs root, loop devices and the blkio controller (cgroup v1); skipped
with the reason elsewhere (exit 77).
"""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from record import command_line, positive

BLKIO = pathlib.Path("/sys/fs/cgroup/blkio")
SHARE_MIN = 0.9
SHAPE = ["--shape", "olmoe-1b-7b", "--layers", "4", "--type", "mxfp4"]
RUN = ["-p", "Once upon a time there was a mill. " * 20, "-n", "6", "--seed", "1", "--ignore-eos",
       "--cache", "10%", "--direct", "on", "--json", "-q"]


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def call(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


class LoopDrive:
    """A file system in a file, read at a limited rate by the processes of the group."""

    def __init__(self, folder, name, size, rate, group):
        self.image = folder / f"{name}.img"
        self.mount = folder / name
        self.mount.mkdir()
        self.device = None
        call("fallocate", "-l", str(size), str(self.image))
        self.device = call("losetup", "--direct-io=on", "-f", "--show", str(self.image))
        call("mkfs.ext4", "-q", "-m", "0", self.device)
        call("mount", self.device, str(self.mount))
        block = pathlib.Path("/sys/block") / pathlib.Path(self.device).name
        self.number, self.group = (block / "dev").read_text().strip(), group
        self.limit(rate)

    def limit(self, rate):
        self.rate = rate
        (self.group / "blkio.throttle.read_bps_device").write_text(f"{self.number} {rate}\n")

    def fail(self):
        """What lies behind the device goes away: reads end with EIO."""
        os.truncate(self.image, 1 << 20)

    def close(self):
        if self.device is None:
            return
        subprocess.run(["umount", "-l", str(self.mount)], check=False)
        subprocess.run(["losetup", "-d", self.device], check=False)


class Bench:
    def __init__(self, options, folder):
        self.millrace = str(pathlib.Path(options.millrace).resolve())
        self.repeats = options.repeats
        self.folder = folder
        self.drives = []
        self.group = BLKIO / f"millrace-mirrors-{os.getpid()}"
        self.group.mkdir()
        self.rates = [int(float(rate) * 1e6) for rate in options.rates.split(",")]

    def prepare(self):
        model = self.folder / "model.gguf"
        call(self.millrace, "fixture", *SHAPE, str(model))
        size = model.stat().st_size
        self.copies = []
        for i, rate in enumerate(self.rates):
            drive = LoopDrive(self.folder, f"drive{i}", size + size // 8 + (64 << 20), rate,
                              self.group)
            self.drives.append(drive)
            shutil.copyfile(model, drive.mount / "model.gguf")
            self.copies.append(str(drive.mount / "model.gguf"))
        os.sync()
        model.unlink()

    def start(self, *flags):
        join = lambda: (self.group / "cgroup.procs").write_text(str(os.getpid()))
        return subprocess.Popen([self.millrace, "run", *RUN, *flags], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, preexec_fn=join)

    def finish(self, process):
        out, err = process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"run ended with {process.returncode}: {err} {out}")
        return json.loads(out)

    def ways(self):
        first, second = self.copies
        return {"first alone": [first], "second alone": [second],
                "both, whole slices": [first, "--mirror", second],
                "both, striped": [first, "--mirror", second, "--stripe"]}

    def compare(self):
        """By turns, since the speed of a machine varies."""
        seen = {name: [] for name in self.ways()}
        for _ in range(self.repeats):
            for name, flags in self.ways().items():
                seen[name].append(self.finish(self.start(*flags)))
        hashes = {run["state_hash"] for runs in seen.values() for run in runs}
        rates = {name: statistics.median(run["io"]["read_bytes_per_second"] for run in runs)
                 for name, runs in seen.items()}
        total = rates["first alone"] + rates["second alone"]
        allowed = " and ".join(f"{rate / 1e6:.0f}" for rate in self.rates)
        print(f"drives limited to {allowed} MB/s; sum of the two alone {total / 1e6:.0f} MB/s")
        for name, runs in seen.items():
            load = statistics.median(run["load"]["seconds"] for run in runs)
            prompt = statistics.median(run["prompt"]["seconds"] for run in runs)
            decode = statistics.median(run["decode"]["tokens_per_second"] for run in runs)
            shares = " ".join(f"{drive['share']:.2f}" for drive in runs[-1]["io"]["drives"])
            print(f"  {name:<20} {rates[name] / 1e6:6.0f} MB/s  {rates[name] / total:.3f} of the"
                  f" sum  load {load:.2f} s  prompt {prompt:.2f} s  decode {decode:.2f} tokens/s"
                  f"  shares {shares}")
        ok = len(hashes) == 1
        print("one state hash in all runs" if ok else f"state hashes differ: {sorted(hashes)}")
        for name in ("both, whole slices", "both, striped"):
            ok = ok and rates[name] >= SHARE_MIN * total
        return ok, hashes.pop()

    def slow_down(self, state):
        """One drive becomes ten times slower in the middle of a run."""
        drive = self.drives[0]
        before = drive.rate
        process = self.start(*self.ways()["both, striped"])
        time.sleep(2)
        drive.limit(before // 10)
        run = self.finish(process)
        drive.limit(before)
        shares = [f"{one['share']:.2f}" for one in run["io"]["drives"]]
        print(f"first drive ten times slower after 2 s: shares {' '.join(shares)}")
        return run["state_hash"] == state

    def lose(self, state):
        """One drive fails in the middle of a run."""
        process = self.start(*self.ways()["both, striped"])
        time.sleep(3)
        self.drives[1].fail()
        run = self.finish(process)
        dropped = run["io"]["drives"][1]["dropped"]
        same = run["state_hash"] == state
        bits = "the same bits" if same else "OTHER BITS"
        print(f"second drive lost after 3 s: {bits}; {dropped}")
        return same and dropped is not None

    def close(self):
        for drive in self.drives:
            drive.close()
        self.group.rmdir()


def main():
    parser = command_line(__doc__)
    parser.add_argument("millrace", metavar="MILLRACE", help="the program")
    parser.add_argument("--folder", metavar="DIR", help="default: that of temporary files")
    parser.add_argument("--rates", metavar="MB/S", default="200,100", help="MB/s of the two drives")
    parser.add_argument("--repeats", metavar="N", type=positive, default=3, help="default: 3")
    options = parser.parse_args()
    if os.geteuid() != 0:
        skip("loop devices need root")
    if not (BLKIO / "blkio.throttle.read_bps_device").exists():
        skip("no blkio controller of cgroup v1 to limit the drives with")
    for tool in ("losetup", "mkfs.ext4", "mount", "fallocate"):
        if shutil.which(tool) is None:
            skip(f"{tool} is missing")
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        bench = Bench(options, pathlib.Path(name))
        try:
            try:
                bench.prepare()
            except RuntimeError as error:
                skip(f"no loop devices here: {error}")
            ok, state = bench.compare()
            ok = bench.slow_down(state) and ok
            ok = bench.lose(state) and ok
        finally:
            bench.close()
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
