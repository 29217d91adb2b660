// An output that is a file of the model, an input or another output destroys nothing: it is
// refused.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/cli/program.h"

using namespace millrace;
using namespace millrace::cli;
using testing::TempFolder;

namespace {

const std::string tiny = small_model();

void check_refused(const Words& words, int code, const Words& named) {
  CAPTURE(words);
  const Outcome outcome = run_program(words);
  CAPTURE(outcome.err);
  CHECK(outcome.code == code);
  CHECK(outcome.out.empty());
  for (const std::string& name : named) {
    CAPTURE(name);
    CHECK(contains(outcome.err, name));
  }
}

Words run_of(const std::string& model, const Words& flags) {
  return Words{"run", model, "-p", "Hello", "-n", "1"} + flags;
}

}  // namespace

TEST_CASE("An output that is the model is refused with 1, by whatever name, and the model stays") {
  const TempFolder folder;
  const std::string bytes = read_file(tiny);
  const std::string model = folder.write("m.gguf", bytes);
  const std::string symbolic = folder.path("symbolic");
  const std::string hard = folder.path("hard");
  std::filesystem::create_symlink("m.gguf", symbolic);
  std::filesystem::create_hard_link(model, hard);
  const std::string ids = folder.write("ids", "[1]");
  for (const std::string& name : {model, symbolic, hard, folder.path("./m.gguf")}) {
    check_refused(run_of(model, {"--dump-state", name}), 1, {"--dump-state", "-m", name});
    check_refused(run_of(model, {"--trace", name}), 1, {"--trace", "-m", name});
    check_refused(run_of(name, {"--trace", model}), 1, {"--trace", "-m", name});
    check_refused({"logits", model, "--tokens", ids, "-o", name}, 1, {"-o", "-m", name});
  }
  CHECK(read_file(model) == bytes);
}

TEST_CASE("An output that is the prompt or the file of ids is refused with 1, and that stays") {
  const TempFolder folder;
  const std::string prompt = folder.write("prompt", "Hello");
  check_refused({"run", tiny, "-f", prompt, "--trace", prompt}, 1, {"--trace", "-f", prompt});
  check_refused({"run", tiny, "-f", prompt, "--dump-state", prompt}, 1, {"--dump-state", "-f"});
  CHECK(read_file(prompt) == "Hello");
  const std::string ids = folder.write("ids", "[1]");
  check_refused({"logits", tiny, "--tokens", ids, "-o", ids}, 1, {"-o", "--tokens", ids});
  check_refused({"logits", tiny, "--tokens", ids, "-o", folder.path("o"), "--greedy", "1",
                 "--greedy-out", ids},
                1, {"--greedy-out", "--tokens", ids});
  CHECK(read_file(ids) == "[1]");
  CHECK_FALSE(std::filesystem::exists(folder.path("o")));
}

TEST_CASE("Two outputs that are one file are refused with 1, also if it does not exist yet") {
  const TempFolder folder;
  const std::string there = folder.write("there", "kept");
  const std::string absent = folder.path("absent");
  std::filesystem::create_symlink("absent", folder.path("link"));
  const std::string ids = folder.write("ids", "[1]");
  struct Pair {
    std::string first, second;
  };
  for (const Pair& pair :
       {Pair{there, there}, Pair{absent, absent}, Pair{absent, folder.path("./absent")},
        Pair{folder.path("link"), absent}}) {
    check_refused(run_of(tiny, {"--trace", pair.first, "--dump-state", pair.second}), 1,
                  {"--trace", "--dump-state", pair.first, pair.second});
    check_refused({"logits", tiny, "--tokens", ids, "-o", pair.first, "--greedy", "1",
                   "--greedy-out", pair.second},
                  1, {"-o", "--greedy-out", pair.first});
  }
  CHECK(read_file(there) == "kept");
  CHECK_FALSE(std::filesystem::exists(absent));
}

TEST_CASE("Outputs that exist, are links or are /dev/null twice are taken") {
  const TempFolder folder;
  const std::string ids = folder.write("ids", "[1]");
  CHECK(run_program({"logits", tiny, "--tokens", ids, "-o", "/dev/null", "--greedy", "1",
                     "--greedy-out", "/dev/null"})
            .code == 0);
  const std::string there = folder.write("there", "old");
  std::filesystem::create_symlink("made", folder.path("link"));
  CHECK(run_program(run_of(tiny, {"--trace", there, "--dump-state", folder.path("link")})).code ==
        0);
  CHECK(contains(read_file(there), "turn,phase"));
  CHECK(read_file(folder.path("made")).size() % sizeof(float) == 0);
}

