// Words for what a read or another system call reported.
#pragma once

#include <string>

namespace millrace {

// "EIO (Input/output error)"; for -1, as reads report it: "unexpected end of file (was it
// truncated?)"; for 0: "no error".
std::string errno_text(int errno_or_minus_one);

}  // namespace millrace
