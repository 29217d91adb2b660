// --mirror and --stripe as a user meets them: what is refused, what the report says, and a copy
// that goes bad while the program reads it.
#include <filesystem>
#include <fstream>

#include "tests/cli/gguf_edit.h"
#include "tests/cli/program.h"

using namespace millrace;
using namespace millrace::cli;
using testing::TempFolder;

namespace {

constexpr std::uint64_t row_bytes = 4096 * sizeof(float);  // logits of the embedded model
const Words tale = {"-p", "Once upon a time", "--seed", "3", "-n", "40", "--ignore-eos"};
const Words streaming = {"--cache", "5%", "--trunk", "80%", "--piece", "8K"};

std::string copy_of(const std::string& model, const std::string& path) {
  std::filesystem::copy_file(model, path);
  return path;
}

// The error of a run with this mirror, which must end with `code` and name both files.
std::string refusal(const Words& flags, const std::string& original, const std::string& mirror,
                    int code) {
  const Outcome outcome = run_program(Words{"run"} + tale + flags + Words{"--mirror", mirror});
  CAPTURE(outcome.err);
  CHECK(outcome.code == code);
  CHECK(outcome.out.empty());
  CHECK(contains(outcome.err, "--mirror " + mirror));
  CHECK(contains(outcome.err, original));
  return outcome.err;
}

}  // namespace

TEST_CASE("mirror: the report says what each drive read, and that one drive twice gains nothing") {
  const TempFolder folder;
  const std::string copy = copy_of(embedded_model(), folder.path("copy.gguf"));
  const Words flags = Words{"run", "-m", embedded_model(), "--mirror", copy} + tale + streaming;
  const Outcome alone = run_program(Words{"run"} + tale + streaming);
  const Words stripe = GENERATE(Words{}, Words{"--stripe"});
  const Outcome table = run_program(flags + stripe);
  CAPTURE(table.err);
  CHECK(table.code == 0);
  CHECK(table.out == alone.out);
  CHECK(contains(table.err, "  drive      " + copy + ": "));
  CHECK(contains(table.err, "nothing is gained"));
  const Json json = only_json(run_program(flags + stripe + Words{"--json", "-q"}));
  CHECK(bool_at(json, "io.stripe") == !stripe.empty());
  const Json* const drives = at(json, "io.drives").as_array() == nullptr
                                 ? nullptr
                                 : at(json, "io.drives").as_array()->data();
  REQUIRE(drives != nullptr);
  REQUIRE(at(json, "io.drives").as_array()->size() == 2);
  double share = 0;
  for (int i = 0; i < 2; ++i) {
    CHECK(text_at(drives[i], "path") == (i == 0 ? embedded_model() : copy));
    CHECK(integer_at(drives[i], "bytes") > 0);
    CHECK(number_at(drives[i], "bytes_per_second") > 0);
    share += number_at(drives[i], "share");
  }
  CHECK(share == Approx(1));
}

TEST_CASE("mirror: without one, the report has one drive and the table no row for it") {
  const Json json = run_json(tale + streaming);
  REQUIRE(at(json, "io.drives").as_array() != nullptr);
  CHECK(at(json, "io.drives").as_array()->size() == 1);
  CHECK_FALSE(contains(run_program(Words{"run"} + tale).err, "  drive "));
}

