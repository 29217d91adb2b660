#include "kernels/formats/mxfp4-inl.h"
#include "kernels/formats/nibble_blocks-inl.h"
#include "kernels/formats/q8_0-inl.h"
#include "kernels/isa/amx.h"
#include "kernels/matmul_tiles-inl.h"
#include "kernels/tile_table.h"

namespace millrace {
namespace {

template <class Format>
consteval void add_tiles(WeightKernels& table, DType type) {
  table.matmul_q8[static_cast<std::size_t>(type)] = &matmul_tiles<Amx, AmxTiles, Format>;
}

consteval WeightKernels make_tile_table() {
  WeightKernels table{};
  add_tiles<FormatQ8_0>(table, DType::q8_0);
  add_tiles<FormatQ4_0>(table, DType::q4_0);
  add_tiles<FormatMxfp4>(table, DType::mxfp4);
  add_tiles<FormatQ4_1>(table, DType::q4_1);
  add_tiles<FormatQ5_0>(table, DType::q5_0);
  add_tiles<FormatQ5_1>(table, DType::q5_1);
  add_tiles<FormatIQ4_NL>(table, DType::iq4_nl);
  return table;
}

}  // namespace

constinit const WeightKernels amx_tile_kernels = make_tile_table();

}  // namespace millrace
