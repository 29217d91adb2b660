#include "io/read_scheduler.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "io/alignment.h"
#include "io/named_thread.h"
#include "io/read_drives.h"
#include "runtime/base/clock.h"
#include "runtime/base/limits.h"

namespace millrace {

namespace {

// Ranges that wait for a drive which is full, of those that one round looks at.
constexpr std::uint32_t waiting_ranges_max = 64;

// First in, first out, through RangeRead::next.
class RangeQueue {
 public:
  bool empty() const noexcept { return head_ == nullptr; }
  RangeRead* first() const noexcept { return head_; }
  RangeRead& front() const noexcept { return *head_; }

  void push(RangeRead& range) noexcept {
    range.next = nullptr;
    (head_ == nullptr ? head_ : tail_->next) = &range;
    tail_ = &range;
  }

  // Takes the range out, wherever it stands. False if it is not in this queue.
  bool remove(const RangeRead& range) noexcept {
    RangeRead* before = nullptr;
    for (RangeRead* at = head_; at != nullptr; before = at, at = at->next) {
      if (at != &range) continue;
      (before == nullptr ? head_ : before->next) = at->next;
      if (tail_ == at) tail_ = before;
      at->next = nullptr;
      return true;
    }
    return false;
  }

 private:
  RangeRead* head_ = nullptr;
  RangeRead* tail_ = nullptr;
};

class Scheduler final : public ReadScheduler {
 public:
  Scheduler(const ReadSchedulerOptions& options, ReaderFactory factory, void* context)
      : options_(options),
        clock_(options.clock == nullptr ? system_clock() : *options.clock),
        factory_(factory),
        context_(context) {}

  ~Scheduler() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      // Under the lock: past it the owner may end and its reader with it.
      if (reader_ != nullptr) reader_->wake();
    }
    owner_.join();
  }

  // Starts the owner and waits until its reader stands.
  Status start() {
    MILLRACE_ASSIGN(owner_, NamedThread::start("mr-reads", &Scheduler::run, this));
    std::unique_lock lock(mutex_);
    started_changed_.wait(lock, [this] { return started_.has_value(); });
    return *started_;
  }

  void submit(std::span<RangeRead* const> ranges) noexcept override;
  void reprioritize(RangeRead& range, ReadPriority priority) noexcept override;
  bool cancel(RangeRead& range) noexcept override;
  bool register_buffer(std::uint32_t buffer, bool wanted) noexcept override;
  ReadStats stats() const noexcept override;
  std::vector<DriveReads> drives() const override;
  const char* reader_name() const noexcept override { return reader_name_; }
  std::uint32_t depth() const noexcept override { return depth_; }
  std::uint64_t piece_bytes() const noexcept override { return options_.piece_bytes; }
  std::uint32_t registered_buffers() const noexcept override { return registered_buffers_; }
  const std::string& fallback_reason() const noexcept override { return made_.fallback_reason; }
  const std::string& buffers_reason() const noexcept override { return made_.buffers_reason; }

 private:
  // One read of at most piece_bytes; there are as many as the reader's depth.
  struct Piece {
    Read read;
    Scheduler* scheduler = nullptr;
    RangeRead* range = nullptr;
    Piece* next = nullptr;
    ReadDrives::Cut cut;                          // with several drives
    ReadPriority priority = ReadPriority::trunk;  // as it was when cut
    unsigned retries = 0;
    int failure = 0;  // of the last try
  };

  // Asked of the owner, by a thread that waits for it.
  struct Registration {
    std::uint32_t buffer = 0;
    bool wanted = false;
    bool registered = false;
    bool done = false;
  };

  static void* run(void* self) {
    static_cast<Scheduler*>(self)->own_reader();
    return nullptr;
  }
  void own_reader();
  void make_pieces();
  void serve() noexcept;
  bool fill() noexcept;
  void change_registration(std::unique_lock<std::mutex>& lock) noexcept;
  Piece* cut_pieces() noexcept;
  Piece* cut_for_drives() noexcept;
  Piece& cut_piece(RangeRead& range, std::uint64_t bytes_max) noexcept;
  bool may_cut(ReadPriority priority) const noexcept;
  void send(Piece& piece) noexcept;
  void piece_done(Piece& piece, int status) noexcept;
  bool other_drive(Piece& piece, int status) noexcept;
  bool send_again(Piece& piece, int status) noexcept;
  void settle(Piece& piece, int status) noexcept;
  void give_up_rest(RangeRead& range, int status) noexcept;
  void fail_queued() noexcept;
  std::uint64_t block_of(std::uint32_t file) const noexcept;
  void check(const RangeRead& range) const noexcept;
  RangeQueue& queue_of(ReadPriority priority) noexcept {
    return queues_[static_cast<std::size_t>(priority)];
  }
  bool nothing_queued() const noexcept {
    return std::all_of(queues_.begin(), queues_.end(), [](const auto& q) { return q.empty(); });
  }

