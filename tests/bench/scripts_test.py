#!/usr/bin/env python3
"""What the scripts of bench/ do with words that mean nothing, and what they keep.

usage: scripts_test.py BENCH_FOLDER
"""

import argparse
import contextlib
import importlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

# Stands for every engine: what each mode prints, with times that follow from its numbers.
ENGINE = """#!/usr/bin/env python3
import json, sys
mode = next(i for i, word in enumerate(sys.argv) if word in ("decode", "prefill", "batch"))
numbers = [int(word) for word in sys.argv[mode + 1:] if "=" not in word]
prefill = [{"tokens": number, "seconds": number / 100} for number in numbers]
print(json.dumps({"decode": {"tokens_per_second": numbers[0]}, "prefill": prefill}))
"""
# The same where only decoding is asked for, and millrace; with "full" in its name it has no room
# for the file of 64 experts.
PLAIN_ENGINE = """#!/bin/sh
echo '{"decode": {"tokens_per_second": 8}}'
"""
MILLRACE = """#!/bin/sh
case "$1" in
fixture)
  echo made > "$2"
  case "$0 $*" in *full*--experts=64*) echo "no room" >&2; exit 1;; esac;;
inspect)
  echo '{"experts": {"layers": 1, "used": 8, "count": 128, "bytes_max": 10},
         "types": [{"role": "trunk", "bytes": 5}]}';;
*)
  echo '{"limits": [{"residency": "memory", "repeats_bytes_per_second": [9, 7, 8]}]}';;
esac
"""


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.engine = self.program("engine", ENGINE)
        self.millrace = self.program("millrace", MILLRACE)

    def program(self, name, text):
        path = self.root / name
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    def run_script(self, script, *words):
        return subprocess.run([sys.executable, "-B", f"{BENCH}/{script}.py", *words],
                              capture_output=True, text=True, check=False)

    def refused(self, script, words, said):
        """Without a process of its own, since there are many; a traceback fails the test."""
        out, err, real = io.StringIO(), io.StringIO(), sys.argv
        sys.argv = [f"{script}.py", *words]
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), \
                    self.assertRaises(SystemExit) as end:
                importlib.import_module(script).main()
        finally:
            sys.argv = real
        with self.subTest(script=script, words=words):
            code = end.exception.code
            self.assertTrue(code == 2 or isinstance(code, str), code)  # a text: exit 1
            self.assertIn(said, err.getvalue() + str(code))
            self.assertEqual(out.getvalue(), "")


class Names(Scripts):
    def test_a_result_is_kept_under_a_plain_name_only(self):
        commands = {"compare_peers": [self.engine, "m.gguf", "decode 1"],
                    "compare_settings": ["millrace", "m.gguf", "default=", "--limit", "1G"],
                    "scaling": [self.millrace, self.engine, str(self.root)]}
        for script, words in commands.items():
            for name in ("../x", "a/b", "Upper", "a b", "a.json", ""):
                self.refused(script, [*words, f"--keep-as={name}"], "is no name of a-z, 0-9 and -")
        self.refused("record", ["../x", "true"], "is no name of a-z, 0-9 and -")

    def test_what_is_kept_lies_under_its_name(self):
        record = importlib.import_module("record")
        self.addCleanup(setattr, record, "RESULTS", record.RESULTS)
        record.RESULTS = self.root / "results"
        self.assertEqual(record.write_result({"name": "a-1"}), self.root / "results/a-1.json")
        self.assertEqual(json.loads((self.root / "results/a-1.json").read_text()), {"name": "a-1"})


    def test_the_readme_is_named_only_where_it_has_the_figures(self):
        record = importlib.import_module("record")
        self.addCleanup(setattr, record, "ROOT", record.ROOT)
        record.ROOT = self.root
        (self.root / "README.md").write_text("<!-- figures: small-1 -->\n<!-- end of figures -->\n")
        self.assertTrue(record.drawn_in_readme("small-1"))
        self.assertFalse(record.drawn_in_readme("small"))

    def test_what_prints_no_json_object_is_not_kept(self):
        for command, said in (("echo hi", "echo hi: printed no JSON: "),
                              ("true", "true: printed no JSON: "),
                              ("echo [1]", "echo [1]: printed no JSON object")):
            self.refused("record", ["ok1", command], said)


class Words(Scripts):
    def test_help_is_the_usage_once_and_the_whole_meaning(self):
        for script in ("compare_peers", "compare_settings", "draw_figures", "mirror_bench",
                       "predictions", "record", "scaling"):
            done = self.run_script(script, "--help")
            title, usage, *meaning = importlib.import_module(script).__doc__.split("\n\n")
            with self.subTest(script=script):
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertTrue(done.stdout.startswith(f"{usage}\n\n{title}\n\n"), done.stdout)
                self.assertIn("\n\n".join(meaning), done.stdout)
                self.assertEqual(done.stdout.count("usage:"), 1)

    def test_what_names_nothing_is_refused(self):
        self.refused("draw_figures", [f"{self.root}/absent"], "is no folder with a README.md")
        self.refused("draw_figures", ["--absent"], "unrecognized arguments: --absent")
        self.refused("predictions", [self.millrace, str(self.root), "NOSHAPE"],
                     "'NOSHAPE' is none of qwen3-30b-a3b, ")
        self.refused("predictions", [self.millrace, str(self.root), "--repeat=0"], "whole number")
        for words, said in ((["off", "--limit=1G"], "'off' is not NAME=FLAGS"),
                            (["=--prefetch off", "--limit=1G"], "is not NAME=FLAGS"),
                            (["default=", "--limit=much"], "'much' is no size"),
                            (["default=", "--limit=1G", "--tokens=0"], "whole number")):
            self.refused("compare_settings", [self.millrace, "m.gguf", *words], said)


