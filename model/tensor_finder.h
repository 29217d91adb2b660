// TensorFinder: looks tensors up by name for one model, checks shape and type, and remembers which
// were used. Lives only while a ModelSpec is built; one thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "model/format/checkpoint.h"
#include "model/tensor.h"
#include "runtime/base/result.h"

namespace millrace {

// Tensors that nothing asked for.
struct UnusedTensors {
  std::size_t prediction = 0;  // of blocks that predict further tokens
  std::size_t vision = 0;      // of a part that sees images
  std::size_t others = 0;
  std::string other_names;  // the first few, printable
};

class TensorFinder {
 public:
  explicit TensorFinder(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  // Null if absent. Marks the tensor as used.
  const TensorInfo* find(std::string_view name);
  // The first of `names` that the file has, or the first of all: tensors with several spellings.
  std::string first_present(std::initializer_list<std::string> names) const;
  // "PATH: tensor NAME: cause".
  Error bad(std::string_view name, std::string_view cause,
            ErrorCode code = ErrorCode::format) const;

  // None of several tensors is there, the first being the usual one: "missing: neither it nor …".
  Error missing(const std::vector<std::string>& names) const;
  bool has(std::string_view name) const { return checkpoint_.find_tensor(name) != nullptr; }

  // A 2-D matrix of `columns` x `rows` (ne order); absent is an error if `required`, else an empty
  // optional.
  Result<std::optional<MatrixExtent>> matrix(const std::string& name, std::uint64_t columns,
                                             std::uint64_t rows, bool required);
  // A vector of `count` elements of F32, F16 or BF16.
  Result<std::optional<MatrixExtent>> vector(const std::string& name, std::uint64_t count,
                                             bool required);
  // `parts` vectors of `count` (2-D in the file) as one of count x parts elements.
  Result<std::optional<MatrixExtent>> vectors(const std::string& name, std::uint64_t count,
                                              std::uint64_t parts, bool required);
  // `parts` matrices of columns x rows, stacked (3-D) or one below the other (2-D), as one. Absent
  // is an error.
  Result<MatrixExtent> joined(const std::string& name, std::uint64_t columns, std::uint64_t rows,
                              std::uint64_t parts);
  // A 3-D tensor with `experts` matrices of columns x rows: one extent per expert. Empty if absent.
  Result<std::vector<MatrixExtent>> stacked(const std::string& name, std::uint64_t columns,
                                            std::uint64_t rows, std::uint64_t experts);

  // A matrix of whole numbers (I32 or I64), which are read as such and never meet a kernel. Absent
  // is an error.
  Result<MatrixExtent> numbers(const std::string& name, std::uint64_t columns, std::uint64_t rows);

  // The unused ones; those of blocks from `layers` on predict further tokens and do not run.
  // `unsupported` if one belongs to a used tensor (X.bias or X.scale beside X.weight); `format` if
  // one belongs to a block from `blocks` on.
  Result<UnusedTensors> unused(std::uint32_t layers, std::uint32_t blocks) const;

 private:
  Status check_companion(std::string_view name) const;
  Status check_type(const TensorInfo& tensor) const;
  Status check_shape(const TensorInfo& tensor, std::uint64_t ne0, std::uint64_t ne1,
                     std::uint64_t ne2) const;

  const Checkpoint& checkpoint_;
  std::unordered_set<std::string_view> used_;  // names inside checkpoint_
};

}  // namespace millrace
