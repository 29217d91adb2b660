// Model files that are broken, foreign or incomplete: refused with a message that names what is
// wrong, never a crash and never text with exit 0.
#include <cmath>
#include <filesystem>
#include <limits>

#include "tests/cli/gguf_edit.h"
#include "tests/cli/program.h"
#include "tests/support/gguf_builder.h"

using namespace millrace;
using namespace millrace::cli;
using testing::raw;
using testing::TempFolder;

namespace {

GgufEdit sound() { return GgufEdit(read_file(small_model())); }

Outcome run_file(const std::string& path) {
  return run_program({"run", path, "-p", "Hello", "-n", "2", "-q", "--seed", "1"});
}

Outcome run_bytes(const TempFolder& folder, const std::string& bytes) {
  return run_file(folder.write("m.gguf", bytes));
}

// A small stream of numbers with a seed.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed * 2 + 1) {}
  std::uint64_t below(std::uint64_t bound) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ % bound;
  }

 private:
  std::uint64_t state_;
};

void check_refused(const Outcome& outcome, int code, const std::string& named) {
  CAPTURE(outcome.err);
  CHECK(outcome.code == code);
  CHECK(outcome.out.empty());
  CHECK(contains(outcome.err, named));
}

}  // namespace

TEST_CASE("The small model runs as long as nothing is changed") {
  const TempFolder folder;
  const Outcome outcome = run_bytes(folder, sound().bytes());
  CHECK(outcome.code == 0);
  CHECK(outcome.out.size() > std::string("Hello\n").size());
}

TEST_CASE("A file cut anywhere is refused with 3") {
  const TempFolder folder;
  const GgufEdit model = sound();
  std::vector<std::uint64_t> lengths = {0,
                                        1,
                                        3,
                                        4,
                                        8,
                                        16,
                                        23,
                                        24,
                                        25,
                                        model.header_bytes() - 1,
                                        model.header_bytes(),
                                        model.data_at() - 1,
                                        model.data_at(),
                                        model.data_at() + 1,
                                        model.bytes().size() / 2,
                                        model.bytes().size() - 4096};
  Numbers numbers(11);
  for (int i = 0; i < 16; ++i) lengths.push_back(numbers.below(model.header_bytes()));
  for (int i = 0; i < 8; ++i)
    lengths.push_back(model.data_at() +
                      numbers.below(model.bytes().size() - 4096 - model.data_at()));
  for (const std::uint64_t length : lengths) {
    CAPTURE(length);
    check_refused(run_bytes(folder, model.bytes().substr(0, length)), 3, "m.gguf");
  }
}

TEST_CASE("Flipped bytes in the header end with 0, 1, 2 or 3, never with a signal") {
  const TempFolder folder;
  const GgufEdit model = sound();
  Numbers numbers(2);
  int refused = 0;
  for (int i = 0; i < 60; ++i) {
    std::string bytes = model.bytes();
    const std::uint64_t at = numbers.below(model.header_bytes());
    const auto mask = static_cast<char>(1 + numbers.below(255));
    bytes[at] = static_cast<char>(bytes[at] ^ mask);
    const Outcome outcome = run_bytes(folder, bytes);
    CAPTURE(at, int(mask), outcome.signal, outcome.err);
    CHECK(outcome.code >= 0);
    CHECK(outcome.code <= 3);
    CHECK((outcome.code == 0) == outcome.err.empty());
    refused += outcome.code != 0;
  }
  CHECK(refused > 0);
}

TEST_CASE("Sizes of a model that make no sense are refused with 3") {
  const TempFolder folder;
  const std::string key =
      GENERATE("qwen3moe.block_count", "qwen3moe.embedding_length", "qwen3moe.attention.head_count",
               "qwen3moe.attention.head_count_kv", "qwen3moe.expert_count",
               "qwen3moe.expert_used_count", "qwen3moe.attention.key_length",
               "qwen3moe.attention.value_length", "qwen3moe.expert_feed_forward_length");
  const std::uint32_t value = GENERATE(0u, 1000u, 0x7FFFFFFFu, 0xFFFFFFFFu);
  CAPTURE(key, value);
  check_refused(run_bytes(folder, sound().set_u32(key, value).bytes()), 3, "m.gguf");
}

