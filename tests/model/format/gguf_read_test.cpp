// What a good GGUF file reads as, and that damage anywhere in a small one is survived.
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/allocation_meter.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/gguf_bytes.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

// More than any of the small files here needs, less than a length from the file could ask for.
constexpr std::uint64_t allocation_bytes_max = 1 << 20;

template <class T>
const T& meta(const GgufFile& file, const std::string& key) {
  const auto found = file.meta.find(key);
  REQUIRE(found != file.meta.end());
  REQUIRE(std::holds_alternative<T>(found->second));
  return std::get<T>(found->second);
}

// Some of everything, without tail padding: every byte of it matters.
GgufBuilder sample() {
  GgufBuilder builder;
  builder.pad_tail = false;
  builder.string("general.architecture", "llama")
      .u32("general.alignment", 64)
      .boolean("flag", true)
      .f32("scale", 0.5f)
      .strings("words", {"one", "", "three"})
      .numbers("numbers", meta_i16, std::vector<std::int16_t>{-1, 2, -3});
  builder.alignment = 64;
  BuiltTensor quantized{"blk.0.ffn_up.weight", {64, 2}, 8, std::string(4 * 34, 'q'), {}, {}, {}};
  builder.f32_tensor("token_embd.weight", {8, 3}).tensor(quantized);
  return builder;
}

bool same(const GgufFile& a, const GgufFile& b) {
  if (a.keys != b.keys || a.meta != b.meta || a.tensors.size() != b.tensors.size()) return false;
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    const TensorInfo& x = a.tensors[i];
    const TensorInfo& y = b.tensors[i];
    if (x.name != y.name || x.type != y.type || x.dims != y.dims || x.ne != y.ne ||
        x.offset_bytes != y.offset_bytes || x.bytes != y.bytes)
      return false;
  }
  return true;
}

}  // namespace

TEST_CASE("gguf: versions 2 and 3 read alike") {
  GgufBuilder builder = sample();
  const auto v3 = read_gguf_bytes(builder.build());
  builder.version = 2;
  const auto v2 = read_gguf_bytes(builder.build());
  REQUIRE(v3.has_value());
  REQUIRE(v2.has_value());
  CHECK(same(*v3, *v2));
}

TEST_CASE("gguf: keys and tensors keep the order of the file") {
  const auto file = read_gguf_bytes(sample().build());
  REQUIRE(file.has_value());
  CHECK(file->keys == std::vector<std::string>{"general.architecture", "general.alignment", "flag",
                                               "scale", "words", "numbers"});
  REQUIRE(file->tensors.size() == 2);
  CHECK(file->tensors[0].name == "token_embd.weight");
  CHECK(file->tensors[1].name == "blk.0.ffn_up.weight");
}

TEST_CASE("gguf: tensors have shape, size and absolute place") {
  const GgufBuilder builder = sample();
  const std::string bytes = builder.build();
  const auto file = read_gguf_bytes(bytes);
  REQUIRE(file.has_value());
  const TensorInfo& embedding = file->tensors[0];
  CHECK(embedding.type == DType::f32);
  CHECK(embedding.dims == 2);
  CHECK(embedding.ne == std::array<std::uint64_t, 4>{8, 3, 1, 1});
  CHECK(embedding.bytes == 96);
  CHECK(embedding.offset_bytes == (builder.header().size() + 63) / 64 * 64);
  CHECK(bytes.substr(embedding.offset_bytes + 4, 4) == raw(1.0f));
  const TensorInfo& quantized = file->tensors[1];
  CHECK(quantized.bytes == 4 * 34);
  CHECK(quantized.row_bytes() == 2 * 34);
  CHECK(bytes.substr(quantized.offset_bytes, quantized.bytes) == std::string(4 * 34, 'q'));
}

