// millrace floor: the read-floor profile of a drive.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "io/write_file.h"
#include "runtime/base/counted.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"
#include "runtime/floor/floor.h"
#include "tools/command.h"
#include "tools/user_folders.h"

namespace millrace::tools {

namespace {

struct FloorFlags {
  FloorOptions floor;
  std::string scratch, svg;
  bool json = false, quiet = false, no_save = false;
};

// Where the profile was kept; empty if it was not, with the reason as a warning.
std::string keep(const FloorFlags& flags, FloorResult& result) {
  if (flags.no_save || result.profile.page_cache) return {};
  if (result.profile.file_bytes < floor_kept_bytes_min) {
    result.warnings.push_back(
        fmt::format("not kept: the file is too small to tell what the drive does; one of {} or "
                    "more would be",
                    format_bytes(floor_kept_bytes_min)));
    return {};
  }
  const std::string folder = cache_folder();
  if (folder.empty()) {
    result.warnings.push_back("not kept: neither XDG_CACHE_HOME nor HOME is set");
    return {};
  }
  const Status saved = save_profile(folder, result.profile);
  if (saved) return profile_path(folder, result.profile.drive_key);
  result.warnings.push_back("not kept: " + saved.error().what);
  return {};
}

Json result_json(const FloorResult& result, const std::string& kept) {
  Json json = profile_json(result.profile);
  Json warnings = Json::array();
  for (const std::string& warning : result.warnings) warnings.push(warning);
  json.set("warnings", std::move(warnings));
  json.set("saved_to", kept.empty() ? Json() : Json(kept));
  return json;
}

// The check of --seconds; as whole_number().
std::string check_seconds(const std::string& text) {
  double seconds = 0;
  if (CLI::detail::lexical_cast(text, seconds) && seconds > 0 && seconds <= floor_seconds_max)
    return {};
  throw CLI::ParseError(
      out_of_range("--seconds", text, fmt::format("above 0 and at most {}", floor_seconds_max))
          .what,
      CLI::ExitCodes::ValidationError);
}

Status run(FloorFlags& flags) {
  if (flags.quiet) set_log_level(LogLevel::error);
  install_interrupt_handler();
  if (!flags.scratch.empty()) {
    MILLRACE_ASSIGN(const SizeSpec size, parse_size(flags.scratch));
    if (size.kind != SizeSpec::Kind::bytes || size.bytes == 0)
      return Error{ErrorCode::usage,
                   fmt::format("--size {}: give bytes, as 512M or 4G", flags.scratch)};
    flags.floor.scratch_bytes = size.bytes;
  }
  MILLRACE_TRY(check_outputs({{"--svg", flags.svg}}, {{"PATH", flags.floor.path}}));
  ProgressLine progress(!flags.quiet && stderr_is_terminal());
  MILLRACE_ASSIGN(FloorResult result, measure_floor(flags.floor, progress, cancel_flag()));
  const std::string kept = keep(flags, result);
  if (!flags.svg.empty()) MILLRACE_TRY(write_file_atomically(flags.svg, floor_svg(result.profile)));
  ResultOutput out;
  if (flags.json) {
    out.write(result_json(result, kept).dump(2) + "\n");
  } else {
    out.write(floor_table(result));
    if (!kept.empty()) out.write("  kept       " + kept + "\n");
  }
  return out.status();
}

}  // namespace

void add_floor(CLI::App& app, int& code) {
  auto flags = std::make_shared<FloorFlags>();
  CLI::App* command = app.add_subcommand(
      "floor", "measure how fast the drive behind a path can be read, and keep the profile");
  command
      ->add_option("PATH", flags->floor.path,
                   "a file to read, or a folder in which a scratch file is made")
      ->required()
      ->check(not_empty());
  command->add_flag("--thorough", flags->floor.thorough,
                    "all piece sizes and depths, in four minutes");
  command->add_option("--seconds", flags->floor.seconds, "time in all [20; with --thorough 240]")
      ->check(CLI::Validator(check_seconds, std::string()));
  command->add_option("--size", flags->scratch, "of the scratch file [1G]")->check(not_empty());
  command->add_option("--svg", flags->svg, "write a heat map of piece size and depth")
      ->check(not_empty());
  command->add_flag("--no-save", flags->no_save, "do not keep the profile for later runs");
  command->add_flag("--json", flags->json, "print one JSON object on stdout");
  command->add_flag("-q,--quiet", flags->quiet, "errors only; no progress");
  command->callback([flags, &code] {
    const Status done = run(*flags);
    code = done ? 0 : report_error(done.error());
  });
}

}  // namespace millrace::tools
