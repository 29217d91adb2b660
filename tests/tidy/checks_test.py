#!/usr/bin/env python3
"""The checks of tools/ find what they look for: each rule gets a small tree that breaks it.

usage: checks_test.py TOOLS_FOLDER
"""

import contextlib
import importlib
import io
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run_check(self, script, *arguments):
        """(exit code, stdout) of a check's main(), in this process: a start of Python each is slow."""
        check = importlib.import_module(script)
        printed, real = io.StringIO(), sys.argv
        sys.argv = [script, *map(str, arguments)]
        try:
            with contextlib.redirect_stdout(printed), self.assertRaises(SystemExit) as end:
                check.main()
        finally:
            sys.argv = real
        return end.exception.code, printed.getvalue()

    def assert_passes(self, script, *arguments):
        code, printed = self.run_check(script, *arguments)
        self.assertEqual(code, 0, printed)

    def assert_fails(self, expected, script, *arguments):
        code, printed = self.run_check(script, *arguments)
        self.assertEqual(code, 1, printed)
        self.assertIn(expected, printed)


class Layers(Case):
    def refuse(self, name, text, expected):
        self.write(name, text)
        self.assert_fails(expected, "check_layers", self.root)

    def test_a_lower_folder_may_not_include_a_higher_one(self):
        self.write("model/a.h", "")
        self.refuse("io/b.cpp", '\n#include "model/a.h"\n', "io/b.cpp:2: layers:")

    def test_base_may_not_include_the_rest_of_runtime(self):
        self.write("runtime/engine.h", "")
        self.refuse("runtime/base/b.cpp", '#include "runtime/engine.h"\n', "runtime/base/b.cpp:1:")

    def test_nothing_includes_tests(self):
        self.write("tests/support/a.h", "")
        self.refuse("bench/b.cpp", '#include "tests/support/a.h"\n', "bench/b.cpp:1:")

    def test_each_library_has_one_room(self):
        for header, inside, outside in [
                ("liburing.h", "io/reader_uring.cpp", "io/reader_threads.cpp"),
                ("tbb/flow_graph.h", "runtime/graph/a.cpp", "runtime/engine.cpp"),
                ("oneapi/tbb/task_arena.h", "runtime/graph/a.h", "model/a.cpp"),
                ("boost/asio.hpp", "runtime/server/a.cpp", "runtime/graph/b.cpp"),
                ("boost/beast/core.hpp", "runtime/server/a.cpp", "tools/b.cpp"),
                ("pcre2.h", "model/tokenizer/a.cpp", "model/a.cpp"),
                ("utf8proc.h", "model/tokenizer/nfc.cpp", "model/tokenizer/a.cpp"),
                ("nlohmann/json.hpp", "runtime/base/json.cpp", "runtime/base/log.cpp"),
                ("spdlog/spdlog.h", "runtime/base/log.cpp", "runtime/base/json.cpp"),
                ("xxhash.h", "runtime/base/hash.cpp", "runtime/base/hash.h"),
                ("CLI/CLI.hpp", "tools/a.cpp", "runtime/a.cpp"),
                ("catch2/catch.hpp", "tests/io/a.cpp", "bench/a.cpp"),
                ("fmt/format.h", "model/a.cpp", "model/a.h"),
                ("immintrin.h", "kernels/isa/avx2.h", "kernels/dispatch.cpp"),
                ("arm_neon.h", "kernels/isa/neon.h", "kernels/dot-inl.h"),
                ("cpuid.h", "kernels/cpu_features.cpp", "runtime/machine.cpp"),
                ("sys/mman.h", "io/a.cpp", "model/a.cpp"),
                ("vector", "kernels/dispatch.cpp", "kernels/isa/avx2.h"),
                ("string", "io/a.cpp", "kernels/table_avx2.cpp")]:
            with self.subTest(header=header):
                self.write(inside, f"#include <{header}>\n")
                self.assert_passes("check_layers", self.root)
                self.refuse(outside, f"  #  include  <{header}>\n",
                            f"{outside}:1: layers: <{header}>")
                (self.root / outside).unlink()

    def test_only_kernel_tables_include_the_code_of_an_isa(self):
        self.write("kernels/dot-inl.h", "")
        self.write("kernels/isa/avx2.h", "")
        self.write("kernels/isa/scalar.h", "")
        both = '#include "kernels/dot-inl.h"\n#include "kernels/isa/scalar.h"\n'
        self.write("kernels/table_avx2.cpp", both + '#include "kernels/isa/avx2.h"\n')
        self.write("kernels/math.cpp", both)
        self.assert_passes("check_layers", self.root)
        self.refuse("kernels/math.cpp", '#include "kernels/isa/avx2.h"\n', "math.cpp:1:")
        self.refuse("model/a.cpp", '#include "kernels/dot-inl.h"\n', "model/a.cpp:1:")

    def test_unknown_headers_and_missing_files_are_refused(self):
        self.refuse("io/a.cpp", "#include <zlib.h>\n", "io/a.cpp:1: layers: <zlib.h>")
        self.refuse("io/a.cpp", '#include "b.h"\n', 'io/a.cpp:1: layers: "b.h"')

    def test_includes_in_comments_and_strings_do_not_count(self):
        self.write("io/a.cpp", '// #include <zlib.h>\n/*\n#include <zlib.h>\n*/\n'
                               'const char* text = "\\\n";\nauto raw = R"(\n#x <zlib.h>\n)";\n')
        self.assert_passes("check_layers", self.root)


