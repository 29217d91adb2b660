#include "tools/command.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include "io/read_division.h"
#include "prefetch/eviction_policy.h"
#include "prefetch/predictor.h"
#include "runtime/base/counted.h"
#include "runtime/base/log.h"
#include "runtime/embedded_model.h"
#include "runtime/mirror.h"
#include "runtime/report.h"
#include "runtime/routing_recorder.h"
#include "tools/user_folders.h"

namespace millrace::tools {

std::atomic<bool>& cancel_flag() noexcept {
  static std::atomic<bool> flag = false;
  return flag;
}

namespace {

extern "C" void on_interrupt(int signal) {
  // The second Ctrl-C ends the program at once.
  std::signal(signal, SIG_DFL);
  cancel_flag().store(true);
}

// One of `names` to its value; a `usage` error that lists them otherwise.
template <class T, std::size_t Count>
Result<T> choice(const char* flag, const std::string& text,
                 const std::pair<const char*, T> (&names)[Count]) {
  std::string known;
  for (const auto& [name, value] : names) {
    if (text == name) return value;
    known += std::string(known.empty() ? "" : ", ") + name;
  }
  return Error{ErrorCode::usage, fmt::format("{} {}: must be one of {}", flag, text, known)};
}

Result<SizeSpec> size_flag(const char* flag, const std::string& text) {
  if (text.empty()) return SizeSpec{};
  auto size = parse_size(text);
  if (!size) return Error{ErrorCode::usage, std::string(flag) + ": " + size.error().what};
  return size;
}

// 0 if it was not given.
Result<std::uint64_t> piece_flag(const std::string& text) {
  MILLRACE_ASSIGN(const SizeSpec size, size_flag("--piece", text));
  if (size.kind == SizeSpec::Kind::unset) return std::uint64_t{0};
  constexpr std::uint64_t unit = 4 * KiB, most = 64 * MiB;
  if (size.kind != SizeSpec::Kind::bytes || size.bytes < unit || size.bytes > most ||
      size.bytes % unit != 0)
    return out_of_range("--piece", text, "4K to 64M, a multiple of 4K");
  return size.bytes;
}

}  // namespace

void install_interrupt_handler() noexcept {
  cancel_flag();  // constructed before a signal can come
  for (const int signal : {SIGINT, SIGTERM})
    if (std::signal(signal, SIG_IGN) != SIG_IGN)  // ignored by who started us: it stays so
      std::signal(signal, on_interrupt);
}

bool ResultOutput::write(std::string_view text) noexcept {
  if (errno_ != 0) return false;
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0)
    return true;
  errno_ = errno != 0 ? errno : EIO;
  return false;
}

Status ResultOutput::status() const {
  if (errno_ == 0 || errno_ == EPIPE) return {};
  return Error{ErrorCode::io, fmt::format("stdout: {}", std::strerror(errno_))};
}

const CLI::Validator& not_empty() {
  static const CLI::Validator validator(
      [](std::string& text) { return text.empty() ? "is given, but empty" : std::string(); },
      std::string());
  return validator;
}

const CLI::Validator& decimal() {
  static const CLI::Validator validator(
      [](std::string& text) {
        const bool negative = text.starts_with('-');
        std::size_t first = text.find_first_not_of('0', negative ? 1 : 0);
        const bool digits =
            text.find_first_not_of("0123456789", negative ? 1 : 0) == std::string::npos;
        if (first == std::string::npos) first = text.size() - 1;
        if (digits && !text.empty()) text = (negative ? "-" : "") + text.substr(first);
        return std::string();
      },
      std::string());
  return validator;
}

CLI::Validator whole_number(const std::string& flag, std::uint32_t least, std::uint32_t most) {
  const std::string range = fmt::format("{} to {}", least, most);
  const auto check = [=](std::string& text) {
    decimal()(text);
    std::uint32_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    // Not the validator's own error, which would name the flag a second time.
    if (error != std::errc() || stop != end || value < least || value > most)
      throw CLI::ParseError(out_of_range(flag, text, range).what, CLI::ExitCodes::ValidationError);
    return std::string();
  };
  return {check, range};
}

void add_trace_flag(CLI::App& app, std::string& path) {
  app.add_option("--trace", path, "write the routing of every token and layer as CSV")
      ->check(not_empty());
}

