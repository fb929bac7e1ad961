// The time model: what shared memory, caches, memory and copies cost, by kernels of a few instructions.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/emulator/time_run.h"

namespace tessera::emulator::time_test {

TEST_CASE("time: bank conflicts take as many cycles as there are wavefronts") {
  const std::string load = "ld.shared.f32 f1, [r3];\n";
  const std::string store = "st.shared.f32 [r3], f0;\n";
  const double plain = each(store, 512, "mov.f32 f0, 0f00000000;\n");
  const double eightfold =
      each(store, 512, "mov.f32 f0, 0f00000000;\nand.b32 r4, r0, 31;\nshl.b32 r4, r4, 5;\nadd.u32 r3, r1, r4;\n");
  CHECK(eightfold / plain == doctest::Approx(8).epsilon(0.05));
  (void)load;
}

TEST_CASE("time: loads of words side by side are one load, where they can be aligned") {
  const auto loads = [](std::initializer_list<int> words, const char* base) {
    std::string text;
    for (const int word : words) text += fmt::format("ld.shared.f32 f{}, [r9+{}];\n", word % 16, 4 * word);
    return each(
               text, 512,
               fmt::format("and.b32 r4, r0, 31;\nshl.b32 r4, r4, 4;\nadd.u32 r9, r1, r4;\nmov.f32 f0, 0f00000000;\n"
                           "st.shared.v4.f32 [r9], {{f0, f0, f0, f0}};\nst.shared.f32 [smem+512], f0;\nbar.sync 0;\n{}",
                           base)) *
           h200().smem_bytes_per_clock / (4 * 512);
  };
  CHECK(loads({0, 1, 2, 3}, "") == doctest::Approx(4).epsilon(0.05));  // 16 bytes a lane, no conflict
  CHECK(loads({2, 0, 3, 1}, "") == doctest::Approx(4).epsilon(0.05));
  CHECK(loads({0, 1, 2}, "") == doctest::Approx(4 + 4).epsilon(0.05));  // 8 bytes with two in a bank, 4 with four
  CHECK(loads({0, 1, 2, 3}, "add.u32 r9, r9, 4;\n") == doctest::Approx(16).epsilon(0.05));  // not even
}

TEST_CASE("time: loads of global memory go before stores of shared memory, not before what tells of them") {
  const auto kernel = [](int count, const char* between) {
    std::string body = "cvt.u64.u32 d1, r2;\nadd.u64 d1, d0, d1;\n";
    for (int i = 0; i < count; ++i)
      body += fmt::format("ld.global.cg.u32 r5, [d1];\nst.shared.u32 [r3], r5;\n{}", between);
    return cycles(body + "bar.sync 0;\n");
  };
  const double latency = h200().hbm_latency;
  CHECK(kernel(12, "") < kernel(4, "") + latency / 2);
  CHECK(kernel(12, "bar.sync 0;\n") > kernel(4, "bar.sync 0;\n") + 7 * latency);
  CHECK(kernel(12, "ld.shared.u32 r6, [r3];\n") > kernel(4, "ld.shared.u32 r6, [r3];\n") + 7 * latency);
}

TEST_CASE("time: wide loads take half of the wavefronts where each lane loads what one beside it does") {
  const auto waves = [](const char* address, const char* load) {
    constexpr std::uint32_t warps = 16;
    return each(load, 32 * warps,
                fmt::format("and.b32 r4, r0, 31;\nshl.b32 r9, r4, 4;\nadd.u32 r9, r1, r9;\nmov.b32 r5, 0;\n"
                            "st.shared.v4.b32 [r9], {{r5, r5, r5, r5}};\nbar.sync 0;\n{}shl.b32 r4, r4, 4;\n"
                            "add.u32 r9, r1, r4;\n",
                            address)) /
           warps;
  };
  const char* const of_16 = "ld.shared.v4.b32 {r10, r11, r12, r13}, [r9];\n";
  const char* const of_8 = "ld.shared.v2.b32 {r10, r11}, [r9];\n";
  CHECK(waves("and.b32 r4, r4, 3;\n", of_16) == doctest::Approx(4).epsilon(0.05));
  CHECK(waves("and.b32 r4, r4, 1;\n", of_16) == doctest::Approx(2).epsilon(0.05));
  CHECK(waves("shr.u32 r4, r4, 2;\n", of_16) == doctest::Approx(2).epsilon(0.05));
  CHECK(waves("and.b32 r4, r4, 3;\n", of_8) == doctest::Approx(2).epsilon(0.05));
  CHECK(waves("shr.u32 r4, r4, 2;\n", of_8) == doctest::Approx(1).epsilon(0.05));
}

TEST_CASE("time: many warps wait for the latest of their loads") {
  const auto load = [](std::uint32_t threads) {
    return cycles(
        "cvt.u64.u32 d1, r2;\nadd.u64 d1, d0, d1;\nld.global.cg.u32 r5, [d1];\nst.shared.u32 [r3], r5;\nbar.sync 0;\n",
        threads);
  };
  CHECK(load(1024) > load(32) + 2 * h200().hbm_tail);
}

TEST_CASE("time: what neighbours have asked for is on its way, and comes again where the L2 does not hold it") {
  // Each eighth of the buffer is read by every eighth CTA, 16 KiB a step, two CTAs a multiprocessor, four rounds of
  // them.
  const auto time_of_reads = [](std::size_t bytes, std::uint32_t ctas) {
    DeviceOptions options;
    options.time = find_gpu_time("h200");
    options.num_sms = sms_of(*options.time);
    options.skips_values = true;
    EmulatedDevice device(options);
    std::vector<std::uint32_t> values(bytes / 4);
    const std::string body =
        "mov.u32 r4, %ctaid.x;\nand.b32 r4, r4, 7;\nmul.lo.u32 r4, r4, {0};\nshl.b32 r5, r0, 4;\nadd.u32 r4, r4, r5;\n"
        "cvt.u64.u32 d1, r4;\nadd.u64 d1, d0, d1;\nmov.u32 r4, 0;\nmov.u32 r7, 16384;\nLOOP:\n"
        "ld.global.cg.v4.u32 {{r10, r11, r12, r13}}, [d1];\nadd.u32 r14, r10, r11;\nst.shared.u32 [r3], r14;\nbar.sync "
        "0;\n"
        "add.u64 d1, d1, 16384;\nadd.u32 r4, r4, r7;\nsetp.lt.u32 p, r4, {0};\n@p bra LOOP;\n";
    const auto findings =
        tessera::testing::run_test_entry(device, entry(fmt::format(fmt::runtime(body), bytes / 8)), values, 1024, ctas);
    REQUIRE(findings.empty());
    return device.take_times().at(0);
  };
  constexpr std::size_t kStays = 2 << 20, kDoesNot = 40 << 20;
  const LaunchTime once = time_of_reads(kStays, 132), stays = time_of_reads(kStays, 4 * 264);
  CHECK(once.cycles > kStays / 8 / 16384 * h200().hbm_latency);  // all wait for the memory in each step
  CHECK(stays.hbm_bytes == doctest::Approx(kStays + h200().displaced_by(kStays)).epsilon(0.2));
  CHECK(time_of_reads(kDoesNot, 4 * 264).hbm_bytes > 3.5 * kDoesNot);
}

TEST_CASE("time: sectors that are written in part take the L2, which all share") {
  const auto stores = [](std::uint32_t ctas) {
    const auto kernel = [&](int count) {
      return time_of_grid("shl.b32 r5, r0, 7;\ncvt.u64.u32 d1, r5;\nadd.u64 d1, d0, d1;\nmov.u32 r7, 0;\n" +
                              repeated("st.global.u32 [d1], r7;\n", count),
                          256, ctas)
          .cycles;
    };
    return (kernel(24) - kernel(8)) / 16;
  };
  CHECK(stores(1) == doctest::Approx(256 * h200().l1_store_part).epsilon(0.05));
  CHECK(stores(132) == doctest::Approx(256 * 132 / h200().l2_parts_per_clock).epsilon(0.05));
}

TEST_CASE("time: the L2 reads once what neighbours read, as long as they are in step") {
  // Copies of 16 KiB, of which CTAs whose numbers are the same after this operation have the same; one goes on for so
  // many multiply-adds.
  const auto kernel = [](const char* operation, int copies) {
    return time_of_grid(
               fmt::format(
                   "mov.u32 r7, %ctaid.x;\n{}\nshl.b32 r7, r7, 14;\ncvt.u64.u32 d1, r7;\nadd.u64 d0, d0, d1;\n"
                   "mov.u32 r6, bar;\nsetp.eq.u32 q, r0, 0;\n@q mbarrier.init.shared.b64 [r6], 1;\nbar.sync 0;\n"
                   "@q mbarrier.arrive.expect_tx.shared.b64 _, [r6], {};\n{}"
                   "WAIT: mbarrier.try_wait.parity.shared.b64 p, [r6], 0;\n@!p bra WAIT;",
                   operation, copies * 16384,
                   repeated("@q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r1], [d0], "
                            "16384, [r6];\n",
                            copies)),
               32, 132)
        .cycles;
  };
  const auto rate = [&](const char* operation) { return 24 * 16384 / (kernel(operation, 62) - kernel(operation, 38)); };
  const auto expected = [](double neighbours) {
    const double at_once = 1 + (std::min(neighbours, h200().l2_neighbours) - 1) * h200().in_step_after(0);
    return 1 / (1 / (h200().l2_distinct * at_once) + 1 / h200().l2_each);
  };
  CHECK(rate("shr.u32 r7, r7, 3;") == doctest::Approx(expected(1)).epsilon(0.05));   // one of each GPC
  CHECK(rate("shr.u32 r7, r7, 4;") == doctest::Approx(expected(2)).epsilon(0.05));   // two of each
  CHECK(rate("and.b32 r7, r7, 31;") == doctest::Approx(expected(4)).epsilon(0.05));  // four of one
  CHECK(h200().in_step_after(1e4) > 2 * h200().in_step_after(2e5));
  CHECK(h200().in_step_after(1e7) == h200().l2_in_step_after.points.back().second);
}

TEST_CASE("time: what lanes ask for does not wait for the copies that are under way") {
  // One thread copies 4 KiB again and again; another warp loads, once it has begun.
  const auto wait_of_load = [](int copies) {
    const LaunchTime time = time_of(
        fmt::format(
            "mov.u32 r6, bar;\nsetp.eq.u32 q, r0, 0;\n@q mbarrier.init.shared.b64 [r6], 1;\nbar.sync 0;\n"
            "@q mbarrier.arrive.expect_tx.shared.b64 _, [r6], {};\n{}bar.sync 0;\nsetp.lt.u32 p, r0, 32;\n@p bra "
            "WAIT;\nld.global.cg.u32 r5, [d0];\nst.shared.u32 [r3+16384], r5;\nbra OVER;\n"
            "WAIT: mbarrier.try_wait.parity.shared.b64 p, [r6], 0;\n@!p bra WAIT;\nOVER:",
            copies * 4096,
            repeated("@q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r1], [d0], 4096, [r6];\n",
                     copies)),
        64);
    return time.roles.back().waits.at("memory");
  };
  CHECK(wait_of_load(64) < wait_of_load(2) + 200);
}

TEST_CASE("time: where all multiprocessors copy what the L2 gives a load waits for a part of the copies before it") {
  // Each copies 16 KiB of its own again and again; both warps load when all copies have been issued, which is later
  // than the first translations are there, and the copy that comes from the memory.
  const auto wait_of_load = [](int copies) {
    const LaunchTime time = time_of_grid(
        fmt::format(
            "mov.u32 r7, %ctaid.x;\nshl.b32 r7, r7, 14;\ncvt.u64.u32 d1, r7;\nadd.u64 d0, d0, d1;\n"
            "mov.u32 r6, bar;\nsetp.eq.u32 q, r0, 0;\n@q mbarrier.init.shared.b64 [r6], 1;\nbar.sync 0;\n"
            "@q mbarrier.arrive.expect_tx.shared.b64 _, [r6], {};\n{}bar.sync 0;\nld.global.cg.u32 r5, [d0];\n"
            "and.b32 r5, r5, 0;\nadd.u32 r5, r5, r3;\nst.shared.u32 [r5+16384], r3;\n"
            "WAIT: mbarrier.try_wait.parity.shared.b64 p, [r6], 0;\n@!p bra WAIT;\n",
            copies * 16384,
            repeated("@q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r1], [d0], 16384, [r6];\n",
                     copies)),
        64, 132);
    double sum = 0;
    for (const auto& [cause, cycles] : time.roles.back().waits)
      if (cause == "memory" || cause == "arithmetic") sum += cycles;
    return sum;
  };
  const double of_copy = 16384 / h200().l2_by_sharers.at(1) - h200().tma_issue;
  CHECK(wait_of_load(62) - wait_of_load(40) == doctest::Approx(h200().l2_lanes_wait * 22 * of_copy).epsilon(0.1));
}

TEST_CASE("time: what was written goes to the memory beside later reads, and in the time that nobody reads") {
  // 128 KiB written and as much read by each multiprocessor, with multiply-adds at one of three places.
  const auto kernel = [](int writes, int first, int between) {
    DeviceOptions options;
    options.time = find_gpu_time("h200");
    options.num_sms = sms_of(*options.time);
    options.skips_values = true;
    EmulatedDevice device(options);
    const auto loop = [](int turns, int number) {
      return turns == 0 ? std::string()
                        : fmt::format(
                              "mov.u32 r4, 0;\nL{0}:\n{1}add.u32 r4, r4, 1;\nsetp.lt.u32 q, r4, {2};\n"
                              "@q bra L{0};\n",
                              number, repeated("fma.rn.f32 f1, f1, f1, f1;\n", 8), turns);
    };
    std::string body =
        "mov.u32 r5, %ctaid.x;\nmul.wide.u32 d1, r5, 131072;\nmul.wide.u32 d2, r0, 16;\nadd.u64 d1, d1, d2;\n"
        "add.u64 d1, d0, d1;\nadd.u64 d2, d1, 17301504;\n" +
        loop(first, 0);
    for (int i = 0; i < writes; ++i) body += fmt::format("st.global.v4.f32 [d1+{}], {{f1, f1, f1, f1}};\n", i * 16384);
    body += "bar.sync 0;\n" + loop(between, 1);
    for (int i = 0; i < 8; ++i)
      body += fmt::format("ld.global.cg.v4.f32 {{f2, f3, f4, f5}}, [d2+{}];\nadd.f32 f6, f6, f2;\n", i * 16384);
    std::vector<std::uint32_t> values(2 * 17301504 / 4);
    const auto findings =
        tessera::testing::run_test_entry(device, entry(body + "st.shared.f32 [r3], f6;\n"), values, 1024, 132);
    for (const auto& finding : findings) CAPTURE(finding.message);
    REQUIRE(findings.empty());
    return device.take_times().at(0).cycles;
  };
  const auto more = [&](int first, int between) { return kernel(8, first, between) - kernel(0, first, between); };
  const double at_once = more(0, 0);
  CHECK(at_once > 128 * 1024 * 132 * h200().clock_mhz / h200().hbm_bytes_per_us * 0.6);
  CHECK(more(400, 0) > 0.8 * at_once);  // before the writes idle time is no help
  CHECK(more(0, 60) > 0.6 * at_once);   // which it goes half as fast in
  CHECK(more(0, 60) < 0.9 * at_once);
  CHECK(more(0, 400) < 0.2 * at_once);
}

TEST_CASE("time: what was written before goes when others come, first of all") {
  CHECK(h200().displaced_by(0) == 0);
  for (const double megabytes : {0.5, 1., 2., 8., 64.}) {
    CAPTURE(megabytes);
    CHECK(h200().displaced_by(2e6 * megabytes) > h200().displaced_by(1e6 * megabytes));
    CHECK(h200().displaced_by(2e6 * megabytes) < 2 * h200().displaced_by(1e6 * megabytes) + 1);
  }
  CHECK(h200().displaced_by(1e12) == h200().displaced.points.back().second);
}

TEST_CASE("time: a bounds check around a load is a predicate, and loads do not wait for each other's uses") {
  const auto kernel = [](int count, bool is_checked) {
    std::string body = "shl.b32 r4, r0, 2;\ncvt.u64.u32 d1, r4;\nadd.u64 d1, d0, d1;\nmov.f32 f0, 0f00000000;\n";
    for (int i = 0; i < count; ++i) {
      if (is_checked) body += fmt::format("setp.gt.u32 p, r0, 512;\n@p bra L{};\n", i);
      body += fmt::format("ld.global.f32 f1, [d1];\nfma.rn.f32 f0, f1, f1, f0;\n");
      if (is_checked) body += fmt::format("L{}:\n", i);
    }
    return body + "st.shared.f32 [r3], f0;\n";
  };
  const double latency = h200().l2_latency;
  CHECK(cycles(kernel(24, true)) < cycles(kernel(24, false)) + latency);
  CHECK(cycles(kernel(24, true)) < cycles(kernel(8, true)) + latency);
}

TEST_CASE("time: loads behind predicates are under way as far as there are predicate registers") {
  const auto kernel = [](int count, bool is_checked) {
    std::string body = "cvt.u64.u32 d1, r2;\nadd.u64 d1, d0, d1;\nmov.f32 f0, 0f00000000;\n";
    for (int i = 0; i < count; ++i) {
      if (is_checked) body += fmt::format("setp.gt.u32 p, r0, 512;\n@p bra L{};\n", i);
      body += fmt::format("ld.global.cg.f32 f1, [d1];\nfma.rn.f32 f0, f1, f1, f0;\n");
      if (is_checked) body += fmt::format("L{}:\n", i);
    }
    return body + "st.shared.f32 [r3], f0;\n";
  };
  // With values everything is read from the memory.
  const double turns = (cycles(kernel(30, true)) - cycles(kernel(6, true))) / h200().hbm_latency;
  CHECK(turns == doctest::Approx(24.0 / 6).epsilon(0.1));
  CHECK(cycles(kernel(30, false)) < cycles(kernel(6, false)) + h200().hbm_latency);
}

TEST_CASE("time: a second load of a line takes the L1's latency, one past the L1 that of the memory") {
  const auto chain = [](const char* load) {
    return each(fmt::format("{} r5, [d1];\nand.b32 r5, r5, 0;\ncvt.u64.u32 d2, r5;\nadd.u64 d1, d1, d2;\n", load), 32,
                "cvt.u64.u32 d1, r2;\nadd.u64 d1, d0, d1;\n");
  };
  const double past = chain("ld.global.cg.u32"), through = chain("ld.global.u32");
  CHECK(past - through == doctest::Approx(h200().hbm_latency - h200().l1_latency).epsilon(0.05));
  CHECK(chain("ld.volatile.global.u32") == doctest::Approx(past).epsilon(0.02));
}

TEST_CASE("time: plain stores take the L1's time by lines, and more where 32 bytes are written in part") {
  const auto stores = [](int lines) {
    const std::string address = fmt::format(
        "and.b32 r4, r0, 31;\ndiv.u32 r5, r4, {0};\nrem.u32 r6, r4, {0};\nshl.b32 r5, r5, 7;\nshl.b32 r6, r6, 2;\n"
        "add.u32 r5, r5, r6;\ncvt.u64.u32 d1, r5;\nadd.u64 d1, d0, d1;\nmov.u32 r7, 0;\n",
        32 / lines);
    return each("st.global.u32 [d1], r7;\n", 256, address) / 8;
  };
  CHECK(stores(4) == doctest::Approx(4 * h200().l1_store_line).epsilon(0.05));
  CHECK(stores(8) == doctest::Approx(8 * h200().l1_store_part).epsilon(0.05));
}

TEST_CASE("time: what lanes store leaves a multiprocessor by a way of its own, a quarter of a line a cycle") {
  // 16 bytes a lane, side by side: four lines of an access.
  const std::string address = "shl.b32 r5, r0, 4;\ncvt.u64.u32 d1, r5;\nadd.u64 d1, d0, d1;\nmov.u32 r7, 0;\n";
  const double taken = each("st.global.v4.u32 [d1], {r7, r7, r7, r7};\n", 256, address);
  CHECK(taken == doctest::Approx(256 * 16 / h200().l2_stored_bytes_per_clock).epsilon(0.05));
  CHECK(taken > 2 * 8 * 4 * h200().l1_store_line);
}

TEST_CASE("time: copies between the shared memories of a cluster have the rate of that way") {
  const auto kernel = [](int count) {
    return fmt::format(
        "mov.u32 r6, bar;\nsetp.eq.u32 q, r0, 0;\n@q mbarrier.init.shared.b64 [r6], 1;\nst.shared.u32 [r3], r0;\n"
        "bar.sync 0;\nfence.proxy.async.shared::cta;\nadd.u32 r4, r1, 16384;\n"
        "@q mbarrier.arrive.expect_tx.shared.b64 _, [r6], {};\n{}"
        "WAIT: mbarrier.try_wait.parity.shared.b64 p, [r6], 0;\n@!p bra WAIT;\n",
        count * 4096,
        repeated("@q cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [r4], [r1], 4096, [r6];\n",
                 count));
  };
  CHECK((cycles(kernel(24), 1024) - cycles(kernel(8), 1024)) / 16 ==
        doctest::Approx(4096 / h200().cluster_bytes_per_clock).epsilon(0.02));
}

TEST_CASE("time: loads of another CTA's shared memory take the way between multiprocessors, of the own none") {
  const auto cycles_of = [](int count, const std::string& rank) {
    DeviceOptions options;
    options.time = find_gpu_time("h200");
    options.num_sms = sms_of(*options.time);
    EmulatedDevice device(options);
    const std::string text = entry("mov.u32 r5, %cluster_ctarank;\n" + rank +
                                   "shl.b32 r4, r0, 4;\nadd.u32 r3, r1, r4;\nmapa.shared::cluster.u32 r4, r3, r5;\n"
                                   "mov.f32 f0, 0f00000000;\nst.shared.v4.f32 [r3], {f0, f0, f0, f0};\n"
                                   "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n" +
                                   repeated("ld.shared::cluster.v4.f32 {f1, f2, f3, f4}, [r4];\n", count) +
                                   "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n");
    std::vector<std::uint32_t> values(1024);
    const auto findings = tessera::testing::run_test_entry(device, text, values, 128, 2, 2);
    for (const auto& finding : findings) CAPTURE(finding.message);
    REQUIRE(findings.empty());
    return device.take_times().at(0).cycles;
  };
  const auto each = [&](const std::string& rank) { return (cycles_of(200, rank) - cycles_of(140, rank)) / 60; };
  CHECK(each("xor.b32 r5, r5, 1;\n") == doctest::Approx(128 * 16 / h200().cluster_bytes_per_clock).epsilon(0.03));
  CHECK(each("") == doctest::Approx(128 * 16 / h200().smem_bytes_per_clock).epsilon(0.03));
}

TEST_CASE("time: a bulk store by all lanes of a warp is one, where they store the same bytes") {
  const auto kernel = [](int count, const std::string& who) {
    return "setp.lt.u32 q, r0, " + who + ";\nst.shared.u32 [r3], r0;\nbar.sync 0;\nfence.proxy.async.shared::cta;\n" +
           repeated("@q cp.async.bulk.global.shared::cta.bulk_group [d0], [r1], 2048;\n", count) +
           "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n";
  };
  const auto each = [&](const std::string& who) {
    return (cycles(kernel(40, who), 512) - cycles(kernel(8, who), 512)) / 32;
  };
  CHECK(each("1") == doctest::Approx(2048 / h200().tma_store_bytes_per_clock).epsilon(0.05));
  CHECK(each("32") == doctest::Approx(each("1")).epsilon(0.02));
  CHECK(each("64") == doctest::Approx(2 * each("1")).epsilon(0.05));
}

TEST_CASE("time: a copy for both CTAs of a cluster takes the port of both multiprocessors") {
  const auto cycles_of = [](int count, const std::string& multicast) {
    DeviceOptions options;
    options.time = find_gpu_time("h200");
    options.num_sms = sms_of(*options.time);
    EmulatedDevice device(options);
    const std::string copy = fmt::format(
        "@q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes{} [r1], [d0], 4096, [r6]{};\n",
        multicast.empty() ? "" : ".multicast::cluster", multicast);
    const std::string text =
        entry(fmt::format("mov.u32 r6, bar;\n.reg .b16 h0;\nmov.u16 h0, 3;\nsetp.eq.u32 q, r0, 0;\n"
                          "@q mbarrier.init.shared.b64 [r6], 1;\n@q fence.mbarrier_init.release.cluster;\n"
                          "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"
                          "@q mbarrier.arrive.expect_tx.shared.b64 _, [r6], {};\n{}"
                          "WAIT: mbarrier.try_wait.parity.shared.b64 p, [r6], 0;\n@!p bra WAIT;\n"
                          "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n",
                          count * 4096 * (multicast.empty() ? 1 : 2), repeated(copy, count)));
    std::vector<std::uint32_t> values(1024);
    const auto findings = tessera::testing::run_test_entry(device, text, values, 32, 2, 2);
    for (const auto& finding : findings) CAPTURE(finding.message);
    REQUIRE(findings.empty());
    return device.take_times().at(0).cycles;
  };
  const auto each = [&](const std::string& multicast) {
    return (cycles_of(100, multicast) - cycles_of(60, multicast)) / 40;
  };
  CHECK(each("") < 0.8 * each(", h0"));  // no faster than they are issued
  CHECK(each(", h0") == doctest::Approx(2 * 4096 / h200().multicast_bytes_per_clock).epsilon(0.03));
}

TEST_CASE("time: the L2 gives more of what many multiprocessors copy at the same time") {
  const auto each = [](bool is_same) {
    const auto cycles_of = [&](int count) {
      DeviceOptions options;
      options.time = find_gpu_time("h200");
      options.num_sms = sms_of(*options.time);
      options.skips_values = true;
      EmulatedDevice device(options);
      const std::string text = entry(fmt::format(
          "mov.u32 r6, bar;\nmov.u32 r7, %ctaid.x;\nmul.lo.u32 r7, r7, {};\ncvt.u64.u32 d1, r7;\nadd.u64 d0, d0, d1;\n"
          "setp.eq.u32 q, r0, 0;\n@q mbarrier.init.shared.b64 [r6], 1;\nbar.sync 0;\n"
          "@q mbarrier.arrive.expect_tx.shared.b64 _, [r6], {};\n{}"
          "WAIT: mbarrier.try_wait.parity.shared.b64 p, [r6], 0;\n@!p bra WAIT;\n",
          is_same ? 0 : 16384, count * 16384,
          repeated("@q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r1], [d0], 16384, [r6];\n",
                   count)));
      std::vector<std::uint32_t> values(132 * 4096);
      const auto findings = tessera::testing::run_test_entry(device, text, values, 32, 132);
      for (const auto& finding : findings) CAPTURE(finding.message);
      REQUIRE(findings.empty());
      return device.take_times().at(0).cycles;
    };
    return (cycles_of(62) - cycles_of(38)) / 24;
  };
  const IntervalTable& table = h200().l2_by_sharers;
  CHECK(each(false) == doctest::Approx(16384 / table.at(1)).epsilon(0.05));
  CHECK(each(true) == doctest::Approx(16384 / std::min(h200().port_bytes_per_clock, table.at(132))).epsilon(0.05));
}

// Boxes of rows of a matrix in the buffer, whose map stands behind it.
std::string boxes(int words, int pitch, int rows, int count) {
  std::string text = "mov.u32 r6, bar;\nmov.u32 r7, 0;\nadd.u64 d3, d0, 3968;\nadd.u32 r8, r1, 16384;\n";
  for (int i = 0; i < 128; i += 16) text += fmt::format("st.shared.v4.b32 [smem+{}], {{r7, r7, r7, r7}};\n", 16384 + i);
  const auto replace = [&](const char* field, const char* type, const std::string& value) {
    text += fmt::format("tensormap.replace.tile.{}.shared::cta.b1024.{} [smem+16384], {};\n", field, type, value);
  };
  replace("global_address", "b64", "d0");
  replace("rank", "b32", "1");
  replace("box_dim", "b32", fmt::format("0, {}", words));
  replace("box_dim", "b32", fmt::format("1, {}", rows));
  replace("global_dim", "b32", fmt::format("0, {}", words));
  replace("global_dim", "b32", fmt::format("1, {}", rows));
  replace("global_stride", "b64", fmt::format("0, {}", pitch));
  for (const char* field : {"0, 1", "1, 1"}) replace("element_stride", "b32", field);
  replace("elemtype", "b32", "2");
  for (const char* field : {"interleave_layout", "swizzle_mode", "fill_mode"}) replace(field, "b32", "0");
  return text +
         fmt::format(
             "setp.eq.u32 q, r0, 0;\n@q mbarrier.init.shared.b64 [r6], 1;\nbar.sync 0;\n"
             "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [d3], [r8], 128;\n"
             "fence.proxy.tensormap::generic.acquire.gpu [d3], 128;\n"
             "@q mbarrier.arrive.expect_tx.shared.b64 _, [r6], {};\n{}"
             "WAIT: mbarrier.try_wait.parity.shared.b64 p, [r6], 0;\n@!p bra WAIT;\n",
             count * rows * words * 4,
             repeated("@q cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [r1], "
                      "[d3, {r7, r7}], [r6];\n",
                      count));
}

TEST_CASE("time: the copy engine takes a line of a row a cycle, and longer for rows that begin between sectors") {
  const auto of_each = [](int words, int pitch, int rows) {
    return (cycles(boxes(words, pitch, rows, 96)) - cycles(boxes(words, pitch, rows, 32))) / 64;
  };
  const double line = h200().tma_row;
  REQUIRE(line > 0);
  CHECK(of_each(4, 32, 96) == doctest::Approx(96 * line).epsilon(0.03));
  CHECK(of_each(4, 16, 96) == doctest::Approx(96 * line).epsilon(0.03));  // half a sector each
  CHECK(of_each(8, 32, 112) == doctest::Approx(112 * line).epsilon(0.03));
  CHECK(of_each(24, 32, 96) == doctest::Approx(96 * 1.5 * line).epsilon(0.03));  // each second lies in two lines
  CHECK(of_each(16, 80, 48) ==  // 11 lines of eight rows, four of which begin between sectors
        doctest::Approx(48 * (11.0 / 8 * line + h200().tma_split_row.at(64) / 2)).epsilon(0.03));
}

}  // namespace tessera::emulator::time_test
