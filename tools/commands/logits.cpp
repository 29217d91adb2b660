// millrace logits: raw logits of given token ids, for comparing with other engines.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "io/write_file.h"
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

// Removed by the destructor if finish() never comes, or fails.
class LogitsFile {
 public:
  static Result<LogitsFile> create(const std::string& path) {
    LogitsFile made;
    made.path_ = path;
    made.file_.reset(std::fopen(path.c_str(), "wb"));
    if (made.file_ == nullptr) return made.failure(errno);
    return made;
  }
  LogitsFile(LogitsFile&&) = default;
  ~LogitsFile() {
    if (file_ == nullptr) return;
    file_.reset();
    remove_unfinished(path_);
  }

  // False with errno.
  bool write(const float* row, std::size_t count) {
    return std::fwrite(row, sizeof(float), count, file_.get()) == count;
  }
  Status finish() {
    if (std::fflush(file_.get()) != 0) return failure(errno);
    if (std::fclose(file_.release()) == 0) return {};
    Error closing = failure(errno);
    remove_unfinished(path_);
    return closing;
  }
  Error failure(int code) const {
    return {ErrorCode::io, fmt::format("{}: {}", path_, std::strerror(code))};
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  LogitsFile() = default;
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

Status write_ids(const std::vector<TokenId>& list, const std::string& path) {
  Json ids = Json::array();
  for (const TokenId id : list) ids.push(id);
  return write_file_atomically(path, Json::object().set("ids", std::move(ids)).dump() + "\n");
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
  MILLRACE_ASSIGN(LogitsFile out, LogitsFile::create(flags.out_path));
  const std::size_t vocabulary = running->engine->spec().hparams.vocabulary;
  std::vector<TokenId> greedy;
  int write_errno = 0;
  const Status done = run_logits(
      *running->engine, flags.run,
      [&](std::size_t, const float* row) {
        if (out.write(row, vocabulary)) return true;
        write_errno = errno;
        return false;
      },
      greedy);
  if (write_errno != 0) return out.failure(write_errno);
  MILLRACE_TRY(done);
  MILLRACE_TRY(out.finish());
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
