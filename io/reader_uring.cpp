#include "io/reader_uring.h"

#include <fmt/format.h>
#include <liburing.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "io/errno_text.h"
#include "io/read_progress.h"
#include "runtime/base/clock.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"

namespace millrace {

namespace {

constexpr std::uint64_t wake_tag = UINT64_MAX;  // user_data of the read on the eventfd

Error refused(const std::string& why) { return Error{ErrorCode::io, "io_uring: " + why}; }

// The value of sysctl kernel.io_uring_disabled, or -1 where it does not exist.
int io_uring_disabled() noexcept {
  std::FILE* file = std::fopen("/proc/sys/kernel/io_uring_disabled", "re");
  if (file == nullptr) return -1;
  const int digit = std::fgetc(file);
  std::fclose(file);
  return digit >= '0' && digit <= '9' ? digit - '0' : -1;
}

std::string memlock_text() {
  rlimit limit = {};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  return limit.rlim_cur == RLIM_INFINITY
             ? std::string("RLIMIT_MEMLOCK is unlimited")
             : fmt::format("RLIMIT_MEMLOCK is {}", format_bytes(limit.rlim_cur));
}

std::string setup_failure(int code) {
  switch (code) {
    case ENOSYS:
      return "this kernel has none, or a sandbox hides it (ENOSYS)";
    case EPERM:
    case EACCES:
      if (const int value = io_uring_disabled(); value > 0)
        return fmt::format("forbidden by sysctl kernel.io_uring_disabled = {} ({})", value,
                           errno_text(code));
      return fmt::format("forbidden here, most likely by a seccomp filter or security module ({})",
                         errno_text(code));
    case ENOMEM:
      return fmt::format("no memory for the ring; {}: raise it with `ulimit -l`", memlock_text());
    case EMFILE:
    case ENFILE:
      return fmt::format("too many open files ({}): raise `ulimit -n`", errno_text(code));
    case EINVAL:
      return "this kernel refuses the ring's parameters (EINVAL)";
    default:
      return fmt::format("setting up the ring: {}", errno_text(code));
  }
}

class UringReader final : public Reader {
 public:
  explicit UringReader(const ReaderOptions& options)
      : files_(options.files.begin(), options.files.end()),
        buffers_(options.buffers.begin(), options.buffers.end()),
        depth_(options.depth),
        polling_(options.polling),
        slots_(depth_) {
    free_slots_.reserve(depth_);
    finished_.reserve(depth_);
    for (std::uint32_t i = depth_; i > 0; --i) free_slots_.push_back(i - 1);
  }

  ~UringReader() override {
    if (wake_read_posted_ || in_flight() > 0) drain();
    // Else the system lets go of the pages some time after the process has ended.
    if (registered_count_ > 0) io_uring_unregister_buffers(&ring_);
    if (ring_made_) io_uring_queue_exit(&ring_);
    if (event_fd_ >= 0) close(event_fd_);
  }

  Status start(std::string& buffers_reason) {
    MILLRACE_TRY(make_ring());
    io_uring_register_ring_fd(&ring_);  // saves a look-up per call; older kernels do without
    register_files();
    register_buffers(buffers_reason);
    return post_first_wake_read();
  }

  const char* name() const noexcept override { return "uring"; }
  std::uint32_t depth() const noexcept override { return depth_; }
  std::uint32_t in_flight() const noexcept override {
    return depth_ - static_cast<std::uint32_t>(free_slots_.size());
  }
  std::uint32_t registered_buffers() const noexcept override { return registered_count_; }
  // The kernel lets go of the pages at once: no read has them.
  bool register_buffer(std::uint32_t buffer, bool wanted) noexcept override {
    MILLRACE_CHECK(buffer < buffers_.size());
    if (registered_.empty() || registered_[buffer] == wanted) return wanted && !registered_.empty();
    const iovec vector =
        wanted ? iovec{buffers_[buffer].data(), buffers_[buffer].size()} : iovec{nullptr, 0};
    const __u64 tag = 0;
    if (io_uring_register_buffers_update_tag(&ring_, buffer, &vector, &tag, 1) == 1) {
      registered_[buffer] = wanted;
      registered_count_ += wanted ? 1 : -1U;
    }
    return registered_[buffer];
  }
  bool deferred() const noexcept { return deferred_; }
  bool files_registered() const noexcept { return files_registered_; }

