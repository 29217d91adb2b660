#!/usr/bin/env python3
"""How the cost of a token grows: with threads, sequences in step, context, experts.

usage: scaling.py MILLRACE BENCH FOLDER [--rounds N] [--keep-as NAME] [--small]

BENCH is sequences_bench. Files in the shape of Qwen3-30B-A3B with 4 layers (MXFP4 experts, Q8_0
trunk, about 1.8 GB; the last with 512 experts per layer 4 GB) are made in FOLDER and removed one
by one. All experts are in memory. Beside each thread count and number of experts stands the limit:
the weights that a token passes over at the speed of the plain read loop, measured just
before. Prints medians, in milliseconds per token; --keep-as NAME keeps all repeats in
bench/results/NAME.json. Nothing else should be running. --small: a tiny shape and few steps, to see
that it works.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

from record import RESULTS, frame

LAYERS = 4
CHOSEN = 16  # times that a prompt chooses each expert, on average, before what is measured


def output(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


class Scaling:
    def __init__(self, options):
        self.options = options
        self.cores = len(os.sched_getaffinity(0))
        self.path = pathlib.Path(options.folder) / "scaling.gguf"
        self.rows = {}
        self.model = None
        small = options.small
        self.shape = {"layers": LAYERS} if not small else {
            "layers": 1, "width": 256, "expert_width": 128, "vocabulary": 2048}
        self.tokens = 2 if small else 64
        self.counts = (1, 2) if small else (1, 2, 4, 8, 16, 32, 64, 128)
        self.positions = (16,) if small else (128, 512, 2048, 8192)
        self.loop = ["--size", "2M", "--repeats", "1"] if small else ["--size", "1G"]

    def make(self, **numbers):
        self.path.unlink(missing_ok=True)
        flags = [f"--{name.replace('_', '-')}={value}"
                 for name, value in (self.shape | numbers).items()]
        output([self.options.millrace, "fixture", self.path, "--shape", "qwen3-30b-a3b", "--type",
                "mxfp4", "-q", *flags])
        self.model = json.loads(output([self.options.millrace, "inspect", self.path, "--json"]))

    def token_bytes(self):
        """Weights that one token passes over; its row of the embedding is left out."""
        experts = self.model["experts"]
        trunk = sum(one["bytes"] for one in self.model["types"]
                    if one["role"] not in ("experts", "embedding"))
        return trunk + experts["layers"] * experts["used"] * experts["bytes_max"]

    def read_loop(self, threads):
        """Bytes per second of the plain loop, the median of its repeats."""
        text = output([self.options.millrace, "kernels", "--json", "-q", "--type", "q8_0",
                       "--tokens", "1", "--threads", threads, *self.loop])
        return next(statistics.median(limit["repeats_bytes_per_second"])
                    for limit in json.loads(text)["limits"] if limit["residency"] == "memory")

    def milliseconds(self, *words, threads=None):
        experts = self.model["experts"]
        warm = CHOSEN * experts["count"] // experts["used"]
        text = output([self.options.bench, "-t", threads or self.cores, "-w", warm, self.path,
                       *words])
        return 1000 / json.loads(text)["decode"]["tokens_per_second"]

    def note(self, axis, value, milliseconds, limit=None):
        row = self.rows.setdefault(axis, {}).setdefault(str(value), {"ms": []})
        row["ms"].append(milliseconds)
        if limit is not None:
            row.setdefault("limit_ms", []).append(limit)
        print(f"{axis} {value}: {milliseconds:.3g} ms"
              + (f", limit {limit:.3g}" if limit is not None else ""), flush=True)

    def threads(self):
        counts = sorted({count for count in (1, 2, 4, 8, 16, 32, 64) if count < self.cores}
                        | {self.cores})
        for count in counts:
            limit = 1000 * self.token_bytes() / self.read_loop(count)
            cost = self.milliseconds("decode", self.tokens, 1, threads=count)
            self.note("threads", count, cost, limit)

    def sequences(self):
        for count in self.counts:
            self.note("sequences in step", count,
                      self.milliseconds("batch", count, max(4, self.tokens // count)))

    def context(self):
        for count in self.positions:
            self.note("positions before", count, self.milliseconds("decode", self.tokens, count))

    def experts(self):
        for axis, changes in (
                ("experts per token, of 128", [{"experts_used": n} for n in (1, 2, 4, 8, 16)]),
                ("experts per layer, 8 used", [{"experts": n} for n in (16, 64, 256, 512)])):
            for change in changes:
                self.make(**change)
                limit = 1000 * self.token_bytes() / self.read_loop(self.cores)
                self.note(axis, *change.values(), self.milliseconds("decode", self.tokens, 1),
                          limit)

    def run(self):
        for _ in range(self.options.rounds):
            self.make()
            self.threads()
            self.sequences()
            self.context()
            self.experts()
            self.path.unlink()
            self.keep()

    def keep(self):
        if self.options.keep_as:
            kept = frame(self.options.keep_as) | {
                "kind": "scaling", "model": f"qwen3-30b-a3b, {LAYERS} layers, mxfp4",
                "rows": self.rows}
            (RESULTS / f"{self.options.keep_as}.json").write_text(json.dumps(kept, indent=1) + "\n",
                                                                  encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("millrace")
    parser.add_argument("bench")
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep-as", metavar="NAME")
    parser.add_argument("--small", action="store_true")
    scaling = Scaling(parser.parse_args())
    scaling.run()
    for axis, row in scaling.rows.items():
        for value, kept in row.items():
            print(f"{axis}: {value}: {statistics.median(kept['ms']):.3g} ms")


if __name__ == "__main__":
    main()
