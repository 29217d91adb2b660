// The index of a packed pool: the routed experts of one model in one file, each contiguous, every
// slice at a multiple of 4096 bytes, with an XXH3-64 digest of each. Little-endian:
//
//   0     "MILLPACK", u32 version, u32 layers, u64 experts (of all layers), u64 identity of the
//   model,
//         u64 bytes of the file, u64 experts packed so far, u64 digest of this header and the table
//   4096  per expert, ordered by layer and number: 3 slices of u64 offset, u64 bytes, u64 digest
//   then  the experts, in any order
//
// The digest is 0 until the file is complete; until then the table is true of the experts that are
// packed so far in the order of their offsets, so that packing can go on after a kill.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"
#include "model/expert_extents.h"
#include "runtime/base/result.h"

namespace millrace {

struct PackedSlice {
  std::uint64_t offset_bytes = 0, bytes = 0, digest = 0;
};

// gate, up, down.
struct PackedExpert {
  std::array<PackedSlice, 3> slices;
};

// Whether a file begins as a pack does; what cannot be read is none.
bool is_pack(const std::string& path);

struct PackIndex {
  static constexpr std::uint64_t alignment = 4096;
  static constexpr std::string_view magic = "MILLPACK";  // how a pack begins

  std::uint64_t identity = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t packed = 0;                       // experts whose digests are known
  std::vector<std::vector<PackedExpert>> layers;  // by layer and expert

  std::uint64_t experts() const noexcept;
  std::uint64_t data_begin() const noexcept;
  // Header and table, padded to data_begin(). `complete`: with the digest that says so.
  std::vector<std::byte> encode(bool complete) const;
};

// An index for the experts in `order` (each of them once), places given, digests 0.
PackIndex plan_pack(const ExpertExtents& extents, const std::vector<ExpertKey>& order,
                    std::uint64_t identity);

// Reads the index of a pack. `format` errors: no pack, another version, places outside of the file,
// a damaged table; with `complete`, also one whose packing has not ended.
Result<PackIndex> read_pack(const File& file, bool complete);

}  // namespace millrace
