"""The files of the project, and C++ text with comments and strings blanked: shared by the checks."""

import pathlib
import re
import subprocess
import sys

CPP_SUFFIXES = (".cpp", ".h")
SKIPPED_FOLDERS = {".git", "__pycache__"}

# Line structure and length are kept, so an offset in blanked text is one in the file too.
_TOKEN = re.compile(
    r"""(?P<raw>(?:u8|u|U|L)?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")
      | (?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)
      | (?P<string>"(?:\\.|[^"\\\n])*")
      | (?P<number>(?<!\w)\d(?:'?[\w.])*)
      | (?P<char>'(?:\\.|[^'\\\n])+')""",
    re.S | re.X,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.M)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.M)


def project_files(root):
    """Every file of the project as a sorted list of paths relative to `root`.

    Git's view (tracked, plus new files that are not ignored) where there is one, else the folder.
    """
    root = pathlib.Path(root)
    if (root / ".git").exists():
        git = subprocess.run(
            ["git", "-c", "safe.directory=*", "-C", str(root), "ls-files", "-z", "--cached",
             "--others", "--exclude-standard"],
            capture_output=True, text=True, check=False)
        if git.returncode == 0:
            names = {name for name in git.stdout.split("\0") if name}
            return sorted(name for name in names if (root / name).is_file())
    found = []
    for path in root.rglob("*"):
        parts = path.relative_to(root).parts
        if path.is_file() and not SKIPPED_FOLDERS.intersection(parts) \
                and not parts[0].startswith("build"):
            found.append("/".join(parts))
    return sorted(found)


def cpp_files(root):
    return [name for name in project_files(root) if name.endswith(CPP_SUFFIXES)]


def read(root, name):
    """The text as it is, carriage returns included."""
    return (pathlib.Path(root) / name).read_bytes().decode("utf-8", errors="replace")


def _spaces(text):
    return re.sub(r"[^\n]", " ", text)


def without_comments(text):
    """Comments become spaces; strings stay (for #include lines)."""
    return _TOKEN.sub(lambda m: _spaces(m[0]) if m["comment"] else m[0], text)


def code_only(text):
    """Comments, string and character literals and preprocessor lines become spaces."""
    blank = _TOKEN.sub(lambda m: m[0] if m["number"] else _spaces(m[0]), text)
    return _DIRECTIVE.sub(lambda m: _spaces(m[0]), blank)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def includes(text):
    """Yields (line, quoted, name) of every #include that is not in a comment."""
    code = without_comments(text)
    for match in _INCLUDE.finditer(code):
        yield line_of(code, match.start(2)), match[1] == '"', match[2]


def finish(check, failures, looked_at):
    """Prints the failures, each "file:line: rule", and ends with 1 if there are any."""
    for failure in failures:
        print(failure)
    print(f"{check}: {looked_at}, {len(failures)} failures")
    sys.exit(1 if failures else 0)
