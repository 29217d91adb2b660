// What every weight product and every decoder of this CPU does: GB/s of weights beside the best
// plain read loop over the same memory in the same run, times the scalar kernels, and whether all
// of them give the same bits. What `millrace kernels` does.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/kernel_table.h"
#include "runtime/base/json.h"
#include "runtime/base/result.h"
#include "runtime/progress.h"

namespace millrace {

// What a list names twice is measured once.
struct KernelStudyOptions {
  std::vector<std::string> types;  // as `inspect` prints them, in any case; empty: all
  std::vector<std::string> isas;   // empty: all of this CPU; scalar always runs, to compare with
  std::vector<unsigned> threads;   // empty: 1 and all fast cores; no more than cores to run on
  bool float_activations = false;  // the products with unrounded activations, of every type
  std::uint32_t columns = 2048;    // a multiple of 256
  std::uint32_t tokens = 32;       // of the many-token figure; 1: none
  std::uint64_t memory_bytes = 0;  // weights that come from memory; 0: beyond the caches
  std::uint32_t repeats = 9;       // each of the kernel and of the read loop, by turns
};

// Where the weights are when a pass begins: in each core's second-level cache, or in memory.
enum class Residency : std::uint8_t { l2, memory };
const char* residency_name(Residency residency) noexcept;  // "l2", "memory"

// The plain read loop in one place with so many threads.
struct ReadLimit {
  Residency residency;
  unsigned threads;
  std::uint64_t bytes;                   // per pass, of all threads
  std::vector<double> bytes_per_second;  // of all repeats
  double best() const noexcept;
};

inline constexpr std::uint32_t decoding = 0;  // instead of a number of tokens

// One product of one ISA, or its decoder.
struct KernelFigure {
  DType type;
  const char* isa;
  Residency residency;
  unsigned threads;
  std::uint32_t tokens;                  // or `decoding`: rows to floats
  std::uint64_t bytes;                   // of weights per pass, of all threads
  std::uint64_t multiply_adds;           // per pass; of a decoder none
  std::vector<double> bytes_per_second;  // of weights, of all repeats
  std::vector<double> beside_loop;       // each of them to the read loop just before; not of many
  double scalar_bytes_per_second = 0;    // median of the scalar kernel
  bool sampled = false;    // the scalar kernel over a part of the rows, which caches may keep
  bool same_bits = false;  // all outputs that the scalar kernel has are its own
  double median() const noexcept;
  double multiply_adds_per_second() const noexcept;
};

struct KernelStudy {
  KernelStudyOptions options;  // with what was left open filled in
  std::uint64_t l2_bytes = 0;
  std::uint64_t huge_bytes = 0, mapped_bytes = 0;  // of the weights' memory
  std::vector<ReadLimit> limits;
  std::vector<KernelFigure> figures;
  bool cancelled = false;  // then the figures are those that were done

  const ReadLimit& limit_of(const KernelFigure& figure) const;
  // Of one token and of decoding: the median against the best read loop. Of many tokens and of
  // what is sampled: 0, they are no matter of reading.
  double share(const KernelFigure& figure) const;
  // The same by the median of its ratios to the read loop just before, which a machine whose memory
  // is shared with others leaves alone.
  static double share_by_turns(const KernelFigure& figure);
  // Too few repeats to call a share wrong.
  bool judges_shares() const noexcept { return options.repeats >= 5; }
};
inline constexpr double kernel_share_max = 1.05;

// Errors: `usage` (a type, ISA or number that there is not), `memory`. Nothing else of the process
// should be busy. Takes many minutes with all types; `progress` says how far it is.
Result<KernelStudy> study_kernels(const KernelStudyOptions& options, ProgressLine& progress,
                                  const std::atomic<bool>& cancel);

// `verify` error naming the first kernel whose bits are not the scalar ones or, where enough was
// measured, whose share exceeds kernel_share_max: then the limit is wrong.
Status check_study(const KernelStudy& study);

std::string kernel_table_text(const KernelStudy& study);
Json kernel_study_json(const KernelStudy& study);

}  // namespace millrace
