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
/// instruction writes q. `before` and `behind` are for all lanes: they make other registers of a and b, and d of them.
std::string kernel_of(const std::string& instruction, const std::string& before = "", const std::string& behind = "") {
  const bool writes_q = instruction.starts_with("setp");
  return fmt::format(R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry test(.param .u64 in, .param .u64 out, .param .u32 mask)
{{
.reg .pred p, q;
.reg .b32 t, a, b, c, d, m;
.reg .b64 from, to, x, y, z;
.reg .b16 h, g, k;
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
cvt.u64.u32 z, d;
cvt.u16.u32 k, d;
{}
@p {};
{}
st.global.u32 [to], d;
ret;
}}
)",
                     kKept, before, instruction, writes_q ? "selp.u32 d, 1, 0, q;" : behind);
}

TEST_CASE("some lanes: an instruction changes its active lanes alone, each as if all were active") {
  std::vector<std::string> instructions{"mov.b32 d, a", "selp.b32 d, a, b, q", "fma.rn.f32 d, a, b, c",
                                        "fma.rn.ftz.f32 d, a, b, c", "mad.lo.s32 d, a, b, c"};
  for (const char* two :
       {"add.f32", "sub.f32",    "mul.f32",    "add.ftz.f32", "mul.ftz.f32", "min.f32",   "max.f32", "max.ftz.f32",
        "add.u32", "sub.s32",    "mul.lo.u32", "and.b32",     "or.b32",      "xor.b32",   "shl.b32", "shr.u32",
        "shr.s32", "div.rn.f32", "min.s32",    "max.u32",     "mul.hi.u32",  "mul.hi.s32"})
    instructions.push_back(fmt::format("{} d, a, b", two));
  for (const char* compare :
       {"setp.lt.f32", "setp.ge.f32", "setp.neu.f32", "setp.num.f32", "setp.gt.s32", "setp.ls.u32"})
    instructions.push_back(fmt::format("{} q, a, b", compare));
  for (const char* one : {"neg.f32", "abs.f32", "sqrt.rn.f32", "rcp.rn.f32", "abs.s32", "neg.s32", "cvt.rzi.s32.f32",
                          "cvt.rzi.u32.f32", "cvt.rn.f32.s32", "cvt.rn.f32.u32"})
    instructions.push_back(fmt::format("{} d, a", one));
  for (const char* access : {"ld.global.u8 d, [from+5]", "ld.global.s8 d, [from+2]", "brev.b32 d, a",
                             "ld.global.u32 d, [from]", "ld.global.nc.u32 d, [from+8]", "ld.param.u32 d, [in+4]",
                             "atom.global.or.b32 d, [from], 0", "atom.global.max.u32 d, [from+4], 0"})
    instructions.push_back(access);
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
  struct Case {
    std::string instruction, before{}, behind{};
  };
  std::vector<Case> cases;
  for (const std::string& instruction : instructions) cases.push_back({instruction});
  // Of 64 and 16 bits: sources of both words, the result folded.
  const std::string wide = "mov.b64 x, {a, b};\nmov.b64 y, {b, c};";
  const std::string fold = "mov.b64 {a, b}, z;\nmad.lo.u32 d, a, 31, b;";
  for (const char* two :
       {"add.f64", "sub.f64", "mul.f64", "div.rn.f64", "min.f64", "max.f64", "add.u64", "mul.lo.s64", "and.b64"})
    cases.push_back({fmt::format("{} z, x, y", two), wide, fold});
  for (const char* one : {"neg.f64", "abs.f64", "sqrt.rn.f64", "mov.b64", "cvta.global.u64"})
    cases.push_back({fmt::format("{} z, x", one), wide, fold});
  cases.push_back({"fma.rn.f64 z, x, y, x", wide, fold});
  cases.push_back({"mad.lo.s64 z, x, y, x", wide, fold});
  cases.push_back({"selp.b64 z, x, y, q", wide, fold});
  cases.push_back({"shl.b64 z, x, c", wide, fold});
  cases.push_back({"shr.u64 z, x, c", wide, fold});
  cases.push_back({"mov.b64 z, {a, c}", wide, fold});
  for (const char* from_word : {"cvt.f64.f32", "cvt.rn.f64.s32", "cvt.rn.f64.u32", "cvt.u64.u32", "cvt.s64.s32"})
    cases.push_back({fmt::format("{} z, a", from_word), wide, fold});
  cases.push_back({"cvt.rn.f32.f64 d, x", wide, ""});
  cases.push_back({"cvt.u32.u64 d, x", wide, ""});
  for (const char* compare : {"setp.lt.f64", "setp.gt.s64", "setp.ne.u64"})
    cases.push_back({fmt::format("{} q, x, y", compare), wide, ""});
  const std::string halves = "mov.b32 {h, g}, a;", widen = "cvt.u32.u16 d, k;";
  for (const char* instruction : {"add.u16 k, h, g", "mul.lo.u16 k, h, g", "mov.b16 k, h", "cvt.rn.f16.f32 k, a",
                                  "cvt.rn.bf16.f32 k, a", "cvt.u16.u32 k, a"})
    cases.push_back({instruction, halves, widen});
  for (const char* instruction :
       {"cvt.f32.f16 d, h", "cvt.f32.bf16 d, h", "mul.wide.u16 d, h, g", "mul.wide.s16 d, h, g", "mov.b32 d, {h, g}"})
    cases.push_back({instruction, halves, ""});
  for (const auto& [instruction, before, behind] : cases) {
    CAPTURE(instruction);
    const auto image = device.load_ptx(kernel_of(instruction, before, behind), "test.ptx");
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
    const std::uint32_t kept = instruction.starts_with("setp") ? 1
                               : behind == fold                ? kKept * 31  // z is d, its upper word 0
                               : behind == widen               ? kKept & 0xFFFF
                                                               : kKept;
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
