// st.async, red.async, st.bulk, reductions into shared memory, and tensor maps that a kernel makes.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <numeric>

#include "tessera/emulator/device.h"
#include "tessera/error.h"

namespace tessera::emulator::async_store_test {
namespace {

constexpr const char* kWait = "W{0}: mbarrier.try_wait.parity.shared.b64 p, [bar], {0};\n@!p bra W{0};\n";

struct Result {
  std::vector<std::uint32_t> out;
  std::vector<EmulatorFinding> findings;
};

/// One thread in each CTA of one cluster runs the body; d0 is a buffer of 64 input words, d1 one of 64 output words;
/// `smem` has 4096 bytes.
Result run(const std::string& target, const std::string& body, Schedule schedule = Schedule::adversarial,
           std::uint32_t cluster = 1) {
  DeviceOptions options;
  options.arch = target;
  options.schedule = schedule;
  EmulatedDevice device(options);
  const auto image = device.load_ptx(
      fmt::format(
          ".version 9.0\n.target {}\n.address_size 64\n.visible .entry test(.param .u64 in, .param .u64 out)\n{{\n"
          ".reg .pred p, q;\n.reg .b16 h<2>;\n.reg .b32 r<16>;\n.reg .b64 d<8>;\n.shared .align 128 .b8 smem[4096];\n"
          ".shared .align 8 .b64 bar;\nld.param.u64 d0, [in];\nld.param.u64 d1, [out];\n"
          "mbarrier.init.shared.b64 [bar], "
          "1;\nfence.mbarrier_init.release.cluster;\n{}\nret;\n}}\n",
          target, body),
      "test.ptx");
  std::vector<std::uint32_t> in(64);
  std::iota(in.begin(), in.end(), 100u);
  Result result;
  result.out.assign(64, 0);
  DevicePointer d_in = device.allocate(256);
  DevicePointer d_out = device.allocate(256);
  device.copy_to_device(d_in, in.data(), 256);
  device.copy_to_device(d_out, result.out.data(), 256);
  void* parameters[] = {&d_in, &d_out};
  LaunchRequest request;
  request.entry = image->entry("test");
  request.parameters = parameters;
  request.grid = request.cluster = {cluster, 1, 1};
  device.launch(request, {});
  result.findings = device.take_findings();
  device.copy_to_host(result.out.data(), d_out, 256);
  return result;
}

TEST_CASE("st.async and red.async") {
  const Result result = run("sm_90a",
                            fmt::format(R"(
mov.u32 r0, smem;
mov.u32 r1, bar;
st.shared.b32 [smem+64], 40;
st.shared.b64 [smem+72], 1;
mbarrier.arrive.expect_tx.shared.b64 _, [bar], 40;
st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [r0], 7, [r1];
st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [r0+8], {{8, 9}}, [r1];
st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.s32 [r0+16], {{1, 2, 3, 4}}, [r1];
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [r0+64], 2, [r1];
mov.b64 d2, 41;
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u64 [r0+72], d2, [r1];
{}
ld.shared.b32 r2, [smem];
ld.shared.v2.b32 {{r3, r4}}, [smem+8];
ld.shared.v4.b32 {{r5, r6, r7, r8}}, [smem+16];
ld.shared.b32 r9, [smem+64];
ld.shared.b32 r10, [smem+72];
st.global.v4.b32 [d1], {{r2, r3, r4, r5}};
st.global.v4.b32 [d1+16], {{r6, r7, r8, r9}};
st.global.b32 [d1+32], r10;
)",
                                        fmt::format(fmt::runtime(kWait), 0)),
                            Schedule::adversarial, 2);
  for (const EmulatorFinding& finding : result.findings) FAIL_CHECK(finding.to_string());
  const std::vector<std::uint32_t> expected{7, 8, 9, 1, 2, 3, 4, 42, 42};
  CHECK(std::vector<std::uint32_t>(result.out.begin(), result.out.begin() + 9) == expected);
}

TEST_CASE("st.async and red.async ask for a cluster") {
  const std::string store = "mov.u32 r0, smem;\nmov.u32 r1, bar;\n";
  for (const char* const operation :
       {"st.async.shared::cluster.mbarrier::complete_tx::bytes.b32",
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32"}) {
    const Result result = run("sm_90a", fmt::format("{}{} [r0], 7, [r1];", store, operation));
    REQUIRE(!result.findings.empty());  // the launch goes on
    CHECK(result.findings[0].name == "async-store-no-cluster");
    CHECK(!result.findings[0].is_failure);
    CHECK(result.findings[0].message == fmt::format("{} in a launch with clusters of one CTA", operation));
  }
}

TEST_CASE("a bulk reduction into shared memory") {
  const Result result = run("sm_90a", fmt::format(R"(
mov.u32 r0, smem;
mov.u32 r1, bar;
st.shared.v4.b32 [smem], {{1, 2, 3, 4}};
st.shared.v4.b32 [smem+128], {{10, 20, 30, 40}};
fence.proxy.async;
mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16;
cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [r0+128], [r0], 16, [r1];
{}
ld.shared.v4.b32 {{r2, r3, r4, r5}}, [smem+128];
st.global.v4.b32 [d1], {{r2, r3, r4, r5}};
)",
                                                  fmt::format(fmt::runtime(kWait), 0)));
  for (const EmulatorFinding& finding : result.findings) FAIL_CHECK(finding.to_string());
  CHECK(std::vector<std::uint32_t>(result.out.begin(), result.out.begin() + 4) ==
        std::vector<std::uint32_t>{11, 22, 33, 44});
}

TEST_CASE("a copy onto an mbarrier needs a fence after its initialisation where it is another CTA's") {
  const std::string init = "mov.u32 r0, smem;\nadd.u32 r1, r0, 2048;\nmbarrier.init.shared.b64 [r1], 1;\n";
  // As cuda::memcpy_async has it, with a cuda::barrier of the block.
  const std::string own = init + R"(
bar.sync 0;
mbarrier.arrive.expect_tx.shared.b64 _, [r1], 64;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r0], [d0], 64, [r1];
W0: mbarrier.try_wait.parity.shared.b64 p, [r1], 0;
@!p bra W0;
ld.shared.b32 r2, [r0+60];
st.global.b32 [d1], r2;
)";
  const auto to_peer = [&](const std::string& arrive) {
    return init + "mbarrier.arrive.expect_tx.shared.b64 _, [r1], 64;\n" + arrive + R"(
barrier.cluster.wait;
mov.u32 r2, %cluster_ctarank;
xor.b32 r3, r2, 1;
mapa.shared::cluster.u32 r4, r0, r3;
mapa.shared::cluster.u32 r5, r1, r3;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r4], [d0], 64, [r5];
W0: mbarrier.try_wait.parity.shared.b64 p, [r1], 0;
@!p bra W0;
ld.shared.b32 r2, [r0+60];
st.global.b32 [d1], r2;
barrier.cluster.arrive;
barrier.cluster.wait;
)";
  };
  // The first CTA copies for both.
  const auto to_all = [&](const std::string& arrive) {
    return init + "mbarrier.arrive.expect_tx.shared.b64 _, [r1], 64;\n" + arrive + R"(
barrier.cluster.wait;
mov.u32 r2, %cluster_ctarank;
setp.ne.u32 p, r2, 0;
mov.b16 h0, 3;
@p bra W0;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [r0], [d0], 64, [r1], h0;
W0: mbarrier.try_wait.parity.shared.b64 p, [r1], 0;
@!p bra W0;
ld.shared.b32 r2, [r0+60];
st.global.b32 [d1], r2;
barrier.cluster.arrive;
barrier.cluster.wait;
)";
  };
  for (const Schedule schedule : {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial}) {
    const std::string fence = "fence.mbarrier_init.release.cluster;\n", relaxed = "barrier.cluster.arrive.relaxed;";
    CHECK(run("sm_90a", to_all(fence + relaxed), schedule, 2).findings.empty());
    for (const std::string& arrive : {relaxed, "fence.acq_rel.cta;\n" + relaxed}) {
      const Result result = run("sm_90a", to_all(arrive), schedule, 2);
      REQUIRE(result.findings.size() == 1);
      CHECK(result.findings[0].name == "missing-mbarrier-init-fence");
      CHECK(result.out[0] == 115);
    }
    for (const std::uint32_t cluster : {1u, 2u}) {
      const Result result = run("sm_90a", own, schedule, cluster);
      CHECK(result.findings.empty());
      CHECK(result.out[0] == 115);
    }
    const Result unfenced = run("sm_90a", to_peer("barrier.cluster.arrive.relaxed;"), schedule, 2);
    REQUIRE(unfenced.findings.size() == 1);
    CHECK(unfenced.findings[0].name == "missing-mbarrier-init-fence");
    CHECK_FALSE(unfenced.findings[0].is_failure);
    CHECK(unfenced.out[0] == 115);
    for (const char* arrive : {"fence.mbarrier_init.release.cluster;\nbarrier.cluster.arrive.relaxed;",
                               "barrier.cluster.arrive;", "fence.acq_rel.cluster;\nbarrier.cluster.arrive.relaxed;"})
      CHECK(run("sm_90a", to_peer(arrive), schedule, 2).findings.empty());
  }
}

