// Every compile-time bound of the program and the relations between them. Values from a file are
// compared with these before they size anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/units.h"

namespace millrace::limits {

inline constexpr std::uint32_t layers_max = 512;
inline constexpr std::uint32_t experts_max =
    1024;  // per layer; the largest published model has 896
inline constexpr std::uint32_t experts_used_max = 32;  // top-k
inline constexpr std::uint32_t batch_tokens_max =
    4096;  // tokens that go through the layers together (-ub)
inline constexpr std::uint32_t context_max = 1u << 24;  // positions
inline constexpr std::uint32_t vocabulary_max = 1u << 22;
inline constexpr std::uint64_t text_bytes_max = 64 * MiB;  // tokenized in one go
inline constexpr std::uint32_t threads_max = 256;
inline constexpr std::uint32_t shards_max = 1024;  // files of one split model

inline constexpr std::uint64_t segment_bytes_max =
    256 * MiB;  // one registered buffer; above 1 GiB the kernel refuses
inline constexpr std::uint32_t segments_max = 4096;  // 1 TiB of pinned memory
inline constexpr std::uint32_t queue_depth_max = 256;
inline constexpr std::uint64_t piece_bytes_default = 1 * MiB;
inline constexpr std::uint32_t queue_depth_default = 16;
inline constexpr unsigned read_retries_max = 3;

inline constexpr std::size_t attention_part = 256;  // positions; part of the canonical arithmetic

static_assert(segment_bytes_max <= 1 * GiB);
static_assert(segments_max <= 16384, "IORING_MAX_REG_BUFFERS");
static_assert(experts_used_max <= experts_max);

}  // namespace millrace::limits
