// Assertions for bugs (never for bad input). A failed check prints file, line and condition, then
// aborts, in release builds too. MILLRACE_DCHECK is for inner loops: it is compiled away unless
// MILLRACE_DEBUG_CHECKS is defined.
#pragma once

namespace millrace {

// Prints "file:line: check failed: condition" on stderr and aborts. Any thread.
[[noreturn]] void check_failed(const char* file, int line, const char* condition) noexcept;

}  // namespace millrace

#define MILLRACE_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::millrace::check_failed(__FILE__, __LINE__, #condition))

#ifdef MILLRACE_DEBUG_CHECKS
#define MILLRACE_DCHECK(condition) MILLRACE_CHECK(condition)
#else
#define MILLRACE_DCHECK(condition) static_cast<void>(0)
#endif
