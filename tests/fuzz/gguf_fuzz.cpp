// The GGUF reader against a second one (gguf_plain): both accept the same files and read the same
// content, and the reader never allocates much for a small file.
#include <fmt/format.h>

#include <string>
#include <type_traits>
#include <variant>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/gguf_plain.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/gguf_bytes.h"

namespace millrace::testing {

namespace {

struct ValueText {
  std::string operator()(bool held) const { return held ? "true" : "false"; }
  std::string operator()(const std::string& held) const { return held; }
  template <class Number>
  requires std::is_arithmetic_v<Number> std::string operator()(Number held) const {
    return fmt::format("{}", held);
  }
  template <class Element>
  std::string operator()(const std::vector<Element>& held) const {
    std::string out = "[";
    for (const Element& element : held) out += (*this)(element) + ";";
    return out + "]";
  }
};

void check_same(const GgufFile& file, const PlainGguf& plain) {
  MILLRACE_CHECK(file.keys.size() == plain.meta.size());
  MILLRACE_CHECK(file.meta.size() == plain.meta.size());
  for (std::size_t i = 0; i < plain.meta.size(); ++i) {
    MILLRACE_CHECK(file.keys[i] == plain.meta[i].first);
    MILLRACE_CHECK(std::visit(ValueText{}, file.meta.at(file.keys[i])) == plain.meta[i].second);
  }
  MILLRACE_CHECK(file.tensors.size() == plain.tensors.size());
  for (std::size_t i = 0; i < plain.tensors.size(); ++i) {
    const TensorInfo& tensor = file.tensors[i];
    const PlainTensor& expected = plain.tensors[i];
    MILLRACE_CHECK(tensor.name == expected.name);
    MILLRACE_CHECK(static_cast<std::uint32_t>(tensor.type) == expected.type);
    for (std::size_t d = 0; d < tensor.ne.size(); ++d)
      MILLRACE_CHECK(tensor.ne[d] == (d < expected.ne.size() ? expected.ne[d] : 1));
    MILLRACE_CHECK(tensor.offset_bytes == expected.offset);
    MILLRACE_CHECK(tensor.bytes == expected.bytes);
  }
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  GgufBuilder model;
  model.string("general.architecture", "llama")
      .u32("general.alignment", 64)
      .boolean("flag", true)
      .f32("scale", 0.5f)
      .strings("tokenizer.ggml.tokens", {"a", "bb", "", "\xff"})
      .numbers("tokenizer.ggml.scores", meta_f32, std::vector<float>{0, -1, -2, -3})
      .numbers("tokenizer.ggml.token_type", meta_i32, std::vector<std::int32_t>{1, 1, 3, 6});
  model.alignment = 64;
  model.f32_tensor("token_embd.weight", {8, 4});
  model.tensor({"blk.0.ffn_up.weight", {64, 2}, 8, std::string(4 * 34, 'q'), {}, {}, {}});
  model.tensor({"blk.0.ffn_up_exps.weight", {32, 2, 3}, 39, std::string(6 * 17, 'm'), {}, {}, {}});
  GgufBuilder values;
  values.version = 2;
  values.meta("i8", meta_i8, raw(std::int8_t{-1}))
      .meta("i64", meta_i64, raw(std::int64_t{-1}))
      .meta("f64", meta_f64, raw(0.1))
      .numbers("u8s", meta_u8, std::vector<std::uint8_t>{1, 2, 3})
      .numbers("bools", meta_bool, std::vector<std::uint8_t>{1, 0})
      .numbers("u64s", meta_u64, std::vector<std::uint64_t>{~0ull, 0});
  GgufBuilder shard;
  shard.split(1, 3, 9).f32_tensor("scalar", {}).f32_tensor("row", {5});
  return {model.build(), values.build(), shard.build()};
}

std::uint64_t fuzz_rounds() { return 300'000; }

}  // namespace millrace::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  using namespace millrace::testing;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  reset_allocations();
  const Result<GgufFile> read = read_gguf_bytes(bytes);
  // One chunk of the reader, or what arrays of this size widen to.
  MILLRACE_CHECK(allocations().largest_bytes <= (std::uint64_t{1} << 16) + 16 * size);
  const std::optional<PlainGguf> plain = read_gguf_plainly(bytes);
  MILLRACE_CHECK(read.has_value() == plain.has_value());
  if (read) check_same(*read, *plain);
  else MILLRACE_CHECK(!read.error().what.empty());
  return 0;
}
