#!/usr/bin/env python3
"""How many instructions the main weight products take per byte of weights, against a reference.

usage: instruction_counts.py DRIVER KERNELS_FOLDER COMPILER [--refresh]

Counts do not depend on what else the machine does, so a slow-down shows where times cannot show
it. callgrind counts what runs, for the instruction sets that it knows; for the others the
instructions of the loops of the product for one token are counted in the disassembly, each as often
as it is passed. The reference is instruction_counts.json beside this script, for one compiler;
--refresh writes it anew. Exit 77 (skipped, with the reason) without valgrind or objdump or with
another compiler.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

REFERENCE = pathlib.Path(__file__).with_suffix(".json")
TOLERANCE = 0.02
COUNTED_ISAS = ("scalar", "avx2")
COUNTED_TYPES = ("MXFP4", "Q4_0", "Q8_0", "Q4_K", "Q6_K", "IQ4_XS", "F16")
# Instruction set -> products of a code and an activation in one of its dot instructions.
LOOP_ISAS = {"avxvnni": 32, "avx512": 64, "avx512vnni": 64}
DOTS = ("vpmaddubsw", "vpdpbusd")
# Type -> its format, and the bytes of weights of 256 codes.
BLOCKS = {  # matvec_whole<policy, format>: one loop
    "MXFP4": ("FormatMxfp4", 8 * 17),
    "Q4_0": ("CentredBlocks<BlockQ4_0, false, 8>", 8 * 18),
    "Q8_0": ("FormatQ8_0", 8 * 34),
}
SUPER_BLOCKS = {  # whole_supers<policy, format, 2>: what rows of 2048 columns run
    "Q4_K": ("FormatQ4_K", 144),
    "Q6_K": ("FormatQ6_K", 210),
    "IQ4_XS": ("FormatIQ4_XS", 136),
}


def skip(reason):
    print(f"instruction counts: skipped: {reason}")
    sys.exit(77)


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def callgrind_total(path):
    """Instructions of one dump."""
    match = re.search(r"^(?:totals|summary): (\d+)", path.read_text(), re.M)
    return int(match[1]) if match else 0


def counted(driver, isa):
    """Key -> instructions per byte, of the products that the driver calls."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        lines = run(["valgrind", "--tool=callgrind", "--collect-atstart=no",
                     "--toggle-collect=counted_product", "--dump-after=counted_product",
                     f"--callgrind-out-file={out}", driver, isa, *COUNTED_TYPES]).splitlines()
        counts = {}
        for number, line in enumerate(lines, 1):
            kind, tokens, size = line.split()
            total = callgrind_total(pathlib.Path(f"{out}.{number}"))
            counts[f"{isa} {kind}, {tokens} tokens"] = round(total / int(size), 4)
        return counts


def plain_name(symbol):
    return re.sub(r"(millrace::|\(anonymous namespace\)::|^void |^unsigned long )", "", symbol)


def functions(archive):
    """Plain name without arguments -> [(address, mnemonic, target of a jump or None)]."""
    found = {}
    lines = None
    for line in run(["objdump", "-d", "-C", "--no-show-raw-insn", archive]).splitlines():
        head = re.match(r"[0-9a-f]+ <(.*)>:$", line)
        if head:
            lines = found.setdefault(plain_name(head[1]).split("(")[0].strip(), [])
            continue
        code = re.match(r"\s+([0-9a-f]+):\s+(?:\{\w+\} )?(\S+)\s*([0-9a-f]+)?\b", line)
        if code and lines is not None:
            jumps = code[2].startswith("j") and code[3]
            lines.append((int(code[1], 16), code[2], int(code[3], 16) if jumps else None))
    return found


def instructions_per_dot(lines):
    """Of the best of the innermost loops that hold dot instructions (others finish a row)."""
    loops = [(target, at) for at, _, target in lines if target is not None and target <= at]
    best = None
    for start, end in loops:
        if any((a, b) != (start, end) and start <= a and b <= end for a, b in loops):
            continue
        body = [name for at, name, _ in lines if start <= at <= end]
        dots = sum(name in DOTS for name in body)
        if dots and (best is None or len(body) / dots < best):
            best = len(body) / dots
    return best


