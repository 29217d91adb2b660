#include <fmt/format.h>
#include <sys/stat.h>

#include <atomic>
#include <ctime>
#include <optional>

#include "io/drive_profile.h"
#include "io/file.h"
#include "io/reader_uring.h"
#include "runtime/base/counted.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"
#include "runtime/doctor/doctor.h"
#include "runtime/floor/scratch_file.h"

namespace millrace {

namespace {

Finding unknown(const char* name, const std::string& why) {
  Finding finding;
  finding.name = name;
  finding.health = Health::note;
  finding.found = "not examined: " + why;
  return finding;
}

std::string uring_advice(const UringFeatures& features) {
  if (!features.refused.empty())
    return "allow io_uring (sysctl kernel.io_uring_disabled=0; containers: a seccomp profile that "
           "permits it); until then threads read, at several times the CPU time";
  if (!features.registered_buffers)
    return "raise the limit on locked memory (`ulimit -l`): reads into memory that is not "
           "registered cost more CPU";
  if (!features.deferred_work) return "Linux 6.1 or later takes fewer interrupts per read";
  return {};
}

// The direct-read test needs a file: the one that was named, or one that is made in the folder.
struct Sample {
  std::optional<ScratchFile> scratch;
  std::optional<File> file;
};

Status open_sample(const std::string& path, Sample& sample) {
  struct stat about = {};
  std::string name = path;
  if (stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode)) {
    static const std::atomic<bool> go_on = false;
    MILLRACE_ASSIGN(ScratchFile made, ScratchFile::create(path, ScratchFile::smallest_bytes, 5,
                                                          go_on, [](double) {}));
    sample.scratch.emplace(std::move(made));
    name = sample.scratch->path();
  }
  MILLRACE_ASSIGN(File file, File::open(name, DirectMode::automatic));
  sample.file.emplace(std::move(file));
  return {};
}

}  // namespace

Finding examine_uring(const DoctorOptions&) {
  auto file = File::open("/proc/self/exe", DirectMode::off);
  if (!file) return unknown("io_uring", file.error().what);
  const UringFeatures features = probe_uring(*file);
  Finding finding;
  finding.name = "io_uring";
  finding.advice = uring_advice(features);
  if (!features.refused.empty()) {
    finding.health = Health::lacking;
    finding.found = features.refused;
  } else {
    finding.health = features.registered_buffers ? Health::good : Health::lacking;
    const auto yes_no = [](bool yes) { return yes ? "yes" : "no"; };
    finding.found = fmt::format(
        "allowed; registered buffers {}, registered files {}, deferred task work {}, SQPOLL {}, "
        "IOPOLL rings {}",
        yes_no(features.registered_buffers), yes_no(features.registered_files),
        yes_no(features.deferred_work), yes_no(features.kernel_submits),
        yes_no(features.polled_completions));
  }
  finding.details.set("allowed", features.refused.empty())
      .set("registered_buffers", features.registered_buffers)
      .set("registered_files", features.registered_files)
      .set("deferred_task_work", features.deferred_work)
      .set("sqpoll", features.kernel_submits)
      .set("iopoll", features.polled_completions);
  return finding;
}

Finding examine_direct_reads(const DoctorOptions& options) {
  Sample sample;
  if (const Status opened = open_sample(options.path, sample); !opened)
    return unknown("direct reads", opened.error().what);
  Finding finding;
  finding.name = "direct reads";
  const File& file = *sample.file;
  if (file.direct()) {
    finding.found = fmt::format("O_DIRECT works at {}, blocks of {} bytes",
                                printable(options.path, 4096), file.block_bytes());
  } else {
    finding.health = Health::lacking;
    finding.found =
        fmt::format("no O_DIRECT at {}: {}", printable(options.path, 4096), file.buffered_reason());
    finding.advice =
        "keep models on a local ext4, xfs or btrfs; the page cache costs CPU and memory";
  }
  finding.details.set("direct", file.direct()).set("block_bytes", file.block_bytes());
  return finding;
}

Finding examine_drive(const DoctorOptions& options) {
  const auto drive = find_drive(options.path);
  if (!drive) return unknown("drive", drive.error().what);
  Finding finding;
  finding.name = "drive";
  finding.found = drive->name;
  if (!drive->model.empty()) finding.found += " (" + drive->model + ")";
  if (!drive->file_system.empty()) finding.found += ", " + drive->file_system;
  finding.details.set("name", drive->name).set("model", drive->model);
  finding.details.set("file_system", drive->file_system).set("virtual", drive->virtual_drive);
  finding.details.set("profile", Json());
  const auto profile = load_profile(options.profile_folder, *drive);
  if (drive->memory_file_system) {
    finding.health = Health::note;
    finding.found += ": memory, no drive";
    return finding;
  }
  if (!profile) {
    finding.health = Health::note;
    finding.found += ": never measured";
    finding.advice = fmt::format(
        "`millrace floor {}` measures it in 20 seconds; reads, plan and "
        "estimates then follow it",
        printable(options.path, 4096));
    return finding;
  }
  const std::int64_t age = std::max<std::int64_t>(
      0, static_cast<std::int64_t>(std::time(nullptr)) - profile->measured_at);
  finding.found +=
      fmt::format(": {:.2f} GB/s ({:.2f} to {:.2f}) in {} pieces at depth {}, {}",
                  profile->bytes_per_second / 1e9, profile->slowest_bytes_per_second / 1e9,
                  profile->fastest_bytes_per_second / 1e9, format_bytes(profile->piece_bytes),
                  profile->queue_depth, age_text(age));
  constexpr std::int64_t old = std::int64_t{90} * 86'400;
  if (age > old) {
    finding.health = Health::note;
    finding.advice = "the profile is old: measure again with `millrace floor`";
  }
  finding.details.set("profile", Json::object()
                                     .set("age_seconds", age)
                                     .set("bytes_per_second", profile->bytes_per_second)
                                     .set("piece_bytes", profile->piece_bytes)
                                     .set("queue_depth", profile->queue_depth));
  return finding;
}

}  // namespace millrace
