// Metadata keys that published files have and that change nothing here: no reason for a note.
#pragma once

#include <string_view>

namespace millrace {

// `key` without the architecture in front of it.
bool is_known_unused_key(std::string_view key) noexcept;

}  // namespace millrace
