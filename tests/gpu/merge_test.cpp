// The merge of parts of attention on a GPU: random kernels and shapes against float64.
#include <doctest/doctest.h>

#include <map>
#include <random>

#include "tests/gpu/gpu_support.h"
#include "tests/support/merge_cases.h"

namespace tessera {

using namespace gpu;

TEST_CASE("merge: random types, rows, parts and shapes") {
  std::mt19937_64 random(77);
  constexpr DType kTypes[] = {DType::bf16, DType::f16, DType::f32};
  constexpr int kHeadDims[] = {128, 64, 72, 512, 96};
  constexpr reference::Fill kFills[] = {reference::Fill::standard, reference::Fill::integer, reference::Fill::normal};
  std::map<std::string, std::unique_ptr<Launcher>> launchers;
  for (int i = 0; i < 100; ++i) {
    Merge problem{.arch = Arch::parse(arch()),
                  .head_dim_v = kHeadDims[random() % 5],
                  .dtype = kTypes[random() % 3],
                  .o_dtype = kTypes[random() % 3],
                  .sink = random() % 2 == 0 ? Sink::none : Sink::per_head,
                  .at_once = 2 << random() % 3};
    const auto below = [&](std::uint64_t bound) { return static_cast<std::int64_t>(random() % bound); };
    const reference::MergeSizes sizes{.parts = below(random() % 4 == 0 ? 200 : 12),
                                      .batch = 1 + below(3),
                                      .heads_q = 1 + below(9),
                                      .seqlen_q = below(60)};
    const Plan plan = make_plan(problem);
    CAPTURE(plan.kernel);
    CAPTURE(sizes.parts);
    CAPTURE(sizes.seqlen_q);
    CAPTURE(i);
    std::unique_ptr<Launcher>& launcher = launchers[plan.kernel];
    if (!launcher) {
      const Image image = compiler().compile(emit(plan));
      CHECK(image.report.notes.empty());
      for (const EntryReport& entry : image.report.entries)
        CHECK(entry.spill_store_bytes + entry.spill_load_bytes == 0);
      launcher = std::make_unique<Launcher>(device(), plan.launch, image);
    }
    for (const std::string& text : judge(device(), *launcher, problem, sizes, kFills[i % 3], random()))
      FAIL_CHECK(text);
  }
}

}  // namespace tessera
