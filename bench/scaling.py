#!/usr/bin/env python3
"""How the cost of a token grows: with threads, sequences in step, context, experts.

usage: scaling.py MILLRACE BENCH FOLDER [--rounds N] [--keep-as NAME] [--small]

BENCH is sequences_bench. Files in the shape of Qwen3-30B-A3B with 4 layers (MXFP4 experts, Q8_0
trunk, about 1.8 GB; the last with 512 experts per layer 4 GB) are made one by one in a folder of
their own inside FOLDER, which is removed at the end. All experts are in memory. Beside each thread
count and number of experts stands the limit: the weights that a token passes over at the speed of
the plain read loop, the faster of one just before and one just behind. Prints medians, in
milliseconds per token; --keep-as NAME keeps all repeats in bench/results/NAME.json. Nothing else
should be running. --small: a tiny shape and few steps, to see that it works; what it keeps says so.
"""

import json
import os
import pathlib
import shlex
import statistics
import sys
import tempfile

from record import (command_line, frame, plain_words, positive, printed_by, result_name,
                    write_result)

SHAPE = "qwen3-30b-a3b"
TYPE = "mxfp4"
LAYERS = 4
CHOSEN = 16  # times that a prompt chooses each expert, on average, before what is measured


class Scaling:
    def __init__(self, options, folder):
        self.options = options
        self.cores = len(os.sched_getaffinity(0))
        self.path = pathlib.Path(folder) / "scaling.gguf"
        self.rows = {}
        self.model = None
        small = options.small
        self.shape = {"layers": LAYERS} if not small else {
            "layers": 1, "width": 256, "expert_width": 128, "vocabulary": 2048}
        self.tokens = 2 if small else 64
        self.counts = (1, 2) if small else (1, 2, 4, 8, 16, 32, 64, 128)
        self.positions = (16,) if small else (128, 512, 2048, 8192)
        self.loop = ["--size", "2M", "--repeats", "1"] if small else ["--size", "1G"]

    def label(self):
        """The model in words: its shape, and in which numbers it is another."""
        numbers = dict(self.shape)
        layers = numbers.pop("layers")
        changes = [f"{name.replace('_', ' ')} {value}" for name, value in numbers.items()]
        return ", ".join([SHAPE, f"{layers} layer{'s' if layers > 1 else ''}", *changes, TYPE])

    def make(self, **numbers):
        self.path.unlink(missing_ok=True)
        flags = [f"--{name.replace('_', '-')}={value}"
                 for name, value in (self.shape | numbers).items()]
        printed_by([self.options.millrace, "fixture", self.path, "--shape", SHAPE, "--type",
                    TYPE, "-q", *flags])
        self.model = json.loads(printed_by([self.options.millrace, "inspect", self.path, "--json"]))

    def token_bytes(self):
        """Weights that one token passes over; its row of the embedding is left out."""
        experts = self.model["experts"]
        trunk = sum(one["bytes"] for one in self.model["types"]
                    if one["role"] not in ("experts", "embedding"))
        return trunk + experts["layers"] * experts["used"] * experts["bytes_max"]

    def read_loop(self, threads):
        """Bytes per second of the plain loop, the median of its repeats. Beside the scalar product:
        a fast one that overtakes a loop in a slow moment would be refused."""
        text = printed_by([self.options.millrace, "kernels", "--json", "-q", "--type", "q8_0",
                           "--isa", "scalar", "--tokens", "1", "--threads", threads, *self.loop])
        return next(statistics.median(limit["repeats_bytes_per_second"])
                    for limit in json.loads(text)["limits"] if limit["residency"] == "memory")

    def milliseconds(self, *words, threads=None):
        experts = self.model["experts"]
        warm = CHOSEN * experts["count"] // experts["used"]
        text = printed_by([self.options.bench, "-t", threads or self.cores, "-w", warm, self.path,
                       *words])
        return 1000 / json.loads(text)["decode"]["tokens_per_second"]

    def decode_beside_limit(self, threads):
        """Milliseconds of a token, and what its weights take in the plain loop."""
        before = self.read_loop(threads)
        cost = self.milliseconds("decode", self.tokens, 1, threads=threads)
        return cost, 1000 * self.token_bytes() / max(before, self.read_loop(threads))

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
            self.note("threads", count, *self.decode_beside_limit(count))

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
                self.note(axis, *change.values(), *self.decode_beside_limit(self.cores))

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
            write_result(frame(self.options.keep_as) | {
                "kind": "scaling",
                "command": plain_words(shlex.join(["bench/scaling.py", *sys.argv[1:]])),
                "model": self.label(), "tokens": self.tokens,
                "rows": self.rows})


def folder_inside(folder):
    try:
        return tempfile.TemporaryDirectory(prefix="scaling-", dir=folder)
    except OSError as error:
        sys.exit(f"{folder}: {error.strerror}")


def main():
    parser = command_line(__doc__)
    parser.add_argument("millrace", metavar="MILLRACE", help="the program")
    parser.add_argument("bench", metavar="BENCH", help="sequences_bench")
    parser.add_argument("folder", metavar="FOLDER", help="with room for 4 GB")
    parser.add_argument("--rounds", metavar="N", type=positive, default=3, help="default: 3")
    parser.add_argument("--keep-as", metavar="NAME", type=result_name,
                        help="of bench/results/NAME.json")
    parser.add_argument("--small", action="store_true", help="only to see that it works")
    options = parser.parse_args()
    with folder_inside(options.folder) as folder:
        scaling = Scaling(options, folder)
        scaling.run()
    for axis, row in scaling.rows.items():
        for value, kept in row.items():
            print(f"{axis}: {value}: {statistics.median(kept['ms']):.3g} ms")


if __name__ == "__main__":
    main()