TEST_CASE("mirror: what is no copy of the model is refused, naming both and what differs") {
  const TempFolder folder;
  const std::string model = embedded_model();
  const std::string copy = copy_of(model, folder.path("copy.gguf"));
  SECTION("missing") {
    CHECK(contains(refusal({}, model, folder.path("none.gguf"), 2), "no such file"));
  }
  SECTION("of another size") {
    std::filesystem::resize_file(copy, std::filesystem::file_size(copy) - 1);
    const std::string said = refusal({}, model, copy, 1);
    CHECK(contains(said, std::to_string(std::filesystem::file_size(model))));
    CHECK(contains(said, std::to_string(std::filesystem::file_size(copy))));
  }
  SECTION("with one byte changed in its header") {
    const std::uint64_t at = GENERATE(0u, 9u, 5000u, 70'000u);
    flip_byte(copy, at);
    CHECK(
        contains(refusal({}, model, copy, 1), "its header differs at byte " + std::to_string(at)));
  }
  SECTION("another model of the same shape") {
    const std::uint64_t data = GgufEdit(read_file(copy)).data_at();
    std::fstream file(copy, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(data));
    for (int i = 0; i < 6'000'000; ++i) file.put(static_cast<char>(i * 7));
    file.close();
    CHECK(contains(refusal({}, model, copy, 1), "its weights differ"));
  }
  SECTION("a folder without the file") {
    CHECK(contains(refusal({}, model, folder.path(""), 2), "no such file"));
  }
  SECTION("a packed pool, though no --pool was given") {
    const std::string pool = folder.path("pool");
    REQUIRE(run_program({"pack", "-q", model, pool}).code == 0);
    const Outcome outcome = run_program(Words{"run", "--mirror", pool} + tale);
    CHECK(outcome.code == 1);
    CHECK(contains(outcome.err, "--pool"));
  }
}

TEST_CASE("mirror: a pool of other experts is refused by its digests") {
  const TempFolder folder;
  const std::string pool = folder.path("pool");
  REQUIRE(run_program({"pack", "-q", embedded_model(), pool}).code == 0);
  const std::string copy = copy_of(pool, folder.path("copy"));
  flip_byte(copy, 4096 + 70 * 72 + 16);  // in the table
  CHECK(contains(refusal({"--pool", pool}, pool, copy, 1), "its header differs at byte"));
}

TEST_CASE("mirror: damaged experts of one pool are taken from the other") {
  const TempFolder folder;
  const std::string pool = folder.path("pool");
  REQUIRE(run_program({"pack", "-q", embedded_model(), pool}).code == 0);
  const std::string copy = copy_of(pool, folder.path("copy"));
  // Between the places that are compared when it is opened.
  const std::uint64_t size = std::filesystem::file_size(copy), data = 4096 + 16384;
  for (std::uint64_t place = 0; place < 64; ++place)
    flip_byte(copy, data + (size - data) / 64 * place + 200'000);
  const Words flags = Words{"-n", "12", "--cache", "5%"} + Words{"-p", "Once", "--temp", "0"};
  const std::string state = text_at(run_json(flags), "state_hash");
  const Json json = run_json(flags + Words{"--pool", pool, "--mirror", copy});
  CHECK(text_at(json, "state_hash") == state);
}

TEST_CASE("mirror: a folder with the model's files is a mirror, and so is one of a split model") {
  const TempFolder folder;
  const std::string model = embedded_model();
  copy_of(model, folder.path(std::filesystem::path(model).filename().string()));
  const std::string state = text_at(run_json(tale + streaming), "state_hash");
  const Json json =
      run_json(Words{model, "--mirror", folder.path(""), "--stripe"} + tale + streaming);
  CHECK(text_at(json, "state_hash") == state);
}

TEST_CASE("mirror: flags that make no sense are refused") {
  const Outcome stripe = run_program(Words{"run", "--stripe"} + tale);
  CHECK(stripe.code == 1);
  CHECK(contains(stripe.err, "--mirror"));
  const Outcome empty = run_program(Words{"run", "--mirror", ""} + tale);
  CHECK(empty.code == 1);
  Words many = Words{"run"} + tale;
  for (int i = 0; i < 8; ++i) many = many + Words{"--mirror", embedded_model()};
  const Outcome too_many = run_program(many);
  CHECK(too_many.code == 1);
  CHECK(contains(too_many.err, "at most 7"));
}

TEST_CASE("mirror: a copy is not overwritten by what the run writes") {
  const TempFolder folder;
  const std::string copy = copy_of(embedded_model(), folder.path("copy.gguf"));
  const Outcome outcome = run_program(Words{"run", "--mirror", copy, "--dump-state", copy} + tale);
  CHECK(outcome.code == 1);
  CHECK(contains(outcome.err, "--mirror"));
  CHECK(std::filesystem::file_size(copy) == std::filesystem::file_size(embedded_model()));
}

TEST_CASE("mirror: a copy that is cut short while it is read is dropped, and the run goes on") {
  const bool own = GENERATE(false, true);  // the model's own file, or the mirror
  const Words how = GENERATE(Words{}, Words{"--stripe"}, Words{"--stripe", "--io", "threads"});
  CAPTURE(own, how);
  const TempFolder folder;
  const Outcome undisturbed = run_program(Words{"run"} + tale + streaming);
  const std::string model = copy_of(embedded_model(), folder.path("m.gguf"));
  const std::string mirror = copy_of(embedded_model(), folder.path("copy.gguf"));
  const std::string& cut = own ? model : mirror;
  Gate gate(folder);
  Process process(
      command(Words{"run", "-m", model, "--mirror", mirror, "--dump-state", gate.path()} + tale +
              streaming + how),
      {.gate = &gate});
  REQUIRE(process.wait_for_gate(3 * row_bytes));
  REQUIRE(process.running());
  std::filesystem::resize_file(cut, 400'000);
  const Outcome outcome = process.finish();
  CAPTURE(outcome.err);
  CHECK(outcome.code == 0);
  CHECK(outcome.out == undisturbed.out);
  CHECK(contains(outcome.err, "warning: " + cut));
  CHECK(contains(outcome.err, "drive dropped: " + cut));
  CHECK(contains(outcome.err, "truncated"));
}

TEST_CASE("mirror: a copy that is written to while it is read makes the run fail") {
  const TempFolder folder;
  const std::string mirror = copy_of(embedded_model(), folder.path("copy.gguf"));
  Gate gate(folder);
  Process process(
      command(Words{"run", "--mirror", mirror, "--dump-state", gate.path()} + tale + streaming),
      {.gate = &gate});
  REQUIRE(process.wait_for_gate(3 * row_bytes));
  flip_byte(mirror, std::filesystem::file_size(mirror) - 5);
  const Outcome outcome = process.finish();
  CAPTURE(outcome.err);
  CHECK(outcome.code == 2);
  CHECK(contains(outcome.err, mirror));
}
