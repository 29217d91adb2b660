// The drives that a run reads from: the one with the model, and those of its mirrors. What they
// were measured to do, alone and together, and what the scheduler is told of them. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/drive.h"
#include "io/drive_profile.h"
#include "io/file.h"
#include "io/read_scheduler.h"
#include "runtime/estimate/predict.h"

namespace millrace {

struct RunDrive {
  std::string path;                  // of the model or its pool, or as given with --mirror
  std::vector<std::uint32_t> files;  // as ReadDrive's
  Drive drive = {};
  std::optional<DriveProfile> profile = {};  // nothing if it was never measured
  std::uint64_t piece_bytes = 0;             // of one read
  std::uint32_t depth = 0;                   // reads in flight
  std::string note = {};                     // why it gains nothing; empty: it may
  std::uint32_t expert_file = 0;             // what it is known by, and asked: see expert_file()
};

// What reads are to be like: by hand, or 0: by the drive's profile, or the default.
struct ReadShape {
  std::uint32_t depth = 0;
  std::uint64_t piece_bytes = 0;
  std::uint64_t read_bytes = 0;   // of most reads
  std::uint64_t block_bytes = 1;  // pieces are multiples of it
};

// Of a drive's files (as RunDrive's) the one that experts come from: the packed pool, which is the
// last of the model's, where there is one and the drive has it; else the first that it has.
std::uint32_t expert_file(std::span<const std::uint32_t> files, bool pool);

// Looks a drive up by one of its files: fills drive and profile. `io` error.
Status look_up(RunDrive& drive, const std::string& file, const std::string& profile_folder);
// Fills piece and depth.
void choose_pieces(RunDrive& drive, const ReadShape& shape);
// What the drive gives at this moment through `file`, in the pieces of a run whose reads have that
// size (which are filled in); bytes per second, 0: it does not say.
double ask_now(RunDrive& drive, const std::string& file, std::uint64_t read_bytes);
// Notes the drives that are the same as an earlier one; tells so in a warning.
void note_shared(std::span<RunDrive> drives);

// What all together give: each drive once. `read_bytes`: of most reads.
DriveRange drive_range(std::span<const RunDrive> drives, std::uint64_t read_bytes);
// The same by their profiles alone at the pieces and depths in use; 0 if one has none that was
// measured with O_DIRECT as `direct` says.
double profiled_rate(std::span<const RunDrive> drives, bool direct);

// What a learned rate of these drives holds for (known_pace.h).
std::string pace_drive(std::span<const RunDrive> drives, bool direct);

std::vector<ReadDrive> read_drives(std::span<const RunDrive> drives);

}  // namespace millrace
