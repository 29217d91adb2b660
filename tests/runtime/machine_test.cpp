// The machine as files under /proc and /sys tell it, in folders that the test writes.
#include "runtime/machine.h"

#include <sched.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/base/units.h"
#include "tests/support/temp_folder.h"

using namespace millrace;
using millrace::testing::TempFolder;

namespace {

class FakeRoot {
 public:
  FakeRoot& file(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = folder_.path(path);
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole, std::ios::binary) << text;
    return *this;
  }
  FakeRoot& meminfo(std::uint64_t available_kib) {
    return file("proc/meminfo",
                "MemTotal:       16000000 kB\nMemFree:         1000000 kB\n"
                "MemAvailable:   " +
                    std::to_string(available_kib) + " kB\nBuffers: 7 kB\n");
  }
  FakeRoot& v2(const std::string& group, const std::string& limit, std::uint64_t usage,
               std::uint64_t inactive) {
    file("sys/fs/cgroup" + group + "/memory.max", limit + "\n");
    file("sys/fs/cgroup" + group + "/memory.current", std::to_string(usage) + "\n");
    return file("sys/fs/cgroup" + group + "/memory.stat",
                "anon 5\ninactive_anon 77\ninactive_file " + std::to_string(inactive) +
                    "\nactive_file 3\n");
  }
  FakeRoot& v1(const std::string& group, std::uint64_t limit, std::uint64_t usage,
               std::uint64_t inactive) {
    const std::string folder = "sys/fs/cgroup/memory" + group;
    file(folder + "/memory.limit_in_bytes", std::to_string(limit) + "\n");
    file(folder + "/memory.usage_in_bytes", std::to_string(usage) + "\n");
    return file(folder + "/memory.stat",
                "inactive_file 1\ntotal_inactive_file " + std::to_string(inactive) + "\n");
  }
  Machine read() const { return read_machine(folder_.path("")); }

 private:
  TempFolder folder_;
};

constexpr std::uint64_t eight_gib_in_kib = 8 * MiB;

}  // namespace

TEST_CASE("machine: without control groups MemAvailable counts") {
  const Machine machine = FakeRoot().meminfo(eight_gib_in_kib).read();
  CHECK(machine.memory_available == 8 * GiB);
  CHECK(machine.system_available == 8 * GiB);
  CHECK(machine.cgroup_available == 0);
  CHECK(machine.memory_source == "MemAvailable");
}

TEST_CASE("machine: a version 2 group's limit counts, its inactive page cache as free") {
  FakeRoot root;
  root.meminfo(eight_gib_in_kib).file("proc/self/cgroup", "0::/user.slice/app.scope\n");
  root.v2("/user.slice/app.scope", std::to_string(4 * GiB), 3 * GiB, 1 * GiB);
  const Machine machine = root.read();
  CHECK(machine.memory_available == 2 * GiB);
  CHECK(machine.cgroup_available == 2 * GiB);
  CHECK(machine.system_available == 8 * GiB);
  CHECK(machine.memory_source == "cgroup limit of 4.00 GiB");
}

TEST_CASE("machine: of nested groups the tightest counts, also the mount itself") {
  FakeRoot root;
  root.meminfo(eight_gib_in_kib).file("proc/self/cgroup", "0::/a/b/c\n");
  root.v2("/a/b/c", "max", 1 * GiB, 0);
  root.v2("/a/b", std::to_string(6 * GiB), 1 * GiB, 0);
  root.v2("/a", std::to_string(4 * GiB), 3 * GiB, 0);
  CHECK(root.read().memory_available == 1 * GiB);
  CHECK(root.read().memory_source == "cgroup limit of 4.00 GiB");
  root.v2("", std::to_string(512 * MiB), 256 * MiB, 0);
  CHECK(root.read().memory_available == 256 * MiB);
  CHECK(root.read().memory_source == "cgroup limit of 512 MiB");
}

TEST_CASE("machine: in a container whose own group is the mount, that limit counts") {
  FakeRoot root;
  root.meminfo(eight_gib_in_kib);
  root.v2("", std::to_string(2 * GiB), 1 * GiB, 512 * MiB);
  for (const char* group : {"0::/\n", "0::/docker/0123456789ab\n", "0::/../..\n"}) {
    root.file("proc/self/cgroup", group);
    CHECK(root.read().memory_available == 1 * GiB + 512 * MiB);
  }
}

