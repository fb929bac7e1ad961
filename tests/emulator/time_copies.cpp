// What a multiprocessor waits for copies that others want, too, or had before, or that were asked for ahead.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "emulator/time/gpu_time.h"
#include "tests/emulator/time_run.h"

namespace tessera::emulator::time_test {

constexpr int kCopy = 8192;

/// Copies of all CTAs, the next one when the last is there: `count` that lie side by side, so many times; the CTAs' own
/// begin `apart` bytes after each other.
double chain(int count, int times, int apart, std::size_t words) {
  DeviceOptions options;
  options.time = find_gpu_time("h200");
  options.num_sms = sms_of(*options.time);
  options.skips_values = true;
  EmulatedDevice device(options);
  std::string text = fmt::format(
      "mov.u32 r6, bar;\nmov.u32 r7, %ctaid.x;\nmul.lo.u32 r7, r7, {};\ncvt.u64.u32 d1, r7;\nadd.u64 d0, d0, d1;\n"
      "setp.eq.u32 q, r0, 0;\n@q mbarrier.init.shared.b64 [r6], 1;\nbar.sync 0;\n",
      apart);
  for (int i = 0; i < count * times; ++i)
    text += fmt::format(
        "add.u64 d2, d0, {1};\n@q mbarrier.arrive.expect_tx.shared.b64 _, [r6], {2};\n"
        "@q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r1], [d2], {2}, [r6];\n"
        "WAIT{0}: mbarrier.try_wait.parity.shared.b64 p, [r6], {3};\n@!p bra WAIT{0};\n",
        i, i % count * kCopy, kCopy, i % 2);
  std::vector<std::uint32_t> values(words);
  const auto findings = tessera::testing::run_test_entry(device, entry(text), values, 32, 132);
  for (const auto& finding : findings) CAPTURE(finding.message);
  REQUIRE(findings.empty());
  return device.take_times().at(0).cycles;
}

/// Cycles of one of a chain's copies.
double each_of_chain(int apart, std::size_t words) {
  return (chain(24, 1, apart, words) - chain(8, 1, apart, words)) / 16;
}

TEST_CASE("time: who copies what others copy at the same time waits for the memory, as they do") {
  const double same = each_of_chain(0, 24 * kCopy / 4);
  const double more = same - h200().tma_latency_hbm;  // the thread, its barrier, and the bytes
  CHECK(more > 0);
  CHECK(more < 400);
}

TEST_CASE("time: a copy's lines come from all of the memory at once, behind what is under way") {
  const double same = each_of_chain(0, 24 * kCopy / 4), own = each_of_chain(24 * kCopy, 132 * 24 * kCopy / 4);
  const double part = kCopy * 132 * h200().clock_mhz / h200().hbm_bytes_per_us;  // of the memory's rate
  CHECK(own > same);
  CHECK(own < same + 2 * h200().tma_behind * part);  // with what was written before
}

TEST_CASE("time: what was read for earlier tiles comes from the L2") {
  const double once = chain(16, 1, 0, 16 * kCopy / 4), twice = chain(16, 2, 0, 16 * kCopy / 4);
  const double saved = h200().tma_latency_hbm - h200().tma_latency_l2;
  CHECK((twice - once) / 16 < each_of_chain(0, 24 * kCopy / 4) - 0.8 * saved);
}

TEST_CASE("time: loads of what was brought to the L2 ahead wait for the L2") {
  const std::string ask = "@q cp.async.bulk.prefetch.L2.global [d0], 128;\n", first = "setp.eq.u32 q, r0, 0;\n";
  CHECK(each(ask, 32, first) == doctest::Approx(h200().tma_prefetch_issue).epsilon(0.1));
  const auto load = [&](const std::string& ahead) {
    return cycles(first + ahead + multiply_adds(4000) +
                  "cvt.u64.u32 d1, r2;\nadd.u64 d1, d0, d1;\nld.global.cg.u32 r5, [d1];\nst.shared.u32 [r3], r5;\n");
  };
  const double saved = load({}) - load(ask) + h200().tma_prefetch_issue;
  CHECK(saved > h200().hbm_latency - h200().l2_latency - 2 * h200().l2_tail);
}

}  // namespace tessera::emulator::time_test
