// What the commands of the one program share: flags of the engine, the cancel flag, exit codes.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/config.h"
#include "runtime/engine.h"
#include "tools/output_paths.h"

namespace millrace::tools {

// Set by Ctrl-C from install_interrupt_handler() on (before, it ends the program as usual); the
// engine looks at it between layers.
std::atomic<bool>& cancel_flag() noexcept;

// Results on stdout, each piece flushed. A reader that has gone (`| head`) is no error: nothing
// more is written, and the command ends quietly.
class ResultOutput {
 public:
  // False if the text could not be written, now or before.
  bool write(std::string_view text) noexcept;
  bool failed() const noexcept { return errno_ != 0; }
  // `io` if a write failed for another reason than a reader that has gone.
  Status status() const;

 private:
  int errno_ = 0;
};

// Check of a flag or word whose text must not be empty: an empty one is most often a variable that
// was not set, and is not to be taken for "not given".
const CLI::Validator& not_empty();

// --trace FILE.
void add_trace_flag(CLI::App& app, std::string& path);

// Transform of a flag that takes a whole number: without leading zeros, which would make it octal.
const CLI::Validator& decimal();

// The same, and a usage error in the one wording (base/counted.h) unless it is `least` to `most`,
// which --help tells. For flags of which every value in the range is one: no 0 for "not given".
CLI::Validator whole_number(const std::string& flag, std::uint32_t least, std::uint32_t most);

// The engine's flags as typed, before they are checked.
struct EngineFlags {
  std::string model, pool, preset = "auto", cache, trunk, kv = "f16", activations = "q8", isa,
                           io = "auto", direct = "auto", prefetch = predictor_default(),
                           guard = "auto", policy = eviction_policy_default;
  std::vector<std::string> mirrors;
  std::string piece;
  std::uint32_t context = 0, threads = 0, batch_tokens = 512, depth = 0;
  std::uint32_t sequences = 1;  // not a flag: commands that take several set it
  bool stripe = false, quiet = false, verbose = false;

  // Adds them to a command; `with_model`: also MODEL or -m.
  void add_to(CLI::App& app, bool with_model);
  // Checks them; the embedded model stands in when none was named.
  Result<EngineConfig> config() const;
  void set_log_level() const;
};

// Makes the engine, with progress on stderr; from here on Ctrl-C sets the cancel flag. Before, what
// will be written is held against the model's files, `inputs` and itself (check_outputs()).
// `check`: as Engine::create's.
struct RunningEngine {
  explicit RunningEngine(bool show_progress) : progress(show_progress) {}
  ProgressLine progress;
  std::unique_ptr<Engine> engine;
};
Result<std::unique_ptr<RunningEngine>> start_engine(const EngineFlags& flags,
                                                    const std::vector<NamedPath>& outputs = {},
                                                    const std::vector<NamedPath>& inputs = {},
                                                    const ModelCheck* check = nullptr);

// From here on Ctrl-C sets the cancel flag; the second one ends the program.
void install_interrupt_handler() noexcept;

// Prints the error on stderr; returns its exit code.
int report_error(const Error& error);

// Each adds its subcommand; the callback leaves the exit code in `code`.
void add_run(CLI::App& app, int& code);
void add_fixture(CLI::App& app, int& code);
void add_inspect(CLI::App& app, int& code);
void add_pack(CLI::App& app, int& code);
void add_verify(CLI::App& app, int& code);
void add_logits(CLI::App& app, int& code);
void add_tokenize(CLI::App& app, int& code);
void add_perplexity(CLI::App& app, int& code);
void add_replay(CLI::App& app, int& code);
void add_trace(CLI::App& app, int& code);
void add_floor(CLI::App& app, int& code);
void add_doctor(CLI::App& app, int& code);
void add_estimate(CLI::App& app, int& code);

}  // namespace millrace::tools
