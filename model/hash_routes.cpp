#include "model/hash_routes.h"

#include <fmt/format.h>

namespace millrace {

namespace {

// Id is std::int32_t or std::int64_t, as the file has them.
template <class Id>
Result<std::vector<ExpertIndex>> read_table(const ModelSpec& spec, std::span<const File> files,
                                            LayerIndex layer) {
  const MatrixExtent& extent = *spec.layers[layer].hash_table;
  const File& file = files[extent.file];
  std::vector<Id> ids(extent.rows * extent.columns);
  MILLRACE_TRY(file.read_exactly(extent.offset_bytes, reinterpret_cast<std::byte*>(ids.data()),
                                 extent.bytes()));
  std::vector<ExpertIndex> experts(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || static_cast<std::uint64_t>(ids[i]) >= spec.hparams.experts)
      return Error{
          ErrorCode::format,
          fmt::format("{}: tensor blk.{}.ffn_gate_tid2eid.weight: token {} goes to expert "
                      "{}, but there are {}",
                      file.path(), layer, i / extent.columns, ids[i], spec.hparams.experts)};
    experts[i] = static_cast<ExpertIndex>(ids[i]);
  }
  return experts;
}

}  // namespace

Result<HashRoutes> HashRoutes::read(const ModelSpec& spec, std::span<const File> files) {
  HashRoutes routes;
  routes.used_ = spec.hparams.experts_used;
  for (LayerIndex layer = 0; layer < spec.layers.size(); ++layer) {
    routes.tables_.emplace_back();
    if (!spec.layers[layer].hash_table) continue;
    const bool wide = spec.layers[layer].hash_table->type == DType::i64;
    MILLRACE_ASSIGN(routes.tables_.back(), wide ? read_table<std::int64_t>(spec, files, layer)
                                                : read_table<std::int32_t>(spec, files, layer));
  }
  return routes;
}

std::uint64_t HashRoutes::bytes(const ModelSpec& spec) noexcept {
  std::uint64_t sum = 0;
  for (const LayerSpec& layer : spec.layers)
    sum += layer.hash_table
               ? layer.hash_table->rows * layer.hash_table->columns * sizeof(ExpertIndex)
               : 0;
  return sum;
}

}  // namespace millrace
