// Families: what is read, and what is refused when one thing of a file is wrong: over the models of
// tests/oracles, and over a checkpoint of each family of the registry that is made from its data.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "model/arch/registry.h"
#include "model/format/open.h"
#include "model/model_spec.h"
#include "model/sequence_state.h"
#include "runtime/base/log.h"
#include "tests/support/family_parts.h"

using namespace millrace;
using millrace::testing::family_parts;
using millrace::testing::may_be_missing;

namespace {

const std::string folder = MILLRACE_SOURCE_ROOT "/tests/oracles/models/";

// Names of models that begin so end in an architecture, and their checkpoints are made.
const std::string made_prefix = "made ";

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const FamilySpec* family : families())
    if (family_parts(*family)) names.push_back(made_prefix + family->architecture);
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (std::filesystem::exists(entry.path() / "model.gguf"))
      names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// What the file says, to be changed before it is read.
Checkpoint::Parts parts_of(const std::string& name) {
  if (name.starts_with(made_prefix)) {
    const auto family = find_family(name.substr(made_prefix.size()), name);
    if (!family) FAIL(family.error().what);
    return *family_parts(**family);
  }
  const auto file = open_checkpoint(folder + name + "/model.gguf");
  if (!file) FAIL(file.error().what);
  Checkpoint::Parts parts;
  parts.files = {"m.gguf"};
  parts.tensors = file->tensors();
  parts.keys = file->keys();
  for (const std::string& key : file->keys()) parts.meta[key] = *file->find_meta(key);
  return parts;
}

using Edit = std::function<void(Checkpoint::Parts&)>;

Result<ModelSpec> read(const std::string& name, const Edit& edit = {}) {
  Checkpoint::Parts parts = parts_of(name);
  if (edit) edit(parts);
  return read_model_spec(Checkpoint(std::move(parts)));
}

Hparams hparams(const std::string& name, const Edit& edit = {}) {
  auto spec = read(name, edit);
  if (!spec) FAIL(spec.error().what);
  return spec->hparams;
}

Edit number(const std::string& key, std::uint64_t value) {
  return [=](Checkpoint::Parts& parts) {
    if (parts.meta.count(key) == 0) parts.keys.push_back(key);
    parts.meta[key] = value;
  };
}

Edit without(const std::string& key) {
  return [=](Checkpoint::Parts& parts) {
    parts.meta.erase(key);
    std::erase(parts.keys, key);
  };
}

void check_refused(const std::string& name, const Edit& edit, ErrorCode code,
                   const std::vector<std::string>& said) {
  const auto spec = read(name, edit);
  if (spec) {
    FAIL_CHECK(name << " accepted; expected: " << said.front());
    return;
  }
  INFO(name << ": " << spec.error().what);
  CHECK(spec.error().code == code);
  for (const std::string& part : said) CHECK_THAT(spec.error().what, Catch::Contains(part));
}

Edit without_tensors(const std::function<bool(const std::string&)>& taken) {
  return [=](Checkpoint::Parts& parts) {
    std::erase_if(parts.tensors, [&](const TensorInfo& tensor) { return taken(tensor.name); });
  };
}

// Tensors are taken out and added: the notes about it would fill the screen.
class QuietLog {
 public:
  QuietLog() : before_(log_level()) { set_log_level(LogLevel::error); }
  ~QuietLog() { set_log_level(before_); }
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;

 private:
  LogLevel before_;
};

const FamilySpec& family_of(const std::string& model) {
  const auto spec = read(model);
  if (!spec) FAIL(model << ": " << spec.error().what);
  return *spec->family;
}

// How the lack of `name` is told: it, or it and the tensor that files of another form have.
std::vector<std::string> refusal(const std::vector<TensorInfo>& tensors, const std::string& name) {
  const std::string block = name.substr(0, name.find('.', 4) + 1);
  const auto has = [&](const char* base) {
    return std::any_of(tensors.begin(), tensors.end(), [&](const TensorInfo& tensor) {
      return tensor.name == block + base + ".weight";
    });
  };
  const auto neither = [&](const char* usual, const char* other) -> std::vector<std::string> {
    return {"tensor " + block + usual + ".weight: missing: neither it nor " + block + other +
            ".weight is there"};
  };
  if (name.ends_with(".attn_k_b.weight") || name.ends_with(".attn_kv_b.weight"))
    return neither("attn_kv_b", "attn_k_b");
  const bool latent = has("attn_kv_b") || has("attn_k_b");
  if (latent && name.ends_with(".attn_q_a.weight")) return neither("attn_q_a", "attn_q");
  if (name.ends_with(".attn_qkv.weight") && !has("attn_gate")) return neither("attn_q", "attn_qkv");
  if (name.ends_with(".ffn_gate_up_exps.weight"))
    return neither("ffn_gate_exps", "ffn_gate_up_exps");
  return {"tensor " + name + ": missing"};
}

}  // namespace

