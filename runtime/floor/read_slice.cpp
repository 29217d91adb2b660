#include "runtime/floor/read_slice.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <numeric>

#include "io/errno_text.h"
#include "io/named_thread.h"
#include "runtime/base/clock.h"
#include "runtime/base/units.h"
#include "runtime/machine.h"

namespace millrace {

namespace {

constexpr std::size_t latencies_max = 200'000;

// Where pieces lie: each once before any comes again, neighbours far apart.
class PieceWalk {
 public:
  PieceWalk(const File& file, std::uint64_t piece_bytes, std::uint64_t first)
      : piece_bytes_(piece_bytes),
        file_bytes_(file.size_bytes()),
        pieces_(std::max<std::uint64_t>(1, file.size_bytes() / piece_bytes)),
        first_(first) {
    stride_ = pieces_ * 5 / 8 + 1;
    while (std::gcd(stride_, pieces_) != 1) ++stride_;
  }
  std::uint64_t pieces() const noexcept { return pieces_; }
  std::uint64_t offset(std::uint64_t turn) const noexcept {
    return (first_ + turn) % pieces_ * stride_ % pieces_ * piece_bytes_;
  }
  // Bytes of the file from there on, at most a piece.
  std::uint64_t bytes_at(std::uint64_t offset) const noexcept {
    return std::min(piece_bytes_, file_bytes_ - offset);
  }

 private:
  std::uint64_t piece_bytes_, file_bytes_, pieces_, first_;
  std::uint64_t stride_ = 1;
};

// Keeps reads in flight until the time is up.
class Slice {
 public:
  Slice(Reader& reader, const PieceWalk& walk, std::uint64_t turns_max, std::uint64_t deadline,
        ReadTally& tally)
      : reader_(reader), walk_(walk), turns_max_(turns_max), deadline_(deadline), tally_(tally) {}

  // Slots of the memory may be fewer than reads in flight: what arrives is not looked at.
  void run(std::span<std::byte> memory, std::uint32_t depth, std::uint64_t piece_bytes,
           std::int32_t buffer) {
    std::vector<Read> reads(depth);
    const std::uint64_t slots = std::max<std::uint64_t>(1, memory.size() / piece_bytes);
    for (std::size_t i = 0; i < reads.size(); ++i) {
      Read& read = reads[i];
      read.bytes = static_cast<std::uint32_t>(piece_bytes);
      read.target = memory.data() + i % slots * piece_bytes;
      read.buffer = buffer;
      read.owner = this;
      read.done = [](Read& done, int status) {
        static_cast<Slice*>(done.owner)->done(done, status);
      };
      if (next(read)) MILLRACE_CHECK(reader_.submit(read));
    }
    while (reader_.in_flight() > 0) reader_.poll(true);
  }
  int failure() const noexcept { return failure_; }
  std::uint64_t failed_offset() const noexcept { return failed_offset_; }

 private:
  bool next(Read& read) noexcept {
    if (turn_ == turns_max_ || failure_ != 0) return false;
    read.offset_bytes = walk_.offset(turn_++);
    read.needed_bytes = static_cast<std::uint32_t>(walk_.bytes_at(read.offset_bytes));
    return true;
  }

  void done(Read& read, int status) {
    const std::uint64_t now = system_clock().now_ns();
    if (status != 0) {
      if (failure_ == 0) failed_offset_ = read.offset_bytes;
      if (failure_ == 0) failure_ = status;
      return;
    }
    tally_.bytes += read.needed_bytes;
    if (tally_.latencies_us.size() < latencies_max)
      tally_.latencies_us.push_back(static_cast<float>(now - read.submitted_ns) * 1e-3f);
    if (now < deadline_ && next(read)) MILLRACE_CHECK(reader_.submit(read));
  }

  Reader& reader_;
  const PieceWalk& walk_;
  std::uint64_t turns_max_, deadline_;
  ReadTally& tally_;
  std::uint64_t turn_ = 0;
  int failure_ = 0;
  std::uint64_t failed_offset_ = 0;
};

// Measures `work`: time, CPU and device bytes are added to the tally.
template <class Work>
void timed(ReadTally& tally, Work work) {
  const std::uint64_t bytes_before = tally.bytes;
  const ProcessUse before = ProcessUse::now();
  const std::uint64_t start = system_clock().now_ns();
  work();
  const std::uint64_t ns = std::max<std::uint64_t>(1, system_clock().now_ns() - start);
  const ProcessUse after = ProcessUse::now();
  tally.ns += ns;
  tally.user_ms += after.user_ms - before.user_ms;
  tally.system_ms += after.system_ms - before.system_ms;
  tally.device_bytes += after.device_bytes - before.device_bytes;
  if (tally.bytes > bytes_before)
    tally.rates.push_back(static_cast<double>(tally.bytes - bytes_before) /
                          (static_cast<double>(ns) * 1e-9));
}

// A read that this way of reading does not offer, as opposed to a drive that fails.
bool is_refusal(int code) {
  return code == EOPNOTSUPP || code == EINVAL || code == ENOSYS || code == EPERM;
}

Result<std::string> read_slice(const ReadWay& way, const File& file, std::span<std::byte> memory,
                               const SliceRequest& request, ReadTally& tally) {
  const File* const files[] = {&file};
  const std::span<std::byte> buffers[] = {memory};
  ReaderOptions options;
  options.kind = way.kind;
  options.polling = way.polling;
  options.depth = request.depth;
  options.files = files;
  if (way.registered) options.buffers = buffers;
  auto made = make_reader(options);
  if (!made) return made.error().what;
  if (way.registered && made->reader->registered_buffers() == 0) return made->buffers_reason;
  const PieceWalk walk(file, request.piece_bytes, request.first);
  const std::uint64_t turns_max = file.direct() ? UINT64_MAX : walk.pieces();
  Slice slice(*made->reader, walk, turns_max, system_clock().now_ns() + request.ns_max, tally);
  timed(tally,
        [&] { slice.run(memory, request.depth, request.piece_bytes, way.registered ? 0 : -1); });
  if (slice.failure() == 0) return std::string();
  if (is_refusal(slice.failure()))
    return fmt::format("reads are refused: {}", errno_text(slice.failure()));
  return Error{ErrorCode::io, fmt::format("reading {} bytes at {}: {}", request.piece_bytes,
                                          slice.failed_offset(), errno_text(slice.failure()))};
}

// A thread that touches the pages of one piece after the other.
struct Toucher {
  const std::byte* mapping = nullptr;
  const PieceWalk* walk = nullptr;
  std::atomic<std::uint64_t>* turn = nullptr;
  std::uint64_t deadline = 0;
  std::uint64_t bytes = 0;
  std::vector<float> latencies_us;
  NamedThread thread;

