// Unicode's normal form C: characters in one piece where there is one for them. Pure, any thread.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

// False only for texts that are in normal form for certain: without characters from U+0300 on.
bool may_change_by_nfc(std::string_view text) noexcept;

// The normal form of all stretches that are UTF-8; other bytes stay as they are.
std::string to_nfc(std::string_view text);

}  // namespace millrace
