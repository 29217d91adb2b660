#!/usr/bin/env python3
"""Settings of `millrace run` beside each other, on one model under a memory limit, by turns.

usage: compare_settings.py MILLRACE MODEL --limit SIZE [--rounds N] [--tokens N]
                           [--prompt-tokens N] [--keep-as NAME] SETTING...

SETTING is NAME=FLAGS of `run` ("off=--prefetch off"; "default=" has none). Each run has a fresh
control group of SIZE (6G), so that page cache counts, and starts with the cache of pages dropped.
Prints medians: tokens/s, share of the floor, how long the drive was busy, bytes as the kernel
counted them beside the report's, user and system CPU per GB read (all threads, and the one that
owns the ring), peak memory beside the plan.
With --prompt-tokens the prompt has about that many, and the speed of the prompt is shown.
--keep-as NAME keeps all repeats in bench/results/NAME.json. As root, for groups and page cache.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

from memory_limit import MemoryLimit
from record import command_line, frame, plain_words, positive, result_name, write_result

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
COLUMNS = (
    ("tokens/s", "tokens_per_second", "{:.3g}"),
    ("prompt tokens/s", "prompt_tokens_per_second", "{:.3g}"),
    ("share of the floor", "floor_share", "{:.2f}"),
    ("drive busy", "drive_busy", "{:.2f}"),
    ("GB/s", "read_gbs", "{:.2f}"),
    ("hits", "hit_rate", "{:.2f}"),
    ("MB/token", "megabytes_per_token", "{:.0f}"),
    ("kernel's bytes / ours", "kernel_bytes", "{:.3f}"),
    ("read / (pool + trunk)", "read_once", "{:.3f}"),
    ("user ms/GB", "user_ms_per_gb", "{:.1f}"),
    ("system ms/GB", "system_ms_per_gb", "{:.1f}"),
    ("ring owner, user, of a core", "owner_user_share", "{:.4f}"),
    ("ring owner, ms/GB", "owner_ms_per_gb", "{:.1f}"),
    ("peak RSS / plan", "memory", "{:.3f}"),
    ("load s", "load_seconds", "{:.1f}"),
)


def size(text):
    """Type of an argument that is checked here and read by size_of."""
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?[KMG]|[0-9]+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no size, as 6G or 512M")
    return text


def size_of(text):
    return int(float(text[:-1]) * UNITS[text[-1]]) if text[-1] in UNITS else int(text)


def setting(text):
    """Name and flags."""
    name, equals, flags = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FLAGS")
    return name, flags


def drop_page_cache():
    os.sync()
    try:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError as error:
        sys.exit(f"the cache of pages cannot be dropped: {error.strerror}; run this as root")


def run(options, flags):
    """The report of one run in a group of its own, and what the kernel says of the process."""
    command = [options.millrace, "run", options.model, "-p", prompt(options), "-n",
               str(options.tokens), "--temp", "0", "--ignore-eos", "--json", "-q", *flags.split()]
    drop_page_cache()
    with MemoryLimit(size_of(options.limit)) as limit, tempfile.TemporaryFile("w+") as said, \
            tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(command, stdout=said, stderr=errors, preexec_fn=limit.enter)
        owner = (0.0, 0.0)
        while (ended := os.wait4(child.pid, os.WNOHANG))[0] == 0:
            owner = read_thread_times(child.pid) or owner
            time.sleep(0.1)
        child.returncode = os.waitstatus_to_exitcode(ended[1])
        said.seek(0)
        errors.seek(0)
        if child.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit {child.returncode}\n{errors.read()}")
        return figures(json.loads(said.read()), ended[2], owner)


def read_thread_times(pid):
    """Seconds so far of the thread that owns the ring: all, and how much of it was user time.

    The kernel counts all of it exactly, but the two kinds by ticks. None if it is not there."""
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            name, rest = task.read_text().rsplit(")", 1)
        except OSError:
            continue
        if name.endswith("(mr-reads"):
            user, system = (int(ticks) for ticks in rest.split()[11:13])
            exact = 1e-9 * int((task.parent / "schedstat").read_text().split()[0])
            return exact, exact * user / max(1, user + system)
    return None


def prompt(options):
    """Letters and spaces: a token or less for each letter, in the vocabularies of fixtures."""
    count = max(options.prompt_tokens, 4)
    return " ".join(chr(ord("a") + (7 * at + at // 5) % 26) for at in range(count))


def figures(report, usage, owner):
    decode, io, model = report["decode"], report["io"], report["model"]
    gigabytes = io["bytes_read"] / 1e9
    return {
        "tokens_per_second": decode["tokens_per_second"],
        "prompt_tokens_per_second": report["prompt"]["tokens_per_second"],
        "prompt_tokens": report["prompt"]["tokens"],
        "floor_share": io["floor_share"] or 0.0,
        "drive_busy": io.get("busy_share") or 0.0,
        "read_gbs": io["read_bytes_per_second"] / 1e9,
        "hit_rate": report["cache"]["decode_hit_rate"],
        "megabytes_per_token": io["bytes_per_token"] / 1e6,
        "kernel_bytes": usage.ru_inblock * 512 / io["bytes_read"],
        "read_once": io["bytes_read"] / (model["pool_bytes"] + model["trunk_bytes"]),
        "user_ms_per_gb": 1e3 * usage.ru_utime / gigabytes,
        "system_ms_per_gb": 1e3 * usage.ru_stime / gigabytes,
        "owner_user_share": owner[1] / run_seconds(report),
        "owner_ms_per_gb": 1e3 * owner[0] / gigabytes,
        "memory": report["memory"]["peak_rss_bytes"] / report["memory"]["plan_bytes"],
        "load_seconds": report["load"]["seconds"],
        "state_hash": report["state_hash"],
        "report": kept_part(report),
    }


def kept_part(value):
    """A report without its text, what it says layer by layer, and the folders of this machine."""
    if isinstance(value, dict):
        return {key: kept_part(one) for key, one in value.items() if key not in ("text", "layers")}
    if isinstance(value, list):
        return [kept_part(one) for one in value]
    return pathlib.Path(value).name if isinstance(value, str) and value.startswith("/") else value


def run_seconds(report):
    return sum(report[part]["seconds"] for part in ("load", "prompt", "decode"))


def shown(settings, runs):
    columns = [c for c in COLUMNS if any(one[c[1]] for name in settings for one in runs[name])]
    lines = ["| setting | " + " | ".join(c[0] for c in columns) + " |",
             "| --- |" + " --- |" * len(columns)]
    for name in settings:
        cells = [form.format(statistics.median(one[key] for one in runs[name]))
                 for _, key, form in columns]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = command_line(__doc__)
    parser.add_argument("millrace", metavar="MILLRACE", help="the program")
    parser.add_argument("model", metavar="MODEL", help="a file or folder that `run` takes")
    parser.add_argument("settings", metavar="SETTING", nargs="+", type=setting, help="NAME=FLAGS")
    parser.add_argument("--limit", metavar="SIZE", required=True, type=size, help="of memory")
    parser.add_argument("--rounds", metavar="N", type=positive, default=3, help="default: 3")
    parser.add_argument("--tokens", metavar="N", type=positive, default=48, help="default: 48")
    parser.add_argument("--prompt-tokens", metavar="N", type=positive, default=4,
                        help="default: 4")
    parser.add_argument("--keep-as", metavar="NAME", type=result_name,
                        help="of bench/results/NAME.json")
    options = parser.parse_intermixed_args()
    settings = dict(options.settings)
    runs = {name: [] for name in settings}
    for turn in range(options.rounds):
        for name, flags in settings.items():
            runs[name].append(run(options, flags))
            print(f"round {turn + 1}: {name}: {runs[name][-1]['tokens_per_second']:.3g} tokens/s, "
                  f"{runs[name][-1]['state_hash']}", file=sys.stderr, flush=True)
    print(shown(settings, runs))
    if len({one["state_hash"] for all_of in runs.values() for one in all_of}) != 1:
        sys.exit("the settings do not all end in the same state hash")
    if options.keep_as:
        kept = frame(options.keep_as)
        command = shlex.join(["bench/compare_settings.py", *sys.argv[1:]])
        kept.update({"kind": "settings", "command": plain_words(command),
                     "limit": options.limit, "settings": settings,
                     "model": pathlib.Path(options.model).name, "runs": runs})
        write_result(kept)


if __name__ == "__main__":
    main()
