#include "model/tokenizer/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "runtime/base/check.h"
#include "runtime/base/utf8.h"

namespace millrace {

namespace {

struct Free {
  void operator()(utf8proc_uint8_t* memory) const noexcept { std::free(memory); }
};

void append_nfc(std::string_view valid, std::string& out) {
  if (!may_change_by_nfc(valid)) {
    out += valid;
    return;
  }
  utf8proc_uint8_t* made = nullptr;
  constexpr auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(valid.data()),
                   static_cast<utf8proc_ssize_t>(valid.size()), &made, options);
  const std::unique_ptr<utf8proc_uint8_t, Free> owner(made);
  MILLRACE_CHECK(bytes >= 0);  // the text is valid; what is left is memory
  out.append(reinterpret_cast<const char*>(made), static_cast<std::size_t>(bytes));
}

}  // namespace

bool may_change_by_nfc(std::string_view text) noexcept {
  constexpr unsigned char first_lead = 0xCC;  // of U+0300
  return std::any_of(text.begin(), text.end(),
                     [](char byte) { return static_cast<unsigned char>(byte) >= first_lead; });
}

std::string to_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    std::size_t valid = 0;
    while (const std::size_t next = utf8_valid_length(text.substr(valid))) valid += next;
    append_nfc(text.substr(0, valid), out);
    text.remove_prefix(valid);
    if (text.empty()) break;
    out += text.front();
    text.remove_prefix(1);
  }
  return out;
}

}  // namespace millrace