class Functions(Case):
    def body(self, lines):
        return "  call();\n" * lines

    def refuse(self, text, expected):
        self.write("io/a.cpp", text)
        self.assert_fails(expected, "check_tidy", "functions", self.root)

    def accept(self, text):
        self.write("io/a.cpp", text)
        self.assert_passes("check_tidy", "functions", self.root)

    def test_seventy_lines_pass_and_seventy_one_do_not(self):
        self.accept("void f() {\n" + self.body(68) + "}\n")
        self.refuse("void f() {\n" + self.body(69) + "}\n", "io/a.cpp:1: functions: f has 71 lines")

    def test_all_shapes_of_functions_are_seen(self):
        long = "{\n" + self.body(70) + "}\n"
        heads = ["void f() const noexcept ", "auto f() -> std::vector<int> ",
                 "template <class T>\nT f(std::array<T, (3 > 2)> x) ",
                 "A::A(int x) : a_{x}, b_(x), c_{} ", 'TEST_CASE("a { b") ',
                 "bool operator<(const A& a, const A& b) ", "A& operator=(A&& other) ",
                 "const auto f = [](int x) ", "void f(struct stat& s) "]
        scopes = [("", ""), ("namespace a {\n", "}\n"), ('extern "C" {\n', "}\n"),
                  ("namespace {\nclass alignas(64) A : B<int> {\n public:\n", "};\n}\n")]
        for i, head in enumerate(heads):
            for j, (before, after) in enumerate(scopes):
                self.write(f"io/{i}_{j}.cpp", before + head + long + after)
        _, printed = self.run_check("check_tidy", "functions", self.root)
        for i, head in enumerate(heads):
            for j, (before, _) in enumerate(scopes):
                line = before.count("\n") + 1
                self.assertIn(f"io/{i}_{j}.cpp:{line}: functions: ", printed, before + head)

    def test_a_lambda_counts_with_its_function(self):
        half = self.body(36)
        self.refuse("void f() {\n" + half + "  run([&] {\n" + half + "  });\n}\n",
                    "a.cpp:1: functions: f")

    def test_tables_classes_and_namespaces_may_be_long(self):
        self.accept("namespace a {\nconst int table[] = {\n" + "  1,\n" * 100 + "};\n"
                    "enum class E : char {\n" + "  a,\n" * 100 + "};\n"
                    "struct S {\n" + "  int x = 0;\n  int f() { return 1; }\n" * 100 + "};\n}\n")

    def test_braces_in_comments_literals_and_macros_do_not_count(self):
        self.accept("#define A(x) \\\n  do { \\\n    x\n\nvoid f() { // {\n"
                    "  g('{', \"{\", R\"(}{{)\"); /* { */\n  n = 1'000'000;\n}\n")

    def test_braces_that_do_not_match_are_reported(self):
        self.refuse("#if A\nvoid f() {\n#else\nvoid g() {\n#endif\n}\n", "braces do not match")


