#include "runtime/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace millrace {

void check_failed(const char* file, int line, const char* condition) noexcept {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace millrace
