// Checkpoint: a model's files as metadata and tensor extents, whatever the container. a GGUF
// file, or a folder with safetensors. Built once at open, then read-only: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "model/tensor.h"
#include "runtime/base/result.h"

namespace millrace {

// A metadata value. Integers of any width are widened; floats too. Arrays are homogeneous.
using MetaValue =
    std::variant<bool, std::int64_t, std::uint64_t, double, std::string, std::vector<bool>,
                 std::vector<std::int64_t>, std::vector<std::uint64_t>, std::vector<double>,
                 std::vector<std::string>>;

class Checkpoint {
 public:
  // The files in the order of TensorInfo::file: paths only; io opens them.
  const std::vector<std::string>& files() const noexcept { return files_; }
  // Files beside them that were read to open the model.
  const std::vector<std::string>& companions() const noexcept { return companions_; }
  const std::vector<TensorInfo>& tensors() const noexcept { return tensors_; }  // file order
  const TensorInfo* find_tensor(std::string_view name) const noexcept;
  const MetaValue* find_meta(std::string_view key) const noexcept;
  const std::vector<std::string>& keys() const noexcept { return keys_; }  // file order
  std::uint64_t metadata_bytes() const noexcept {
    return metadata_bytes_;
  }  // read from the files to open them

  // Typed access. `absent` results: the key is missing. A value of the wrong kind or range is a
  // `format` error that names file and key. Integer keys take any integer type whose value fits;
  // float keys take f32 and f64 and integers.
  Result<bool> has_string(std::string_view key, std::string& out) const;  // false: absent
  Result<bool> has_u32(std::string_view key, std::uint32_t& out) const;
  Result<bool> has_f32(std::string_view key, float& out) const;
  Result<bool> has_bool(std::string_view key, bool& out) const;
  // A scalar or an array with one entry per layer (at least `layers`): fills `out` with `layers`
  // entries.
  Result<bool> has_u32_per_layer(std::string_view key, std::uint32_t layers,
                                 std::vector<std::uint32_t>& out) const;
  const std::vector<std::string>* string_array(
      std::string_view key) const noexcept;  // nullptr: absent or other kind
  Result<bool> has_i32_array(std::string_view key, std::vector<std::int32_t>& out) const;
  Result<bool> has_f32_array(std::string_view key, std::vector<float>& out) const;

  std::string architecture() const;  // general.architecture; empty if absent
  std::string display_path() const;  // the file with the metadata, for messages

  // Used by the readers of containers.
  struct Parts {
    std::vector<std::string> files;
    std::vector<TensorInfo> tensors;
    std::vector<std::string> keys;
    std::unordered_map<std::string, MetaValue> meta;
    std::uint64_t metadata_bytes = 0;
    std::vector<std::string> companions = {};
    std::string origin = {};  // the file that holds the metadata, if it is none of `files`
  };
  explicit Checkpoint(Parts parts);
  Checkpoint(Checkpoint&&) noexcept = default;
  Checkpoint& operator=(Checkpoint&&) noexcept = default;
  Checkpoint(const Checkpoint&) = delete;  // by_name_ points into tensors_
  Checkpoint& operator=(const Checkpoint&) = delete;

 private:
  std::vector<std::string> files_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::string> keys_;
  std::unordered_map<std::string, MetaValue> meta_;
  std::unordered_map<std::string_view, std::size_t> by_name_;  // views into tensors_
  std::uint64_t metadata_bytes_ = 0;
  std::vector<std::string> companions_;
  std::string origin_;
};

}  // namespace millrace
