#include "model/format/safetensors/tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "model/format/safetensors/tensor_names.h"
#include "runtime/base/log.h"

namespace millrace {

namespace {

constexpr std::array scale_suffixes = {".weight_scale_inv", ".weight_scale", ".scale"};
constexpr std::string_view blocks_suffix = ".blocks";  // of gpt-oss' experts
constexpr std::string_view scales_suffix = ".scales";
constexpr std::uint64_t block_bytes = 16;
constexpr std::string_view packed_suffix = ".qweight";  // of AWQ
constexpr std::string_view zeros_suffix = ".qzeros";

struct Plain {
  std::string_view dtype;
  DType type;
};
constexpr std::array plain_types = {Plain{"F32", DType::f32},   Plain{"F16", DType::f16},
                                    Plain{"BF16", DType::bf16}, Plain{"F64", DType::f64},
                                    Plain{"I8", DType::i8},     Plain{"I16", DType::i16},
                                    Plain{"I32", DType::i32},   Plain{"I64", DType::i64}};

std::string shape_text(const SafeTensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.shape, ", "));
}

ScaleType scale_type(std::string_view dtype) {
  if (dtype == "F32") return ScaleType::f32;
  if (dtype == "BF16") return ScaleType::bf16;
  // A byte of a scale is an exponent, whatever it is called.
  return dtype == "F8_E8M0" || dtype == "U8" ? ScaleType::e8m0 : ScaleType::none;
}

bool ends_with_scale(std::string_view name) {
  for (const std::string_view suffix : scale_suffixes)
    if (name.ends_with(suffix)) return true;
  return name.ends_with(scales_suffix) || name.ends_with(zeros_suffix);
}

class Translator {
 public:
  Translator(const SafetensorsShards& shards, const TensorRules& rules)
      : shards_(shards), rules_(rules) {}

  Result<std::vector<TensorInfo>> run() {
    MILLRACE_TRY(name_all());
    for (std::size_t i = 0; i < shards_.tensors.size(); ++i) MILLRACE_TRY(translate(i));
    for (std::size_t i = 0; i < shards_.tensors.size(); ++i)
      if (ends_with_scale(names_[i]) && !used_.contains(names_[i]))
        return bad(shards_.tensors[i],
                   fmt::format("{} without the tensor that they belong to",
                               names_[i].ends_with(zeros_suffix) ? "zeros" : "scales"));
    if (unused_ > 0)
      log_warning(fmt::format("{}: {} tensors are not used: {}{}",
                              printable(shards_.files.front(), 4096), unused_, unused_names_,
                              unused_ > 4 ? ", …" : ""));
    return std::move(made_);
  }

 private:
  Error bad(const ShardedTensor& at, std::string_view cause,
            ErrorCode code = ErrorCode::format) const {
    return {code, fmt::format("{}: tensor {}: {}", printable(shards_.files[at.file], 4096),
                              printable(at.tensor.name), cause)};
  }

  Status name_all() {
    for (std::size_t i = 0; i < shards_.tensors.size(); ++i) {
      std::string name = gguf_tensor_name(shards_.tensors[i].tensor.name, rules_.ffn_norm);
      if (!name.empty() && !by_name_.emplace(name, i).second)
        return bad(shards_.tensors[i],
                   fmt::format("the same as tensor {}",
                               printable(shards_.tensors[by_name_.at(name)].tensor.name)));
      names_.push_back(std::move(name));
    }
    return {};
  }

