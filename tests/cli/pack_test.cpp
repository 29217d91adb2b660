// `pack`, `verify` and `run --pool`: the same bits, whatever happens on the way there.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/cli/program.h"

using namespace millrace;
using namespace millrace::cli;
using testing::TempFolder;

namespace {

void pack(const Words& words) {
  const Outcome outcome = run_program(Words{"pack"} + words);
  CAPTURE(words, outcome.err);
  REQUIRE(outcome.code == 0);
}

std::string state_of(const Words& words) {
  return text_at(run_json(words + Words{"-p", "Once", "-n", "12", "--temp", "0"}), "state_hash");
}

// So many bytes may be written to one file.
Setup limited(std::uint64_t bytes) {
  Setup setup;
  setup.before_exec = [bytes] {
    const rlimit limit{bytes, bytes};
    return setrlimit(RLIMIT_FSIZE, &limit) == 0;
  };
  return setup;
}

constexpr std::uint64_t first_expert = 4096 + 16384;  // 6 layers x 32 experts x 72 bytes, rounded

}  // namespace

TEST_CASE("pack: running from the packed pool gives the bits of the model's own file") {
  const TempFolder folder;
  const std::string out = folder.path("pool");
  pack({embedded_model(), out});
  CHECK(std::filesystem::file_size(out) % 4096 == 0);
  CHECK_FALSE(std::filesystem::exists(out + ".part"));
  const std::string state = state_of({embedded_model()});
  CHECK(state_of({embedded_model(), "--pool", out}) == state);
  CHECK(state_of({embedded_model(), "--pool", out, "--cache", "10%", "--io", "threads"}) == state);
  const Outcome checked = run_program({"verify", out});
  CHECK(checked.code == 0);
  CHECK(contains(checked.out, "192 experts"));
  CHECK(contains(checked.out, "0 slices damaged"));

  SECTION("also in the order of a trace, with the wanted ones first") {
    const std::string trace = folder.path("trace.csv");
    run_json({embedded_model(), "-p", "Once", "-n", "12", "--trace", trace});
    const std::string ordered = folder.path("ordered");
    pack({embedded_model(), ordered, "--order", trace});
    CHECK(read_file(ordered) != read_file(out));
    CHECK(state_of({embedded_model(), "--pool", ordered}) == state);
    CHECK(run_program({"verify", ordered}).code == 0);
  }
}

TEST_CASE("pack: a damaged byte is found by verify, and refused by a run that needs it") {
  const TempFolder folder;
  const std::string out = folder.path("pool");
  pack({"-q", embedded_model(), out});
  const std::uint64_t expert_bytes = (std::filesystem::file_size(out) - first_expert) / 192;
  // Layer 1, expert 3, in its second slice.
  flip_byte(out, first_expert + (32 + 3) * expert_bytes + expert_bytes / 2);
  SECTION("two of three damaged experts are not left out") {
    flip_byte(out, first_expert + 1 * expert_bytes + 10);
    flip_byte(out, first_expert + 191 * expert_bytes + expert_bytes - 4096);
    const Outcome checked = run_program({"verify", out});
    CAPTURE(checked.out);
    CHECK(checked.code == 5);
    CHECK(contains(checked.out,
                   "layer 0 expert 1 gate: damaged\nlayer 1 expert 3 up: damaged\n"
                   "layer 5 expert 31 down: damaged\n"));
    CHECK(contains(checked.out, " GB/s"));
    return;
  }
  const Outcome checked = run_program({"verify", out});
  CHECK(checked.code == 5);
  CHECK(contains(checked.out, "layer 1 expert 3 up: damaged"));
  CHECK(contains(checked.out, "1 slice damaged"));
  CHECK(contains(checked.err, "layer 1 expert 3"));
  // Every expert of every layer is needed by a long enough prompt.
  const Outcome run = run_program({"run", embedded_model(), "--pool", out, "-n", "1", "-p",
                                   read_file(MILLRACE_SOURCE_ROOT "/README.md").substr(0, 900)});
  CAPTURE(run.err);
  CHECK(run.code == 5);
  CHECK(contains(run.err, "layer 1 expert 3"));
  CHECK(contains(run.err, "read again"));
}

TEST_CASE("pack: a table that is damaged, a file cut short, and what is no pack are refused") {
  const TempFolder folder;
  const std::string out = folder.path("pool");
  pack({"-q", embedded_model(), out});
  const std::string whole = read_file(out);
  const auto ends = [&](const Words& words, int code, const char* why) {
    const Outcome outcome = run_program(words);
    CAPTURE(why, outcome.err);
    CHECK(outcome.code == code);
    CHECK(contains(outcome.err, why));
  };
  const auto refused = [&](const std::string& bytes, int code, const char* why) {
    const std::string path = folder.write("broken", bytes);
    ends({"verify", path}, code, why);
    ends({"run", embedded_model(), "--pool", path, "-p", "a"}, code, why);
  };
  std::string table = whole;
  table[4096 + 20] = static_cast<char>(table[4096 + 20] ^ 1);
  refused(table, 5, "table");
  refused(whole.substr(0, whole.size() - 4096), 3, "cut short");
  refused(whole.substr(0, 100), 3, "too short");
  const std::string foreign = folder.write("foreign", std::string(8192, 'x'));
  ends({"run", embedded_model(), "--pool", foreign, "-p", "a"}, 3, "MILLPACK");
  ends({"verify", foreign}, 3, "not a model file");
  const Outcome other = run_program({"run", small_model(), "--pool", out, "-p", "a"});
  CHECK(other.code == 1);
  CHECK(contains(other.err, "another model"));
  CHECK(run_program({"verify", folder.path("absent")}).code == 2);
  CHECK(run_program({"pack", embedded_model(), embedded_model()}).code == 1);
}