  ReadSchedulerOptions options_;
  Clock& clock_;
  ReaderFactory factory_;
  void* context_;
  NamedThread owner_;
  // Set by the owner before start() returns, then constant.
  MadeReader made_;
  Reader* reader_ = nullptr;  // made_.reader
  const char* reader_name_ = "";
  std::uint32_t depth_ = 0;
  std::uint32_t registered_buffers_ = 0;
  std::unique_ptr<ReadDrives> drives_;  // null: there is one

  // The owner's.
  pthread_t owner_id_ = {};
  std::vector<Piece> pieces_;
  Piece* free_pieces_ = nullptr;
  Piece* retry_pieces_ = nullptr;            // failed, to be sent again before anything else
  std::uint32_t in_flight_ = 0;              // pieces, those to be sent again included
  std::uint32_t speculative_in_flight_ = 0;  // of them

  mutable std::mutex mutex_;
  std::condition_variable started_changed_;
  // Under mutex_.
  std::optional<Status> started_;
  Registration* registration_ = nullptr;
  std::condition_variable registration_changed_;
  std::array<RangeQueue, read_priority_count> queues_;
  bool owner_wants_work_ = false;  // sleeps with room for more pieces
  bool stopping_ = false;
  std::uint64_t busy_ns_ = 0;        // up to busy_since_ns_
  std::uint64_t busy_since_ns_ = 0;  // 0: nothing in flight

  // Written by the owner, read by anyone.
  std::atomic<std::uint64_t> reads_ = 0;
  std::atomic<std::uint64_t> retries_ = 0;
  std::array<std::atomic<std::uint64_t>, read_priority_count> bytes_ = {};
};

// The largest of all copies of a file.
std::uint64_t Scheduler::block_of(std::uint32_t file) const noexcept {
  const auto files = options_.reader.files;
  if (drives_ == nullptr) return file < files.size() ? files[file]->block_bytes() : 1;
  std::uint64_t block = 1;
  for (const ReadDrive& drive : options_.drives) {
    MILLRACE_CHECK(file < drive.files.size());
    if (drive.files[file] == ReadDrive::no_file) continue;
    block = std::max<std::uint64_t>(block, files[drive.files[file]]->block_bytes());
  }
  return block;
}

void Scheduler::check(const RangeRead& range) const noexcept {
  MILLRACE_CHECK(range.bytes > 0 && range.needed_bytes <= range.bytes && range.done != nullptr);
  const std::uint64_t block = block_of(range.file);
  const auto address = reinterpret_cast<std::uintptr_t>(range.target);
  MILLRACE_CHECK((range.offset_bytes | range.bytes | address) % block == 0);
  if (range.buffer < 0) return;
  const auto index = static_cast<std::size_t>(range.buffer);
  MILLRACE_CHECK(index < options_.reader.buffers.size());
  const std::span<std::byte> buffer = options_.reader.buffers[index];
  const auto begin = reinterpret_cast<std::uintptr_t>(buffer.data());
  MILLRACE_CHECK(address >= begin && range.bytes <= buffer.size() &&
                 address - begin <= buffer.size() - range.bytes);
}

void Scheduler::submit(std::span<RangeRead* const> ranges) noexcept {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    for (RangeRead* range : ranges) {
      check(*range);
      range->next_piece_bytes = 0;
      range->pieces_open = 0;
      range->status = 0;
      range->source_file = range->file;
      if (!range->elsewhere) range->drives = 0;
      queue_of(range->priority).push(*range);
    }
    wake = owner_wants_work_ && !ranges.empty() && pthread_equal(pthread_self(), owner_id_) == 0;
    if (wake) owner_wants_work_ = false;
  }
  if (wake) reader_->wake();
}

void Scheduler::reprioritize(RangeRead& range, ReadPriority priority) noexcept {
  const std::lock_guard lock(mutex_);
  if (range.priority == priority || !queue_of(range.priority).remove(range)) return;
  range.priority = priority;
  queue_of(priority).push(range);
}

