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
inline constexpr std::uint32_t experts_used_max = 32;      // top-k
inline constexpr std::uint32_t streams_max = 8;            // of a residual
inline constexpr std::uint32_t compress_ratio_max = 1024;  // positions of a compressed row
inline constexpr std::uint32_t batch_tokens_max =
    4096;  // tokens that go through the layers together (-ub)
inline constexpr std::uint32_t context_max = 1u << 24;  // positions
inline constexpr std::uint32_t vocabulary_max = 1u << 22;
inline constexpr std::uint64_t text_bytes_max = 64 * MiB;  // tokenized in one go
inline constexpr std::uint32_t conv_taps_max = 16;         // of the convolution of a delta net
inline constexpr std::uint32_t threads_max = 256;
inline constexpr std::uint32_t shards_max = 1024;  // files of one split model

inline constexpr std::uint64_t segment_bytes_max =
    256 * MiB;  // one registered buffer; above 1 GiB the kernel refuses
inline constexpr std::uint32_t segments_max = 4096;  // 1 TiB of pinned memory
inline constexpr std::uint32_t queue_depth_max = 256;
inline constexpr std::uint64_t piece_bytes_default = 1 * MiB;
inline constexpr std::uint32_t queue_depth_default = 16;
inline constexpr unsigned read_retries_max = 3;

// Chat templates are programs of strangers: each bound ends a rendering with an error.
inline constexpr std::size_t template_bytes_max =
    512 * KiB;                                         // source; published ones have < 32 KiB
inline constexpr unsigned template_nesting_max = 100;  // of expressions and blocks, in the source
inline constexpr unsigned template_depth_max = 800;    // of evaluation: macros times nesting
inline constexpr std::uint64_t template_steps_max = 50'000'000;       // a few seconds of one core
inline constexpr std::uint64_t template_probe_steps_max = 1'000'000;  // of the probes at load
inline constexpr std::size_t template_string_bytes_max = text_bytes_max;  // of the output, too
inline constexpr std::size_t template_memory_bytes_max = 256 * MiB;
inline constexpr std::int64_t template_range_max = 100'000;  // numbers in one range()
inline constexpr unsigned template_value_depth_max = 100;    // lists in lists, compared or printed

inline constexpr std::size_t attention_part = 256;  // positions; part of the canonical arithmetic

static_assert(segment_bytes_max <= 1 * GiB);
static_assert(segments_max <= 16384, "IORING_MAX_REG_BUFFERS");
static_assert(experts_used_max <= experts_max);
static_assert(template_string_bytes_max < template_memory_bytes_max);

}  // namespace millrace::limits
