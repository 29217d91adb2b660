// The validation rules of GGUF reading by their numbers (model/format/README.md): every rule has
// files that break it and nothing else.
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/gguf_builder.h"
#include "tests/support/gguf_bytes.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

constexpr std::uint64_t top_bit = std::uint64_t{1} << 63;

// Reading fails with `code`, and the message holds every one of `parts` and the file's name.
void check_refused(const std::string& bytes, ErrorCode code,
                   const std::vector<std::string>& parts) {
  const auto read = read_gguf_bytes(bytes);
  REQUIRE_FALSE(read.has_value());
  INFO(read.error().what);
  CHECK(read.error().code == code);
  CHECK_THAT(read.error().what, Catch::StartsWith("m.gguf: "));
  for (const std::string& part : parts) CHECK_THAT(read.error().what, Catch::Contains(part));
}

void check_malformed(const GgufBuilder& builder, const std::vector<std::string>& parts) {
  check_refused(builder.build(), ErrorCode::format, parts);
}

// One tensor "t" in an otherwise empty file.
GgufBuilder one_tensor(const std::vector<std::uint64_t>& ne, std::uint32_t type,
                       std::size_t data_bytes) {
  BuiltTensor tensor;
  tensor.name = "t";
  tensor.ne = ne;
  tensor.type = type;
  tensor.data = std::string(data_bytes, 'x');
  GgufBuilder builder;
  builder.tensor(tensor);
  return builder;
}

}  // namespace

TEST_CASE("rule 1: a file shorter than a header is refused") {
  check_refused("", ErrorCode::format, {"0 bytes", "too short"});
  check_refused("GG", ErrorCode::format, {"2 bytes", "too short"});
  check_refused(GgufBuilder().build().substr(0, 23), ErrorCode::format, {"23 bytes", "too short"});
  CHECK(read_gguf_bytes(GgufBuilder().build()).has_value());
}

TEST_CASE("rule 1: another magic is refused and shown without its control characters") {
  GgufBuilder builder;
  builder.magic = "\x1b[1m";
  check_malformed(builder, {"not a GGUF file", "'\\x1b[1m'"});
  check_refused("ab", ErrorCode::format, {"'ab'"});
}

TEST_CASE("rule 1: versions other than 2 and 3 are unsupported") {
  for (const std::uint32_t version : {0u, 1u, 4u, 0x00020003u, 0xFFFFFFFFu}) {
    GgufBuilder builder;
    builder.version = version;
    check_refused(builder.build(), ErrorCode::unsupported, {"version " + std::to_string(version)});
  }
}

TEST_CASE("rule 1: a byte-swapped file is told from a corrupt one") {
  GgufBuilder builder;
  builder.version = 0x03000000;
  check_refused(builder.build(), ErrorCode::unsupported, {"byte-swapped", "big-endian"});
}

TEST_CASE("rule 2: counts that the file has no room for are refused before anything is sized") {
  for (const std::uint64_t count : {std::uint64_t{1000}, (std::uint64_t{1} << 31) + 1, top_bit >> 1,
                                    top_bit, std::numeric_limits<std::uint64_t>::max()}) {
    GgufBuilder tensors;
    tensors.tensor_count = count;
    check_malformed(tensors, {"header", std::to_string(count) + " tensors", "24 bytes"});
    GgufBuilder keys;
    keys.key_count = count;
    check_malformed(keys, {"header", std::to_string(count) + " metadata keys", "24 bytes"});
  }
}

TEST_CASE("rule 2: one key more than the file can hold is refused, as many as it holds are read") {
  // The smallest pair: a key of one letter (the count check allows for none) and a u8.
  GgufBuilder builder;
  builder.meta("a", meta_u8, raw(std::uint8_t{7}));
  REQUIRE(read_gguf_bytes(builder.build()).has_value());
  builder.key_count = 2;
  check_malformed(builder, {"2 metadata keys", "at most 1"});
}