TEST_CASE("gguf: scalars of every type are widened without loss") {
  GgufBuilder builder;
  builder.meta("u8", meta_u8, raw(std::uint8_t{255}))
      .meta("i8", meta_i8, raw(std::int8_t{-128}))
      .meta("u16", meta_u16, raw(std::uint16_t{65535}))
      .meta("i16", meta_i16, raw(std::int16_t{-32768}))
      .meta("u32", meta_u32, raw(std::uint32_t{4294967295u}))
      .meta("i32", meta_i32, raw(std::numeric_limits<std::int32_t>::min()))
      .meta("u64", meta_u64, raw(std::numeric_limits<std::uint64_t>::max()))
      .meta("i64", meta_i64, raw(std::numeric_limits<std::int64_t>::min()))
      .meta("f32", meta_f32, raw(0.1f))
      .meta("f64", meta_f64, raw(0.1))
      .boolean("yes", true)
      .boolean("no", false);
  const auto file = read_gguf_bytes(builder.build());
  REQUIRE(file.has_value());
  CHECK(meta<std::uint64_t>(*file, "u8") == 255);
  CHECK(meta<std::int64_t>(*file, "i8") == -128);
  CHECK(meta<std::uint64_t>(*file, "u16") == 65535);
  CHECK(meta<std::int64_t>(*file, "i16") == -32768);
  CHECK(meta<std::uint64_t>(*file, "u32") == 4294967295u);
  CHECK(meta<std::int64_t>(*file, "i32") == std::numeric_limits<std::int32_t>::min());
  CHECK(meta<std::uint64_t>(*file, "u64") == std::numeric_limits<std::uint64_t>::max());
  CHECK(meta<std::int64_t>(*file, "i64") == std::numeric_limits<std::int64_t>::min());
  CHECK(meta<double>(*file, "f32") == static_cast<double>(0.1f));
  CHECK(meta<double>(*file, "f64") == 0.1);
  CHECK(meta<bool>(*file, "yes"));
  CHECK_FALSE(meta<bool>(*file, "no"));
}

TEST_CASE("gguf: arrays of every type are widened without loss") {
  GgufBuilder builder;
  builder.numbers("u8", meta_u8, std::vector<std::uint8_t>{0, 255})
      .numbers("i8", meta_i8, std::vector<std::int8_t>{-128, 127})
      .numbers("u16", meta_u16, std::vector<std::uint16_t>{65535})
      .numbers("i16", meta_i16, std::vector<std::int16_t>{-1})
      .numbers("u32", meta_u32, std::vector<std::uint32_t>{4294967295u})
      .numbers("i32", meta_i32, std::vector<std::int32_t>{-7})
      .numbers("u64", meta_u64, std::vector<std::uint64_t>{1ull << 63})
      .numbers("i64", meta_i64, std::vector<std::int64_t>{-1})
      .numbers("f32", meta_f32, std::vector<float>{0.5f})
      .numbers("f64", meta_f64, std::vector<double>{0.1})
      .numbers("bool", meta_bool, std::vector<std::uint8_t>{1, 0, 1})
      .numbers("empty", meta_f32, std::vector<float>{});
  const auto file = read_gguf_bytes(builder.build());
  REQUIRE(file.has_value());
  using Unsigned = std::vector<std::uint64_t>;
  using Signed = std::vector<std::int64_t>;
  CHECK(meta<Unsigned>(*file, "u8") == Unsigned{0, 255});
  CHECK(meta<Signed>(*file, "i8") == Signed{-128, 127});
  CHECK(meta<Unsigned>(*file, "u16") == Unsigned{65535});
  CHECK(meta<Signed>(*file, "i16") == Signed{-1});
  CHECK(meta<Unsigned>(*file, "u32") == Unsigned{4294967295u});
  CHECK(meta<Signed>(*file, "i32") == Signed{-7});
  CHECK(meta<Unsigned>(*file, "u64") == Unsigned{1ull << 63});
  CHECK(meta<Signed>(*file, "i64") == Signed{-1});
  CHECK(meta<std::vector<double>>(*file, "f32") == std::vector<double>{0.5});
  CHECK(meta<std::vector<double>>(*file, "f64") == std::vector<double>{0.1});
  CHECK(meta<std::vector<bool>>(*file, "bool") == std::vector<bool>{true, false, true});
  CHECK(meta<std::vector<double>>(*file, "empty").empty());
}

TEST_CASE("gguf: texts keep their bytes, also those that are no UTF-8") {
  const std::string bytes("\xff\x00\xc3 ok", 6);
  const auto file = read_gguf_bytes(
      GgufBuilder().string("text", bytes).strings("list", {bytes, "", "\xf0\x9f"}).build());
  REQUIRE(file.has_value());
  CHECK(meta<std::string>(*file, "text") == bytes);
  CHECK(meta<std::vector<std::string>>(*file, "list") ==
        std::vector<std::string>{bytes, "", "\xf0\x9f"});
}