TEST_CASE("A model or a pack that is there is not overwritten by any command's output") {
  const TempFolder folder;
  const std::string header = std::string("\x02\0\0\0\0\0\0\0{}", 10);
  const std::string ids = folder.write("ids", "[1]");
  const std::string trace = folder.write(
      "t.csv", "# expert_bytes=4096\nturn,phase,step,layer,experts,weights\n0,1,0,0,0,1\n");
  struct Kept {
    const char* name;
    std::string bytes;
  };
  for (const Kept& kept :
       {Kept{"other.gguf", read_file(tiny)}, Kept{"renamed", read_file(tiny)},
        Kept{"pool", "MILLPACK and so on"}, Kept{"weights", header}, Kept{"w.safetensors", "x"}}) {
    const std::string out = folder.write(kept.name, kept.bytes);
    const Words output_flags[] = {
        {"run", tiny, "-p", "a", "--trace", out},
        {"run", tiny, "-p", "a", "--dump-state", out},
        {"logits", tiny, "--tokens", ids, "-o", out},
        {"logits", tiny, "--tokens", ids, "-o", "/dev/null", "--greedy", "1", "--greedy-out", out},
        {"perplexity", tiny, ids, "--trace", out},
        {"trace", tiny, "-p", "a", "-o", out},
        {"trace", "import", trace, "-o", out},
        {"replay", trace, "--svg", out},
        {"floor", folder.path(""), "--svg", out},
        {"bench", tiny, "--svg", out},
        {"pack", tiny, out},
        {"fixture", "--shape", "olmoe-1b-7b", "--type", "q8_0", out}};
    for (const Words& words : output_flags)
      check_refused(words, 1, {words.end()[-2].starts_with("-") ? words.end()[-2] : "OUT", out});
    CHECK(read_file(out) == kept.bytes);
  }
}

TEST_CASE("A model that is where a pack would be made is not overwritten") {
  const TempFolder folder;
  const std::string bytes = read_file(tiny);
  const std::string model = folder.write("m.part", bytes);
  check_refused({"pack", model, folder.path("m")}, 1, {"OUT", model});
  check_refused({"pack", tiny, folder.path("m")}, 1, {"OUT", model});
  CHECK(read_file(model) == bytes);
}

TEST_CASE("A large file is not put in the place of a device") {
  check_refused({"fixture", "--shape", "olmoe-1b-7b", "--type", "q8_0", "/dev/null"}, 2,
                {"/dev/null", "regular"});
  check_refused({"pack", tiny, "/dev/null"}, 2, {"/dev/null", "regular"});
  CHECK(std::filesystem::is_character_file("/dev/null"));
}

TEST_CASE("An output that cannot be created is refused with 2 before the trunk is read") {
  const TempFolder folder;
  // The trunk does not fit, which is found out when it is planned: the path is refused earlier.
  const Words no_trunk = {"--trunk", "1"};
  const std::string ids = folder.write("ids", "[1]");
  for (const std::string& path :
       {folder.path("no/such"), folder.path(""), folder.path("x/"), ids + "/x"}) {
    check_refused(run_of(tiny, Words{"--trace", path} + no_trunk), 2, {"--trace", path});
    check_refused(run_of(tiny, Words{"--dump-state", path} + no_trunk), 2, {"--dump-state", path});
    check_refused(Words{"logits", tiny, "--tokens", ids, "-o", path} + no_trunk, 2, {"-o", path});
  }
}

