// The same body over io_uring, pread threads and the fake.
#include "io/reader.h"

#include <unistd.h>

#include <cerrno>
#include <thread>

#include "io/read_progress.h"
#include "runtime/base/limits.h"
#include "tests/io/reading_world.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

constexpr std::size_t file_bytes = 300 * KiB + 123;  // the tail is no whole block

Kind any_kind() { return GENERATE(Kind::uring, Kind::threads, Kind::fake); }
DirectMode any_mode() { return GENERATE(DirectMode::automatic, DirectMode::off); }

// Polls until nothing is in flight.
void finish_all(Reader& reader) {
  while (reader.in_flight() > 0) reader.poll(true);
}

}  // namespace

TEST_CASE("A reader brings the right bytes at every alignment and up to the file's last byte") {
  const Kind kind = any_kind();
  const DirectMode mode = any_mode();
  CAPTURE(kind_name(kind));
  ReadingWorld world(file_bytes, mode);
  world.drive.short_reads = true;
  const auto reader = world.make(kind, 4);
  if (reader == nullptr) return;
  const std::uint64_t step =
      std::max<std::uint64_t>(world.block(), mode == DirectMode::off ? 97 : 1);
  const Target target(512 * KiB);
  for (const std::uint64_t offset : {std::uint64_t{0}, step, 7 * step, 31 * step, 64 * step}) {
    for (const std::uint64_t wanted :
         {std::uint64_t{1}, step - 1, step, step + 1, 100 * KiB, file_bytes - offset}) {
      if (wanted == 0 || offset + wanted > file_bytes) continue;
      CAPTURE(offset, wanted);
      target.clear();
      TestRead read;
      const std::uint64_t bytes = round_up(wanted, world.block());
      REQUIRE(reader->submit(read.at(offset, bytes, wanted, target.data() + 2 * world.block())));
      finish_all(*reader);
      REQUIRE(read.calls == 1);
      REQUIRE(read.status == 0);
      REQUIRE(world.holds(target.data() + 2 * world.block(), offset, wanted));
      REQUIRE(target.data()[2 * world.block() - 1] == std::byte{0xEE});
      REQUIRE(target.data()[2 * world.block() + bytes] == std::byte{0xEE});
    }
  }
}

TEST_CASE("A reader takes no more than its depth and runs callbacks only inside poll") {
  const Kind kind = any_kind();
  CAPTURE(kind_name(kind));
  ReadingWorld world(file_bytes, any_mode());
  const auto reader = world.make(kind, 3);
  if (reader == nullptr) return;
  const Target target(64 * KiB);
  TestRead reads[4];
  for (std::size_t i = 0; i < 4; ++i) {
    reads[i].at(i * 4096, 4096, 4096, target.data() + i * 4096);
    REQUIRE(reader->submit(reads[i].read) == (i < 3));
  }
  REQUIRE(reader->in_flight() == 3);
  for (const TestRead& read : reads) REQUIRE(read.calls == 0);
  std::uint32_t ran = 0;
  while (reader->in_flight() > 0) ran += reader->poll(true);
  REQUIRE(ran == 3);
  REQUIRE(reader->submit(reads[3].read));
  finish_all(*reader);
  REQUIRE(world.holds(target.data(), 0, 4 * 4096));
}

TEST_CASE("A callback may submit the next read") {
  const Kind kind = any_kind();
  CAPTURE(kind_name(kind));
  ReadingWorld world(file_bytes, any_mode());
  const auto reader = world.make(kind, 1);
  if (reader == nullptr) return;
  const Target target(64 * KiB);
  struct Chain {
    Reader* reader;
    Read read;
    std::byte* base;
    int left = 8;
    int failures = 0;
  } chain{reader.get(), {}, target.data()};
  chain.read.bytes = chain.read.needed_bytes = 4096;
  chain.read.target = chain.base;
  chain.read.owner = &chain;
  chain.read.done = [](Read& read, int status) {
    auto& self = *static_cast<Chain*>(read.owner);
    self.failures += status != 0;
    if (--self.left == 0) return;
    read.offset_bytes += 4096;
    read.target += 4096;
    self.failures += !self.reader->submit(read);
  };
  REQUIRE(reader->submit(chain.read));
  finish_all(*reader);
  REQUIRE(chain.left == 0);
  REQUIRE(chain.failures == 0);
  REQUIRE(world.holds(target.data(), 0, 8 * 4096));
}