  const ShardedTensor* find(const std::string& name) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return nullptr;
    used_.insert(found->first);
    return &shards_.tensors[found->second];
  }

  Status translate(std::size_t index) {
    const ShardedTensor& at = shards_.tensors[index];
    const std::string& name = names_[index];
    if (name.empty()) {
      note_unused(at.tensor.name);
      return {};
    }
    if (ends_with_scale(name) || (rules_.tied_head && name == "output.weight")) return {};
    TensorInfo info;
    info.name = name;
    info.file = at.file;
    info.offset_bytes = at.tensor.offset_bytes;
    info.bytes = at.tensor.bytes;
    const bool blocks = name.ends_with(blocks_suffix);
    if (name.ends_with(packed_suffix)) MILLRACE_TRY(translate_awq(at, info));
    else if (blocks) MILLRACE_TRY(translate_blocks(at, info));
    else MILLRACE_TRY(translate_type(at, info));
    made_.push_back(std::move(info));
    return {};
  }

  void note_unused(const std::string& name) {
    if (is_unused_part(name)) return;
    if (++unused_ <= 4) unused_names_ += (unused_ > 1 ? ", " : "") + printable(name);
  }

  static const Plain* plain_type(std::string_view dtype) {
    const auto* const found = std::find_if(plain_types.begin(), plain_types.end(),
                                           [&](const Plain& each) { return each.dtype == dtype; });
    return found == plain_types.end() ? nullptr : found;
  }

  // Dimensions, the fastest first.
  Status set_shape(const ShardedTensor& at, TensorInfo& info) const {
    std::vector<std::uint64_t> shape = at.tensor.shape;
    if (info.name.ends_with("ssm_conv1d.weight") && shape.size() == 3 && shape[1] == 1)
      shape.erase(shape.begin() + 1);  // one input channel for each output
    if (shape.size() > info.ne.size())
      return bad(at, fmt::format("{} dimensions, at most 4 are supported", shape.size()),
                 ErrorCode::unsupported);
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] == 0) return bad(at, fmt::format("shape {}: empty", shape_text(at.tensor)));
      info.ne[shape.size() - 1 - i] = shape[i];
    }
    info.dims = static_cast<std::uint32_t>(std::max<std::size_t>(1, shape.size()));
    return {};
  }

  Status translate_type(const ShardedTensor& at, TensorInfo& info) {
    MILLRACE_TRY(set_shape(at, info));
    const ShardedTensor* scales = find_scales(info.name);
    const bool packed = at.tensor.dtype == "I8" || at.tensor.dtype == "U8";
    if (at.tensor.dtype == "F8_E4M3" || (packed && scales != nullptr)) {
      if (scales == nullptr)
        return bad(at, fmt::format("{} without its scales (…{})", at.tensor.dtype,
                                   fmt::join(scale_suffixes, ", …")));
      if (rules_.experts_by_inputs && info.name.ends_with("_exps.weight"))
        return bad(at, fmt::format("{} experts of this layout are not supported", at.tensor.dtype),
                   ErrorCode::unsupported);
      info.type = packed ? DType::fp4 : DType::f8_e4m3;
      if (packed) info.ne[0] *= 2;  // two values in a byte
      return attach_scales(at, *scales, info);
    }
    if (scales != nullptr)
      return bad(*scales, fmt::format("scales of {}, which are not supported", at.tensor.dtype),
                 ErrorCode::unsupported);
    const Plain* plain = plain_type(at.tensor.dtype);
    if (plain == nullptr)
      return bad(at, fmt::format("type {} is not supported", printable(at.tensor.dtype)),
                 ErrorCode::unsupported);
    info.type = plain->type;
    undo_layout(info);
    return {};
  }

  // What plain tensors differ in from those of a converted file.
  void undo_layout(TensorInfo& info) const {
    const std::string_view name = info.name;
    const bool gate_up = base_of(name).ends_with("ffn_gate_up_exps");
    if (rules_.experts_by_inputs && name.ends_with("_exps.weight")) {
      info.by_inputs = true;
      info.zipped = gate_up;
    }
    // gpt-oss stores the biases of gate and up by turns, as their rows.
    if (rules_.experts_by_inputs && gate_up && name.ends_with(".bias")) info.fix = VectorFix::unzip;
    if (name.ends_with(".ssm_a")) info.fix = VectorFix::minus_exp;
    if (rules_.norms_less_one && name.ends_with("_norm.weight") &&
        !name.ends_with("ssm_norm.weight"))
      info.fix = VectorFix::plus_one;
  }

  // [experts, rows, blocks, 16] bytes and their scales [experts, rows, blocks].
  Status translate_blocks(const ShardedTensor& at, TensorInfo& info) {
    const std::vector<std::uint64_t>& shape = at.tensor.shape;
    if (shape.size() != 4 || shape[3] != block_bytes || at.tensor.dtype != "U8")
      return bad(at, fmt::format("{} {} are no blocks of {} bytes", printable(at.tensor.dtype),
                                 shape_text(at.tensor), block_bytes));
    const std::string base(base_of(info.name));
    info.name = base + ".weight";
    info.type = DType::fp4;
    info.zipped = base.ends_with("ffn_gate_up_exps");
    info.dims = 3;
    info.ne = {shape[2] * 2 * block_bytes, shape[1], shape[0], 1};
    for (const std::uint64_t extent : shape)
      if (extent == 0) return bad(at, fmt::format("shape {}: empty", shape_text(at.tensor)));
    const ShardedTensor* scales = find(base + std::string(scales_suffix));
    if (scales == nullptr) return bad(at, "blocks without their scales (…_scales)");
    return attach_scales(at, *scales, info);
  }

  // Codes [inputs, outputs / 8], zeros [inputs / 128, outputs / 8], scales [inputs / 128, outputs].
  Status translate_awq(const ShardedTensor& at, TensorInfo& info) {
    if (!rules_.awq)
      return bad(at, "packed, but config.json's quantization_config does not say awq",
                 ErrorCode::unsupported);
    const std::vector<std::uint64_t>& shape = at.tensor.shape;
    if (shape.size() != 2 || shape[0] == 0 || shape[1] == 0 || at.tensor.dtype != "I32")
      return bad(at, fmt::format("{} {} is no matrix of packed codes (I32)",
                                 printable(at.tensor.dtype), shape_text(at.tensor)));
    info.type = DType::awq;
    const std::uint64_t group = scale_tile(info.type).columns;
    if (shape[0] % group != 0)
      return bad(at, fmt::format("shape {}: {} inputs are not whole groups of {}",
                                 shape_text(at.tensor), shape[0], group));
    const std::string base(base_of(info.name));
    if (by_name_.contains(base + ".weight"))
      return bad(at, "beside a tensor of the same matrix that is not packed");
    const ShardedTensor* zeros = find(base + std::string(zeros_suffix));
    const ShardedTensor* scales = find(base + std::string(scales_suffix));
    if (zeros == nullptr || scales == nullptr)
      return bad(at, fmt::format("packed codes without their {} (…{})",
                                 zeros == nullptr ? "zeros" : "scales",
                                 zeros == nullptr ? zeros_suffix : scales_suffix));
    const std::uint64_t groups = shape[0] / group;
    const std::uint64_t outputs = shape[1] * dtype_info(info.type).block_elems;
    MILLRACE_TRY(check_companion(at, *zeros, "I32", {groups, shape[1]}));
    MILLRACE_TRY(check_companion(at, *scales, "F16", {groups, outputs}));
    info.name = base + ".weight";
    info.dims = 2;
    info.ne = {outputs, shape[0], 1, 1};
    info.by_inputs = true;
    info.scales = {ScaleType::f16, scales->file, scales->tensor.offset_bytes,
                   outputs * scale_bytes(ScaleType::f16), groups};
    info.zeros = {zeros->file, zeros->tensor.offset_bytes, info.row_bytes(), groups};
    return {};
  }

  Status check_companion(const ShardedTensor& at, const ShardedTensor& other,
                         std::string_view dtype, const std::vector<std::uint64_t>& shape) const {
    if (other.tensor.dtype == dtype && other.tensor.shape == shape) return {};
    return bad(other,
               fmt::format("{} {}, but {} of shape {} needs {} [{}]", printable(other.tensor.dtype),
                           shape_text(other.tensor), printable(at.tensor.name),
                           shape_text(at.tensor), dtype, fmt::join(shape, ", ")));
  }

  Status attach_scales(const ShardedTensor& at, const ShardedTensor& scales,
                       TensorInfo& info) const {
    const ScaleTile tile = scale_tile(info.type);
    const ScaleType type = scale_type(scales.tensor.dtype);
    if (type == ScaleType::none || (info.type == DType::fp4 && type != ScaleType::e8m0))
      return bad(scales,
                 fmt::format("scales of type {} are not supported for {}",
                             printable(scales.tensor.dtype), dtype_info(info.type).name),
                 ErrorCode::unsupported);
    if (info.ne[0] % dtype_info(info.type).block_elems != 0 || info.ne[3] != 1)
      return bad(at, fmt::format("rows of {} values are not whole blocks of {}", info.ne[0],
                                 dtype_info(info.type).block_elems));
    std::vector<std::uint64_t> wanted = {(info.ne[1] + tile.rows - 1) / tile.rows,
                                         (info.ne[0] + tile.columns - 1) / tile.columns};
    if (info.dims == 3) wanted.insert(wanted.begin(), info.ne[2]);
    if (scales.tensor.shape != wanted)
      return bad(scales, fmt::format("shape {}, but {} of shape {} needs scales [{}]",
                                     shape_text(scales.tensor), printable(at.tensor.name),
                                     shape_text(at.tensor), fmt::join(wanted, ", ")));
    info.scales = {type, scales.file, scales.tensor.offset_bytes, wanted.back() * scale_bytes(type),
                   info.ne[2] * wanted[wanted.size() - 2]};
    return {};
  }

  static std::string_view base_of(std::string_view name) { return name.substr(0, name.rfind('.')); }

  const ShardedTensor* find_scales(std::string_view name) {
    if (!name.ends_with(".weight")) return nullptr;
    for (const std::string_view suffix : scale_suffixes)
      if (const ShardedTensor* found = find(std::string(base_of(name)).append(suffix)))
        return found;
    return nullptr;
  }

  const SafetensorsShards& shards_;
  const TensorRules& rules_;
  std::vector<std::string> names_;  // by tensor; empty: no name here
  std::unordered_map<std::string, std::size_t> by_name_;
  std::unordered_set<std::string> used_;
  std::size_t unused_ = 0;
  std::string unused_names_;
  std::vector<TensorInfo> made_;
};

}  // namespace

Result<std::vector<TensorInfo>> translate_tensors(const SafetensorsShards& shards,
                                                  const TensorRules& rules) {
  return Translator(shards, rules).run();
}

}  // namespace millrace
