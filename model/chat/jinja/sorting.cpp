#include "model/chat/jinja/sorting.h"

#include <algorithm>
#include <utility>

namespace millrace::jinja {

// A merge sort of our own: std::stable_sort may do anything if the comparison is no order.
Status stable_sort(std::vector<Keyed>& items, bool descending, Budget& budget) {
  std::vector<Keyed> merged(items.size());
  for (std::size_t width = 1; width < items.size(); width *= 2) {
    for (std::size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, items.size());
      const std::size_t end = std::min(begin + 2 * width, items.size());
      std::size_t left = begin;
      std::size_t right = middle;
      for (std::size_t at = begin; at < end; ++at) {
        bool take_right = left == middle;
        if (left < middle && right < end && !budget.exhausted()) {
          const Value& a = descending ? items[left].key : items[right].key;
          const Value& b = descending ? items[right].key : items[left].key;
          MILLRACE_ASSIGN(take_right, less(a, b, budget));
        }
        merged[at] = std::move(items[take_right ? right++ : left++]);
      }
    }
    items.swap(merged);
  }
  return {};
}

}  // namespace millrace::jinja
