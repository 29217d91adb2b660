"""Prints "N passed, N failed" for a meson test run, with ", N skipped" where some were, each with
its reason on stderr.

usage: count_tests.py TESTLOG_JSON EXIT_CODE_OF_MESON     exit 1 unless all that ran passed
"""

import json
import sys


def main():
    path, meson_code = sys.argv[1], int(sys.argv[2])
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    kinds = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}
    try:
        with open(path, encoding="utf-8") as log:
            for line in log:
                test = json.loads(line)
                kind = kinds.get(test["result"], "failed")
                counts[kind] += 1
                said = test.get("stdout", "").strip()
                if kind == "skipped" and said:
                    print(f"{test['name']}: {said.splitlines()[-1]}", file=sys.stderr)
    except OSError as error:
        print(f"no test was run: {error}", file=sys.stderr)
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    print(f"{counts['passed']} passed, {counts['failed']} failed{skipped}")
    sys.exit(1 if meson_code or counts["failed"] or not counts["passed"] else 0)


if __name__ == "__main__":
    main()
