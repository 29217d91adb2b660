#!/usr/bin/env python3
"""millrace beside other engines on one model in memory: the same tokens, the same axes, by turns.

usage: compare_peers.py BENCH MODEL --peer WHO|VERSION|PROGRAM [--peer …] [--threads N] [--rounds N]
                        [--warm TOKENS] [--keep-as NAME] AXIS...

BENCH is sequences_bench; PROGRAM is bench/peers/peer.cpp built against that engine, with its
settings behind it ("…/peer RTR=1"), WHO any name but millrace, which is ours. AXIS is a mode of
both with its numbers: "decode 128 5", "prefill 64 256 512", "batch 32 64", "agents 8 1024 32",
"turns 8 1024 40 32 48". With --warm a prompt of so many tokens goes first and is forgotten, so that
experts are in memory. Prints medians in tokens per second; --keep-as NAME keeps all repeats in
bench/results/NAME.json. Nothing else should be running.
"""

import argparse
import json
import pathlib
import re
import shlex
import shutil
import statistics
import sys

from record import (command_line, commit, frame, plain_words, positive, printed_by, result_name,
                    write_result)

PROMPT_MIN = 256  # shorter ones say more about the first step than about speed
# mode: its numbers, least and most
MODES = {"decode": (1, 2), "prefill": (1, 1024), "batch": (2, 2), "agents": (3, 3), "turns": (5, 5)}


# Types of arguments.


def axis(text):
    """Its words: a mode and numbers that give at least one figure."""
    mode, *numbers = text.split() or [""]
    if mode not in MODES:
        raise argparse.ArgumentTypeError(f"{text!r} does not begin with {', '.join(MODES)}")
    least, most = MODES[mode]
    values = [positive(number) for number in numbers]
    if not least <= len(values) <= most:
        raise argparse.ArgumentTypeError(
            f"{text!r}: {mode} takes {least if least == most else f'{least} to {most}'} numbers")
    if mode == "prefill" and max(values) < PROMPT_MIN and len(set(values)) < 2:
        raise argparse.ArgumentTypeError(
            f"{text!r}: one length of at least {PROMPT_MIN}, or two different ones")
    return [mode, *map(str, values)]


def program(text):
    if shutil.which(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no program")
    return text


def peer(text):
    """Name, version, words of its command."""
    who, version, command = (text.split("|", 2) + ["", ""])[:3]
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
    if not who or not version or not words:
        raise argparse.ArgumentTypeError(f"{text!r} is not WHO|VERSION|PROGRAM")
    if who == "millrace":
        raise argparse.ArgumentTypeError("'millrace' is our own name")
    program(words[0])
    return who, version, words


def whole_number(text):
    return 0 if re.fullmatch("0+", text) else positive(text)


def figures(mode, numbers, result):
    """What one process measured: names and tokens per second."""
    if mode == "decode":
        return {f"one sequence, {numbers[0]} tokens": result["decode"]["tokens_per_second"]}
    if mode == "prefill":
        took = {int(one["tokens"]): one["seconds"] for one in result["prefill"]}
        found = {f"prompt of {length}": length / took[length]
                 for length in took if length >= PROMPT_MIN}
        few, many = min(took), max(took)
        if many > few:
            rate = (many - few) / (took[many] - took[few])
            found[f"per further prompt token, {few} to {many}"] = rate
        return found
    if mode == "batch":
        return {f"{numbers[0]} sequences": result["decode"]["tokens_per_second"]}
    wall = result["wall_seconds"]
    if mode == "agents":
        sequences, prefix, tokens = numbers
        return {f"{sequences} agents on {prefix}, decode": result["decode"]["tokens_per_second"],
                f"{sequences} agents on {prefix}, with the prefix": sequences * tokens / wall}
    sequences, prefix, turns, generated, given = numbers
    name = f"{turns} turns x {sequences} agents on {prefix}, {generated} made, {given} given"
    return {name: sequences * turns * (generated + given) / wall}


def measure(words, command):
    """The figures of one axis by one engine."""
    mode, *numbers = words
    text = printed_by(command)
    try:
        return figures(mode, [int(number) for number in numbers], json.loads(text))
    except (ValueError, LookupError, TypeError) as error:
        sys.exit(f"{shlex.join(command)}: not what this mode prints ({error!r})")


def engines(options):
    """who: its version and the command of an axis."""
    threads = str(options.threads)
    warm = ["-w", str(options.warm)] if options.warm else []
    found = {"millrace": (commit(), lambda words: [options.bench, "-t", threads, *warm,
                                                   options.model, *words])}
    for who, version, own in options.peer:
        found[who] = (version, lambda words, own=own: [
            own[0], options.model, *words, f"THREADS={threads}", f"WARM={options.warm}", *own[1:]])
    return found


def compare(options):
    rows = {}
    for turn in range(options.rounds):
        for words in options.axes:
            for who, (version, command) in engines(options).items():
                for name, value in measure(words, command(words)).items():
                    column = rows.setdefault(name, {}).setdefault(who, {
                        "version": version, "command": plain_words(shlex.join(command(words))),
                        "values": []})
                    column["values"].append(value)
                    print(f"round {turn + 1}: {name}: {who}: {value:.4g}", flush=True)
        keep(options, rows)
    return rows


def keep(options, rows):
    """After each round, so that a measurement that is cut short has kept what it had."""
    if options.keep_as:
        write_result(frame(options.keep_as) | {
            "kind": "axes", "model": pathlib.Path(options.model).name, "unit": "tokens/s",
            "threads": options.threads, "rows": rows})


def show(rows):
    for name, columns in rows.items():
        middle = {who: statistics.median(column["values"]) for who, column in columns.items()}
        others = [value for who, value in middle.items() if who != "millrace"]
        ratio = f"{middle['millrace'] / max(others):.2f}" if others else ""
        print(f"{name:64} " + "  ".join(f"{who} {value:.4g}" for who, value in middle.items())
              + f"  {ratio}")


def main():
    parser = command_line(__doc__)
    parser.add_argument("bench", metavar="BENCH", type=program, help="sequences_bench")
    parser.add_argument("model", metavar="MODEL", help="a GGUF file that all of them read")
    parser.add_argument("axes", nargs="+", metavar="AXIS", type=axis, help="a mode and its numbers")
    parser.add_argument("--peer", metavar="WHO|VERSION|PROGRAM", action="append", default=[],
                        type=peer, help="another engine, repeatable")
    parser.add_argument("--threads", metavar="N", type=positive, default=2, help="default: 2")
    parser.add_argument("--rounds", metavar="N", type=positive, default=3, help="default: 3")
    parser.add_argument("--warm", type=whole_number, default=0, metavar="TOKENS",
                        help="default: none")
    parser.add_argument("--keep-as", metavar="NAME", type=result_name,
                        help="of bench/results/NAME.json")
    options = parser.parse_intermixed_args()
    names = [who for who, _, _ in options.peer]
    if len(set(names)) < len(names):
        parser.error("two peers of one name")
    show(compare(options))


if __name__ == "__main__":
    main()
