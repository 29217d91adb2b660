#include "model/model_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "model/arch/registry.h"
#include "model/layer_tensors.h"
#include "model/optional_tensors.h"
#include "model/tensor_finder.h"
#include "runtime/base/counted.h"
#include "runtime/base/log.h"

namespace millrace {

std::uint64_t ModelSpec::expert_bytes() const noexcept {
  std::uint64_t largest = 0;
  for (LayerIndex layer = 0; layer < experts.layers(); ++layer)
    for (ExpertIndex expert = 0; expert < experts.experts(layer); ++expert)
      largest = std::max(largest, experts.at({layer, expert}).bytes());
  return largest;
}

std::uint64_t ModelSpec::trunk_bytes() const noexcept {
  std::uint64_t sum = embedding.bytes() + output_norm.bytes() + (tied_head ? 0 : head.bytes());
  if (rope_factors) sum += rope_factors->bytes();
  if (output_streams)
    sum += output_streams->weights.bytes() + output_streams->base.bytes() +
           output_streams->scale.bytes();
  for (const LayerSpec& layer : layers) {
    for (const auto& matrix : layer.matrices) sum += matrix ? matrix->bytes() : 0;
    for (const auto& vector : layer.vectors) sum += vector ? vector->bytes() : 0;
    sum += layer.hash_table ? layer.hash_table->bytes() : 0;
  }
  return sum;
}

namespace {

// Reads the tensors around the layers, then those of each layer.
class SpecBuilder {
 public:
  SpecBuilder(const Checkpoint& checkpoint, ModelSpec& spec)
      : finder_(checkpoint), spec_(spec), h_(spec.hparams), family_(*spec.family) {}

  Status build() {
    MILLRACE_TRY(globals());
    std::vector<std::vector<ExpertExtent>> experts(h_.layers);
    spec_.layers.resize(h_.layers);
    for (LayerIndex layer = 0; layer < h_.layers; ++layer) {
      LayerTensors tensors(finder_, optional_, h_, family_, layer, spec_.layers[layer]);
      MILLRACE_TRY(tensors.attention());
      MILLRACE_TRY(tensors.feed_forward(experts[layer]));
      MILLRACE_TRY(tensors.streams());
    }
    MILLRACE_TRY(optional_.check(finder_));
    spec_.missing_factors = optional_.notes();
    spec_.experts = ExpertExtents(std::move(experts));
    MILLRACE_ASSIGN(spec_.unused, finder_.unused(h_.layers, h_.layers + h_.nextn_layers));
    return {};
  }

 private:
  Status globals() {
    const TensorInfo* embedding = finder_.find("token_embd.weight");
    // The table may have padding rows behind the last token.
    const std::uint64_t rows = embedding == nullptr ? h_.vocabulary : embedding->ne[1];
    if (rows < h_.vocabulary)
      return finder_.bad("token_embd.weight",
                         fmt::format("{} rows for a vocabulary of {} tokens", rows, h_.vocabulary));
    MILLRACE_ASSIGN(auto table, finder_.matrix("token_embd.weight", h_.width, rows, true));
    spec_.embedding = *table;
    const TensorInfo* head = finder_.find("output.weight");
    if (head == nullptr && family_.untied)
      return finder_.bad("output.weight",
                         fmt::format("missing: {} has a head of its own, the embedding cannot "
                                     "serve in its place",
                                     family_.architecture));
    spec_.tied_head = head == nullptr;
    spec_.head = spec_.embedding;
    if (head != nullptr) {
      if (head->ne[1] < h_.vocabulary)
        return finder_.bad("output.weight", fmt::format("{} rows for a vocabulary of {} tokens",
                                                        head->ne[1], h_.vocabulary));
      MILLRACE_ASSIGN(auto output, finder_.matrix("output.weight", h_.width, head->ne[1], true));
      spec_.head = *output;
    }
    spec_.head.rows = h_.vocabulary;
    for (const MatrixExtent* each : {&spec_.embedding, &spec_.head})
      if (is_scaled(each->type))
        return finder_.bad(
            each == &spec_.head && !spec_.tied_head ? "output.weight" : "token_embd.weight",
            fmt::format("type {} is not supported for it", dtype_info(each->type).name),
            ErrorCode::unsupported);
    MILLRACE_ASSIGN(auto norm, finder_.vector("output_norm.weight", h_.width, true));
    spec_.output_norm = *norm;
    MILLRACE_ASSIGN(spec_.rope_factors, finder_.vector("rope_freqs.weight", h_.rotary / 2, false));
    return h_.streams.count > 1 ? output_streams() : Status{};
  }

