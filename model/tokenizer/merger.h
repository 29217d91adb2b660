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
    queue_.clear();
    for (std::uint32_t i = 0; i + 1 < symbols_.size(); ++i)
      if (look(i, find)) queue_.add_unsorted(entry_of(i));
    queue_.sort();
    std::uint64_t entry = 0;
    while (queue_.pop(entry)) {
      const auto left = static_cast<std::uint32_t>(entry);
      // An entry is stale once its symbol was joined or has another neighbour.
      if (symbols_[left].with_next.order != static_cast<std::uint32_t>(entry >> 32)) continue;
      join(left);
      const std::uint32_t previous = symbols_[left].previous;
      if (previous != none && look(previous, find)) queue_.push(entry_of(previous));
      if (look(left, find)) queue_.push(entry_of(left));
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

  // Smallest entry first. A sorted list and a heap for what comes later: whole generations of
  // pairs (a long run of spaces makes them) are sorted at once, which a heap does slowly.
  class Queue {
   public:
    void clear() noexcept {
      sorted_.clear();
      heap_.clear();
      next_ = 0;
    }
    void add_unsorted(std::uint64_t entry) { sorted_.push_back(entry); }
    void sort() { std::sort(sorted_.begin(), sorted_.end()); }
    void push(std::uint64_t entry) {
      heap_.push_back(entry);
      std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    }
    bool pop(std::uint64_t& entry) {
      if (next_ == sorted_.size() && heap_.size() > generation) {
        sorted_.swap(heap_);
        heap_.clear();
        next_ = 0;
        sort();
      }
      const bool any_sorted = next_ < sorted_.size();
      if (any_sorted && (heap_.empty() || sorted_[next_] < heap_.front())) {
        entry = sorted_[next_++];
        return true;
      }
      if (heap_.empty()) return false;
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      entry = heap_.back();
      heap_.pop_back();
      return true;
    }

   private:
    static constexpr std::size_t generation = 256;
    std::vector<std::uint64_t> sorted_;
    std::vector<std::uint64_t> heap_;
    std::size_t next_ = 0;  // in sorted_
  };

  std::uint64_t entry_of(std::uint32_t left) const noexcept {
    return std::uint64_t{symbols_[left].with_next.order} << 32 | left;
  }

  // What joining `left` with its neighbour would give now; false: nothing.
  template <class Find>
  bool look(std::uint32_t left, const Find& find) {
    Symbol& symbol = symbols_[left];
    symbol.with_next = symbol.next == none ? Merge{} : find(symbol, symbols_[symbol.next]);
    return symbol.with_next.order != Merge::never;
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
  Queue queue_;  // of order << 32 | left symbol
};

}  // namespace millrace
