#include <fmt/format.h>

#include "io/reader.h"
#include "io/reader_threads.h"
#include "io/reader_uring.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"

namespace millrace {

Result<MadeReader> make_reader(const ReaderOptions& options) {
  if (options.depth == 0 || options.depth > limits::queue_depth_max) {
    return Error{ErrorCode::usage, fmt::format("queue depth {}: must be 1 to {}", options.depth,
                                               limits::queue_depth_max)};
  }
  if (options.kind == ReaderKind::threads) return make_threads_reader(options);
  Result<MadeReader> uring = make_uring_reader(options);
  if (uring) {
    if (!uring->buffers_reason.empty()) log_info(uring->buffers_reason);
    return uring;
  }
  if (options.kind == ReaderKind::uring) {
    return Error{uring.error().code, uring.error().what + ": use --io threads, or leave --io away"};
  }
  MILLRACE_ASSIGN(MadeReader made, make_threads_reader(options));
  made.fallback_reason = uring.error().what;
  log_warning(made.fallback_reason + "; reading with threads instead");
  return made;
}

}  // namespace millrace
