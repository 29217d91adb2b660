#include "tests/support/gguf_builder.h"

namespace millrace::testing {

namespace {

void pad(std::string& bytes, std::uint64_t alignment) {
  while (bytes.size() % alignment != 0) bytes += '\0';
}

}  // namespace

std::string raw_string(std::string_view text) {
  return raw(static_cast<std::uint64_t>(text.size())) + std::string(text);
}

GgufBuilder& GgufBuilder::meta(std::string_view key, std::uint32_t type, std::string_view bytes) {
  pairs_ += raw_string(key) + raw(type);
  pairs_ += bytes;
  ++pair_count_;
  return *this;
}

GgufBuilder& GgufBuilder::array(std::string_view key, std::uint32_t element_type,
                                std::uint64_t count, std::string_view bytes) {
  return meta(key, meta_array, raw(element_type) + raw(count) + std::string(bytes));
}

GgufBuilder& GgufBuilder::strings(std::string_view key, const std::vector<std::string>& values) {
  std::string bytes;
  for (const std::string& value : values) bytes += raw_string(value);
  return array(key, meta_string, values.size(), bytes);
}

GgufBuilder& GgufBuilder::split(std::uint16_t index, std::uint16_t count, std::int32_t tensors) {
  return meta("split.no", meta_u16, raw(index))
      .meta("split.count", meta_u16, raw(count))
      .meta("split.tensors.count", meta_i32, raw(tensors));
}

GgufBuilder& GgufBuilder::f32_tensor(std::string_view name, const std::vector<std::uint64_t>& ne) {
  std::uint64_t elements = 1;
  for (const std::uint64_t extent : ne) elements *= extent;
  BuiltTensor made;
  made.name = name;
  made.ne = ne;
  for (std::uint64_t i = 0; i < elements; ++i) made.data += raw(static_cast<float>(i));
  return tensor(std::move(made));
}

std::string GgufBuilder::header() const {
  std::string out = magic + raw(version) + raw(tensor_count.value_or(tensors_.size())) +
                    raw(key_count.value_or(pair_count_)) + pairs_;
  std::uint64_t next = 0;
  for (const BuiltTensor& tensor : tensors_) {
    out += raw(tensor.name_length.value_or(tensor.name.size())) + tensor.name;
    out += raw(tensor.dims.value_or(static_cast<std::uint32_t>(tensor.ne.size())));
    for (const std::uint64_t extent : tensor.ne) out += raw(extent);
    out += raw(tensor.type) + raw(tensor.offset.value_or(next));
    next += (tensor.data.size() + alignment - 1) / alignment * alignment;
  }
  return out;
}

std::string GgufBuilder::build() const {
  std::string out = header();
  if (tensors_.empty()) return out;
  for (const BuiltTensor& tensor : tensors_) {
    pad(out, alignment);
    out += tensor.data;
  }
  if (pad_tail) pad(out, alignment);
  return out;
}

}  // namespace millrace::testing
