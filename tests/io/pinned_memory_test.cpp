#include "io/pinned_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>

#include "runtime/base/limits.h"
#include "runtime/base/units.h"

using namespace millrace;

namespace {

std::uint64_t mapped(const PinnedMemory& memory) {
  std::uint64_t bytes = 0;
  for (const auto segment : memory.segments()) bytes += segment.size();
  return bytes;
}

// Pages of this process that are in memory, as the kernel counts them.
std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * 4096;
}

bool inside(const PinnedBlock& block, std::span<std::byte> segment) {
  return block.data >= segment.data() &&
         block.data + block.bytes <= segment.data() + segment.size();
}

}  // namespace

TEST_CASE("Blocks lie in their segments, do not overlap, are aligned, zero and writable") {
  PinnedMemory memory;
  auto blocks = memory.allocate(37, 300'001);
  REQUIRE(blocks);
  REQUIRE(blocks->size() == 37);
  for (std::size_t i = 0; i < 37; ++i) {
    const PinnedBlock& block = (*blocks)[i];
    REQUIRE(block.bytes == round_up(300'001, 4096));
    REQUIRE(reinterpret_cast<std::uintptr_t>(block.data) % 4096 == 0);
    REQUIRE(inside(block, memory.segments()[static_cast<std::size_t>(block.buffer)]));
    REQUIRE(block.data[0] == std::byte{0});
    REQUIRE(block.data[block.bytes - 1] == std::byte{0});
    std::memset(block.data, static_cast<int>(i + 1), block.bytes);
  }
  for (std::size_t i = 0; i < 37; ++i) {
    const PinnedBlock& block = (*blocks)[i];
    REQUIRE(block.data[0] == static_cast<std::byte>(i + 1));
    REQUIRE(block.data[block.bytes - 1] == static_cast<std::byte>(i + 1));
  }
}

TEST_CASE("A small pool is one segment of its own size, a large one is cut below the limit") {
  PinnedMemory memory;
  REQUIRE(memory.allocate(3, 1 * MiB));
  REQUIRE(memory.segments().size() == 1);
  REQUIRE(memory.segments()[0].size() == 3 * MiB);
  REQUIRE(reinterpret_cast<std::uintptr_t>(memory.segments()[0].data()) % (2 * MiB) == 0);
  const auto more = memory.allocate(3, 100 * MiB);
  REQUIRE(more);
  REQUIRE(memory.segments().size() == 3);
  REQUIRE((*more)[1].buffer == 1);
  REQUIRE((*more)[2].buffer == 2);
  for (const auto segment : memory.segments()) REQUIRE(segment.size() <= limits::segment_bytes_max);
}

TEST_CASE("mapped_bytes tells what allocate maps") {
  struct Case {
    std::uint64_t count, bytes_each;
  };
  for (const auto& [count, bytes_each] :
       {Case{1, 1}, Case{3, 1 * MiB}, Case{5, 12'345'678}, Case{1, 257 * MiB}, Case{300, 1'000'000},
        Case{0, 5}, Case{5, 0}}) {
    CAPTURE(count, bytes_each);
    PinnedMemory memory;
    const auto blocks = memory.allocate(count, bytes_each);
    REQUIRE(blocks);
    REQUIRE(blocks->size() == (bytes_each == 0 ? 0 : count));
    REQUIRE(mapped(memory) == PinnedMemory::mapped_bytes(count, bytes_each));
    REQUIRE(memory.stats().bytes == mapped(memory));
  }
}

TEST_CASE("Impossible sizes are refused with the flag to change, and nothing stays mapped") {
  PinnedMemory memory;
  for (const std::uint64_t bytes_each : {UINT64_MAX, UINT64_MAX / 2, std::uint64_t{1} << 46}) {
    const auto blocks = memory.allocate(2, bytes_each);
    REQUIRE_FALSE(blocks);
    REQUIRE(blocks.error().code == ErrorCode::memory);
    REQUIRE(blocks.error().what.find("--cache") != std::string::npos);
  }
  REQUIRE_FALSE(memory.allocate(UINT64_MAX, 4096));
  REQUIRE_FALSE(memory.allocate(std::uint64_t{limits::segments_max} + 1, 256 * MiB));
  REQUIRE(memory.segments().empty());
  REQUIRE(PinnedMemory::mapped_bytes(UINT64_MAX, 4096) == UINT64_MAX);
}

TEST_CASE("Statistics are consistent: locked or a reason, huge pages no more than all") {
  PinnedMemory memory;
  REQUIRE(memory.allocate(4, 4 * MiB));
  const PinnedMemoryStats stats = memory.stats();
  REQUIRE(stats.bytes == 16 * MiB);
  REQUIRE(stats.huge_bytes <= stats.bytes);
  REQUIRE((stats.locked_bytes == stats.bytes) == stats.unlocked_reason.empty());
}

TEST_CASE("A segment that is given back costs nothing, and taken again it is zero and as before") {
  PinnedMemory memory;
  const auto blocks = memory.allocate(8, 4 * MiB, 8 * MiB);
  REQUIRE(blocks);
  REQUIRE(memory.segments().size() == 4);
  REQUIRE((*blocks)[3].buffer == 1);
  for (const PinnedBlock& block : *blocks) std::memset(block.data, 7, block.bytes);
  const PinnedMemoryStats before = memory.stats();
  const std::uint64_t resident = resident_bytes();
  REQUIRE(memory.give_back(1));
  // What other threads or the allocator do is far less than a segment.
  CHECK(resident_bytes() + 6 * MiB < resident);
  CHECK(memory.stats().bytes == 24 * MiB);
  CHECK(memory.stats().locked_bytes <= 24 * MiB);
  CHECK((*blocks)[0].data[0] == std::byte{7});
  CHECK((*blocks)[7].data[0] == std::byte{7});
  REQUIRE(memory.take_again(1));
  const PinnedMemoryStats after = memory.stats();
  CHECK(after.bytes == before.bytes);
  CHECK(after.locked_bytes == before.locked_bytes);
  CHECK(after.unlocked_reason == before.unlocked_reason);
  for (const std::size_t i : {2, 3}) {
    const PinnedBlock& block = (*blocks)[i];
    CHECK(std::all_of(block.data, block.data + block.bytes,
                      [](std::byte value) { return value == std::byte{0}; }));
  }
}

TEST_CASE("A segment that the system does not give again stays given back, and can be asked for") {
  PinnedMemory memory;
  REQUIRE(memory.allocate(4, 8 * MiB, 8 * MiB));
  REQUIRE(memory.give_back(3));
  rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_DATA, &before) == 0);
  const rlimit little = {1 * MiB, before.rlim_max};  // of memory that can be written to
  REQUIRE(setrlimit(RLIMIT_DATA, &little) == 0);
  const Status refused = memory.take_again(3);
  REQUIRE(setrlimit(RLIMIT_DATA, &before) == 0);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ErrorCode::memory);
  CHECK(refused.error().what.find("8.00 MiB") != std::string::npos);
  CHECK(memory.stats().bytes == 24 * MiB);
  REQUIRE(memory.take_again(3));
  CHECK(memory.stats().bytes == 32 * MiB);
  memory.segments()[3][0] = std::byte{1};
}

TEST_CASE("Segments may be made smaller than the limit, but never smaller than a block") {
  PinnedMemory memory;
  const auto blocks = memory.allocate(7, 3 * MiB, 8 * MiB);
  REQUIRE(blocks);
  REQUIRE(memory.segments().size() == 4);
  CHECK(mapped(memory) == PinnedMemory::mapped_bytes(7, 3 * MiB, 8 * MiB));
  CHECK((*blocks)[2].buffer == 1);
  REQUIRE(memory.allocate(2, 3 * MiB, 1 * MiB));
  CHECK(memory.segments().size() == 6);
}

TEST_CASE("Moved memory stays where it is") {
  PinnedMemory first;
  auto blocks = first.allocate(1, 10'000);
  REQUIRE(blocks);
  (*blocks)[0].data[0] = std::byte{42};
  PinnedMemory second = std::move(first);
  REQUIRE(first.segments().empty());
  REQUIRE(second.segments().size() == 1);
  REQUIRE(second.segments()[0].data() == (*blocks)[0].data);
  REQUIRE((*blocks)[0].data[0] == std::byte{42});
}
