// Sizes as typed: never a crash, shares within 0 to 100, and what is printed is understood.
#include <string>
#include <string_view>

#include "runtime/base/units.h"
#include "tests/fuzz/fuzz.h"

namespace millrace::testing {

std::vector<std::string> fuzz_seeds() {
  return {"123",  "6G",  "512MiB", "1.5k",       "25%", "all",
          "0x10", "1e6", "9e18",   "8388607.9T", "-1",  ""};
}

std::uint64_t fuzz_rounds() { return 300'000; }

}  // namespace millrace::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  const auto parsed = parse_size(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!parsed) {
    MILLRACE_CHECK(parsed.error().code == ErrorCode::usage);
    return 0;
  }
  if (parsed->kind == SizeSpec::Kind::percent)
    MILLRACE_CHECK(parsed->percent >= 0 && parsed->percent <= 100);
  MILLRACE_CHECK(parsed->kind == SizeSpec::Kind::bytes || parsed->resolve(1000, 7) <= 1000);
  if (parsed->kind == SizeSpec::Kind::bytes)
    MILLRACE_CHECK(parse_size(std::to_string(parsed->bytes))->kind == SizeSpec::Kind::bytes);
  return 0;
}
