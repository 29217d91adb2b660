// A binary min-heap of ids whose places are known, so that any id can be removed or get another
// key. Places are shared by heaps that never hold the same id. Ties go to the lower `second`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/base/check.h"

namespace millrace {

class IndexedHeap {
 public:
  using Places = std::vector<std::int32_t>;  // by id; -1: in no heap
  struct Key {
    double first = 0;
    std::uint64_t second = 0;
    friend bool operator<(const Key& a, const Key& b) noexcept {
      return a.first != b.first ? a.first < b.first : a.second < b.second;
    }
  };
  struct Entry {
    Key key;
    std::uint32_t id = 0;
  };

  // No allocation up to `capacity` entries.
  void reserve(std::size_t capacity) { entries_.reserve(capacity); }
  void clear() noexcept { entries_.clear(); }  // places are the caller's to reset
  bool empty() const noexcept { return entries_.empty(); }
  std::size_t size() const noexcept { return entries_.size(); }
  const Entry& top() const noexcept { return entries_.front(); }

  void push(Places& places, std::uint32_t id, Key key) noexcept {
    MILLRACE_DCHECK(places[id] < 0 && entries_.size() < entries_.capacity());
    entries_.push_back({key, id});
    sift(places, entries_.size() - 1);
  }
  void remove(Places& places, std::uint32_t id) noexcept {
    const auto at = static_cast<std::size_t>(places[id]);
    MILLRACE_DCHECK(at < entries_.size() && entries_[at].id == id);
    places[id] = -1;
    const Entry last = entries_.back();
    entries_.pop_back();
    if (at == entries_.size()) return;
    entries_[at] = last;
    sift(places, at);
  }
  void update(Places& places, std::uint32_t id, Key key) noexcept {
    const auto at = static_cast<std::size_t>(places[id]);
    entries_[at].key = key;
    sift(places, at);
  }
  // Gives every entry the key that `key_of(id)` tells: O(size).
  template <class KeyOf>
  void rekey(Places& places, KeyOf key_of) noexcept {
    for (Entry& entry : entries_) entry.key = key_of(entry.id);
    for (std::size_t at = entries_.size() / 2; at-- > 0;) sink(at);
    for (std::size_t at = 0; at < entries_.size(); ++at)
      places[entries_[at].id] = static_cast<std::int32_t>(at);
  }

 private:
  void sift(Places& places, std::size_t at) noexcept {
    const Entry moving = entries_[at];
    while (at > 0 && moving.key < entries_[(at - 1) / 2].key) {
      put(places, at, entries_[(at - 1) / 2]);
      at = (at - 1) / 2;
    }
    for (std::size_t child; (child = smaller_child(at)) != at; at = child) {
      if (!(entries_[child].key < moving.key)) break;
      put(places, at, entries_[child]);
    }
    put(places, at, moving);
  }
  void sink(std::size_t at) noexcept {
    for (std::size_t child; (child = smaller_child(at)) != at; at = child) {
      if (!(entries_[child].key < entries_[at].key)) return;
      std::swap(entries_[child], entries_[at]);
    }
  }
  // `at` itself if it has none.
  std::size_t smaller_child(std::size_t at) const noexcept {
    const std::size_t left = 2 * at + 1;
    if (left >= entries_.size()) return at;
    const std::size_t right = left + 1;
    return right < entries_.size() && entries_[right].key < entries_[left].key ? right : left;
  }
  void put(Places& places, std::size_t at, const Entry& entry) noexcept {
    entries_[at] = entry;
    places[entry.id] = static_cast<std::int32_t>(at);
  }

  std::vector<Entry> entries_;
};

}  // namespace millrace