class Style(Case):
    def refuse(self, check, name, text, expected):
        self.write(name, text)
        self.assert_fails(expected, "check_tidy", check, self.root)
        (self.root / name).unlink()

    def accept(self, check, name, text):
        self.write(name, text)
        self.assert_passes("check_tidy", check, self.root)
        (self.root / name).unlink()

    def test_lines(self):
        self.refuse("lines", "io/a.cpp", "int a;\nint b; \n", "io/a.cpp:2: lines: space")
        self.refuse("lines", "io/a.cpp", "int a;\n\tint b;\n", "io/a.cpp:2: lines: tab")
        self.refuse("lines", "io/a.cpp", "int a;\r\n", "io/a.cpp:1: lines: carriage")
        self.refuse("lines", "io/a.cpp", "int a;", "io/a.cpp:1: lines: no newline")
        self.refuse("lines", "io/a.cpp", "\n" * 601, "io/a.cpp:601: lines: 601 lines")
        self.refuse("lines", "io/a.h", "// " + "x" * 98 + "\n", "io/a.h:1: lines: 101 columns")
        self.accept("lines", "io/a.h", "// " + "é" * 97 + "\n" * 599)
        self.accept("lines", "io/a.cpp", '    "' + "x" * 120 + '",\n')
        self.accept("lines", "tests/oracles/a.json", "1 \n\t2")

    def test_words(self):
        for word in ["FIXME", "TODO", "XXX"]:
            self.refuse("words", "io/a.cpp", f"// {word}: later\n", f"io/a.cpp:1: words: '{word}'")
        for code in ["getenv(name)", "std::cout << 1", "throw 1", "assert(x)", "printf(text)",
                     "using namespace std", "try { } catch (...) { }", "std::random_device d"]:
            self.refuse("words", "model/a.cpp", f"\nvoid f() {{ {code}; }}\n",
                        "model/a.cpp:2: words:")
            self.accept("words", "model/a.cpp", f'// {code}\nauto s = "{code}";\n')
        self.accept("words", "tools/a.cpp", "void f() { std::cout << 1; }\n")
        self.accept("words", "runtime/server/a.cpp", "void f() { try { } catch (...) { } }\n")
        self.accept("words", "model/a.cpp", "int fprintf(int);  // XXH3, todo list\n")

    def test_words_of_one_machine(self):
        self.refuse("words", "tools/a.sh", "cd /home/someone\n", "tools/a.sh:1: words:")
        self.refuse("words", "README.md", "see /work/main\n", "README.md:1: words:")
        self.refuse("words", "a.sh", "curl deb.debian.org\n", "a.sh:1: words:")
        self.accept("words", "README.md", "see net/work/main and $root/home/x\n")

    def test_headers(self):
        self.write("io/b.cpp", '#include "io/a.h"\n')
        self.accept("headers", "io/a.h", "// What it is for.\n#pragma once\n")
        self.refuse("headers", "io/a.h", "// What it is for.\n", "io/a.h:1: headers: no #pragma")
        self.refuse("headers", "io/a.h", "#pragma once\n", "io/a.h:1: headers: a header opens")
        self.refuse("headers", "io/c.h", "// What.\n#pragma once\n", "io/c.h:1: headers: dead")

    def test_folders(self):
        self.write("tests/README.md", "x\n")
        self.write("io/meson.build", "['a.cpp', 'table_' + isa + '.cpp']\n"
                   "foreach name : ['read']\n  name + '_bench.cpp'\n")
        self.refuse("folders", "io/a.cpp", "", "io/README.md:1: folders: missing")
        self.write("io/README.md", "x\n" * 60)
        self.accept("folders", "io/a.cpp", "")
        self.accept("folders", "io/table_avx2.cpp", "")
        self.accept("folders", "io/read_bench.cpp", "")
        self.refuse("folders", "io/write_bench.cpp", "", "io/write_bench.cpp:1: folders: dead")
        self.refuse("folders", "io/b.cpp", "", "io/b.cpp:1: folders: dead file")
        self.refuse("folders", "io/README.md", "x\n" * 61, "io/README.md:61: folders: 61 lines")

    def test_files(self):
        self.accept("files", "model/embedded/a.gguf", "x" * (2 << 20))
        self.accept("files", "tests/oracles/a.f32", "x" * (2 << 20))
        self.refuse("files", "io/a.bin", "x" * (2 << 20), "io/a.bin:1: files: 2097152 bytes")
        self.refuse("files", "tests/oracles/a.f32", "x" * (9 << 20), "tests/oracles:1: files:")

    @unittest.skipUnless(shutil.which("clang-format-14"), "needs clang-format-14")
    def test_format(self):
        self.write(".clang-format", "BasedOnStyle: Google\n")
        self.accept("format", "io/a.cpp", "int a = 1;\n")
        self.refuse("format", "io/a.cpp", "int a=1;\n", "io/a.cpp:1: format:")


