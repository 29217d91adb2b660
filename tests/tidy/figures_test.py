#!/usr/bin/env python3
"""Figures come from results alone, and a changed count of instructions is seen.

usage: figures_test.py BENCH_FOLDER KERNEL_TESTS_FOLDER
"""

import contextlib
import importlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

MACHINE = {"cpu": "A CPU", "cores": 2, "virtual": True}


def axes(name, own, peer, other):
    def column(version, values):
        return {"version": version, "command": "c", "values": values}
    return {"name": name, "kind": "axes", "model": "m.gguf", "threads": 2, "unit": "tokens/s",
            "date": "2026-11-30", "commit": "abc", "machine": MACHINE,
            "rows": {"one sequence": {"millrace": column("abc", own), "peer": column("1.2", peer),
                                      "other": column("3", other)}}}


class Figures(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        (self.root / "bench/results").mkdir(parents=True)
        self.readme = self.root / "README.md"
        self.write_readme("small")

    def write_readme(self, name):
        self.readme.write_text(f"a\n<!-- figures: {name} -->\nold\n<!-- end of figures -->\nb\n")

    def keep(self, kept):
        (self.root / "bench/results" / f"{kept['name']}.json").write_text(json.dumps(kept))

    def draw(self, *flags):
        """(exit code, stdout)."""
        printed, real = io.StringIO(), sys.argv
        sys.argv = ["draw_figures.py", *flags, str(self.root)]
        code = 0
        try:
            with contextlib.redirect_stdout(printed):
                importlib.import_module("draw_figures").main()
        except SystemExit as end:
            code = end.code
        finally:
            sys.argv = real
        return code, printed.getvalue()

    def test_a_readme_that_says_other_than_the_results_is_found_and_redrawn(self):
        self.keep(axes("small", [30, 10, 20], [10, 8, 50], [5, 5, 5]))
        code, printed = self.draw("--check")
        self.assertEqual(code, 1)
        self.assertIn("run bench/draw_figures.py", printed)
        self.assertEqual(self.draw()[0], 0)
        text = self.readme.read_text()
        self.assertIn("| one sequence | 20.0 | 10.0 | 5.00 | 2.00 |", text)
        self.assertIn("medians of 3 runs by turns", text)
        self.assertTrue(text.startswith("a\n") and text.endswith("\nb\n"))
        self.assertEqual(self.draw("--check")[0], 0)
        self.keep(axes("small", [30, 10, 21], [10, 8, 50], [5, 5, 5]))
        self.assertEqual(self.draw("--check")[0], 1)

    def test_figures_without_their_results_are_an_error(self):
        self.write_readme("kernels")
        self.assertIn("no bench/results/kernels.json", str(self.draw("--check")[0]))

    def test_kernels_are_drawn_with_shares_beside_their_limits(self):
        def figure(residency, tokens):
            return {"type": "MXFP4", "isa": "avx2", "residency": residency, "threads": 1,
                    "tokens": tokens, "bytes_per_second": 2e10, "share": 0.875,
                    "times_scalar": 21.5, "multiply_adds_per_second": 3e11}
        self.keep({"name": "kernels", "kind": "whole", "date": "2026-11-30", "commit": "abc",
                   "machine": MACHINE, "command": "millrace kernels --json", "result": {
                       "limits": [{"residency": "l2", "threads": 1, "best_bytes_per_second": 9e10}],
                       "kernels": [figure("l2", 1), figure("memory", 1), figure("l2", 32)]}})
        self.write_readme("kernels")
        self.assertEqual(self.draw()[0], 0)
        text = self.readme.read_text()
        self.assertIn("| MXFP4 | 20.0 (0.88) | 21.5 | 20.0 (0.88) | 300 |", text)
        self.assertIn("90.0 GB/s (L2, 1)", text)


class Recording(unittest.TestCase):
    def test_paths_of_a_machine_are_not_kept(self):
        record = importlib.import_module("record")
        self.assertEqual(record.plain_words("build/tools/millrace run /data/m.gguf -t 2"),
                         "build/tools/millrace run m.gguf -t 2")


class Counts(unittest.TestCase):
    def test_a_change_beyond_two_percent_is_told_and_so_is_a_kernel_that_came_or_went(self):
        counts = importlib.import_module("instruction_counts")
        self.assertEqual(counts.compare({"x a": 1.019, "x b": 3}, {"x a": 1, "x b": 3}), [])
        told = counts.compare({"x a": 1.03, "x new": 1}, {"x a": 1, "x gone": 1})
        self.assertEqual(len(told), 3)
        self.assertIn("x a: 1.03 instructions per byte, reference 1 (+3.0 %)", told)
        # An instruction set that this build lacks is no failure.
        self.assertEqual(counts.compare({"x a": 1}, {"x a": 1, "y a": 1}), [])

    def test_the_innermost_loop_with_the_fewest_instructions_per_dot_is_counted(self):
        counts = importlib.import_module("instruction_counts")
        # A loop of three instructions with one dot in a loop of six; one of four with one dot; one
        # of two without.
        jumps = {3: 1, 5: 0, 9: 6, 11: 10}
        lines = [(at, "vpdpbusd" if at in (2, 7) else "add", jumps.get(at)) for at in range(12)]
        self.assertEqual(counts.instructions_per_dot(lines), 3)
        self.assertIsNone(counts.instructions_per_dot(lines[10:]))

    def test_a_loop_over_quads_counts_four_times(self):
        counts = importlib.import_module("instruction_counts")

        def group(dots, jumps):
            lines = [(at, "vpdpbusd" if at in dots else "add", jumps.get(at)) for at in range(12)]
            return counts.instructions_per_group(lines)

        # Ten instructions, of which six are a quad's.
        self.assertEqual(group((6,), {7: 2, 9: 0}), 4 + 4 * 6)
        self.assertEqual(group((6,), {9: 0}), 10)  # unrolled
        # Two loops, of which none is the group's; a further one in the group's.
        self.assertIsNone(group((2, 7), {3: 0, 9: 6}))
        self.assertIsNone(group((6,), {4: 3, 9: 0}))
        self.assertIsNone(group((6,), {4: 3, 7: 2, 9: 0}))


if __name__ == "__main__":
    sys.path[:0] = [sys.argv[1], sys.argv[2]]
    unittest.main(argv=sys.argv[:1])
