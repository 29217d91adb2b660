// Steady decode allocates nothing, in any thread: neither with operator new (ours) nor, where the
// test can see it, with malloc (oneTBB, the reader, the C library).
#include <atomic>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/support/allocation_meter.h"
#include "tests/support/tiny_engine.h"

// glibc lets a program put its own malloc before the library's; the sanitizers have done so
// already.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MILLRACE_COUNTS_MALLOC 1
#else
#define MILLRACE_COUNTS_MALLOC 0
#endif

namespace {

std::atomic<std::uint64_t> malloc_calls = 0;

}  // namespace

#if MILLRACE_COUNTS_MALLOC
extern "C" {
void* __libc_malloc(std::size_t bytes);                           // NOLINT
void* __libc_calloc(std::size_t count, std::size_t bytes);        // NOLINT
void* __libc_realloc(void* memory, std::size_t bytes);            // NOLINT
void* __libc_memalign(std::size_t alignment, std::size_t bytes);  // NOLINT

void* malloc(std::size_t bytes) {
  malloc_calls.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  malloc_calls.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  malloc_calls.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  malloc_calls.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, bytes);
}
}
#endif

using namespace millrace;
using namespace millrace::test;
using namespace millrace::testing;

namespace {

struct Counts {
  std::uint64_t news = 0, mallocs = 0;
};

// What `tokens` further tokens of a session allocate.
Counts decode(Engine& engine, Session& session, TokenId& next, unsigned tokens) {
  reset_allocations();
  malloc_calls = 0;
  for (unsigned i = 0; i < tokens; ++i) {
    const TokenId id = next;
    const Status done =
        engine.process(session, {&id, 1}, LogitsWanted::last, [&](std::size_t, const float* row) {
          // Not greedy, which would soon repeat itself: other experts each time.
          next = static_cast<TokenId>((id * 31 + 7 + (row[0] > 0 ? 1 : 0)) % 4000);
        });
    if (!done) FAIL(done.error().what);
  }
  return {allocations().calls, malloc_calls.load()};
}

// Always later than before: the guard looks whenever it is asked.
class HastyClock final : public Clock {
 public:
  std::uint64_t now_ns() noexcept override { return now_ += 1'000'000'000; }

 private:
  std::atomic<std::uint64_t> now_ = 0;
};

void check_steady(EngineConfig config) {
  config.threads = 2;
  const auto made = open_engine(config);
  auto session = made->engine->new_session();
  REQUIRE(session.has_value());
  TokenId next = 1;
  decode(*made->engine, *session, next, 40);
  const std::uint64_t misses = made->engine->counters().experts.misses;
  const Counts counts = decode(*made->engine, *session, next, 20);
  CHECK(made->engine->counters().experts.misses > misses);
  CHECK(counts.news == 0);
  CHECK(counts.mallocs == 0);
}

}  // namespace

TEST_CASE("steady decode with a quarter of the experts cached allocates nothing") {
  EngineConfig config;
  config.model_path = embedded_model();
  config.cache = {SizeSpec::Kind::percent, 0, 25};
  config.context = 128;
  SECTION("with the reader of this machine") { check_steady(config); }
  SECTION("with reading threads and the page cache") {
    config.io = ReaderKind::threads;
    config.direct = DirectMode::off;
    check_steady(config);
  }
  SECTION("with the guard looking after memory between all jobs") {
    HastyClock clock;
    config.guard.segment_bytes = 1 * MiB;
    config.guard.clock = &clock;
    check_steady(config);
  }
  SECTION("with a streamed trunk") {
    config.trunk = {SizeSpec::Kind::bytes, 1, 0};
    const std::string text = engine_error(config).what;
    const std::size_t at = text.find("--trunk ");
    REQUIRE(at != std::string::npos);
    config.trunk.bytes = std::stoull(text.substr(at + 8));
    check_steady(config);
  }
}

TEST_CASE("the meters of this test count") {
  reset_allocations();
  malloc_calls = 0;
  const std::vector<int> some(1000, 1);
  CHECK(some[999] == 1);
  CHECK(allocations().calls == 1);
  CHECK(malloc_calls >= (MILLRACE_COUNTS_MALLOC ? 1 : 0));
}