  static void* run(void* self) {
    static_cast<Toucher*>(self)->touch();
    return nullptr;
  }
  void touch() {
    constexpr std::uint64_t page = 4096;
    while (true) {
      const std::uint64_t mine = turn->fetch_add(1);
      const std::uint64_t start = system_clock().now_ns();
      const bool late = start >= deadline && !latencies_us.empty();  // one piece at least
      if (mine >= walk->pieces() || late) return;
      const std::uint64_t offset = walk->offset(mine);
      const std::uint64_t here = walk->bytes_at(offset);
      for (std::uint64_t at = 0; at < here; at += page)
        static_cast<void>(*static_cast<const volatile std::byte*>(mapping + offset + at));
      bytes += here;
      latencies_us.push_back(static_cast<float>(system_clock().now_ns() - start) * 1e-3f);
    }
  }
};

Result<std::string> touch_slice(const File& file, const SliceRequest& request, ReadTally& tally) {
  void* mapping = mmap(nullptr, file.size_bytes(), PROT_READ, MAP_SHARED, file.fd(), 0);
  if (mapping == MAP_FAILED) return "mmap: " + errno_text(errno);
  const PieceWalk walk(file, request.piece_bytes, request.first);
  std::atomic<std::uint64_t> turn = 0;
  std::vector<Toucher> touchers(request.depth);
  Status started;
  timed(tally, [&] {
    for (Toucher& toucher : touchers) {
      toucher.mapping = static_cast<const std::byte*>(mapping);
      toucher.walk = &walk;
      toucher.turn = &turn;
      toucher.deadline = system_clock().now_ns() + request.ns_max;
      auto thread = NamedThread::start("mr-touch", &Toucher::run, &toucher);
      if (thread) toucher.thread = *std::move(thread);
      else started = std::move(thread).error();
    }
    for (Toucher& toucher : touchers) {
      toucher.thread.join();
      tally.bytes += toucher.bytes;
      tally.latencies_us.insert(tally.latencies_us.end(), toucher.latencies_us.begin(),
                                toucher.latencies_us.end());
    }
  });
  munmap(mapping, file.size_bytes());
  if (!started) return started.error().what;
  return std::string();
}

float quantile(std::vector<float> values, double share) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

}  // namespace

ProcessUse ProcessUse::now() noexcept {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) / 1e3;
  };
  return {ms(usage.ru_utime), ms(usage.ru_stime), kernel_read_bytes()};
}

ReadRate ReadTally::rate(std::uint64_t piece_bytes, std::uint32_t depth) const {
  ReadRate rate;
  rate.piece_bytes = piece_bytes;
  rate.depth = depth;
  if (bytes == 0 || ns == 0) return rate;
  const double gb = static_cast<double>(bytes) / 1e9;
  rate.bytes_per_second = static_cast<double>(bytes) / (static_cast<double>(ns) * 1e-9);
  rate.p50_us = static_cast<double>(quantile(latencies_us, 0.5));
  rate.p99_us = static_cast<double>(quantile(latencies_us, 0.99));
  rate.user_ms_per_gb = user_ms / gb;
  rate.system_ms_per_gb = system_ms / gb;
  if (kernel_read_bytes() > 0)
    rate.device_share = static_cast<double>(device_bytes) / static_cast<double>(bytes);
  return rate;
}

Result<std::string> measure_slice(const ReadWay& way, const ReadTarget& target,
                                  const SliceRequest& request, ReadTally& tally) {
  if (way.direct && target.direct == nullptr) return target.buffered->buffered_reason();
  const File& file = way.direct ? *target.direct : *target.buffered;
  if (!file.direct()) posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED);
  if (way.mapped) return touch_slice(file, request, tally);
  return read_slice(way, file, way.huge ? target.huge : target.small, request, tally);
}

}  // namespace millrace