TEST_CASE("wake ends the current or the next waiting poll, and only one") {
  const Kind kind = any_kind();
  CAPTURE(kind_name(kind));
  ReadingWorld world(file_bytes, DirectMode::automatic);
  const auto reader = world.make(kind, 2);
  if (reader == nullptr) return;
  reader->wake();
  REQUIRE(reader->poll(true) == 0);
  reader->wake();
  reader->poll(false);  // does not use the wake up
  REQUIRE(reader->poll(true) == 0);
  std::thread other([&] { reader->wake(); });
  REQUIRE(reader->poll(true) == 0);
  other.join();
  // No wake is left: this poll waits for the read.
  const Target target(8 * KiB);
  TestRead read;
  REQUIRE(reader->submit(read.at(0, 4096, 4096, target.data())));
  REQUIRE(reader->poll(true) == 1);
  REQUIRE(read.status == 0);
}

TEST_CASE("Reading what a truncated file no longer has ends with -1, what it has is still read") {
  const Kind kind = any_kind();
  CAPTURE(kind_name(kind));
  ReadingWorld world(256 * KiB, any_mode());
  const auto reader = world.make(kind, 4);
  if (reader == nullptr) return;
  const std::uint64_t left_bytes = GENERATE(64 * KiB, 64 * KiB + 100, 100u, 0u);
  CAPTURE(left_bytes);
  REQUIRE(truncate(world.path().c_str(), static_cast<off_t>(left_bytes)) == 0);
  world.drive.truncate(0, left_bytes);
  const Target target(256 * KiB);
  TestRead across;
  TestRead past;
  REQUIRE(reader->submit(across.at(0, 128 * KiB, 128 * KiB, target.data())));
  REQUIRE(reader->submit(past.at(192 * KiB, 4096, 1, target.data() + 192 * KiB)));
  finish_all(*reader);
  REQUIRE(across.status == -1);
  REQUIRE(past.status == -1);
  if (left_bytes == 0) return;
  TestRead there;
  REQUIRE(reader->submit(
      there.at(0, 64 * KiB, std::min<std::uint64_t>(left_bytes, 64 * KiB), target.data())));
  finish_all(*reader);
  REQUIRE(there.status == 0);
  REQUIRE(world.holds(target.data(), 0, std::min<std::uint64_t>(left_bytes, 64 * KiB)));
}

TEST_CASE("A file that was deleted while open is read to its end") {
  const Kind kind = any_kind();
  CAPTURE(kind_name(kind));
  ReadingWorld world(file_bytes, any_mode());
  REQUIRE(unlink(world.path().c_str()) == 0);
  const auto reader = world.make(kind, 4);
  if (reader == nullptr) return;
  const Target target(512 * KiB);
  TestRead read;
  REQUIRE(reader->submit(read.at(0, world.padded_bytes(), file_bytes, target.data())));
  finish_all(*reader);
  REQUIRE(read.status == 0);
  REQUIRE(world.holds(target.data(), 0, file_bytes));
}

TEST_CASE("A reader that is destroyed waits for its reads and runs no callbacks") {
  const Kind kind = GENERATE(Kind::uring, Kind::threads);
  CAPTURE(kind_name(kind));
  ReadingWorld world(file_bytes, DirectMode::automatic);
  const Target target(256 * KiB);
  TestRead reads[4];
  {
    const auto reader = world.make(kind, 4);
    if (reader == nullptr) return;
    for (std::size_t i = 0; i < 4; ++i) {
      reader->submit(reads[i].at(i * 64 * KiB, 64 * KiB, 64 * KiB, target.data() + i * 64 * KiB));
    }
    reader->poll(false);
    for (TestRead& read : reads) read.calls = 0;
  }
  for (const TestRead& read : reads) REQUIRE(read.calls == 0);
}

TEST_CASE("Registered and plain buffers bring the same bytes, also mixed") {
  ReadingWorld world(file_bytes, any_mode());
  PinnedMemory memory;
  REQUIRE(memory.allocate(2, 512 * KiB));
  REQUIRE(memory.allocate(1, 3 * MiB));
  REQUIRE(memory.segments().size() == 2);
  const auto reader = world.make(Kind::uring, 4, memory.segments());
  if (reader == nullptr) return;
  if (reader->registered_buffers() != 2) WARN("buffers could not be registered here");
  for (const std::int32_t buffer : {0, 1, -1}) {
    std::byte* target = memory.segments()[buffer == 1 ? 1 : 0].data() + 64 * KiB;
    std::memset(target, 0xEE, 320 * KiB);
    TestRead read;
    read.read.buffer = buffer;
    REQUIRE(reader->submit(read.at(0, world.padded_bytes(), file_bytes, target)));
    finish_all(*reader);
    REQUIRE(read.status == 0);
    REQUIRE(world.holds(target, 0, file_bytes));
  }
}