TEST_CASE("st.bulk and masked bulk stores") {
  const Result result = run("sm_100a", R"(
st.shared.v4.b32 [smem], {1, 2, 3, 4};
mov.u32 r0, smem;
mov.b64 d2, 16;
st.bulk.weak.shared::cta [r0+16], d2, 0;
ld.shared.v4.b32 {r2, r3, r4, r5}, [smem+16];
st.global.v4.b32 [d1+16], {r2, r3, r4, r5};
st.shared.v4.b32 [smem], {0x01020304, 0x05060708, 0x090A0B0C, 0x0D0E0F10};
fence.proxy.async;
st.global.v4.b32 [d1], {-1, -1, -1, -1};
cp.async.bulk.global.shared::cta.bulk_group.cp_mask [d1], [r0], 16, 0x8421;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
)");
  for (const EmulatorFinding& finding : result.findings) FAIL_CHECK(finding.to_string());
  const std::vector<std::uint32_t> expected{0xFFFFFF04, 0xFFFF07FF, 0xFF0AFFFF, 0x0DFFFFFF, 0, 0, 0, 0};
  CHECK(std::vector<std::uint32_t>(result.out.begin(), result.out.begin() + 8) == expected);
  const Result odd = run("sm_100a", "mov.b64 d2, 12;\nmov.u32 r0, smem;\nst.bulk.shared::cta [r0], d2, 0;");
  REQUIRE(odd.findings.size() == 1);
  CHECK(odd.findings[0].message == "12 bytes: must be a multiple of 8");
}

