// Rules of safetensors files and their index, and how published names become GGUF's.
#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "model/format/safetensors/header.h"
#include "model/format/safetensors/shards.h"
#include "model/format/safetensors/tensor_names.h"
#include "tests/support/temp_folder.h"

using namespace millrace;
using testing::TempFolder;

namespace {

std::string file_bytes(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + std::string(data_bytes, 'x');
}

// Of a file with this header and so many bytes of data.
Result<SafetensorsHeader> read(const std::string& header, std::size_t data_bytes) {
  const TempFolder folder;
  return read_safetensors_header(folder.write("w.safetensors", file_bytes(header, data_bytes)));
}

void check_refused(const std::string& header, std::size_t data_bytes, const std::string& part) {
  const auto made = read(header, data_bytes);
  INFO(header);
  REQUIRE_FALSE(made);
  INFO(made.error().what);
  CHECK(made.error().code == ErrorCode::format);
  CHECK_THAT(made.error().what, Catch::Contains("w.safetensors: "));
  CHECK_THAT(made.error().what, Catch::Contains(part));
}

std::string entry(const std::string& dtype, const std::string& shape, int begin, int end) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":[)" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

std::string one(const std::string& dtype, const std::string& shape, int begin, int end) {
  return R"({"a.weight":)" + entry(dtype, shape, begin, end) + "}";
}

}  // namespace

TEST_CASE("safetensors: tensors in any order, padded headers and scalars are read") {
  const std::string header = R"({"__metadata__":{"format":"pt"},"b":)" +
                             entry("BF16", "[2,3]", 4, 16) + R"(,"a":)" + entry("F32", "[]", 0, 4) +
                             "}   ";
  const auto made = read(header, 16);
  REQUIRE(made);
  REQUIRE(made->tensors.size() == 2);
  CHECK(made->tensors[0].name == "b");
  CHECK(made->tensors[0].dtype == "BF16");
  CHECK(made->tensors[0].shape == std::vector<std::uint64_t>{2, 3});
  CHECK(made->tensors[0].offset_bytes == 8 + header.size() + 4);
  CHECK(made->tensors[0].bytes == 12);
  CHECK(made->tensors[1].shape.empty());
  CHECK(made->header_bytes == 8 + header.size());
}

TEST_CASE(
    "safetensors: empty tensors, sub-byte types and unknown types are no error by themselves") {
  CHECK(read(R"({"a":)" + entry("F32", "[0,7]", 0, 0) + R"(,"b":)" + entry("F4", "[4]", 0, 2) + "}",
             2));
  CHECK(read(one("F7_E5M1", "[4]", 0, 3), 3));
  CHECK(read("{}", 0));
}

TEST_CASE("safetensors: sizes, places and kinds that do not fit are refused by name") {
  check_refused(one("F32", "[2]", 0, 4), 4, "2 elements of F32 do not take the 4 bytes");
  check_refused(one("F4", "[3]", 0, 2), 2, "3 elements of F4");
  check_refused(one("F32", "[4294967296,4294967296]", 0, 4), 4, "more than 2^62");
  check_refused(one("F32", "[1]", 0, 4), 3, "ends at byte 4 of 3");
  check_refused(one("F32", "[1]", 4, 0), 4, "end before they begin");
  check_refused(one("F32", "[1]", 4, 8), 8, "nothing holds those from 0 on");
  check_refused(one("F32", "[1]", 0, 4), 9, "end at byte 4 of 9");
  check_refused(one("F32", "[-1]", 0, 4), 4, "whole numbers");
  check_refused(one("F32", "[1.5]", 0, 4), 4, "whole numbers");
  check_refused(one("F32", "7", 0, 4), 4, "shape is missing or no array");
  check_refused(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "dtype is missing");
  check_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "data_offsets");
  check_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":["0","4"]}})", 4, "data_offsets");
  check_refused(R"({"a":7})", 0, "its entry is no object");
  check_refused(
      R"({"a":)" + entry("F32", "[2]", 0, 8) + R"(,"b":)" + entry("F32", "[2]", 4, 12) + "}", 12,
      "tensor b: its data at byte 4 overlaps tensor a, which ends at 8");
  check_refused(
      R"({"a":)" + entry("F32", "[1]", 0, 4) + R"(,"a":)" + entry("F32", "[1]", 4, 8) + "}", 8,
      "twice");
}

TEST_CASE("safetensors: headers that are none, too long or nested too deep are refused") {
  check_refused("[]", 0, "does not begin with '{'");
  check_refused("{", 0, "syntax error");
  check_refused("", 0, "does not begin with '{'");
  check_refused(R"({"a":{"shape":[[[[1]]]]}})", 0, "nested deeper than 4");
  const TempFolder folder;
  const auto short_file = read_safetensors_header(folder.write("w.safetensors", "1234"));
  REQUIRE_FALSE(short_file);
  CHECK_THAT(short_file.error().what, Catch::Contains("4 bytes are no safetensors file"));
  for (const std::uint64_t length :
       {std::uint64_t{3}, std::uint64_t{100'000'001}, ~std::uint64_t{0}}) {
    std::string bytes = file_bytes("{}", 0);
    std::memcpy(bytes.data(), &length, sizeof length);
    const auto made = read_safetensors_header(folder.write("w.safetensors", bytes));
    REQUIRE_FALSE(made);
    CHECK_THAT(made.error().what, Catch::Contains(std::to_string(length)));
  }
}

