#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/counted.h"
#include "runtime/base/units.h"
#include "runtime/estimate/estimate.h"

namespace millrace {

namespace {

std::string speed_text(double tokens_per_second) {
  return fmt::format("{:.{}f}", tokens_per_second, tokens_per_second < 10 ? 2 : 0);
}

// What is free, and what lacks for a file that is not there yet.
std::string free_text(const Estimate& estimate) {
  const std::string text = format_bytes(estimate.disk_free_bytes) + " free";
  if (estimate.on_disk || estimate.disk_free_bytes >= estimate.file_bytes) return text;
  return text + fmt::format(": not enough, {} short",
                            format_bytes(estimate.file_bytes - estimate.disk_free_bytes));
}

std::string budget_row(const Estimate& estimate, std::size_t index) {
  const Budget& budget = estimate.budgets[index];
  const std::string ram =
      format_bytes(budget.ram_bytes) + (index == estimate.here ? " (here)" : "");
  if (!budget.refused.empty())
    return fmt::format("  {:>18}  too little: {}\n", ram, budget.refused);
  const Prediction& prediction = budget.prediction;
  const std::string hits = estimate.experts == 0
                               ? "-"
                               : fmt::format("{:.0f} to {:.0f} %", 100 * prediction.hits.low,
                                             100 * prediction.hits.high);
  return fmt::format("  {:>18} {:>10} {:>10} {:>14} {:>12} {:>8} {:>18}  {}\n", ram,
                     format_bytes(budget.plan.trunk.total_bytes()),
                     format_bytes(budget.plan.slots.mapped_bytes), hits,
                     format_bytes(static_cast<std::uint64_t>(prediction.drive_bytes_per_token)),
                     speed_text(prediction.middle),
                     speed_text(prediction.low) + " to " + speed_text(prediction.high),
                     binds_name(prediction.binds));
}

Json budget_json(const Budget& budget) {
  Json json = Json::object().set("ram_bytes", budget.ram_bytes);
  if (!budget.refused.empty()) return json.set("refused", budget.refused);
  const Prediction& prediction = budget.prediction;
  return json.set("refused", Json())
      .set("plan_bytes", budget.plan.total_bytes())
      .set("trunk_bytes", budget.plan.trunk.total_bytes())
      .set("cache_bytes", budget.plan.slots.mapped_bytes)
      .set("hit_rate_low", prediction.hits.low)
      .set("hit_rate", prediction.hits.middle)
      .set("hit_rate_high", prediction.hits.high)
      .set("drive_bytes_per_token", prediction.drive_bytes_per_token)
      .set("memory_bytes_per_token", prediction.memory_bytes_per_token)
      .set("tokens_per_second_low", prediction.low)
      .set("tokens_per_second", prediction.middle)
      .set("tokens_per_second_high", prediction.high)
      .set("binds", binds_name(prediction.binds));
}

}  // namespace

std::string estimate_table(const Estimate& estimate) {
  std::string text = fmt::format("  model      {} ({}), {}", estimate.name, estimate.architecture,
                                 counted(estimate.layers, "layer"));
  if (estimate.experts > 0)
    text += fmt::format(", {} of {} of {} each", estimate.experts_used,
                        counted(estimate.experts, "expert"), format_bytes(estimate.expert_bytes));
  text += fmt::format("\n  disk       {} ({} of experts, {} of trunk); {}\n",
                      format_bytes(estimate.file_bytes), format_bytes(estimate.pool_bytes),
                      format_bytes(estimate.trunk_bytes), free_text(estimate));
  text +=
      fmt::format("  drive      {}: {:.2f} GB/s ({:.2f} to {:.2f}){}\n", estimate.drive_name,
                  estimate.drive.middle / 1e9, estimate.drive.low / 1e9, estimate.drive.high / 1e9,
                  estimate.drive_from.empty() ? "" : "; " + estimate.drive_from);
  text += fmt::format(
      "  compute    {}: memory {:.1f} GB/s, experts' weights {:.1f}, trunk's {:.1f}\n",
      counted(estimate.speed.threads, "thread"), estimate.speed.memory_bytes_per_second / 1e9,
      estimate.speed.expert_bytes_per_second / 1e9, estimate.speed.trunk_bytes_per_second / 1e9);
  text += fmt::format("  preset     {}\n", estimate.preset);
  if (!estimate.busy.empty())
    text += fmt::format("  busy       other programs keep {} busy now: speeds come out too low\n",
                        estimate.busy);
  text += "\n";
  text += fmt::format("  {:>18} {:>10} {:>10} {:>14} {:>12} {:>8} {:>18}  {}\n", "memory", "trunk",
                      "cache", "hits", "read/token", "tokens/s", "range", "binds");
  for (std::size_t i = 0; i < estimate.budgets.size(); ++i) text += budget_row(estimate, i);
  text += "\n";
  for (const std::string& assumption : estimate.assumptions)
    text += "  assumed    " + assumption + "\n";
  return text;
}

Json estimate_json(const Estimate& estimate) {
  Json budgets = Json::array();
  for (const Budget& budget : estimate.budgets) budgets.push(budget_json(budget));
  Json assumptions = Json::array();
  for (const std::string& assumption : estimate.assumptions) assumptions.push(assumption);
  const Json model = Json::object()
                         .set("name", estimate.name)
                         .set("architecture", estimate.architecture)
                         .set("layers", estimate.layers)
                         .set("experts", estimate.experts)
                         .set("experts_used", estimate.experts_used)
                         .set("expert_bytes", estimate.expert_bytes)
                         .set("pool_bytes", estimate.pool_bytes)
                         .set("trunk_bytes", estimate.trunk_bytes)
                         .set("complete", estimate.complete);
  const Json drive =
      Json::object()
          .set("name", estimate.drive_name)
          .set("measured", estimate.drive.measured)
          .set("bytes_per_second_low", estimate.drive.low)
          .set("bytes_per_second", estimate.drive.middle)
          .set("bytes_per_second_high", estimate.drive.high)
          .set("bytes_per_second_now", estimate.drive_now > 0 ? Json(estimate.drive_now) : Json())
          .set("from", estimate.drive_from);
  const Json compute = Json::object()
                           .set("threads", estimate.speed.threads)
                           .set("memory_bytes_per_second", estimate.speed.memory_bytes_per_second)
                           .set("expert_bytes_per_second", estimate.speed.expert_bytes_per_second)
                           .set("trunk_bytes_per_second", estimate.speed.trunk_bytes_per_second);
  return Json::object()
      .set("model", model)
      .set("disk", Json::object()
                       .set("needed_bytes", estimate.file_bytes)
                       .set("free_bytes", estimate.disk_free_bytes))
      .set("drive", drive)
      .set("compute", compute)
      .set("ram_available_bytes", estimate.ram_available)
      .set("preset", estimate.preset)
      .set("busy", estimate.busy.empty() ? Json() : Json(estimate.busy))
      .set("budgets", std::move(budgets))
      .set("assumptions", std::move(assumptions));
}

}  // namespace millrace
