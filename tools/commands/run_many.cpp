#include "tools/commands/run_many.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/evaluate.h"
#include "runtime/report.h"

namespace millrace::tools {

namespace {

Result<std::vector<std::string>> parse_array(const std::string& path, const std::string& text) {
  auto parsed = Json::parse(text);
  if (!parsed)
    return Error{ErrorCode::usage, fmt::format("--prompts {}: begins with [, but is no JSON array: "
                                               "{}",
                                               path, parsed.error().what)};
  std::vector<std::string> prompts;
  for (const Json& item : *parsed->as_array()) {
    const std::string* prompt = item.as_string();
    if (prompt == nullptr || prompt->empty())
      return Error{ErrorCode::usage, fmt::format("--prompts {}: element {} of the array is not a "
                                                 "text, or is empty",
                                                 path, prompts.size() + 1)};
    prompts.push_back(*prompt);
  }
  return prompts;
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") != std::string_view::npos) lines.emplace_back(line);
  }
  return lines;
}

}  // namespace

Result<std::vector<std::string>> read_prompts(const std::string& path) {
  MILLRACE_ASSIGN(std::string text, read_text_file(path));
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";  // as some editors write it
  if (text.starts_with(byte_order_mark)) text.erase(0, byte_order_mark.size());
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  std::vector<std::string> prompts;
  if (first != std::string::npos && text[first] == '[') {
    MILLRACE_ASSIGN(prompts, parse_array(path, text));
  } else {
    prompts = split_lines(text);
  }
  if (prompts.empty())
    return Error{ErrorCode::usage, fmt::format("--prompts {}: there is no prompt in it", path)};
  return prompts;
}

// Before the trunk is read: what is wrong with a prompt is told at once.
Status ManyRun::make_prompts(const ManyFlags& flags, const Engine& engine,
                             const Checkpoint& checkpoint, ResultOutput& out) {
  MILLRACE_TRY(engine.require_tokenizer());
  const std::string file = flags.prompts_file.empty()
                               ? std::string()
                               : fmt::format("--prompts {}: ", flags.prompts_file);
  for (const std::string& text : flags.prompts) {
    Sequence& made = sequences_.emplace_back(text);
    GenerateOptions& options = options_.emplace_back(flags.generate);
    const auto number = static_cast<std::int64_t>(sequences_.size());
    if (flags.seed >= 0)
      options.sampling.seed = static_cast<std::uint32_t>(flags.seed + number - 1);
    if (flags.chat) {
      MILLRACE_ASSIGN(made.chat, chat_prompt(engine.tokenizer(), checkpoint, text));
      options.prompt = made.chat->ids;
      made.answer.emplace(*made.chat, out, false, true);
      options.control = &made.control;
    } else {
      MILLRACE_ASSIGN(options.prompt, encode_prompt(engine, text));
    }
    const Status good = check_prompt(engine, options.prompt);
    if (!good)
      return Error{good.error().code,
                   fmt::format("{}prompt {}: {}", file, number, good.error().what)};
  }
  return {};
}

Status ManyRun::generate(const ManyFlags& flags, ResultOutput& out) {
  const auto last_seed = flags.seed + static_cast<std::int64_t>(flags.prompts.size()) - 1;
  if (flags.seed >= 0 && last_seed >= std::int64_t{random_seed})
    return Error{ErrorCode::usage,
                 fmt::format("--seed {}: the last of {} sequences would have {}, more than {}",
                             flags.seed, flags.prompts.size(), last_seed, random_seed - 1)};
  MILLRACE_TRY(check_options(flags.generate));
  const auto prompts = [&](const Engine& engine, const Checkpoint& checkpoint) {
    return make_prompts(flags, engine, checkpoint, out);
  };
  const ModelCheck check(prompts);
  MILLRACE_ASSIGN(running_,
                  start_engine(flags.engine, {}, {{"--prompts", flags.prompts_file}}, &check));
  const double wanted =
      static_cast<double>(options_.size()) * static_cast<double>(flags.generate.tokens_max);
  double pieces = 0;
  auto made =
      generate_many(*running_->engine, options_, [&](std::size_t i, std::string_view piece) {
        if (sequences_[i].answer) sequences_[i].answer->text(piece);
        running_->progress.show("generating", std::min(1.0, ++pieces / wanted), "");
      });
  running_->progress.clear();
  MILLRACE_ASSIGN(result_, std::move(made));
  for (Sequence& sequence : sequences_)
    if (sequence.answer) sequence.answer->finish();
  return {};
}

std::string ManyRun::json() const {
  Json report = report_json(*running_->engine, *result_);
  Json list = Json::array();
  const Json::Array& sequences = *report.find("sequences")->as_array();
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    Json one = sequences[i];
    one.set("prompt_text", sequences_[i].prompt);
    if (sequences_[i].answer) sequences_[i].answer->add_to(one);
    list.push(std::move(one));
  }
  return report.set("sequences", std::move(list)).dump(2) + "\n";
}

std::string ManyRun::table() const { return report_table(*running_->engine, *result_); }

std::string ManyRun::texts() const {
  std::string all;
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    const GenerateResult& result = result_->sequences[i];
    all += fmt::format("--- {} of {}, seed {}\n", i + 1, sequences_.size(), result.seed);
    if (sequences_[i].answer) {
      Json answer = Json::object();
      sequences_[i].answer->add_to(answer);
      all += *answer.find("text")->as_string() + "\n";
    } else {
      all += sequences_[i].prompt + result.text + "\n";
    }
  }
  return all;
}

}  // namespace millrace::tools
