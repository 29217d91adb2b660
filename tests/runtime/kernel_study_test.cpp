// What a study of kernels concludes from what it measured.
#include <catch2/catch.hpp>
#include <limits>
#include <string>

#include "kernels/dispatch.h"
#include "runtime/kernel_study/kernel_study.h"
#include "runtime/kernel_study/weight_sample.h"

namespace millrace {
namespace {

KernelStudy study_of(double kernel, double limit, bool same_bits) {
  KernelStudy study;
  study.limits.push_back({Residency::l2, 1, 1000, {limit / 2, limit}});
  KernelFigure figure{};
  figure.type = DType::mxfp4;
  figure.isa = "avx2";
  figure.residency = Residency::l2;
  figure.threads = figure.tokens = 1;
  figure.bytes = figure.multiply_adds = 1000;
  figure.bytes_per_second = {kernel * 3, kernel, kernel / 2};
  figure.scalar_bytes_per_second = 1;
  figure.same_bits = same_bits;
  study.figures.push_back(figure);
  return study;
}

}  // namespace

TEST_CASE("Kernel study: the median against the best read loop; above 1.05 the limit is wrong") {
  KernelStudy study = study_of(105, 100, true);
  CHECK(study.share(study.figures[0]) == Approx(1.05));
  CHECK(check_study(study).has_value());
  study = study_of(106, 100, true);
  const Status refused = check_study(study);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ErrorCode::verify);
  CHECK(refused.error().what.find("avx2 MXFP4 in L2, 1 thread, 1 token: 1.06") == 0);
  study.options.repeats = 4;
  CHECK(check_study(study).has_value());  // too few to judge
}

TEST_CASE("Kernel study: other bits than scalar's fail however short the measurement") {
  KernelStudy study = study_of(50, 100, false);
  study.options.repeats = 1;
  const Status refused = check_study(study);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ErrorCode::verify);
  CHECK(refused.error().what.find("other bits") != std::string::npos);
}

TEST_CASE("Kernel study: activations are counted as what they are: floats and both rounded forms") {
  // 1024 columns: 4096 bytes of floats; 1024 of codes with 32 scales and sums of 4 bytes; 1024 with
  // 4 scales of 4 and 64 sums of 2.
  CHECK(ActivationSample::bytes(1024, 1) == 4096 + 1024 + 256 + 1024 + 16 + 128);
  CHECK(ActivationSample::bytes(1024, 7) == 7 * ActivationSample::bytes(1024, 1));
  CHECK(ActivationSample::bytes(1280, 1) > ActivationSample::bytes(1024, 1));
}

TEST_CASE("Kernel study: samples of every type decode to finite numbers") {
  const KernelTable& table = *supported_kernels().front();
  for (std::size_t id = 0; id < dtype_count; ++id) {
    if (table.matmul_f32[id] == nullptr) continue;
    const auto type = static_cast<DType>(id);
    CAPTURE(dtype_info(type).name);
    const WeightSample sample(type, 512, 1);
    std::vector<std::byte> bytes(sample.bytes());
    sample.fill(bytes.data(), 3);
    std::vector<float> row(512);
    float largest = 0;
    for (std::size_t r = 0; r < sample.rows(); ++r) {
      if (table.decode_scaled[id] != nullptr)
        table.decode_scaled[id](sample.view(bytes.data()), r, row.data());
      else table.decode_row[id](bytes.data() + r * dtype_row_bytes(type, 512), 512, row.data());
      CHECK(table.all_finite(row.data(), row.size()));
      for (const float value : row) largest = std::max(largest, value);
    }
    CHECK(largest > 0);
  }
}

}  // namespace millrace
