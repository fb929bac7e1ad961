// Attention's operands to NVFP4 for every target, compiled to PTX by NVRTC and run in the emulator: codes equal the
// host's, means and what restores scores are within the roundings of their sums. Nothing here ran on Blackwell
// hardware.
#include <doctest/doctest.h>

#include "runtime/nvrtc.h"
#include "tessera/emulator/device.h"
#include "tests/emulated/compiler.h"
#include "tests/support/attention_quantize_cases.h"
#include "tests/support/sample.h"

namespace tessera::attention_quantize_test {
namespace {

using emulator::EmulatedDevice;
using emulator::Schedule;
using reference::Fill;
using testing::find_compiler;

/// Parts of blocks, whole ones, one row; sequences and groups of heads; nothing.
constexpr reference::FmhaSizes kShapes[] = {{.batch = 2, .heads_q = 3, .heads_kv = 1, .seqlen_q = 150, .seqlen_k = 131},
                                            {.batch = 1, .heads_q = 4, .heads_kv = 2, .seqlen_q = 1, .seqlen_k = 256},
                                            {.batch = 1, .heads_q = 1, .heads_kv = 1, .seqlen_q = 128, .seqlen_k = 17},
                                            {.batch = 1, .heads_q = 1, .heads_kv = 1, .seqlen_q = 5, .seqlen_k = 0},
                                            {.batch = 1, .heads_q = 1, .heads_kv = 1, .seqlen_q = 0, .seqlen_k = 5}};

}  // namespace

TEST_CASE("attention_quantize: every target, type and head_dim, under each schedule and the race detector") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  constexpr Schedule kSchedules[] = {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial};
  testing::Sample sample(6);
  std::uint64_t seed = 1;
  for (const char* const arch : {"sm_120a", "sm_90a", "sm_100a", "sm_121a"})
    for (const int head_dim : {128, 64})
      for (const DType dtype : {DType::bf16, DType::f16}) {
        if (!sample.takes()) continue;
        const AttentionQuantize problem{.arch = Arch::parse(arch), .head_dim = head_dim, .dtype = dtype};
        const Plan plan = make_plan(problem);
        CAPTURE(plan.kernel);
        EmulatedDevice device({.arch = arch, .detects_races = true});
        const Launcher launcher(device, plan.launch, compiler->compile(emit(plan)));
        for (const reference::FmhaSizes& shape : kShapes)
          for (const Fill fill : {Fill::standard, Fill::normal}) {
            CAPTURE(shape.seqlen_q);
            CAPTURE(shape.seqlen_k);
            CAPTURE(seed);
            device.set_schedule(kSchedules[seed % 4], seed);
            for (const std::string& text : judge(device, launcher, problem, shape, fill, seed)) FAIL_CHECK(text);
            ++seed;
          }
      }
}

}  // namespace tessera::attention_quantize_test
