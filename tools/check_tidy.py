#!/usr/bin/env python3
"""House style that a compiler does not check.

usage: check_tidy.py CHECK [ROOT]     CHECK: functions lines words headers folders files format
Prints file:line and the broken rule; exit 1 if there is any, 77 (skipped) if a tool is missing.
"""

import pathlib
import re
import shutil
import subprocess
import sys

import source_tree

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600
COLUMNS_MAX = 100
README_LINES_MAX = 60
FILE_BYTES_MAX = 1 << 20
ORACLE_BYTES_MAX = 8 << 20

SCRIPT_SUFFIXES = (".py", ".sh")
BINARY_SUFFIXES = (".gguf", ".f32", ".f64", ".bin", ".gz", ".png")
DATA_FOLDERS = ("tests/oracles/",)  # data with its origin; kept as it came
# These name the forbidden words in order to forbid them.
NAMES_THE_WORDS = ("tools/check_tidy.py", "tests/tidy/")


def texts(root):
    """(name, text) of every file that people write."""
    for name in source_tree.project_files(root):
        if not name.endswith(BINARY_SUFFIXES) and not name.startswith(DATA_FOLDERS):
            yield name, source_tree.read(root, name)


def is_source(name):
    return name.endswith(source_tree.CPP_SUFFIXES + SCRIPT_SUFFIXES) or name == ".ci/run"


# functions: at most 70 lines each, signature and closing brace included; lambdas and local classes
# count with the function around them.


def without_angles(head):
    """`template <class T>` and template arguments removed, innermost first."""
    while True:
        shorter = re.sub(r"<[^<>(){};]*>", " ", head)
        if shorter == head:
            return head
        head = shorter


def brace_kind(head):
    """What the brace after `head` opens: "scope" (namespace, class), "function", or "value"."""
    plain = without_angles(head)
    plain = re.sub(r"\balignas\s*\([^()]*\)|\[\[.*?\]\]|__attribute__\s*\(\(.*?\)\)", " ", plain,
                   flags=re.S)
    if re.search(r"\bnamespace\b", plain) or re.fullmatch(r"\s*extern\s*", plain):
        return "scope"
    if plain.rstrip().endswith("="):
        return "value"
    if "(" in plain or plain.rstrip().endswith("]"):
        return "function"
    if re.search(r"\b(class|struct|union)\b", plain) and not re.search(r"\benum\b", plain):
        return "scope"
    return "value"


class FunctionFinder:
    """Walks the braces of one file; `found` gets (first line, last line, head) per function."""

    def __init__(self, text):
        self.code = source_tree.code_only(text)
        self.found = []
        self.scopes = 0       # open namespaces and classes
        self.parens = 0
        self.inside = 0       # open braces of the function or value being passed over
        self.is_function = False
        self.head_start = 0

    def run(self):
        """None, or the offset where the braces stop making sense."""
        for match in re.finditer(r"[{}();]", self.code):
            sign, at = match[0], match.start()
            if self.inside:
                self.inside += (sign == "{") - (sign == "}")
                if self.inside == 0:
                    self.close(at)
            elif sign in "()":
                self.parens += 1 if sign == "(" else -1
            elif sign == "{":
                self.open(at)
            elif sign == ";":
                if self.parens == 0:
                    self.head_start = at + 1
            elif self.scopes == 0 or self.parens != 0:
                return at
            else:
                self.scopes -= 1
                self.head_start = at + 1
        return None if self.scopes == self.inside == self.parens == 0 else len(self.code)

    def open(self, at):
        kind = "value" if self.parens else brace_kind(self.code[self.head_start:at])
        if kind == "scope":
            self.scopes += 1
            self.head_start = at + 1
        else:
            self.inside = 1
            self.is_function = kind == "function"

    def close(self, at):
        following = self.code[at + 1:].lstrip()[:1]
        if not self.is_function or self.parens or following in (",", "{"):
            return  # a value, or a member initialized with braces before the body
        head = re.sub(r"^\s*(?:(?:public|private|protected)\s*:\s*)+", lambda m: " " * len(m[0]),
                      self.code[self.head_start:at])
        start = self.head_start + len(head) - len(head.lstrip())
        name = re.search(r"([~\w:]+)\s*\(", without_angles(head))
        self.found.append((source_tree.line_of(self.code, start),
                           source_tree.line_of(self.code, at), name[1] if name else "function"))
        self.head_start = at + 1


