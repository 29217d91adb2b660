// millrace verify: every digest of a packed pool, or all bytes and values of a model's files.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "io/drive.h"
#include "io/drive_profile.h"
#include "kernels/dispatch.h"
#include "model/format/open.h"
#include "model/format/pack_file.h"
#include "runtime/base/counted.h"
#include "runtime/base/units.h"
#include "runtime/pack.h"
#include "runtime/verify.h"
#include "tools/command.h"
#include "tools/user_folders.h"

namespace millrace::tools {

namespace {

std::string gb_per_second(double rate) { return fmt::format("{:.2f} GB/s", rate * 1e-9); }

// "12.0 GiB in 6.1 s: 2.11 GB/s, 0.94 of the drive's floor".
std::string speed(std::uint64_t bytes, double seconds, const std::string& path) {
  const double rate = static_cast<double>(bytes) / std::max(seconds, 1e-9);
  std::string text =
      fmt::format("{} in {:.2f} s: {}", format_bytes(bytes), seconds, gb_per_second(rate));
  const auto drive = find_drive(path);
  const auto profile = drive ? load_profile(cache_folder(), *drive) : std::nullopt;
  if (!profile) return text + " (millrace floor measures what the drive can do)";
  return text + fmt::format(", {:.2f} of the drive's floor of {}", rate / profile->bytes_per_second,
                            gb_per_second(profile->bytes_per_second));
}

Status print(const std::string& text) {
  ResultOutput out;
  out.write(text);
  return out.status();
}

Status verify_pack(const std::string& path, ProgressLine& progress) {
  constexpr const char* slices[] = {"gate", "up", "down"};
  MILLRACE_ASSIGN(const PackCheck check, check_pack(path, progress, cancel_flag()));
  std::string text;
  for (const PackDamage& damage : check.damaged)
    text += fmt::format("layer {} expert {} {}: damaged\n", damage.key.layer, damage.key.expert,
                        slices[damage.slice]);
  text += fmt::format("{}, {}\n{}\n", counted(check.experts, "expert"),
                      speed(check.bytes, check.seconds, path),
                      counted(check.damaged.size(), "slice", "damaged"));
  MILLRACE_TRY(print(text));
  if (check.damaged.empty()) return {};
  return Error{ErrorCode::verify,
               fmt::format("{}: {}, the first of layer {} "
                           "expert {}; delete the file and pack again",
                           path, counted(check.damaged.size(), "slice", "damaged"),
                           check.damaged.front().key.layer, check.damaged.front().key.expert)};
}

Status verify_model(const std::string& path, ProgressLine& progress) {
  MILLRACE_ASSIGN(const Checkpoint checkpoint, open_checkpoint(path));
  MILLRACE_ASSIGN(const WeightCheck check,
                  check_weights(checkpoint, *supported_kernels().back(), progress, cancel_flag()));
  std::string text;
  for (const std::string& failure : check.unreadable) text += failure + "\n";
  for (const BadWeights& bad : check.bad)
    text += fmt::format("tensor {}: {} {} not finite, the first is number {}\n", bad.tensor,
                        counted(bad.count, "value"), bad.count == 1 ? "is" : "are", bad.first);
  text += fmt::format("{}, {}\n", counted(checkpoint.tensors().size(), "tensor"),
                      speed(check.bytes, check.seconds, checkpoint.files().front()));
  text +=
      "no digests in these files: what was checked is that every byte can be read and every "
      "value and scale is a finite number";
  if (check.unchecked > 0)
    text += fmt::format(" (but for {} of whole numbers)", format_bytes(check.unchecked));
  MILLRACE_TRY(print(text + "\n"));
  if (!check.unreadable.empty()) return Error{ErrorCode::io, check.unreadable.front()};
  if (check.bad.empty()) return {};
  return Error{ErrorCode::verify,
               fmt::format("{}: {} with values that are not finite, the first is {}", path,
                           counted(check.bad.size(), "tensor"), check.bad.front().tensor)};
}

Status run(const std::string& path, bool quiet) {
  install_interrupt_handler();
  ProgressLine progress(!quiet && stderr_is_terminal());
  return is_pack(path) ? verify_pack(path, progress) : verify_model(path, progress);
}

}  // namespace

void add_verify(CLI::App& app, int& code) {
  struct Flags {
    std::string path;
    bool quiet = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand(
      "verify",
      "read a packed pool or a model at the drive's speed and say what is damaged: of a "
      "pool every digest is compared, of a model (which has none) every value must be "
      "finite");
  command->add_option("PATH", flags->path, "what pack wrote, a GGUF file, or a safetensors folder")
      ->required()
      ->check(not_empty());
  command->add_flag("-q,--quiet", flags->quiet, "no progress");
  command->callback([flags, &code] {
    const auto done = run(flags->path, flags->quiet);
    code = done ? 0 : report_error(done.error());
  });
}

}  // namespace millrace::tools
