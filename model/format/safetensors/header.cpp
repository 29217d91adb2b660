#include "model/format/safetensors/header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "io/file.h"
#include "runtime/base/json.h"
#include "runtime/base/log.h"

namespace millrace {

namespace {

constexpr std::uint64_t length_bytes = 8;
constexpr std::size_t shape_max = 8;
constexpr std::uint64_t count_max = std::uint64_t{1} << 62;

struct NamedBits {
  std::string_view name;
  std::uint32_t bits;
};
constexpr std::array dtypes = {
    NamedBits{"BOOL", 8},    NamedBits{"U8", 8},      NamedBits{"I8", 8},
    NamedBits{"F8_E4M3", 8}, NamedBits{"F8_E5M2", 8}, NamedBits{"F8_E8M0", 8},
    NamedBits{"F16", 16},    NamedBits{"BF16", 16},   NamedBits{"I16", 16},
    NamedBits{"U16", 16},    NamedBits{"F32", 32},    NamedBits{"I32", 32},
    NamedBits{"U32", 32},    NamedBits{"F64", 64},    NamedBits{"I64", 64},
    NamedBits{"U64", 64},    NamedBits{"C64", 64},    NamedBits{"F4", 4},
    NamedBits{"F6_E2M3", 6}, NamedBits{"F6_E3M2", 6}};

Error file_error(const std::string& path, const std::string& detail) {
  return {ErrorCode::format, fmt::format("{}: {}", printable(path, 4096), detail)};
}

Error tensor_error(const std::string& path, std::string_view name, const std::string& detail) {
  return file_error(path, fmt::format("tensor {}: {}", printable(name), detail));
}

// A JSON number as a size.
bool get_size(const Json& value, std::uint64_t& out) {
  std::int64_t number = 0;
  if (!value.get_integer(number) || number < 0) return false;
  out = static_cast<std::uint64_t>(number);
  return true;
}

Status read_shape(const std::string& path, const Json& entry, SafeTensor& tensor) {
  const Json* shape = entry.find("shape");
  const Json::Array* list = shape == nullptr ? nullptr : shape->as_array();
  if (list == nullptr) return tensor_error(path, tensor.name, "shape is missing or no array");
  if (list->size() > shape_max)
    return tensor_error(path, tensor.name, fmt::format("{} dimensions", list->size()));
  for (const Json& item : *list) {
    std::uint64_t extent = 0;
    if (!get_size(item, extent))
      return tensor_error(path, tensor.name, "shape holds something else than whole numbers");
    tensor.shape.push_back(extent);
  }
  return {};
}

Result<std::uint64_t> element_count(const std::string& path, const SafeTensor& tensor) {
  std::uint64_t count = 1;
  for (const std::uint64_t extent : tensor.shape) {
    if (extent != 0 && count > count_max / extent)
      return tensor_error(path, tensor.name, "its shape has more than 2^62 elements");
    count *= extent;
  }
  return count;
}

// Type, shape and place of one entry; the place counts from the start of the data.
Result<SafeTensor> read_entry(const std::string& path, const std::string& name, const Json& entry,
                              std::uint64_t data_bytes) {
  SafeTensor tensor;
  tensor.name = name;
  if (entry.as_object() == nullptr) return tensor_error(path, name, "its entry is no object");
  const Json* dtype = entry.find("dtype");
  if (dtype == nullptr || dtype->as_string() == nullptr)
    return tensor_error(path, name, "dtype is missing or no text");
  tensor.dtype = *dtype->as_string();
  MILLRACE_TRY(read_shape(path, entry, tensor));
  MILLRACE_ASSIGN(const std::uint64_t count, element_count(path, tensor));
  const Json* offsets = entry.find("data_offsets");
  const Json::Array* pair = offsets == nullptr ? nullptr : offsets->as_array();
  std::uint64_t end = 0;
  if (pair == nullptr || pair->size() != 2 || !get_size((*pair)[0], tensor.offset_bytes) ||
      !get_size((*pair)[1], end))
    return tensor_error(path, name, "data_offsets is missing or not two whole numbers");
  if (end < tensor.offset_bytes)
    return tensor_error(
        path, name,
        fmt::format("data_offsets [{}, {}] end before they begin", tensor.offset_bytes, end));
  if (end > data_bytes)
    return tensor_error(path, name,
                        fmt::format("its data ends at byte {} of {} in the file: is the download "
                                    "complete?",
                                    end, data_bytes));
  tensor.bytes = end - tensor.offset_bytes;
  const std::uint64_t bits = safetensors_dtype_bits(tensor.dtype);
  if (bits == 0) return tensor;
  if (count > count_max / bits || count * bits % 8 != 0 || count * bits / 8 != tensor.bytes)
    return tensor_error(
        path, name,
        fmt::format("{} elements of {} do not take the {} bytes of its data_offsets", count,
                    tensor.dtype, tensor.bytes));
  return tensor;
}

// The format wants the tensors to cover the data exactly.
Status check_tiling(const std::string& path, const std::vector<SafeTensor>& tensors,
                    std::uint64_t data_bytes) {
  std::vector<const SafeTensor*> order;
  for (const SafeTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const SafeTensor* a, const SafeTensor* b) {
    return std::pair(a->offset_bytes, a->bytes) < std::pair(b->offset_bytes, b->bytes);
  });
  std::uint64_t end = 0;
  const SafeTensor* before = nullptr;
  for (const SafeTensor* tensor : order) {
    if (tensor->offset_bytes < end)
      return tensor_error(path, tensor->name,
                          fmt::format("its data at byte {} overlaps tensor {}, which ends at {}",
                                      tensor->offset_bytes, printable(before->name), end));
    if (tensor->offset_bytes > end)
      return tensor_error(
          path, tensor->name,
          fmt::format("its data begins at byte {}, and nothing holds those from {} on",
                      tensor->offset_bytes, end));
    end = tensor->offset_bytes + tensor->bytes;
    before = tensor;
  }
  if (end != data_bytes)
    return file_error(path,
                      fmt::format("its tensors end at byte {} of {} of data", end, data_bytes));
  return {};
}

// The header's text.
Result<std::string> read_text(const std::string& path, const File& file) {
  std::uint64_t length = 0;
  if (file.size_bytes() < length_bytes)
    return file_error(path, fmt::format("{} bytes are no safetensors file", file.size_bytes()));
  MILLRACE_TRY(file.read_exactly(0, &length, length_bytes));
  if (length > safetensors_header_bytes_max || length > file.size_bytes() - length_bytes)
    return file_error(
        path, fmt::format("a header of {} bytes (at most {}) in a file of {}: truncated, or no "
                          "safetensors file",
                          length, safetensors_header_bytes_max, file.size_bytes()));
  std::string text(length, '\0');
  MILLRACE_TRY(file.read_exactly(length_bytes, text.data(), text.size()));
  if (text.empty() || text.front() != '{')
    return file_error(path, "its header does not begin with '{': no safetensors file");
  return text;
}

}  // namespace

std::uint32_t safetensors_dtype_bits(std::string_view dtype) noexcept {
  for (const NamedBits& each : dtypes)
    if (each.name == dtype) return each.bits;
  return 0;
}

Result<SafetensorsHeader> read_safetensors_header(const std::string& path) {
  MILLRACE_ASSIGN(const File file, File::open(path, DirectMode::off));
  MILLRACE_ASSIGN(const std::string text, read_text(path, file));
  const auto json = Json::parse(text, {.bytes_max = safetensors_header_bytes_max, .depth_max = 4});
  if (!json) return file_error(path, "header: " + json.error().what);
  SafetensorsHeader header;
  header.header_bytes = length_bytes + text.size();
  const std::uint64_t data_bytes = file.size_bytes() - header.header_bytes;
  for (const auto& [name, entry] : *json->as_object()) {
    if (name == "__metadata__") continue;
    MILLRACE_ASSIGN(SafeTensor tensor, read_entry(path, name, entry, data_bytes));
    header.tensors.push_back(std::move(tensor));
  }
  MILLRACE_TRY(check_tiling(path, header.tensors, data_bytes));
  for (SafeTensor& tensor : header.tensors) tensor.offset_bytes += header.header_bytes;
  return header;
}

}  // namespace millrace
