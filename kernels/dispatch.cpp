#include "kernels/dispatch.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/tables.h"
#include "kernels/tile_table.h"
#include "runtime/base/check.h"

namespace millrace {

namespace {

// The parts of one ISA's kernels; all null if they are not in this build.
struct Parts {
  const KernelTable* layers = nullptr;
  const WeightKernels* supers = nullptr;
  bool in_tiles = false;  // many tokens by amx_tile_kernels
};

constexpr Parts scalar_parts{&scalar_kernels, &scalar_super_kernels};
#if defined(__x86_64__)
constexpr Parts avx2_parts{&avx2_kernels, &avx2_super_kernels};
constexpr Parts avxvnni_parts{&avxvnni_kernels, &avxvnni_super_kernels};
constexpr Parts avx512_parts{&avx512_kernels, &avx512_super_kernels};
constexpr Parts avx512vnni_parts{&avx512vnni_kernels, &avx512vnni_super_kernels};
constexpr Parts amx_parts{&avx512vnni_kernels, &avx512vnni_super_kernels, true};
#else
constexpr Parts avx2_parts, avxvnni_parts, avx512_parts, avx512vnni_parts, amx_parts;
#endif
#if defined(__aarch64__)
constexpr Parts neon_parts{&neon_kernels, &neon_super_kernels};
constexpr Parts neon_dotprod_parts{&neon_dotprod_kernels, &neon_dotprod_super_kernels};
#else
constexpr Parts neon_parts, neon_dotprod_parts;
#endif

struct Need {
  bool CpuFeatures::*feature = nullptr;
  const char* name = nullptr;
};

constexpr Need avx2{&CpuFeatures::avx2, "AVX2"};
constexpr Need fma{&CpuFeatures::fma, "FMA"};
constexpr Need f16c{&CpuFeatures::f16c, "F16C"};
constexpr Need avxvnni{&CpuFeatures::avxvnni, "AVX-VNNI"};
constexpr Need avx512f{&CpuFeatures::avx512f, "AVX-512F"};
constexpr Need avx512bw{&CpuFeatures::avx512bw, "AVX-512BW"};
constexpr Need avx512vl{&CpuFeatures::avx512vl, "AVX-512VL"};
constexpr Need avx512dq{&CpuFeatures::avx512dq, "AVX-512DQ"};
constexpr Need avx512vnni{&CpuFeatures::avx512vnni, "AVX-512-VNNI"};
constexpr Need amx_tile{&CpuFeatures::amx_tile, "AMX-TILE"};
constexpr Need amx_int8{&CpuFeatures::amx_int8, "AMX-INT8"};
constexpr Need neon{&CpuFeatures::neon, "NEON"};
constexpr Need dotprod{&CpuFeatures::dotprod, "DotProd"};
constexpr Need os_avx{&CpuFeatures::os_avx, "AVX"};
constexpr Need os_avx512{&CpuFeatures::os_avx512, "AVX-512"};
constexpr Need os_amx{&CpuFeatures::os_amx, "AMX tile"};

// One ISA: what its table was compiled for and what the operating system must save for it.
struct Isa {
  std::string_view name;
  Parts parts;
  std::array<Need, 10> needs;
  Need os;
  Need os_besides = {};
  bool by_name_only = false;  // never taken unasked
};

// CONTRACT's names, slowest first.
constexpr std::array isas = {
    Isa{"scalar", scalar_parts, {}, {}},
    Isa{"neon", neon_parts, {neon}, {}},
    Isa{"neon-dotprod", neon_dotprod_parts, {neon, dotprod}, {}},
    Isa{"avx2", avx2_parts, {avx2, fma, f16c}, os_avx},
    Isa{"avxvnni", avxvnni_parts, {avx2, fma, f16c, avxvnni}, os_avx},
    Isa{"avx512",
        avx512_parts,
        {avx512f, avx512bw, avx512vl, avx512dq, avx2, fma, f16c},
        os_avx512},
    Isa{"avx512vnni",
        avx512vnni_parts,
        {avx512f, avx512bw, avx512vl, avx512dq, avx512vnni, avx2, fma, f16c},
        os_avx512},
    Isa{"amx",
        amx_parts,
        {avx512f, avx512bw, avx512vl, avx512dq, avx512vnni, amx_tile, amx_int8, avx2, fma, f16c},
        os_avx512,
        os_amx,
        true},  // until it has run on a CPU that has tiles
};

// The features that `cpu` lacks for `isa`, as "AVX-512F, AVX-512BW"; empty if none.
std::string missing_features(const Isa& isa, const CpuFeatures& cpu) {
  std::string missing;
  for (const Need& need : isa.needs) {
    if (need.feature == nullptr || cpu.*need.feature) continue;
    if (!missing.empty()) missing += ", ";
    missing += need.name;
  }
  return missing;
}

// What the operating system does not enable of it; nullptr if nothing.
const char* not_enabled(const Isa& isa, const CpuFeatures& cpu) {
  for (const Need& need : {isa.os, isa.os_besides})
    if (need.feature != nullptr && !(cpu.*need.feature)) return need.name;
  return nullptr;
}

bool can_run(const Isa& isa, const CpuFeatures& cpu) {
  return isa.parts.layers != nullptr && missing_features(isa, cpu).empty() &&
         not_enabled(isa, cpu) == nullptr;
}

std::string runnable_names(const CpuFeatures& cpu) {
  std::string names;
  for (const Isa& isa : isas) {
    if (!can_run(isa, cpu)) continue;
    if (!names.empty()) names += ", ";
    names += isa.name;
  }
  return names;
}

Error refusal(std::string_view name, const std::string& reason, const CpuFeatures& cpu) {
  return {ErrorCode::usage, "--isa " + std::string(name.substr(0, 40)) + ": " + reason +
                                " (usable here: " + runnable_names(cpu) + ")"};
}

std::string unknown_name_text() {
  std::string text = "no instruction set has that name; the names are";
  for (const Isa& isa : isas) {
    text += ' ';
    text += isa.name;
  }
  return text;
}

template <class Function, std::size_t count>
void fill_gaps(Function (&into)[count], const Function (&from)[count]) {
  for (std::size_t i = 0; i < count; ++i)
    if (into[i] == nullptr) into[i] = from[i];
}

#if defined(__x86_64__)
// Fewer tokens leave most of a tile empty.
constexpr std::size_t tile_tokens_min = 8;

template <std::size_t type>
void matmul_vectors_or_tiles(const WeightRows& weights, const Q8Batch& x, std::size_t tokens,
                             float* y, std::size_t y_stride) {
  const WeightKernels& vectors = avx512vnni_kernels;
  const WeightKernels& chosen = tokens < tile_tokens_min ? vectors : amx_tile_kernels;
  chosen.matmul_q8[type](weights, x, tokens, y, y_stride);
}

template <std::size_t... type>
void add_tiles(KernelTable& table, std::index_sequence<type...>) {
  const auto add = [&table]<std::size_t one>(std::integral_constant<std::size_t, one>) {
    if (amx_tile_kernels.matmul_q8[one] != nullptr)
      table.matmul_q8[one] = &matmul_vectors_or_tiles<one>;
  };
  (add(std::integral_constant<std::size_t, type>{}), ...);
}

void add_tiles(KernelTable& table) { add_tiles(table, std::make_index_sequence<dtype_count>()); }
#else
void add_tiles(KernelTable&) {}
#endif

KernelTable join(const Isa& isa) {
  const Parts& parts = isa.parts;
  KernelTable table{};
  if (parts.layers == nullptr) return table;
  table = *parts.layers;
  table.name = isa.name.data();  // a literal
  table.quantize_q8_super = parts.supers->quantize_q8_super;
  fill_gaps(table.matmul_q8, parts.supers->matmul_q8);
  fill_gaps(table.matmul_q8_super, parts.supers->matmul_q8_super);
  fill_gaps(table.matmul_f32, parts.supers->matmul_f32);
  fill_gaps(table.decode_row, parts.supers->decode_row);
  fill_gaps(table.decode_scaled, parts.supers->decode_scaled);
  if (parts.in_tiles) add_tiles(table);
  return table;
}

// `isa` is an element of isas.
const KernelTable& table_of(const Isa& isa) {
  static const auto tables = [] {
    std::array<KernelTable, isas.size()> all;
    for (std::size_t i = 0; i < isas.size(); ++i) all[i] = join(isas[i]);
    return all;
  }();
  return tables[static_cast<std::size_t>(&isa - isas.data())];
}

const CpuFeatures& this_cpu() {
  static const CpuFeatures features = detect_cpu_features();
  return features;
}

}  // namespace

std::vector<const KernelTable*> supported_kernels(const CpuFeatures& cpu) {
  std::vector<const KernelTable*> tables;
  for (const Isa& isa : isas) {
    if (can_run(isa, cpu)) tables.push_back(&table_of(isa));
  }
  return tables;
}

std::span<const KernelTable* const> supported_kernels() {
  static const std::vector<const KernelTable*> tables = supported_kernels(this_cpu());
  return tables;
}

namespace {

const KernelTable& fastest_kernels(const CpuFeatures& cpu) {
  const auto fastest = std::find_if(isas.rbegin(), isas.rend(), [&](const Isa& isa) {
    return !isa.by_name_only && can_run(isa, cpu);
  });
  MILLRACE_CHECK(fastest != isas.rend());  // scalar is always there
  return table_of(*fastest);
}

}  // namespace

Result<const KernelTable*> choose_kernels(std::string_view name, const CpuFeatures& cpu) {
  if (name.empty()) return &fastest_kernels(cpu);
  const auto* const isa =
      std::find_if(isas.begin(), isas.end(), [name](const Isa& each) { return each.name == name; });
  if (isa == isas.end()) return refusal(name, unknown_name_text(), cpu);
  const std::string missing = missing_features(*isa, cpu);
  if (!missing.empty()) return refusal(name, "this CPU lacks " + missing, cpu);
  if (const char* const registers = not_enabled(*isa, cpu)) {
    return refusal(name,
                   "this CPU has it, but the operating system does not enable " +
                       std::string(registers) + " registers",
                   cpu);
  }
  if (isa->parts.layers == nullptr) {
    return refusal(name, "this CPU has it, but this build has no kernels for it", cpu);
  }
  return &table_of(*isa);
}

Result<const KernelTable*> choose_kernels(std::string_view name) {
  return choose_kernels(name, this_cpu());
}

}  // namespace millrace
