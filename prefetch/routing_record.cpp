#include "prefetch/routing_record.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "io/errno_text.h"
#include "prefetch/routing_walks.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"

namespace millrace {
namespace {

constexpr std::string_view own_columns = "turn,phase,step,layer,experts,weights";
constexpr std::string_view other_columns = "seq,pos,token,layer,e0";

// Takes a line apart, one field after the other.
class Fields {
 public:
  explicit Fields(std::string_view line) : rest_(line) {}
  std::optional<std::string_view> next(char separator = ',') {
    if (over_) return std::nullopt;
    const std::size_t at = rest_.find(separator);
    const std::string_view field = rest_.substr(0, at);
    over_ = at == std::string_view::npos;
    rest_ = over_ ? std::string_view() : rest_.substr(at + 1);
    return field;
  }
  bool over() const { return over_; }

 private:
  std::string_view rest_;
  bool over_ = false;
};

template <class Number>
bool to_number(std::string_view text, Number& number) {
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failure == std::errc() && end == text.data() + text.size();
}

template <class Number>
bool next_number(Fields& fields, Number& number) {
  const auto field = fields.next();
  return field && to_number(*field, number);
}

class Parser {
 public:
  explicit Parser(const std::string& name) : name_(name) {}

  // The next part of the text, cut anywhere. Of lines only one that is not whole yet is kept.
  Status feed(std::string_view part) {
    while (!part.empty()) {
      const std::size_t end = part.find('\n');
      const bool whole = end != std::string_view::npos;
      const std::string_view piece = part.substr(0, end);
      part.remove_prefix(whole ? end + 1 : part.size());
      if (begun_.size() + piece.size() > line_bytes_max) {
        ++line_;
        return wrong(fmt::format("longer than {} bytes: this is no routing trace", line_bytes_max));
      }
      if (whole && begun_.empty()) {
        MILLRACE_TRY(take_line(piece));
      } else {
        begun_ += piece;
        if (whole) MILLRACE_TRY(take_begun());
      }
    }
    return {};
  }

  Result<RoutingRecord> finish() {
    if (!begun_.empty()) {
      if (!begins_well()) MILLRACE_TRY(take_begun());
      ++line_;
      return wrong("the line does not end: the file was cut off there");
    }
    if (line_ == 0) return Error{ErrorCode::usage, fmt::format("{} is empty", name_)};
    if (record_.rows.empty()) return wrong("there are no rows");
    complete_header();
    return std::move(record_);
  }

 private:
  Error wrong(const std::string& what) const {
    return {ErrorCode::usage, fmt::format("{}:{}: {}", name_, line_, what)};
  }

  // Whether the line that does not end may be that of a trace.
  bool begins_well() const {
    return columns_ != 0 || begun_.front() == '#' || own_columns.starts_with(begun_) ||
           other_columns.starts_with(begun_) || begun_.starts_with(other_columns);
  }

  Status take_begun() {
    const std::string line = std::exchange(begun_, {});
    return line.empty() ? Status() : take_line(line);
  }

  Status take_line(std::string_view line) {
    if (++line_ > lines_max) return wrong(fmt::format("more than {} lines", lines_max));
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line.empty() ? Status() : take(line);
  }

  Status take(std::string_view line) {
    if (line.front() == '#') return comment(line.substr(1));
    if (columns_ == 0) return columns(line);
    return row(line);
  }

  // "model=… n_layer=…": known words are taken, others left alone.
  Status comment(std::string_view line) {
    Fields words(line);
    while (const auto word = words.next(' ')) {
      const std::size_t at = word->find('=');
      if (at == std::string_view::npos) continue;
      const std::string_view key = word->substr(0, at);
      const std::string_view value = word->substr(at + 1);
      RoutingTraceHeader& to = record_.header;
      bool understood = true;
      if (key == "model") to.model = std::string(value);
      else if (key == "arch") to.architecture = std::string(value);
      else if (key == "n_layer") understood = bounded(value, limits::layers_max, to.layers);
      else if (key == "n_expert") understood = bounded(value, limits::experts_max, to.experts);
      else if (key == "n_expert_used")
        understood = bounded(value, limits::experts_used_max, to.experts_used);
      else if (key == "batch")
        understood = bounded(value, limits::batch_tokens_max, to.batch_tokens);
      else if (key == "expert_bytes") understood = sizes(value);
      if (!understood)
        return wrong(fmt::format("{}={}: no such number is possible", key, printable(value)));
    }
    return {};
  }

