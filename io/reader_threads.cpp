#include "io/reader_threads.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "io/named_thread.h"
#include "io/read_progress.h"
#include "runtime/base/clock.h"

namespace millrace {

namespace {

class ThreadsReader final : public Reader {
 public:
  explicit ThreadsReader(const ReaderOptions& options)
      : files_(options.files.begin(), options.files.end()),
        // Reads that no thread serves yet would stand behind those of a slower drive.
        depth_(options.drives > 1 ? std::min(options.depth, reader_threads_max * options.drives)
                                  : options.depth),
        threads_(std::min(depth_, reader_threads_max * std::max(1U, options.drives))),
        queue_(depth_) {
    finished_.reserve(depth_);
    calling_.reserve(depth_);
  }

  ~ThreadsReader() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_.notify_all();
    for (NamedThread& worker : workers_) worker.join();
  }

  Status start() {
    workers_.reserve(threads_);
    for (std::uint32_t i = 0; i < threads_; ++i) {
      MILLRACE_ASSIGN(NamedThread worker, NamedThread::start(fmt::format("mr-read-{}", i).c_str(),
                                                             &ThreadsReader::work, this));
      workers_.push_back(std::move(worker));
    }
    return {};
  }

  const char* name() const noexcept override { return "threads"; }
  std::uint32_t depth() const noexcept override { return depth_; }
  std::uint32_t in_flight() const noexcept override { return in_flight_; }
  std::uint32_t registered_buffers() const noexcept override { return 0; }

  bool submit(Read& read) noexcept override {
    MILLRACE_CHECK(read.file < files_.size() && read.needed_bytes <= read.bytes);
    if (in_flight_ == depth_) return false;
    ++in_flight_;
    read.arrived_bytes = 0;
    read.submitted_ns = system_clock().now_ns();
    {
      const std::lock_guard lock(mutex_);
      queue_[(queue_head_ + queue_count_) % depth_] = &read;
      ++queue_count_;
    }
    work_.notify_one();
    return true;
  }

  std::uint32_t poll(bool wait) noexcept override {
    MILLRACE_CHECK(calling_.empty());  // not from a callback
    {
      std::unique_lock lock(mutex_);
      if (wait) {
        owner_waits_ = true;
        done_.wait(lock, [this] { return !finished_.empty() || woken_; });
        owner_waits_ = false;
        woken_ = false;
      }
      calling_.swap(finished_);
    }
    const auto ran = static_cast<std::uint32_t>(calling_.size());
    in_flight_ -= ran;
    for (const Finished& finished : calling_) finished.read->done(*finished.read, finished.status);
    calling_.clear();
    return ran;
  }

  void wake() noexcept override {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    if (owner_waits_) done_.notify_one();
  }

 private:
  struct Finished {
    Read* read;
    int status;
  };

  static void* work(void* self) {
    static_cast<ThreadsReader*>(self)->work_loop();
    return nullptr;
  }

  // A worker: takes reads in order until the reader stops and none is left.
  void work_loop() noexcept {
    std::unique_lock lock(mutex_);
    while (true) {
      work_.wait(lock, [this] { return queue_count_ > 0 || stopping_; });
      if (queue_count_ == 0 || stopping_) return;
      Read& read = *queue_[queue_head_];
      queue_head_ = (queue_head_ + 1) % depth_;
      --queue_count_;
      lock.unlock();
      const int status = read_all(read);
      lock.lock();
      finished_.push_back({&read, status});
      if (owner_waits_) done_.notify_one();
    }
  }

  int read_all(Read& read) const noexcept {
    const File& file = *files_[read.file];
    unsigned stalls = 0;
    while (true) {
      const ssize_t got =
          pread(file.fd(), read.target + read.arrived_bytes, read.bytes - read.arrived_bytes,
                static_cast<off_t>(read.offset_bytes + read.arrived_bytes));
      const int status = advance_read(read, stalls, file.block_bytes(), got < 0 ? -errno : got);
      if (status != read_goes_on) return status;
    }
  }

  const std::vector<const File*> files_;
  const std::uint32_t depth_;
  const std::uint32_t threads_;
  std::vector<NamedThread> workers_;
  // The owner's.
  std::uint32_t in_flight_ = 0;
  std::vector<Finished> calling_;
  // Under mutex_. All vectors keep their first capacity: at most depth_ reads exist.
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  std::vector<Read*> queue_;  // a circle
  std::uint32_t queue_head_ = 0;
  std::uint32_t queue_count_ = 0;
  std::vector<Finished> finished_;
  bool owner_waits_ = false;
  bool woken_ = false;
  bool stopping_ = false;
};

}  // namespace

Result<MadeReader> make_threads_reader(const ReaderOptions& options) {
  auto reader = std::make_unique<ThreadsReader>(options);
  MILLRACE_TRY(reader->start());
  MadeReader made;
  made.reader = std::move(reader);
  if (!options.buffers.empty()) {
    made.buffers_reason = "the threads reader uses pread, which knows no registered buffers";
  }
  return made;
}

}  // namespace millrace
