// Split models: names of shards, what belongs together, and slices that are no shards.
#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/format/gguf.h"
#include "model/format/gguf_split.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/temp_folder.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

using Files = std::map<std::string, std::string>;

// Three shards in memory; the first has the metadata and no tensor of its own.
std::vector<GgufBuilder> three_shards() {
  std::vector<GgufBuilder> shards(3);
  shards[0].string("general.architecture", "llama").split(0, 3, 3);
  shards[1].split(1, 3, 3).f32_tensor("a", {8}).f32_tensor("b", {2, 4});
  shards[2].u32("general.alignment", 128).split(2, 3, 3).f32_tensor("c", {4});
  shards[2].alignment = 128;
  return shards;
}

std::string name_of(std::size_t index) {
  return shard_path({"m", 0, 3}, static_cast<std::uint32_t>(index));
}

Files files_of(const std::vector<GgufBuilder>& shards) {
  Files files;
  for (std::size_t i = 0; i < shards.size(); ++i) files[name_of(i)] = shards[i].build();
  return files;
}

// Opens `path` as open_gguf() does, from memory.
Result<Checkpoint> open_from(const Files& files, const std::string& path) {
  const auto read = [&](const std::string& shard) -> Result<GgufFile> {
    const auto found = files.find(shard);
    if (found == files.end()) return Error{ErrorCode::io, shard + ": no such file"};
    return read_gguf_bytes(found->second, shard);
  };
  MILLRACE_ASSIGN(GgufFile opened, read(path));
  return join_gguf_shards(path, std::move(opened), read);
}

void check_refused(const Files& files, ErrorCode code, const std::vector<std::string>& parts,
                   const std::string& path = "m-00001-of-00003.gguf") {
  const auto opened = open_from(files, path);
  REQUIRE_FALSE(opened.has_value());
  INFO(opened.error().what);
  CHECK(opened.error().code == code);
  for (const std::string& part : parts) CHECK_THAT(opened.error().what, Catch::Contains(part));
}

}  // namespace

TEST_CASE("split: names of shards are taken apart and put together") {
  const auto name = parse_shard_name("dir/m-q4-00002-of-00013.gguf");
  REQUIRE(name.has_value());
  CHECK(name->prefix == "dir/m-q4");
  CHECK(name->index == 1);
  CHECK(name->count == 13);
  CHECK(shard_path(*name, 12) == "dir/m-q4-00013-of-00013.gguf");
  for (const char* other : {"m.gguf", "", ".gguf", "m-00000-of-00002.gguf", "m-00003-of-00002.gguf",
                            "m-1-of-2.gguf", "m-00001-of-00002", "m-00001-00002.gguf",
                            "m-0x001-of-00002.gguf", "-00002.gguf", "m00001-of-00002.gguf"})
    CHECK_FALSE(parse_shard_name(other).has_value());
}

TEST_CASE("split: any shard opens the whole model") {
  const Files files = files_of(three_shards());
  for (std::size_t opened = 0; opened < 3; ++opened) {
    const auto model = open_from(files, name_of(opened));
    REQUIRE(model.has_value());
    CHECK(model->files() == std::vector<std::string>{name_of(0), name_of(1), name_of(2)});
    CHECK(model->architecture() == "llama");
    CHECK(model->keys().size() == 4);
    REQUIRE(model->tensors().size() == 3);
    CHECK(model->find_tensor("b")->file == 1);
    CHECK(model->find_tensor("c")->file == 2);
    CHECK(model->find_tensor("c")->offset_bytes % 128 == 0);
    std::uint64_t all = 0;
    for (const auto& [name, bytes] : files) all += bytes.size();
    CHECK(model->metadata_bytes() == all);
  }
}

TEST_CASE("split: a file without split keys, or with one shard, stands alone") {
  for (const std::uint16_t count : {std::uint16_t{0}, std::uint16_t{1}}) {
    GgufBuilder builder;
    builder.split(0, count, 1).f32_tensor("a", {1});
    const auto model = open_from({{"any-name", builder.build()}}, "any-name");
    REQUIRE(model.has_value());
    CHECK(model->files() == std::vector<std::string>{"any-name"});
  }
  GgufBuilder plain;
  plain.f32_tensor("a", {1});
  CHECK(open_from({{"m-00002-of-00003.gguf", plain.build()}}, "m-00002-of-00003.gguf").has_value());
}

TEST_CASE("split: a missing shard is named with its number") {
  Files files = files_of(three_shards());
  files.erase(name_of(1));
  check_refused(files, ErrorCode::io, {"shard 2 of 3", name_of(1)});
}

TEST_CASE("split: a damaged shard is named with its number") {
  Files files = files_of(three_shards());
  files[name_of(2)].resize(100);
  check_refused(files, ErrorCode::format, {"shard 3 of 3", name_of(2)});
}

