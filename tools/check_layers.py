#!/usr/bin/env python3
"""Who may include whom, and which room each third-party library has. Reads #include lines only.

usage: check_layers.py [ROOT]      prints file:line and the broken rule; exit 1 if there is any
"""

import re
import sys

import source_tree

# Folder -> folders it may include. The longest matching prefix of a path names its folder.
LIBRARIES = {"runtime/base", "kernels", "io", "model", "prefetch", "runtime"}
MAY_INCLUDE = {
    "runtime/base": {"runtime/base"},
    "kernels": {"runtime/base", "kernels"},
    "io": {"runtime/base", "io"},
    "model": {"runtime/base", "kernels", "io", "model"},
    "prefetch": {"runtime/base", "io", "model", "prefetch"},
    "runtime": LIBRARIES,
    "tools": LIBRARIES | {"tools"},
    "bench": LIBRARIES | {"bench"},
    "tests": LIBRARIES | {"tests"},
}

# Headers in angle brackets -> where they may be included, as a pattern over paths.
ROOMS = [
    ("liburing", r"liburing(/.*)?\.h|liburing/.*", r"io/reader_uring\.cpp"),
    ("oneTBB", r"(oneapi/)?tbb(/.*|\.h)?", r"runtime/graph/.*"),
    ("Boost (Asio, Beast)", r"boost/.*", r"runtime/server/.*"),
    ("PCRE2", r"pcre2.*\.h", r"model/tokenizer/.*"),
    ("utf8proc", r"utf8proc\.h", r"model/tokenizer/nfc\.cpp"),
    ("nlohmann/json", r"nlohmann/.*", r"runtime/base/json\.cpp"),
    ("spdlog", r"spdlog/.*", r"runtime/base/log\.cpp"),
    ("zlib", r"zlib\.h", r"prefetch/routing_record\.cpp"),
    ("xxHash", r"xxh.*\.h", r"runtime/base/hash\.cpp"),
    ("CLI11", r"CLI/.*", r"tools/.*"),
    ("Catch2", r"catch2/.*", r"tests/.*"),
    ("a peer", r"llama\.h", r"bench/peers/.*"),
    ("fmt", r"fmt/.*", r".*\.cpp"),
    ("intrinsics", r"(.*intrin|cpuid|arm_\w+|arm_neon|x86gprintrin)\.h",
     r"kernels/isa/.*|kernels/cpu_features\.cpp"),
    ("the operating system", r"(sys|linux|asm|netinet|arpa)/.*|(unistd|fcntl|sched|pthread|signal"
     r"|time|termios|dirent|poll|dlfcn|spawn|netdb|numa|execinfo|ftw|glob|pwd|malloc)\.h",
     r"(io|runtime|tools|bench|tests)/.*|kernels/cpu_features\.cpp"),
]

STANDARD = set("""
algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv chrono
cinttypes climits clocale cmath compare complex concepts condition_variable csetjmp csignal cstdarg
cstddef cstdint cstdio cstdlib cstring ctime cuchar cwchar cwctype deque exception execution
filesystem forward_list fstream functional future initializer_list iomanip ios iosfwd iostream
istream iterator latch limits list locale map memory memory_resource mutex new numbers numeric
optional ostream queue random ranges ratio regex scoped_allocator semaphore set shared_mutex
source_location span sstream stack stdexcept stop_token streambuf string string_view syncstream
system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility
valarray variant vector version
""".split())

# What is compiled with an ISA's flags: it may not bring templates or inline functions along that
# the linker could pick for the whole program, so no containers, strings, spans or logs.
ISA_FILES = re.compile(r"kernels/isa/.*|kernels/.*-inl\.h|kernels/(?:table|super|panels)_\w+\.cpp|"
                       r"tests/kernels/tiles_amx\.cpp")
# The templates over a policy, and the scalar policy, are baseline code as well; the others are not.
SCALAR_OR_TEMPLATE = re.compile(r"kernels/isa/scalar\.h|kernels/.*-inl\.h")
ISA_STANDARD = {"bit", "cmath", "cstddef", "cstdint", "cstring", "limits", "type_traits"}


def folder_of(name):
    fitting = [folder for folder in MAY_INCLUDE if name.startswith(folder + "/")]
    return max(fitting, key=len, default=None)


def quoted_problem(name, included, files):
    if included not in files:
        return f'"{included}": a quoted include names a file of the project, from its top folder'
    own, other = folder_of(name), folder_of(included)
    if other not in MAY_INCLUDE.get(own, set()):
        allowed = ", ".join(sorted(MAY_INCLUDE.get(own, set())))
        return f'"{included}": {own} may include only: {allowed}'
    if not ISA_FILES.fullmatch(included) or ISA_FILES.fullmatch(name):
        return None
    if not SCALAR_OR_TEMPLATE.fullmatch(included):
        return (f'"{included}": only kernels/{{table,super,panels}}_* may hold what an '
                "ISA's flags compile")
    if not name.startswith(("kernels/", "tests/kernels/")):
        return f'"{included}": only kernels/ and its tests may include kernel templates'
    return None


def angle_problem(name, included, files):
    if included in STANDARD:
        if ISA_FILES.fullmatch(name) and included not in ISA_STANDARD:
            allowed = ", ".join(sorted(ISA_STANDARD))
            return f"<{included}>: code for one ISA may include only: {allowed}"
        return None
    for library, headers, rooms in ROOMS:
        if re.fullmatch(headers, included):
            if re.fullmatch(rooms, name):
                return None
            return f"<{included}>: {library} is included only in {rooms}"
    if included in files:
        return f'<{included}>: files of the project are included with "quotes"'
    return f"<{included}>: neither standard nor a library with a room (tools/check_layers.py)"


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    files = set(source_tree.project_files(root))
    names = source_tree.cpp_files(root)
    failures = []
    for name in names:
        if folder_of(name) is None:
            failures.append(f"{name}:1: layers: C++ lives in {', '.join(sorted(MAY_INCLUDE))}")
            continue
        for line, quoted, included in source_tree.includes(source_tree.read(root, name)):
            problem = (quoted_problem(name, included, files) if quoted
                       else angle_problem(name, included, files))
            if problem:
                failures.append(f"{name}:{line}: layers: {problem}")
    source_tree.finish("layers", failures, f"{len(names)} files")


if __name__ == "__main__":
    main()