TEST_CASE("What is wrong in a file is named, and the exit code is 3") {
  struct Wrong {
    std::string bytes;
    const char* named;
  };
  const auto wrong = GENERATE(
      Wrong{sound().set_bytes(0, "GGML").bytes(), "GGUF"},
      Wrong{sound().set_bytes(4, raw<std::uint32_t>(9)).bytes(), "9"},
      Wrong{sound().set_text("general.architecture", "mamba7xl").bytes(), "mamba7xl"},
      Wrong{sound().rename("general.architecture", "general.architectura").bytes(),
            "general.architecture"},
      Wrong{sound().rename("qwen3moe.block_count", "qwen3moe.block_kount").bytes(), "block_count"},
      Wrong{sound().rename("blk.1.attn_output.weight", "blk.1.attn_outpot.weight").bytes(),
            "blk.1.attn_output"},
      Wrong{sound().rename("blk.0.ffn_down_exps.weight", "blk.0.ffn_dawn_exps.weight").bytes(),
            "blk.0.ffn_down_exps"},
      Wrong{sound().rename("blk.0.attn_k.weight", "blk.0.attn_q.weight").bytes(), "blk.0.attn_q"},
      Wrong{sound().set_extent("blk.1.attn_q.weight", 1, 32).bytes(), "blk.1.attn_q"},
      Wrong{sound().set_extent("blk.1.attn_norm.weight", 0, 32).bytes(), "blk.1.attn_norm"},
      Wrong{sound().set_extent("token_embd.weight", 1, std::uint64_t{1} << 62).bytes(),
            "token_embd"},
      Wrong{sound().set_type("blk.1.attn_q.weight", 200).bytes(), "200"},
      Wrong{sound().set_type("blk.1.attn_q.weight", 12).bytes(), "Q4_K"},
      Wrong{sound().set_offset("blk.1.attn_q.weight", 1 << 30).bytes(), "blk.1.attn_q"},
      Wrong{sound().set_offset("blk.1.attn_q.weight", ~std::uint64_t{31}).bytes(), "blk.1.attn_q"},
      Wrong{sound().set_offset("blk.1.attn_q.weight", 33).bytes(), "blk.1.attn_q"});
  const TempFolder folder;
  CAPTURE(wrong.named);
  const Outcome outcome = run_bytes(folder, wrong.bytes);
  check_refused(outcome, 3, wrong.named);
  CHECK(contains(outcome.err, "m.gguf"));
}

TEST_CASE("A file that is a GGUF but no model is refused with 3") {
  const TempFolder folder;
  const std::string bytes =
      GENERATE(testing::GgufBuilder().build(),
               testing::GgufBuilder().string("general.architecture", "llama").build(),
               testing::GgufBuilder().f32_tensor("token_embd.weight", {32, 8}).build(),
               std::string(4096, '\0'), std::string("not a model at all\n"));
  check_refused(run_bytes(folder, bytes), 3, "m.gguf");
}

TEST_CASE("A model without a tokenizer is refused where text is asked for; ids work") {
  const TempFolder folder;
  const std::string path = folder.write(
      "m.gguf", sound().rename("tokenizer.ggml.model", "tokenizer.ggml.modem").bytes());
  check_refused(run_file(path), 3, "tokenizer.ggml.model");
  check_refused(run_program({"tokenize", path, "--text", "a"}), 3, "tokenizer.ggml.model");
  check_refused(run_program({"perplexity", path, small_model()}), 3, "tokenizer.ggml.model");
  const std::string ids = folder.write("ids", "[1,2,3]");
  CHECK(run_program({"logits", path, "--tokens", ids, "-o", folder.path("without")}).code == 0);
  CHECK(run_program({"logits", small_model(), "--tokens", ids, "-o", folder.path("with")}).code ==
        0);
  CHECK(read_file(folder.path("without")) == read_file(folder.path("with")));
}

TEST_CASE(
    "A model without any key of a tokenizer is refused, and the message says what is missing") {
  const TempFolder folder;
  const std::string path =
      folder.write("m.gguf", sound()
                                 .rename("tokenizer.ggml.model", "tokenizer.ggml.modem")
                                 .rename("tokenizer.ggml.tokens", "tokenizer.ggml.tokenz")
                                 .bytes());
  check_refused(run_file(path), 3, "no tokenizer");
  check_refused(run_file(path), 3, "tokenizer.ggml.tokens");
}

