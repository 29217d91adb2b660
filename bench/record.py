#!/usr/bin/env python3
"""Keeps what one command measured in bench/results/NAME.json.

usage: record.py NAME COMMAND

COMMAND prints one JSON object (`millrace kernels --json -q`, `millrace floor --json -q`), which is
kept as it is, with all its repeats. Nothing else should be running. Other measurements:
compare_settings.py, compare_peers.py. The format of the files: bench/README.md.
"""

import argparse
import datetime
import functools
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


def command_line(text):
    """A parser that shows a script's docstring, which is `text`: what it is, usage, meaning. The
    script has begun, and what it measures is the tree as it is now."""
    commit()
    title, usage, *meaning = text.strip().split("\n\n")
    return argparse.ArgumentParser(usage=usage.removeprefix("usage: "),
                                   description="\n\n".join([title, *meaning]),
                                   formatter_class=argparse.RawDescriptionHelpFormatter)


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


def printed_by(command, first=None):
    """What a program printed; a sentence and exit 1 if it is not there or fails. `first` is called
    in its process."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, preexec_fn=first)
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


@functools.cache
def commit():
    """Of the tree when it was first asked. Results that were just kept, and the figures of them,
    are no changes of what is measured."""
    known = output_of("git", "rev-parse", "--short=10", "HEAD")
    changed = output_of("git", "status", "--porcelain", "--untracked-files=no", "--", ":/",
                        ":(top,exclude)bench/results", ":(top,exclude)README.md")
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
    try:
        result = json.loads(run(command))
    except ValueError as error:
        sys.exit(f"{command}: printed no JSON: {error}")
    if not isinstance(result, dict):
        sys.exit(f"{command}: printed no JSON object")
    return {"kind": "whole", "command": plain_words(command), "result": result}


def drawn_in_readme(name):
    return f"<!-- figures: {name} -->" in (ROOT / "README.md").read_text(encoding="utf-8")


def main():
    parser = command_line(__doc__)
    parser.add_argument("name", metavar="NAME", type=result_name, help="of a-z, 0-9 and -")
    parser.add_argument("command", metavar="COMMAND", help="one word for the shell, quoted")
    arguments = parser.parse_args()
    path = write_result(frame(arguments.name) | whole(arguments.command))
    drawn = "; bench/draw_figures.py puts it into the README"
    print(f"{path.relative_to(ROOT)} written{drawn if drawn_in_readme(arguments.name) else ''}")


if __name__ == "__main__":
    main()
