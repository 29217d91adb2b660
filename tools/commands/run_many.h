// `run` with several sequences in step: --parallel and --prompts.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/generate_many.h"
#include "tools/chat_output.h"
#include "tools/command.h"

namespace millrace::tools {

// What is asked for.
struct ManyFlags {
  EngineFlags engine;                // with the number of sequences at a time
  GenerateOptions generate;          // of all; but for prompt and seed
  std::vector<std::string> prompts;  // of each sequence
  std::int64_t seed = -1;            // of the first; the next have the next ones. -1: random ones
  std::string prompts_file;          // where they came from, to be held against outputs
  bool chat = false;
};

// Of --prompts: a JSON array of texts if the file begins with [, else a text a line; empty lines
// are left out. `usage` errors name the file; `io` if it cannot be read.
Result<std::vector<std::string>> read_prompts(const std::string& path);

// Makes them; afterwards answers, engine and results are here.
class ManyRun {
 public:
  Status generate(const ManyFlags& flags, ResultOutput& out);
  const ManyResult& result() const { return *result_; }
  std::string json() const;   // the report
  std::string table() const;  // the same for people
  std::string texts() const;  // each under a line with its number and seed

 private:
  // One sequence; stays where it is, since its sink borrows it.
  struct Sequence {
    std::string prompt;
    std::optional<ChatPrompt> chat;
    std::optional<ChatOutput> answer;
    struct OnControl {
      Sequence& owner;
      void operator()(std::string_view mark) const { owner.answer->control(mark); }
    };
    OnControl on_control{*this};
    ControlSink control{on_control};
    explicit Sequence(std::string text) : prompt(std::move(text)) {}
  };
  Status make_prompts(const ManyFlags& flags, const Engine& engine, const Checkpoint& checkpoint,
                      ResultOutput& out);

  std::unique_ptr<RunningEngine> running_;
  std::deque<Sequence> sequences_;
  std::vector<GenerateOptions> options_;
  std::optional<ManyResult> result_;
};

}  // namespace millrace::tools
