#include "model/format/safetensors/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/limits.h"
#include "runtime/base/log.h"

namespace millrace {

namespace {

// As tokenizer.ggml.token_type has them.
enum Kind : std::int64_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

using Ids = std::unordered_map<std::string_view, std::uint32_t>;

// The tokens by id; ids that nothing has are unused and have no text.
class TokenTable {
 public:
  explicit TokenTable(const ConfigReader& tokenizer) : tokenizer_(tokenizer) {}

  // Texts are borrowed from the tree. `again`: the id may have this text already.
  Status add(std::string_view text, const Json& id_value, Kind kind, bool again) {
    std::int64_t id = 0;
    if (!id_value.get_integer(id) || id < 0 || id >= limits::vocabulary_max)
      return tokenizer_.bad("vocab", fmt::format("token {}: its id is no number from 0 to {}",
                                                 printable(text), limits::vocabulary_max - 1));
    const auto index = static_cast<std::size_t>(id);
    if (index >= texts.size()) {
      texts.resize(index + 1);
      kinds.resize(index + 1, unused);
    }
    if (kinds[index] != unused && (!again || texts[index] != text))
      return tokenizer_.bad("vocab", fmt::format("id {} is token {} and token {}", id,
                                                 printable(texts[index]), printable(text)));
    texts[index] = text;
    kinds[index] = kind;
    ids.emplace(text, static_cast<std::uint32_t>(index));
    return {};
  }

  std::vector<std::string> texts;
  std::vector<std::int64_t> kinds;
  Ids ids;

 private:
  const ConfigReader& tokenizer_;
};

bool is_byte_token(std::string_view text) {
  return text.size() == 6 && text.starts_with("<0x") && text.back() == '>';
}

// The parts of a merge, from "left right" or [left, right].
bool merge_parts(const Json& item, std::string_view& left, std::string_view& right) {
  if (const std::string* text = item.as_string()) {
    const std::size_t space = text->find(' ', 1);
    if (text->empty() || space == std::string::npos || space + 1 == text->size()) return false;
    left = std::string_view(*text).substr(0, space);
    right = std::string_view(*text).substr(space + 1);
    return true;
  }
  const Json::Array* pair = item.as_array();
  if (pair == nullptr || pair->size() != 2 || (*pair)[0].as_string() == nullptr ||
      (*pair)[1].as_string() == nullptr)
    return false;
  left = *(*pair)[0].as_string();
  right = *(*pair)[1].as_string();
  return !left.empty() && !right.empty() && left.find(' ', 1) == std::string_view::npos;
}

Status read_vocab(const ConfigReader& model, TokenTable& table) {
  const Json* vocab = model.find("vocab");
  if (vocab == nullptr || vocab->as_object() == nullptr)
    return model.bad("vocab", "missing or no object");
  MILLRACE_ASSIGN(const bool fallback, model.flag("byte_fallback", false));
  MILLRACE_ASSIGN(const std::string unknown_text, model.text("unk_token"));
  for (const auto& [text, id] : *vocab->as_object()) {
    const bool is_unknown = !unknown_text.empty() && text == unknown_text;
    const Kind kind = is_unknown ? unknown : fallback && is_byte_token(text) ? byte : normal;
    MILLRACE_TRY(table.add(text, id, kind, false));
  }
  return {};
}

// Added tokens stand inside or behind the vocabulary.
Status read_added(const ConfigReader& tokenizer, TokenTable& table) {
  const Json* added = tokenizer.find("added_tokens");
  if (added == nullptr) return {};
  if (added->as_array() == nullptr) return tokenizer.bad("added_tokens", "is no array");
  for (const Json& item : *added->as_array()) {
    const Json* content = item.find("content");
    const Json* id = item.find("id");
    if (content == nullptr || content->as_string() == nullptr || id == nullptr)
      return tokenizer.bad("added_tokens", "an entry without id or content");
    const Json* special = item.find("special");
    const bool hidden = special != nullptr && special->as_bool() != nullptr && *special->as_bool();
    std::int64_t index = -1;
    id->get_integer(index);
    const bool keeps_unknown = index >= 0 && static_cast<std::size_t>(index) < table.kinds.size() &&
                               table.kinds[static_cast<std::size_t>(index)] == unknown;
    MILLRACE_TRY(table.add(*content->as_string(), *id,
                           keeps_unknown ? unknown
                           : hidden      ? control
                                         : user_defined,
                           true));
  }
  return {};
}

// The merges, and with byte fallback each token's score: the earlier its merge, the higher.
Status read_merges(const ConfigReader& model, const TokenTable& table,
                   std::vector<std::string>& merges, std::vector<double>& scores) {
  const Json* list = model.find("merges");
  if (list == nullptr || list->as_array() == nullptr)
    return model.bad("merges", "missing or no array");
  scores.assign(table.texts.size(), -static_cast<double>(list->as_array()->size()) - 1);
  std::string joined;
  std::size_t rank = 0;
  for (const Json& item : *list->as_array()) {
    std::string_view left, right;
    if (!merge_parts(item, left, right))
      return model.bad("merges",
                       fmt::format("merge {} ({}) is not two parts", rank, printable(item.dump())));
    joined.assign(left).append(right);
    for (const std::string_view text : {left, right, std::string_view(joined)})
      if (!table.ids.contains(text))
        return model.bad("merges", fmt::format("merge {} ({} {}): {} is no token", rank,
                                               printable(left), printable(right), printable(text)));
    double& score = scores[table.ids.at(joined)];
    score = std::max(score, -static_cast<double>(rank));
    merges.push_back(fmt::format("{} {}", left, right));
    ++rank;
  }
  return {};
}

// Collects the patterns by which text is cut, in order.
class PatternReader {
 public:
  explicit PatternReader(const ConfigReader& tokenizer) : tokenizer_(tokenizer) {}

