#!/usr/bin/env python3
"""Predicted against achieved tokens per second, on models larger than a memory limit.

usage: predictions.py MILLRACE FOLDER [--repeat N] [--tokens N] [--keep] [SHAPE …]

Makes fixtures with biased routing in FOLDER (3 to 6 GB each, one at a time), and for each memory
limit: a first run, whose routing is not known yet and is recorded; then runs that know it. Prints
what was predicted before each and what came true, and what replay says of the recorded trace.
Needs the right to make cgroups (v1 or v2) for the limits.
"""

import argparse
import json
import os
import pathlib
import statistics

from memory_limit import MemoryLimit
from record import command_line, positive, printed_by

# shape: layers, weights, limits in MiB. All have routing as recorded of models of their kind.
CASES = {
    "qwen3-30b-a3b": (16, "mxfp4", (2500, 3800)),
    "gpt-oss-20b": (10, "mxfp4", (3000, 4500)),
    "olmoe-1b-7b": (16, "q4_k_m", (1600, 2600)),
    "mixtral-8x7b": (5, "q4_k_m", (2200, 3200)),
}
ROUTING = "zipf:1.1,reuse:0.38,lookahead:0.85"
PROMPT = "a b c d"


def run(command, limit=None):
    return printed_by(command, limit.enter if limit else None)


def shape_name(text):
    if text not in CASES:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(CASES)}")
    return text


def generate(options, model, limit, extra=()):
    """Achieved and predicted tokens per second of one run, and its report."""
    report = json.loads(run([options.millrace, "run", model, "-p", PROMPT, "-n",
                             str(options.tokens), "--temp", "0", "--ignore-eos", "--json", "-q",
                             *extra], limit))
    return report["decode"]["tokens_per_second"], report["predicted"], report


def replayed(options, model, trace, limit, cache_bytes):
    study = json.loads(run([options.millrace, "replay", trace, "-m", model, "--policy", "forecast",
                            "--capacity", str(cache_bytes), "--warmup", "0", "--json"], limit))
    return next(row["tokens_per_second"] for row in study["rows"] if row["policy"] == "forecast")


def measure(options, shape, model, mib):
    trace = str(pathlib.Path(options.folder) / "trace.csv")
    with MemoryLimit(mib << 20) as limit:
        run([options.millrace, "floor", model, "--seconds", "8", "-q"], limit)
        first, unknown, report = generate(options, model, limit, ("--trace", trace))
        achieved, known, replays, drive = [], [], [], []
        for _ in range(options.repeat):
            run([options.millrace, "floor", model, "--seconds", "6", "-q"], limit)
            replays.append(replayed(options, model, trace, limit, report["cache"]["bytes"]))
            speed, predicted, report = generate(options, model, limit)
            achieved.append(speed)
            known.append(predicted["tokens_per_second"])
            drive.append((predicted["drive_bytes_per_second"],
                          report["io"]["floor_bytes_per_second"] or 0))
    real = statistics.median(achieved)
    print(f"| {shape} | {mib} | {real:.2f} ({min(achieved):.2f} to {max(achieved):.2f}) "
          f"| {unknown['tokens_per_second']:.2f} ({unknown['tokens_per_second_low']:.2f} to "
          f"{unknown['tokens_per_second_high']:.2f}) "
          f"| {statistics.median(known):.2f} = {ratio(known, achieved):.2f} "
          f"| {statistics.median(replays):.2f} = {ratio(replays, achieved):.2f} "
          f"| {100 * report['cache']['decode_hit_rate']:.0f} % of "
          f"{100 * predicted['hit_rate']:.0f} % "
          f"| {report['io']['floor_share'] or 0:.2f} "
          f"| {', '.join(f'{a / 1e9:.2f} of {b / 1e9:.2f}' for a, b in drive)} |", flush=True)


def ratio(predicted, achieved):
    """Median of what each run was predicted beside what it did."""
    return statistics.median(p / a for p, a in zip(predicted, achieved))


def main():
    parser = command_line(__doc__)
    parser.add_argument("millrace", metavar="MILLRACE", help="the program")
    parser.add_argument("folder", metavar="FOLDER", help="with room for 6 GB")
    parser.add_argument("shapes", nargs="*", default=list(CASES), metavar="SHAPE", type=shape_name,
                        help=f"of {', '.join(CASES)}; default: all")
    parser.add_argument("--repeat", metavar="N", type=positive, default=3, help="default: 3")
    parser.add_argument("--tokens", metavar="N", type=positive, default=96, help="default: 96")
    parser.add_argument("--keep", action="store_true", help="do not delete the fixtures")
    options = parser.parse_intermixed_args()
    os.environ["XDG_CACHE_HOME"] = str(pathlib.Path(options.folder).resolve() / "cache")
    print("| shape | limit in MiB | achieved tokens/s | predicted, routing not known | predicted, "
          "known | replay | hits of predicted | floor share "
          "| GB/s of the drive, predicted of measured |\n"
          "| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for shape in options.shapes:
        layers, weights, limits = CASES[shape]
        model = str(pathlib.Path(options.folder) / f"{shape}-{layers}.gguf")
        if not os.path.exists(model):
            run([options.millrace, "fixture", model, "--shape", shape, "--type", weights,
                 "--layers", str(layers), "--routing", ROUTING, "-q"])
        for mib in limits:
            measure(options, shape, model, mib)
        if not options.keep:
            os.remove(model)


if __name__ == "__main__":
    main()
