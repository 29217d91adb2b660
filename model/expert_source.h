// The one door to streamed weights: the pipeline asks for experts by (layer, index) and is called
// back as their slices land. Implemented by prefetch/loader.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace millrace {

// Slices of an expert, as bits.
enum Slice : unsigned { slice_gate = 1, slice_up = 2, slice_down = 4, slice_all = 7 };

// One wanted expert, owned by the asker, in place and unmoved from request() until release() has
// returned.
struct ExpertRequest {
  ExpertKey key;
  std::uint32_t tokens = 1;  // of the batch, that chose the expert: what it is worth keeping
  // Called when slices become readable: once with slice_all from inside request() for a hit; for a
  // miss from the I/O thread, one call per newly ready set of bits (each bit once). With bits == 0
  // the request has failed (`failure` is set) and no more calls come; release() is still due. Must
  // not block and must not call request(); release() is allowed.
  void (*on_ready)(ExpertRequest& request, unsigned bits) = nullptr;
  void* owner = nullptr;

  // Filled by the source. Pointers are valid once the slice's bit was reported, until release().
  const std::byte* gate = nullptr;
  const std::byte* up = nullptr;
  const std::byte* down = nullptr;
  const std::byte* gate_scales = nullptr;  // null where the type has none
  const std::byte* up_scales = nullptr;
  const std::byte* down_scales = nullptr;
  const std::byte* gate_zeros = nullptr;  // the same
  const std::byte* up_zeros = nullptr;
  const std::byte* down_zeros = nullptr;
  std::array<const std::byte**, 9> parts() noexcept {  // in this order
    return {&gate,        &up,         &down,     &gate_scales, &up_scales,
            &down_scales, &gate_zeros, &up_zeros, &down_zeros};
  }
  bool hit = false;                // all slices were ready when asked
  const Error* failure = nullptr;  // owned by the source, valid until release()

  // The source's own.
  ExpertRequest* next = nullptr;
  std::int32_t slot = -1;
  unsigned reported_bits = 0;
};

class ExpertSource {
 public:
  virtual ~ExpertSource() = default;
  // Asks for experts of one layer, in the order in which they are wanted. Requests that find no
  // free slot wait until others are released (so any number may be asked for at once). Thread-safe;
  // no allocation; does not block on I/O. Two requests for the same expert may be open at once
  // (joined).
  virtual void request(std::span<ExpertRequest* const> requests) noexcept = 0;
  // If all slices of all of them are here: claims them as request() does, without calling on_ready,
  // and fills in the pointers. Else false, and nothing has happened.
  virtual bool request_if_here(std::span<ExpertRequest* const> requests) noexcept = 0;
  // Gives the claim back; the expert stays cached. Any thread, once per request, also after a
  // failure.
  virtual void release(ExpertRequest& request) noexcept = 0;
};

}  // namespace millrace