TEST_CASE("rule 3: lengths of texts past the end of the file are refused") {
  for (const std::uint64_t length : {std::uint64_t{100}, std::uint64_t{1} << 40, top_bit >> 1,
                                     top_bit, std::numeric_limits<std::uint64_t>::max()}) {
    GgufBuilder value;
    value.meta("k", meta_string, raw(length) + "abc");
    check_malformed(value, {"key 'k'", std::to_string(length) + " bytes"});
    GgufBuilder key;
    key.key_count = 1;
    check_refused(key.build() + raw(length) + std::string(20, 'k'), ErrorCode::format,
                  {"metadata key 0", std::to_string(length) + " bytes"});
  }
}

TEST_CASE("rule 3: keys are neither empty nor longer than 65535 bytes") {
  check_malformed(GgufBuilder().u32("", 1), {"metadata key 0", "empty"});
  CHECK(read_gguf_bytes(GgufBuilder().u32(std::string(65535, 'k'), 1).build()).has_value());
  check_malformed(GgufBuilder().u32(std::string(65536, 'k'), 1), {"metadata key 0", "65536"});
}

TEST_CASE("rule 3: a key that appears twice is refused") {
  check_malformed(GgufBuilder().u32("a.b", 1).u32("c", 2).string("a.b", "x"),
                  {"key 'a.b'", "twice"});
}

TEST_CASE("rule 3: unknown value and element types are refused with their number") {
  for (const std::uint32_t type : {13u, 255u, 0x80000000u}) {
    check_malformed(GgufBuilder().meta("k", type, std::string(16, '\0')),
                    {"key 'k'", std::to_string(type)});
    check_malformed(GgufBuilder().array("k", type, 1, std::string(16, '\0')),
                    {"key 'k'", "element type " + std::to_string(type)});
  }
}

TEST_CASE("rule 3: arrays of arrays are refused") {
  const std::string inner = raw(std::uint32_t{meta_u8}) + raw(std::uint64_t{1}) + "x";
  check_malformed(GgufBuilder().array("k", meta_array, 1, inner), {"key 'k'", "array of arrays"});
}

TEST_CASE("rule 3: array counts that the file has no room for are refused") {
  for (std::uint32_t type = 0; type <= 12; ++type) {
    if (type == meta_array) continue;
    for (const std::uint64_t count :
         {std::uint64_t{17}, std::uint64_t{1} << 61, std::uint64_t{1} << 62, top_bit,
          std::numeric_limits<std::uint64_t>::max()}) {
      // 16 bytes follow: never room for 17 elements.
      check_malformed(GgufBuilder().array("k", type, count, std::string(16, '\0')), {"key 'k'"});
    }
  }
}

TEST_CASE("rule 3: a bool is 0 or 1, alone and in arrays") {
  check_malformed(GgufBuilder().meta("k", meta_bool, "\x02"), {"key 'k'", "bool", "2"});
  check_malformed(GgufBuilder().array("k", meta_bool, 3, std::string("\x01\x00\xff", 3)),
                  {"key 'k'", "bool", "255"});
}