class Headers(Case):
    def commands(self, **flags):
        """A build of one source file per keyword, with that keyword's flags."""
        entries = [{"directory": str(self.root), "file": f"io/{name}.cpp",
                    "command": f"c++ -I. -std=c++20 -Wall -Werror {value} -MD -MQ x.o -MF x.o.d"
                               f" -o x.o -c io/{name}.cpp"} for name, value in flags.items()]
        self.write("compile_commands.json", json.dumps(entries))

    def test_a_header_that_needs_another_one_fails_until_it_is_mended(self):
        self.commands(a="")
        self.write("io/a.cpp", '#include "io/first.h"\n#include "io/second.h"\n')
        self.write("io/first.h", "#pragma once\nusing Number = int;\n")
        self.write("io/second.h", "#pragma once\ninline Number number = 1;\n")
        self.assert_fails("io/second.h:1: headers: does not compile alone", "check_headers",
                          self.root, self.root)
        self.write("io/second.h",
                   '#pragma once\n#include "io/first.h"\ninline Number number = 1;\n')
        self.assert_passes("check_headers", self.root, self.root)
        _, printed = self.run_check("check_headers", self.root, self.root)
        self.assertIn("0 compiled now", printed)
        self.write("io/first.h", "#pragma once\n")
        self.assert_fails("io/second.h:1:", "check_headers", self.root, self.root)

    def test_a_header_that_a_source_includes_first_is_left_to_the_build(self):
        self.commands(a="")
        self.write("io/a.cpp", '// Why.\n#include "io/a.h"\n')
        self.write("io/a.h", "#pragma once\n#error compiled\n")
        self.assert_passes("check_headers", self.root, self.root)
        for before in ["#define A 1\n", "using A = int;\n", "#include <cstddef>\n"]:
            self.write("io/a.cpp", before + '#include "io/a.h"\n')
            self.assert_fails("#error compiled", "check_headers", self.root, self.root)

    def test_a_header_gets_the_flags_of_the_source_that_includes_it(self):
        self.write("io/plain.cpp", "")
        self.write("io/special.cpp", '#include <cstddef>\n#include "io/special.h"\n')
        self.write("io/special.h", "#pragma once\n#ifndef SPECIAL\n#error not special\n#endif\n"
                                   "namespace { void unused() {} }\n")
        self.commands(plain="", special="-DSPECIAL")
        self.assert_passes("check_headers", self.root, self.root)
        self.commands(plain="-DSPECIAL", special="")
        self.assert_fails("not special", "check_headers", self.root, self.root)


class IsaObjects(Case):
    def object_of(self, code):
        self.write("a.cpp", code)
        subprocess.run(["c++", "-std=c++20", "-O0", "-c", "a.cpp", "-o", "a.o"], cwd=self.root,
                       check=True)
        return self.root / "a.o"

    def test_unnamed_namespaces_pass(self):
        self.assert_passes("check_isa_objects", self.object_of(
            "namespace { template <class T> T twice(T x) { return x + x; } }\n"
            "float use(float x) { return twice(x); }\n"))

    def test_a_template_or_inline_function_leaks(self):
        use = "int f(int x) { return twice(x); }\n"
        for code in ["template <class T> T twice(T x) { return x + x; }\n" + use,
                     "inline int twice(int x) { return x + x; }\n" + use,
                     "#include <vector>\nvoid f(std::vector<int>& v) { v.push_back(1); }\n"]:
            self.assert_fails("weak symbol", "check_isa_objects", self.object_of(code))

    def test_calls_are_on_the_list(self):
        self.assert_passes("check_isa_objects", self.object_of(
            "float f(float a) { return __builtin_fmaf(a, a, a); }\n"))
        self.assert_fails("calls expf", "check_isa_objects", self.object_of(
            "float f(float a) { return __builtin_expf(a); }\n"))

    def test_the_table_is_the_only_global_symbol(self):
        self.assert_fails("2 global symbols", "check_isa_objects", self.object_of(
            "int table = 1;\nint f() { return table; }\n"))
        self.assert_fails("0 global symbols", "check_isa_objects", self.object_of(
            "static int f() { return 1; }\n[[maybe_unused]] static int (*g)() = f;\n"))

    def test_what_nm_cannot_read_fails(self):
        self.write("empty.o", "")
        self.assert_fails("empty.o", "check_isa_objects", self.root / "empty.o")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: checks_test.py TOOLS_FOLDER")
    sys.path.insert(0, sys.argv.pop(1))
    unittest.main()
