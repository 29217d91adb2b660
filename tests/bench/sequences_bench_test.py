#!/usr/bin/env python3
"""sequences_bench refuses what is no number, and a result that nobody gets is no success.

usage: sequences_bench_test.py SEQUENCES_BENCH
"""

import os
import subprocess
import sys
import unittest


def run(*words, **options):
    return subprocess.run([PROGRAM, *words], stderr=subprocess.PIPE, text=True, check=False,
                          **options)


class SequencesBench(unittest.TestCase):
    def test_words_that_mean_nothing_are_refused(self):
        number = "is no number of 1 to 1048576"
        for words, said in (("-w 12abc - decode 1", f'"12abc" {number}'),
                            ("-t 0 - decode 1", f'"0" {number}'),
                            ("- decode 3x", f'"3x" {number}'), ("- decode -3", f'"-3" {number}'),
                            ("- decode +3", f'"+3" {number}'),
                            ("- decode 4294967297", f'"4294967297" {number}'),
                            ("- decode 1 2 3", "too many numbers"),
                            ("- batch 3", "too few numbers"), ("- batch 3 2 1", "too many numbers"),
                            ("- turns 1 1 1048576 1048576 1", "positions, at most"),
                            ("- sing 3", "the mode is"), ("-x 3 - decode 1", "no flag -x")):
            done = run(*words.split(), stdout=subprocess.PIPE)
            with self.subTest(words=words, err=done.stderr):
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertIn(said, done.stderr)

    def test_a_result_that_cannot_be_written_is_an_error(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = run("-", "decode", "1", stdout=full)
        self.assertEqual(done.returncode, 1)
        self.assertIn("the result could not be written: stdout: No space", done.stderr)
        done = run("-", "decode", "1", preexec_fn=lambda: os.close(1))
        self.assertEqual(done.returncode, 1)
        self.assertIn("stdout is closed", done.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv[1]
    unittest.main(argv=sys.argv[:1])