  std::vector<std::string> patterns;
  bool byte_level = false;
  bool metaspace = false;

  Status read(const Json& step) {
    const Json* type = step.find("type");
    const std::string name =
        type == nullptr || type->as_string() == nullptr ? "" : *type->as_string();
    if (name == "Sequence") {
      const Json* list = step.find("pretokenizers");
      if (list == nullptr || list->as_array() == nullptr || ++depth_ > 4)
        return bad("a sequence without parts");
      for (const Json& item : *list->as_array()) MILLRACE_TRY(read(item));
      return {};
    }
    if (name == "Split") return split(step);
    if (name == "Digits") {
      patterns.emplace_back(is_true(step, "individual_digits") ? "\\p{N}" : "\\p{N}+");
      return {};
    }
    if (name == "ByteLevel") {
      byte_level = true;
      const Json* regex = step.find("use_regex");
      if (regex == nullptr || is_true(step, "use_regex"))
        patterns.emplace_back(
            "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+");
      if (is_true(step, "add_prefix_space")) return bad("ByteLevel with add_prefix_space");
      return {};
    }
    if (name == "Metaspace") {
      metaspace = true;
      return {};
    }
    return bad(name.empty() ? "a step without type" : "type '" + printable(name) + "'");
  }

 private:
  Error bad(const std::string& what) const {
    return tokenizer_.bad("pre_tokenizer", what + " is not supported", ErrorCode::unsupported);
  }
  static bool is_true(const Json& step, const char* key) {
    const Json* value = step.find(key);
    return value != nullptr && value->as_bool() != nullptr && *value->as_bool();
  }
  Status split(const Json& step) {
    const Json* pattern = step.find("pattern");
    const Json* regex = pattern == nullptr ? nullptr : pattern->find("Regex");
    const Json* behavior = step.find("behavior");
    if (regex == nullptr || regex->as_string() == nullptr)
      return bad("Split by something else than a Regex");
    // Isolated keeps gaps and matches; Removed of what the pattern does not match keeps the
    // matches, and such patterns leave no gaps.
    const std::string how =
        behavior == nullptr || behavior->as_string() == nullptr ? "" : *behavior->as_string();
    if (how != "Isolated" && !(how == "Removed" && is_true(step, "invert")))
      return bad("Split with behavior '" + printable(how) + "'");
    patterns.push_back(*regex->as_string());
    return {};
  }

