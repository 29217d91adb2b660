#include "prefetch/routing_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "io/errno_text.h"
#include "io/write_file.h"
#include "runtime/base/check.h"
#include "runtime/base/limits.h"

namespace millrace {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{64} << 10;
// An expert and a weight take at most 11 + 14 characters, the numbers before them 20 each.
constexpr std::size_t row_bytes_max = 4 * 21 + limits::experts_used_max * 28 + 8;
static_assert(row_bytes_max < buffer_bytes);

// One line, whatever the model calls itself.
std::string word(const std::string& text) {
  std::string made = text.empty() ? "unknown" : text;
  std::replace_if(
      made.begin(), made.end(), [](char c) { return static_cast<unsigned char>(c) <= ' '; }, '-');
  return made;
}

}  // namespace

Result<std::unique_ptr<RoutingTrace>> RoutingTrace::create(const std::string& path,
                                                           const RoutingTraceHeader& header) {
  std::FILE* const file = std::fopen(path.c_str(), "we");
  if (file == nullptr)
    return Error{ErrorCode::io, fmt::format("{}: cannot be written: {}", path, errno_text(errno))};
  std::setvbuf(file, nullptr, _IONBF, 0);  // blocks are gathered here
  std::unique_ptr<RoutingTrace> trace(new RoutingTrace(path, file));
  std::string head =
      fmt::format("# model={} arch={} n_layer={} n_expert={} n_expert_used={}", word(header.model),
                  word(header.architecture), header.layers, header.experts, header.experts_used);
  if (!header.expert_bytes.empty())
    head += fmt::format(" expert_bytes={}", fmt::join(header.expert_bytes, ","));
  if (header.batch_tokens != 0) head += fmt::format(" batch={}", header.batch_tokens);
  head += "\nturn,phase,step,layer,experts,weights\n";
  if (std::fwrite(head.data(), 1, head.size(), file) != head.size()) {
    trace->errno_ = errno;
    return trace->finish().error();
  }
  return trace;
}

RoutingTrace::RoutingTrace(std::string path, std::FILE* file)
    : path_(std::move(path)), file_(file), buffer_(buffer_bytes) {}

RoutingTrace::~RoutingTrace() { static_cast<void>(finish()); }

void RoutingTrace::record(std::uint32_t turn, RoutingPhase phase, std::uint64_t step,
                          LayerIndex layer, std::span<const ExpertIndex> experts,
                          std::span<const float> weights) noexcept {
  MILLRACE_CHECK(experts.size() == weights.size() && experts.size() <= limits::experts_used_max);
  if (buffer_bytes - used_ < row_bytes_max) flush();
  char* const begin = buffer_.data() + used_;
  char* out =
      fmt::format_to(begin, "{},{},{},{},", turn, static_cast<unsigned>(phase), step, layer);
  for (std::size_t i = 0; i < experts.size(); ++i)
    out = fmt::format_to(out, "{}{}", i > 0 ? " " : "", experts[i]);
  *out++ = ',';
  for (std::size_t i = 0; i < weights.size(); ++i)
    out = fmt::format_to(out, "{}{:.6g}", i > 0 ? " " : "", weights[i]);
  *out++ = '\n';
  used_ += static_cast<std::size_t>(out - begin);
}

void RoutingTrace::flush() noexcept {
  if (errno_ == 0 && used_ > 0 && file_ != nullptr &&
      std::fwrite(buffer_.data(), 1, used_, file_) != used_)
    errno_ = errno;
  used_ = 0;
}

Status RoutingTrace::finish() noexcept {
  if (file_ != nullptr) {
    flush();
    if (std::fclose(file_) != 0 && errno_ == 0) errno_ = errno;
    file_ = nullptr;
    if (errno_ != 0) remove_unfinished(path_);
  }
  if (errno_ != 0)
    return Error{ErrorCode::io, fmt::format("{}: write failed: {}", path_, errno_text(errno_))};
  return {};
}

}  // namespace millrace
