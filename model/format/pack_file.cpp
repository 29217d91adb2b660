#include "model/format/pack_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "runtime/base/check.h"
#include "runtime/base/hash.h"
#include "runtime/base/limits.h"
#include "runtime/base/units.h"

namespace millrace {

namespace {

constexpr std::string_view magic = PackIndex::magic;
static_assert(magic.size() == 8);
constexpr std::uint32_t version = 1;

// As it lies in the file; the lengths of the layers follow.
struct Header {
  char magic[8];
  std::uint32_t version, layers;
  std::uint64_t experts, identity, file_bytes, packed, digest;
};
static_assert(sizeof(Header) == offsetof(Header, digest) + 8);
static_assert(sizeof(Header) == 56 && sizeof(PackedExpert) == 72);
static_assert(sizeof(Header) + limits::layers_max * sizeof(std::uint32_t) <= PackIndex::alignment);

// Of everything in front of the data but the digest itself.
std::uint64_t index_digest(std::span<const std::byte> bytes) {
  constexpr std::size_t at = offsetof(Header, digest);
  MILLRACE_CHECK(bytes.size() >= PackIndex::alignment);
  StreamHash hash;
  hash.update(bytes.data(), at);
  hash.update(bytes.data() + sizeof(Header), bytes.size() - sizeof(Header));
  const std::uint64_t digest = hash.value();
  return digest == 0 ? 1 : digest;
}

Error refuse(const File& file, const std::string& what) {
  return Error{ErrorCode::format, fmt::format("{}: {}", file.path(), what)};
}

Status check_places(const File& file, const PackIndex& index) {
  for (LayerIndex layer = 0; layer < index.layers.size(); ++layer)
    for (ExpertIndex expert = 0; expert < index.layers[layer].size(); ++expert)
      for (const PackedSlice& slice : index.layers[layer][expert].slices)
        if (slice.bytes == 0 || slice.offset_bytes % PackIndex::alignment != 0 ||
            slice.offset_bytes < index.data_begin() || slice.offset_bytes > index.file_bytes ||
            slice.bytes > index.file_bytes - slice.offset_bytes)
          return refuse(file, fmt::format("layer {}, expert {}: {} bytes at {} are outside of the "
                                          "packed pool",
                                          layer, expert, slice.bytes, slice.offset_bytes));
  return {};
}

}  // namespace

std::uint64_t PackIndex::experts() const noexcept {
  std::uint64_t sum = 0;
  for (const auto& layer : layers) sum += layer.size();
  return sum;
}

std::uint64_t PackIndex::data_begin() const noexcept {
  return alignment + round_up(experts() * sizeof(PackedExpert), alignment);
}

std::vector<std::byte> PackIndex::encode(bool complete) const {
  std::vector<std::byte> bytes(data_begin());
  Header header{};
  std::memcpy(header.magic, magic.data(), magic.size());
  header.version = version;
  header.layers = static_cast<std::uint32_t>(layers.size());
  header.experts = experts();
  header.identity = identity;
  header.file_bytes = file_bytes;
  header.packed = packed;
  std::memcpy(bytes.data(), &header, sizeof header);
  std::byte* count_at = bytes.data() + sizeof header;
  std::byte* at = bytes.data() + alignment;
  for (const auto& layer : layers) {
    const auto count = static_cast<std::uint32_t>(layer.size());
    std::memcpy(count_at, &count, sizeof count);
    count_at += sizeof count;
    if (layer.empty()) continue;
    std::memcpy(at, layer.data(), layer.size() * sizeof(PackedExpert));
    at += layer.size() * sizeof(PackedExpert);
  }
  if (complete) {
    const std::uint64_t digest = index_digest(bytes);
    std::memcpy(bytes.data() + offsetof(Header, digest), &digest, sizeof digest);
  }
  return bytes;
}

PackIndex plan_pack(const ExpertExtents& extents, const std::vector<ExpertKey>& order,
                    std::uint64_t identity) {
  PackIndex index;
  index.identity = identity;
  for (LayerIndex layer = 0; layer < extents.layers(); ++layer)
    index.layers.emplace_back(extents.experts(layer));
  MILLRACE_CHECK(order.size() == index.experts());
  std::uint64_t at = index.data_begin();
  for (const ExpertKey key : order) {
    const ExpertExtent& extent = extents.at(key);
    const std::uint64_t bytes[3] = {extent.gate.bytes(), extent.up.bytes(), extent.down.bytes()};
    for (std::size_t i = 0; i < 3; ++i) {
      index.layers[key.layer][key.expert].slices[i] = {at, bytes[i], 0};
      at += round_up(bytes[i], PackIndex::alignment);
    }
  }
  index.file_bytes = at;
  return index;
}

bool is_pack(const std::string& path) {
  const auto file = File::open(path, DirectMode::off);
  char begin[magic.size()] = {};
  return file && file->size_bytes() >= sizeof begin && file->read_exactly(0, begin, sizeof begin) &&
         std::memcmp(begin, magic.data(), sizeof begin) == 0;
}

Result<PackIndex> read_pack(const File& file, bool complete) {
  Header header{};
  if (file.size_bytes() < PackIndex::alignment) return refuse(file, "no packed pool: too short");
  MILLRACE_TRY(file.read_exactly(0, &header, sizeof header));
  if (std::memcmp(header.magic, magic.data(), magic.size()) != 0)
    return refuse(file, "no packed pool: it does not start with MILLPACK");
  if (header.version != version)
    return refuse(file, fmt::format("version {} of packed pools is not known", header.version));
  if (header.layers > limits::layers_max ||
      header.experts > std::uint64_t{limits::layers_max} * limits::experts_max)
    return refuse(
        file, fmt::format("{} layers with {} experts are too many", header.layers, header.experts));
  PackIndex index;
  index.identity = header.identity;
  index.file_bytes = header.file_bytes;
  index.packed = header.packed;
  std::vector<std::uint32_t> counts(header.layers);
  MILLRACE_TRY(
      file.read_exactly(sizeof header, counts.data(), counts.size() * sizeof(std::uint32_t)));
  for (const std::uint32_t count : counts) {
    if (count > limits::experts_max)
      return refuse(file, fmt::format("{} experts in a layer are too many", count));
    index.layers.emplace_back(count);
  }
  if (index.experts() != header.experts || index.packed > header.experts)
    return refuse(file, "damaged: its layers do not add up to its experts");
  if (file.size_bytes() < index.data_begin())
    return refuse(file, "cut short: its table is missing");
  std::uint64_t at = PackIndex::alignment;
  for (auto& layer : index.layers) {
    MILLRACE_TRY(file.read_exactly(at, layer.data(), layer.size() * sizeof(PackedExpert)));
    at += layer.size() * sizeof(PackedExpert);
  }
  MILLRACE_TRY(check_places(file, index));
  if (!complete) return index;
  if (header.digest == 0)
    return refuse(file, fmt::format("packing has not ended ({} of {} experts): run pack again",
                                    index.packed, header.experts));
  if (index_digest(index.encode(false)) != header.digest)
    return Error{ErrorCode::verify,
                 fmt::format("{}: the table of the packed pool is damaged", file.path())};
  if (file.size_bytes() < index.file_bytes)
    return refuse(file,
                  fmt::format("cut short: {} of {} bytes", file.size_bytes(), index.file_bytes));
  return index;
}

}  // namespace millrace