  const ConfigReader& tokenizer_;
  unsigned depth_ = 0;
};

// What a normalizer does to text: normal form C, or what SPM's style means; else it is refused.
Status read_normalizer(const ConfigReader& tokenizer, const Json& step, bool spm, bool& nfc) {
  const auto bad = [&](const std::string& what) {
    return tokenizer.bad("normalizer", what + " is not supported", ErrorCode::unsupported);
  };
  const Json* type = step.find("type");
  const std::string name =
      type == nullptr || type->as_string() == nullptr ? "" : *type->as_string();
  if (name == "NFC") {
    nfc = true;
    return {};
  }
  if (spm && (name == "Prepend" || name == "Replace")) return {};
  if (name != "Sequence") return bad("type '" + printable(name) + "'");
  const Json* list = step.find("normalizers");
  if (list == nullptr || list->as_array() == nullptr) return bad("a sequence without parts");
  for (const Json& part : *list->as_array()) {
    if (part.find("normalizers") != nullptr) return bad("a sequence within a sequence");
    MILLRACE_TRY(read_normalizer(tokenizer, part, spm, nfc));
  }
  return {};
}

// SPM style: spaces become '▁' and the first word gets one, by the normalizer or by Metaspace.
bool has_space_prefix(const ConfigReader& tokenizer) {
  const Json* normalizer = tokenizer.find("normalizer");
  const Json* pre = tokenizer.find("pre_tokenizer");
  if (normalizer != nullptr && normalizer->dump().find("\"Prepend\"") != std::string::npos)
    return true;
  if (pre == nullptr) return false;
  const Json* scheme = pre->find("prepend_scheme");
  const Json* flag = pre->find("add_prefix_space");
  if (scheme != nullptr && scheme->as_string() != nullptr) return *scheme->as_string() != "never";
  return flag != nullptr && flag->as_bool() != nullptr && *flag->as_bool();
}

}  // namespace

Status write_tokenizer_keys(const ConfigReader& tokenizer, MetadataWriter& metadata) {
  const auto model = tokenizer.below("model");
  if (!model) return tokenizer.bad("model", "missing or no object");
  MILLRACE_ASSIGN(const std::string type, model->text("type"));
  if (type != "BPE")
    return model->bad("type", fmt::format("'{}' is not supported, only BPE", printable(type)),
                      ErrorCode::unsupported);
  TokenTable table(*model);
  MILLRACE_TRY(read_vocab(*model, table));
  MILLRACE_TRY(read_added(tokenizer, table));
  std::vector<std::string> merges;
  std::vector<double> scores;
  MILLRACE_TRY(read_merges(*model, table, merges, scores));
  MILLRACE_ASSIGN(const bool fallback, model->flag("byte_fallback", false));
  PatternReader patterns(tokenizer);
  if (const Json* pre = tokenizer.find("pre_tokenizer")) MILLRACE_TRY(patterns.read(*pre));
  if (fallback == patterns.byte_level)
    return tokenizer.bad("pre_tokenizer",
                         fallback ? "ByteLevel with byte_fallback is not supported"
                                  : "neither ByteLevel nor byte_fallback: not supported",
                         ErrorCode::unsupported);
  if (fallback && !patterns.patterns.empty())
    return tokenizer.bad("pre_tokenizer", "patterns with byte_fallback are not supported",
                         ErrorCode::unsupported);
  if (const Json* normalizer = tokenizer.find("normalizer")) {
    bool nfc = false;
    MILLRACE_TRY(read_normalizer(tokenizer, *normalizer, fallback, nfc));
    metadata.set("tokenizer.ggml.normalizer_nfc", nfc);
  }
  metadata.set("tokenizer.ggml.model", std::string(fallback ? "llama" : "gpt2"));
  if (fallback) {
    metadata.set("tokenizer.ggml.scores", std::move(scores));
    metadata.set("tokenizer.ggml.add_space_prefix", has_space_prefix(tokenizer));
  } else {
    MILLRACE_ASSIGN(const bool whole, model->flag("ignore_merges", false));
    metadata.set("tokenizer.ggml.merges", std::move(merges));
    metadata.set("tokenizer.ggml.pre_patterns", std::move(patterns.patterns));
    metadata.set("tokenizer.ggml.ignore_merges", whole);
  }
  metadata.set("tokenizer.ggml.token_type", std::move(table.kinds));
  metadata.set("tokenizer.ggml.tokens", std::move(table.texts));
  return {};
}

}  // namespace millrace
