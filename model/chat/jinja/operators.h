// The binary operators, with Python's rules.
#pragma once

#include "model/chat/jinja/expression.h"
#include "model/chat/jinja/value.h"
#include "runtime/base/result.h"

namespace millrace::jinja {

// + - * / // % **. Integers have 64 bits; leaving them is an error.
ValueResult arithmetic(Operator op, const Value& a, const Value& b, Heap& heap);
// == != < <= > >= in, not in.
Result<bool> compare(Operator op, const Value& a, const Value& b, Heap& heap);
// item in container.
Result<bool> contains(const Value& container, const Value& item, Heap& heap);

}  // namespace millrace::jinja
