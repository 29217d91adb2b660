#!/usr/bin/env python3
"""Keeps what one command measured in bench/results/NAME.json.

usage: record.py NAME COMMAND

COMMAND prints one JSON object (`millrace kernels --json -q`, `millrace floor --json -q`), which is
kept as it is, with all its repeats. Nothing else should be running. Other measurements:
compare_settings.py, compare_peers.py. The format of the files: bench/README.md.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"


def result_name(text):
    """Type of an argument that names a file of RESULTS."""
    if not re.fullmatch(r"[a-z0-9-]+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name of a-z, 0-9 and -")
    return text


def write_result(kept):
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{kept['name']}.json"
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return path


def positive(text):
    """Type of an argument that takes a whole number of at least 1."""
    if not re.fullmatch(r"0*[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def printed_by(command):
    """What a program printed; a sentence and exit 1 if it is not there or fails."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        sys.exit(f"{words[0]}: {error.strerror}")
    if done.returncode != 0:
        sys.exit(f"{shlex.join(words)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def output_of(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def first_match(path, pattern):
    try:
        match = re.search(pattern, pathlib.Path(path).read_text(encoding="utf-8"), re.M)
    except OSError:
        return None
    return match[1].strip() if match else None


def machine():
    family = first_match("/proc/cpuinfo", r"^cpu family\s*:\s*(.*)$")
    model = first_match("/proc/cpuinfo", r"^model\s*:\s*(.*)$")
    memory = first_match("/proc/meminfo", r"^MemTotal:\s*(\d+)")
    return {
        "cpu": first_match("/proc/cpuinfo", r"^model name\s*:\s*(.*)$") or platform.machine(),
        "cpu_family": f"{family}.{model}" if family else None,
        "cores": len(os.sched_getaffinity(0)),
        "virtual": bool(first_match("/proc/cpuinfo", r"^(flags\s*:.*\bhypervisor\b)")),
        "memory_bytes": int(memory) * 1024 if memory else None,
        "kernel": platform.release(),
        "huge_pages": first_match("/sys/kernel/mm/transparent_hugepage/enabled", r"\[(\w+)\]"),
    }


def commit():
    known = output_of("git", "rev-parse", "--short=10", "HEAD")
    changed = output_of("git", "status", "--porcelain", "--untracked-files=no")
    return known + ("+changes" if changed else "")


def frame(name):
    return {
        "name": name,
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "compiler": output_of("c++", "--version").split("\n")[0],
        "machine": machine(),
    }


def plain_words(command):
    """Paths of this machine are nobody's business: only their last parts are kept."""
    words = [word if not word.startswith("/") else pathlib.Path(word).name
             for word in shlex.split(command)]
    return shlex.join(words)


def run(command):
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False,
                          cwd=ROOT)
    if done.returncode != 0:
        sys.exit(f"{command}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def whole(command):
    text = run(command)
    return {"kind": "whole", "command": plain_words(command), "result": json.loads(text)}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("name", type=result_name)
    parser.add_argument("command")
    arguments = parser.parse_args()
    path = write_result(frame(arguments.name) | whole(arguments.command))
    print(f"{path.relative_to(ROOT)} written; bench/draw_figures.py puts it into the README")


if __name__ == "__main__":
    main()
