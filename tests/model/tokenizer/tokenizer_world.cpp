#include "tests/model/tokenizer/tokenizer_world.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "model/tokenizer/byte_alphabet.h"
#include "runtime/base/json.h"

namespace millrace::testing {

namespace {

Json read_json(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  std::ostringstream text;
  text << file.rdbuf();
  Result<Json> parsed = Json::parse(text.str());
  REQUIRE(parsed.has_value());
  return std::move(parsed).value();
}

std::vector<TokenId> ids_of(const Json* value) {
  std::vector<TokenId> ids;
  if (value == nullptr) return ids;
  for (const Json& element : *value->as_array()) {
    std::int64_t id = -1;
    REQUIRE(element.get_integer(id));
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

std::vector<OraclePair> pairs_of(const Json& root) {
  std::vector<OraclePair> pairs;
  for (const Json& pair : *root.find("pairs")->as_array())
    pairs.push_back({*pair.find("text")->as_string(), ids_of(pair.find("ids")),
                     ids_of(pair.find("ids_special")), ids_of(pair.find("transformers_js_ids"))});
  return pairs;
}

CutVocabulary read_cut_vocabulary(const std::string& path) {
  const Json root = read_json(path);
  std::vector<std::string> tokens;
  std::vector<std::int64_t> kinds;
  std::vector<double> scores;
  std::map<TokenId, TokenId> cut_id;  // by the id in the whole vocabulary
  for (const Json& row : *root.find("tokens")->as_array()) {
    const Json::Array& fields = *row.as_array();
    std::int64_t id = 0;
    REQUIRE(fields[0].get_integer(id));
    cut_id[static_cast<TokenId>(id)] = static_cast<TokenId>(tokens.size());
    tokens.push_back(*fields[1].as_string());
    REQUIRE(fields[2].get_integer(kinds.emplace_back()));
    if (fields.size() > 3) REQUIRE(fields[3].get_number(scores.emplace_back()));
  }
  CheckpointBuilder builder;
  builder.set("tokens", tokens).set("token_type", kinds);
  if (!scores.empty()) builder.set("scores", scores);
  std::vector<std::string> merges;
  for (const Json& merge : *root.find("merges")->as_array()) merges.push_back(*merge.as_string());
  if (!merges.empty()) builder.set("merges", merges);
  for (const auto& [key, value] : *root.as_object()) {
    std::int64_t id = 0;
    if (const bool* flag = value.as_bool()) builder.set(key, *flag);
    else if (value.get_integer(id))
      builder.set(key, std::int64_t{cut_id.at(static_cast<TokenId>(id))});
    else if (key == "model" || key == "pre") builder.set(key, *value.as_string());
  }
  std::vector<OraclePair> pairs = pairs_of(root);
  for (OraclePair& pair : pairs)
    for (std::vector<TokenId>* ids : {&pair.ids, &pair.ids_special, &pair.other_ids})
      for (TokenId& id : *ids) id = cut_id.contains(id) ? cut_id[id] : no_token;
  return {std::filesystem::path(path).stem().string(), builder.build(), std::move(pairs)};
}

std::string joined(const std::vector<TokenId>& ids) {
  std::string out;
  for (const TokenId id : ids) out += std::to_string(id) + ' ';
  return out;
}

}  // namespace

CheckpointBuilder& CheckpointBuilder::set(std::string_view key, MetaValue value) {
  const std::string full = "tokenizer.ggml." + std::string(key);
  if (!parts_.meta.contains(full)) parts_.keys.push_back(full);
  parts_.meta.insert_or_assign(full, std::move(value));
  return *this;
}

Checkpoint CheckpointBuilder::build() const {
  Checkpoint::Parts parts = parts_;
  parts.files = {"made-by-a-test.gguf"};
  return Checkpoint(std::move(parts));
}

BpeBuilder::BpeBuilder(std::string_view pre) {
  builder_.set("model", std::string("gpt2")).set("pre", std::string(pre));
  for (unsigned byte = 0; byte < 256; ++byte)
    token(alphabet_character(static_cast<std::uint8_t>(byte)));
}

BpeBuilder& BpeBuilder::token(std::string_view text, std::int64_t kind) {
  tokens_.emplace_back(text);
  kinds_.push_back(kind);
  return *this;
}

BpeBuilder& BpeBuilder::merge(std::string_view left, std::string_view right) {
  const std::string text = std::string(left) + std::string(right);
  if (std::find(tokens_.begin(), tokens_.end(), text) == tokens_.end()) token(text);
  return raw_merge(std::string(left) + ' ' + std::string(right));
}

BpeBuilder& BpeBuilder::raw_merge(std::string_view text) {
  merges_.emplace_back(text);
  return *this;
}

BpeBuilder& BpeBuilder::set(std::string_view key, MetaValue value) {
  builder_.set(key, std::move(value));
  return *this;
}

Checkpoint BpeBuilder::build() const {
  CheckpointBuilder builder = builder_;
  builder.set("tokens", tokens_).set("token_type", kinds_).set("merges", merges_);
  return builder.build();
}

Tokenizer BpeBuilder::tokenizer() const { return load(build()); }

SpmBuilder::SpmBuilder() {
  builder_.set("model", std::string("llama"));
  token("<unk>", 0, 2).token("<s>", 0, 3).token("</s>", 0, 3);
  constexpr std::string_view digits = "0123456789ABCDEF";
  for (unsigned byte = 0; byte < 256; ++byte)
    token(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + '>', 0, 6);
}

SpmBuilder& SpmBuilder::token(std::string_view text, double score, std::int64_t kind) {
  tokens_.emplace_back(text);
  scores_.push_back(score);
  kinds_.push_back(kind);
  return *this;
}

SpmBuilder& SpmBuilder::set(std::string_view key, MetaValue value) {
  builder_.set(key, std::move(value));
  return *this;
}

Tokenizer SpmBuilder::tokenizer() const {
  CheckpointBuilder builder = builder_;
  builder.set("tokens", tokens_).set("scores", scores_).set("token_type", kinds_);
  return load(builder.build());
}

Tokenizer load(const Checkpoint& checkpoint) {
  Result<Tokenizer> made = Tokenizer::from_checkpoint(checkpoint);
  if (!made) FAIL(made.error().what);
  return std::move(made).value();
}

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text,
                            EncodeOptions options) {
  Result<std::vector<TokenId>> ids = tokenizer.encode(text, options);
  if (!ids) FAIL(ids.error().what);
  return std::move(ids).value();
}

std::vector<OraclePair> read_pairs(const std::string& path) { return pairs_of(read_json(path)); }

std::vector<CutVocabulary> cut_vocabularies() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(MILLRACE_TOKENIZER_ORACLES))
    if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  std::vector<CutVocabulary> vocabularies;
  for (const std::string& path : paths) vocabularies.push_back(read_cut_vocabulary(path));
  return vocabularies;
}

unsigned count_differences(const Tokenizer& tokenizer, const std::vector<OraclePair>& pairs) {
  unsigned differences = 0;
  const auto compare = [&](const OraclePair& pair, const std::vector<TokenId>& wanted,
                           EncodeOptions options) {
    const std::vector<TokenId> ids = encode(tokenizer, pair.text, options);
    if (ids == wanted || (!pair.other_ids.empty() && ids == pair.other_ids)) return;
    ++differences;
    UNSCOPED_INFO("text: " << pair.text << "\n  wanted " << joined(wanted) << "\n  got    "
                           << joined(ids));
  };
  for (const OraclePair& pair : pairs) {
    compare(pair, pair.ids, {});
    compare(pair, pair.ids_special, {.parse_special = true, .add_bos_eos = true});
  }
  return differences;
}

}  // namespace millrace::testing