  Status output_streams() {
    const std::uint64_t count = h_.streams.count;
    const auto name = [&](const char* part) {
      return finder_.first_present(
          {fmt::format("output_hc_{}.weight", part), fmt::format("hc_head_{}.weight", part)});
    };
    MILLRACE_ASSIGN(auto weights, finder_.vectors(name("fn"), count * h_.width, count, true));
    MILLRACE_ASSIGN(auto base, finder_.vector(name("base"), count, true));
    MILLRACE_ASSIGN(auto scale, finder_.vector(name("scale"), 1, true));
    spec_.output_streams = OutputStreams{*weights, *base, *scale};
    return {};
  }

  TensorFinder finder_;
  OptionalTensors optional_;
  ModelSpec& spec_;
  const Hparams& h_;
  const FamilySpec& family_;
};

// "3 tensors for seeing images take no part".
std::string left_out(std::uint64_t count, std::string_view what, std::string_view why = {}) {
  return counted(count, what, why) + (count == 1 ? " takes no part" : " take no part");
}

}  // namespace

std::vector<std::string> ModelSpec::notes() const {
  std::vector<std::string> notes;
  if (!verified())
    notes.push_back(
        fmt::format("architecture {} is unverified: its logits were never compared with another "
                    "engine's",
                    family->architecture));
  if (hparams.nextn_layers > 0 || unused.prediction > 0)
    notes.push_back(
        left_out(unused.prediction, "tensor",
                 "for predicting further tokens" +
                     (hparams.nextn_layers == 0
                          ? std::string()
                          : " (" + counted(hparams.nextn_layers, "layer", "at the end") + ")")));
  if (tied_head) notes.emplace_back("there is no output.weight: the embedding is the head (tied)");
  notes.insert(notes.end(), missing_factors.begin(), missing_factors.end());
  if (unused.vision > 0) notes.push_back(left_out(unused.vision, "tensor", "for seeing images"));
  if (unused.others > 0)
    notes.push_back(left_out(unused.others, "unknown tensor") + ": " + unused.other_names);
  if (const auto& keys = hparams.unknown_keys; !keys.empty()) {
    constexpr std::size_t told_max = 4;
    std::string told;
    for (std::size_t i = 0; i < std::min(keys.size(), told_max); ++i)
      told += fmt::format("{}{}.{}", i == 0 ? "" : ", ", family->architecture, printable(keys[i]));
    notes.push_back(fmt::format("{} unknown keys change nothing (misspelt?): {}{}", keys.size(),
                                told, keys.size() > told_max ? ", …" : ""));
  }
  return notes;
}

Result<ModelSpec> read_model_spec(const Checkpoint& checkpoint) {
  ModelSpec spec;
  MILLRACE_ASSIGN(spec.family, find_family(checkpoint.architecture(), checkpoint.display_path()));
  MILLRACE_ASSIGN(spec.hparams, read_hparams(checkpoint, *spec.family));
  spec.files = checkpoint.files();
  MILLRACE_TRY(SpecBuilder(checkpoint, spec).build());
  const bool doubtful = !spec.verified() || spec.unused.others > 0 ||
                        !spec.hparams.unknown_keys.empty() || !spec.missing_factors.empty();
  for (const std::string& note : spec.notes())
    log_line(doubtful ? LogLevel::warning : LogLevel::info,
             checkpoint.display_path() + ": " + note);
  return spec;
}

}  // namespace millrace
