#!/usr/bin/env python3
"""No code that was compiled for one ISA can end up in the rest of the program.

usage: check_isa_objects.py ARCHIVE...          the static libraries of kernels/table_<isa>.cpp

An inline function or template that was compiled with -mavx512f is a weak symbol, and the linker may
choose that copy for everybody: the program then dies on an older CPU. So `nm` must find there one
global symbol, the table, no weak or unique one, and no undefined one but the few below.
"""

import re
import subprocess
import sys

WEAK = "WwVvu"
# C functions that are exact, what the compiler itself calls for, the program's abort, which is no
# inline function, and the codebooks of kernels/grids, which are data.
UNDEFINED_ALLOWED = re.compile(
    r"memcpy|memset|memmove|memcmp|fma|fmaf|sqrt|sqrtf|_GLOBAL_OFFSET_TABLE_|__stack_chk_fail"
    r"|__tls_get_addr|__(asan|ubsan|tsan|gcov|sanitizer)_\w+|_ZN8millrace12check_failed\w+"
    r"|_ZN8millrace\d+\w+_gridE")


def problems(archive):
    run = subprocess.run(["nm", "--format=posix", archive], capture_output=True, text=True,
                         check=False)
    if run.returncode != 0:
        yield f"{archive}: {run.stderr.strip() or 'nm failed'}"
        return
    tables = []
    for line in run.stdout.splitlines():
        words = line.split()
        if len(words) < 2 or len(words[1]) != 1:
            continue  # "archive[object]:"
        symbol, kind = words[0], words[1]
        if kind in WEAK:
            yield f"{archive}: weak symbol {symbol} ({kind}): put it in an unnamed namespace"
        elif kind == "U":
            if not UNDEFINED_ALLOWED.fullmatch(symbol):
                yield f"{archive}: calls {symbol}, which is not on the list of allowed calls"
        elif kind.isupper():
            tables.append(symbol)
    if len(tables) != 1:
        yield f"{archive}: {len(tables)} global symbols instead of its table alone: {tables}"


def main():
    archives = sys.argv[1:]
    if not archives:
        sys.exit("usage: check_isa_objects.py ARCHIVE...")
    failures = [failure for archive in archives for failure in problems(archive)]
    for failure in failures:
        print(failure)
    print(f"isa objects: {len(archives)} archives, {len(failures)} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
