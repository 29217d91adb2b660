// JSON text: whatever parses prints as text that parses to the same value.
#include <string>
#include <string_view>

#include "runtime/base/json.h"
#include "tests/fuzz/fuzz.h"

namespace millrace::testing {

std::vector<std::string> fuzz_seeds() {
  return {
      R"({"ids": [1, 2, -3, 1.5e3], "text": "a\u00e9\ud83d\ude00\n", "deep": [[[{"x": null}]]]})",
      R"({"t": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, "__metadata__": {}})",
      R"([true, false, 18446744073709551615, -9223372036854775808, 1e308, "", {}])",
      std::string(80, '[')};
}

std::uint64_t fuzz_rounds() { return 100'000; }

}  // namespace millrace::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  const auto parsed = Json::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!parsed) {
    MILLRACE_CHECK(parsed.error().code == ErrorCode::format && !parsed.error().what.empty());
    return 0;
  }
  const std::string printed = parsed->dump();
  const auto again = Json::parse(printed);
  MILLRACE_CHECK(again.has_value());
  MILLRACE_CHECK(again->dump() == printed);
  return 0;
}