bool Scheduler::cancel(RangeRead& range) noexcept {
  const std::lock_guard lock(mutex_);
  return range.next_piece_bytes == 0 && queue_of(range.priority).remove(range);
}

bool Scheduler::register_buffer(std::uint32_t buffer, bool wanted) noexcept {
  MILLRACE_CHECK(pthread_equal(pthread_self(), owner_id_) == 0);
  Registration mine{.buffer = buffer, .wanted = wanted};
  std::unique_lock lock(mutex_);
  registration_changed_.wait(lock, [this] { return registration_ == nullptr; });
  registration_ = &mine;
  reader_->wake();
  registration_changed_.wait(lock, [&mine] { return mine.done; });
  return mine.registered;
}

ReadStats Scheduler::stats() const noexcept {
  ReadStats stats;
  stats.reads = reads_.load(std::memory_order_relaxed);
  stats.retries = retries_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < read_priority_count; ++i) {
    stats.bytes_by_priority[i] = bytes_[i].load(std::memory_order_relaxed);
    stats.bytes += stats.bytes_by_priority[i];
  }
  stats.owner_cpu_ns = owner_.cpu_ns();
  const std::lock_guard lock(mutex_);
  stats.busy_ns = busy_ns_;
  if (busy_since_ns_ != 0) stats.busy_ns += clock_.now_ns() - busy_since_ns_;
  return stats;
}

std::vector<DriveReads> Scheduler::drives() const {
  if (drives_ != nullptr) return drives_->stats();
  const ReadStats all = stats();
  const auto files = options_.reader.files;
  return {{.name = files.empty() ? std::string() : files.front()->path(),
           .depth = depth_,
           .piece_bytes = options_.piece_bytes,
           .bytes = all.bytes,
           .reads = all.reads,
           .retries = all.retries,
           .busy_ns = all.busy_ns,
           .dropped = {}}};
}

// The owner thread from here on.

void Scheduler::own_reader() {
  Result<MadeReader> made = factory_(options_.reader, context_);
  {
    const std::lock_guard lock(mutex_);
    if (made) {
      made_ = std::move(made).value();
      make_pieces();
      started_ = Status();
    } else {
      started_ = Status(std::move(made).error());
    }
    started_changed_.notify_one();
    if (!*started_) return;
  }
  serve();
  made_.reader.reset();  // in the thread that made it
}

void Scheduler::make_pieces() {
  owner_id_ = pthread_self();
  reader_ = made_.reader.get();
  reader_name_ = reader_->name();
  depth_ = reader_->depth();
  if (!options_.drives.empty()) drives_ = std::make_unique<ReadDrives>(options_, depth_);
  registered_buffers_ = reader_->registered_buffers();
  pieces_.resize(depth_);
  for (Piece& piece : pieces_) {
    piece.scheduler = this;
    piece.read.owner = &piece;
    piece.read.done = [](Read& read, int status) {
      auto& finished = *static_cast<Piece*>(read.owner);
      finished.scheduler->piece_done(finished, status);
    };
    piece.next = free_pieces_;
    free_pieces_ = &piece;
  }
}

void Scheduler::serve() noexcept {
  while (fill()) reader_->poll(true);
  // Stopping: callbacks of what was queued may queue more, and that fails too.
  while (true) {
    fail_queued();
    if (reader_->in_flight() > 0) {
      reader_->poll(true);
      continue;
    }
    const std::lock_guard lock(mutex_);
    if (nothing_queued()) return;
  }
}

// Sends as many pieces as the reader takes. False when the scheduler is to stop.
bool Scheduler::fill() noexcept {
  while (retry_pieces_ != nullptr) {
    Piece& piece = *retry_pieces_;
    retry_pieces_ = piece.next;
    send(piece);
  }
  Piece* cut = nullptr;
  {
    std::unique_lock lock(mutex_);
    if (stopping_) return false;
    if (registration_ != nullptr) change_registration(lock);
    cut = drives_ == nullptr ? cut_pieces() : cut_for_drives();
    // Ends or starts the busy time: nothing is in flight before this call's pieces are.
    const bool busy = cut != nullptr || reader_->in_flight() > 0;
    if (busy != (busy_since_ns_ != 0)) {
      const std::uint64_t now = clock_.now_ns();
      if (!busy) busy_ns_ += now - busy_since_ns_;
      busy_since_ns_ = busy ? now : 0;
    }
    owner_wants_work_ = free_pieces_ != nullptr;
  }
  while (cut != nullptr) {
    Piece& piece = *cut;
    cut = piece.next;
    send(piece);
  }
  return true;
}