  static bool bounded(std::string_view text, std::uint32_t most, std::uint32_t& number) {
    return to_number(text, number) && number >= 1 && number <= most;
  }
  bool sizes(std::string_view text) {
    Fields list(text);
    record_.header.expert_bytes.clear();
    while (const auto item = list.next()) {
      std::uint64_t bytes = 0;
      if (!to_number(*item, bytes) || bytes == 0 || bytes > limits::segment_bytes_max) return false;
      record_.header.expert_bytes.push_back(bytes);
    }
    return true;
  }

  Status columns(std::string_view line) {
    columns_ = 1 + static_cast<std::size_t>(std::count(line.begin(), line.end(), ','));
    if (line == own_columns) return {};
    other_ = line.starts_with(other_columns) && columns_ % 2 == 0 && columns_ >= 6;
    if (!other_ || (columns_ - 4) / 2 > limits::experts_used_max)
      return wrong(fmt::format("is no routing trace: its columns must be \"{}\" or \"{},…,w0,…\"",
                               own_columns, other_columns));
    return {};
  }

  Status row(std::string_view line) {
    RoutingRow made;
    made.first = static_cast<std::uint32_t>(record_.experts.size());
    if (record_.experts.size() > choices_max || record_.rows.size() >= rows_max)
      return wrong(fmt::format("more than {} rows or {} choices", rows_max, choices_max));
    Fields fields(line);
    MILLRACE_TRY(other_ ? other_row(fields, made) : own_row(fields, made));
    if (!fields.over()) return wrong("more fields than columns");
    made.count = static_cast<std::uint32_t>(record_.experts.size()) - made.first;
    if (made.layer >= limits::layers_max)
      return wrong(fmt::format("layer {}: at most {}", made.layer, limits::layers_max - 1));
    record_.rows.push_back(made);
    MILLRACE_TRY(check_experts(made));
    return check_place(made);
  }

  Status own_row(Fields& fields, RoutingRow& made) {
    unsigned phase = 0;
    if (!next_number(fields, made.turn) || !next_number(fields, phase) || phase > 1 ||
        !next_number(fields, made.step) || !next_number(fields, made.layer))
      return wrong("turn, phase (0 or 1), step and layer must be numbers");
    made.phase = static_cast<RoutingPhase>(phase);
    Fields experts(fields.next().value_or(""));
    Fields weights(fields.next().value_or(""));
    while (const auto expert = experts.next(' ')) {
      if (expert->empty() && experts.over() && record_.experts.size() == made.first)
        return wrong("there are no experts");
      MILLRACE_TRY(expert_and_weight(*expert, weights.next(' ')));
    }
    if (!weights.over()) return wrong("more weights than experts");
    return {};
  }

  Status expert_and_weight(std::string_view expert, std::optional<std::string_view> weight) {
    ExpertIndex index = 0;
    float number = 0;
    if (!to_number(expert, index))
      return wrong(fmt::format("expert {}: must be a number from 0 to {}", printable(expert),
                               limits::experts_max - 1));
    if (!weight || weight->empty()) return wrong("fewer weights than experts");
    if (!to_number(*weight, number))
      return wrong(fmt::format("weight {}: must be a decimal number that a float can hold",
                               printable(*weight)));
    record_.experts.push_back(index);
    record_.weights.push_back(number);
    return {};
  }

