// The tables of what the language offers by name, one per file. Each is searched from the door in
// callable.h.
#pragma once

#include <span>

#include "model/chat/jinja/callable.h"

namespace millrace::jinja {

std::span<const Builtin> text_filters() noexcept;      // filters_text.cpp
std::span<const Builtin> number_filters() noexcept;    // filters_number.cpp
std::span<const Builtin> sequence_filters() noexcept;  // filters_sequence.cpp
std::span<const Builtin> all_tests() noexcept;         // tests.cpp
std::span<const Builtin> all_globals() noexcept;       // globals.cpp
std::span<const Builtin> string_methods() noexcept;    // string_methods.cpp
std::span<const Builtin> list_methods() noexcept;      // container_methods.cpp, as the next two
std::span<const Builtin> dict_methods() noexcept;
std::span<const Builtin> loop_methods() noexcept;

}  // namespace millrace::jinja
