#include "model/format/gguf_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <string>
#include <unordered_set>
#include <utility>

#include "runtime/base/log.h"

namespace millrace {

namespace {

constexpr std::uint64_t int64_max = std::numeric_limits<std::int64_t>::max();
// A tensor in memory: its record, an entry in the set of names here and one in the checkpoint's
// index.
constexpr std::uint64_t memory_bytes_each = 2 * sizeof(TensorInfo);

std::string quoted(std::string_view name) { return fmt::format("tensor '{}'", printable(name)); }

// product *= factor, unless that would pass 2^63 - 1.
bool multiply(std::uint64_t& product, std::uint64_t factor) noexcept {
  if (factor != 0 && product > int64_max / factor) return false;
  product *= factor;
  return true;
}

Result<std::string> read_name(HeaderReader& reader, std::uint64_t index) {
  reader.enter(fmt::format("name of tensor {}", index));
  MILLRACE_ASSIGN(std::string name, reader.string(gguf_tensor_name_bytes_max));
  if (name.empty()) return reader.malformed("the name is empty");
  if (name.find('\0') != std::string::npos)
    return reader.malformed(fmt::format("the name '{}' holds a zero byte", printable(name)));
  return name;
}

Status read_shape(HeaderReader& reader, TensorInfo& tensor) {
  MILLRACE_ASSIGN(const std::uint32_t dims, reader.number<std::uint32_t>());
  if (dims > tensor.ne.size())
    return reader.malformed(fmt::format("{} dimensions, at most 4 are allowed", dims));
  std::uint64_t elements = 1;
  for (std::uint32_t i = 0; i < dims; ++i) {
    MILLRACE_ASSIGN(tensor.ne[i], reader.number<std::uint64_t>());
    if (tensor.ne[i] == 0) return reader.malformed(fmt::format("dimension {} is 0", i));
    if (!multiply(elements, tensor.ne[i]))
      return reader.malformed(
          fmt::format("dimension {} is {}: the tensor would have more than "
                      "2^63 elements",
                      i, tensor.ne[i]));
  }
  tensor.dims = std::max(dims, 1u);  // no dimension at all: one element
  return {};
}

Status read_type(HeaderReader& reader, TensorInfo& tensor) {
  MILLRACE_ASSIGN(const std::uint32_t id, reader.number<std::uint32_t>());
  const DTypeInfo* info = find_dtype(id);
  if (info == nullptr)
    return reader.error(ErrorCode::unsupported, fmt::format("type {}: {}", id, dtype_problem(id)));
  tensor.type = static_cast<DType>(id);
  if (tensor.ne[0] % info->block_elems != 0)
    return reader.malformed(fmt::format("rows of {} elements are not whole {} blocks of {}",
                                        tensor.ne[0], info->name, info->block_elems));
  tensor.bytes = tensor.ne[0] / info->block_elems;
  for (const std::uint64_t factor :
       {std::uint64_t{info->block_bytes}, tensor.ne[1], tensor.ne[2], tensor.ne[3]})
    if (!multiply(tensor.bytes, factor))
      return reader.malformed(fmt::format("its size in {} is more than 2^63 bytes", info->name));
  return {};
}

Result<TensorInfo> read_tensor(HeaderReader& reader, std::uint64_t index) {
  TensorInfo tensor;
  MILLRACE_ASSIGN(tensor.name, read_name(reader, index));
  reader.enter(quoted(tensor.name));
  MILLRACE_TRY(read_shape(reader, tensor));
  MILLRACE_TRY(read_type(reader, tensor));
  MILLRACE_ASSIGN(tensor.offset_bytes, reader.number<std::uint64_t>());
  return tensor;
}

// Compares neighbours in order of offset: only they can overlap.
Status check_overlap(HeaderReader& reader, std::uint64_t data_start, std::uint64_t alignment,
                     const std::vector<TensorInfo>& tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(tensors[a].offset_bytes, a) < std::pair(tensors[b].offset_bytes, b);
  });
  std::uint64_t end = data_start;
  std::uint64_t holes = 0;
  std::uint64_t hole_bytes = 0;
  const TensorInfo* before = nullptr;
  for (const std::size_t index : order) {
    const TensorInfo& tensor = tensors[index];
    if (before != nullptr && tensor.offset_bytes < end) {
      reader.enter(quoted(tensor.name));
      return reader.malformed(fmt::format("its data at byte {} overlaps {}, which ends at {}",
                                          tensor.offset_bytes, quoted(before->name), end));
    }
    const std::uint64_t expected = round_up(end, alignment);
    if (tensor.offset_bytes > expected) {
      ++holes;
      hole_bytes += tensor.offset_bytes - expected;
    }
    end = tensor.offset_bytes + tensor.bytes;
    before = &tensor;
  }
  if (holes > 0) {
    reader.enter("data part");
    log_debug(
        reader.malformed(fmt::format("{} holes of {} bytes between tensors", holes, hole_bytes))
            .what);
  }
  return {};
}

}  // namespace

Result<std::vector<TensorInfo>> read_gguf_tensors(HeaderReader& reader, std::uint64_t count) {
  reader.enter("tensor table");
  MILLRACE_TRY(reader.claim(count, memory_bytes_each));
  std::vector<TensorInfo> tensors;
  std::unordered_set<std::string> names;
  for (std::uint64_t i = 0; i < count; ++i) {
    MILLRACE_ASSIGN(TensorInfo tensor, read_tensor(reader, i));
    if (!names.insert(tensor.name).second) return reader.malformed("the name appears twice");
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Status place_gguf_tensors(HeaderReader& reader, std::uint64_t data_start, std::uint64_t alignment,
                          std::vector<TensorInfo>& tensors) {
  if (tensors.empty()) return {};  // a first shard without tensors may end before its data part
  reader.enter("data part");
  if (data_start > reader.size_bytes())
    return reader.malformed(
        fmt::format("would start at byte {}, but the file ends at {}: is the "
                    "download complete?",
                    data_start, reader.size_bytes()));
  const std::uint64_t data_bytes = reader.size_bytes() - data_start;
  for (TensorInfo& tensor : tensors) {
    reader.enter(quoted(tensor.name));
    if (tensor.offset_bytes % alignment != 0)
      return reader.malformed(fmt::format("offset {} is not a multiple of the alignment {}",
                                          tensor.offset_bytes, alignment));
    // In this form neither side can wrap.
    if (tensor.offset_bytes > data_bytes || tensor.bytes > data_bytes - tensor.offset_bytes)
      return reader.malformed(fmt::format(
          "{} bytes at offset {} end past the {} bytes of data in the file: is the download "
          "complete?",
          tensor.bytes, tensor.offset_bytes, data_bytes));
    tensor.offset_bytes += data_start;
  }
  return check_overlap(reader, data_start, alignment, tensors);
}

}  // namespace millrace