  Status other_row(Fields& fields, RoutingRow& made) {
    std::uint64_t token = 0;
    if (!next_number(fields, made.turn) || !next_number(fields, made.step) ||
        !next_number(fields, token) || !next_number(fields, made.layer))
      return wrong("seq, pos, token and layer must be numbers");
    made.phase = RoutingPhase::generation;
    const std::size_t used = (columns_ - 4) / 2;
    for (std::size_t i = 0; i < 2 * used; ++i) {
      ExpertIndex expert = 0;
      float weight = 0;
      if (!(i < used ? next_number(fields, expert) : next_number(fields, weight)))
        return wrong(fmt::format("column {} must be a number", 5 + i));
      if (i < used) record_.experts.push_back(expert);
      else record_.weights.push_back(weight);
    }
    return {};
  }

  Status check_experts(const RoutingRow& row) const {
    const auto experts = record_.experts_of(row);
    if (experts.size() > limits::experts_used_max)
      return wrong(fmt::format("{} experts: at most {}", experts.size(), limits::experts_used_max));
    for (std::size_t i = 0; i < experts.size(); ++i) {
      if (experts[i] >= limits::experts_max)
        return wrong(fmt::format("expert {}: at most {}", experts[i], limits::experts_max - 1));
      for (std::size_t j = 0; j < i; ++j)
        if (experts[i] == experts[j]) return wrong(fmt::format("expert {} twice", experts[i]));
    }
    for (const float weight : record_.weights_of(row))
      if (!std::isfinite(weight) || weight < 0)
        return wrong(fmt::format("weight {}: must be finite and not negative", weight));
    const std::uint32_t others = record_.rows.front().count;
    if (row.count == others) return {};
    return wrong(fmt::format("experts of this row: {}, of the first one: {}", row.count, others));
  }

  // Against the first line, and against the rows before.
  Status check_place(const RoutingRow& row) {
    const RoutingTraceHeader& header = record_.header;
    const auto within = [](std::uint32_t index, std::uint32_t count) {
      return count == 0 || index < count;
    };
    const auto experts = record_.experts_of(row);
    const ExpertIndex highest = *std::max_element(experts.begin(), experts.end());
    if (header.experts_used != 0 && row.count != header.experts_used)
      return wrong(fmt::format("experts of this row: {}, by the first line: n_expert_used={}",
                               row.count, header.experts_used));
    if (!within(row.layer, header.layers) || !within(highest, header.experts))
      return wrong(
          fmt::format("step {} layer {} (expert {}) is outside of what its first line says: "
                      "n_layer {}, n_expert {} (0: not said)",
                      row.step, row.layer, highest, header.layers, header.experts));
    const bool own_recording = header.batch_tokens != 0;  // has all tokens in the last layer too
    const std::string out_of_order =
        walks_.take(row, own_recording || row.layer + 1 < header.layers);
    return out_of_order.empty() ? Status() : wrong(out_of_order);
  }

  void complete_header() {
    RoutingTraceHeader& header = record_.header;
    if (header.model.empty()) header.model = "unknown";
    if (header.architecture.empty()) header.architecture = "unknown";
    std::uint32_t layers = 0, experts = 0, used = 0;
    for (const RoutingRow& row : record_.rows) {
      layers = std::max(layers, row.layer + 1);
      used = std::max(used, row.count);
    }
    for (const ExpertIndex expert : record_.experts) experts = std::max(experts, expert + 1);
    record_.sized = header.layers != 0 && header.experts != 0;
    if (header.layers == 0) header.layers = layers;
    if (header.experts == 0) header.experts = experts;
    if (header.experts_used == 0) header.experts_used = used;
  }

