// Reader: the seam between "which bytes" and "how they are fetched". Two real ones: io_uring and
// pread threads. One thread owns a Reader: it alone calls everything but wake().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "io/file.h"
#include "runtime/base/result.h"

namespace millrace {

// One request, owned by its requester, in place and unmoved until `done` has run.
struct Read {
  std::uint32_t file = 0;          // index into the files the reader was made with
  std::uint64_t offset_bytes = 0;  // multiple of the file's block_bytes(), as are target and bytes
  std::byte* target = nullptr;
  std::uint32_t bytes = 0;  // asked for; may reach past the end of the file in its last block
  std::uint32_t needed_bytes =
      0;  // how many must arrive, <= bytes; fewer is an error (the file was truncated)
  std::int32_t buffer = -1;  // index of the registered buffer that holds target, or -1
  // Runs inside poll(), never inside submit(). errno_or_zero: 0, an errno, or -1 for an unexpected
  // end of file.
  void (*done)(Read& read, int errno_or_zero) = nullptr;
  void* owner = nullptr;            // the requester's
  std::uint32_t arrived_bytes = 0;  // the reader's
  std::uint64_t submitted_ns = 0;   // the reader's: for latency statistics
};

class Reader {
 public:
  virtual ~Reader() = default;
  virtual const char* name() const noexcept = 0;     // "uring" or "threads"
  virtual std::uint32_t depth() const noexcept = 0;  // reads that may be in flight
  virtual std::uint32_t in_flight() const noexcept = 0;
  virtual std::uint32_t registered_buffers()
      const noexcept = 0;  // how many of the given buffers are registered
  // Takes one of the given buffers out of the registered ones, or registers it again; no read into
  // it is in flight. Returns whether it is registered then. Reads into one that is not are plain.
  virtual bool register_buffer(std::uint32_t /*buffer*/, bool /*wanted*/) noexcept { return false; }
  // Takes the read if fewer than depth() are in flight; false otherwise (nothing happened).
  virtual bool submit(Read& read) noexcept = 0;
  // Hands submitted reads to the kernel, reaps completions and runs their callbacks (all after
  // reaping, so callbacks may submit). Short reads, EINTR and EAGAIN are finished inside. wait:
  // block until at least one callback ran or wake() was called. Returns the callbacks run.
  virtual std::uint32_t poll(bool wait) noexcept = 0;
  // Makes the current or the next waiting poll() return. Any thread.
  virtual void wake() noexcept = 0;
};

enum class ReaderKind : std::uint8_t { automatic, uring, threads };

// Who looks after the ring's two queues: measured by `millrace floor`, not used by the engine.
enum class RingPolling : std::uint8_t {
  none,         // system calls submit, interrupts complete
  submissions,  // IORING_SETUP_SQPOLL: a thread of the kernel takes reads off the queue
  completions,  // IORING_SETUP_IOPOLL: the owner asks the drive; direct files of drives with poll
                // queues only, others answer each read with EOPNOTSUPP
};

struct ReaderOptions {
  ReaderKind kind = ReaderKind::automatic;  // automatic: uring, else threads with a logged reason
  RingPolling polling = RingPolling::none;  // uring only
  std::uint32_t depth = 16;
  std::uint32_t drives = 1;  // that the files lie on: so many times the threads (threads only)
  std::span<const File* const> files;  // must outlive the reader
  std::span<const std::span<std::byte>>
      buffers;  // memory to register, each at most limits::segment_bytes_max; must outlive the
                // reader
};

struct MadeReader {
  std::unique_ptr<Reader> reader;
  std::string fallback_reason;  // why not uring, empty if it is or was not asked for
  std::string buffers_reason;   // why the buffers are not registered, empty if they are
};

// Call in the thread that will own the reader. Explicit `uring` fails with `io` where io_uring is
// refused; automatic falls back and says why. Registration of buffers failing (RLIMIT_MEMLOCK) is
// no failure: plain reads are used.
Result<MadeReader> make_reader(const ReaderOptions& options);

}  // namespace millrace
