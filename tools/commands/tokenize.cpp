// millrace tokenize: text to token ids and back.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "model/format/open.h"
#include "model/tokenizer/tokenizer.h"
#include "runtime/base/json.h"
#include "runtime/base/log.h"
#include "runtime/embedded_model.h"
#include "runtime/evaluate.h"
#include "tools/command.h"

namespace millrace::tools {

namespace {

struct TokenizeFlags {
  std::string model, text, file, decode_path;
  bool has_text = false, parse_special = false, json = false;
};

std::string ids_text(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool json) {
  if (json) {
    Json list = Json::array();
    for (const TokenId id : ids) list.push(id);
    Json object = Json::object();
    object.set("ids", std::move(list));
    object.set("count", static_cast<std::uint64_t>(ids.size()));
    return object.dump() + "\n";
  }
  std::string lines;
  for (const TokenId id : ids)
    lines += fmt::format("{:>8}  '{}'\n", id, printable(tokenizer.token_bytes(id, true)));
  return lines;
}

Result<std::string> decoded_text(const Tokenizer& tokenizer, const TokenizeFlags& flags) {
  MILLRACE_ASSIGN(const auto ids, read_ids_file(flags.decode_path));
  for (const TokenId id : ids)
    if (!tokenizer.contains(id))
      return Error{ErrorCode::usage, fmt::format("{}: token id {} is outside the vocabulary of {}",
                                                 flags.decode_path, id, tokenizer.token_count())};
  const std::string text = tokenizer.decode(ids, flags.parse_special);
  return flags.json ? Json::object().set("text", text).dump() + "\n" : text;
}

Status run(const TokenizeFlags& flags) {
  std::string path = flags.model;
  if (path.empty()) {
    MILLRACE_ASSIGN(path, embedded_model_path());
  }
  const int inputs =
      (flags.has_text ? 1 : 0) + (flags.file.empty() ? 0 : 1) + (flags.decode_path.empty() ? 0 : 1);
  if (inputs != 1) return Error{ErrorCode::usage, "give one of --text, --file and --decode"};
  MILLRACE_ASSIGN(const Checkpoint checkpoint, open_checkpoint(path));
  MILLRACE_ASSIGN(const Tokenizer tokenizer, Tokenizer::from_checkpoint(checkpoint));
  ResultOutput out;
  if (!flags.decode_path.empty()) {
    MILLRACE_ASSIGN(const std::string decoded, decoded_text(tokenizer, flags));
    out.write(decoded);
    return out.status();
  }
  std::string text = flags.text;
  if (!flags.file.empty()) {
    MILLRACE_ASSIGN(text, read_text_file(flags.file));
  }
  MILLRACE_ASSIGN(const auto ids, tokenizer.encode(text, {.parse_special = flags.parse_special,
                                                          .add_bos_eos = flags.parse_special}));
  out.write(ids_text(tokenizer, ids, flags.json));
  return out.status();
}

}  // namespace

void add_tokenize(CLI::App& app, int& code) {
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* command = app.add_subcommand("tokenize", "text to token ids, and back");
  command
      ->add_option("MODEL,-m,--model", flags->model,
                   "GGUF file or safetensors folder; default: the embedded model")
      ->check(not_empty());
  CLI::Option* text = command->add_option("--text", flags->text, "text to encode");
  command->add_option("--file", flags->file, "file to encode (- is stdin)")->check(not_empty());
  command->add_option("--decode", flags->decode_path, "JSON file with ids to decode")
      ->check(not_empty());
  command->add_flag(
      "--parse-special", flags->parse_special,
      "take texts of control tokens as such, add BOS/EOS as the model asks (decoding: show them)");
  command->add_flag("--json", flags->json, "one JSON object on stdout");
  command->callback([flags, text, &code] {
    flags->has_text = text->count() > 0;
    const auto done = run(*flags);
    code = done ? 0 : report_error(done.error());
  });
}

}  // namespace millrace::tools