TEST_CASE("machine: a version 1 memory group counts, its huge number is no limit") {
  FakeRoot root;
  root.meminfo(eight_gib_in_kib);
  root.file("proc/self/cgroup",
            "12:cpu,cpuacct:/x\n7:memory:/job/7\n3:cpuset:/\n1:name=systemd:/init.scope\n");
  root.v1("/job/7", 9223372036854771712U, 5 * GiB, 0);
  CHECK(root.read().cgroup_available == 0);
  root.v1("/job", 3 * GiB, 1 * GiB, 512 * MiB);
  CHECK(root.read().memory_available == 2 * GiB + 512 * MiB);
  CHECK(root.read().memory_source == "cgroup limit of 3.00 GiB");
  root.file("proc/self/cgroup", "5:blkio,memory,pids:/job/7\n");
  CHECK(root.read().memory_available == 2 * GiB + 512 * MiB);
}

TEST_CASE("machine: a group above its limit leaves nothing, one above the system's rest not more") {
  FakeRoot root;
  root.meminfo(eight_gib_in_kib).file("proc/self/cgroup", "0::/a\n");
  root.v2("/a", std::to_string(1 * GiB), 2 * GiB, 0);
  CHECK(root.read().memory_available == 0);
  CHECK(root.read().memory_source == "cgroup limit of 1.00 GiB");
  root.v2("/a", std::to_string(1 * GiB), 1 * GiB, 3 * GiB);  // more inactive than used
  CHECK(root.read().memory_available == 1 * GiB);
  root.v2("/a", std::to_string(100 * GiB), 1 * GiB, 0);
  CHECK(root.read().memory_available == 8 * GiB);
  CHECK(root.read().cgroup_available == 99 * GiB);
  CHECK(root.read().memory_source == "MemAvailable");
}

TEST_CASE("machine: what cannot be read or understood is no limit and no crash") {
  CHECK(FakeRoot().read().memory_available == 0);
  FakeRoot root;
  root.meminfo(eight_gib_in_kib);
  for (const std::string text :
       {"", "\n", ":", "::", "0::", "0::relative/path\n", "0::no-slash", "memory:/x",
        "7:memory:", "7:memory:x\n0::////\n", "0:::::/\n", "\xff\xfe\n0::/\n"}) {
    root.file("proc/self/cgroup", text);
    CHECK(root.read().memory_available == 8 * GiB);
  }
  root.file("proc/self/cgroup", std::string("0::/\0/a\n", 8));
  CHECK(root.read().memory_available == 8 * GiB);
  root.file("proc/self/cgroup", "0::/a\n").v2("/a", "garbage", 1, 0);
  CHECK(root.read().memory_available == 8 * GiB);
  root.v2("/a", "-1", 1, 0);
  CHECK(root.read().memory_available == 8 * GiB);
  root.v2("/a", "99999999999999999999999999", 1, 0);
  CHECK(root.read().memory_available == 8 * GiB);
  root.v2("/a", std::to_string(1 * GiB), 0, 0).file("sys/fs/cgroup/a/memory.stat", "garbage");
  CHECK(root.read().memory_available == 1 * GiB);
  root.file("proc/meminfo", "MemAvailable: lots\n");
  CHECK(root.read().memory_available == 0);
  CHECK(root.read().system_available == 0);
}

TEST_CASE("machine: threads of one core count once, slow cores not beside fast ones") {
  FakeRoot same, apart, mixed;
  cpu_set_t allowed;  // the others are not looked at
  REQUIRE(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
  unsigned count = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const std::string folder = "sys/devices/system/cpu/cpu" + std::to_string(cpu);
    same.file(folder + "/topology/core_id", "0\n");
    mixed.file(folder + "/cpufreq/cpuinfo_max_freq", count == 0 ? "5000000\n" : "3000000\n");
    ++count;
  }
  CHECK(same.read().cores == 1);
  CHECK(mixed.read().cores == 1);
  CHECK(apart.read().cores == count);
  CHECK(read_machine().cores >= 1);
}

TEST_CASE("machine: the real one has memory, and this process has used some") {
  CHECK(read_machine().memory_available > 0);
  CHECK(peak_rss_bytes() > 1 * MiB);
}