  bool submit(Read& read) noexcept override {
    MILLRACE_CHECK(read.file < files_.size() && read.needed_bytes <= read.bytes);
    MILLRACE_CHECK(read.buffer < static_cast<std::int64_t>(buffers_.size()));
    if (free_slots_.empty()) return false;
    const std::uint32_t slot = free_slots_.back();
    free_slots_.pop_back();
    read.arrived_bytes = 0;
    read.submitted_ns = system_clock().now_ns();
    slots_[slot] = {&read, 0};
    prepare(slot);
    return true;
  }

  std::uint32_t poll(bool wait) noexcept override {
    MILLRACE_CHECK(finished_.empty());  // not from a callback
    while (true) {
      enter(wait && !woken_);
      reap();
      if (polling_ == RingPolling::completions) take_wakes();
      if (!wait || !finished_.empty() || woken_) break;
    }
    if (wait) woken_ = false;
    // What reap() asked for again goes out before callbacks take their time.
    if (io_uring_sq_ready(&ring_) > 0) enter(false);
    const auto ran = static_cast<std::uint32_t>(finished_.size());
    for (const Finished& finished : finished_) finished.read->done(*finished.read, finished.status);
    finished_.clear();
    return ran;
  }

  void wake() noexcept override {
    const std::uint64_t one = 1;
    ssize_t wrote = 0;
    do {
      wrote = write(event_fd_, &one, sizeof one);
    } while (wrote < 0 && errno == EINTR);
    MILLRACE_CHECK(wrote == sizeof one);
  }

 private:
  struct Slot {
    Read* read = nullptr;
    unsigned stalls = 0;
  };
  struct Finished {
    Read* read;
    int status;
  };

  // Deferred task work saves interrupts of the owner; kernels before 6.1 get fewer flags. One entry
  // per read in flight and one for the wake read: neither queue can overflow.
  Status make_ring() {
    int failure = 0;
    io_uring_params params = {};
    const bool kernel_submits = polling_ == RingPolling::submissions;
    const unsigned always = IORING_SETUP_CLAMP | (kernel_submits ? IORING_SETUP_SQPOLL : 0u) |
                            (polling_ == RingPolling::completions ? IORING_SETUP_IOPOLL : 0u);
    for (const unsigned flags :
         {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL,
          IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL, 0u}) {
      if (kernel_submits && flags != 0) continue;  // nobody's task work is left to defer
      params = {};
      params.flags = flags | always;
      failure = -io_uring_queue_init_params(depth_ + 1, &ring_, &params);
      ring_made_ = failure == 0;
      deferred_ = (flags & IORING_SETUP_DEFER_TASKRUN) != 0;
      if (failure != EINVAL) break;
    }
    if (failure != 0) return refused(setup_failure(failure));
    // Came in Linux 5.6 together with IORING_OP_READ; asking for the operations themselves needs
    // io_uring_register, which a sandbox may refuse.
    if ((params.features & IORING_FEAT_RW_CUR_POS) == 0)
      return refused("this kernel's is too old for plain reads (Linux 5.6 is needed)");
    if (io_uring_sq_space_left(&ring_) < depth_ + 1)
      return refused(fmt::format("the kernel's queue is shorter than {}", depth_ + 1));
    return {};
  }

  // Without registration (too many for RLIMIT_NOFILE, say) plain descriptors do.
  void register_files() {
    std::vector<int> descriptors;
    for (const File* file : files_) descriptors.push_back(file->fd());
    files_registered_ = !descriptors.empty() &&
                        io_uring_register_files(&ring_, descriptors.data(),
                                                static_cast<unsigned>(descriptors.size())) == 0;
  }

