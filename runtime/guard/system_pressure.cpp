#include <sys/resource.h>

#include <string_view>

#include "runtime/guard/memory_left.h"
#include "runtime/guard/pressure.h"

namespace millrace {

namespace {

// The total of "some avg10=0.00 avg60=0.00 avg300=0.00 total=123", in microseconds.
bool read_waited(const char* path, std::uint64_t& waited_us) noexcept {
  char buffer[256];
  std::string_view text = read_start(path, buffer, sizeof buffer);
  if (!text.starts_with("some ")) return false;
  constexpr std::string_view key = "total=";
  const std::size_t at = text.find(key);
  return at != std::string_view::npos && number_after(text.substr(at), key, waited_us);
}

class SystemPressure final : public PressureSource {
 public:
  explicit SystemPressure(const std::string& root) : memory_(root) {
    std::uint64_t ignored = 0;
    const std::string system = root + "/proc/pressure/memory";
    const std::string group = memory_.own_group() + "/memory.pressure";
    if (!memory_.own_group().empty() && read_waited(group.c_str(), ignored)) waited_path_ = group;
    else if (read_waited(system.c_str(), ignored)) waited_path_ = system;
    else
      waiting_unknown_ =
          "this kernel tells no pressure (PSI): " + system + " cannot be read (CONFIG_PSI, psi=1)";
  }

  PressureSample sample() noexcept override {
    PressureSample sample;
    const std::uint64_t left = memory_.read().tightest();
    if (left != MemoryLeft::unlimited) sample.left_bytes = left;
    std::uint64_t waited_us = 0;
    if (!waited_path_.empty() && read_waited(waited_path_.c_str(), waited_us))
      sample.waited_us = waited_us;
    rusage usage = {};
    if (getrusage(RUSAGE_SELF, &usage) == 0)
      sample.major_faults = static_cast<std::uint64_t>(usage.ru_majflt);
    return sample;
  }

  const std::string& waiting_unknown() const noexcept override { return waiting_unknown_; }

 private:
  MemoryFiles memory_;
  std::string waited_path_;
  std::string waiting_unknown_;
};

}  // namespace

std::unique_ptr<PressureSource> make_system_pressure(const std::string& root) {
  return std::make_unique<SystemPressure>(root);
}

}  // namespace millrace
