// millrace verify: every digest of a packed pool.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "runtime/base/units.h"
#include "runtime/pack.h"
#include "tools/command.h"

namespace millrace::tools {

namespace {

Status run(const std::string& path, bool quiet) {
  constexpr const char* slices[] = {"gate", "up", "down"};
  install_interrupt_handler();
  ProgressLine progress(!quiet && stderr_is_terminal());
  MILLRACE_ASSIGN(const PackCheck check, check_pack(path, progress, cancel_flag()));
  std::string text;
  for (const PackDamage& damage : check.damaged)
    text += fmt::format("layer {} expert {} {}: damaged\n", damage.key.layer, damage.key.expert,
                        slices[damage.slice]);
  text += fmt::format("{} experts, {} read, {} slices damaged\n", check.experts,
                      format_bytes(check.bytes), check.damaged.size());
  ResultOutput out;
  out.write(text);
  MILLRACE_TRY(out.status());
  if (check.damaged.empty()) return {};
  return Error{ErrorCode::verify,
               fmt::format("{}: {} slices are damaged, the first of layer {} "
                           "expert {}; delete the file and pack again",
                           path, check.damaged.size(), check.damaged.front().key.layer,
                           check.damaged.front().key.expert)};
}

}  // namespace

void add_verify(CLI::App& app, int& code) {
  struct Flags {
    std::string path;
    bool quiet = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      app.add_subcommand("verify", "read a packed pool and compare every digest with its bytes");
  command->add_option("PACK", flags->path, "what pack wrote")->required()->check(not_empty());
  command->add_flag("-q,--quiet", flags->quiet, "no progress");
  command->callback([flags, &code] {
    const auto done = run(flags->path, flags->quiet);
    code = done ? 0 : report_error(done.error());
  });
}

}  // namespace millrace::tools
