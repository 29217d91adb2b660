#include "io/drive.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cctype>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

#include "io/errno_text.h"
#include "runtime/base/log.h"

namespace millrace {

namespace {

namespace fs = std::filesystem;

// The first line of a file of /sys without blanks around it; empty if there is none.
std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0)
    line.pop_back();
  std::size_t blanks = 0;
  while (blanks < line.size() && std::isspace(static_cast<unsigned char>(line[blanks])) != 0)
    ++blanks;
  return printable(line.substr(blanks), 200);
}

std::string first_known(const fs::path& folder, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (std::string line = first_line(folder / name); !line.empty()) return line;
  return {};
}

struct Mount {
  std::string file_system, source;
};

// The mount with this device number. Fields of a line: id parent MAJ:MIN root point options… -
// type source options.
Mount find_mount(std::uint64_t device, const std::string& root) {
  const std::string wanted = fmt::format("{}:{}", major(device), minor(device));
  std::ifstream lines(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string id, parent, number, word;
    fields >> id >> parent >> number;
    if (number != wanted) continue;
    while (fields >> word && word != "-") {
    }
    Mount mount;
    fields >> mount.file_system >> mount.source;
    return {printable(mount.file_system), printable(mount.source)};
  }
  return {};
}

// The folder of the whole drive under /sys, for a partition its parent's; empty: not known.
fs::path device_folder(std::uint64_t device, const std::string& root) {
  std::error_code error;
  const fs::path link = root + fmt::format("/sys/dev/block/{}:{}", major(device), minor(device));
  fs::path folder = fs::canonical(link, error);
  if (error) return {};
  return fs::exists(folder / "partition", error) ? folder.parent_path() : folder;
}

void describe_device(const fs::path& folder, Drive& drive) {
  drive.block_device = true;
  drive.name = folder.filename().string();
  drive.model = first_known(folder, {"device/model", "dm/name", "loop/backing_file"});
  const std::string size = first_line(folder / "size");  // in units of 512 bytes
  std::uint64_t sectors = 0;
  std::from_chars(size.data(), size.data() + size.size(), sectors);
  drive.size_bytes = sectors * 512;
  drive.virtual_drive = drive.name.starts_with("vd") || drive.name.starts_with("xvd") ||
                        drive.model.starts_with("QEMU") || drive.model.starts_with("Virtual") ||
                        drive.model.starts_with("VBOX") || drive.model.starts_with("VMware");
  const std::string identifier = first_known(
      folder, {"wwid", "device/wwid", "dm/uuid", "device/serial", "serial", "loop/backing_file"});
  // The kernel's name may be another drive's after the next start; with an identifier it is
  // not needed.
  drive.key = fmt::format("{} {} {}", identifier.empty() ? drive.name : identifier, drive.model,
                          drive.size_bytes);
}

}  // namespace

Drive describe_drive(std::uint64_t device, const std::string& root) {
  Drive drive;
  const Mount mount = find_mount(device, root);
  drive.file_system = mount.file_system;
  fs::path folder = device_folder(device, root);
  if (folder.empty() && mount.source.starts_with("/dev/")) {  // btrfs numbers its volumes itself
    struct stat about = {};
    if (stat((root + mount.source).c_str(), &about) == 0 && S_ISBLK(about.st_mode))
      folder = device_folder(about.st_rdev, root);
  }
  if (!folder.empty()) {
    describe_device(folder, drive);
    return drive;
  }
  drive.memory_file_system = mount.file_system == "tmpfs" || mount.file_system == "ramfs";
  drive.name = mount.source.empty() ? fmt::format("device {}:{}", major(device), minor(device))
                                    : mount.source;
  drive.key = fmt::format("{} {}", mount.file_system, drive.name);
  return drive;
}

Result<Drive> find_drive(const std::string& path, const std::string& root) {
  struct stat about = {};
  if (stat(path.c_str(), &about) != 0)
    return Error{ErrorCode::io,
                 fmt::format("{}: {}", printable(path, 4096),
                             errno == ENOENT ? "no such file or folder" : errno_text(errno))};
  return describe_drive(about.st_dev, root);
}

}  // namespace millrace