TEST_CASE("safetensors: the index says which shard has which tensor, and both must agree") {
  const TempFolder folder;
  folder.write("s1.safetensors", file_bytes(one("F32", "[1]", 0, 4), 4));
  folder.write("s2.safetensors", file_bytes(R"({"b":)" + entry("F32", "[1]", 0, 4) + "}", 4));
  const auto with = [&](const std::string& map) {
    folder.write("model.safetensors.index.json", R"({"weight_map":)" + map + "}");
    return read_shards(folder.path("."));
  };
  const auto good = with(R"({"b":"s2.safetensors","a.weight":"s1.safetensors"})");
  REQUIRE(good);
  CHECK(good->files.size() == 2);
  CHECK(good->tensors[good->find("b")->file].file == good->find("b")->file);
  CHECK(good->find("c") == nullptr);
  const auto refused = [&](const std::string& map, const std::string& part) {
    const auto made = with(map);
    REQUIRE_FALSE(made);
    INFO(made.error().what);
    CHECK(made.error().code == ErrorCode::format);
    CHECK_THAT(made.error().what, Catch::Contains(part));
  };
  refused(R"({"b":"s1.safetensors"})", "s1.safetensors: tensor b: missing");
  refused(R"({"b":"s3.safetensors"})", "s3.safetensors: this shard is missing");
  refused(R"({"b":"../s1.safetensors"})", "no name of a shard");
  refused(R"({"b":"s1.bin"})", "no name of a shard");
  refused(R"({"b":7})", "is no text");
  refused("{}", "names no tensor");
  refused("[]", "weight_map is missing or no object");
}

TEST_CASE("safetensors: a folder without weights is refused by name") {
  const TempFolder folder;
  const auto made = read_shards(folder.path("."));
  REQUIRE_FALSE(made);
  CHECK_THAT(made.error().what, Catch::Contains("neither model.safetensors nor"));
}

TEST_CASE("safetensors: published names become GGUF's, others none") {
  const auto name = [](std::string_view from) { return gguf_tensor_name(from, "ffn_norm"); };
  CHECK(name("model.embed_tokens.weight") == "token_embd.weight");
  CHECK(name("lm_head.weight") == "output.weight");
  CHECK(name("model.norm.weight") == "output_norm.weight");
  CHECK(name("model.layers.3.self_attn.q_proj.bias") == "blk.3.attn_q.bias");
  CHECK(name("model.layers.60.self_attn.kv_a_proj_with_mqa.weight_scale_inv") ==
        "blk.60.attn_kv_a_mqa.weight_scale_inv");
  CHECK(name("model.layers.0.post_attention_layernorm.weight") == "blk.0.ffn_norm.weight");
  CHECK(gguf_tensor_name("model.layers.0.post_attention_layernorm.weight", "post_attention_norm") ==
        "blk.0.post_attention_norm.weight");
  CHECK(name("model.layers.7.mlp.experts.255.down_proj.weight") == "blk.7.ffn_down.255.weight");
  CHECK(name("model.layers.7.block_sparse_moe.experts.2.w3.weight") == "blk.7.ffn_up.2.weight");
  CHECK(name("model.layers.7.mlp.gate.e_score_correction_bias") == "blk.7.exp_probs_b.bias");
  CHECK(name("model.layers.7.mlp.experts.gate_up_proj_blocks") == "blk.7.ffn_gate_up_exps.blocks");
  CHECK(name("model.language_model.layers.7.mlp.up_proj.weight") == "blk.7.ffn_up.weight");
  CHECK(name("model.layers.0.linear_attn.in_proj_qkvz.weight") == "blk.0.ssm_in.weight");
  CHECK(name("model.layers.0.linear_attn.A_log") == "blk.0.ssm_a");
  CHECK(name("model.layers.0.linear_attn.dt_bias") == "blk.0.ssm_dt.bias");
  for (const char* unknown :
       {"model.layers.x.mlp.up_proj.weight", "model.layers.7", "weight", "",
        "model.layers.7.mlp.experts.1.w9.weight", "model.layers..mlp.gate.weight",
        "model.layers.7.mlp.what.weight", "blk.7.attn_q.weight"})
    CHECK(name(unknown).empty());
  CHECK(is_unused_part("model.visual.blocks.0.attn.qkv.weight"));
  CHECK_FALSE(is_unused_part("model.layers.0.mlp.what"));
}