  // One by one into a sparse table, so that what the limit allows is registered.
  void register_buffers(std::string& reason) {
    if (buffers_.empty()) return;
    registered_.assign(buffers_.size(), false);
    std::vector<iovec> vectors;
    for (const std::span<std::byte> buffer : buffers_)
      vectors.push_back({buffer.data(), buffer.size()});
    const auto count = static_cast<unsigned>(vectors.size());
    int failure = -io_uring_register_buffers_sparse(&ring_, count);
    if (failure == 0) {
      for (unsigned i = 0; i < count && failure == 0; ++i) {
        const __u64 tag = 0;
        const int got = io_uring_register_buffers_update_tag(&ring_, i, &vectors[i], &tag, 1);
        if (got == 1) {
          registered_[i] = true;
          ++registered_count_;
        } else {
          failure = got < 0 ? -got : EIO;
        }
      }
    } else if (failure == EINVAL) {  // before Linux 5.19: all or none
      failure = -io_uring_register_buffers(&ring_, vectors.data(), count);
      if (failure == 0) {
        registered_.assign(count, true);
        registered_count_ = count;
      }
    }
    if (failure != 0) reason = registration_failure(failure);
  }

  std::string registration_failure(int code) const {
    std::uint64_t bytes = 0;
    for (const std::span<std::byte> buffer : buffers_) bytes += buffer.size();
    const std::string done = fmt::format("{} of {} buffers registered with io_uring",
                                         registered_count_, buffers_.size());
    if (code == ENOMEM) {
      return fmt::format("{}: {}, {} needed: raise it with `ulimit -l {}`", done, memlock_text(),
                         format_bytes(bytes), (bytes + KiB - 1) / KiB);
    }
    return fmt::format("{}: {}", done, errno_text(code));
  }

  // Also shows whether io_uring_enter is allowed at all.
  Status post_first_wake_read() {
    event_fd_ = eventfd(0, EFD_CLOEXEC);
    if (event_fd_ < 0) return refused(setup_failure(errno));
    if (polling_ == RingPolling::completions) return {};  // an eventfd has no queue to ask
    post_wake_read();
    const int submitted = io_uring_submit(&ring_);
    if (submitted == 1) return {};
    wake_read_posted_ = false;
    return refused(setup_failure(submitted < 0 ? -submitted : EIO));
  }

  io_uring_sqe& next_entry() noexcept {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    MILLRACE_CHECK(entry != nullptr);
    return *entry;
  }

  void post_wake_read() noexcept {
    io_uring_sqe& entry = next_entry();
    io_uring_prep_read(&entry, event_fd_, &event_count_, sizeof event_count_, 0);
    entry.user_data = wake_tag;
    wake_read_posted_ = true;
  }

  // Asks for what is missing of the slot's read.
  void prepare(std::uint32_t slot) noexcept {
    const Read& read = *slots_[slot].read;
    io_uring_sqe& entry = next_entry();
    const int fd = files_registered_ ? static_cast<int>(read.file) : files_[read.file]->fd();
    std::byte* target = read.target + read.arrived_bytes;
    const std::uint32_t bytes = read.bytes - read.arrived_bytes;
    const std::uint64_t offset = read.offset_bytes + read.arrived_bytes;
    if (read.buffer >= 0 && registered_[static_cast<std::size_t>(read.buffer)]) {
      io_uring_prep_read_fixed(&entry, fd, target, bytes, offset, read.buffer);
    } else {
      io_uring_prep_read(&entry, fd, target, bytes, offset);
    }
    if (files_registered_) entry.flags |= IOSQE_FIXED_FILE;
    entry.user_data = slot;
  }

  // Wakes of a ring whose completions are polled come past it: noticed after the next completion,
  // or at once if no read is in flight.
  void take_wakes() noexcept {
    pollfd news = {event_fd_, POLLIN, 0};
    if (::poll(&news, 1, 0) == 1 &&
        read(event_fd_, &event_count_, sizeof event_count_) == sizeof event_count_)
      woken_ = true;
  }

