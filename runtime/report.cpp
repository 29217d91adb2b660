#include "runtime/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "runtime/base/counted.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"
#include "runtime/floor/floor.h"
#include "runtime/floor/floor_figures.h"
#include "runtime/machine.h"

namespace millrace {

namespace {

double seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

// Figures that both forms of the report show.
struct Figures {
  EngineCounters all;  // of the process so far, load included
  LoaderStats prompt, decode;
  std::uint64_t hits, misses;
  std::uint64_t bytes_read;
  double bytes_per_token, read_rate;
  double busy_share;  // of decode's wall time, with a read in flight
  FloorFigures floor;

  Figures(const Engine& engine, const GenerateResult& result)
      : all(engine.counters()),
        prompt(result.prompt.counters.experts),
        decode(result.decode.counters.experts),
        hits(prompt.hits + decode.hits),
        misses(prompt.misses + decode.misses),
        bytes_read(all.reads.bytes + all.small_bytes),
        bytes_per_token(result.decode.tokens == 0
                            ? 0.0
                            : static_cast<double>(result.decode.counters.reads.bytes) /
                                  static_cast<double>(result.decode.tokens)),
        read_rate(all.reads.busy_ns == 0
                      ? 0.0
                      : static_cast<double>(all.reads.bytes) / seconds(all.reads.busy_ns)),
        busy_share(result.decode.seconds > 0
                       ? seconds(result.decode.counters.reads.busy_ns) / result.decode.seconds
                       : 0.0),
        floor(floor_figures(engine, result.decode,
                            profiled_rate(engine.drives(), engine.direct()))) {}
};

Json phase_json(const PhaseReport& phase) {
  Json json = Json::object();
  json.set("tokens", phase.tokens);
  json.set("seconds", phase.seconds);
  json.set("tokens_per_second", phase.tokens_per_second());
  return json;
}

Json model_json(const ModelSpec& spec) {
  Json json = Json::object();
  json.set("architecture", spec.family->architecture);
  json.set("verified", spec.verified());
  json.set("name", printable(spec.hparams.name));
  json.set("layers", spec.hparams.layers);
  json.set("experts", spec.hparams.experts);
  json.set("experts_used", spec.hparams.experts_used);
  json.set("expert_bytes", spec.expert_bytes());
  json.set("pool_bytes", spec.experts.pool_bytes());
  json.set("trunk_bytes", spec.trunk_bytes());
  Json notes = Json::array();
  for (const std::string& note : spec.notes()) notes.push(note);
  json.set("notes", std::move(notes));
  return json;
}

double bytes_per_second(const DriveReads& drive) {
  return drive.busy_ns == 0 ? 0.0 : static_cast<double>(drive.bytes) / seconds(drive.busy_ns);
}

// What each drive delivered, and why one is left alone.
Json drives_json(const Engine& engine) {
  const std::vector<DriveReads> drives = engine.reader().drives();
  std::uint64_t bytes = 0;
  for (const DriveReads& drive : drives) bytes += drive.bytes;
  Json list = Json::array();
  for (std::size_t i = 0; i < drives.size(); ++i) {
    const DriveReads& reads = drives[i];
    const RunDrive& drive = engine.drives()[i];
    Json item = Json::object();
    item.set("path", printable(drive.path, 4096)).set("drive", drive.drive.name);
    item.set("bytes", reads.bytes).set("share", share(reads.bytes, bytes));
    item.set("bytes_per_second", bytes_per_second(reads));
    item.set("depth", reads.depth).set("piece_bytes", reads.piece_bytes);
    item.set("retries", reads.retries).set("dropped", text_or_null(reads.dropped));
    list.push(std::move(item.set("note", text_or_null(drive.note))));
  }
  return list;
}

Json io_json(const Engine& engine, const Figures& figures) {
  Json json = Json::object();
  json.set("reader", engine.reader().reader_name());
  json.set("fallback_reason", text_or_null(engine.reader().fallback_reason()));
  json.set("direct", engine.direct());
  json.set("depth", engine.reader().depth());
  json.set("registered_buffers", engine.reader().registered_buffers());
  json.set("buffers_reason", text_or_null(engine.reader().buffers_reason()));
  json.set("bytes_read", figures.bytes_read);
  json.set("kernel_read_bytes", kernel_read_bytes());
  json.set("bytes_per_token", figures.bytes_per_token);
  json.set("read_bytes_per_second", figures.read_rate);
  json.set("busy_share", figures.busy_share);
  json.set("retries", figures.all.reads.retries);
  json.set("piece_bytes", engine.reader().piece_bytes());
  json.set("depth", engine.reader().depth());
  const FloorFigures& floor = figures.floor;
  json.set("floor_bytes_per_second", floor.rate > 0 ? Json(floor.rate) : Json());
  json.set("floor_share", floor.share >= 0 ? Json(floor.share) : Json());
  json.set("floor_source", floor.source != nullptr ? Json(floor.source) : Json());
  json.set("floor_samples", floor.measured.samples);
  json.set("stripe", engine.config().stripe);
  json.set("drives", drives_json(engine));
  return json;
}

Json cache_json(const Engine& engine, const Figures& figures) {
  Json json = Json::object();
  json.set("hits", figures.hits);
  json.set("misses", figures.misses);
  json.set("hit_rate", share(figures.hits, figures.hits + figures.misses));
  json.set("decode_hit_rate",
           share(figures.decode.hits, figures.decode.hits + figures.decode.misses));
  json.set("bytes", engine.plan().slots.bytes);
  json.set("slots", engine.plan().slots.slots);
  json.set("policy", engine.policy());
  return json;
}

// Switched off, everything but the mode is null.
Json guard_json(const Engine& engine) {
  Json json = Json::object();
  if (engine.guard() == nullptr) {
    json.set("mode", "off");
    for (const char* key : {"bytes_now", "bytes_most", "bytes_least", "shrinks", "grows", "reasons",
                            "refused", "stuck", "waiting_unknown"})
      json.set(key, Json());
    return json;
  }
  const GuardFigures figures = engine.guard()->figures();
  const auto by = [&](PressureCause cause) {
    return figures.by_cause[static_cast<std::size_t>(cause)];
  };
  Json reasons = Json::object();
  reasons.set("memory_left", by(PressureCause::left))
      .set("waiting", by(PressureCause::waiting))
      .set("faults", by(PressureCause::faults));
  json.set("mode", "auto")
      .set("bytes_now", figures.bytes_now)
      .set("bytes_most", figures.bytes_most)
      .set("bytes_least", figures.bytes_least)
      .set("shrinks", figures.shrinks)
      .set("grows", figures.grows)
      .set("reasons", std::move(reasons));
  return json.set("refused", figures.refused)
      .set("stuck", figures.stuck)
      .set("waiting_unknown", text_or_null(figures.waiting_unknown));
}

// Without guesses everything but the name is null.
Json prefetch_json(const Engine& engine, const Figures& figures) {
  Json json = Json::object();
  const Prefetcher* const prefetcher = engine.prefetcher();
  json.set("predictor", prefetcher == nullptr ? "off" : prefetcher->name());
  if (prefetcher == nullptr) {
    for (const char* key : {"issued_bytes", "useful_bytes", "wasted_bytes", "recall", "precision"})
      json.set(key, Json());
    return json;
  }
  const std::uint64_t issued = figures.all.experts.guessed_bytes;
  const std::uint64_t used = std::min(issued, figures.all.experts.guesses_used_bytes);
  json.set("issued_bytes", issued).set("useful_bytes", used).set("wasted_bytes", issued - used);
  json.set("recall", prefetcher->total().recall());
  json.set("precision", prefetcher->total().precision());
  json.set("pauses", prefetcher->pauses());
  Json layers = Json::array();
  for (std::size_t layer = 0; layer < prefetcher->scores().size(); ++layer) {
    const GuessScore& score = prefetcher->scores()[layer];
    if (score.chosen == 0) continue;
    Json item = Json::object();
    item.set("layer", std::uint64_t{layer}).set("recall", score.recall());
    layers.push(std::move(item.set("precision", score.precision())));
  }
  return json.set("layers", std::move(layers));
}

}  // namespace

Json report_json(const Engine& engine, const GenerateResult& result) {
  const Figures figures(engine, result);
  Json json = Json::object();
  json.set("text", result.text);
  json.set("finish_reason", finish_reason_name(result.finish));
  if (result.error) json.set("error", result.error->what);
  json.set("seed", result.seed);
  json.set("state_hash", hash_hex(result.state_hash));
  json.set("isa", engine.kernels().name);
  json.set("threads", engine.plan().threads);
  json.set("context", engine.plan().context);
  json.set("prompt", phase_json(result.prompt));
  Json load = Json::object();
  load.set("seconds", engine.load_seconds());
  json.set("load", std::move(load));
  Json decode = phase_json(result.decode);
  const ActivityTimes& times = result.decode.counters.times;
  decode.set("compute_seconds", seconds(times.compute_ns));
  decode.set("stalled_seconds", seconds(times.stalled_ns));
  decode.set("other_seconds", seconds(times.other_ns));
  decode.set("overlapped_seconds", seconds(times.overlapped_ns));
  json.set("decode", std::move(decode));
  json.set("cache", cache_json(engine, figures));
  json.set("guard", guard_json(engine));
  json.set("prefetch", prefetch_json(engine, figures));
  json.set("io", io_json(engine, figures));
  Json memory = Json::object();
  memory.set("plan_bytes", engine.plan().total_bytes());
  memory.set("peak_rss_bytes", peak_rss_bytes());
  const PinnedMemoryStats pinned = engine.memory();
  memory.set("huge_bytes", pinned.huge_bytes);
  memory.set("locked_bytes", pinned.locked_bytes);
  memory.set("unlocked_reason", text_or_null(pinned.unlocked_reason));
  json.set("memory", std::move(memory));
  json.set("model", model_json(engine.spec()));
  Json predicted = Json::object();
  const auto& expected = engine.prediction();
  predicted.set("tokens_per_second_low", expected ? Json(expected->low) : Json());
  predicted.set("tokens_per_second_high", expected ? Json(expected->high) : Json());
  predicted.set("tokens_per_second", expected ? Json(expected->middle) : Json());
  predicted.set("drive_bytes_per_second",
                expected ? Json(expected->drive_bytes_per_second) : Json());
  predicted.set("hit_rate", expected ? Json(expected->hits.middle) : Json());
  predicted.set("binds", expected ? Json(binds_name(expected->binds)) : Json());
  predicted.set("hits_from", expected ? Json(expected->hits_from) : Json());
  predicted.set("cache_size_reason", expected ? text_or_null(expected->size_reason) : Json());
  json.set("predicted", std::move(predicted));
  return json;
}

namespace {

std::string row(std::string_view name, std::string text) {
  return fmt::format("  {:<10} {}\n", name, std::move(text));
}

std::string cache_row(const Engine& engine, const Figures& figures) {
  const std::uint64_t decode_requests = figures.decode.hits + figures.decode.misses;
  return fmt::format(
      "{} of a {} pool ({}, {}): {:.1f} % hits, {} in decode",
      format_bytes(engine.plan().slots.bytes), format_bytes(engine.spec().experts.pool_bytes()),
      counted(engine.plan().slots.slots, "slot"), engine.policy(),
      100 * share(figures.hits, figures.hits + figures.misses),
      decode_requests == 0
          ? std::string("none")
          : fmt::format("{:.1f} %", 100 * share(figures.decode.hits, decode_requests)));
}

std::string guard_row(const GuardFigures& figures) {
  std::string text = fmt::format("memory was short: pool {} now, {} at most, {} at least",
                                 format_bytes(figures.bytes_now), format_bytes(figures.bytes_most),
                                 format_bytes(figures.bytes_least));
  text += "; shrunk " + counted(figures.shrinks, "time");
  const char* join = " (";
  for (const PressureCause cause :
       {PressureCause::left, PressureCause::waiting, PressureCause::faults}) {
    const std::uint32_t times = figures.by_cause[static_cast<std::size_t>(cause)];
    if (times == 0) continue;
    text += fmt::format("{}{}: {}", join, pressure_cause_text(cause), times);
    join = ", ";
  }
  text += "), grown " + counted(figures.grows, "time");
  if (figures.refused > 0) text += ", refused " + counted(figures.refused, "time");
  return text;
}

std::string prefetch_row(const Engine& engine, const Figures& figures, std::uint64_t decoded) {
  const std::uint64_t issued = figures.all.experts.guessed_bytes;
  const std::uint64_t used = std::min(issued, figures.all.experts.guesses_used_bytes);
  const GuessScore total = engine.prefetcher()->total();
  if (engine.plan().sequences > 1 && issued == 0)
    return fmt::format("{}: nothing was read ahead: guesses are for steps of one sequence",
                       engine.prefetcher()->name());
  if (decoded == 0)
    return fmt::format("{}: {} read ahead: guesses are for decoding", engine.prefetcher()->name(),
                       issued == 0 ? "nothing was" : format_bytes(issued));
  return fmt::format(
      "{}: {} read ahead, {} of it used; {:.1f} % of the choices guessed, {:.1f} % of "
      "the guesses right, {}",
      engine.prefetcher()->name(), format_bytes(issued), format_bytes(used), 100 * total.recall(),
      100 * total.precision(), counted(engine.prefetcher()->pauses(), "pause"));
}

std::string reading_row(const Engine& engine, const Figures& figures, std::uint64_t decoded) {
  std::string text = format_bytes(figures.bytes_read) + " in all";
  if (decoded > 0)
    text += fmt::format(", {} per decoded token",
                        format_bytes(static_cast<std::uint64_t>(figures.bytes_per_token)));
  text += fmt::format(", {}/s while reading",
                      format_bytes(static_cast<std::uint64_t>(figures.read_rate)));
  text += fmt::format(" ({}{}, {}, {} pieces, depth {})", engine.reader().reader_name(),
                      engine.reader().registered_buffers() > 0 ? " with registered buffers" : "",
                      engine.direct() ? "direct" : "buffered",
                      format_bytes(engine.reader().piece_bytes()), engine.reader().depth());
  return text;
}

// One for each of several drives.
std::string drive_rows(const Engine& engine) {
  const std::vector<DriveReads> drives = engine.reader().drives();
  std::uint64_t bytes = 0;
  for (const DriveReads& drive : drives) bytes += drive.bytes;
  std::string text;
  for (std::size_t i = 0; drives.size() > 1 && i < drives.size(); ++i) {
    const DriveReads& drive = drives[i];
    text +=
        row("drive", fmt::format("{}: {}, {:.1f} %, {}/s while reading, {} pieces, depth {}",
                                 printable(drive.name, 4096), format_bytes(drive.bytes),
                                 100 * share(drive.bytes, bytes),
                                 format_bytes(static_cast<std::uint64_t>(bytes_per_second(drive))),
                                 format_bytes(drive.piece_bytes), drive.depth));
    if (!drive.dropped.empty()) text += row("note", "drive dropped: " + drive.dropped);
    if (!engine.drives()[i].note.empty()) text += row("note", engine.drives()[i].note);
  }
  return text;
}

// Why a model is not held against its drive; empty: it is.
std::string too_small(const Engine& engine) {
  if (engine.plan().measuring_bytes > 0) return {};
  const std::uint64_t pool = engine.spec().experts.pool_bytes();
  if (pool == 0) return "the model has no experts";
  return format_bytes(pool) + " of experts are too small to time the drive";
}

// Why the run has no figure of its own.
std::string not_measured(const Engine& engine) {
  if (const std::string small = too_small(engine); !small.empty()) return small;
  if (engine.plan().slots.complete) return "all experts fit into the cache";
  return "this run was too short to measure it";
}

// What `millrace floor` is to be given for the profile of a drive: a folder where the file is too
// small.
std::string path_to_measure(const std::string& path) {
  std::error_code error;
  const std::filesystem::path file(path);
  if (std::filesystem::is_directory(file, error)) return path;
  if (std::filesystem::file_size(file, error) >= floor_kept_bytes_min && !error) return path;
  const std::string folder = file.parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string unknown_floor(const Engine& engine) {
  std::string text = "not known: " + not_measured(engine);
  if (engine.plan().slots.complete) return text;
  if (!engine.direct()) return text + ", and reads through the page cache have no profile";
  const auto& drives = engine.drives();
  const auto found = std::find_if(drives.begin(), drives.end(), [](const RunDrive& drive) {
    return !drive.profile || !drive.profile->direct;
  });
  if (found == drives.end()) return text;
  return text + fmt::format(", and drive {} has no profile: `millrace floor {}` makes one",
                            found->drive.name, printable(path_to_measure(found->path), 4096));
}

std::string floor_row(const Engine& engine, const FloorFigures& floor) {
  if (floor.rate <= 0) return unknown_floor(engine);
  const std::string rate = format_bytes(static_cast<std::uint64_t>(floor.rate)) + "/s";
  std::string text =
      std::string_view(floor.source) == "reads"
          ? rate + " by the run's own reads (faster than when the drive was measured)"
      : floor.measured.samples > 0
          ? fmt::format("{} measured in this run ({}, {:.2f} s)", rate,
                        counted(floor.measured.samples, "time"), seconds(floor.measured.ns))
          : rate + " by the drive's profile (" + not_measured(engine) + ")";
  if (floor.share >= 0)
    text += fmt::format(": the missing bytes alone take {:.1f} % of the time", 100 * floor.share);
  return text;
}

std::string memory_row(const Engine& engine) {
  const PinnedMemoryStats pinned = engine.memory();
  return fmt::format("{} at the peak, plan {}; {} of {} for weights in huge pages, {} locked",
                     format_bytes(peak_rss_bytes()), format_bytes(engine.plan().total_bytes()),
                     format_bytes(pinned.huge_bytes), format_bytes(pinned.bytes),
                     format_bytes(pinned.locked_bytes));
}

// What the plan promised beside what came true.
std::string expected_speed(const Prediction& expected) {
  const std::string binds = expected.binds == Binds::compute
                                ? "computing"
                                : "the " + std::string(binds_name(expected.binds));
  return fmt::format("{:.2f} tokens/s ({:.2f} to {:.2f}), {:.0f} % hits; {} binds", expected.middle,
                     expected.low, expected.high, 100 * expected.hits.middle, binds);
}

std::string expectation_reason(const Prediction& expected) {
  std::string reason = "hits by " + expected.hits_from;
  if (expected.pace.runs > 0)
    reason +=
        fmt::format("; computing: {:.1f} ms a token, by {} {}", 1e3 * expected.pace.compute_seconds,
                    expected.pace.runs, expected.pace.runs == 1 ? "run" : "runs");
  reason += fmt::format("; drive: {:.2f} GB/s", expected.drive_bytes_per_second / 1e9);
  if (!expected.size_reason.empty()) reason += "; cache: " + expected.size_reason;
  return reason;
}

// Why there is no prediction.
std::string unpredicted(const Engine& engine) {
  const std::string small = too_small(engine);
  return "no speed: " +
         (small.empty() ? "there was no memory to measure computing with (-v says more)" : small);
}

std::string predicted_rows(const Engine& engine, const GenerateResult& result) {
  if (!engine.prediction()) return row("predicted", unpredicted(engine));
  const Prediction& expected = *engine.prediction();
  std::string speed = expected_speed(expected);
  if (result.decode.tokens > 0)
    speed += fmt::format("; achieved: {:.2f} times that",
                         result.decode.tokens_per_second() / expected.middle);
  return row("predicted", speed) + row("", expectation_reason(expected));
}

std::string decode_row(const Engine& engine, const PhaseReport& decode) {
  const std::string done =
      decode.tokens == 0
          ? "nothing was decoded"
          : fmt::format("{} in {:.3f} s: {:.1f} tokens/s", counted(decode.tokens, "token"),
                        decode.seconds, decode.tokens_per_second());
  return fmt::format("{} ({}, {})", done, engine.kernels().name,
                     counted(engine.plan().threads, "thread"));
}

std::string time_row(const PhaseReport& decode) {
  const ActivityTimes& times = decode.counters.times;
  const double whole = std::max(1e-9, decode.seconds);
  return fmt::format(
      "computing {:.1f} % (of it {:.1f} % while reading), waiting for reads {:.1f} %, other "
      "{:.1f} %",
      100 * seconds(times.compute_ns) / whole, 100 * seconds(times.overlapped_ns) / whole,
      100 * seconds(times.stalled_ns) / whole, 100 * seconds(times.other_ns) / whole);
}

// What is to be known about the model; what the system refused, and what was done instead.
std::string note_rows(const Engine& engine) {
  std::string text;
  for (const std::string& note : engine.spec().notes()) text += row("note", note);
  if (!engine.reader().fallback_reason().empty())
    text += row("note", "read with threads: " + engine.reader().fallback_reason());
  if (!engine.direct() && engine.config().direct == DirectMode::automatic)
    text += row("note",
                "read through the page cache: it is faster for what fits into memory, or direct "
                "reads are not to be had here (-v says which; --direct on insists)");
  if (!engine.reader().buffers_reason().empty())
    text += row("note", "buffers are not registered: " + engine.reader().buffers_reason());
  if (!engine.memory().unlocked_reason.empty())
    text += row("note", "memory is not locked: " + engine.memory().unlocked_reason);
  return text;
}

}  // namespace

std::string plan_table(const Engine& engine) {
  const Plan& plan = engine.plan();
  std::string text =
      row("plan", fmt::format("{} of {} that are there: {}", format_bytes(plan.total_bytes()),
                              format_bytes(plan.available_bytes), plan.describe()));
  if (!engine.prediction()) return text + row("to expect", unpredicted(engine));
  return text + row("to expect", expected_speed(*engine.prediction())) +
         row("", expectation_reason(*engine.prediction()));
}

namespace {

// All rows but the last.
std::string report_body(const Engine& engine, const GenerateResult& result) {
  const Figures figures(engine, result);
  const ModelSpec& spec = engine.spec();
  std::string model = fmt::format("{} ({}), {}", printable(spec.hparams.name),
                                  spec.family->architecture, counted(spec.hparams.layers, "layer"));
  if (spec.hparams.experts > 0)
    model += fmt::format(", {} of {} of {} each, trunk {}", spec.hparams.experts_used,
                         counted(spec.hparams.experts, "expert"), format_bytes(spec.expert_bytes()),
                         format_bytes(spec.trunk_bytes()));
  std::string text = row("model", model);
  text += row("load", fmt::format("{:.2f} s", engine.load_seconds()));
  text += row("prompt",
              fmt::format("{} in {:.3f} s: {:.1f} tokens/s", counted(result.prompt.tokens, "token"),
                          result.prompt.seconds, result.prompt.tokens_per_second()));
  text += row("decode", decode_row(engine, result.decode));
  text += predicted_rows(engine, result);
  if (result.decode.tokens > 0) text += row("time", time_row(result.decode));
  if (spec.hparams.experts > 0) text += row("cache", cache_row(engine, figures));
  if (engine.guard() != nullptr && engine.guard()->figures().shrinks > 0)
    text += row("guard", guard_row(engine.guard()->figures()));
  if (engine.prefetcher() != nullptr)
    text += row("prefetch", prefetch_row(engine, figures, result.decode.tokens));
  text += row("reading", reading_row(engine, figures, result.decode.tokens));
  text += drive_rows(engine);
  if (figures.floor.rate > 0 || spec.hparams.experts > 0)
    text += row("floor", floor_row(engine, figures.floor));
  text += row("memory", memory_row(engine));
  return text + note_rows(engine);
}

std::string finish_text(const GenerateResult& result) {
  return fmt::format("{}, seed {}, state {}", finish_reason_name(result.finish), result.seed,
                     hash_hex(result.state_hash));
}

double bytes_per_step(const ManyResult& result) {
  if (result.decode_steps == 0) return 0;
  return static_cast<double>(result.decode.counters.reads.bytes) /
         static_cast<double>(result.decode_steps);
}

Json sequence_json(const GenerateResult& result) {
  Json json = Json::object();
  json.set("text", result.text);
  json.set("finish_reason", finish_reason_name(result.finish));
  if (result.error) json.set("error", result.error->what);
  json.set("seed", result.seed);
  json.set("state_hash", hash_hex(result.state_hash));
  json.set("prompt", phase_json(result.prompt).set("tokens_taken_over", result.tokens_taken_over));
  return json.set("decode", phase_json(result.decode));
}

}  // namespace

std::string report_table(const Engine& engine, const GenerateResult& result) {
  return report_body(engine, result) + row("finish", finish_text(result));
}

std::string report_table(const Engine& engine, const ManyResult& result) {
  std::string text = report_body(engine, result.summary());
  const std::string steps =
      result.decode_steps == 0
          ? "nothing was decoded"
          : fmt::format("{}, {} read in each", counted(result.decode_steps, "step", "of decode"),
                        format_bytes(static_cast<std::uint64_t>(bytes_per_step(result))));
  text += row("parallel",
              fmt::format("{}, {} at a time: {}", counted(result.sequences.size(), "sequence"),
                          engine.plan().sequences, steps));
  for (std::size_t i = 0; i < result.sequences.size(); ++i) {
    const GenerateResult& each = result.sequences[i];
    const std::string speed =
        each.decode.tokens == 0 ? std::string()
                                : fmt::format(", {:.1f} tokens/s", each.decode.tokens_per_second());
    text += row(fmt::format("  {}", i + 1),
                fmt::format("{} + {}{}, {}", each.prompt.tokens,
                            counted(each.decode.tokens, "token"), speed, finish_text(each)));
  }
  return text;
}

Json report_json(const Engine& engine, const ManyResult& result) {
  const GenerateResult all = result.summary();
  Json json = report_json(engine, all);
  for (const char* key : {"text", "seed", "state_hash"}) json.set(key, Json());
  Json prompt = *json.find("prompt");
  json.set("prompt", prompt.set("tokens_taken_over", all.tokens_taken_over));
  Json decode = *json.find("decode");
  decode.set("steps", result.decode_steps);
  decode.set("bytes_per_step", bytes_per_step(result));
  json.set("decode", std::move(decode));
  json.set("parallel", engine.plan().sequences);
  Json list = Json::array();
  for (const GenerateResult& each : result.sequences) list.push(sequence_json(each));
  return json.set("sequences", std::move(list));
}

}  // namespace millrace