TEST_CASE("gguf: keys from the file are shown without their control characters") {
  const auto file = read_gguf_bytes(GgufBuilder().meta("a\x1b[2Jb", 99, "").build() + "x");
  REQUIRE_FALSE(file.has_value());
  CHECK_THAT(file.error().what, Catch::Contains("key 'a\\x1b[2Jb'"));
}

TEST_CASE("gguf: a vocabulary longer than the read buffer is read whole") {
  std::vector<std::string> tokens;
  std::vector<float> scores;
  for (int i = 0; i < 100'000; ++i) {
    tokens.push_back("token-" + std::to_string(i * 7919));
    scores.push_back(static_cast<float>(-i));
  }
  tokens[5] = std::string(3 * HeaderReader::chunk_bytes_max, 'x');
  const auto file = read_gguf_bytes(GgufBuilder()
                                        .strings("tokenizer.ggml.tokens", tokens)
                                        .numbers("tokenizer.ggml.scores", meta_f32, scores)
                                        .f32_tensor("t", {3})
                                        .build());
  REQUIRE(file.has_value());
  CHECK(meta<std::vector<std::string>>(*file, "tokenizer.ggml.tokens") == tokens);
  CHECK(meta<std::vector<double>>(*file, "tokenizer.ggml.scores")[99'999] == -99'999.0);
}

TEST_CASE("gguf: a file cut at any length is refused") {
  const std::string bytes = sample().build();
  REQUIRE(read_gguf_bytes(bytes).has_value());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const auto cut = read_gguf_bytes(bytes.substr(0, length));
    INFO("cut to " << length << " of " << bytes.size() << " bytes");
    REQUIRE_FALSE(cut.has_value());
    CHECK(cut.error().code == ErrorCode::format);
    CHECK_THAT(cut.error().what, Catch::StartsWith("m.gguf: "));
  }
}

TEST_CASE("gguf: a file cut within its tail padding reads the same") {
  GgufBuilder builder = sample();
  const std::string exact = builder.build();
  builder.pad_tail = true;
  const std::string padded = builder.build();
  REQUIRE(padded.size() > exact.size());
  for (std::size_t length = exact.size(); length <= padded.size(); ++length) {
    const auto cut = read_gguf_bytes(padded.substr(0, length));
    REQUIRE(cut.has_value());
    CHECK(same(*cut, *read_gguf_bytes(exact)));
  }
}

TEST_CASE("gguf: any header byte may have any value without a crash or a large allocation") {
  const GgufBuilder builder = sample();
  const std::string bytes = builder.build();
  const std::size_t header = builder.header().size();
  std::size_t accepted = 0;
  for (std::size_t i = 0; i < header; ++i) {
    std::string damaged = bytes;
    for (int flip = 1; flip < 256; ++flip) {
      damaged[i] = static_cast<char>(bytes[i] ^ flip);
      reset_allocations();
      const auto read = read_gguf_bytes(damaged);
      const std::uint64_t largest = allocations().largest_bytes;
      if (largest > allocation_bytes_max)
        FAIL("byte " << i << " ^ " << flip << " allocates " << largest << " bytes at once");
      if (!read) continue;
      ++accepted;
      for (const TensorInfo& tensor : read->tensors)
        REQUIRE(tensor.offset_bytes + tensor.bytes <= bytes.size());
    }
  }
  // Letters of names and values of numbers can change to other valid ones.
  CHECK(accepted > 0);
  CHECK(accepted < header * 255);
}

TEST_CASE("gguf: every u64 of the header may be hostile without a crash or a large allocation") {
  const GgufBuilder builder = sample();
  const std::string bytes = builder.build();
  for (std::size_t i = 0; i + 8 <= builder.header().size(); ++i) {
    for (unsigned bit = 24; bit < 64; ++bit) {
      for (const std::uint64_t value :
           {std::uint64_t{1} << bit, (std::uint64_t{1} << bit) - 1, ~std::uint64_t{0} << bit}) {
        std::string damaged = bytes;
        damaged.replace(i, 8, raw(value));
        reset_allocations();
        const auto read = read_gguf_bytes(damaged);
        const std::uint64_t largest = allocations().largest_bytes;
        if (largest > allocation_bytes_max)
          FAIL(value << " at byte " << i << " allocates " << largest << " bytes at once");
      }
    }
  }
}
