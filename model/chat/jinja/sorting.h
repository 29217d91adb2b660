// Sorting by Python's order: stable, and safe when the order fails or is none (NaN).
#pragma once

#include <vector>

#include "model/chat/jinja/value.h"
#include "runtime/base/result.h"

namespace millrace::jinja {

struct Keyed {
  Value key;
  Value item;
};

Status stable_sort(std::vector<Keyed>& items, bool descending, Budget& budget);

}  // namespace millrace::jinja