  // Hands over what is prepared and, if asked, waits for a completion.
  void enter(bool wait) noexcept {
    int result = 0;
    if (polling_ == RingPolling::completions && in_flight() == 0) {
      pollfd news = {event_fd_, POLLIN, 0};
      if (wait && finished_.empty()) ::poll(&news, 1, -1);
      return;
    }
    if (wait) {
      result = io_uring_submit_and_wait(&ring_, 1);
    } else if (deferred_ || polling_ == RingPolling::completions) {
      result = io_uring_submit_and_get_events(&ring_);
    } else {
      result = io_uring_submit(&ring_);
    }
    if (result >= 0 || result == -EINTR) return;
    // EAGAIN: no memory for a request just now; EBUSY: completions must be reaped first.
    const bool passing = result == -EAGAIN || result == -EBUSY;
    if (!passing) log_error("io_uring_enter: " + errno_text(-result));
    MILLRACE_CHECK(passing);
    sched_yield();
  }

  // Takes completions off the ring; callbacks run later.
  void reap() noexcept {
    unsigned head = 0;
    unsigned count = 0;
    io_uring_cqe* completion = nullptr;
    io_uring_for_each_cqe(&ring_, head, completion) {
      ++count;
      if (completion->user_data == wake_tag) {
        woken_ = true;
        wake_read_posted_ = false;
        if (!draining_) post_wake_read();
      } else {
        finish_or_go_on(static_cast<std::uint32_t>(completion->user_data), completion->res);
      }
    }
    io_uring_cq_advance(&ring_, count);
  }

  void finish_or_go_on(std::uint32_t slot, int result) noexcept {
    Read& read = *slots_[slot].read;
    const std::uint32_t block = files_[read.file]->block_bytes();
    const int status = advance_read(read, slots_[slot].stalls, block, result);
    if (status == read_goes_on) {
      prepare(slot);
      return;
    }
    slots_[slot].read = nullptr;
    free_slots_.push_back(slot);
    finished_.push_back({&read, status});
  }

  // The drive may not write into memory that its owner takes back after us.
  void drain() noexcept {
    draining_ = true;
    if (wake_read_posted_) wake();
    while (wake_read_posted_ || in_flight() > 0) {
      enter(true);
      reap();
      finished_.clear();
    }
  }

  const std::vector<const File*> files_;
  const std::vector<std::span<std::byte>> buffers_;
  const std::uint32_t depth_;
  const RingPolling polling_;
  io_uring ring_ = {};
  bool ring_made_ = false;
  bool deferred_ = false;  // completions show up only inside io_uring_enter
  bool files_registered_ = false;
  std::vector<bool> registered_;  // by buffer
  std::uint32_t registered_count_ = 0;
  int event_fd_ = -1;
  std::uint64_t event_count_ = 0;  // what the kernel reads from event_fd_
  bool wake_read_posted_ = false;
  bool woken_ = false;
  bool draining_ = false;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_slots_;
  std::vector<Finished> finished_;  // never more than depth_: no allocation
};

}  // namespace

Result<MadeReader> make_uring_reader(const ReaderOptions& options) {
  auto reader = std::make_unique<UringReader>(options);
  MadeReader made;
  MILLRACE_TRY(reader->start(made.buffers_reason));
  made.reader = std::move(reader);
  return made;
}

UringFeatures probe_uring(const File& file) {
  constexpr std::size_t buffer_bytes = 4096;
  UringFeatures features;
  std::vector<std::byte> memory(buffer_bytes);
  const File* const files[] = {&file};
  const std::span<std::byte> buffers[] = {memory};
  ReaderOptions options;
  options.depth = 2;
  options.files = files;
  options.buffers = buffers;
  {
    UringReader plain(options);
    if (const Status started = plain.start(features.buffers_reason); !started) {
      features.refused = started.error().what;
      return features;
    }
    features.deferred_work = plain.deferred();
    features.registered_files = plain.files_registered();
    features.registered_buffers = plain.registered_buffers() == 1;
  }
  const auto starts = [&](RingPolling polling) {
    std::string ignored;
    options.polling = polling;
    UringReader polled(options);
    return polled.start(ignored).has_value();
  };
  features.kernel_submits = starts(RingPolling::submissions);
  features.polled_completions = starts(RingPolling::completions);
  return features;
}

}  // namespace millrace
