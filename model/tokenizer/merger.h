// The merging loop that byte-level BPE and SPM share: symbols in a row, the best adjacent pair is
// joined again and again, until none is left. O(n log n) in the number of symbols, so that a run of
// a million spaces is as harmless as a word.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/ids.h"

namespace millrace {

// What joining two neighbours would give.
struct Merge {
  static constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t order = never;  // smaller is joined first; `never`: not a pair
  TokenId result = -1;
};

// Buffers for one thread's merging, kept between calls so that they are allocated once.
class Merger {
 public:
  struct Symbol {
    std::uint32_t begin = 0;  // byte range in the text
    std::uint32_t bytes = 0;  // 0: joined into its left neighbour
    TokenId id = -1;          // -1: no token
    std::uint32_t previous = 0;
    std::uint32_t next = 0;
    Merge with_next;
  };

  void clear() noexcept { symbols_.clear(); }
  // Symbols are appended left to right and must touch each other.
  void add(std::size_t begin, std::size_t bytes, TokenId id) {
    const auto index = static_cast<std::uint32_t>(symbols_.size());
    symbols_.push_back({static_cast<std::uint32_t>(begin),
                        static_cast<std::uint32_t>(bytes),
                        id,
                        index - 1,
                        index + 1,
                        {}});
  }

  // Joins pairs: lowest order first, leftmost among equals. `find(left, right)` returns the Merge
  // of two neighbours.
  template <class Find>
  void run(const Find& find) {
    MILLRACE_CHECK(symbols_.size() < none);
    if (symbols_.empty()) return;
    symbols_.front().previous = none;
    symbols_.back().next = none;
    heap_.clear();
    for (std::uint32_t i = 0; i + 1 < symbols_.size(); ++i) look(i, find);
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const std::uint64_t entry = heap_.back();
      heap_.pop_back();
      const auto left = static_cast<std::uint32_t>(entry);
      // An entry is stale once its symbol was joined or has another neighbour.
      if (symbols_[left].with_next.order != static_cast<std::uint32_t>(entry >> 32)) continue;
      join(left);
      if (symbols_[left].previous != none) relook(symbols_[left].previous, find);
      relook(left, find);
    }
  }

  // Calls visit(symbol) for the symbols that are left, in order.
  template <class Visit>
  void for_each(const Visit& visit) const {
    if (symbols_.empty()) return;
    for (std::uint32_t i = 0; i != none; i = symbols_[i].next) visit(symbols_[i]);
  }

 private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  template <class Find>
  void look(std::uint32_t left, const Find& find) {
    Symbol& symbol = symbols_[left];
    symbol.with_next = symbol.next == none ? Merge{} : find(symbol, symbols_[symbol.next]);
    if (symbol.with_next.order != Merge::never)
      heap_.push_back(std::uint64_t{symbol.with_next.order} << 32 | left);
  }

  template <class Find>
  void relook(std::uint32_t left, const Find& find) {
    const std::size_t before = heap_.size();
    look(left, find);
    if (heap_.size() > before) std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  void join(std::uint32_t left) noexcept {
    Symbol& symbol = symbols_[left];
    Symbol& gone = symbols_[symbol.next];
    symbol.id = symbol.with_next.result;
    symbol.bytes += gone.bytes;
    symbol.next = gone.next;
    gone.bytes = 0;
    gone.with_next = {};
    if (symbol.next != none) symbols_[symbol.next].previous = left;
  }

  std::vector<Symbol> symbols_;
  std::vector<std::uint64_t> heap_;  // order << 32 | left symbol
};

}  // namespace millrace
