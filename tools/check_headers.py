#!/usr/bin/env python3
"""Each header compiles alone, with the flags of the build.

usage: check_headers.py BUILD_DIR [ROOT]

The flags come from the build's compile_commands.json: those of a source file that includes the
header, so that a header of kernels/isa/ gets its ISA's flags. A header that a source file includes
before anything else was compiled alone by the build itself and is not compiled again. Headers for
another architecture are compiled where a cross compiler is installed, else named as skipped. What
passed is remembered in the build folder until the header, its includes, or the flags change.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import source_tree

MEMORY = "tidy-headers.json"
OTHER_ARCHITECTURE = re.compile(r"kernels/isa/neon\w*\.h")
CROSS_COMPILER = "aarch64-linux-gnu-g++"
# An unused function of an unnamed namespace is normal where nothing follows the header.
RELAXED = ["-Wno-unused-function", "-Wno-unused-variable", "-Wno-unused-const-variable"]
WITH_ARGUMENT = {"-o", "-MQ", "-MF", "-MT"}
DROPPED = {"-c", "-MD", "-MMD"}


class Tree:
    """Which project file includes which."""

    def __init__(self, root):
        self.root = root
        self.files = source_tree.cpp_files(root)
        self.texts = {name: source_tree.read(root, name) for name in self.files}
        self.direct = {
            name: {other for _, _, other in source_tree.includes(text) if other in self.texts}
            for name, text in self.texts.items()}

    def closure(self, name):
        """The file and all that it includes, directly or not."""
        seen, waiting = {name}, [name]
        while waiting:
            for other in self.direct.get(waiting.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        return seen


def flags_of(entry):
    """The compiler and flags of a compile command, without its source and output."""
    kept, words = [], iter(shlex.split(entry["command"]))
    for word in words:
        if word in WITH_ARGUMENT:
            next(words, None)
        elif word not in DROPPED and word != entry["file"]:
            kept.append(word)
    return kept


def read_commands(build, root):
    """Source file (from the project's top) -> (working folder, flags)."""
    entries = json.loads((pathlib.Path(build) / "compile_commands.json").read_text())
    top, commands = os.path.realpath(root), {}
    for entry in entries:
        path = os.path.realpath(os.path.join(entry["directory"], entry["file"]))
        name = os.path.relpath(path, top)
        if not name.startswith(".."):
            commands.setdefault(name, (entry["directory"], flags_of(entry)))
    return commands


def choose_command(header, closures, commands):
    """The plainest flags that the header is really built with; None if nothing builds it."""
    def rank(name):
        machine_flags = sum(flag.startswith("-m") for flag in commands[name][1])
        return machine_flags, os.path.dirname(name) != os.path.dirname(header), name
    users = [name for name in commands if header in closures.get(name, ())]
    return commands[min(users, key=rank)] if users else None


def proven_by_build(tree, commands):
    """Headers that stand first in a source file of the build."""
    proven = set()
    for name in commands:
        code = source_tree.without_comments(tree.texts.get(name, ""))
        first = re.match(r'\s*#[ \t]*include[ \t]*"([^"\n]+)"', code)
        if first:
            proven.add(first[1])
    return proven


def memory_key(command, header, tree):
    digest = hashlib.sha256(repr(command).encode())
    for name in sorted(tree.closure(header)):
        digest.update(f"{name}\0{tree.texts[name]}\0".encode())
    return digest.hexdigest()


def compile_alone(header, command):
    """The compiler's complaints; empty if there are none. Twice, for #pragma once."""
    folder, flags = command
    source = f'#include "{header}"\n' * 2
    run = subprocess.run([*flags, *RELAXED, "-fsyntax-only", "-x", "c++", "-"], input=source,
                         cwd=folder, capture_output=True, text=True, check=False)
    return "" if run.returncode == 0 else run.stderr or f"exit code {run.returncode}"


def plan(tree, commands):
    """(header -> command, headers that cannot be compiled here), without those the build proves."""
    closures = {name: tree.closure(name) for name in commands if name in tree.texts}
    plain = commands[min(commands, key=lambda name: (
        sum(flag.startswith("-m") for flag in commands[name][1]), name))]
    jobs, skipped, proven = {}, [], proven_by_build(tree, commands)
    for header in tree.files:
        if not header.endswith(".h") or header in proven:
            continue
        command = choose_command(header, closures, commands)
        if command is None and OTHER_ARCHITECTURE.fullmatch(header):
            if shutil.which(CROSS_COMPILER) is None:
                skipped.append(header)
                continue
            top = os.path.realpath(tree.root)
            command = (top, [CROSS_COMPILER, "-std=c++20", "-march=armv8.2-a+dotprod+fp16",
                             "-Wall", "-Wextra", "-Werror", "-I" + top])
        jobs[header] = command or plain
    return jobs, skipped


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: check_headers.py BUILD_DIR [ROOT]")
    build, root = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "."
    tree, commands = Tree(root), read_commands(build, root)
    jobs, skipped = plan(tree, commands)
    memory = pathlib.Path(build) / MEMORY
    try:
        passed = set(json.loads(memory.read_text()))
    except (OSError, ValueError):
        passed = set()
    keys = {header: memory_key(command, header, tree) for header, command in jobs.items()}
    fresh = [header for header in jobs if keys[header] not in passed]
    failures = []
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for header, complaint in zip(fresh, pool.map(
                lambda header: compile_alone(header, jobs[header]), fresh)):
            if complaint:
                failures.append(f"{header}:1: headers: does not compile alone:\n{complaint}")
                del keys[header]
    memory.write_text(json.dumps(sorted(keys.values())))
    for header in skipped:
        print(f"{header}: skipped: needs {CROSS_COMPILER}")
    source_tree.finish("headers", failures, f"{len(jobs)} headers, {len(fresh)} compiled now")


if __name__ == "__main__":
    main()
