// A model file of which only the beginning is there, made whole to the eye: a sparse file in memory
// that has the header and the size, so that the ordinary readers take it. For its sizes only: its
// weights are zeroes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace millrace {

// Owns the descriptor. Move-only.
class HeaderFile {
 public:
  // `file_bytes` is how long the file pretends to be. `io` error if the system refuses.
  static Result<HeaderFile> create(std::string_view header, std::uint64_t file_bytes);
  HeaderFile(HeaderFile&& other) noexcept;
  HeaderFile& operator=(HeaderFile&&) = delete;
  HeaderFile(const HeaderFile&) = delete;
  ~HeaderFile();

  // To be opened in this process, while this object lives.
  std::string path() const;

 private:
  HeaderFile() = default;
  int fd_ = -1;
};

}  // namespace millrace
