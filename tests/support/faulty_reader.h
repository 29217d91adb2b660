// A real Reader over files of which some break while a run goes on: every read of them fails from
// then on. What EngineConfig::reader_factory and ReadScheduler::start_with() take.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "io/reader.h"

namespace millrace::testing {

// Which files break, with which errno, after how many reads of any file; and what then happened.
// Outlives its readers; written by the thread that owns them.
struct Breakage {
  std::uint32_t first_file = 0, files = 0;
  int code = 0;
  std::uint64_t after_reads = 0;
  std::uint64_t reads = 0, failed = 0;
};

class FaultyReader final : public Reader {
 public:
  FaultyReader(std::unique_ptr<Reader> inner, Breakage& breakage)
      : inner_(std::move(inner)), breakage_(breakage) {
    failing_.reserve(inner_->depth());
    calling_.reserve(inner_->depth());
  }

  // A ReadScheduler::ReaderFactory; the context is the Breakage.
  static Result<MadeReader> make(const ReaderOptions& options, void* breakage) {
    MILLRACE_ASSIGN(MadeReader made, make_reader(options));
    made.reader =
        std::make_unique<FaultyReader>(std::move(made.reader), *static_cast<Breakage*>(breakage));
    return made;
  }

  const char* name() const noexcept override { return inner_->name(); }
  std::uint32_t depth() const noexcept override { return inner_->depth(); }
  std::uint32_t in_flight() const noexcept override {
    return inner_->in_flight() + static_cast<std::uint32_t>(failing_.size());
  }
  std::uint32_t registered_buffers() const noexcept override {
    return inner_->registered_buffers();
  }

  bool submit(Read& read) noexcept override {
    const bool breaks = read.file - breakage_.first_file < breakage_.files;
    if (++breakage_.reads <= breakage_.after_reads || !breaks) return inner_->submit(read);
    if (in_flight() == depth()) return false;
    ++breakage_.failed;
    failing_.push_back(&read);
    return true;
  }

  std::uint32_t poll(bool wait) noexcept override {
    calling_.swap(failing_);
    auto ran = static_cast<std::uint32_t>(calling_.size());
    ran += inner_->poll(wait && calling_.empty());
    for (Read* const read : calling_) read->done(*read, breakage_.code);
    calling_.clear();
    return ran;
  }

  void wake() noexcept override { inner_->wake(); }

 private:
  std::unique_ptr<Reader> inner_;
  Breakage& breakage_;
  std::vector<Read*> failing_, calling_;
};

}  // namespace millrace::testing
