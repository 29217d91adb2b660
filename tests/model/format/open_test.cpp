// Opening by path: what is no GGUF file, files on disk, and how little of a large one is read.
#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/file.h"
#include "model/format/gguf.h"
#include "model/format/header_reader.h"
#include "model/format/open.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/temp_folder.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

void check_refused(const std::string& path, ErrorCode code, const std::vector<std::string>& parts) {
  const auto opened = open_checkpoint(path);
  REQUIRE_FALSE(opened.has_value());
  INFO(opened.error().what);
  CHECK(opened.error().code == code);
  CHECK_THAT(opened.error().what, Catch::Contains(path));
  for (const std::string& part : parts) CHECK_THAT(opened.error().what, Catch::Contains(part));
}

}  // namespace

TEST_CASE("open: a GGUF file is known by its first bytes, whatever its name") {
  const TempFolder folder;
  const std::string path = folder.write(
      "model.bin",
      GgufBuilder().string("general.architecture", "llama").f32_tensor("t", {4}).build());
  const auto opened = open_checkpoint(path);
  REQUIRE(opened.has_value());
  CHECK(opened->architecture() == "llama");
  CHECK(opened->files() == std::vector<std::string>{path});
  CHECK(opened->find_tensor("t")->bytes == 16);
}

TEST_CASE("open: a missing file is an I/O error") {
  const TempFolder folder;
  check_refused(folder.path("none.gguf"), ErrorCode::io, {});
  check_refused(folder.path("none.safetensors"), ErrorCode::io, {});
  CHECK(open_gguf(folder.path("none.gguf")).error().code == ErrorCode::io);
}

TEST_CASE("open: a folder, its index or one of its shards is a safetensors checkpoint") {
  const TempFolder folder;
  const std::string config = "config.json";
  check_refused(folder.path("."), ErrorCode::format, {config});
  for (const char* name : {"m.safetensors", "m.safetensors.index.json"}) {
    const auto opened = open_checkpoint(folder.write(name, "{}"));
    REQUIRE_FALSE(opened);
    CHECK_THAT(opened.error().what, Catch::Contains(config));
  }
  folder.write(config, "{}");
  check_refused(folder.path("."), ErrorCode::format, {config, "model_type", "missing"});
}

TEST_CASE("open: what is no model file is shown by its first bytes") {
  const TempFolder folder;
  check_refused(folder.write("a.gguf", "<!DOCTYPE html>"), ErrorCode::format, {"'<!DOCTYP'"});
  check_refused(folder.write("b.gguf", "\x1b]0;\x07zz"), ErrorCode::format, {"'\\x1b]0;\\x07zz'"});
  check_refused(folder.write("c.gguf", ""), ErrorCode::format, {"empty"});
  check_refused(folder.write("d.gguf", "GGU"), ErrorCode::format, {"'GGU'"});
}

TEST_CASE("open: raw slices of a file are explained with how to join them") {
  const TempFolder folder;
  GgufBuilder builder;
  builder.f32_tensor("t", {64});
  const std::string bytes = builder.build();
  check_refused(folder.write("m.gguf.part1of2", bytes.substr(0, 200)), ErrorCode::format,
                {"tensor 't'", "cut with split", "cat "});
  check_refused(folder.write("m.gguf.part2of2", bytes.substr(200)), ErrorCode::format,
                {"cut with split", "cat "});
  check_refused(folder.write("m.gguf-split-a", bytes.substr(0, 40)), ErrorCode::format,
                {"cut with split", "cat "});
}

TEST_CASE("open: of a file of 60 GB with 1000 tensors and 250000 tokens only the header is read") {
  constexpr std::uint64_t tensor_elements = 15'000'000;  // 60 MB of f32
  constexpr std::uint64_t tensor_bytes = tensor_elements * 4;
  GgufBuilder builder;
  std::vector<std::string> tokens(250'000);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = "token " + std::to_string(i);
  builder.string("general.architecture", "llama").strings("tokenizer.ggml.tokens", tokens);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    BuiltTensor tensor;
    tensor.name = "blk." + std::to_string(i) + ".weight";
    tensor.ne = {1000, tensor_elements / 1000};
    tensor.offset = i * tensor_bytes;
    builder.tensor(tensor);
  }
  const std::string header = builder.header();
  const TempFolder folder;
  const std::string path = folder.write("large.gguf", header);
  std::filesystem::resize_file(path, (header.size() + 31) / 32 * 32 + 1000 * tensor_bytes);
  const auto opened = open_checkpoint(path);
  REQUIRE(opened.has_value());
  CHECK(opened->tensors().size() == 1000);
  CHECK(opened->string_array("tokenizer.ggml.tokens")->size() == 250'000);
  const TensorInfo* last = opened->find_tensor("blk.999.weight");
  REQUIRE(last != nullptr);
  CHECK(last->offset_bytes + last->bytes == std::filesystem::file_size(path));
  CHECK(opened->metadata_bytes() >= header.size());
  CHECK(opened->metadata_bytes() <= header.size() + HeaderReader::chunk_bytes_max);
}

TEST_CASE("open: a small file costs one small read") {
  const TempFolder folder;
  GgufBuilder builder;
  builder.f32_tensor("t", {1'000'000});
  const auto opened = open_gguf(folder.write("m.gguf", builder.build()));
  REQUIRE(opened.has_value());
  CHECK(opened->metadata_bytes() == HeaderReader::chunk_bytes_min);
}