TEST_CASE("A large output that is a pipe or a folder is refused with 2, and that stays") {
  const TempFolder folder;
  const std::string pipe = folder.path("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  std::filesystem::create_symlink("pipe", folder.path("link"));
  std::filesystem::create_directory(folder.path("d"));
  std::filesystem::create_symlink("circle", folder.path("circle"));
  const Words fixture = {"fixture", "--shape",      "olmoe-1b-7b", "--type",
                         "q8_0",    "--layers",     "1",           "--experts",
                         "8",       "--width",      "256",         "--expert-width",
                         "64",      "--vocabulary", "2048"};
  for (const std::string& path :
       {pipe, folder.path("link"), folder.path("d"), folder.path("circle")}) {
    check_refused({"pack", embedded_model(), path}, 2, {path});
    check_refused(fixture + Words{path}, 2, {path});
  }
  CHECK(std::filesystem::is_fifo(pipe));
  CHECK(std::filesystem::is_symlink(folder.path("link")));
  CHECK_FALSE(std::filesystem::exists(pipe + ".part"));
  // Neither is what lies where a file in the making would.
  const std::string kept = folder.write("kept", "kept");
  REQUIRE(mkfifo(folder.path("out.part").c_str(), 0600) == 0);
  std::filesystem::create_symlink("kept", folder.path("new.part"));
  for (const std::string& path : {folder.path("out"), folder.path("new")})
    check_refused({"pack", embedded_model(), path}, 2, {path + ".part"});
  CHECK(read_file(kept) == "kept");
}

TEST_CASE("A large output that is a link is written where the link leads, and the link stays") {
  const TempFolder folder;
  std::filesystem::create_directory(folder.path("far"));
  const std::string real = folder.path("far/pool");
  const std::string link = folder.path("link");
  std::filesystem::create_symlink("far/pool", link);
  const std::string plain = folder.path("plain");
  REQUIRE(run_program({"pack", embedded_model(), plain}).code == 0);
  // First there is nothing yet behind the link, then there is.
  for (const char* before : {"nothing", "a file"}) {
    CAPTURE(before);
    REQUIRE(run_program({"pack", embedded_model(), link}).code == 0);
    CHECK(std::filesystem::is_symlink(link));
    CHECK(read_file(real) == read_file(plain));
    CHECK_FALSE(std::filesystem::exists(link + ".part"));
    CHECK_FALSE(std::filesystem::exists(real + ".part"));
    folder.write("far/pool", "old");
  }
}

TEST_CASE("What cannot be written to its end is removed, whichever output it is") {
  const TempFolder folder;
  const std::string ids = folder.write("ids", "[1, 2, 3]");
  const std::string path = folder.path("out");
  const rlim_t bytes = GENERATE(0u, 300u);
  const bool before = GENERATE(false, true);  // whether there was a file of that name
  const Words commands[] = {
      {"trace", tiny, "-p", "Hello", "-n", "8", "-o", path},
      {"logits", tiny, "--tokens", ids, "-o", path},
      {"logits", tiny, "--tokens", ids, "-o", "/dev/null", "--trace", path},
      {"logits", tiny, "--tokens", ids, "-o", "/dev/null", "--greedy", "600", "--greedy-out", path},
      run_of(tiny, {"-n", "8", "--trace", path}),
      run_of(tiny, {"-n", "8", "--dump-state", path})};
  for (const Words& words : commands) {
    std::filesystem::remove(path);
    if (before) folder.write("out", "old");
    const Outcome outcome = run_program(words, {.before_exec = [bytes] {
                                          const rlimit limit = {bytes, bytes};
                                          return setrlimit(RLIMIT_FSIZE, &limit) == 0;
                                        }});
    CAPTURE(words, bytes, outcome.err);
    CHECK(outcome.code == 2);
    CHECK(contains(outcome.err, path));
    const bool whole = contains(words[words.size() - 2], "--greedy-out");  // the old or the new one
    CHECK(std::filesystem::exists(path) == (before && whole));
  }
}

TEST_CASE("Routing of a dense model is refused before any file is begun") {
  const TempFolder folder;
  const std::string trace = folder.path("trace"), other = folder.path("other");
  const std::string dense = small_model("llama-f32");
  const std::string ids = folder.write("ids", "[1, 2, 3]");
  check_refused(run_of(dense, {"--trace", trace, "--dump-state", other}), 1,
                {"--trace " + trace, "no routed experts"});
  check_refused({"logits", dense, "--tokens", ids, "-o", other, "--trace", trace}, 1,
                {"--trace " + trace, "no routed experts"});
  CHECK_FALSE(std::filesystem::exists(trace));
  CHECK_FALSE(std::filesystem::exists(other));
}
