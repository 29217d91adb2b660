#include "model/tensor_finder.h"

#include <fmt/format.h>

#include <charconv>

#include "kernels/dispatch.h"
#include "runtime/base/log.h"

namespace millrace {

namespace {

// N of "blk.N.…"; 0 for other names.
std::uint64_t block_of(std::string_view name) {
  constexpr std::string_view prefix = "blk.";
  std::uint64_t block = 0;
  if (name.substr(0, prefix.size()) == prefix)
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(), block);
  return block;
}

// Parts that converters put beside the language model.
bool predicts(std::string_view name) {
  return name.starts_with("mtp.") || name.starts_with("nextn.");
}

bool sees(std::string_view name) {
  return name.starts_with("v.") || name.starts_with("mm.") || name.starts_with("vision");
}

MatrixExtent extent_of(const TensorInfo& tensor, std::uint64_t columns, std::uint64_t rows) {
  return {.type = tensor.type,
          .file = tensor.file,
          .offset_bytes = tensor.offset_bytes,
          .row_bytes = tensor.row_bytes(),
          .rows = rows,
          .columns = columns,
          .by_inputs = tensor.by_inputs,
          .scales = tensor.scales,
          .zeros = tensor.zeros,
          .fix = tensor.fix};
}

}  // namespace

const TensorInfo* TensorFinder::find(std::string_view name) {
  const TensorInfo* tensor = checkpoint_.find_tensor(name);
  if (tensor != nullptr) used_.insert(tensor->name);
  return tensor;
}

std::string TensorFinder::first_present(std::initializer_list<std::string> names) const {
  for (const std::string& name : names)
    if (checkpoint_.find_tensor(name) != nullptr) return name;
  return *names.begin();
}

Error TensorFinder::bad(std::string_view name, std::string_view cause, ErrorCode code) const {
  const TensorInfo* tensor = checkpoint_.find_tensor(name);
  const std::string& path =
      tensor == nullptr ? checkpoint_.display_path() : checkpoint_.files()[tensor->file];
  return Error{code, fmt::format("{}: tensor {}: {}", path, printable(name), cause)};
}

Error TensorFinder::missing(const std::vector<std::string>& names) const {
  std::string cause = "missing";
  for (std::size_t i = 1; i < names.size(); ++i)
    cause += (i == 1 ? ": neither it nor " : " nor ") + names[i];
  return bad(names.front(), cause + (names.size() > 1 ? " is there" : ""));
}

Status TensorFinder::check_type(const TensorInfo& tensor) const {
  const KernelTable& kernels = *supported_kernels().front();
  if (kernels.matmul_f32[static_cast<std::size_t>(tensor.type)] != nullptr) return {};
  return bad(tensor.name, fmt::format("type {} is not supported", dtype_info(tensor.type).name),
             ErrorCode::unsupported);
}

Status TensorFinder::check_shape(const TensorInfo& tensor, std::uint64_t ne0, std::uint64_t ne1,
                                 std::uint64_t ne2) const {
  const auto& ne = tensor.ne;
  if (ne[0] == ne0 && ne[1] == ne1 && ne[2] == ne2 && ne[3] == 1) return {};
  return bad(tensor.name,
             fmt::format("has shape {{{}, {}, {}, {}}}, the metadata asks for {{{}, {}, {}}}",
                         ne[0], ne[1], ne[2], ne[3], ne0, ne1, ne2));
}

Result<std::optional<MatrixExtent>> TensorFinder::matrix(const std::string& name,
                                                         std::uint64_t columns, std::uint64_t rows,
                                                         bool required) {
  const TensorInfo* tensor = find(name);
  if (tensor == nullptr) {
    if (required) return bad(name, "missing");
    return std::optional<MatrixExtent>();
  }
  MILLRACE_TRY(tensor->by_inputs ? check_shape(*tensor, rows, columns, 1)
                                 : check_shape(*tensor, columns, rows, 1));
  MILLRACE_TRY(check_type(*tensor));
  return std::optional(extent_of(*tensor, columns, rows));
}

Result<std::optional<MatrixExtent>> TensorFinder::vector(const std::string& name,
                                                         std::uint64_t count, bool required) {
  return vectors(name, count, 1, required);
}

