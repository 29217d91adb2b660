#include "runtime/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "model/chat/chat_template.h"
#include "model/format/open.h"
#include "model/model_spec.h"
#include "model/tokenizer/tokenizer.h"
#include "runtime/base/counted.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"

namespace millrace {

namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// "blk.3.ffn_down.17.weight": files of before April 2024 have a tensor per expert.
bool is_single_expert(std::string_view name) {
  const std::size_t ffn = name.find(".ffn_");
  if (ffn == std::string_view::npos || !name.ends_with(".weight")) return false;
  name.remove_suffix(std::string_view(".weight").size());
  const std::size_t dot = name.rfind('.');
  return dot > ffn && name.find_first_not_of("0123456789", dot + 1) == std::string_view::npos;
}

const char* role_of(std::string_view name) {
  if (name.starts_with("token_embd.")) return "embedding";
  if (name == "output.weight") return "head";
  if (contains(name, "_exps.weight") || is_single_expert(name)) return "experts";
  if (contains(name, "_norm.")) return "norms";
  if (name.ends_with(".bias")) return "biases";
  if (contains(name, "_shexp.")) return "shared expert";
  if (contains(name, "ffn_gate_inp") || contains(name, "tid2eid")) return "router";
  if (contains(name, ".attn_") || contains(name, "indexer")) return "attention";
  if (contains(name, ".ssm_")) return "recurrence";
  if (contains(name, ".ffn_")) return "dense FFN";
  return "other";
}

// Collects the parts of an inspection, one step after the other.
class Inspector {
 public:
  explicit Inspector(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  ModelInspection run() {
    made_.architecture = printable(checkpoint_.architecture());
    made_.metadata_bytes = checkpoint_.metadata_bytes();
    files();
    keys();
    tensors();
    experts();
    can_it_run();
    tokenizer();
    return std::move(made_);
  }

 private:
  void files() {
    for (const std::string& path : checkpoint_.files()) {
      std::error_code ignored;
      const std::uintmax_t bytes = std::filesystem::file_size(path, ignored);
      made_.files.push_back({printable(path, 4096), ignored ? 0 : bytes});
    }
  }

  void problem(const std::string& what) { made_.problems.push_back(printable(what, 1000)); }

  void keys() {
    if (const Status read = read_keys(); !read) problem(read.error().what);
  }
  Status read_keys() {
    std::string name;
    MILLRACE_TRY(checkpoint_.has_string("general.name", name));
    made_.name = printable(name);
    MILLRACE_TRY(number("block_count", made_.layers));
    MILLRACE_TRY(number("embedding_length", made_.width));
    MILLRACE_TRY(number("context_length", made_.context));
    return number("expert_used_count", made_.experts_used);
  }
  Status number(const char* key, std::uint64_t& out) {
    std::uint32_t value = 0;
    MILLRACE_TRY(checkpoint_.has_u32(checkpoint_.architecture() + "." + key, value));
    out = value;
    return {};
  }

  void tensors() {
    std::map<std::pair<std::string, std::string>, ModelInspection::TypeUse> uses;
    for (const TensorInfo& tensor : checkpoint_.tensors()) {
      const std::string role = role_of(tensor.name);
      const std::string type = dtype_info(tensor.type).name;
      made_.tensors.push_back({.name = printable(tensor.name),
                               .type = type,
                               .role = role,
                               .ne = tensor.ne,
                               .dims = tensor.dims,
                               .file = tensor.file,
                               .offset_bytes = tensor.offset_bytes,
                               .bytes = tensor.bytes});
      made_.parameters += tensor.ne[0] * tensor.rows();
      made_.tensor_bytes += tensor.bytes;
      ModelInspection::TypeUse& use = uses[{role, type}];
      use.role = role;
      use.type = type;
      ++use.tensors;
      use.bytes += tensor.bytes;
    }
    for (auto& [key, use] : uses) made_.types.push_back(std::move(use));
    std::stable_sort(made_.types.begin(), made_.types.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  }

  // By names, so that it works for families that cannot be run.
  void experts() {
    struct Layer {
      std::uint64_t stacked_bytes = 0, single_bytes = 0, experts = 0, singles = 0;
    };
    std::map<std::string, Layer> layers;  // by the name up to ".ffn_"
    std::uint64_t places = 0;
    for (const TensorInfo& tensor : checkpoint_.tensors()) {
      if (std::string_view(role_of(tensor.name)) != "experts") continue;
      Layer& layer = layers[tensor.name.substr(0, tensor.name.find(".ffn_"))];
      const bool single = is_single_expert(tensor.name);
      const std::uint64_t count = single ? 1 : tensor.ne[2];
      places |= tensor.offset_bytes | (tensor.bytes / count);
      made_.pool_bytes += tensor.bytes;
      if (single) {
        layer.single_bytes += tensor.bytes;
        if (contains(tensor.name, ".ffn_down.")) ++layer.singles;
      } else {
        layer.stacked_bytes += tensor.bytes / count;
        layer.experts = std::max(layer.experts, count);
      }
    }
    made_.expert_layers = layers.size();
    if (places != 0) made_.expert_alignment = std::uint64_t{1} << std::countr_zero(places);
    for (const auto& [name, layer] : layers) {
      const std::uint64_t count = std::max(layer.experts, layer.singles);
      const std::uint64_t bytes =
          layer.stacked_bytes + (layer.singles > 0 ? layer.single_bytes / layer.singles : 0);
      made_.experts = std::max(made_.experts, count);
      made_.expert_bytes_max = std::max(made_.expert_bytes_max, bytes);
      made_.expert_bytes_min =
          made_.expert_bytes_min == 0 ? bytes : std::min(made_.expert_bytes_min, bytes);
    }
  }

  void can_it_run() {
    const auto spec = read_model_spec(checkpoint_);
    made_.runnable = spec.has_value();
    if (!spec) return problem(spec.error().what);
    for (const std::string& note : spec->notes()) problem(note);
  }

  void tokenizer() {
    std::string source;
    if (const auto has = checkpoint_.has_string("tokenizer.chat_template", source); has && *has)
      made_.template_bytes = source.size();
    static_cast<void>(checkpoint_.has_string("tokenizer.ggml.model", made_.tokenizer));
    static_cast<void>(checkpoint_.has_string("tokenizer.ggml.pre", made_.pretokenizer));
    made_.tokenizer = printable(made_.tokenizer);
    made_.pretokenizer = printable(made_.pretokenizer);
    const auto* texts = checkpoint_.string_array("tokenizer.ggml.tokens");
    made_.tokens = texts == nullptr ? 0 : texts->size();
    made_.template_state = made_.template_bytes > 0 ? "in the file" : "none";
    const auto loaded = Tokenizer::from_checkpoint(checkpoint_);
    if (!loaded) return problem(loaded.error().what);
    const auto chat = ChatTemplate::from_checkpoint(checkpoint_);
    if (chat && made_.template_bytes == 0) made_.template_state = "built in for this family";
    if (!chat) problem(chat.error().what);
  }

  const Checkpoint& checkpoint_;
  ModelInspection made_;
};

// The warnings of readers stand among the problems: they are not to be said twice.
class QuietLog {
 public:
  QuietLog() : before_(log_level()) { set_log_level(LogLevel::error); }
  ~QuietLog() { set_log_level(before_); }
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;

 private:
  LogLevel before_;
};

std::string shape_text(const ModelInspection::Tensor& tensor) {
  std::string text;
  for (std::uint32_t i = 0; i < tensor.dims; ++i)
    text += fmt::format("{}{}", i == 0 ? "" : " x ", tensor.ne[i]);
  return text;
}

std::string expert_text(const ModelInspection& m) {
  if (m.expert_layers == 0) return "none: a dense model";
  const std::string size =
      m.expert_bytes_min == m.expert_bytes_max
          ? format_bytes(m.expert_bytes_max)
          : format_bytes(m.expert_bytes_min) + " to " + format_bytes(m.expert_bytes_max);
  return fmt::format("{} of {} in each of {}, {} each, aligned to {}; pool {}, trunk {}",
                     m.experts_used, m.experts, counted(m.expert_layers, "layer"), size,
                     counted(m.expert_alignment, "byte"), format_bytes(m.pool_bytes),
                     format_bytes(m.tensor_bytes - m.pool_bytes));
}

}  // namespace

Result<ModelInspection> inspect_model(const std::string& path) {
  const QuietLog quiet;
  MILLRACE_ASSIGN(const Checkpoint checkpoint, open_checkpoint(path));
  return Inspector(checkpoint).run();
}

std::string inspection_text(const ModelInspection& m, bool with_tensors) {
  std::string out;
  const auto row = [&](std::string_view what, const std::string& value) {
    out += fmt::format("{:<13}{}\n", what, value);
  };
  for (const auto& file : m.files)
    row("file", fmt::format("{} ({})", file.path, format_bytes(file.bytes)));
  row("model", m.name.empty() ? "(no name)" : m.name);
  row("architecture", m.architecture.empty() ? "(none named)" : m.architecture);
  row("size",
      fmt::format("{:.2f} billion parameters in {}, {}; header {}",
                  static_cast<double>(m.parameters) * 1e-9, counted(m.tensors.size(), "tensor"),
                  format_bytes(m.tensor_bytes), format_bytes(m.metadata_bytes)));
  row("layers", fmt::format("{}, width {}, trained context {}", m.layers, m.width, m.context));
  row("experts", expert_text(m));
  row("tokenizer", m.tokenizer.empty()
                       ? "none"
                       : fmt::format("{}{}{}, {}", m.tokenizer, m.pretokenizer.empty() ? "" : " / ",
                                     m.pretokenizer, counted(m.tokens, "token")));
  row("template", m.template_bytes == 0
                      ? m.template_state
                      : fmt::format("{}, {}", m.template_state, format_bytes(m.template_bytes)));
  for (const auto& use : m.types)
    row("types", fmt::format("{:<14} {:<8} {:>5} tensor{}  {}", use.role, use.type, use.tensors,
                             use.tensors == 1 ? " " : "s", format_bytes(use.bytes)));
  row("runs here", m.runnable ? "yes" : "no");
  for (const std::string& problem : m.problems) row("note", problem);
  if (!with_tensors) return out;
  for (const auto& tensor : m.tensors)
    out += fmt::format("{:<44} {:<8} {:<24} {} bytes at {}{}\n", tensor.name, tensor.type,
                       shape_text(tensor), tensor.bytes, tensor.offset_bytes,
                       m.files.size() > 1 ? fmt::format(" of file {}", tensor.file) : "");
  return out;
}

Json inspection_json(const ModelInspection& m, bool with_tensors) {
  Json files = Json::array();
  for (const auto& file : m.files)
    files.push(Json::object().set("path", file.path).set("bytes", file.bytes));
  Json types = Json::array();
  for (const auto& use : m.types)
    types.push(Json::object()
                   .set("role", use.role)
                   .set("type", use.type)
                   .set("tensors", use.tensors)
                   .set("bytes", use.bytes));
  Json problems = Json::array();
  for (const std::string& problem : m.problems) problems.push(problem);
  Json experts = Json::object();
  experts.set("layers", m.expert_layers).set("count", m.experts).set("used", m.experts_used);
  experts.set("bytes_min", m.expert_bytes_min).set("bytes_max", m.expert_bytes_max);
  experts.set("alignment", m.expert_alignment).set("pool_bytes", m.pool_bytes);
  Json object = Json::object();
  object.set("files", std::move(files)).set("architecture", m.architecture).set("name", m.name);
  object.set("layers", m.layers).set("width", m.width).set("context", m.context);
  object.set("parameters", m.parameters)
      .set("tensors", static_cast<std::uint64_t>(m.tensors.size()));
  object.set("tensor_bytes", m.tensor_bytes).set("metadata_bytes", m.metadata_bytes);
  object.set("experts", std::move(experts));
  object.set(
      "tokenizer",
      Json::object().set("model", m.tokenizer).set("pre", m.pretokenizer).set("tokens", m.tokens));
  object.set("template",
             Json::object().set("state", m.template_state).set("bytes", m.template_bytes));
  object.set("types", std::move(types)).set("runnable", m.runnable);
  object.set("problems", std::move(problems));
  if (!with_tensors) return object;
  Json list = Json::array();
  for (const auto& tensor : m.tensors) {
    Json shape = Json::array();
    for (std::uint32_t i = 0; i < tensor.dims; ++i) shape.push(tensor.ne[i]);
    list.push(Json::object()
                  .set("name", tensor.name)
                  .set("type", tensor.type)
                  .set("role", tensor.role)
                  .set("shape", std::move(shape))
                  .set("file", tensor.file)
                  .set("offset_bytes", tensor.offset_bytes)
                  .set("bytes", tensor.bytes));
  }
  object.set("tensor_list", std::move(list));
  return object;
}

}  // namespace millrace
