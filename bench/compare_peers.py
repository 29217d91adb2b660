#!/usr/bin/env python3
"""millrace beside other engines on one model in memory: the same tokens, the same axes, by turns.

usage: compare_peers.py BENCH MODEL --peer WHO|VERSION|PROGRAM [--peer …] [--threads N] [--rounds N]
                        [--warm TOKENS] [--keep-as NAME] AXIS...

BENCH is sequences_bench; PROGRAM is bench/peers/peer.cpp built against that engine, with its
settings behind it ("…/peer RTR=1"). AXIS is a mode of both with its numbers: "decode 128 5",
"prefill 64 256 512", "batch 32 64", "agents 8 1024 32", "turns 8 1024 40 32 48". With --warm a
prompt of so many tokens goes first and is forgotten, so that experts are in memory. Prints medians
in tokens per second; --keep-as NAME keeps all repeats in bench/results/NAME.json. Nothing else
should be running.
"""

import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys

from record import RESULTS, commit, frame, plain_words


def figures(mode, numbers, result):
    """What one process measured: names and tokens per second."""
    if mode == "decode":
        return {f"one sequence, {numbers[0]} tokens": result["decode"]["tokens_per_second"]}
    if mode == "prefill":
        took = {int(one["tokens"]): one["seconds"] for one in result["prefill"]}
        found = {f"prompt of {count}": count / took[count] for count in took if count >= 256}
        few, many = min(took), max(took)
        if many > few:
            rate = (many - few) / (took[many] - took[few])
            found[f"per further prompt token, {few} to {many}"] = rate
        return found
    if mode == "batch":
        return {f"{numbers[0]} sequences": result["decode"]["tokens_per_second"]}
    wall = result["wall_seconds"]
    if mode == "agents":
        sequences, prefix, count = numbers
        return {f"{sequences} agents on {prefix}, decode": result["decode"]["tokens_per_second"],
                f"{sequences} agents on {prefix}, with the prefix": sequences * count / wall}
    sequences, prefix, turns, generated, given = numbers
    name = f"{turns} turns x {sequences} agents on {prefix}, {generated} made, {given} given"
    return {name: sequences * turns * (generated + given) / wall}


def measure(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)}: exit {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def engines(options):
    """who: its version and the command of an axis."""
    threads = str(options.threads)
    warm = ["-w", str(options.warm)] if options.warm else []
    found = {"millrace": (commit(), lambda axis: [options.bench, "-t", threads, *warm,
                                                  options.model, *axis.split()])}
    for spec in options.peer:
        who, version, program = spec.split("|", 2)
        words = shlex.split(program)
        found[who] = (version, lambda axis, words=words: [
            words[0], options.model, *axis.split(), f"THREADS={threads}", f"WARM={options.warm}",
            *words[1:]])
    return found


def compare(options):
    rows = {}
    for turn in range(options.rounds):
        for axis in options.axes:
            mode, *numbers = axis.split()
            for who, (version, command) in engines(options).items():
                result = measure(command(axis))
                for name, value in figures(mode, [int(n) for n in numbers], result).items():
                    column = rows.setdefault(name, {}).setdefault(who, {
                        "version": version, "command": plain_words(shlex.join(command(axis))),
                        "values": []})
                    column["values"].append(value)
                    print(f"round {turn + 1}: {name}: {who}: {value:.4g}", flush=True)
        keep(options, rows)
    return rows


def keep(options, rows):
    """After each round, so that a measurement that is cut short has kept what it had."""
    if not options.keep_as:
        return
    kept = frame(options.keep_as) | {
        "kind": "axes", "model": pathlib.Path(options.model).name, "unit": "tokens/s",
        "threads": options.threads, "rows": rows}
    (RESULTS / f"{options.keep_as}.json").write_text(json.dumps(kept, indent=1) + "\n",
                                                     encoding="utf-8")


def show(rows):
    for name, columns in rows.items():
        middle = {who: statistics.median(column["values"]) for who, column in columns.items()}
        others = [value for who, value in middle.items() if who != "millrace"]
        ratio = f"{middle['millrace'] / max(others):.2f}" if others else ""
        print(f"{name:64} " + "  ".join(f"{who} {value:.4g}" for who, value in middle.items())
              + f"  {ratio}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bench")
    parser.add_argument("model")
    parser.add_argument("axes", nargs="+", metavar="AXIS")
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=int, default=0, metavar="TOKENS")
    parser.add_argument("--keep-as", metavar="NAME")
    options = parser.parse_intermixed_args()
    show(compare(options))


if __name__ == "__main__":
    main()
