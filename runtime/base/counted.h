// Numbers with their nouns, as people read them: "1 layer", "2 layers".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace millrace {

// `one`: the noun of one thing; several take an s. `behind` follows it: "2 tokens of prompt".
std::string counted(std::uint64_t count, std::string_view one, std::string_view behind = {});

// "5 minutes ago", "1 hour ago", "90 days ago"; below a minute "just now".
std::string age_text(std::int64_t seconds);

// The one wording of a number that is out of its range: a `usage` error "FLAG VALUE: must be RANGE"
// (a range as "1 to 64"). Values as text, for what was typed may be no number at all.
Error out_of_range(std::string_view flag, std::string_view value, std::string_view range);
// The same of whole numbers from `least` to `most`; no error inside of them.
Status check_range(std::string_view flag, std::uint64_t value, std::uint64_t least,
                   std::uint64_t most);

}  // namespace millrace