TEST_CASE("A special token outside the vocabulary is refused, not left out") {
  const TempFolder folder;
  const std::string path =
      folder.write("m.gguf", sound().set_u32("tokenizer.ggml.eos_token_id", 99999).bytes());
  check_refused(run_file(path), 3, "tokenizer.ggml.eos_token_id");
}

TEST_CASE("A tokenizer of an unknown kind is refused by its name") {
  const TempFolder folder;
  check_refused(run_bytes(folder, sound().set_text("tokenizer.ggml.model", "wpm2").bytes()), 3,
                "wpm2");
}

TEST_CASE("A file of each family with a wrong number or a missing tensor is refused with 3") {
  namespace fs = std::filesystem;
  const TempFolder folder;
  std::size_t families = 0;
  for (const auto& entry : fs::directory_iterator(MILLRACE_SOURCE_ROOT "/tests/oracles/models")) {
    if (!fs::exists(entry.path() / "model.gguf")) continue;
    ++families;
    const GgufEdit whole(read_file((entry.path() / "model.gguf").string()));
    const std::string key = "general.architecture";
    // Behind the key: its type, the length of the text.
    const std::uint64_t text = whole.bytes().find(key) + key.size() + 4 + 8;
    const std::string architecture(whole.bytes(), text,
                                   static_cast<unsigned char>(whole.bytes()[text - 8]));
    CAPTURE(entry.path().string(), architecture);
    const auto refused = [&](GgufEdit edit, const std::string& named) {
      check_refused(run_bytes(folder, edit.bytes()), 3, named);
    };
    const std::string heads = architecture + ".attention.head_count";
    refused(GgufEdit(whole).set_u32(heads, 0), heads);
    refused(GgufEdit(whole).rename("output_norm.weight", "output_morn.weight"),
            "tensor output_norm.weight: missing");
    refused(GgufEdit(whole).set_extent("blk.0.attn_norm.weight", 0, 1), "blk.0.attn_norm.weight");
    const std::string used = architecture + ".expert_used_count";
    if (whole.bytes().find(used) == std::string::npos) continue;
    refused(GgufEdit(whole).set_u32(used, 31), used + ": 31 exceeds expert_count");
  }
  CHECK(families >= 12);
}

TEST_CASE("A merge of what is no token is refused by its number") {
  const TempFolder folder;
  GgufEdit edit = sound();
  const std::string key = "tokenizer.ggml.merges";
  // Behind the key: two types, the number of merges, the length of the first.
  const std::uint64_t first = edit.bytes().find(key) + key.size() + 4 + 4 + 8 + 8;
  const std::uint64_t space = edit.bytes().find(' ', first);
  edit.set_bytes(space + 1, "\x01");
  const Outcome outcome = run_bytes(folder, edit.bytes());
  check_refused(outcome, 3, "tokenizer.ggml.merges: merge 0 (");
  CHECK(contains(outcome.err, "\\x01 is no token"));
  CHECK(contains(outcome.err, "m.gguf"));
}

TEST_CASE("Weights that are NaN or infinite end the run with 3 instead of text") {
  const float bad =
      GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity());
  const char* const tensor = GENERATE("blk.0.attn_norm.weight", "blk.1.ffn_norm.weight",
                                      "blk.1.ffn_gate_inp.weight", "output_norm.weight");
  const TempFolder folder;
  CAPTURE(tensor, bad);
  const Outcome outcome = run_bytes(folder, sound().set_data(tensor, 8, raw(bad)).bytes());
  CAPTURE(outcome.err);
  CHECK(outcome.code == 3);
  CHECK(outcome.out == "Hello\n");
  CHECK(contains(outcome.err, "NaN"));
}

TEST_CASE("What is no file at all is refused, and the path is named") {
  const TempFolder folder;
  check_refused(run_file(folder.path("absent.gguf")), 2, "absent.gguf");
  check_refused(run_file("/dev/null"), 2, "/dev/null");
  const Outcome directory = run_file(folder.path(""));
  CHECK((directory.code == 2 || directory.code == 3));
  CHECK(contains(directory.err, "directory"));
}
