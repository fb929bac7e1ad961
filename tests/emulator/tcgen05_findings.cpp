// Mistakes with Tensor Memory and tcgen05, and the finding that each raises; the repaired kernel is clean.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "tessera/emulator/device.h"

namespace tessera::emulator::tcgen05_findings_test {
namespace {

constexpr Schedule kSchedules[] = {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial};

/// One warp group: allocate, body, free. `ta`: the address; `tq`: with the warp's quarter; `pe`: one thread; `bar`: an
/// mbarrier for one arrival; `sa`: 16 KB of shared memory, all zero and fenced; `da`, `di`: a K-major descriptor of it
/// and kind::f16 with M = 128, N = 32.
struct Kernel {
  std::string body;
  std::string allocate = "@pw tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [bar+8], 64;";
  std::string release = "@pw tcgen05.dealloc.cta_group::1.sync.aligned.b32 ta, 64;";
  std::uint32_t cluster = 1;

  std::string ptx() const {
    std::string text =
        ".version 9.0\n.target sm_100a\n.address_size 64\n.visible .entry test()\n{\n.reg .pred p, pw, pe, q;\n"
        ".reg .b32 r<16>, ta, tq, sa, bar, di, w, l;\n.reg .b64 da, db;\n.shared .align 1024 .b8 smem[16384];\n"
        ".shared .align 16 .b8 other[16];\n"
        "mov.u32 w, %tid.x;\nand.b32 l, w, 31;\nshr.u32 w, w, 5;\nsetp.eq.u32 pw, w, 0;\nsetp.eq.u32 pe, l, 0;\n"
        "and.pred pe, pe, pw;\nmov.u32 sa, smem;\nmov.u32 bar, other;\n"
        "mov.u32 r0, %tid.x;\nshl.b32 r0, r0, 7;\nadd.u32 r0, r0, sa;\nmov.b32 r1, 0;\n";
    for (int i = 0; i < 8; ++i) text += fmt::format("st.shared.v4.b32 [r0+{}], {{r1, r1, r1, r1}};\n", 16 * i);
    text += "fence.proxy.async.shared::cta;\n@pe mbarrier.init.shared::cta.b64 [bar], 1;\n" + allocate;
    text += "\nbar.sync 0;\nld.shared.b32 ta, [bar+8];\nshl.b32 tq, w, 21;\nadd.u32 tq, tq, ta;\n";
    // Start 0x400, LBO 128, SBO 256, no swizzle, version 1.
    text += fmt::format("mov.b64 da, 0x{:x};\nmov.b32 di, {};\n", 0x40u | 8ull << 16 | 16ull << 32 | 1ull << 46,
                        1u << 4 | 4u << 17 | 8u << 24);
    return text + body + "\nbar.sync 0;\n" + release + "\nret;\n}\n";
  }
};

std::vector<EmulatorFinding> run(const Kernel& kernel, Schedule schedule = Schedule::lazy, bool detects_races = false,
                                 std::uint64_t seed = 1) {
  DeviceOptions options;
  options.detects_races = detects_races;
  options.arch = "sm_100a";
  options.schedule = schedule;
  options.seed = seed;
  options.max_warp_instructions = 200000;
  EmulatedDevice device(options);
  const auto image = device.load_ptx(kernel.ptx(), "test.ptx");
  LaunchRequest request;
  request.entry = image->entry("test");
  request.grid = request.cluster = {kernel.cluster, 1, 1};
  request.block = {128, 1, 1};
  device.launch(request, {});
  return device.take_findings();
}

/// The names of all findings, in order of appearance.
std::string names(const Kernel& kernel, Schedule schedule = Schedule::lazy, bool detects_races = false,
                  std::uint64_t seed = 1) {
  std::string text;
  for (const EmulatorFinding& finding : run(kernel, schedule, detects_races, seed))
    text += (text.empty() ? "" : " ") + finding.name;
  return text;
}

const std::string kStore = "tcgen05.st.sync.aligned.32x32b.x1.b32 [tq], {r1};\n";
const std::string kWaitStore = "tcgen05.wait::st.sync.aligned;\n";
const std::string kLoad = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {r2}, [tq];\n";
const std::string kMma = "setp.ne.u32 p, 0, 0;\n@pe tcgen05.mma.cta_group::1.kind::f16 [ta], da, da, di, p;\n";
const std::string kCommit = "@pe tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];\n";
const std::string kWait = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0;\n@!q bra WAIT;\n";
const std::string kAfter = "tcgen05.fence::after_thread_sync;\n";

TEST_CASE("a product, its commit, the wait, the fence, the load") {
  for (const Schedule schedule : kSchedules) {
    CHECK(names({kStore + kWaitStore + kLoad}, schedule).empty());
    CHECK(names({kMma + kCommit + kWait + kAfter + kLoad}, schedule).empty());
  }
}

TEST_CASE("a copy is not ordered behind earlier products") {
  const auto copy = [](int column) {
    return fmt::format("@pe add.u32 r4, ta, {};\n@pe tcgen05.cp.cta_group::1.128x256b [r4], da;\n", column);
  };
  const std::string last =
      "@pe tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];\n"
      "LAST: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 1;\n@!q bra LAST;\n";
  for (const Schedule schedule : kSchedules) {
    // The product uses columns 0 to 31.
    CHECK(names({kMma + copy(24) + kCommit + kWait}, schedule, true) == "tcgen05-copy-unordered");
    CHECK(names({kMma + copy(32) + kCommit + kWait}, schedule, true) == "");
    CHECK(names({copy(0) + kMma + kCommit + kWait}, schedule, true) == "");
    CHECK(names({kMma + kCommit + kWait + kAfter + "bar.sync 0;\n" + copy(24) + last}, schedule, true) == "");
    // Without the race detector where the product is still under way.
    const std::string found = names({kMma + copy(24) + kCommit + kWait}, schedule, false);
    CHECK((found == "tcgen05-copy-unordered" || (found.empty() && schedule != Schedule::lazy)));
    CHECK(names({kMma + copy(32) + kCommit + kWait}, schedule, false) == "");
  }
}

TEST_CASE("a copy overtakes an earlier product that it is not ordered behind") {
  // The copy's source has other values than the product's sums; whoever is the later one is in column 24.
  const std::string source =
      "shl.b32 r5, w, 10;\nmad.lo.u32 r5, l, 32, r5;\nadd.u32 r5, r5, sa;\nmov.b32 r6, 7;\n"
      "st.shared.v4.b32 [r5+8192], {r6, r6, r6, r6};\nst.shared.v4.b32 [r5+8208], {r6, r6, r6, r6};\n"
      "fence.proxy.async.shared::cta;\nbar.sync 0;\nadd.u64 db, da, 512;\nadd.u32 r4, ta, 24;\n";
  const std::string copy = "@pe tcgen05.cp.cta_group::1.128x256b [r4], db;\n";
  const std::string look =
      "add.u32 r7, tq, 24;\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {r2}, [r7];\ntcgen05.wait::ld.sync.aligned;\n"
      "setp.ne.u32 q, r2, 7;\n@q trap;\n";
  const std::string unordered = source + kMma + copy + kCommit + kWait + kAfter + look;
  const std::string ordered = source + kMma + kCommit + kWait + kAfter + "bar.sync 0;\n" + copy +
                              "@pe tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];\n"
                              "LAST: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 1;\n@!q bra LAST;\n" +
                              kAfter + look;
  int overtaken = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const std::string found = names({unordered}, Schedule::adversarial, true, seed);
    if (found == "tcgen05-copy-unordered trap") ++overtaken;
    CHECK(found.rfind("tcgen05-copy-unordered", 0) == 0);
    CHECK(names({ordered}, Schedule::adversarial, true, seed) == "");
    CHECK(names({unordered}, Schedule::adversarial, false, seed).find("trap") == std::string::npos);
  }
  CHECK(overtaken > 0);
  CHECK(overtaken < 12);
  for (const Schedule schedule : {Schedule::fair, Schedule::eager, Schedule::lazy})
    CHECK(names({unordered}, schedule).find("trap") == std::string::npos);
}

TEST_CASE("a copy over the place that alloc wrote its address to") {
  // As Triton lays memory out: the address is loaded by all, and the place is a tile's from then on.
  const std::string move = "bar.sync 0;\nld.shared.b32 r2, [sa+1024];\n@pe st.shared.b32 [bar+8], r2;\n";
  const std::string copy =
      "bar.sync 0;\n@pe mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;\n"
      "@pe cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [sa+1024], [sa], 16, [bar];\n";
  Kernel kernel{copy + kWait};
  kernel.allocate = "bar.sync 0;\n@pw tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [sa+1024], 64;\n" + move;
  for (const Schedule schedule : kSchedules) CHECK(names(kernel, schedule, true) == "");
  kernel.body = "@pe st.shared.b32 [sa+1028], r1;\n" + copy + kWait;
  CHECK(names(kernel) == "missing-proxy-fence");
}

TEST_CASE("allocation") {
  const std::string alloc = "@pw tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [bar+8], ";
  CHECK(names({"", alloc + "48;"}) == "tmem-columns");
  CHECK(names({"", alloc + "16;"}) == "tmem-columns");
  CHECK(names({"", alloc + "64;", ""}) == "tmem-not-freed");
  const auto wrong = run({"", alloc + "64;", "@pw tcgen05.dealloc.cta_group::1.sync.aligned.b32 ta, 32;"});
  REQUIRE(wrong.size() == 1);
  CHECK(wrong[0].name == "tmem-free");
  CHECK(wrong[0].message == "32 columns at 0x0: the allocation there has 64");
  CHECK(names({"", alloc + "64;", "@pw tcgen05.dealloc.cta_group::1.sync.aligned.b32 bar, 64;"}) == "tmem-free");
  CHECK(names({"@pw tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n" + alloc + "32;"}) == "tmem-permit");
  // 512 columns are gone: the second alloc waits for ever.
  CHECK(names({alloc + "64;", alloc + "512;"}) == "deadlock");
  CHECK(names({"@pe tcgen05.dealloc.cta_group::1.sync.aligned.b32 ta, 64;"}) == "collective-divergence");
  CHECK(names({kMma + "bar.sync 0;"}) == "tmem-free-in-flight");
}

TEST_CASE("the address that alloc has written") {
  for (const Schedule schedule : kSchedules) {
    Kernel kernel;
    kernel.allocate += "\n@pw ld.shared.b32 r3, [bar+8];";  // by the lanes that executed the alloc
    CHECK(names(kernel, schedule, true).empty());
    kernel.allocate += "\n@!pw ld.shared.b32 r3, [bar+8];";  // by other warps, and no barrier between
    CHECK(names(kernel, schedule, true).find("smem-race") != std::string::npos);
  }
}

TEST_CASE("Tensor Memory is freed behind the cluster barrier") {
  const std::string load = kLoad + "tcgen05.wait::ld.sync.aligned;\n";
  const std::string arrive = "barrier.cluster.arrive.relaxed.aligned;\n";
  const std::string wait = "barrier.cluster.wait.acquire.aligned;\n";
  const std::string leave = "@!pw ret;\n";  // warp 0 alone goes on, past the barrier of the CTA
  for (const Schedule schedule : kSchedules) {
    const std::string store = kStore + kWaitStore;
    CHECK(names({store + load + leave}, schedule, true) == "tmem-free-unordered");
    CHECK(names({store + load + arrive + wait + leave}, schedule, true).empty());
    CHECK(names({store + load + leave + arrive + wait}, schedule, true).empty());  // who ends counts as having arrived
    CHECK(names({store + arrive + load + wait + leave}, schedule, true) == "tmem-free-unordered");
    CHECK(names({store + arrive + wait + load + leave}, schedule, true) == "tmem-free-unordered");
  }
}

TEST_CASE("a pair of CTAs allocates together") {
  Kernel pair{"barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;",
              "@pw tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [bar+8], 64;",
              "@pw tcgen05.dealloc.cta_group::2.sync.aligned.b32 ta, 64;", 2};
  for (const Schedule schedule : kSchedules) CHECK(names(pair, schedule).empty());
  pair.cluster = 1;
  CHECK(names(pair) == "tcgen05-no-peer");
  pair.cluster = 2;
  pair.allocate =
      "mov.u32 r3, %cluster_ctarank;\nsetp.eq.u32 p, r3, 0;\nand.pred p, p, pw;\n@p "
      "tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [bar+8], 64;";
  const auto stuck = run(pair);  // after the hazard that the other CTA reads an address that nobody stored
  REQUIRE(!stuck.empty());
  CHECK(stuck.back().name == "deadlock");
  CHECK(stuck.back().message.find("waits for the other CTA of its pair") != std::string::npos);
  CHECK(names({"@pw tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;"}) == "tcgen05-mixed-cta-group");
}

TEST_CASE("addresses") {
  CHECK(names({"add.u32 tq, ta, l;\n" + kStore}) == "tmem-address-not-uniform");
  CHECK(names({"add.u32 tq, ta, 0x200000;\n" + kStore}) == "tmem-lane-quadrant");
  // Without the warp's lanes in it the address means them all the same, as kernels by others rely on.
  CHECK(names({"mov.b32 tq, ta;\n" + kStore + kWaitStore + kLoad}) == "tmem-lane-bits tmem-lane-bits");
  CHECK(names({"add.u32 tq, tq, 64;\n" + kStore}) == "tmem-out-of-bounds");
  CHECK(names({"add.u32 tq, tq, 63;\n" + kStore + kWaitStore}).empty());
  CHECK(names({kLoad}) == "tmem-uninitialised");
  // 7 bits of the lane count.
  CHECK(names({"add.u32 tq, tq, 0x800000;\n" + kStore + kWaitStore + kLoad}).empty());
}

TEST_CASE("registers of a load that was not waited for") {
  const std::string use = "add.u32 r3, r2, 1;\n";
  CHECK(names({kStore + kWaitStore + kLoad + use}) == "missing-tcgen05-wait");
  // A copy is no use: compilers put them before the wait. What is done with the copy is one.
  const std::string copy = "mov.b32 r4, r2;\n";
  CHECK(names({kStore + kWaitStore + kLoad + copy + "tcgen05.wait::ld.sync.aligned;\nadd.u32 r3, r4, 1;\n"}).empty());
  CHECK(names({kStore + kWaitStore + kLoad + copy + "add.u32 r3, r4, 1;\n"}) == "missing-tcgen05-wait");
  CHECK(names({kStore + kWaitStore + kLoad + "add.u32 r3, r1, 1;\ntcgen05.wait::ld.sync.aligned;\n" + use}).empty());
}

TEST_CASE("waits and fences") {
  // The store, which nobody waits for, is reported where it is read, and where its columns are freed.
  CHECK(names({kStore + kLoad}) == "missing-tcgen05-wait missing-tcgen05-wait");
  CHECK(names({kStore}) == "missing-tcgen05-wait");
  CHECK(names({kMma + "bar.sync 0;\n" + kLoad}) == "tmem-read-in-flight");
  CHECK(names({kMma + "bar.sync 0;\n" + kStore}) == "tmem-write-in-flight");
  CHECK(names({kMma + kCommit + kWait + kLoad}) == "missing-tcgen05-fence");
  // D = A B + D over what the warps stored.
  const std::string add =
      "setp.eq.u32 p, 0, 0;\n@pe tcgen05.mma.cta_group::1.kind::f16 [ta], da, da, di, p;\n" + kCommit + kWait;
  std::string stores;
  for (int i = 0; i < 32; ++i) stores += fmt::format("tcgen05.st.sync.aligned.32x32b.x1.b32 [tq+{}], {{r1}};\n", i);
  const std::string before = "tcgen05.fence::before_thread_sync;\n";
  CHECK(names({stores + kWaitStore + before + "bar.sync 0;\n" + kAfter + add}).empty());
  // A fence that the storing warps execute later takes nothing back.
  CHECK(names({stores + kWaitStore + before + "bar.sync 0;\n" + kAfter + before + "bar.sync 0;\n" + add}).empty());
  CHECK(names({stores + kWaitStore + "bar.sync 0;\n" + kAfter + add}) == "missing-tcgen05-fence");
  CHECK(names({stores + kWaitStore + before + "bar.sync 0;\n" + add}) == "missing-tcgen05-fence");
  CHECK(names({stores + before + "bar.sync 0;\n" + kAfter + add}) == "missing-tcgen05-wait missing-tcgen05-wait");
  // A commit by another thread than the products' tracks nothing.
  const std::string other =
      "setp.eq.u32 q, l, 1;\nand.pred q, q, pw;\n@q "
      "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];\n";
  CHECK(names({kMma + "bar.sync 0;\n" + other + kWait + kAfter + kLoad}) == "tcgen05-commit-tracks-nothing");
  // Without a space the address is generic; the low word of either names the barrier.
  const std::string generic = "@pe tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [db];\n";
  const std::string widened = "cvt.u64.u32 db, bar;\n";
  CHECK(names({kMma + widened + generic + kWait + kAfter + kLoad}) == "shared-address-as-generic");
  CHECK(names({kMma + widened + "cvta.shared.u64 db, db;\n" + generic + kWait + kAfter + kLoad}) == "");
}

TEST_CASE("descriptors") {
  const auto with = [](std::uint32_t bits) {
    return Kernel{fmt::format("mov.b32 di, {};\n", bits) + kMma + kCommit + kWait};
  };
  const std::uint32_t good = 1u << 4 | 4u << 17 | 8u << 24;
  CHECK(names(with(good)).empty());
  CHECK(names(with(good | 1u << 23)) == "instruction-descriptor");  // reserved
  CHECK(names(with(good | 5u << 7)) == "instruction-descriptor");   // a type of another kind
  CHECK(names(with((good & ~(3u << 4)) | 2u << 4)) == "instruction-descriptor");
  CHECK(names(with(good | 4u)) == "instruction-descriptor");                         // sparse
  CHECK(names(with((good & ~(31u << 24)) | 6u << 24)) == "instruction-descriptor");  // M = 96
  CHECK(names(with(good & ~(63u << 17))) == "instruction-descriptor");               // N = 0
  CHECK(names(with((good & ~(63u << 17)) | 3u << 17)) == "instruction-descriptor-n");
  const auto memory = [](std::uint64_t bits) {
    return Kernel{fmt::format("mov.b64 da, 0x{:x};\n", bits) + kMma + kCommit + kWait};
  };
  const std::uint64_t matrix = 0x40u | 8ull << 16 | 16ull << 32 | 1ull << 46;
  CHECK(names(memory(matrix)).empty());
  CHECK(names(memory(matrix & ~(7ull << 46))) == "descriptor-version");
  CHECK(names(memory(matrix | 3ull << 61)) == "descriptor-layout");
  CHECK(names(memory(matrix | 1ull << 55)) == "descriptor-reserved-bits");
  CHECK(names(memory(matrix | 1ull << 52)) == "not-supported");
  const std::string in_bytes = names(memory(0x40u | 128ull << 16 | 256ull << 32 | 1ull << 46));  // not in units of 16
  CHECK(in_bytes.find("smem-out-of-bounds") != std::string::npos);
  CHECK(names({"setp.ne.u32 p, 0, 0;\n@pw tcgen05.mma.cta_group::1.kind::f16 [ta], da, da, di, p;\n" + kCommit +
               kWait}) == "tcgen05-many-lanes");
  CHECK(names({"@pe tcgen05.shift.cta_group::1.down [ta];"}) == "not-supported");
}

}  // namespace
}  // namespace tessera::emulator::tcgen05_findings_test