TEST_CASE("rule 3: values whose memory would pass the limit are refused by their count") {
  // The source claims a file of 60 GB, all zeros after the header.
  const std::string start = GgufBuilder().array("k", meta_u8, std::uint64_t{1} << 30, "").build();
  const auto read = [&](std::uint64_t offset, void* target, std::uint64_t count) -> Status {
    auto* out = static_cast<char*>(target);
    for (std::uint64_t i = 0; i < count; ++i)
      out[i] = offset + i < start.size() ? start[offset + i] : '\0';
    return {};
  };
  const auto parsed = read_gguf_file({"m.gguf", 60'000'000'000, read});
  REQUIRE_FALSE(parsed.has_value());
  CHECK_THAT(parsed.error().what,
             Catch::Contains("key 'k'") && Catch::Contains("limit of 1.00 GiB"));
}

TEST_CASE("rule 4: the alignment is a u32, a power of two, and at most 1 MiB") {
  for (const std::uint32_t alignment : {0u, 3u, 48u, 1u << 21, 1u << 31, 0xFFFFFFFFu}) {
    GgufBuilder builder;
    builder.u32("general.alignment", alignment);
    check_malformed(builder, {"key 'general.alignment'", std::to_string(alignment)});
  }
  for (const MetaType type : {meta_u64, meta_i32, meta_f32, meta_u16}) {
    GgufBuilder builder;
    builder.meta("general.alignment", type,
                 raw(std::uint64_t{32})
                     .substr(0, type == meta_u64   ? 8
                                : type == meta_u16 ? 2
                                                   : 4));
    check_malformed(builder, {"key 'general.alignment'", "u32"});
  }
}

TEST_CASE("rule 4: every power of two up to the largest aligns the data part") {
  for (std::uint64_t alignment = 1; alignment <= 1u << 20; alignment *= 2) {
    GgufBuilder builder;
    builder.alignment = alignment;
    builder.u32("general.alignment", static_cast<std::uint32_t>(alignment));
    builder.f32_tensor("a", {3}).f32_tensor("b", {2});
    const auto read = read_gguf_bytes(builder.build());
    REQUIRE(read.has_value());
    const std::uint64_t start = (builder.header().size() + alignment - 1) / alignment * alignment;
    CHECK(read->tensors[0].offset_bytes == start);
    CHECK(read->tensors[1].offset_bytes == start + (12 + alignment - 1) / alignment * alignment);
  }
}

TEST_CASE("rule 5: tensor names have 1 to 63 bytes, no zero byte, and appear once") {
  const std::string longest(63, 'n');
  CHECK(read_gguf_bytes(GgufBuilder().f32_tensor(longest, {1}).build()).has_value());
  check_malformed(GgufBuilder().f32_tensor(longest + "n", {1}), {"name of tensor 0", "64 bytes"});
  check_malformed(GgufBuilder().f32_tensor("", {1}), {"name of tensor 0", "empty"});
  check_malformed(GgufBuilder().f32_tensor(std::string("a\0b", 3), {1}),
                  {"name of tensor 0", "'a\\x00b'", "zero byte"});
  check_malformed(GgufBuilder().f32_tensor("a", {1}).f32_tensor("b", {1}).f32_tensor("a", {2}),
                  {"tensor 'a'", "twice"});
}

TEST_CASE("rule 5: a name length past the end of the file is refused") {
  for (const std::uint64_t length : {std::uint64_t{1000}, top_bit}) {
    BuiltTensor tensor;
    tensor.name = "t";
    tensor.ne = {1};
    tensor.data = "1234";
    tensor.name_length = length;
    check_malformed(GgufBuilder().tensor(tensor), {"name of tensor 0", std::to_string(length)});
  }
}

TEST_CASE("rule 5: at most four dimensions") {
  CHECK(read_gguf_bytes(GgufBuilder().f32_tensor("t", {1, 1, 1, 1}).build()).has_value());
  check_malformed(GgufBuilder().f32_tensor("t", {1, 1, 1, 1, 1}), {"tensor 't'", "5 dimensions"});
  BuiltTensor tensor{"t", {1}, 0, "1234", {}, 0xFFFFFFFFu, {}};
  check_malformed(GgufBuilder().tensor(tensor), {"tensor 't'", "4294967295 dimensions"});
}

TEST_CASE("rule 5: no dimensions at all mean one element") {
  const auto read = read_gguf_bytes(GgufBuilder().f32_tensor("t", {}).build());
  REQUIRE(read.has_value());
  CHECK(read->tensors[0].dims == 1);
  CHECK(read->tensors[0].bytes == 4);
}

TEST_CASE("rule 5: a dimension of 0 is refused") {
  check_malformed(one_tensor({0}, 0, 4), {"tensor 't'", "dimension 0 is 0"});
  check_malformed(one_tensor({4, 1, 0}, 0, 4), {"tensor 't'", "dimension 2 is 0"});
}

TEST_CASE("rule 5: element products from 2^63 are refused without wrapping") {
  check_malformed(one_tensor({top_bit}, 0, 4), {"tensor 't'", "dimension 0"});
  check_malformed(one_tensor({std::uint64_t{1} << 32, std::uint64_t{1} << 32}, 0, 4),
                  {"tensor 't'", "dimension 1"});
  check_malformed(
      one_tensor({std::uint64_t{1} << 21, std::uint64_t{1} << 21, std::uint64_t{1} << 21}, 0, 4),
      {"tensor 't'", "dimension 2"});
  // 3 * 0xAAAAAAAAAAAAAAAB wraps to 1.
  check_malformed(one_tensor({3, 0xAAAAAAAAAAAAAAABu}, 0, 4), {"tensor 't'", "dimension 1"});
}

TEST_CASE("rule 5: byte sizes from 2^63 are refused without wrapping") {
  check_malformed(one_tensor({std::uint64_t{1} << 62}, 0, 4), {"tensor 't'", "2^63 bytes"});
  check_malformed(one_tensor({std::uint64_t{1} << 31, std::uint64_t{1} << 31}, 28, 4),
                  {"tensor 't'", "2^63 bytes"});
}

TEST_CASE("rule 5: rows are whole blocks of their type") {
  check_malformed(one_tensor({31}, 8, 34), {"tensor 't'", "31", "Q8_0", "32"});
  check_malformed(one_tensor({256 + 32}, 12, 288), {"tensor 't'", "288", "Q4_K", "256"});
  check_malformed(one_tensor({}, 8, 34), {"tensor 't'", "Q8_0"});
  CHECK(read_gguf_bytes(one_tensor({64, 2}, 8, 4 * 34).build()).has_value());
}

TEST_CASE("rule 5: types without a known layout are unsupported and named") {
  for (const std::uint32_t type : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 43u, 96u, 0xFFFFFFFFu})
    check_refused(one_tensor({32}, type, 64).build(), ErrorCode::unsupported,
                  {"tensor 't'", "type " + std::to_string(type)});
}

TEST_CASE("rule 5: types of ik_llama.cpp are told from corruption") {
  for (const std::uint32_t type : {97u, 133u, 137u, 139u, 144u, 152u, 202u, 353u})
    check_refused(one_tensor({256}, type, 256).build(), ErrorCode::unsupported,
                  {"tensor 't'", "type " + std::to_string(type), "ik_llama.cpp"});
}

TEST_CASE("rule 5: known types that no kernel computes with are read") {
  for (std::uint32_t type = 0; type < dtype_count; ++type) {
    const DTypeInfo* info = find_dtype(type);
    if (info == nullptr) continue;
    const auto read = read_gguf_bytes(
        one_tensor({2 * info->block_elems, 3}, type, 6 * info->block_bytes).build());
    INFO(info->name);
    REQUIRE(read.has_value());
    CHECK(read->tensors[0].type == static_cast<DType>(type));
    CHECK(read->tensors[0].bytes == 6 * info->block_bytes);
  }
}

TEST_CASE("rule 6: offsets are multiples of the alignment") {
  BuiltTensor tensor{"t", {1}, 0, std::string(64, 'x'), {}, {}, 16};
  check_malformed(GgufBuilder().tensor(tensor), {"tensor 't'", "offset 16", "alignment 32"});
}

TEST_CASE("rule 6: tensors that end past the file are refused, exact ends are read") {
  GgufBuilder builder;
  builder.pad_tail = false;
  builder.f32_tensor("a", {8}).f32_tensor("t", {5});
  const std::string bytes = builder.build();
  CHECK(read_gguf_bytes(bytes).has_value());
  check_refused(bytes.substr(0, bytes.size() - 1), ErrorCode::format, {"tensor 't'", "20 bytes"});
}

TEST_CASE("rule 6: hostile offsets do not wrap around") {
  for (const std::uint64_t offset : {std::uint64_t{1} << 20, top_bit, ~std::uint64_t{31}}) {
    BuiltTensor tensor{"t", {8}, 0, std::string(32, 'x'), {}, {}, offset};
    check_malformed(GgufBuilder().tensor(tensor), {"tensor 't'", std::to_string(offset)});
  }
}

TEST_CASE("rule 6: a data part that would start past the file is refused") {
  GgufBuilder builder;
  builder.f32_tensor("t", {1});
  REQUIRE(builder.header().size() % 32 != 0);
  check_refused(builder.header(), ErrorCode::format, {"data part", "download"});
}

TEST_CASE("rule 7: overlapping tensors are refused, whatever their order in the table") {
  const BuiltTensor first{"first", {16}, 0, std::string(64, 'x'), {}, {}, 0};
  const BuiltTensor inside{"inside", {8}, 0, std::string(32, 'x'), {}, {}, 32};
  check_malformed(GgufBuilder().tensor(first).tensor(inside), {"'first'", "'inside'", "overlaps"});
  check_malformed(GgufBuilder().tensor(inside).tensor(first), {"'first'", "'inside'", "overlaps"});
}

TEST_CASE("rule 7: one shared byte is an overlap, touching tensors are none") {
  for (const std::uint64_t second_offset : {3u, 4u}) {
    GgufBuilder builder;
    builder.alignment = 1;
    builder.u32("general.alignment", 1)
        .tensor({"a", {1}, 0, std::string(4, 'x'), {}, {}, 0})
        .tensor({"b", {1}, 0, std::string(4, 'x'), {}, {}, second_offset});
    if (second_offset == 4) CHECK(read_gguf_bytes(builder.build()).has_value());
    else check_malformed(builder, {"'a'", "'b'", "overlaps"});
  }
}

TEST_CASE("rule 7: two tensors at one place are an overlap") {
  const BuiltTensor a{"a", {8}, 0, std::string(32, 'x'), {}, {}, 0};
  const BuiltTensor b{"b", {8}, 0, std::string(32, 'x'), {}, {}, 0};
  check_malformed(GgufBuilder().tensor(a).tensor(b), {"'a'", "'b'", "overlaps"});
}

TEST_CASE("rule 7: holes and a table in another order than the data are read") {
  const BuiltTensor late{"late", {8}, 0, std::string(32, 'x'), {}, {}, 128};
  const BuiltTensor early{"early", {8}, 0, std::string(128, 'x'), {}, {}, 32};
  const auto read = read_gguf_bytes(GgufBuilder().tensor(late).tensor(early).build());
  REQUIRE(read.has_value());
  CHECK(read->tensors[0].name == "late");
  CHECK(read->tensors[0].offset_bytes == read->tensors[1].offset_bytes + 96);
}

TEST_CASE("rule 10: scores and token types have one entry per token") {
  const auto with = [](std::size_t scores, std::size_t types) {
    GgufBuilder builder;
    builder.strings("tokenizer.ggml.tokens", {"a", "b", "c"})
        .numbers("tokenizer.ggml.scores", meta_f32, std::vector<float>(scores))
        .numbers("tokenizer.ggml.token_type", meta_i32, std::vector<std::int32_t>(types));
    return builder;
  };
  CHECK(read_gguf_bytes(with(3, 3).build()).has_value());
  check_malformed(with(2, 3), {"tokenizer.ggml.scores", "2 entries for 3 tokens"});
  check_malformed(with(3, 4), {"tokenizer.ggml.token_type", "4 entries for 3 tokens"});
  check_malformed(GgufBuilder().u32("tokenizer.ggml.tokens", 3),
                  {"tokenizer.ggml.tokens", "not an array"});
}

TEST_CASE("rule 11: a failing read is an error of its own, not a short file") {
  const std::string bytes = GgufBuilder().f32_tensor("t", {4}).build();
  const auto read = [](std::uint64_t, void*, std::uint64_t) -> Status {
    return Error{ErrorCode::io, "m.gguf: input/output error"};
  };
  const auto parsed = read_gguf_file({"m.gguf", bytes.size(), read});
  REQUIRE_FALSE(parsed.has_value());
  CHECK(parsed.error().code == ErrorCode::io);
}
