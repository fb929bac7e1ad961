// Operands without elements, null and freed, in the emulator: nothing is loaded through them on any family, whatever
// the schedule.
#include "tests/support/null_operands.h"

#include "runtime/nvrtc.h"
#include "tessera/emulator/device.h"
#include "tessera/error.h"
#include "tests/support/sample.h"

namespace tessera::null_operands_test {
namespace {

using emulator::EmulatedDevice;
using emulator::Schedule;

void check(const std::vector<nulls::Case>& cases) {
  std::unique_ptr<Compiler> compiler;
  try {
    compiler = make_nvrtc_compiler({.library = {}, .repro_folder = {}, .makes_cubin = false});
  } catch (const Error&) {
    MESSAGE("skipped: no NVRTC");
    return;
  }
  testing::Sample sample(40);
  for (const nulls::Case& test : cases) {
    if (!sample.takes()) continue;
    CAPTURE(test.name);
    emulator::DeviceOptions options;
    options.detects_races = true;
    options.num_sms = test.num_sms;
    options.arch = arch_of(test.problem).to_string();
    EmulatedDevice device(options);
    const Plan plan = nulls::plan_of(test);
    CAPTURE(plan.kernel);
    const Image image = compiler->compile(emit(plan));
    for (const bool is_freed : {false, true}) {
      CAPTURE(is_freed);
      nulls::Run run(test, plan, image, device, is_freed);
      for (const std::string& name : test.nulls) CHECK_MESSAGE(run.is_empty(name), name, " has elements");
      for (const Schedule schedule : {Schedule::fair, Schedule::lazy, Schedule::adversarial}) {
        if (is_freed && schedule != Schedule::fair) continue;
        CAPTURE(static_cast<int>(schedule));
        device.set_schedule(schedule, 1);
        run.run_and_check(
            [&](DevicePointer to, std::size_t bytes) { device.poison(to, 0xA5, bytes); },
            [&](DevicePointer from, std::size_t bytes) { return device.uninitialised_bytes(from, bytes) == 0; });
      }
    }
  }
}

TEST_CASE("null operands: attention without any key") { check(nulls::cases_of_attention()); }
TEST_CASE("null operands: attention on tcgen05 without any key") { check(nulls::cases_of_attention_tcgen05()); }
TEST_CASE("null operands: attention over two pools of keys") { check(nulls::cases_of_pools()); }
TEST_CASE("null operands: products with a k of 0") { check(nulls::cases_of_products()); }
TEST_CASE("null operands: products on tcgen05 with a k of 0") { check(nulls::cases_of_products_tcgen05()); }
TEST_CASE("null operands: rows and blocks of nothing") { check(nulls::cases_of_rows()); }

}  // namespace
}  // namespace tessera::null_operands_test