void EngineFlags::add_to(CLI::App& app, bool with_model) {
  if (with_model)
    app.add_option("MODEL,-m,--model", model,
                   "GGUF file (any part of a split one) or safetensors folder; default: the "
                   "embedded model")
        ->multi_option_policy(CLI::MultiOptionPolicy::Throw)
        ->check(not_empty());
  app.add_option("--pool", pool, "packed pool of the model (see pack) to read its experts from")
      ->check(not_empty());
  app.add_option("--mirror", mirrors,
                 "copy of the model (or of the pool) on another drive, read at the same time "
                 "(repeatable)")
      ->take_all()
      ->check(not_empty());
  app.add_flag("--stripe", stripe,
               "with --mirror: divide each expert between the drives by their speed, instead of "
               "giving whole slices to the drive that has them first");
  app.add_option("-c,--ctx", context,
                 "positions of context; 0: the default [the model's, at most 4096]")
      ->transform(decimal());
  app.add_option("-t,--threads", threads,
                 "compute threads; 0: the default [all physical cores of the fastest kind]")
      ->transform(decimal());
  app.add_option("-u,--ub,--ubatch-size", batch_tokens,
                 "prompt tokens that go through the layers together (also -ub)")
      ->transform(decimal())
      ->capture_default_str();
  app.add_option("--preset", preset,
                 "sizes of cache and trunk: tiny, laptop, server, or auto (from this machine)")
      ->capture_default_str();
  app.add_option("--cache", cache,
                 "memory for experts: 6G, 512MiB, 25% of the pool, all [the preset's]")
      ->check(not_empty());
  app.add_option("--trunk", trunk,
                 "memory for the trunk; layers beyond it are streamed [the preset's]")
      ->check(not_empty());
  app.add_option("--kv", kv, "type of the KV cache: f16, f32 or q8_0")->capture_default_str();
  app.add_option("--activations", activations, "q8: integer dots; f32: unrounded, slower")
      ->capture_default_str();
  app.add_option(
         "--isa", isa,
         "kernels: scalar, avx2, avxvnni, avx512, avx512vnni, amx, neon, neon-dotprod [the best "
         "that the CPU has; amx only by name]")
      ->check(not_empty());
  app.add_option("--io", io, "reader: uring, threads, or auto (uring where it is allowed)")
      ->capture_default_str();
  app.add_option(
         "--direct", direct,
         "O_DIRECT: auto (where possible, unless all fits into free memory and a probe finds the "
         "page cache faster), on, off (page cache)")
      ->capture_default_str();
  app.add_option("--depth", depth, "reads in flight [the drive profile's, or 16]")
      ->transform(whole_number("--depth", 1, limits::queue_depth_max));
  app.add_option("--piece", piece, "size of one read: 512K, 2M [the drive profile's, or 1M]")
      ->check(not_empty());
  app.add_option("--prefetch", prefetch,
                 fmt::format("reads experts ahead that it guesses: off, {}",
                             fmt::join(predictor_names(), ", ")))
      ->capture_default_str();
  app.add_option("--policy", policy,
                 fmt::format("eviction policy of the expert cache: {}",
                             fmt::join(eviction_policy_names(), ", ")))
      ->capture_default_str();
  app.add_option("--guard", guard,
                 "auto: the cache shrinks while memory is short, and grows again; off: never")
      ->capture_default_str();
  app.add_flag("-q,--quiet", quiet, "errors only; no report, no progress");
  app.add_flag("-v,--verbose", verbose, "say more on stderr");
}

void EngineFlags::set_log_level() const {
  if (quiet) millrace::set_log_level(LogLevel::error);
  else if (verbose) millrace::set_log_level(LogLevel::debug);
}

