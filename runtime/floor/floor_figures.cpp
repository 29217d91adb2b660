#include "runtime/floor/floor_figures.h"

namespace millrace {

FloorFigures floor_figures(const Engine& engine, const PhaseReport& decode, double profiled) {
  FloorFigures made;
  if (engine.run_floor() != nullptr) made.measured = engine.run_floor()->figure();
  if (made.measured.samples > 0) {
    made.rate = made.measured.bytes_per_second();
    made.source = "run";
  } else if (profiled > 0) {
    made.rate = profiled;
    made.source = "profile";
  }
  // A drive can do at least what it did, while it had reads to do.
  const ReadStats& reads = decode.counters.reads;
  const double did = reads.busy_ns == 0 ? 0.0
                                        : static_cast<double>(reads.bytes) /
                                              (static_cast<double>(reads.busy_ns) * 1e-9);
  if (made.rate > 0 && did > made.rate) {
    made.rate = did;
    made.source = "reads";
  }
  // A guess that came true would have been missing.
  const LoaderStats& experts = decode.counters.experts;
  const auto missing = static_cast<double>(experts.demanded_bytes + experts.guesses_used_bytes);
  if (made.rate > 0 && decode.seconds > 0 && missing > 0)
    made.share = missing / made.rate / decode.seconds;
  return made;
}

}  // namespace millrace
