#!/usr/bin/env python3
"""Fails if a kernel library defines a symbol that the linker may merge with the baseline's, or more than its table."""

import subprocess
import sys


def defined_symbols(library):
    text = subprocess.run(["nm", "-C", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    for line in text.splitlines():
        fields = line.split(maxsplit=2)
        if len(fields) == 3:
            yield fields[1], fields[2]


def problems(library):
    tables = 0
    for kind, name in defined_symbols(library):
        if kind in "WVu":
            yield f"{library}: weak symbol {name}"
        elif kind.isupper() and name.endswith("_kernels"):
            tables += 1
        elif kind.isupper():
            yield f"{library}: global symbol {name} beside the table"
    if tables != 1:
        yield f"{library}: {tables} tables instead of 1"


def main():
    found = [problem for library in sys.argv[1:] for problem in problems(library)]
    print("\n".join(found) or f"{len(sys.argv) - 1} libraries hold their table and nothing that could be merged")
    return 1 if found or len(sys.argv) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