TEST_CASE("families: each of the registry has a file here, or is made from its data") {
  const QuietLog quiet;
  std::vector<std::string> found;
  for (const std::string& model : model_names()) found.emplace_back(family_of(model).architecture);
  for (const FamilySpec* family : families()) {
    INFO(family->architecture);
    CHECK(std::count(found.begin(), found.end(), family->architecture) > 0);
  }
}

TEST_CASE("families: a tensor that is missing is named, whatever the family") {
  const QuietLog quiet;
  for (const std::string& model : model_names()) {
    const FamilySpec& family = family_of(model);
    for (const TensorInfo& tensor : parts_of(model).tensors) {
      const std::string name = tensor.name;
      if (may_be_missing(family, name)) continue;
      const Edit take = without_tensors([&](const std::string& other) { return other == name; });
      check_refused(model, take, ErrorCode::format, refusal(parts_of(model).tensors, name));
    }
  }
}

TEST_CASE("families: what only some files have may be missing as a whole, and nothing less") {
  const QuietLog quiet;
  struct Group {
    const char* model;
    std::vector<std::string> parts;
    VectorRole role;
  };
  for (const Group& group :
       {Group{"made llama", {"attn_q.bias", "attn_k.bias", "attn_v.bias"}, VectorRole::attn_q_bias},
        Group{"made llama", {"attn_output.bias"}, VectorRole::attn_output_bias},
        Group{"made glm4moe", {"attn_q_norm", "attn_k_norm"}, VectorRole::attn_q_norm},
        Group{"deepseek3-mla-q8_0", {"exp_probs_b"}, VectorRole::selection_bias}}) {
    INFO(group.model << " " << group.parts.front());
    const auto in = [&](const std::string& name, const std::string& part) {
      return name.find("." + part) != std::string::npos;
    };
    const auto all = read(group.model, without_tensors([&](const std::string& name) {
                            for (const std::string& part : group.parts)
                              if (in(name, part)) return true;
                            return false;
                          }));
    REQUIRE(all.has_value());
    CHECK_FALSE(all->layers.back().vector(group.role).has_value());
    CHECK(read(group.model)->layers.back().vector(group.role).has_value());
    if (group.parts.size() == 1) continue;
    // One of those that belong together, in all layers.
    for (const std::string& part : group.parts)
      check_refused(group.model,
                    without_tensors([&](const std::string& name) { return in(name, part); }),
                    ErrorCode::format, {"tensor blk.0." + part, "missing, but blk.0."});
  }
}