  // What a file may make of memory, however small it is when compressed.
  static constexpr std::size_t rows_max = std::size_t{1} << 24;
  static constexpr std::uint64_t lines_max = 2 * rows_max;
  static constexpr std::size_t choices_max = std::size_t{1} << 27;
  static constexpr std::size_t line_bytes_max = std::size_t{1} << 16;
  std::string begun_;  // a line whose end has not come yet
  const std::string& name_;
  std::uint64_t line_ = 0;
  std::size_t columns_ = 0;
  bool other_ = false;
  RoutingWalks walks_;
  RoutingRecord record_;
};

// What zlib says is wrong; it names the file in front, as callers do.
std::string gzip_cause(gzFile file, const std::string& path, int& code) {
  std::string cause = gzerror(file, &code);
  if (cause.starts_with(path + ": ")) cause.erase(0, path.size() + 2);
  return cause;
}

struct CloseGzip {
  void operator()(gzFile file) const noexcept { gzclose_r(file); }
};

}  // namespace

Result<RoutingRecord> parse_routing(std::string_view text, const std::string& name) {
  Parser parser(name);
  MILLRACE_TRY(parser.feed(text));
  return parser.finish();
}

Result<RoutingRecord> read_routing(const std::string& path, const std::atomic<bool>* cancel) {
  const std::unique_ptr<gzFile_s, CloseGzip> file(gzopen(path.c_str(), "rb"));
  if (file == nullptr)
    return Error{ErrorCode::io,
                 fmt::format("{}: {}", path, errno_text(errno != 0 ? errno : ENOMEM))};
  constexpr std::size_t text_bytes_max = std::size_t{1} << 30;
  std::size_t text_bytes = 0;
  Parser parser(path);
  std::vector<char> part(std::size_t{1} << 18);
  for (;;) {
    const int count = gzread(file.get(), part.data(), static_cast<unsigned>(part.size()));
    if (cancel != nullptr && cancel->load()) return Error{ErrorCode::cancelled, "interrupted"};
    if (count < 0) {
      int code = 0;
      const std::string cause = gzip_cause(file.get(), path, code);
      return Error{ErrorCode::io,
                   fmt::format("{}: {}", path, code == Z_ERRNO ? errno_text(errno) : cause)};
    }
    text_bytes += static_cast<std::size_t>(count);
    if (text_bytes > text_bytes_max)
      return Error{ErrorCode::usage, fmt::format("{}: more than 1 GiB of text", path)};
    if (count == 0) {
      int code = Z_OK;
      const std::string cause = gzip_cause(file.get(), path, code);
      if (code == Z_BUF_ERROR) return Error{ErrorCode::io, fmt::format("{}: {}", path, cause)};
      return parser.finish();
    }
    MILLRACE_TRY(parser.feed({part.data(), static_cast<std::size_t>(count)}));
  }
}

Status write_routing(const RoutingRecord& record, const std::string& path) {
  MILLRACE_ASSIGN(const auto trace, RoutingTrace::create(path, record.header));
  for (const RoutingRow& row : record.rows)
    trace->record(row.turn, row.phase, row.step, row.layer, record.experts_of(row),
                  record.weights_of(row));
  return trace->finish();
}

std::vector<RoutingCall> routing_calls(const RoutingRecord& record) {
  const bool one_layer = std::all_of(record.rows.begin(), record.rows.end(), [&](const auto& row) {
    return row.layer == record.rows.front().layer;
  });
  const std::uint32_t known = record.header.batch_tokens;
  const std::uint32_t batch_max = known != 0 ? known : one_layer ? 1 : limits::batch_tokens_max;
  std::vector<RoutingCall> calls;
  std::array<std::int32_t, limits::experts_max> place;
  const RoutingRow* before = nullptr;
  for (const RoutingRow& row : record.rows) {
    const bool goes_on = before != nullptr && row.phase == RoutingPhase::prompt &&
                         before->phase == row.phase && before->turn == row.turn &&
                         before->layer == row.layer && before->step + 1 == row.step &&
                         calls.back().tokens < batch_max;
    if (!goes_on) {
      calls.emplace_back();
      calls.back().layer = row.layer;
      calls.back().phase = row.phase;
      place.fill(-1);
    }
    before = &row;
    RoutingCall& call = calls.back();
    ++call.tokens;
    for (const ExpertIndex expert : record.experts_of(row)) {
      if (place[expert] < 0) {
        place[expert] = static_cast<std::int32_t>(call.experts.size());
        call.experts.push_back(expert);
        call.chosen_by.push_back(0);
      }
      ++call.chosen_by[static_cast<std::size_t>(place[expert])];
    }
  }
  return calls;
}

}  // namespace millrace