def check_functions(root):
    for name in source_tree.cpp_files(root):
        finder = FunctionFinder(source_tree.read(root, name))
        broken = finder.run()
        if broken is not None:
            yield (f"{name}:{source_tree.line_of(finder.code, broken)}: braces do not match; do not"
                   " open or close one in only one branch of an #if")
        for first, last, function in finder.found:
            if last - first + 1 > FUNCTION_LINES_MAX:
                yield (f"{name}:{first}: {function} has {last - first + 1} lines, at most"
                       f" {FUNCTION_LINES_MAX}")


# lines


def may_be_long(line):
    """An address, or one string literal that fills the line: breaking either helps nobody."""
    return "https://" in line or re.fullmatch(r'\s*(?:R|u8)?".*"[\s,;)}\\]*', line) is not None


def check_lines(root):
    for name, text in texts(root):
        lines = text.split("\n")
        if is_source(name) and len(lines) - 1 > FILE_LINES_MAX:
            yield f"{name}:{len(lines) - 1}: {len(lines) - 1} lines, at most {FILE_LINES_MAX}"
        if text and not text.endswith("\n"):
            yield f"{name}:{len(lines)}: no newline at the end"
        for number, line in enumerate(lines, 1):
            if "\r" in line:
                yield f"{name}:{number}: carriage return"
            elif line != line.rstrip():
                yield f"{name}:{number}: space at the end of the line"
            if "\t" in line and is_source(name):
                yield f"{name}:{number}: tab"
            if len(line) > COLUMNS_MAX and is_source(name) and not may_be_long(line):
                yield f"{name}:{number}: {len(line)} columns, at most {COLUMNS_MAX}"


# words: (pattern, what to do instead, pattern of the paths where it is allowed)

WORDS_ANYWHERE = [
    (r"\b(FIXME|TODO|XXX)\b", "do it, or write an issue", r".*\.md"),
    (r"(?<![\w.$}])/(home|root|work|Users)/\w", "a path of one machine", None),
    (r"\b(deb\.debian\.org|security\.debian\.org|registry\.\w+\.\w+|pypi\.org|\w*artifactory)\b",
     "package registries are left to the machine's own configuration", None),
]
DOORS = r"(tools|runtime/graph|runtime/server|tests|bench)/.*"
WORDS_IN_CPP = [
    (r"\b(secure_)?getenv\b", "options come from flags and the config file",
     r"tools/user_folders\.cpp"),  # where a user's cache lies is told nowhere else
    (r"\bstd\s*::\s*(cout|cerr|clog)\b|(?<![\w.>])printf\s*\(",
     "libraries return text or use runtime/base/log.h", r"(tools|tests|bench)/.*"),
    (r"\bthrow\b", "errors are values (runtime/base/result.h)", r"(tools|tests)/.*"),
    (r"\bcatch\s*\(", "exceptions of others are caught at the three doors, and at the library's"
     " own room", DOORS + r"|runtime/base/(json|log)\.cpp"),
    (r"\busing\s+namespace\s+std\b", "name what you use", None),
    (r"\bassert\s*\(", "MILLRACE_CHECK", None),
    (r"\b(rand|srand)\s*\(|\bstd\s*::\s*random_device\b", "a seeded generator",
     r"model/sampling/random\.cpp"),  # there a run without --seed gets one
]


def check_words(root):
    for name, text in texts(root):
        if name.startswith(NAMES_THE_WORDS):
            continue
        rules = [(text, WORDS_ANYWHERE)]
        if name.endswith(source_tree.CPP_SUFFIXES):
            rules.append((source_tree.code_only(text), WORDS_IN_CPP))
        for searched, words in rules:
            for pattern, instead, allowed in words:
                if allowed and re.fullmatch(allowed, name):
                    continue
                for match in re.finditer(pattern, searched):
                    yield (f"{name}:{source_tree.line_of(searched, match.start())}:"
                           f" '{match[0].strip()}' is not used here: {instead}")


# headers