TEST_CASE("split: a shard that was renamed is refused") {
  Files files = files_of(three_shards());
  check_refused({{"m.gguf", files[name_of(0)]}}, ErrorCode::format,
                {"split.count", "3 shards", "-00001-of-00003.gguf"}, "m.gguf");
  std::swap(files[name_of(1)], files[name_of(2)]);
  check_refused(files, ErrorCode::format, {name_of(1), "split.no", "is 2", "expected 1"});
}

TEST_CASE("split: the count in the file and in the name agree") {
  std::vector<GgufBuilder> shards = three_shards();
  shards[1] = GgufBuilder().split(1, 4, 3).f32_tensor("a", {8}).f32_tensor("b", {8});
  check_refused(files_of(shards), ErrorCode::format, {name_of(1), "split.count", "is 4", "says 3"});
  shards[1] = GgufBuilder().f32_tensor("a", {8}).f32_tensor("b", {8});
  check_refused(files_of(shards), ErrorCode::format, {name_of(1), "split.count", "is 0"});
}

TEST_CASE("split: more shards than a model may have are refused before any is opened") {
  GgufBuilder builder;
  builder.split(0, 60000, 1);
  check_refused({{"m-00001-of-60000.gguf", builder.build()}}, ErrorCode::format,
                {"split.count", "60000", "1024"}, "m-00001-of-60000.gguf");
}

TEST_CASE("split: keys of any integer type are taken, others are refused") {
  std::vector<GgufBuilder> shards = three_shards();
  shards[1] = GgufBuilder()
                  .meta("split.no", meta_i64, raw(std::int64_t{1}))
                  .meta("split.count", meta_u8, raw(std::uint8_t{3}))
                  .f32_tensor("a", {8})
                  .f32_tensor("b", {8});
  CHECK(open_from(files_of(shards), name_of(0)).has_value());
  shards[1] = GgufBuilder().string("split.count", "3");
  check_refused(files_of(shards), ErrorCode::format, {name_of(1), "split.count", "integer"});
  shards[1] = GgufBuilder().meta("split.count", meta_i32, raw(std::int32_t{-3}));
  check_refused(files_of(shards), ErrorCode::format, {name_of(1), "split.count", "integer"});
}

TEST_CASE("split: a tensor in two shards is refused") {
  std::vector<GgufBuilder> shards = three_shards();
  shards[2] = GgufBuilder().split(2, 3, 3).f32_tensor("b", {4});
  check_refused(files_of(shards), ErrorCode::format, {name_of(2), "'b'", "earlier shard"});
}

TEST_CASE("split: the number of tensors over all shards is the one promised") {
  std::vector<GgufBuilder> shards = three_shards();
  shards[2] = GgufBuilder().split(2, 3, 3);
  check_refused(files_of(shards), ErrorCode::format,
                {name_of(0), "split.tensors.count", "is 3", "hold 2"});
  shards = three_shards();
  shards[1] = GgufBuilder().split(1, 3, 4).f32_tensor("a", {8}).f32_tensor("b", {8});
  check_refused(files_of(shards), ErrorCode::format,
                {name_of(1), "split.tensors.count", "is 4", "says 3"});
  shards = three_shards();
  shards[0] = GgufBuilder()
                  .meta("split.no", meta_u16, raw(std::uint16_t{0}))
                  .meta("split.count", meta_u16, raw(std::uint16_t{3}));
  check_refused(files_of(shards), ErrorCode::format,
                {name_of(0), "split.tensors.count", "missing"});
}

TEST_CASE("split: shards on disk are found beside the one that was named") {
  const TempFolder folder;
  for (const auto& [name, bytes] : files_of(three_shards())) folder.write(name, bytes);
  const auto model = open_gguf(folder.path(name_of(2)));
  REQUIRE(model.has_value());
  CHECK(model->files()[0] == folder.path(name_of(0)));
  CHECK(model->tensors().size() == 3);
  std::filesystem::remove(folder.path(name_of(1)));
  const auto missing = open_gguf(folder.path(name_of(2)));
  REQUIRE_FALSE(missing.has_value());
  CHECK(missing.error().code == ErrorCode::io);
  CHECK_THAT(missing.error().what,
             Catch::Contains("shard 2 of 3") && Catch::Contains(folder.path(name_of(1))));
}

TEST_CASE("split: raw slices are told by their names") {
  for (const char* name :
       {"m.gguf.part1of2", "dir/m.gguf.part12of34", "m.gguf-split-a", "m-split-ab"})
    CHECK(is_raw_slice_name(name));
  for (const char* name : {"m.gguf", "part1of2", "m.part1of", "m.partof2", "m-split-", "of2", ""})
    CHECK_FALSE(is_raw_slice_name(name));
}
