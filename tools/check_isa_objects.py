#!/usr/bin/env python3
"""No code that was compiled for one ISA can end up in the rest of the program.

usage: check_isa_objects.py BUILD_DIR          every static library kernels_<isa> of the build
       check_isa_objects.py --archive FILE…    these archives or objects

An inline function or template that was compiled with -mavx512f is a weak symbol, and the linker may
choose that copy for everybody: the program then dies on an older CPU. So `nm` must find no weak or
unique symbol there, and no undefined one but the few below: exact, and never inline.
"""

import json
import pathlib
import re
import subprocess
import sys

WEAK = "WwVvu"
# C functions without a rounding of their own, what the compiler itself calls for, and the program's
# abort, which is no inline function.
UNDEFINED_ALLOWED = re.compile(
    r"memcpy|memset|memmove|memcmp|fma|fmaf|sqrt|sqrtf|_GLOBAL_OFFSET_TABLE_|__stack_chk_fail"
    r"|__tls_get_addr|__(asan|ubsan|tsan|gcov|sanitizer)_\w+|_ZN9millrace12check_failed\w+")


def archives_of(build):
    """Files of the static libraries called kernels_<isa>."""
    targets = json.loads((pathlib.Path(build) / "meson-info/intro-targets.json").read_text())
    return [file for target in targets for file in target["filename"]
            if target["type"] == "static library" and target["name"].startswith("kernels_")]


def problems(archive):
    run = subprocess.run(["nm", "--format=posix", archive], capture_output=True, text=True,
                         check=False)
    if run.returncode != 0:
        yield f"{archive}: {run.stderr.strip() or 'nm failed'}"
        return
    defined = 0
    for line in run.stdout.splitlines():
        words = line.split()
        if len(words) < 2 or len(words[1]) != 1:
            continue  # "archive[object]:"
        symbol, kind = words[0], words[1]
        defined += kind in "TtRrDdBb"
        if kind in WEAK:
            yield f"{archive}: weak symbol {symbol} ({kind}): put it in an unnamed namespace"
        elif kind == "U" and not UNDEFINED_ALLOWED.fullmatch(symbol):
            yield f"{archive}: calls {symbol}, which is not on the list of allowed calls"
    if defined == 0:
        yield f"{archive}: no symbols at all: nothing was checked"


def main():
    if len(sys.argv) >= 3 and sys.argv[1] == "--archive":
        archives = sys.argv[2:]
    elif len(sys.argv) == 2 and not sys.argv[1].startswith("-"):
        archives = archives_of(sys.argv[1])
    else:
        sys.exit("usage: check_isa_objects.py BUILD_DIR | --archive FILE...")
    failures = [failure for archive in archives for failure in problems(archive)]
    if not archives:
        failures.append("kernels/meson.build: no static library is called kernels_<isa>")
    for failure in failures:
        print(failure)
    print(f"isa objects: {len(archives)} archives, {len(failures)} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
