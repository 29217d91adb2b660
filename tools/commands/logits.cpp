// millrace logits: raw logits of given token ids, for comparing with other engines.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "runtime/base/json.h"
#include "runtime/evaluate.h"
#include "tools/command.h"

namespace millrace::tools {

namespace {

struct LogitsFlags {
  EngineFlags engine;
  std::string ids_path, out_path, greedy_path;
  LogitsRun run;
};

struct Close {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
using OutFile = std::unique_ptr<std::FILE, Close>;

Result<OutFile> open_out(const std::string& path) {
  OutFile file(std::fopen(path.c_str(), "wb"));
  if (file == nullptr)
    return Error{ErrorCode::io, fmt::format("{}: {}", path, std::strerror(errno))};
  return file;
}

Status close_out(OutFile file, const std::string& path) {
  if (std::fclose(file.release()) != 0)
    return Error{ErrorCode::io, fmt::format("{}: {}", path, std::strerror(errno))};
  return {};
}

Status write_ids(const std::vector<TokenId>& list, const std::string& path) {
  Json ids = Json::array();
  for (const TokenId id : list) ids.push(id);
  const std::string text = Json::object().set("ids", std::move(ids)).dump() + "\n";
  MILLRACE_ASSIGN(OutFile out, open_out(path));
  if (std::fwrite(text.data(), 1, text.size(), out.get()) != text.size())
    return Error{ErrorCode::io, fmt::format("{}: {}", path, std::strerror(errno))};
  return close_out(std::move(out), path);
}

Status run(LogitsFlags& flags) {
  if ((flags.run.greedy_count > 0) != !flags.greedy_path.empty())
    return Error{ErrorCode::usage, "--greedy N and --greedy-out FILE go together"};
  MILLRACE_ASSIGN(flags.run.ids, read_ids_file(flags.ids_path));
  const auto check_ids = [&](const Engine& engine, const Checkpoint&) -> Status {
    const Status good = check_logits_run(engine, flags.run);
    if (good) return good;
    return Error{good.error().code, fmt::format("{}: {}", flags.ids_path, good.error().what)};
  };
  const ModelCheck check(check_ids);
  MILLRACE_ASSIGN(const auto running, start_engine(flags.engine,
                                                   {{"-o", flags.out_path},
                                                    {"--greedy-out", flags.greedy_path},
                                                    {"--trace", flags.run.trace_path}},
                                                   {{"--tokens", flags.ids_path}}, &check));
  MILLRACE_ASSIGN(OutFile out, open_out(flags.out_path));
  const std::size_t vocabulary = running->engine->spec().hparams.vocabulary;
  std::vector<TokenId> greedy;
  int write_errno = 0;
  const Status done = run_logits(
      *running->engine, flags.run,
      [&](std::size_t, const float* row) {
        if (std::fwrite(row, sizeof(float), vocabulary, out.get()) == vocabulary) return true;
        write_errno = errno;
        return false;
      },
      greedy);
  if (write_errno != 0)
    return Error{ErrorCode::io, fmt::format("{}: {}", flags.out_path, std::strerror(write_errno))};
  MILLRACE_TRY(done);
  MILLRACE_TRY(close_out(std::move(out), flags.out_path));
  if (flags.greedy_path.empty()) return {};
  return write_ids(greedy, flags.greedy_path);
}

}  // namespace

void add_logits(CLI::App& app, int& code) {
  auto flags = std::make_shared<LogitsFlags>();
  CLI::App* command = app.add_subcommand(
      "logits", "write the logits of given token ids: float32, positions x vocabulary");
  flags->engine.add_to(*command, true);
  command->add_option("--tokens", flags->ids_path, "JSON array of ids, or object with \"ids\"")
      ->required()
      ->check(not_empty());
  command->add_option("-o,--out", flags->out_path, "raw little-endian float32 file to write")
      ->required()
      ->check(not_empty());
  command->add_flag("--one-by-one", flags->run.one_by_one,
                    "token by token instead of as one prompt (same bits)");
  command
      ->add_option("--greedy", flags->run.greedy_count, "then continue greedily by so many tokens")
      ->transform(decimal());
  command->add_option("--greedy-out", flags->greedy_path, "JSON file for the continued ids")
      ->check(not_empty());
  add_trace_flag(*command, flags->run.trace_path);
  command->callback([flags, &code] {
    const auto done = run(*flags);
    code = done ? 0 : report_error(done.error());
  });
}

}  // namespace millrace::tools
