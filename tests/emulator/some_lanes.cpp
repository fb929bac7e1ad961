// Instructions under a guard that leaves lanes out: the active ones get what they get when all are active, the others
// keep what they have. Handlers may compute all 32 lanes and blend.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <bit>

#include "emulator/random.h"
#include "tessera/emulator/device.h"

namespace tessera::emulator::some_lanes_test {
namespace {

constexpr std::uint32_t kKept = 0x5A5A5A5A;
using Lanes = std::array<std::uint32_t, 32>;

/// What d holds in each lane after `@p instruction` on a, b, c; q is true before, and d becomes 1 or 0 of it if the
/// instruction writes q.
std::string kernel_of(const std::string& instruction) {
  const bool writes_q = instruction.starts_with("setp");
  return fmt::format(R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry test(.param .u64 in, .param .u64 out, .param .u32 mask)
{{
.reg .pred p, q;
.reg .b32 t, a, b, c, d, m;
.reg .b64 from, to;
ld.param.u64 from, [in];
ld.param.u64 to, [out];
ld.param.u32 m, [mask];
mov.u32 t, %tid.x;
mad.wide.u32 from, t, 12, from;
mad.wide.u32 to, t, 4, to;
ld.global.u32 a, [from];
ld.global.u32 b, [from+4];
ld.global.u32 c, [from+8];
shr.u32 m, m, t;
and.b32 m, m, 1;
setp.ne.u32 p, m, 0;
mov.u32 d, {:#x};
setp.eq.u32 q, t, t;
@p {};
{}
st.global.u32 [to], d;
ret;
}}
)",
                     kKept, instruction, writes_q ? "selp.u32 d, 1, 0, q;" : "");
}

TEST_CASE("some lanes: an instruction changes its active lanes alone, each as if all were active") {
  std::vector<std::string> instructions{"mov.b32 d, a", "selp.b32 d, a, b, q", "fma.rn.f32 d, a, b, c",
                                        "fma.rn.ftz.f32 d, a, b, c", "mad.lo.s32 d, a, b, c"};
  for (const char* two :
       {"add.f32", "sub.f32", "mul.f32", "add.ftz.f32", "mul.ftz.f32", "min.f32", "max.f32", "max.ftz.f32", "add.u32",
        "sub.s32", "mul.lo.u32", "and.b32", "or.b32", "xor.b32", "shl.b32", "shr.u32", "shr.s32"})
    instructions.push_back(fmt::format("{} d, a, b", two));
  for (const char* compare :
       {"setp.lt.f32", "setp.ge.f32", "setp.neu.f32", "setp.num.f32", "setp.gt.s32", "setp.ls.u32"})
    instructions.push_back(fmt::format("{} q, a, b", compare));
  Random random(17);
  std::vector<std::uint32_t> in(96);
  for (std::size_t i = 0; i < in.size(); ++i) {
    // Numbers near 1, any bits, small integers, infinity and NaN.
    constexpr std::uint32_t kSpecial[] = {0x7F800000, 0xFF800000, 0x7FC00001, 0, 0x80000000, 1, 0x00800000, 0x3F800000};
    const std::uint64_t bits = random.next();
    const auto low = static_cast<std::uint32_t>(bits);
    in[i] = bits >> 62 == 0   ? low
            : bits >> 62 == 1 ? low % 40
            : bits >> 62 == 2 ? kSpecial[low % 8]
                              : 0x3F000000 | (low & 0x80FFFFFF);
  }
  EmulatedDevice device;
  DevicePointer from = device.allocate(in.size() * 4);
  DevicePointer to = device.allocate(128);
  device.copy_to_device(from, in.data(), in.size() * 4);
  for (const std::string& instruction : instructions) {
    CAPTURE(instruction);
    const auto image = device.load_ptx(kernel_of(instruction), "test.ptx");
    const auto run = [&](std::uint32_t mask) {
      std::vector<void*> arguments{&from, &to, &mask};
      LaunchRequest request;
      request.entry = image->entry("test");
      request.block = {32, 1, 1};
      request.parameters = arguments.data();
      device.launch(request, {});
      for (const EmulatorFinding& finding : device.take_findings()) FAIL_CHECK(finding.message);
      Lanes lanes{};
      device.copy_to_host(lanes.data(), to, sizeof(lanes));
      return lanes;
    };
    const Lanes all = run(0xFFFFFFFF);
    const std::uint32_t kept = instruction.starts_with("setp") ? 1 : kKept;
    for (std::uint32_t mask : {0x00000001u, 0x80000000u, 0x7FFFFFFEu, 0xFFFF0000u, 0xA5C3F00Fu}) {
      const Lanes some = run(mask);
      for (std::size_t lane = 0; lane < 32; ++lane) {
        CAPTURE(lane);
        CHECK(some[lane] == ((mask >> lane & 1) != 0 ? all[lane] : kept));
      }
    }
  }
}

}  // namespace
}  // namespace tessera::emulator::some_lanes_test
