// Scratch of the products by panels (kernel_table.h): a stretch for each worker, allocated once
// with the workspace.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "kernels/panel_kernels.h"

namespace millrace {

// A view; the default has no kernels and no room.
class PanelScratch {
 public:
  PanelScratch() = default;
  PanelScratch(const PanelKernels* kernels, std::byte* data, std::size_t bytes_each)
      : kernels_(kernels), data_(data), bytes_each_(bytes_each) {}
  // The kernels, if rows of so many columns fit; else nullptr.
  const PanelKernels* kernels(std::size_t columns) const noexcept {
    return panel_scratch_bytes(columns) <= bytes_each_ ? kernels_ : nullptr;
  }
  // The same, and only if so many tokens (of unrounded activations: `floats`) make up for unpacking
  // rows of that type.
  const PanelKernels* kernels(DType type, std::size_t columns, std::size_t tokens,
                              bool floats = false) const noexcept {
    const PanelKernels* const found = kernels(columns);
    if (found == nullptr) return nullptr;
    const std::size_t least =
        floats ? found->float_tokens_min : found->tokens_min[static_cast<std::size_t>(type)];
    return tokens < least ? nullptr : found;
  }
  std::byte* of(unsigned worker) const noexcept { return data_ + worker * bytes_each_; }
  // One worker's stretch as that of worker 0, for work that is not shared.
  PanelScratch alone(unsigned worker) const noexcept { return {kernels_, of(worker), bytes_each_}; }

 private:
  const PanelKernels* kernels_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t bytes_each_ = 0;
};

class PanelMemory {
 public:
  // For rows of up to `columns_max`; not filled.
  PanelMemory(const KernelTable& kernels, std::size_t columns_max, unsigned workers)
      : kernels_(find_panel_kernels(kernels)),
        bytes_each_(panel_scratch_bytes(columns_max)),
        data_(static_cast<std::byte*>(operator new (bytes(columns_max, workers),
                                                    std::align_val_t{alignment}))) {}
  static std::size_t bytes(std::size_t columns_max, unsigned workers) noexcept {
    return workers * panel_scratch_bytes(columns_max);
  }
  PanelScratch view() const noexcept { return {kernels_, data_.get(), bytes_each_}; }

 private:
  static constexpr std::size_t alignment = 64;
  struct Delete {
    void operator()(std::byte* p) const noexcept {
      operator delete (p, std::align_val_t{alignment});
    }
  };
  const PanelKernels* kernels_;
  std::size_t bytes_each_;
  std::unique_ptr<std::byte, Delete> data_;
};

}  // namespace millrace
