// Expected failures are values: Result<T> holds a T or an Error, Status is Result<void>. Nothing of
// ours throws. The names follow std::expected, so that C++23 can replace this header.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "runtime/base/check.h"

namespace millrace {

// What went wrong, as the process's exit code tells it (see exit_code()).
enum class ErrorCode : std::uint8_t {
  usage,        // wrong flags or input: exit 1
  io,           // a read or write failed, a file is missing or was truncated while running: exit 2
  format,       // a model file is malformed or lacks something: exit 3
  unsupported,  // an architecture, type or feature we do not know: exit 3
  memory,       // the memory plan was refused: exit 4
  verify,       // verification found damage: exit 5
  cancelled,    // Ctrl-C: exit 130
};

int exit_code(ErrorCode code) noexcept;

// `what` names file, tensor, number and, where there is one, the flag to change: "m.gguf:
// blk.3.ffn_up: offset 12 past the end".
struct Error {
  ErrorCode code;
  std::string what;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit on purpose
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT
  bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }
  T& value() & {
    MILLRACE_CHECK(has_value());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    MILLRACE_CHECK(has_value());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    MILLRACE_CHECK(has_value());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const& {
    MILLRACE_CHECK(!has_value());
    return *std::get_if<1>(&state_);
  }
  Error&& error() && {
    MILLRACE_CHECK(!has_value());
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}  // NOLINT
  bool has_value() const noexcept { return ok_; }
  explicit operator bool() const noexcept { return ok_; }
  const Error& error() const& {
    MILLRACE_CHECK(!ok_);
    return error_;
  }
  Error&& error() && {
    MILLRACE_CHECK(!ok_);
    return std::move(error_);
  }

 private:
  Error error_{ErrorCode::usage, {}};
  bool ok_ = true;
};

using Status = Result<void>;

}  // namespace millrace

// Returns the error of a Status or Result expression from the enclosing function.
#define MILLRACE_TRY(expression)                                       \
  do {                                                                 \
    if (auto millrace_try_result = (expression); !millrace_try_result) \
      return std::move(millrace_try_result).error();                   \
  } while (false)

// MILLRACE_ASSIGN(auto file, File::open(path)): declares `file`, or returns the error.
#define MILLRACE_CONCAT_(a, b) a##b
#define MILLRACE_CONCAT(a, b) MILLRACE_CONCAT_(a, b)
#define MILLRACE_ASSIGN(declaration, expression)                           \
  auto MILLRACE_CONCAT(millrace_result_, __LINE__) = (expression);         \
  if (!MILLRACE_CONCAT(millrace_result_, __LINE__))                        \
    return std::move(MILLRACE_CONCAT(millrace_result_, __LINE__)).error(); \
  declaration = std::move(MILLRACE_CONCAT(millrace_result_, __LINE__)).value()