TEST_CASE("A buffer goes out of the registered ones and back while others are read into") {
  ReadingWorld world(file_bytes, any_mode());
  PinnedMemory memory;
  REQUIRE(memory.allocate(3, 512 * KiB, 512 * KiB));
  REQUIRE(memory.segments().size() == 3);
  const auto reader = world.make(Kind::uring, 4, memory.segments());
  if (reader == nullptr) return;
  const std::uint32_t all = reader->registered_buffers();
  if (all != 3) WARN("buffers could not be registered here");
  const auto read_into = [&](std::uint32_t buffer) {
    std::byte* const target = memory.segments()[buffer].data() + 64 * KiB;
    std::memset(target, 0xEE, 320 * KiB);
    TestRead read;
    read.read.buffer = static_cast<std::int32_t>(buffer);
    REQUIRE(reader->submit(read.at(0, world.padded_bytes(), file_bytes, target)));
    finish_all(*reader);
    REQUIRE(read.status == 0);
    REQUIRE(world.holds(target, 0, file_bytes));
  };
  for (int turn = 0; turn < 3; ++turn) {
    TestRead beside;
    beside.read.buffer = 0;
    REQUIRE(reader->submit(
        beside.at(0, world.padded_bytes(), file_bytes, memory.segments()[0].data())));
    reader->poll(false);
    REQUIRE_FALSE(reader->register_buffer(1, false));
    CHECK(reader->registered_buffers() == (all == 3 ? 2 : all));
    finish_all(*reader);
    REQUIRE(beside.status == 0);
    REQUIRE(memory.give_back(1));
    read_into(0);
    read_into(2);
    REQUIRE(memory.take_again(1));
    read_into(1);  // plain
    CHECK(reader->register_buffer(1, true) == (all == 3));
    CHECK(reader->registered_buffers() == all);
    read_into(1);
  }
}

TEST_CASE("A reader that registers nothing says so when it is asked to") {
  const Kind kind = GENERATE(Kind::threads, Kind::fake);
  ReadingWorld world(file_bytes, any_mode());
  PinnedMemory memory;
  REQUIRE(memory.allocate(1, 64 * KiB));
  const auto reader = world.make(kind, 1, memory.segments());
  CHECK_FALSE(reader->register_buffer(0, true));
  CHECK_FALSE(reader->register_buffer(0, false));
}

TEST_CASE("Many files are told apart") {
  const Kind kind = GENERATE(Kind::uring, Kind::threads);
  CAPTURE(kind_name(kind));
  const TempFolder folder;
  std::vector<File> files;
  std::vector<const File*> pointers;
  for (int i = 0; i < 40; ++i) {
    const std::string path =
        folder.write(std::to_string(i), std::string(4096, static_cast<char>('A' + i)));
    files.push_back(std::move(File::open(path, DirectMode::automatic)).value());
  }
  for (const File& file : files) pointers.push_back(&file);
  ReaderOptions options;
  options.kind = kind == Kind::uring ? ReaderKind::uring : ReaderKind::threads;
  options.files = pointers;
  auto made = make_reader(options);
  if (!made) return;
  const Target target(40 * 4096);
  for (std::uint32_t i = 0; i < 40; ++i) {
    TestRead read;
    read.read.file = i;
    REQUIRE(made->reader->submit(read.at(0, 4096, 4096, target.data() + i * 4096)));
    finish_all(*made->reader);
    REQUIRE(read.status == 0);
    REQUIRE(target.data()[i * 4096 + 4095] == std::byte(static_cast<unsigned char>('A' + i)));
  }
}

TEST_CASE("A queue depth of 0 or above the limit is refused with the number") {
  for (const std::uint32_t depth : {0u, limits::queue_depth_max + 1}) {
    ReaderOptions options;
    options.depth = depth;
    const auto made = make_reader(options);
    REQUIRE_FALSE(made);
    REQUIRE(made.error().code == ErrorCode::usage);
    REQUIRE(made.error().what.find(std::to_string(depth)) != std::string::npos);
  }
}

TEST_CASE("A read goes on after short results and interruptions, and ends at the file's end") {
  Read read;
  read.bytes = 8192;
  read.needed_bytes = 5000;
  unsigned stalls = 0;
  REQUIRE(advance_read(read, stalls, 512, -EINTR) == read_goes_on);
  REQUIRE(advance_read(read, stalls, 512, 1024) == read_goes_on);
  REQUIRE(read.arrived_bytes == 1024);
  REQUIRE(stalls == 0);
  REQUIRE(advance_read(read, stalls, 512, 700) == read_goes_on);
  REQUIRE(read.arrived_bytes == 1536);  // back to a block
  REQUIRE(advance_read(read, stalls, 512, 100) == -1);
  REQUIRE(advance_read(read, stalls, 512, 0) == -1);
  REQUIRE(advance_read(read, stalls, 512, 5000 - 1536) == 0);
  REQUIRE(advance_read(read, stalls, 512, -EIO) == EIO);
  stalls = 0;
  for (unsigned i = 0; i < read_stalls_max; ++i)
    REQUIRE(advance_read(read, stalls, 512, -EAGAIN) == read_goes_on);
  REQUIRE(advance_read(read, stalls, 512, -EAGAIN) == EAGAIN);
}