class Peers(Scripts):
    def test_what_cannot_be_compared_is_refused_before_anything_is_measured(self):
        def refused(words, said):
            self.refused("compare_peers", words, said)
        for axis, said in (("", "does not begin with"), ("sing 3", "does not begin with"),
                           ("decode", "takes 1 to 2"), ("decode x", "whole number"),
                           ("decode 0", "whole number"), ("batch 3", "takes 2"),
                           ("agents 1 2 3 4", "takes 3"), ("prefill 100", "at least 256"),
                           ("prefill 100 100", "at least 256")):
            refused([self.engine, "m.gguf", axis], said)
        for peer, said in (("x", "WHO|VERSION|PROGRAM"), ("x|1", "WHO|VERSION|PROGRAM"),
                           ("x|1|", "WHO|VERSION|PROGRAM"), ("|1|p", "WHO|VERSION|PROGRAM"),
                           ("x|1|'p", "quotation"), ("x|1|absent-program", "is no program"),
                           (f"millrace|1|{self.engine}", "our own name")):
            refused([self.engine, "m.gguf", "decode 1", "--peer", peer], said)
        twice = ["--peer", f"x|1|{self.engine}"] * 2
        refused([self.engine, "m.gguf", "decode 1", *twice], "two peers of one name")
        refused(["absent-program", "m.gguf", "decode 1"], "is no program")
        for flag in ("--rounds=0", "--rounds=x", "--threads=0", "--warm=-1"):
            refused([self.engine, "m.gguf", "decode 1", flag], "whole number")

    def test_an_engine_that_fails_or_prints_something_else_ends_it_with_a_sentence(self):
        for name, text, said in (("failing", "#!/bin/sh\necho broken >&2\nexit 3\n", "broken"),
                                 ("chatty", "#!/bin/sh\necho hello\n", "not what this mode prints"),
                                 ("other", "#!/bin/sh\necho '{}'\n", "not what this mode prints"),
                                 ("headless", "#!/absent/shell\n", "No such file")):
            self.refused("compare_peers", [self.program(name, text), "m.gguf", "decode 1"], said)

    def test_engines_take_turns_and_medians_are_shown_with_their_ratio(self):
        peer = f"other|2.0|{self.engine} REPACK=0"
        done = self.run_script("compare_peers", self.engine, "m.gguf", "--peer", peer, "--rounds",
                               "2", "--warm", "9", "decode 7", "prefill 64 300")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = done.stdout.split("\n")
        self.assertEqual(lines[0], "round 1: one sequence, 7 tokens: millrace: 7")
        self.assertEqual(lines[1], "round 1: one sequence, 7 tokens: other: 7")
        self.assertIn("prompt of 300", done.stdout)
        self.assertIn("per further prompt token, 64 to 300", done.stdout)
        self.assertRegex(done.stdout, r"one sequence, 7 tokens +millrace 7  other 7  1\.00\n")


class ScalingScript(Scripts):
    def test_a_file_of_its_name_is_left_alone_and_nothing_is_left_behind(self):
        folder = self.root / "models"
        folder.mkdir()
        (folder / "scaling.gguf").write_text("a model")
        engine = self.program("plain-engine", PLAIN_ENGINE)
        full = self.program("full-millrace", MILLRACE)
        for millrace, code in ((self.millrace, 0), (full, 1)):
            done = self.run_script("scaling", millrace, engine, str(folder), "--small", "--rounds",
                                   "1")
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertNotIn("Traceback", done.stderr)
            self.assertEqual([path.name for path in folder.iterdir()], ["scaling.gguf"])
            self.assertEqual((folder / "scaling.gguf").read_text(), "a model")

    def test_what_is_no_folder_or_no_number_of_rounds_is_refused(self):
        self.refused("scaling", [self.millrace, self.engine, f"{self.root}/absent"], "absent: No")
        self.refused("scaling", [self.millrace, self.engine, self.engine], "engine: Not a")
        self.refused("scaling", [f"{self.root}/absent", self.engine, str(self.root)], "absent: No")
        self.refused("scaling", [self.millrace, self.engine, str(self.root), "--rounds=0"],
                     "whole number")

    def test_what_is_kept_names_the_model_that_was_measured(self):
        scaling = importlib.import_module("scaling")
        record = importlib.import_module("record")
        self.addCleanup(setattr, record, "RESULTS", record.RESULTS)
        record.RESULTS = self.root
        for small, model in ((False, "qwen3-30b-a3b, 4 layers, mxfp4"),
                             (True, "qwen3-30b-a3b, 1 layer, width 256, expert width 128,"
                                    " vocabulary 2048, mxfp4")):
            options = argparse.Namespace(small=small, keep_as="kept")
            scaling.Scaling(options, self.root).keep()
            self.assertEqual(json.loads((self.root / "kept.json").read_text())["model"], model)


if __name__ == "__main__":
    BENCH = sys.argv[1]
    sys.path.insert(0, BENCH)
    unittest.main(argv=sys.argv[:1])
