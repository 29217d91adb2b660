// The one options struct of the engine, filled once from flags. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/file.h"
#include "io/read_scheduler.h"
#include "io/reader.h"
#include "model/blocks/linear.h"
#include "model/kv_cache.h"
#include "prefetch/eviction_policy.h"
#include "runtime/base/limits.h"
#include "runtime/base/units.h"

namespace millrace {

class Clock;
class PressureSource;

// Of the guard that shrinks the pool while memory is short.
struct GuardOptions {
  bool on = true;
  std::uint64_t segment_bytes = 0;   // the pool shrinks in steps of; 0: pool_segment_bytes()
  PressureSource* source = nullptr;  // must outlive the engine, as the clock; null: the system's
  Clock* clock = nullptr;
};

struct EngineConfig {
  std::string model_path;
  std::string pool_path;  // packed pool to read the experts from; empty: the model's own files
  std::vector<std::string> mirror_paths;  // copies of the model or of the pool on other drives
  bool stripe = false;  // the drives share each expert, instead of taking whole slices in turn
  std::string preset = "auto";
  SizeSpec cache;                    // of the expert pool; unset: the preset's
  SizeSpec trunk;                    // of the trunk; unset: the preset's
  std::uint32_t context = 0;         // positions; 0: the smaller of the model's and context_default
  std::uint32_t threads = 0;         // 0: all physical cores of the fastest kind
  std::uint32_t sequences = 1;       // sessions at a time (--parallel)
  std::uint32_t batch_tokens = 512;  // prompt tokens that go through the layers together (-ub)
  KvType kv = KvType::f16;
  ActivationMode activations = ActivationMode::q8;
  std::string isa;  // empty: the best that the CPU has
  ReaderKind io = ReaderKind::automatic;
  DirectMode direct = DirectMode::automatic;
  std::string policy = eviction_policy_default;  // eviction policy of the expert cache
  std::string prefetch = "off";                  // predictor (predictor_names()), or off
  GuardOptions guard;
  std::uint32_t queue_depth = 0;  // reads in flight; 0: the drive profile's, or the default
  std::uint64_t piece_bytes = 0;  // of one read; 0: the drive profile's, or the default
  std::string profile_folder;     // of drive profiles; empty: none is used
  // Makes the reader, with this context; null: make_reader() does. Tests put faults under a run.
  ReadScheduler::ReaderFactory reader_factory = nullptr;
  void* reader_context = nullptr;
};

inline constexpr std::uint32_t context_default = 4096;
inline constexpr std::uint32_t sequences_max = 256;

}  // namespace millrace