Result<std::optional<MatrixExtent>> TensorFinder::vectors(const std::string& name,
                                                          std::uint64_t count, std::uint64_t parts,
                                                          bool required) {
  MILLRACE_ASSIGN(std::optional<MatrixExtent> extent, matrix(name, count, parts, required));
  if (!extent) return extent;
  if (extent->type != DType::f32 && extent->type != DType::f16 && extent->type != DType::bf16)
    return bad(
        name,
        fmt::format("type {}: a vector must be F32, F16 or BF16", dtype_info(extent->type).name),
        ErrorCode::unsupported);
  extent->fix_stretch = extent->columns;
  extent->columns *= parts;  // rows of these types follow each other without a gap
  extent->row_bytes *= parts;
  extent->rows = 1;
  return extent;
}

Result<MatrixExtent> TensorFinder::joined(const std::string& name, std::uint64_t columns,
                                          std::uint64_t rows, std::uint64_t parts) {
  const TensorInfo* tensor = find(name);
  if (tensor != nullptr && tensor->ne[2] == 1 && parts > 1) {
    MILLRACE_ASSIGN(const auto flat, matrix(name, columns, rows * parts, true));
    return *flat;
  }
  MILLRACE_ASSIGN(const auto stack, stacked(name, columns, rows, parts));
  if (stack.empty()) return bad(name, "missing");
  MatrixExtent all = stack.front();
  all.rows = rows * parts;
  return all;
}

Result<std::vector<MatrixExtent>> TensorFinder::stacked(const std::string& name,
                                                        std::uint64_t columns, std::uint64_t rows,
                                                        std::uint64_t experts) {
  std::vector<MatrixExtent> extents;
  const TensorInfo* tensor = find(name);
  if (tensor == nullptr) return extents;
  MILLRACE_TRY(tensor->by_inputs ? check_shape(*tensor, rows, columns, experts)
                                 : check_shape(*tensor, columns, rows, experts));
  MILLRACE_TRY(check_type(*tensor));
  MatrixExtent extent = extent_of(*tensor, columns, rows);
  extent.scales.rows /= experts;
  extents.reserve(experts);
  for (std::uint64_t expert = 0; expert < experts; ++expert) {
    extents.push_back(extent);
    extent.offset_bytes += extent.span_bytes();
    extent.scales.offset_bytes += extent.scales.bytes();
  }
  return extents;
}

Result<MatrixExtent> TensorFinder::numbers(const std::string& name, std::uint64_t columns,
                                           std::uint64_t rows) {
  const TensorInfo* tensor = find(name);
  if (tensor == nullptr) return bad(name, "missing");
  MILLRACE_TRY(check_shape(*tensor, columns, rows, 1));
  if (tensor->type != DType::i32 && tensor->type != DType::i64)
    return bad(name, fmt::format("type {}: ids must be I32 or I64", dtype_info(tensor->type).name),
               ErrorCode::unsupported);
  return MatrixExtent{.type = tensor->type,
                      .file = tensor->file,
                      .offset_bytes = tensor->offset_bytes,
                      .row_bytes = tensor->row_bytes(),
                      .rows = rows,
                      .columns = columns};
}

// A bias or scale of a tensor that is used would change the result.
Status TensorFinder::check_companion(std::string_view name) const {
  const std::size_t dot = name.rfind('.');
  const std::string_view suffix = dot == std::string_view::npos ? "" : name.substr(dot);
  if (suffix != ".bias" && suffix != ".scale") return {};
  if (!used_.contains(std::string(name.substr(0, dot)) + ".weight")) return {};
  return bad(name,
             "this architecture is not known to have it; leaving it out would give wrong results",
             ErrorCode::unsupported);
}

Result<UnusedTensors> TensorFinder::unused(std::uint32_t layers, std::uint32_t blocks) const {
  UnusedTensors found;
  constexpr std::size_t names_max = 4;
  for (const TensorInfo& tensor : checkpoint_.tensors()) {
    const std::string_view name = tensor.name;
    if (used_.contains(name)) continue;
    if (block_of(name) >= blocks)
      return bad(name,
                 fmt::format("belongs to block {}, but block_count is {}", block_of(name), blocks));
    if (block_of(name) >= layers || predicts(name)) {
      ++found.prediction;
      continue;
    }
    if (sees(name)) {
      ++found.vision;
      continue;
    }
    MILLRACE_TRY(check_companion(name));
    if (++found.others <= names_max)
      found.other_names += (found.others == 1 ? "" : ", ") + printable(name);
  }
  if (found.others > names_max) found.other_names += ", …";
  return found;
}

}  // namespace millrace