Result<EngineConfig> EngineFlags::config() const {
  EngineConfig made;
  made.model_path = model;
  if (model.empty()) {
    MILLRACE_ASSIGN(made.model_path, embedded_model_path());
  }
  made.pool_path = pool;
  made.mirror_paths = mirrors;
  made.stripe = stripe;
  if (stripe && mirrors.empty())
    return Error{ErrorCode::usage,
                 "--stripe: divides reads between drives: name a copy with --mirror"};
  if (mirrors.size() >= ReadDivision::drives_max)
    return out_of_range("--mirror", fmt::format("given {} times", mirrors.size()),
                        fmt::format("at most {}", ReadDivision::drives_max - 1));
  made.preset = preset;
  MILLRACE_ASSIGN(made.cache, size_flag("--cache", cache));
  MILLRACE_ASSIGN(made.trunk, size_flag("--trunk", trunk));
  made.context = context;
  made.threads = threads;
  made.batch_tokens = batch_tokens;
  made.sequences = sequences;
  MILLRACE_TRY(check_range("-t", threads, 0, limits::threads_max));
  MILLRACE_TRY(check_range("-ub", batch_tokens, 1, limits::batch_tokens_max));
  MILLRACE_ASSIGN(
      made.kv,
      choice<KvType>("--kv", kv,
                     {{"f16", KvType::f16}, {"f32", KvType::f32}, {"q8_0", KvType::q8_0}}));
  MILLRACE_ASSIGN(made.activations, choice<ActivationMode>("--activations", activations,
                                                           {{"q8", ActivationMode::q8},
                                                            {"f32", ActivationMode::f32}}));
  made.isa = isa;
  MILLRACE_ASSIGN(made.io, choice<ReaderKind>("--io", io,
                                              {{"auto", ReaderKind::automatic},
                                               {"uring", ReaderKind::uring},
                                               {"threads", ReaderKind::threads}}));
  MILLRACE_ASSIGN(made.direct, choice<DirectMode>("--direct", direct,
                                                  {{"auto", DirectMode::automatic},
                                                   {"on", DirectMode::on},
                                                   {"off", DirectMode::off}}));
  MILLRACE_ASSIGN(made.guard.on, choice<bool>("--guard", guard, {{"auto", true}, {"off", false}}));
  made.queue_depth = depth;
  MILLRACE_ASSIGN(made.piece_bytes, piece_flag(piece));
  made.profile_folder = cache_folder();
  if (prefetch != "off") MILLRACE_TRY(make_predictor(prefetch));
  made.prefetch = prefetch;
  MILLRACE_ASSIGN(const auto known_policy, make_eviction_policy(policy));
  static_cast<void>(known_policy);
  made.policy = policy;
  return made;
}

Result<std::unique_ptr<RunningEngine>> start_engine(const EngineFlags& flags,
                                                    const std::vector<NamedPath>& outputs,
                                                    const std::vector<NamedPath>& inputs,
                                                    const ModelCheck* check) {
  flags.set_log_level();
  install_interrupt_handler();
  MILLRACE_ASSIGN(const EngineConfig config, flags.config());
  MILLRACE_ASSIGN(std::vector<NamedPath> read, model_files(config.model_path, outputs));
  if (!config.pool_path.empty()) read.push_back({"--pool", config.pool_path});
  const std::vector<NamedPath> originals = read;
  for (const std::string& mirror : config.mirror_paths)
    for (const NamedPath& file : originals)
      read.push_back({"--mirror", mirror_file(mirror, file.path, originals.size() == 1)});
  read.insert(read.end(), inputs.begin(), inputs.end());
  MILLRACE_TRY(check_outputs(outputs, read));
  auto running = std::make_unique<RunningEngine>(!flags.quiet && stderr_is_terminal());
  // Before the time that loading takes, where that is long or a preset was asked for.
  const auto check_and_show = [&](const Engine& engine, const Checkpoint& checkpoint) -> Status {
    if (check != nullptr) MILLRACE_TRY((*check)(engine, checkpoint));
    for (const NamedPath& output : outputs)
      if (output.flag == "--trace") MILLRACE_TRY(RoutingRecorder::check(engine, output.path));
    if (!flags.quiet && (engine.prediction() || flags.preset != "auto"))
      std::fputs(plan_table(engine).c_str(), stderr);
    return {};
  };
  const ModelCheck planned(check_and_show);
  MILLRACE_ASSIGN(running->engine,
                  Engine::create(config, running->progress, cancel_flag(), &planned));
  return running;
}

int report_error(const Error& error) {
  if (error.code == ErrorCode::cancelled) std::fprintf(stderr, "millrace: interrupted\n");
  else log_error(error.what);
  return exit_code(error.code);
}

}  // namespace millrace::tools
