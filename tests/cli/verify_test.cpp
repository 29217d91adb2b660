// `verify` of model files, which hold no digests: what can be told nevertheless. Packs are tested
// beside `pack`.
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/cli/gguf_edit.h"
#include "tests/cli/program.h"

using namespace millrace;
using namespace millrace::cli;
using testing::TempFolder;

namespace {

std::string bytes_of(float value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// Of the embedded model: MXFP4 experts of 17-byte blocks, float norms.
Outcome verify_edited(const std::string& tensor, std::uint64_t at, const std::string& data) {
  const TempFolder folder;
  GgufEdit model(read_file(embedded_model()));
  model.set_data(tensor, at, data);
  return run_program({"verify", folder.write("model.gguf", model.bytes())});
}

}  // namespace

TEST_CASE(
    "verify: a sound model is read whole, at a speed that is told, and said to have no digests") {
  for (const std::string& model : {embedded_model(), small_model()}) {
    const Outcome outcome = run_program({"verify", model});
    CAPTURE(model, outcome.out, outcome.err);
    CHECK(outcome.code == 0);
    CHECK(contains(outcome.out, " GB/s"));
    CHECK(contains(outcome.out, "no digests"));
    CHECK_FALSE(contains(outcome.out, "not finite,"));
  }
  CHECK(contains(run_program({"verify", embedded_model()}).out, "23.6 MiB in "));
}

TEST_CASE("verify: weights and scales that are no finite numbers are named with their tensor") {
  const Outcome weight = verify_edited("blk.2.attn_norm.weight", 5 * 4, bytes_of(std::nanf("")));
  CAPTURE(weight.out);
  CHECK(weight.code == 5);
  CHECK(contains(weight.out,
                 "tensor blk.2.attn_norm.weight: 1 value is not finite, the first is "
                 "number 5"));
  CHECK(
      contains(weight.err,
               ": 1 tensor with values that are not finite, the first is blk.2.attn_norm.weight"));
  const Outcome infinite =
      verify_edited("output_norm.weight", 0, bytes_of(std::numeric_limits<float>::infinity()));
  CHECK(infinite.code == 5);
  CHECK(contains(infinite.out, "tensor output_norm.weight: 1 value"));
  // A block's scale of 2^127: most of its codes become more than a float32 holds.
  const Outcome scale = verify_edited("blk.5.ffn_down_exps.weight", 1000 * 17, "\xFF");
  CAPTURE(scale.out);
  CHECK(scale.code == 5);
  CHECK(contains(scale.out, "tensor blk.5.ffn_down_exps.weight: "));
  CHECK(contains(scale.out, " values are not finite, the first is number 320"));
}

TEST_CASE("verify: what is no model, absent or cut short is refused as by a run") {
  const TempFolder folder;
  CHECK(run_program({"verify", folder.path("absent")}).code == 2);
  CHECK(run_program({"verify", folder.write("text", "hello, this is no model")}).code == 3);
  const std::string whole = read_file(small_model());
  const Outcome cut =
      run_program({"verify", folder.write("cut.gguf", whole.substr(0, whole.size() - 100))});
  CAPTURE(cut.err);
  CHECK(cut.code == 3);
}
