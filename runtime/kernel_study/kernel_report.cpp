#include <fmt/format.h>

#include "runtime/base/counted.h"
#include "runtime/base/units.h"
#include "runtime/kernel_study/kernel_study.h"

namespace millrace {

namespace {

std::string heading(const KernelStudy& study, const ReadLimit& limit) {
  return fmt::format("  {}, {}: the read loop does {:.1f} GB/s of {}\n",
                     limit.residency == Residency::l2 ? "weights in L2" : "weights from memory",
                     counted(limit.threads, "thread"), limit.best() / 1e9,
                     format_bytes(limit.bytes)) +
         fmt::format("    {:<8} {:<11} {:>6} {:>6} {:>8} {:>8} {:>7} {:>9}  {}\n", "type", "isa",
                     "GB/s", "share", "by turns", "x scalar", "decode",
                     study.options.tokens > 1 ? fmt::format("GMA/s {}t", study.options.tokens) : "",
                     "bits");
}

// The same kernel's figure for so many tokens, or for decoding; nullptr if it was not measured.
const KernelFigure* companion(const KernelStudy& study, const KernelFigure& one,
                              std::uint32_t tokens) {
  for (const KernelFigure& figure : study.figures)
    if (figure.tokens == tokens && figure.type == one.type && figure.isa == one.isa &&
        figure.threads == one.threads && figure.residency == one.residency)
      return &figure;
  return nullptr;
}

std::string row(const KernelStudy& study, const KernelFigure& figure) {
  const KernelFigure* const many =
      study.options.tokens > 1 ? companion(study, figure, study.options.tokens) : nullptr;
  const KernelFigure* const decoder = companion(study, figure, decoding);
  const bool same = figure.same_bits && (many == nullptr || many->same_bits) &&
                    (decoder == nullptr || decoder->same_bits);
  return fmt::format(
      "    {:<8} {:<11} {:>6.2f} {:>6.2f} {:>8.2f} {:>8.1f} {:>7} {:>9}  {}\n",
      dtype_info(figure.type).name, figure.isa, figure.median() / 1e9, study.share(figure),
      KernelStudy::share_by_turns(figure), figure.median() / figure.scalar_bytes_per_second,
      decoder == nullptr ? "" : fmt::format("{:.2f}", decoder->median() / 1e9),
      many == nullptr ? "" : fmt::format("{:.1f}", many->multiply_adds_per_second() / 1e9),
      same ? "same" : "OTHER");
}

Json list_of(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push(value);
  return list;
}

Json limit_json(const ReadLimit& limit) {
  Json json = Json::object();
  json.set("residency", residency_name(limit.residency));
  json.set("threads", limit.threads);
  json.set("bytes", limit.bytes);
  json.set("best_bytes_per_second", limit.best());
  json.set("repeats_bytes_per_second", list_of(limit.bytes_per_second));
  return json;
}

Json figure_json(const KernelStudy& study, const KernelFigure& figure) {
  Json json = Json::object();
  json.set("type", dtype_info(figure.type).name);
  json.set("isa", figure.isa);
  json.set("residency", residency_name(figure.residency));
  json.set("threads", figure.threads);
  json.set("work", figure.tokens == decoding ? "decode" : "product");
  json.set("tokens", figure.tokens);
  json.set("bytes", figure.bytes);
  json.set("bytes_per_second", figure.median());
  const bool reads = figure.tokens <= 1 && !figure.sampled;
  json.set("share", reads ? Json(study.share(figure)) : Json());
  json.set("share_by_turns", reads ? Json(KernelStudy::share_by_turns(figure)) : Json());
  json.set("times_scalar", figure.median() / figure.scalar_bytes_per_second);
  json.set("multiply_adds_per_second", figure.multiply_adds_per_second());
  json.set("same_bits", figure.same_bits);
  json.set("repeats_bytes_per_second", list_of(figure.bytes_per_second));
  return json;
}

}  // namespace

std::string kernel_table_text(const KernelStudy& study) {
  std::string text;
  for (const ReadLimit& limit : study.limits) {
    if (limit.bytes_per_second.empty()) continue;  // cancelled before
    text += heading(study, limit);
    for (const KernelFigure& figure : study.figures)
      if (figure.tokens == 1 && &study.limit_of(figure) == &limit) text += row(study, figure);
  }
  text += fmt::format(
      "  {} columns, {} activations, {} of {} for weights in huge pages; medians of {}\n"
      "  share: of the best read loop; by turns: median of the ratios to the read loop just "
      "before; decode: GB/s of weights made floats\n",
      study.options.columns, study.options.float_activations ? "unrounded" : "8-bit",
      format_bytes(study.huge_bytes), format_bytes(study.mapped_bytes),
      counted(study.options.repeats, "repeat"));
  if (study.cancelled) text += "  cancelled: this is what was measured until then\n";
  return text;
}

Json kernel_study_json(const KernelStudy& study) {
  Json json = Json::object();
  json.set("compiler", "GCC-compatible " __VERSION__);
  json.set("columns", study.options.columns);
  json.set("tokens", study.options.tokens);
  json.set("repeats", study.options.repeats);
  json.set("activations", study.options.float_activations ? "f32" : "q8");
  json.set("l2_bytes", study.l2_bytes);
  json.set("memory_bytes", study.options.memory_bytes);
  json.set("huge_bytes", study.huge_bytes);
  json.set("mapped_bytes", study.mapped_bytes);
  json.set("shares_judged", study.judges_shares());
  json.set("cancelled", study.cancelled);
  Json limits = Json::array(), figures = Json::array();
  for (const ReadLimit& limit : study.limits)
    if (!limit.bytes_per_second.empty()) limits.push(limit_json(limit));
  for (const KernelFigure& figure : study.figures) figures.push(figure_json(study, figure));
  json.set("limits", std::move(limits));
  json.set("kernels", std::move(figures));
  return json;
}

}  // namespace millrace
