// What the programs of this folder share: how they give up, and the numbers of their command lines.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/result.h"

namespace millrace::bench {

// Says so on stderr, after the program's name, and ends it with 1.
[[noreturn]] void die(const std::string& message);

template <class T>
T must(Result<T> result) {
  if (!result) die(result.error().what);
  return *std::move(result);
}

// 1 to `most`, in digits alone; anything else ends the program.
std::uint64_t number(std::string_view text, std::uint64_t most);

}  // namespace millrace::bench