// Under the lock, which is dropped meanwhile: registering pins every page.
void Scheduler::change_registration(std::unique_lock<std::mutex>& lock) noexcept {
  Registration& asked = *registration_;
  lock.unlock();
  const bool registered = reader_->register_buffer(asked.buffer, asked.wanted);
  lock.lock();
  asked.registered = registered;
  asked.done = true;
  registration_ = nullptr;
  registration_changed_.notify_all();
}

// Takes pieces off the queues, most urgent first, until no piece is free. Returns them as a list.
Scheduler::Piece* Scheduler::cut_pieces() noexcept {
  Piece* first = nullptr;
  Piece** link = &first;
  for (std::size_t priority = 0; priority < queues_.size(); ++priority) {
    RangeQueue& queue = queues_[priority];
    while (!queue.empty() && free_pieces_ != nullptr &&
           may_cut(static_cast<ReadPriority>(priority))) {
      RangeRead& range = queue.front();
      const std::uint64_t rest = range.bytes - range.next_piece_bytes;
      Piece& piece =
          cut_piece(range, even_piece_bytes(rest, options_.piece_bytes, block_of(range.file)));
      if (range.next_piece_bytes == range.bytes) queue.remove(range);
      *link = &piece;
      link = &piece.next;
    }
  }
  return first;
}

// The same for several drives. A range whose drive is full waits; those behind it are looked at for
// the other drives meanwhile.
Scheduler::Piece* Scheduler::cut_for_drives() noexcept {
  drives_->begin(clock_.now_ns());
  Piece* first = nullptr;
  Piece** link = &first;
  std::uint32_t waiting = 0;
  for (std::size_t priority = 0; priority < queues_.size(); ++priority) {
    RangeRead* range = queues_[priority].first();
    while (range != nullptr && free_pieces_ != nullptr && drives_->room() &&
           may_cut(static_cast<ReadPriority>(priority))) {
      RangeRead* const behind = range->next;
      const ReadDrives::Cut cut = drives_->next(*range);
      if (cut.bytes == 0) {
        if (++waiting == waiting_ranges_max) return first;
        range = behind;
        continue;
      }
      Piece& piece = cut_piece(*range, cut.bytes);
      piece.cut = cut;
      piece.read.file = cut.file;
      drives_->sent(cut);
      *link = &piece;
      link = &piece.next;
      if (range->next_piece_bytes < range->bytes) continue;
      queues_[priority].remove(*range);
      range = behind;
    }
  }
  return first;
}

// Guesses yield to everything else, and wait until it has arrived.
bool Scheduler::may_cut(ReadPriority priority) const noexcept {
  if (priority != ReadPriority::speculative) return true;
  return in_flight_ == speculative_in_flight_ &&
         speculative_in_flight_ < std::max(1U, options_.speculative_pieces);
}

Scheduler::Piece& Scheduler::cut_piece(RangeRead& range, std::uint64_t bytes_max) noexcept {
  Piece& piece = *free_pieces_;
  free_pieces_ = piece.next;
  piece.next = nullptr;
  piece.range = &range;
  piece.priority = range.priority;
  ++in_flight_;
  if (piece.priority == ReadPriority::speculative) ++speculative_in_flight_;
  piece.retries = 0;
  const std::uint64_t at = range.next_piece_bytes;
  const std::uint64_t bytes = std::min(bytes_max, range.bytes - at);
  const std::uint64_t needed = range.needed_bytes > at ? range.needed_bytes - at : 0;
  piece.read.file = range.file;
  piece.read.offset_bytes = range.offset_bytes + at;
  piece.read.target = range.target + at;
  piece.read.bytes = static_cast<std::uint32_t>(bytes);
  piece.read.needed_bytes = static_cast<std::uint32_t>(std::min(needed, bytes));
  piece.read.buffer = range.buffer;
  range.next_piece_bytes = at + bytes;
  ++range.pieces_open;
  return piece;
}

void Scheduler::send(Piece& piece) noexcept { MILLRACE_CHECK(reader_->submit(piece.read)); }

void Scheduler::piece_done(Piece& piece, int status) noexcept {
  reads_.fetch_add(1, std::memory_order_relaxed);
  bytes_[static_cast<std::size_t>(piece.priority)].fetch_add(piece.read.bytes,
                                                             std::memory_order_relaxed);
  if (status != 0) {
    if (send_again(piece, status)) return;
  } else if (drives_ != nullptr) {
    drives_->ended(piece.cut, true);
  }
  settle(piece, status);
}