// A map of the input as a matrix of 8 rows of 8 words, from 128 zero bytes; then a box of 4 x 2 words at (4, 3).
std::string make_map(const std::string& box, const std::string& extra) {
  std::string text = "mov.u32 r0, smem;\nmov.u32 r1, bar;\nmov.b32 r2, 0;\n";
  for (int i = 0; i < 128; i += 16) text += fmt::format("st.shared.v4.b32 [smem+{}], {{r2, r2, r2, r2}};\n", 1024 + i);
  const auto replace = [&](const std::string& field, const std::string& type, const std::string& value) {
    text += fmt::format("tensormap.replace.tile.{}.shared::cta.b1024.{} [smem+1024], {};\n", field, type, value);
  };
  replace("global_address", "b64", "d0");
  replace("rank", "b32", "1");
  replace("box_dim", "b32", "0, " + box);
  replace("box_dim", "b32", "1, 2");
  replace("global_dim", "b32", "0, 8");
  replace("global_dim", "b32", "1, 8");
  replace("global_stride", "b64", "0, 32");
  replace("element_stride", "b32", "0, 1");
  replace("element_stride", "b32", "1, 1");
  replace("elemtype", "b32", "2");
  replace("interleave_layout", "b32", "0");
  replace("swizzle_mode", "b32", "0");
  replace("fill_mode", "b32", "0");
  return text + extra;
}

TEST_CASE("a tensor map that the kernel makes") {
  const std::string load = fmt::format(R"(
bar.warp.sync 1;
mbarrier.arrive.expect_tx.shared.b64 _, [bar], 32;
mov.u64 d3, map;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [d3], [smem+1024], 128;
fence.proxy.tensormap::generic.acquire.gpu [d3], 128;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [r0], [d3, {{4, 3}}], [r1];
{}
ld.shared.v4.b32 {{r2, r3, r4, r5}}, [smem];
ld.shared.v4.b32 {{r6, r7, r8, r9}}, [smem+16];
st.global.v4.b32 [d1], {{r2, r3, r4, r5}};
st.global.v4.b32 [d1+16], {{r6, r7, r8, r9}};
)",
                                       fmt::format(fmt::runtime(kWait), 0));
  DeviceOptions options;
  EmulatedDevice device(options);
  const auto module = [&](const std::string& body) {
    return fmt::format(
        ".version 9.0\n.target sm_90a\n.address_size 64\n.global .align 128 .b8 map[128];\n"
        ".visible .entry test(.param .u64 in, .param .u64 out)\n{{\n.reg .pred p;\n.reg .b32 r<16>;\n.reg .b64 d<8>;\n"
        ".shared .align 128 .b8 smem[4096];\n.shared .align 8 .b64 bar;\nld.param.u64 d0, [in];\nld.param.u64 d1, "
        "[out];\nmbarrier.init.shared.b64 [bar], "
        "1;\nfence.mbarrier_init.release.cluster;\n{}\nret;\n}}\n",
        body);
  };
  std::vector<std::uint32_t> in(64);
  std::iota(in.begin(), in.end(), 100u);
  std::vector<std::uint32_t> out(64, 0);
  DevicePointer d_in = device.allocate(256);
  DevicePointer d_out = device.allocate(256);
  device.copy_to_device(d_in, in.data(), 256);
  device.copy_to_device(d_out, out.data(), 256);
  void* parameters[] = {&d_in, &d_out};
  const auto launch = [&](const std::string& body) {
    const auto image = device.load_ptx(module(body), "test.ptx");
    LaunchRequest request;
    request.entry = image->entry("test");
    request.parameters = parameters;
    device.launch(request, {});
    return device.take_findings();
  };
  for (const EmulatorFinding& finding : launch(make_map("4", load))) FAIL_CHECK(finding.to_string());
  device.copy_to_host(out.data(), d_out, 256);
  CHECK(std::vector<std::uint32_t>(out.begin(), out.begin() + 8) ==
        std::vector<std::uint32_t>{128, 129, 130, 131, 136, 137, 138, 139});
  const auto wrong = launch(make_map("300", ""));
  REQUIRE(wrong.size() == 1);
  CHECK(wrong[0].name == "tensor-map-invalid");
  CHECK(wrong[0].message == "box_dim must be 1 to 256 (new value 300)");
}

}  // namespace
}  // namespace tessera::emulator::async_store_test