def check_headers(root):
    names = source_tree.cpp_files(root)
    included = {header for name in names
                for _, _, header in source_tree.includes(source_tree.read(root, name))}
    for name in names:
        if not name.endswith(".h"):
            continue
        text = source_tree.read(root, name)
        if not re.search(r"^#pragma once$", text, re.M):
            yield f"{name}:1: no #pragma once"
        if not text.startswith(("//", "/*")):
            yield f"{name}:1: a header opens with what it is for"
        if name not in included:
            yield f"{name}:1: dead header: nothing includes it"


# folders


def check_folders(root):
    files = source_tree.project_files(root)
    known = set(files)
    builds = [source_tree.read(root, name) for name in files if name.endswith("meson.build")]
    folders = {name.rsplit("/", 1)[0] for name in files
               if "/" in name and not name.startswith((".", "tests/", "model/embedded/"))}
    for folder in sorted(folders | {"tests"}):
        if f"{folder}/README.md" not in known:
            yield f"{folder}/README.md:1: missing: what, owns, threads, limits, why"
    for name in files:
        if name.endswith("/README.md"):
            count = source_tree.read(root, name).count("\n")
            if count > README_LINES_MAX:
                yield f"{name}:{count}: {count} lines, at most {README_LINES_MAX}"
        if name.endswith(".cpp") and not is_built(name.rsplit("/", 1)[1], builds):
            yield f"{name}:1: dead file: no meson.build names it"


def is_built(file, build_texts):
    """True if a meson.build names the file, whole or in parts: 'table_' + isa + '.cpp'."""
    stem = file.removesuffix(".cpp")
    begin, end = stem.split("_")[0] + "_", "_" + stem.split("_")[-1] + ".cpp"
    return any(
        file in text
        or re.search(rf"'{re.escape(begin)}'\s*\+", text)
        or (f"+ '{end}'" in text and f"'{stem.removesuffix(end.removesuffix('.cpp'))}'" in text)
        for text in build_texts)


# files


def check_files(root):
    oracle_bytes = 0
    for name in source_tree.project_files(root):
        size = (pathlib.Path(root) / name).stat().st_size
        if name.startswith("tests/oracles/"):
            oracle_bytes += size
        if size > FILE_BYTES_MAX and not name.startswith(("model/embedded/", "tests/oracles/")):
            yield f"{name}:1: {size} bytes, at most {FILE_BYTES_MAX}"
    if oracle_bytes > ORACLE_BYTES_MAX:
        yield f"tests/oracles:1: {oracle_bytes} bytes in all, at most {ORACLE_BYTES_MAX}"


# format


def clang_format():
    """clang-format 14, by whichever name; other versions break lines differently."""
    for command in ("clang-format-14", "clang-format"):
        if shutil.which(command):
            shown = subprocess.run([command, "--version"], capture_output=True, text=True,
                                   check=False).stdout
            if re.search(r"version 14\.", shown):
                return command
    return None


def check_format(root):
    command = clang_format()
    if command is None:
        print("format: skipped: clang-format 14 is not installed")
        sys.exit(77)
    names = source_tree.cpp_files(root)
    if not names:
        return
    run = subprocess.run([command, "--dry-run", "-Werror", "--style=file", *names], cwd=root,
                         capture_output=True, text=True, check=False)
    for match in re.finditer(r"^(.+?:\d+):\d+: error: (.*)$", run.stderr, re.M):
        yield f"{match[1]}: {match[2]}"
    if run.returncode != 0 and "error:" not in run.stderr:
        yield f"clang-format:1: exit code {run.returncode}: {run.stderr.strip()}"


CHECKS = {name.removeprefix("check_"): function for name, function in list(globals().items())
          if name.startswith("check_")}


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in CHECKS:
        sys.exit(f"usage: check_tidy.py {'|'.join(CHECKS)} [ROOT]")
    root = sys.argv[2] if len(sys.argv) > 2 else "."
    failures = [failure.replace(": ", f": {sys.argv[1]}: ", 1)
                for failure in CHECKS[sys.argv[1]](root)]
    source_tree.finish(sys.argv[1], failures, f"{len(source_tree.project_files(root))} files")


if __name__ == "__main__":
    main()