TEST_CASE("families: files of several forms: what is missing is named in the form of the file") {
  const QuietLog quiet;
  struct Case {
    const char* model;
    std::vector<std::string> taken;
    const char* said;
  };
  for (const Case& c :
       {Case{"made qwen3next",
             {"attn_qkv", "attn_gate"},
             "tensor blk.0.attn_qkv.weight: missing: neither it nor blk.0.ssm_in.weight is there"},
        Case{"made qwen3next", {"attn_qkv"}, "tensor blk.0.attn_qkv.weight: missing"},
        Case{"made qwen3moe",
             {"attn_q", "attn_k", "attn_v"},
             "tensor blk.0.attn_q.weight: missing: neither it nor blk.0.attn_qkv.weight"},
        Case{"made qwen3moe",
             {"ffn_gate_exps", "ffn_up_exps"},
             "tensor blk.0.ffn_gate_exps.weight: missing: neither it nor "
             "blk.0.ffn_gate_up_exps.weight is there"},
        Case{"made qwen3moe",
             {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"},
             "tensor blk.0.ffn_down_exps.weight: missing: neither it nor "
             "blk.0.ffn_down.0.weight"}}) {
    const Edit take = without_tensors([&](const std::string& name) {
      for (const std::string& base : c.taken)
        if (name == "blk.0." + base + ".weight") return true;
      return false;
    });
    check_refused(c.model, take, ErrorCode::format, {c.said});
  }
}

TEST_CASE("families: without output.weight the embedding is the head and told, or it is refused") {
  const QuietLog quiet;
  const Edit no_head = without_tensors([](const auto& name) { return name == "output.weight"; });
  const std::vector<std::string> untied = {"gpt-oss", "glm4moe", "minimax-m2", "deepseek4"};
  for (const std::string& model : model_names()) {
    INFO(model);
    const std::string family = family_of(model).architecture;
    if (std::count(untied.begin(), untied.end(), family) > 0) {
      check_refused(model, no_head, ErrorCode::format,
                    {"m.gguf: tensor output.weight: missing", family});
      continue;
    }
    const auto tied = read(model, no_head);
    REQUIRE(tied.has_value());
    CHECK(tied->tied_head);
    const auto notes = tied->notes();
    CHECK(std::count(notes.begin(), notes.end(),
                     "there is no output.weight: the embedding is the head (tied)") == 1);
  }
}

TEST_CASE("families: a tensor that lies the other way round is refused with its shape") {
  const QuietLog quiet;
  for (const std::string& model : model_names()) {
    for (const TensorInfo& tensor : parts_of(model).tensors) {
      if (tensor.ne[1] == 1 || tensor.ne[0] == tensor.ne[1]) continue;
      // Of tables, a wrong number of rows is told in other words.
      if (tensor.name == "output.weight" || tensor.name == "token_embd.weight") continue;
      const std::string name = tensor.name;
      check_refused(model,
                    [&](Checkpoint::Parts& parts) {
                      for (TensorInfo& other : parts.tensors)
                        if (other.name == name) std::swap(other.ne[0], other.ne[1]);
                    },
                    ErrorCode::format, {"tensor " + name, "has shape"});
    }
  }
}

TEST_CASE("families: wrong head and expert counts are refused by key or tensor") {
  const QuietLog quiet;
  for (const std::string& model : model_names()) {
    const std::string prefix = family_of(model).architecture;
    check_refused(model, number(prefix + ".attention.head_count", 7), ErrorCode::format,
                  {"m.gguf: "});
    const MetaValue heads = parts_of(model).meta[prefix + ".attention.head_count"];
    if (parts_of(model).meta.count(prefix + ".attention.key_length") > 0) {
      const auto twice = [&](Checkpoint::Parts& parts) {
        const std::uint64_t more = 2 * std::get<std::uint64_t>(heads);
        number(prefix + ".attention.head_count", more)(parts);
        const std::string kv = prefix + ".attention.head_count_kv";  // where all have their own
        if (parts.meta[kv] == heads) number(kv, more)(parts);
      };
      check_refused(model, twice, ErrorCode::format, {"m.gguf: tensor blk.", "attn_", "has shape"});
    }
    check_refused(model, number(prefix + ".block_count", 600), ErrorCode::format,
                  {prefix + ".block_count", "600"});
    if (parts_of(model).meta.count(prefix + ".expert_count") == 0) continue;
    check_refused(model, number(prefix + ".expert_used_count", 31), ErrorCode::format,
                  {prefix + ".expert_used_count", "31 exceeds expert_count"});
    check_refused(model, number(prefix + ".expert_count", 5), ErrorCode::format, {"5"});
  }
}

TEST_CASE("families: a shared expert that its key does not count is refused, not left out") {
  for (const char* const model : {"deepseek3-mla-q8_0", "glm4moe-q8_0"}) {
    const std::string key = std::string(family_of(model).architecture) + ".expert_shared_count";
    for (const Edit& edit : {without(key), number(key, 0)})
      check_refused(model, edit, ErrorCode::format, {"ffn_down_shexp.weight", key});
  }
}

TEST_CASE("families: expert groups are held against the experts") {
  const std::string name = "deepseek3-mla-q8_0";  // 8 experts, 2 used
  const auto groups = [](std::uint64_t count, std::uint64_t taken) -> Edit {
    return [=](Checkpoint::Parts& parts) {
      number("deepseek2.expert_group_count", count)(parts);
      number("deepseek2.expert_group_used_count", taken)(parts);
    };
  };
  CHECK(hparams(name).groups == 1);
  CHECK(hparams(name, groups(1, 1)).groups == 1);
  CHECK(hparams(name, groups(0, 0)).groups_used == 1);
  CHECK(hparams(name, groups(4, 2)).groups == 4);
  CHECK(hparams(name, groups(4, 2)).groups_used == 2);
  CHECK_FALSE(hparams(name, groups(4, 2)).group_by_best);
  check_refused(name, groups(3, 2), ErrorCode::format,
                {"deepseek2.expert_group_count", "3 groups of 8 experts"});
  check_refused(name, groups(4, 5), ErrorCode::format,
                {"deepseek2.expert_group_used_count", "5 is outside 1 to 4"});
  check_refused(name, groups(8, 1), ErrorCode::format,
                {"deepseek2.expert_group_used_count", "1 groups of 1 experts"});
}

TEST_CASE("families: gating comes from its key, else from the family and the number of blocks") {
  const std::string key = "deepseek2.expert_gating_func";
  const std::string name = "deepseek3-mla-q8_0";
  CHECK(hparams(name).gating == Gating::sigmoid);
  CHECK(hparams(name, number(key, 1)).gating == Gating::softmax);
  CHECK(hparams(name, number(key, 0)).gating == Gating::softmax);
  CHECK(hparams(name, without(key)).gating == Gating::softmax);
  check_refused(name, number(key, 4), ErrorCode::unsupported, {key, "4 is not supported"});
  check_refused(name, number(key, 77), ErrorCode::unsupported, {key});
  CHECK(hparams("glm4moe-q8_0", without("glm4moe.expert_gating_func")).gating == Gating::sigmoid);
  CHECK(hparams("gptoss-mxfp4-q8_0").gating == Gating::softmax_chosen);
  CHECK_FALSE(hparams("olmoe-q8_0").normalize_weights);
}

TEST_CASE("families: a NextN layer is counted by the file but not run") {
  const QuietLog quiet;
  CHECK(hparams("glm4moe-q8_0").layers == 3);
  const auto spec = read("glm4moe-q8_0", number("glm4moe.nextn_predict_layers", 1));
  REQUIRE(spec.has_value());
  CHECK(spec->hparams.layers == 2);
  CHECK(spec->hparams.nextn_layers == 1);
  CHECK(spec->layers.size() == 2);
  CHECK(spec->experts.layers() == 2);
  check_refused("glm4moe-q8_0", number("glm4moe.nextn_predict_layers", 3), ErrorCode::format,
                {"glm4moe.nextn_predict_layers", "3 of 3 blocks"});
}

TEST_CASE("families: delta nets: their sizes, what they keep, and what is refused") {
  const QuietLog quiet;
  const std::string name = "qwen35moe-q8_0";
  const Hparams h = hparams(name);
  CHECK(h.attention_interval == 3);
  CHECK(h.delta_net(0));
  CHECK(h.delta_net(1));
  CHECK_FALSE(h.delta_net(2));
  CHECK(h.delta.channels() == 512);
  CHECK(h.delta.value_dim == 64);
  CHECK(kv_layout(h, 0).heads == 0);
  CHECK(kv_layout(h, 2).heads == 2);
  // The state does not grow with the context, the layer that attends does.
  CHECK(RecurrentState::bytes(h) >= 2 * sizeof(float) * (3 * 512 + 4 * 64 * 64));
  CHECK(RecurrentState::bytes(h) < 2 * (sizeof(float) * (3 * 512 + 4 * 64 * 64) + 8192));
  CHECK(SequenceState::bytes(h, 4096, KvType::f32, 64) ==
        KvCache::bytes(h, 4096, KvType::f32, 64) + RecurrentState::bytes(h));
  CHECK(hparams("made qwen35", without("qwen35.full_attention_interval")).attention_interval == 4);
  for (const char* key :
       {"group_count", "time_step_rank", "state_size", "inner_size", "conv_kernel"}) {
    const std::string whole = std::string("qwen35moe.ssm.") + key;
    check_refused(name, without(whole), ErrorCode::format, {whole, "missing"});
    check_refused(name, number(whole, 0), ErrorCode::format, {whole, "0 is outside"});
    check_refused(name, number(whole, 1u << 30), ErrorCode::format, {whole, "1073741824"});
  }
  check_refused(name, number("qwen35moe.ssm.group_count", 3), ErrorCode::format,
                {"qwen35moe.ssm.time_step_rank", "4 heads", "ssm.group_count 3"});
  check_refused(name, number("qwen35moe.ssm.inner_size", 255), ErrorCode::format,
                {"qwen35moe.ssm.inner_size", "255 values for 4 heads"});
  check_refused(name, number("qwen35moe.attention.value_length", 32), ErrorCode::format,
                {"qwen35moe.attention.value_length", "key_length of 64"});
  check_refused(name, number("qwen35moe.full_attention_interval", 0), ErrorCode::format,
                {"qwen35moe.full_attention_interval"});
}

TEST_CASE("families: what takes no part is counted and told, and so is what is unverified") {
  const QuietLog quiet;
  const auto notes = [](const std::string& name, const Edit& edit) {
    const auto spec = read(name, edit);
    if (!spec) FAIL(spec.error().what);
    std::string all;
    for (const std::string& note : spec->notes()) all += note + "\n";
    return all;
  };
  CHECK(notes("glm4moe-q8_0", {}).empty());
  const std::string predicting = notes("glm4moe-q8_0", number("glm4moe.nextn_predict_layers", 1));
  const auto glm = parts_of("glm4moe-q8_0").tensors;
  const auto last = std::count_if(glm.begin(), glm.end(), [](const TensorInfo& tensor) {
    return tensor.name.starts_with("blk.2.");
  });
  CHECK(last > 10);
  CHECK_THAT(predicting, Catch::StartsWith(std::to_string(last) + " tensors for predicting") &&
                             Catch::Contains("(1 layer at the end)"));
  const auto extra = [](const std::vector<std::string>& names) -> Edit {
    return [=](Checkpoint::Parts& parts) {
      for (const std::string& name : names) {
        parts.tensors.push_back(parts.tensors.back());
        parts.tensors.back().name = name;
      }
    };
  };
  CHECK_THAT(
      notes("glm4moe-q8_0", extra({"v.patch_embd.weight", "v.blk.0.ln1.bias", "mm.0.weight"})),
      Catch::Equals("3 tensors for seeing images take no part\n"));
  CHECK_THAT(notes("glm4moe-q8_0", extra({"mtp.0.norm.weight"})),
             Catch::Equals("1 tensor for predicting further tokens takes no part\n"));
  CHECK_THAT(notes("glm4moe-q8_0", extra({"a.x", "b.x", "c.x", "d.x", "e\x1b.x"})),
             Catch::Equals("5 unknown tensors take no part: a.x, b.x, c.x, d.x, …\n"));
  CHECK_THAT(notes("made qwen3next", {}),
             Catch::StartsWith("architecture qwen3next is unverified"));
  // Exactly those families that have an oracle's files are verified (the table in arch/README.md).
  for (const FamilySpec* family : families()) {
    INFO(family->architecture);
    if (family_parts(*family))
      CHECK(notes(made_prefix + family->architecture, {}).empty() == family->proven);
  }
}

TEST_CASE("families: a key of the architecture that nothing reads is told, known ones are not") {
  const QuietLog quiet;
  const auto told = [](const std::string& name, const Edit& edit) {
    const auto spec = read(name, edit);
    if (!spec) FAIL(name << ": " << spec.error().what);
    for (const std::string& note : spec->notes())
      if (note.find("unknown keys") != std::string::npos) return note;
    return std::string();
  };
  for (const std::string& model : model_names()) {
    INFO(model);
    CHECK(told(model, {}).empty());
    const std::string prefix = family_of(model).architecture;
    CHECK(told(model, number(prefix + ".rope.scaling.finetuned", 1)).empty());
    CHECK(told(model, number(prefix + ".vocab_size_of_something_else", 1)) ==
          "1 unknown keys change nothing (misspelt?): " + prefix + ".vocab_size_of_something_else");
  }
  CHECK(told("llama-f32", number("llama.rope.freq_bbse", 500000)) ==
        "1 unknown keys change nothing (misspelt?): llama.rope.freq_bbse");
  CHECK(told("llama-f32", number("general.rope.freq_bbse", 500000)).empty());
  CHECK(told("llama-f32", number("qwen3moe.rope.freq_bbse", 500000)).empty());
}

TEST_CASE("families: dense layers in front are read by their key") {
  const auto spec = read("glm4moe-q8_0");
  REQUIRE(spec.has_value());
  CHECK_FALSE(spec->layers[0].experts);
  CHECK(spec->layers[1].experts);
  CHECK(spec->experts.experts(0) == 0);
  CHECK(spec->experts.experts(1) == 8);
  CHECK(spec->hparams.shared_width == 32);
}

TEST_CASE("families: what MLA and sliding windows keep per position") {
  const KvLayout latent = kv_layout(hparams("deepseek3-mla-q8_0"), 1);
  CHECK(latent.heads == 1);
  CHECK(latent.key == 576);
  CHECK(latent.value == 512);
  CHECK(latent.values_in_keys);
  const Hparams h = hparams("gptoss-mxfp4-q8_0");
  CHECK(kv_layout(h, 0).window == 16);
  CHECK(kv_layout(h, 1).window == 0);
  // A sliding layer's memory does not grow with the context.
  const auto bytes = [&](std::uint32_t context) {
    return KvCache::bytes(h, context, KvType::f16, 64);
  };
  const std::uint64_t per_position = 2 * 2 * (64 + 64) * 2;  // layers, heads, values, bytes
  CHECK(bytes(1u << 20) >= (std::uint64_t{1} << 20) * per_position);
  CHECK(bytes(1u << 20) < (std::uint64_t{1} << 20) * per_position + (std::uint64_t{4} << 20));
}

TEST_CASE("families: scores and rotations of YaRN models") {
  const Hparams gpt = hparams("gptoss-mxfp4-q8_0");
  CHECK(gpt.magnitude == Approx(1.3465735902799727).epsilon(1e-12));
  CHECK(gpt.attention_scale == 0.125F);
  const Hparams v3 = hparams("deepseek3-mla-q8_0");  // heads of 80, factor 40, multiplier 0.1
  CHECK(v3.magnitude == 1);
  CHECK(v3.attention_scale == Approx(1.36888795 * 1.36888795 / std::sqrt(80.0)).epsilon(1e-6));
  const Hparams old =
      hparams("deepseek3-mla-q8_0", without("deepseek2.rope.scaling.yarn_log_multiplier"));
  CHECK(old.magnitude == Approx(1.36888795).epsilon(1e-6));
  CHECK(old.attention_scale == Approx(1 / std::sqrt(80.0)).epsilon(1e-6));
}

TEST_CASE("families: YaRN's borders are rounded unless the file says otherwise") {
  CHECK(hparams("gptoss-mxfp4-q8_0").rope.truncate);
  const std::string key = "gpt-oss.rope.scaling.yarn_truncate";
  const auto said = [&](bool value) -> Edit {
    return [=](Checkpoint::Parts& parts) {
      parts.keys.push_back(key);
      parts.meta[key] = value;
    };
  };
  CHECK(hparams("gptoss-mxfp4-q8_0", said(true)).rope.truncate);
  CHECK_FALSE(hparams("gptoss-mxfp4-q8_0", said(false)).rope.truncate);
}

TEST_CASE("families: KV heads of latent attention are one, or as many as heads") {
  const std::string key = "deepseek2.attention.head_count_kv";
  const std::string name = "deepseek3-mla-q8_0";
  const std::uint64_t heads = hparams(name).heads[0];
  CHECK(hparams(name, number(key, 1)).kv_heads[0] == 1);
  CHECK(hparams(name, number(key, heads)).kv_heads[0] == heads);
  check_refused(name, number(key, 2), ErrorCode::format,
                {key, "2 (layer 0)", "1 or as many as heads, " + std::to_string(heads)});
}

TEST_CASE("families: soft caps, which none of them has, are refused and not left out") {
  const Edit capped = [](Checkpoint::Parts& parts) {
    parts.keys.emplace_back("gpt-oss.final_logit_softcapping");
    parts.meta["gpt-oss.final_logit_softcapping"] = 30.0;
  };
  check_refused("gptoss-mxfp4-q8_0", capped, ErrorCode::unsupported,
                {"gpt-oss.final_logit_softcapping", "30"});
}
