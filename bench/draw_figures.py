#!/usr/bin/env python3
"""Draws the figures of the README from bench/results/*.json, between its markers.

usage: draw_figures.py [--check] [ROOT]

A marker is <!-- figures: NAME --> … <!-- end of figures -->; NAME is a result of `millrace
kernels`, `millrace floor`, compare_settings.py, compare_peers.py or scaling.py. With --check
nothing is written: exit 1 if the README says other than the results.
"""

import argparse
import json
import pathlib
import re
import statistics
import sys

from record import ROOT, command_line

MARKER = re.compile(r"(<!-- figures: ([\w-]+) -->\n)(.*?)(<!-- end of figures -->)", re.S)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def number(value):
    """Three digits that count, at least."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def place(kept):
    machine = kept["machine"]
    kind = "virtual machine" if machine.get("virtual") else "machine"
    return (f"{machine['cpu']}, {machine['cores']}-core {kind}, {kept['date']},"
            f" commit {kept['commit']}")


def kernels(kept):
    result = kept["result"]
    figures = [f for f in result["kernels"] if f.get("work") != "decode"]
    isas = list(dict.fromkeys(f["isa"] for f in figures))
    threads = sorted({f["threads"] for f in figures})
    best = isas[-1]
    by_key = {(f["type"], f["isa"], f["residency"], f["threads"], f["tokens"] > 1): f
              for f in figures}

    def cell(kind, residency, count):
        one = by_key[kind, best, residency, count, False]
        return f"{number(one['bytes_per_second'] / 1e9)} ({one['share']:.2f})"

    head = ["type", "L2, GB/s (share)", "x scalar"]
    head += [f"memory, {count} thread{'s' if count > 1 else ''}" for count in threads]
    head += ["GMA/s, many tokens"] if any(f["tokens"] > 1 for f in figures) else []
    rows = []
    for kind in dict.fromkeys(f["type"] for f in figures):
        row = [kind, cell(kind, "l2", threads[0]),
               number(by_key[kind, best, "l2", threads[0], False]["times_scalar"])]
        row += [cell(kind, "memory", count) for count in threads]
        many = by_key.get((kind, best, "l2", threads[-1], True))
        rows.append(row + ([number(many["multiply_adds_per_second"] / 1e9)] if many else []))
    limits = ", ".join(
        f"{number(limit['best_bytes_per_second'] / 1e9)} GB/s"
        f" ({'L2' if limit['residency'] == 'l2' else 'memory'}, {limit['threads']})"
        for limit in result["limits"])
    return (f"Kernels `{best}`, weights per second and share of the plain read loop, which does"
            f" {limits}; {place(kept)}; `{kept['command']}`.\n\n" + table(head, rows))


def floor(kept):
    result = kept["result"]
    rows = [[way["name"], number(way["bytes_per_second"] / 1e9),
             number(way["user_ms_per_gb"] + way["system_ms_per_gb"])]
            for way in result["ways"] if not way.get("refused")]
    return (f"Drive `{result.get('drive_model') or result['drive_name']}`: ways of reading at"
            f" {result['piece_bytes'] >> 10} KiB x {result['queue_depth']};"
            f" {place(kept)}; `{kept['command']}`.\n\n"
            + table(["reader", "GB/s", "CPU ms per GB"], rows))


def settings(kept):
    """Settings of `run` under a memory limit, by turns."""
    rows = []
    for name, runs in kept["runs"].items():
        speeds = [one["tokens_per_second"] for one in runs]
        middle = {key: statistics.median(one[key] for one in runs)
                  for key in ("floor_share", "hit_rate", "megabytes_per_token")}
        flags = kept["settings"][name] or "defaults"
        rows.append([f"`{flags}`" if flags != "defaults" else flags,
                     f"{number(statistics.median(speeds))} ({number(min(speeds))} to "
                     f"{number(max(speeds))})", f"{middle['floor_share']:.2f}",
                     f"{100 * middle['hit_rate']:.0f} %", f"{middle['megabytes_per_token']:.0f}"])
    head = ["`run` with", "tokens/s", "share of the floor", "hits", "MB read per token"]
    return (f"`{kept['model']}` in {kept['limit']} of memory, medians of runs by turns; "
            f"{place(kept)}.\n\n" + table(head, rows))


def axes(kept):
    """millrace beside other engines on one model, an axis a row."""
    versions = {who: column["version"] for columns in kept["rows"].values()
                for who, column in columns.items() if who != "millrace"}
    rows = []
    for name, columns in kept["rows"].items():
        middle = {who: statistics.median(column["values"]) for who, column in columns.items()}
        others = [middle[who] for who in versions if who in middle]
        rows.append([name, number(middle["millrace"]),
                     *(number(middle[who]) if who in middle else "" for who in versions),
                     f"{middle['millrace'] / max(others):.2f}" if others else ""])
    head = [f"`{kept['model']}`, {kept['threads']} thread{'s' if kept['threads'] > 1 else ''}",
            "millrace", *(f"{who} {version}" for who, version in versions.items()), "ratio"]
    rounds = max(len(column["values"]) for columns in kept["rows"].values()
                 for column in columns.values())
    runs = f"medians of {rounds} runs by turns" if rounds > 1 else "one run of each"
    return (f"{kept['unit']}, {runs}, ratio to the better; {place(kept)}.\n\n"
            + table(head, rows))


def scaling(kept):
    """What a token costs as something grows, beside its limit."""
    rows = []
    for axis, values in kept["rows"].items():
        for value, one in values.items():
            cost = statistics.median(one["ms"])
            limits = one.get("limit_ms")
            share = statistics.median(limit / ms for limit, ms in zip(limits, one["ms"])) \
                if limits else None
            rows.append([axis, value, number(cost), number(1000 / cost),
                         f"{share:.2f}" if limits else ""])
    head = ["what grows", "", "ms per token", "tokens/s", "share of the limit"]
    rounds = max(len(one["ms"]) for values in kept["rows"].values() for one in values.values())
    runs = f"medians of {rounds} rounds" if rounds > 1 else "one round"
    return (f"`{kept['model']}`, {runs}; limit: the weights of a token at the"
            f" speed of the plain read loop; {place(kept)}.\n\n" + table(head, rows))


def memory(kept):
    """What weights that lie all over memory cost, beside a sweep of neighbouring ones."""
    result = kept["result"]
    rows = []
    for team in result["teams"]:
        speeds = {way["name"]: way["bytes_per_second"] / 1e9 for way in team["ways"]}
        rows.append([str(team["threads"]), number(speeds["sweep"]), number(speeds["scattered"]),
                     f"{team['scattered_to_sweep']:.2f}"])
    size = f"{result['bytes'] / 1e9:.3g} GB"
    head = ["threads", "a sweep of neighbours, GB/s", "pieces at random places", "ratio"]
    return (f"Pieces of {result['piece_bytes'] // 1024} KiB in {size} of huge pages, medians of"
            f" repeats by turns; {place(kept)}; `{kept['command']}`.\n\n" + table(head, rows))


def drawn(name, results):
    if name not in results:
        sys.exit(f"README.md: no bench/results/{name}.json for its figures")
    kept = results[name]
    if kept["kind"] == "settings":
        return settings(kept)
    if kept["kind"] == "axes":
        return axes(kept)
    if kept["kind"] == "scaling":
        return scaling(kept)
    return {"kernels": kernels, "floor": floor, "memory": memory}[name](kept)


def folder(text):
    """Type of an argument that is a folder with a README."""
    if not (pathlib.Path(text) / "README.md").is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is no folder with a README.md")
    return pathlib.Path(text)


def main():
    parser = command_line(__doc__)
    parser.add_argument("root", metavar="ROOT", nargs="?", type=folder, default=ROOT,
                        help="of the source; default: where this script lies")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    root = options.root
    results = {}
    for path in sorted((root / "bench" / "results").glob("*.json")):
        results[path.stem] = json.loads(path.read_text(encoding="utf-8"))
    readme = root / "README.md"
    text = readme.read_text(encoding="utf-8")
    fresh = MARKER.sub(lambda match: match[1] + drawn(match[2], results) + match[4], text)
    if not options.check:
        readme.write_text(fresh, encoding="utf-8")
    elif fresh != text:
        print("README.md: figures: other than bench/results says: run bench/draw_figures.py")
        sys.exit(1)
    print(f"figures: {len(MARKER.findall(text))} of the README, from {len(results)} results")


if __name__ == "__main__":
    main()
