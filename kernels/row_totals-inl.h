// What rows come to, four vectors of accumulators at a time: the canonical tree folds four of them
// in hardly more steps than one, and its steps wait for nothing. Over an ISA policy.
#pragma once

#include <cstddef>
#include <cstring>

namespace millrace {
namespace {

// The sums of four vectors in group order, each with `together` rows of 16 / together blocks, as
// the canonical tree takes them; out[together * i + r] is row r of v[i].
template <class Isa, std::size_t together>
[[gnu::always_inline]] inline void fold_rows(const typename Isa::F32x16 (&v)[4], float* out) {
  if constexpr (requires { Isa::template group_sums<together>(v, out); }) {
    Isa::template group_sums<together>(v, out);
  } else {
    constexpr std::size_t blocks = 16 / together;
    for (const auto& one : v) {
      alignas(64) float lanes[16];
      Isa::store(lanes, Isa::group_order(one));
      for (std::size_t r = 0; r < together; ++r)
        *out++ = Isa::tree_sum(Isa::load_first(lanes + r * blocks, blocks));
    }
  }
}

// Takes vectors of `together` rows each, in the order of the rows, and writes y.
template <class Isa, std::size_t together = 1>
class RowTotals {
 public:
  explicit RowTotals(float* y) : y_(y) {}

  [[gnu::always_inline]] void add(const typename Isa::F32x16& sums) {
    waiting_[count_++] = sums;
    if (count_ < 4) return;
    fold_rows<Isa, together>(waiting_, y_);
    y_ += 4 * together;
    count_ = 0;
  }

  // Behind the last row.
  void finish() {
    if (count_ == 0) return;
    for (std::size_t i = count_; i < 4; ++i) waiting_[i] = Isa::zero();
    alignas(64) float out[4 * together];
    fold_rows<Isa, together>(waiting_, out);
    std::memcpy(y_, out, count_ * together * sizeof(float));
  }

 private:
  typename Isa::F32x16 waiting_[4];
  std::size_t count_ = 0;
  float* y_;
};

}  // namespace
}  // namespace millrace
