// Vocabularies for tests: made by hand, or read from tests/oracles/tokenizers.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "model/format/checkpoint.h"
#include "model/tokenizer/tokenizer.h"
#include "runtime/base/ids.h"

namespace millrace::testing {

inline unsigned below(std::mt19937& random, unsigned limit) {
  return static_cast<unsigned>(random() % limit);
}

// Metadata of a model that has only a tokenizer.
class CheckpointBuilder {
 public:
  CheckpointBuilder& set(std::string_view key, MetaValue value);
  Checkpoint build() const;

 private:
  Checkpoint::Parts parts_;
};

// A byte-level BPE vocabulary: the 256 bytes in the order of their values (id = byte), then
// whatever is added.
class BpeBuilder {
 public:
  explicit BpeBuilder(std::string_view pre = "gpt-2");
  BpeBuilder& token(std::string_view text, std::int64_t kind = 1);
  // Adds "left right" and, if it is new, the token.
  BpeBuilder& merge(std::string_view left, std::string_view right);
  BpeBuilder& raw_merge(std::string_view text);  // as it is, without a token
  BpeBuilder& set(std::string_view key, MetaValue value);
  Checkpoint build() const;
  Tokenizer tokenizer() const;

 private:
  CheckpointBuilder builder_;
  std::vector<std::string> tokens_;
  std::vector<std::int64_t> kinds_;
  std::vector<std::string> merges_;
};

// An SPM vocabulary: <unk>, <s>, </s>, the 256 bytes (id = byte + 3), then whatever is added.
class SpmBuilder {
 public:
  SpmBuilder();
  SpmBuilder& token(std::string_view text, double score, std::int64_t kind = 1);
  SpmBuilder& set(std::string_view key, MetaValue value);
  Tokenizer tokenizer() const;

 private:
  CheckpointBuilder builder_;
  std::vector<std::string> tokens_;
  std::vector<double> scores_;
  std::vector<std::int64_t> kinds_;
};

Tokenizer load(const Checkpoint& checkpoint);  // fails the test on an error
std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text,
                            EncodeOptions options = {});

// A text and its ids by another engine.
struct OraclePair {
  std::string text;
  std::vector<TokenId> ids;
  std::vector<TokenId> ids_special;
  std::vector<TokenId> other_ids;  // accepted as well; empty: none
};
std::vector<OraclePair> read_pairs(const std::string& path);

// A vocabulary that was cut to what its pairs need (trim_vocabulary.py). The pairs have the ids of
// the cut vocabulary.
struct CutVocabulary {
  std::string name;
  Checkpoint checkpoint;
  std::vector<OraclePair> pairs;
};
std::vector<CutVocabulary> cut_vocabularies();

// Compares all pairs and prints each difference; returns how many there were.
unsigned count_differences(const Tokenizer& tokenizer, const std::vector<OraclePair>& pairs);

}  // namespace millrace::testing
