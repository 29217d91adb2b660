#include "kernels/dispatch.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

using namespace millrace;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string refusal(std::string_view name, const CpuFeatures& cpu) {
  const auto chosen = choose_kernels(name, cpu);
  REQUIRE_FALSE(chosen.has_value());
  CHECK(chosen.error().code == ErrorCode::usage);
  return chosen.error().what;
}

CpuFeatures everything() {
  CpuFeatures cpu;
  for (bool* feature : {&cpu.avx2, &cpu.fma, &cpu.f16c, &cpu.avxvnni, &cpu.avx512f, &cpu.avx512bw,
                        &cpu.avx512vl, &cpu.avx512dq, &cpu.avx512vnni, &cpu.amx_tile, &cpu.amx_int8,
                        &cpu.os_avx, &cpu.os_avx512, &cpu.os_amx}) {
    *feature = true;
  }
  return cpu;
}

}  // namespace

TEST_CASE("dispatch: scalar comes first, the default last, and each name chooses its table") {
  const auto tables = supported_kernels();
  REQUIRE_FALSE(tables.empty());
  CHECK(std::string(tables.front()->name) == "scalar");
  std::set<std::string> names;
  std::string tested;
  for (const KernelTable* table : tables) {
    tested += std::string(" ") + table->name;
    CHECK(names.insert(table->name).second);
    const auto chosen = choose_kernels(table->name);
    REQUIRE(chosen.has_value());
    CHECK(chosen.value() == table);
  }
  WARN("the kernel tests of this run hold to one another:" << tested);
  const KernelTable* const unasked = choose_kernels("").value();
  const std::string_view last = tables.back()->name;
  CHECK(unasked == (last == "amx" ? tables[tables.size() - 2] : tables.back()));
}

TEST_CASE("dispatch: a CPU without features still has scalar kernels") {
  const CpuFeatures bare;
  CHECK(supported_kernels(bare).size() == 1);
  CHECK(std::string(choose_kernels("", bare).value()->name) == "scalar");
}

TEST_CASE("dispatch: an unknown name lists the names there are") {
  const std::string what = refusal("sse9", CpuFeatures{});
  CHECK(contains(what, "sse9"));
  CHECK(contains(what, "scalar neon neon-dotprod avx2 avxvnni avx512 avx512vnni amx"));
}

TEST_CASE("dispatch: a CPU that lacks an ISA is told which features") {
  CHECK(contains(refusal("avx2", CpuFeatures{}), "this CPU lacks AVX2, FMA, F16C"));
  CHECK(contains(refusal("neon-dotprod", CpuFeatures{}), "this CPU lacks NEON, DotProd"));
  CpuFeatures cpu = everything();
  cpu.avx512bw = false;
  CHECK(contains(refusal("avx512", cpu), "this CPU lacks AVX-512BW (usable here: scalar"));
  cpu = everything();
  cpu.amx_int8 = false;
  CHECK(contains(refusal("amx", cpu), "this CPU lacks AMX-INT8"));
  cpu.avxvnni = false;
  CHECK(contains(refusal("avxvnni", cpu), "this CPU lacks AVX-VNNI"));
}

TEST_CASE("dispatch: an ISA that the operating system does not enable is refused and not default") {
  CpuFeatures cpu = everything();
  cpu.os_avx512 = false;
  CHECK(contains(refusal("avx512", cpu), "operating system does not enable AVX-512 registers"));
  for (const KernelTable* table : supported_kernels(cpu)) {
    CHECK_FALSE(contains(table->name, "avx512"));
    CHECK_FALSE(contains(table->name, "amx"));  // whose kernels use these registers too
  }
  CHECK(contains(refusal("amx", cpu), "operating system does not enable AVX-512 registers"));
  cpu.os_avx512 = true;
  cpu.os_amx = false;
  CHECK(contains(refusal("amx", cpu), "operating system does not enable AMX tile registers"));
  cpu.os_avx512 = cpu.os_avx = false;
  CHECK(contains(refusal("avx2", cpu), "operating system does not enable AVX registers"));
  CHECK(supported_kernels(cpu).size() == 1);
}

TEST_CASE("dispatch: an ISA that the CPU has but the build lacks is refused by that reason") {
  CpuFeatures arm;
  arm.neon = true;
  arm.dotprod = true;
  std::size_t missing = 0;
  for (const char* name : {"neon", "neon-dotprod"}) {
    const auto chosen = choose_kernels(name, arm);
    if (chosen.has_value()) continue;
    ++missing;
    CHECK(contains(chosen.error().what, "this build has no kernels for it"));
  }
#if defined(__x86_64__)
  CHECK(missing == 2);
  for (const char* name : {"avx2", "avxvnni", "avx512", "avx512vnni", "amx"})
    CHECK(std::string(choose_kernels(name, everything()).value()->name) == name);
#endif
}

TEST_CASE("dispatch: every entry for a layer's other work is filled in every table") {
  for (const KernelTable* table : supported_kernels()) {
    INFO(table->name);
    CHECK(table->rms_norm != nullptr);
    CHECK(table->rope_norm != nullptr);
    CHECK(table->rope_neox != nullptr);
    CHECK(table->attention_f16 != nullptr);
    CHECK(table->attention_f32 != nullptr);
    CHECK(table->softmax != nullptr);
    CHECK(table->swiglu != nullptr);
    CHECK(table->swiglu_clamped != nullptr);
    CHECK(table->sigmoid != nullptr);
    CHECK(table->attention_q8_0 != nullptr);
    CHECK(table->to_q8_0 != nullptr);
    CHECK(table->add != nullptr);
    CHECK(table->add_scaled != nullptr);
    CHECK(table->to_f16 != nullptr);
    CHECK(table->exp != nullptr);
    CHECK(table->all_finite != nullptr);
    CHECK(table->quantize_q8 != nullptr);
    CHECK(table->read_all != nullptr);
  }
}
