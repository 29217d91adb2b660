#include "io/file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "tests/io/reading_world.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

// The message of a refusal with code `io`.
std::string refusal(const std::string& path, DirectMode mode = DirectMode::automatic) {
  const auto file = File::open(path, mode);
  REQUIRE_FALSE(file);
  REQUIRE(file.error().code == ErrorCode::io);
  REQUIRE(file.error().what.find(path) == 0);
  return file.error().what;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("A file knows its size, its block and why it is buffered") {
  const TempFolder folder;
  const std::string path = folder.write("a.bin", std::string(5000, 'x'));
  const auto file = File::open(path, DirectMode::automatic);
  REQUIRE(file);
  REQUIRE(file->size_bytes() == 5000);
  REQUIRE(file->path() == path);
  REQUIRE(file->direct() == file->buffered_reason().empty());
  if (file->direct()) {
    REQUIRE((file->block_bytes() & (file->block_bytes() - 1)) == 0);
    REQUIRE((fcntl(file->fd(), F_GETFL) & O_DIRECT) != 0);
  } else {
    REQUIRE(file->block_bytes() == 1);
  }
  REQUIRE((fcntl(file->fd(), F_GETFL) & O_NONBLOCK) == 0);
}

TEST_CASE("With direct reads off a file is buffered, with block 1 and a reason") {
  const TempFolder folder;
  const auto file = File::open(folder.write("a.bin", "abc"), DirectMode::off);
  REQUIRE(file);
  REQUIRE_FALSE(file->direct());
  REQUIRE(file->block_bytes() == 1);
  REQUIRE(contains(file->buffered_reason(), "--direct off"));
}

TEST_CASE("Small reads of any alignment work on direct files and name what is missing at the end") {
  const TempFolder folder;
  const std::string path = folder.write("a.bin", "0123456789");
  const auto file = File::open(path, GENERATE(DirectMode::automatic, DirectMode::off));
  REQUIRE(file);
  char got[4] = {};
  REQUIRE(file->read_exactly(3, got, 4));
  REQUIRE(std::string(got, 4) == "3456");
  REQUIRE(file->read_exactly(10, got, 0));
  const Status past = file->read_exactly(8, got, 4);
  REQUIRE_FALSE(past);
  REQUIRE(past.error().code == ErrorCode::io);
  REQUIRE(contains(past.error().what, path));
  REQUIRE(contains(past.error().what, "ends at 10"));
  REQUIRE_FALSE(file->read_exactly(UINT64_MAX - 1, got, 4));
  REQUIRE_FALSE(file->read_exactly(4, got, UINT64_MAX - 2));
}

TEST_CASE("A file tells its size now after it was truncated or deleted") {
  const TempFolder folder;
  const std::string path = folder.write("a.bin", std::string(5000, 'x'));
  const auto file = File::open(path, DirectMode::automatic);
  REQUIRE(file);
  REQUIRE(truncate(path.c_str(), 100) == 0);
  REQUIRE(*file->current_size() == 100);
  REQUIRE(file->size_bytes() == 5000);
  REQUIRE(unlink(path.c_str()) == 0);
  char got = 0;
  REQUIRE(file->read_exactly(99, &got, 1));
  REQUIRE(got == 'x');
}

TEST_CASE("What is no regular file is refused by what it is, without waiting") {
  const TempFolder folder;
  REQUIRE(contains(refusal(folder.path("none")), "no such file"));
  REQUIRE(contains(refusal(folder.path("")), "directory"));
  const std::string file = folder.write("a.bin", "abc");
  REQUIRE(contains(refusal(file + "/b"), "not a directory"));
  REQUIRE(mkfifo(folder.path("fifo").c_str(), 0600) == 0);
  REQUIRE(contains(refusal(folder.path("fifo")), "not a regular file"));
  REQUIRE(contains(refusal("/dev/null"), "not a regular file"));
  REQUIRE(symlink("loop", folder.path("loop").c_str()) == 0);
  REQUIRE(contains(refusal(folder.path("loop")), "symbolic links"));
  REQUIRE(contains(refusal(folder.path(std::string(300, 'n'))), "too long"));
  if (geteuid() != 0) {
    REQUIRE(chmod(file.c_str(), 0) == 0);
    REQUIRE(contains(refusal(file), "permission denied"));
  }
}

TEST_CASE("At the limit of open files the message tells the limit") {
  const TempFolder folder;
  const std::string path = folder.write("a.bin", "abc");
  rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none = {3, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const auto file = File::open(path, DirectMode::automatic);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  REQUIRE_FALSE(file);
  REQUIRE(contains(file.error().what, "ulimit -n"));
}

TEST_CASE("tmpfs, which may refuse O_DIRECT, is read through the page cache with a reason") {
  constexpr long tmpfs_magic = 0x01021994;
  struct statfs about = {};
  if (statfs("/dev/shm", &about) != 0 || about.f_type != tmpfs_magic) return;
  std::string path = "/dev/shm/millrace-test-XXXXXX";
  const int fd = mkstemp(path.data());
  REQUIRE(fd >= 0);
  REQUIRE(write(fd, "0123456789", 10) == 10);
  close(fd);
  const auto file = File::open(path, DirectMode::automatic);
  const auto forced = File::open(path, DirectMode::on);
  unlink(path.c_str());
  REQUIRE(file);
  // Newer kernels let tmpfs take O_DIRECT; then there is nothing to fall back from.
  REQUIRE(file->direct() == forced.has_value());
  REQUIRE(file->direct() == file->buffered_reason().empty());
  if (!forced) {
    REQUIRE(forced.error().code == ErrorCode::io);
    REQUIRE(contains(forced.error().what, "--direct auto"));
  }
  char got[3] = {};
  REQUIRE(file->read_exactly(7, got, 3));
  REQUIRE(std::string(got, 3) == "789");
}

TEST_CASE("An empty file opens") {
  const TempFolder folder;
  const auto file = File::open(folder.write("empty", ""), DirectMode::automatic);
  REQUIRE(file);
  REQUIRE(file->size_bytes() == 0);
}

TEST_CASE("A moved file keeps its descriptor, the old one owns none") {
  const TempFolder folder;
  auto first = File::open(folder.write("a.bin", "abc"), DirectMode::automatic);
  REQUIRE(first);
  const int fd = first->fd();
  const File second = std::move(first).value();
  REQUIRE(second.fd() == fd);
  REQUIRE(first->fd() == -1);
  char got = 0;
  REQUIRE(second.read_exactly(1, &got, 1));
  REQUIRE(got == 'b');
}
