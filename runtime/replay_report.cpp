// What a replay and a trace look like as text and as JSON.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/counted.h"
#include "runtime/base/log.h"
#include "runtime/plot/plot.h"
#include "runtime/replay_study.h"

namespace millrace {

namespace {

std::string capacity_text(const SizeSpec& size) {
  if (size.kind == SizeSpec::Kind::percent) return fmt::format("{:g}%", size.percent);
  return size.kind == SizeSpec::Kind::all ? "all" : format_bytes(size.bytes);
}

double fraction(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string model_line(const RoutingTraceHeader& trace) {
  return fmt::format("{} ({}): {}, {} of {}", printable(trace.model), printable(trace.architecture),
                     counted(trace.layers, "layer"), trace.experts_used,
                     counted(trace.experts, "expert"));
}

}  // namespace

std::string replay_table(const ReplayStudy& study) {
  std::string text = fmt::format("{}, pool {}; {}, the last {} after warm-up\n",
                                 model_line(study.trace), format_bytes(study.pool_bytes),
                                 counted(study.tokens, "token"), study.warm_tokens);
  if (!study.note.empty()) text += "note: " + study.note + "\n";
  if (!study.priced_by.empty()) text += "priced by: " + study.priced_by + "\n";
  text += fmt::format("{:>8} {:>7} {:<9} {:>6} {:>6} {:>7} {:>9} {:>8} {:>10}{}\n", "capacity",
                      "slots", "policy", "cold", "warm", "compul.", "recovered", "shuffled",
                      "read/token", study.priced ? "  tokens/s (range)" : "");
  for (const ReplayRow& row : study.rows) {
    text += fmt::format("{:>8} {:>7} {:<9} {:>6.1f} {:>6.1f} {:>7.1f} {:>9.1f} {:>8.1f} {:>10}",
                        capacity_text(row.capacity), row.slots, row.policy, 100 * row.hit_rate,
                        100 * row.warm_hit_rate, 100 * row.warm_compulsory_rate,
                        100 * row.recovered, 100 * row.shuffled_hit_rate,
                        format_bytes(static_cast<std::uint64_t>(row.bytes_per_token)));
    if (study.priced)
      text += fmt::format("  {:.2f} ({:.2f} to {:.2f})", row.tokens_per_second,
                          row.tokens_per_second_low, row.tokens_per_second_high);
    if (row.priced_slots < row.slots)
      text += fmt::format(", with {}", counted(row.priced_slots, "slot"));
    text += '\n';
  }
  const bool guesses = std::any_of(study.rows.begin(), study.rows.end(), [](const ReplayRow& row) {
    return row.priced_slots < row.slots;
  });
  if (guesses)
    text +=
        "with N slots: what is read and how fast is of these, guesses take the others; hits are "
        "of all\n";
  return text +
         "cold, warm: hits in % of requests, of all tokens and after warm-up; compul.: first\n"
         "requests, which always miss; recovered: of the way from lru to belady (clairvoyant), "
         "in %;\n"
         "shuffled: warm, with the tokens in random order\n";
}

Json replay_json(const ReplayStudy& study) {
  Json rows = Json::array();
  for (const ReplayRow& row : study.rows) {
    Json item = Json::object();
    item.set("capacity", capacity_text(row.capacity)).set("policy", row.policy);
    item.set("cache_bytes", row.cache_bytes).set("slots", row.slots);
    item.set("requests", row.requests).set("hits", row.hits);
    item.set("misses", row.requests - row.hits).set("compulsory", row.compulsory);
    item.set("prompt_hits", row.prompt_hits).set("prompt_misses", row.prompt_misses);
    item.set("decode_hits", row.decode_hits).set("decode_misses", row.decode_misses);
    item.set("hit_rate", row.hit_rate).set("warm_hit_rate", row.warm_hit_rate);
    item.set("warm_compulsory_rate", row.warm_compulsory_rate);
    item.set("shuffled_hit_rate", row.shuffled_hit_rate).set("recovered", row.recovered);
    item.set("bytes_per_token", row.bytes_per_token).set("priced_slots", row.priced_slots);
    const auto price = [&](const char* key, double value) {
      item.set(key, study.priced ? Json(value) : Json());
    };
    price("tokens_per_second_low", row.tokens_per_second_low);
    price("tokens_per_second", row.tokens_per_second);
    price("tokens_per_second_high", row.tokens_per_second_high);
    rows.push(std::move(item));
  }
  Json json = Json::object();
  json.set("model", printable(study.trace.model)).set("tokens", study.tokens);
  json.set("warm_tokens", study.warm_tokens).set("pool_bytes", study.pool_bytes);
  json.set("note", study.note.empty() ? Json() : Json(study.note));
  json.set("priced_by", study.priced_by.empty() ? Json() : Json(study.priced_by));
  return json.set("rows", std::move(rows));
}

std::string replay_svg(const ReplayStudy& study) {
  plot::LinePlot picture;
  picture.title = fmt::format("{} by cache size: {}", study.priced ? "Tokens per second" : "Hits",
                              printable(study.trace.model));
  picture.subtitle = fmt::format(
      "a recorded routing of {}, replayed; pool {}; dashed: the "
      "best possible",
      counted(study.tokens, "token"), format_bytes(study.pool_bytes));
  picture.x_title = "cache in GiB";
  picture.y_title = study.priced ? "tokens/s" : "hits in %";
  for (const ReplayRow& row : study.rows) {
    auto& all = picture.series;
    auto series = std::find_if(all.begin(), all.end(),
                               [&](const plot::Series& one) { return one.name == row.policy; });
    if (series == all.end())
      series = all.insert(all.end(), {row.policy, {}, row.policy == "belady", {}});
    series->points.push_back({static_cast<double>(row.cache_bytes) / static_cast<double>(GiB),
                              study.priced ? row.tokens_per_second : 100 * row.warm_hit_rate});
  }
  for (plot::Series& series : picture.series) std::sort(series.points.begin(), series.points.end());
  return plot::line_plot_svg(picture);
}

TraceSummary summarise(const RoutingRecord& record) {
  TraceSummary made;
  const RoutingTraceHeader& header = record.header;
  std::vector<std::uint64_t> uses(std::size_t{header.layers} * header.experts, 0);
  std::vector<bool> routed(header.layers, false);
  std::vector<const RoutingRow*> before(header.layers, nullptr);
  std::uint64_t repeated = 0, comparable = 0;
  const LayerIndex first_layer = record.rows.front().layer;
  for (const RoutingRow& row : record.rows) {
    routed[row.layer] = true;
    const bool decode = row.phase == RoutingPhase::generation;
    if (row.layer == first_layer) ++(decode ? made.decode_tokens : made.prompt_tokens);
    const RoutingRow*& last = before[row.layer];
    const auto experts = record.experts_of(row);
    made.choices += row.count;
    for (const ExpertIndex expert : experts) {
      ++uses[std::size_t{row.layer} * header.experts + expert];
      if (last == nullptr || !decode || last->turn != row.turn) continue;
      const auto others = record.experts_of(*last);
      ++comparable;
      repeated += std::find(others.begin(), others.end(), expert) != others.end() ? 1 : 0;
    }
    last = &row;
  }
  made.reuse = fraction(repeated, comparable);
  made.experts_all =
      static_cast<std::uint64_t>(std::count(routed.begin(), routed.end(), true)) * header.experts;
  std::sort(uses.rbegin(), uses.rend());
  std::uint64_t top = 0;
  for (std::size_t i = 0; i < made.experts_all; ++i) {
    made.experts_seen += uses[i] > 0 ? 1 : 0;
    if (i * 10 < made.experts_all) top += uses[i];
  }
  made.top_tenth = fraction(top, made.choices);
  return made;
}

std::string summary_table(const RoutingRecord& record, const TraceSummary& summary) {
  std::string reuse;
  if (summary.decode_tokens > 0)
    reuse = fmt::format("reuse: {:.1f} % of a decoded token's experts were the last token's too\n",
                        100 * summary.reuse);
  return fmt::format(
      "{}\n{}, {} decoded; {}\n{}"
      "skew: a tenth of the experts got {:.1f} % of the choices; {} of {} were chosen at all\n",
      model_line(record.header), counted(summary.prompt_tokens, "token", "of prompt"),
      summary.decode_tokens, counted(summary.choices, "choice"), reuse, 100 * summary.top_tenth,
      summary.experts_seen, summary.experts_all);
}

Json summary_json(const RoutingRecord& record, const TraceSummary& summary) {
  Json json = Json::object();
  json.set("model", printable(record.header.model)).set("layers", record.header.layers);
  json.set("experts", record.header.experts).set("experts_used", record.header.experts_used);
  json.set("prompt_tokens", summary.prompt_tokens).set("decode_tokens", summary.decode_tokens);
  json.set("choices", summary.choices).set("reuse", summary.reuse);
  json.set("top_tenth_share", summary.top_tenth).set("experts_seen", summary.experts_seen);
  return json.set("experts_all", summary.experts_all);
}

}  // namespace millrace
