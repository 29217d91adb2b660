#include "runtime/base/result.h"

namespace millrace {

int exit_code(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::usage:
      return 1;
    case ErrorCode::io:
      return 2;
    case ErrorCode::format:
      return 3;
    case ErrorCode::unsupported:
      return 3;
    case ErrorCode::memory:
      return 4;
    case ErrorCode::verify:
      return 5;
    case ErrorCode::cancelled:
      return 130;
  }
  return 1;
}

}  // namespace millrace