// A piece that failed goes out again: some times to the same drive, then to another one. False: it
// has failed for good.
bool Scheduler::send_again(Piece& piece, int status) noexcept {
  // An end of file stays one, and a range that failed elsewhere needs no more.
  const bool wanted = piece.range->status == 0;
  const bool left_alone = drives_ != nullptr && !drives_->live(piece.cut.drive);
  if (wanted && status > 0 && piece.retries < limits::read_retries_max && !left_alone) {
    ++piece.retries;
    retries_.fetch_add(1, std::memory_order_relaxed);
    if (drives_ != nullptr) drives_->again(piece.cut);
  } else {
    if (drives_ == nullptr) return false;
    drives_->ended(piece.cut, false);
    if (!wanted || !other_drive(piece, status)) return false;
  }
  piece.failure = status;
  piece.next = retry_pieces_;
  retry_pieces_ = &piece;
  return true;
}

// Another drive takes the piece over. False: there is none.
bool Scheduler::other_drive(Piece& piece, int status) noexcept {
  ReadDrives::Cut& cut = piece.cut;
  if (!drives_->elsewhere(cut, piece.range->file, piece.read.offset_bytes, status)) return false;
  piece.read.file = cut.file;
  piece.range->source_file = cut.file;
  piece.retries = 0;
  drives_->sent(cut);
  return true;
}

// Frees the piece; ends its range if it was the last one open.
void Scheduler::settle(Piece& piece, int status) noexcept {
  RangeRead& range = *piece.range;
  piece.next = free_pieces_;
  free_pieces_ = &piece;
  --in_flight_;
  if (piece.priority == ReadPriority::speculative) --speculative_in_flight_;
  --range.pieces_open;
  if (status != 0 && range.status == 0) {
    range.source_file = piece.read.file;
    give_up_rest(range, status);
  }
  if (range.pieces_open == 0 && range.next_piece_bytes == range.bytes)
    range.done(range, range.status);
}

// The range has failed: what has not been cut of it is not read.
void Scheduler::give_up_rest(RangeRead& range, int status) noexcept {
  range.status = status;
  const std::lock_guard lock(mutex_);
  queue_of(range.priority).remove(range);
  range.next_piece_bytes = range.bytes;
}

void Scheduler::fail_queued() noexcept {
  while (retry_pieces_ != nullptr) {
    Piece& piece = *retry_pieces_;
    retry_pieces_ = piece.next;
    settle(piece, piece.failure);
  }
  while (true) {
    RangeRead* range = nullptr;
    {
      const std::lock_guard lock(mutex_);
      for (RangeQueue& queue : queues_) {
        if (queue.empty()) continue;
        range = &queue.front();
        queue.remove(*range);
        range->next_piece_bytes = range->bytes;
        break;
      }
    }
    if (range == nullptr) return;
    if (range->status == 0) range->status = ECANCELED;
    if (range->pieces_open == 0) range->done(*range, range->status);
  }
}

Status check_options(const ReadSchedulerOptions& options) {
  const std::uint64_t piece = options.piece_bytes;
  if (piece == 0 || piece > limits::segment_bytes_max) {
    return Error{ErrorCode::usage, fmt::format("piece size {}: must be 1 byte to {}", piece,
                                               format_bytes(limits::segment_bytes_max))};
  }
  if (!options.drives.empty()) return ReadDrives::check(options);
  for (const File* file : options.reader.files) {
    if (piece % file->block_bytes() == 0) continue;
    return Error{ErrorCode::usage,
                 fmt::format("piece size {}: must be a multiple of {}, the block of {}", piece,
                             file->block_bytes(), file->path())};
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ReadScheduler>> ReadScheduler::start_with(
    const ReadSchedulerOptions& options, ReaderFactory factory, void* context) {
  MILLRACE_TRY(check_options(options));
  ReadSchedulerOptions made = options;
  if (!made.drives.empty()) {
    made.reader.depth = ReadDrives::depth(options);
    made.reader.drives = static_cast<std::uint32_t>(options.drives.size());
  }
  auto scheduler = std::make_unique<Scheduler>(made, factory, context);
  MILLRACE_TRY(scheduler->start());
  return Result<std::unique_ptr<ReadScheduler>>(std::move(scheduler));
}

Result<std::unique_ptr<ReadScheduler>> ReadScheduler::start(const ReadSchedulerOptions& options) {
  return start_with(
      options, [](const ReaderOptions& reader, void*) { return make_reader(reader); }, nullptr);
}

}  // namespace millrace
