// Operands without elements, null and freed, on the device: a kernel that loaded anything through them would end the
// context, so every launch is followed by a product that has elements.
#include "tests/support/null_operands.h"

#include <string_view>

#include "tests/gpu/gpu_support.h"

namespace tessera {
namespace {

using namespace tessera::gpu;

/// y = 2 x + 3 of two elements: right only in a context that still works.
void check_context() {
  const Array<float> x({1, 2}), y({0, 0, 0});
  const Array<unsigned> workspace({0, 0});
  const Launcher launcher(device(), scale_plan(), compile(kScaleText));
  const std::int64_t sizes[] = {2, kUseDefault};
  const double scalars[] = {2};
  const DevicePointer buffers[] = {x.pointer(), y.pointer()};
  launcher.launch({}, {sizes, scalars, buffers, workspace.pointer(), 8});
  CHECK(y.host() == std::vector<float>{5, 7, 1});
}

void check(const std::vector<nulls::Case>& cases) {
  for (const nulls::Case& test : cases) {
    if (arch_of(test.problem).to_string() != arch()) continue;
    CAPTURE(test.name);
    const Plan plan = nulls::plan_of(test);
    CAPTURE(plan.kernel);
    const Image image = compiler().compile(emit(plan));
    for (const bool is_freed : {false, true}) {
      CAPTURE(is_freed);
      nulls::Run run(test, plan, image, device(), is_freed);
      run.run_and_check([](DevicePointer to, std::size_t bytes) { device().set_bytes(to, 0xA5, bytes); },
                        [](DevicePointer, std::size_t) { return true; });
      check_context();
    }
  }
}

}  // namespace

TEST_CASE("null operands leave the context alive") {
  for (const auto cases : {nulls::cases_of_attention, nulls::cases_of_attention_tcgen05, nulls::cases_of_pools,
                           nulls::cases_of_products, nulls::cases_of_products_tcgen05, nulls::cases_of_rows})
    check(cases());
}

}  // namespace tessera