def lies_in(inner, outer):
    return inner != outer and outer[0] <= inner[0] and inner[1] <= outer[1]


def instructions_per_group(lines):
    """Of a group of 16 super-blocks: a loop over groups, and in it none but one over the four quads
    of a group, unless the compiler unrolled it."""
    loops = {(target, at): [name for each, name, _ in lines if target <= each <= at]
             for at, _, target in lines if target is not None and target <= at}
    with_dots = [loop for loop, names in loops.items() if any(name in DOTS for name in names)]
    whole = [loop for loop in with_dots if not any(lies_in(loop, each) for each in with_dots)]
    if len(whole) != 1:
        return None
    inner = [loop for loop in loops if lies_in(loop, whole[0])]
    if len(inner) > 1 or any(loop not in with_dots for loop in inner):
        return None
    return len(loops[whole[0]]) + sum(3 * len(loops[each]) for each in inner)


def disassembled(folder, isa):
    """The same from the objects of an instruction set; empty if this build has none."""
    known = {}
    for part in ("table", "super"):
        archive = pathlib.Path(folder) / f"libkernels_{part}_{isa}.a"
        if not archive.exists():
            return {}
        known[part] = functions(archive)

    def lines_of(part, function, rest):
        name = re.compile(rf"{function}<\w+(<\w+>)?, {re.escape(rest)} ?>")
        return next((lines for each, lines in known[part].items() if name.fullmatch(each)), [])

    counts = {}
    for kind, (form, size) in BLOCKS.items():
        each = instructions_per_dot(lines_of("table", "matvec_whole", form))
        counts[kind] = each and each / LOOP_ISAS[isa] * 256 / size
    for kind, (form, size) in SUPER_BLOCKS.items():
        each = instructions_per_group(lines_of("super", "whole_supers", f"{form}, 2ul"))
        counts[kind] = each and each / (16 * size)
    for kind, count in counts.items():
        if not count:
            sys.exit(f"{isa} {kind}: no such loops: bring {__file__} up to date")
    return {f"{isa} {kind}, inner loop": round(count, 4) for kind, count in counts.items()}


def isa_of(key):
    return key.split()[0]


def compare(counts, expected):
    """What differs. Instruction sets that only one of the two has are let be."""
    both = {isa_of(key) for key in counts} & {isa_of(key) for key in expected}
    failures = []
    for key in sorted(counts.keys() | expected.keys()):
        if isa_of(key) not in both:
            print(f"{key}: not compared: this instruction set is not in both")
        elif key not in counts or key not in expected:
            where = "the reference" if key in expected else "this build"
            failures.append(f"{key}: only in {where}")
        elif abs(counts[key] / expected[key] - 1) > TOLERANCE:
            change = 100 * (counts[key] / expected[key] - 1)
            failures.append(f"{key}: {counts[key]} instructions per byte, reference"
                            f" {expected[key]} ({change:+.1f} %)")
    return failures


def main():
    driver, folder, compiler = sys.argv[1:4]
    refresh = sys.argv[4:] == ["--refresh"]
    kept = json.loads(REFERENCE.read_text()) if REFERENCE.exists() else {}
    if not refresh and kept.get("compiler") != compiler:
        skip(f"the reference is for {kept.get('compiler')}, this build is by {compiler}")
    for tool in ("valgrind", "objdump"):
        if shutil.which(tool) is None:
            skip(f"{tool} is not installed")
    counts = {}
    for isa in COUNTED_ISAS:
        counts.update(counted(driver, isa))
    for isa in LOOP_ISAS:
        counts.update(disassembled(folder, isa))
    if refresh:
        REFERENCE.write_text(json.dumps({"compiler": compiler, "instructions_per_byte": counts},
                                        indent=1) + "\n")
        print(f"{REFERENCE}: {len(counts)} counts written")
        return
    failures = compare(counts, kept["instructions_per_byte"])
    for failure in failures:
        print(failure)
    print(f"instruction counts: {len(counts)} kernels, {len(failures)} differ by more than"
          f" {TOLERANCE:.0%}; if that is meant: meson compile -C build refresh_instruction_counts")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