TEST_CASE(
    "pack: the trace of another model is no order, and a dense model is refused in one line") {
  const TempFolder folder;
  const std::string out = folder.path("pool");
  const std::string trace = folder.path("trace.csv");
  run_json({small_model("mixtral-mxfp4"), "-p", "a b", "-n", "4", "--trace", trace});
  const std::string own = read_file(trace);
  CHECK(run_program({"pack", "-q", small_model("mixtral-mxfp4"), out, "--order", trace}).code == 0);
  std::filesystem::remove(out);
  const auto refused = [&](const std::string& header) {
    const std::string other = folder.write("other.csv", header + own.substr(own.find('\n')));
    const Outcome outcome =
        run_program({"pack", small_model("mixtral-mxfp4"), out, "--order", other});
    CAPTURE(header, outcome.err);
    CHECK(outcome.code == 1);
    CHECK(contains(outcome.err, "another model"));
    CHECK_FALSE(std::filesystem::exists(out + ".part"));
  };
  const auto changed = [&](const std::string& name) {
    std::string header = own.substr(0, own.find('\n'));
    const std::size_t at = header.find(name);
    REQUIRE(at != std::string::npos);
    return header.insert(at + name.size(), "1");
  };
  refused(changed("n_layer="));
  refused(changed("n_expert="));
  refused(changed("arch="));

  const Outcome dense = run_program({"pack", small_model("llama-f32"), out});
  CHECK(dense.code == 1);
  CHECK(dense.err == "millrace: error: " + small_model("llama-f32") +
                         ": a dense model has no experts to pack\n");
}

TEST_CASE("pack: what a full disk or a kill leaves is no pack, and is continued") {
  const TempFolder folder;
  const std::string out = folder.path("pool");
  pack({"-q", embedded_model(), folder.path("whole")});
  const std::string whole = read_file(folder.path("whole"));
  // Half of the file can be written: as on a full disk.
  const Outcome full = run_program({"pack", embedded_model(), out}, limited(whole.size() / 2));
  CAPTURE(full.err);
  CHECK(full.code == 2);
  CHECK_FALSE(std::filesystem::exists(out));

  // Half of the experts are there, as their table says: what a kill leaves behind.
  std::string half = whole;
  const std::uint64_t packed = 96;
  half.replace(40, sizeof packed, reinterpret_cast<const char*>(&packed), sizeof packed);
  half.replace(48, 8, std::string(8, '\0'));  // the digest that only a complete file has
  const std::uint64_t middle = first_expert + (whole.size() - first_expert) / 2;
  half.replace(middle, half.size() - middle, std::string(half.size() - middle, '\0'));
  {
    std::ofstream part(out + ".part", std::ios::binary | std::ios::trunc);
    part.write(half.data(), static_cast<std::streamsize>(half.size()));
  }
  const Outcome unfinished = run_program({"verify", out + ".part"});
  CHECK(unfinished.code == 3);
  CHECK(contains(unfinished.err, "96 of 192"));
  const Outcome resumed = run_program({"pack", embedded_model(), out});
  CHECK(resumed.code == 0);
  CHECK(contains(resumed.err, "96 of them were there"));
  CHECK(read_file(out) == whole);

  // Of another model: begun anew.
  std::filesystem::rename(out, out + ".part");
  const std::string other = small_model();
  const Outcome anew = run_program({"pack", other, out});
  CHECK(anew.code == 0);
  CHECK_FALSE(contains(anew.err, "earlier run"));
  CHECK(run_program({"verify", out}).code == 0);
}

TEST_CASE("pack: a process that is killed in the middle leaves what the next one completes") {
  const TempFolder folder;
  const std::string out = folder.path("pool");
  {
    Process process(command({"pack", embedded_model(), out}));
    while (!std::filesystem::exists(out + ".part") && process.running()) {
    }
    process.send(SIGKILL);
    process.finish();
  }
  CHECK(run_program({"pack", "-q", embedded_model(), out}).code == 0);
  CHECK(run_program({"verify", out}).code == 0);
  CHECK(state_of({embedded_model(), "--pool", out}) == state_of({embedded_model()}));
}

TEST_CASE("pack: two at once into one path do not mix: the second says so") {
  const TempFolder folder;
  const std::string out = folder.path("pool");
  const int held = open((out + ".part").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  REQUIRE(held >= 0);
  REQUIRE(flock(held, LOCK_EX) == 0);
  const Outcome second = run_program({"pack", "-q", embedded_model(), out});
  CAPTURE(second.err);
  CHECK(second.code == 2);
  CHECK(contains(second.err, "pool.part: another process is writing it"));
  CHECK(std::filesystem::exists(out + ".part"));
  close(held);
  CHECK(run_program({"pack", "-q", embedded_model(), out}).code == 0);
}

TEST_CASE("pack: a pipe where the pack is to be made is refused, not waited for") {
  const TempFolder folder;
  REQUIRE(mkfifo(folder.path("pool.part").c_str(), 0600) == 0);
  const Outcome refused = run_program({"pack", embedded_model(), folder.path("pool")});
  CAPTURE(refused.err);
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "pool.part: is no regular file"));
}
