// Functions that are not expanded where they are called: recursion, calls by address, alloca; the heap of malloc; and
// modules of which some kernels cannot be launched.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>

#include "tessera/emulator/device.h"
#include "tessera/error.h"
#include "tests/support/test_entry.h"

namespace tessera::emulator::functions_test {
namespace {

constexpr Schedule kSchedules[] = {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial};

/// Functions and variables, then the body of an entry whose parameter is a buffer of one u32 a thread, d0 its place.
std::string module(const std::string& functions, const std::string& body) {
  return fmt::format(
      ".version 9.0\n.target sm_90a\n.address_size 64\n{}\n.visible .entry test(.param .u64 buffer)\n{{\n"
      ".reg .pred p, q;\n.reg .b32 r<16>;\n.reg .b64 d<16>;\nld.param.u64 d0, [buffer];\nmov.u32 r0, %tid.x;\n"
      "mul.wide.u32 d1, r0, 4;\nadd.s64 d0, d0, d1;\n{}\nst.global.b32 [d0], r9;\nret;\n}}\n",
      functions, body);
}

struct Result {
  std::vector<std::uint32_t> values;
  std::vector<EmulatorFinding> findings;
};

Result run(const std::string& ptx, Schedule schedule = Schedule::fair, std::uint32_t threads = 64) {
  DeviceOptions options;
  options.schedule = schedule;
  EmulatedDevice device(options);
  Result result;
  result.values.assign(threads, 0xDEADBEEF);
  result.findings = tessera::testing::run_test_entry(device, ptx, result.values, threads);
  return result;
}

void check_all(const std::string& ptx, const std::function<std::uint32_t(std::uint32_t)>& expected) {
  for (const Schedule schedule : kSchedules) {
    const Result result = run(ptx, schedule);
    CHECK(result.findings.empty());
    for (const EmulatorFinding& finding : result.findings) MESSAGE(finding.to_string());
    for (std::uint32_t i = 0; i < result.values.size(); ++i) CHECK(result.values[i] == expected(i));
  }
}

std::string find_only(const Result& result) {
  return result.findings.size() == 1 ? result.findings[0].name + ": " + result.findings[0].message : "";
}

// fib(n) = n < 2 ? n : fib(n - 1) + fib(n - 2): n and the first sum live across calls of itself.
constexpr const char* kFib = R"(
.func (.param .b32 out) fib(.param .b32 n);
.func (.param .b32 out) fib(.param .b32 n)
{
.reg .pred p;
.reg .b32 a<6>;
ld.param.b32 a1, [n];
setp.lt.u32 p, a1, 2;
@p st.param.b32 [out], a1;
@p ret;
sub.u32 a2, a1, 1;
{
.param .b32 p0;
st.param.b32 [p0], a2;
.param .b32 q0;
call.uni (q0), fib, (p0);
ld.param.b32 a3, [q0];
}
sub.u32 a2, a1, 2;
{
.param .b32 p0;
st.param.b32 [p0], a2;
.param .b32 q0;
call.uni (q0), fib, (p0);
ld.param.b32 a4, [q0];
}
add.u32 a3, a3, a4;
st.param.b32 [out], a3;
ret;
}
)";

constexpr const char* kCallFib =
    "{\n.param .b32 p0;\nst.param.b32 [p0], r1;\n.param .b32 q0;\ncall (q0), fib, (p0);\nld.param.b32 r9, [q0];\n}\n";

TEST_CASE("recursion: every lane to a depth of its own") {
  std::vector<std::uint32_t> fib{0, 1};
  for (std::size_t i = 2; i < 16; ++i) fib.push_back(fib[i - 1] + fib[i - 2]);
  check_all(module(kFib, "rem.u32 r1, r0, 11;\n" + std::string(kCallFib)),
            [&](std::uint32_t i) { return fib[i % 11]; });
  // Some lanes do not call; the barrier behind it sees all.
  check_all(module(kFib, "mov.b32 r9, 77;\nand.b32 r1, r0, 7;\nsetp.gt.u32 p, r1, 4;\n@p bra OVER;\n" +
                             std::string(kCallFib) + "OVER: bar.sync 0;\n"),
            [&](std::uint32_t i) { return (i & 7) > 4 ? 77 : fib[i & 7]; });
}

TEST_CASE("recursion that does not end") {
  const std::string down =
      ".func down(.param .b32 n)\n{\n.reg .b32 a;\nld.param.b32 a, [n];\n{\n.param .b32 p0;\nst.param.b32 [p0], a;\n"
      "call down, (p0);\n}\nret;\n}\n";
  const Result result = run(module(down, "{\n.param .b32 p0;\nst.param.b32 [p0], r0;\ncall down, (p0);\n}"));
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].name == "stack-overflow");
  CHECK(result.findings[0].message == "1365 calls deep, 65516 of 65536 bytes of stack are used");
}

// Frames lie apart: each level writes its own array, and sums it up after the deeper ones wrote theirs.
TEST_CASE("local variables of a recursive function") {
  const std::string levels = R"(
.func (.param .b32 out) level(.param .b32 n, .param .b64 above)
{
.local .align 8 .b8 mine[16];
.reg .pred p;
.reg .b32 a<8>;
.reg .b64 d<6>;
ld.param.b32 a1, [n];
ld.param.b64 d1, [above];
mov.u64 d2, mine;
cvta.local.u64 d3, d2;
mul.lo.u32 a2, a1, 10;
st.local.b32 [d2+4], a2;
st.local.b32 [mine+8], a1;
setp.eq.u32 p, a1, 0;
@p bra LAST;
sub.u32 a3, a1, 1;
{
.param .b32 p0;
st.param.b32 [p0], a3;
.param .b64 p1;
st.param.b64 [p1], d3;
.param .b32 q0;
call (q0), level, (p0, p1);
ld.param.b32 a4, [q0];
}
bra.uni ADD;
LAST: mov.b32 a4, 0;
ADD: ld.local.b32 a5, [mine+4];
ld.local.b32 a6, [d2+8];
add.u32 a4, a4, a5;
ld.b32 a7, [d1+4];
add.u32 a4, a4, a7;
add.u32 a4, a4, a6;
st.param.b32 [out], a4;
ret;
}
)";
  const std::string body = R"(
.local .align 8 .b8 top[16];
mov.u64 d2, top;
cvta.local.u64 d3, d2;
st.local.b32 [top+4], 1000;
and.b32 r1, r0, 3;
{
.param .b32 p0;
st.param.b32 [p0], r1;
.param .b64 p1;
st.param.b64 [p1], d3;
.param .b32 q0;
call (q0), level, (p0, p1);
ld.param.b32 r9, [q0];
}
)";
  check_all(module(levels, body), [](std::uint32_t i) {
    std::uint32_t sum = 1000;
    for (std::uint32_t n = 0; n <= (i & 3); ++n) sum += 11 * n;
    for (std::uint32_t n = 1; n <= (i & 3); ++n) sum += 10 * n;
    return sum;
  });
}

constexpr const char* kOperations = R"(
.func (.param .b32 out) plus(.param .b32 x)
{
.reg .b32 a<3>;
ld.param.b32 a1, [x];
add.u32 a1, a1, 100;
st.param.b32 [out], a1;
ret;
}
.func (.param .b32 out) times(.param .b32 x)
{
.reg .b32 a<3>;
ld.param.b32 a1, [x];
mul.lo.u32 a1, a1, 3;
st.param.b32 [out], a1;
ret;
}
.func two(.param .b32 x, .param .b32 y)
{
ret;
}
.global .align 8 .u64 table[4] = {plus, times, two, 0};
)";

std::string call_table(int mask) {
  return fmt::format(
      "mov.u64 d2, table;\nand.b32 r1, r0, {};\nmul.wide.u32 d3, r1, 8;\nadd.u64 d2, d2, d3;\nld.global.u64 d4, [d2];\n"
      "{{\n.param .b32 p0;\nst.param.b32 [p0], r0;\n.param .b32 q0;\n"
      "proto: .callprototype (.param .b32 _) _ (.param .b32 _);\ncall (q0), d4, (p0), proto;\n"
      "ld.param.b32 r9, [q0];\n}}\n",
      mask);
}

TEST_CASE("calls by address: the lanes of a warp call different functions") {
  check_all(module(kOperations, call_table(1)), [](std::uint32_t i) { return i % 2 != 0 ? 3 * i : i + 100; });
  check_all(module(kOperations,
                   "mov.u64 d4, times;\n{\n.param .b32 p0;\nst.param.b32 [p0], r0;\n.param .b32 q0;\n"
                   "targets: .calltargets plus, times;\ncall (q0), d4, (p0), targets;\nld.param.b32 r9, [q0];\n}\n"),
            [](std::uint32_t i) { return 3 * i; });
  const Result wrong = run(module(kOperations, call_table(2)));
  CHECK(find_only(wrong) == "call-target: 'two' has 2 parameters and 0 results; the call gives 1 and takes 1");
  const Result null = run(module(kOperations, "add.u32 r0, r0, 3;\n" + call_table(3)));
  CHECK(find_only(null) == "call-target: the address is no function's of this module");
}

TEST_CASE("alloca") {
  // In a function that is called in a loop: what it took is given back each time.
  const std::string sum = R"(
.func (.param .b32 out) sum(.param .b32 n)
{
.reg .pred p;
.reg .b32 a<6>;
.reg .b64 d<6>;
ld.param.b32 a1, [n];
mul.wide.u32 d1, a1, 4;
alloca.u64 d2, d1, 16;
cvta.local.u64 d3, d2;
mov.b32 a2, 0;
mov.b64 d4, d3;
FILL: st.b32 [d4], a2;
add.u64 d4, d4, 4;
add.u32 a2, a2, 1;
setp.lt.u32 p, a2, a1;
@p bra FILL;
mov.b32 a3, 0;
BACK: sub.u64 d4, d4, 4;
ld.b32 a4, [d4];
mad.lo.u32 a3, a3, 3, a4;
sub.u32 a2, a2, 1;
setp.gt.u32 p, a2, 0;
@p bra BACK;
st.param.b32 [out], a3;
ret;
}
)";
  const std::string body =
      "mov.b32 r2, 0;\nmov.b32 r9, 0;\nAGAIN: rem.u32 r1, r0, 5;\nadd.u32 r1, r1, {};\n{{\n.param .b32 p0;\n"
      "st.param.b32 [p0], r1;\n.param .b32 q0;\ncall (q0), sum, (p0);\nld.param.b32 r3, [q0];\n}}\nadd.u32 r9, r9, "
      "r3;\n"
      "add.u32 r2, r2, 1;\nsetp.lt.u32 p, r2, 100;\n@p bra AGAIN;\n";
  check_all(module(sum, fmt::format(fmt::runtime(body), 300)), [](std::uint32_t i) {
    std::uint32_t value = 0;
    for (std::uint32_t n = i % 5 + 300; n-- > 0;) value = 3 * value + n;
    return 100 * value;
  });
  const Result large = run(module(sum, fmt::format(fmt::runtime(body), 100000)));
  CHECK(find_only(large).find("stack-overflow: alloca of 400000 bytes; ") == 0);
  // In the kernel itself, between stacksave and stackrestore.
  check_all(module("",
                   "mov.b32 r2, 0;\nAGAIN: stacksave.u64 d5;\nalloca.u64 d2, 4096;\nst.local.b32 [d2+4092], r0;\n"
                   "ld.local.b32 r9, [d2+4092];\nstackrestore.u64 d5;\nadd.u32 r2, r2, 1;\nsetp.lt.u32 p, r2, 100;\n"
                   "@p bra AGAIN;\n"),
            [](std::uint32_t i) { return i; });
}

TEST_CASE("local memory that nobody has written: moving it on is no use of it") {
  const auto name_of = [](const std::string& uses) {
    return find_only(
        run(module("", ".local .align 8 .b8 box[64];\nmov.b32 r9, 0;\nld.local.b32 r1, [box+8];\n" + uses)));
  };
  const auto is_reported = [&](const std::string& uses) {
    return name_of(uses) == "local-uninitialised: read of 4 bytes that nobody has written";
  };
  CHECK(name_of("").empty());
  CHECK(name_of("mov.b32 r2, r1;\nst.local.b32 [box+16], r2;\nadd.u32 r2, r9, 1;").empty());
  // A bit field: some bits are replaced, the others go back.
  CHECK(name_of("and.b32 r2, r1, -256;\nor.b32 r3, r2, r0;\nst.local.b32 [box+8], r3;").empty());
  CHECK(is_reported("or.b32 r2, r1, 4;\nst.local.b32 [box+8], r2;"));
  CHECK(is_reported("add.u32 r2, r1, 1;\nst.local.b32 [box+8], r2;"));
  CHECK(is_reported("mov.b32 r2, r1;\nmov.b32 r3, r2;\nsetp.eq.u32 p, r3, 0;"));
  CHECK(is_reported("mov.b32 r9, r1;"));  // the kernel's output
  // A selp takes it or not, lane by lane; what it takes counts when it is used.
  CHECK(name_of("setp.lt.u32 p, r0, 1000;\nselp.b32 r2, r0, r1, p;\nadd.u32 r9, r2, 1;").empty());
  CHECK(name_of("setp.ge.u32 p, r0, 1000;\nselp.b32 r2, r1, r0, p;\nmov.b32 r3, r2;\nadd.u32 r9, r3, 1;").empty());
  CHECK(is_reported("setp.lt.u32 p, r0, 1000;\nselp.b32 r2, r1, r0, p;\nadd.u32 r9, r2, 1;"));
  CHECK(is_reported("setp.eq.u32 p, r0, 5;\nselp.b32 r2, r1, r0, p;\nadd.u32 r9, r2, 1;"));
  CHECK(is_reported("setp.eq.u32 p, r0, 5;\nselp.b32 r2, r1, r0, p;\nselp.b32 r3, r2, 7, p;\nmul.lo.u32 r9, r3, r3;"));
  CHECK(name_of("setp.eq.u32 p, r0, 5;\nselp.b32 r2, r1, r0, p;\nselp.b32 r3, 7, r2, p;\nmul.lo.u32 r9, r3, r3;")
            .empty());
  // Taken, and overwritten before it is used.
  CHECK(name_of("setp.lt.u32 p, r0, 1000;\nselp.b32 r2, r1, r0, p;\nmov.b32 r3, 1;\nselp.b32 r2, 2, r3, p;\n"
                "add.u32 r9, r2, 1;")
            .empty());
  CHECK(is_reported("mov.b32 r9, r1;\nmul.lo.u32 r9, r9, r9;"));
}

constexpr const char* kHeap =
    ".extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func free(.param .b64 p);\n";
constexpr const char* kMalloc =
    "{\n.param .b64 p0;\nst.param.b64 [p0], d2;\n.param .b64 q0;\ncall.uni (q0), malloc, (p0);\nld.param.b64 d3, "
    "[q0];\n}\n";
constexpr const char* kFree = "{\n.param .b64 p0;\nst.param.b64 [p0], d3;\ncall.uni free, (p0);\n}\n";

TEST_CASE("malloc and free") {
  const std::string ask = "mul.wide.u32 d2, r0, 4;\nadd.u64 d2, d2, 8;\n" + std::string(kMalloc);
  const auto with = [&](const std::string& rest) { return run(module(kHeap, ask + rest)); };
  check_all(module(kHeap, ask + "st.b32 [d3+4], r0;\nld.b32 r9, [d3+4];\n" + kFree), [](std::uint32_t i) { return i; });
  CHECK(find_only(with("ld.b32 r9, [d3];\n" + std::string(kFree))).find("global-uninitialised: ") == 0);
  CHECK(find_only(with("st.b32 [d3+8], r0;\nld.b32 r9, [d3];\n"))
            .find("global-out-of-bounds: write of 4 bytes: 0 bytes past the end of an allocation of 8 bytes") == 0);
  CHECK(find_only(with("st.b32 [d3+4], r0;\n" + std::string(kFree) + "ld.b32 r9, [d3+4];\n")) ==
        "global-out-of-bounds: read of 4 bytes: byte 4 of an allocation of 8 bytes that was freed");
  CHECK(find_only(with(std::string(kFree) + kFree)) ==
        "heap-free: free of what malloc did not give: byte 0 of an allocation of 8 bytes that was freed");
  // More than the heap has: a null pointer, as on a GPU. 64 threads ask for 256 KiB each, 32 get it.
  const Result full = run(
      module(kHeap, "mov.b64 d2, 262144;\n" + std::string(kMalloc) + "setp.ne.u64 p, d3, 0;\nselp.b32 r9, 1, 0, p;\n"));
  CHECK(full.findings.empty());
  CHECK(std::count(full.values.begin(), full.values.end(), 1) == 32);
}

TEST_CASE("kernels beside others that the emulator cannot launch") {
  const std::string others = R"(
.extern .global .align 4 .u32 elsewhere;
.global .texref picture;
.visible .entry unknown(.param .u64 buffer)
{
.reg .b32 r<4>;
frobnicate.b32 r1, r2;
mov.b32 r1, nothing;
ret;
}
.visible .entry unread(.param .u64 buffer)
{
.reg .b32 r<4>;
frobnicate.b32 <r1>, r2;
.hovering 7;
ret;
}
.visible .entry outside(.param .u64 buffer)
{
.reg .b32 r<4>;
ld.global.u32 r1, [elsewhere];
ret;
}
)";
  EmulatedDevice device;
  const auto image = device.load_ptx(module(others, "mov.b32 r9, r0;"), "test.ptx");
  CHECK_NOTHROW(image->entry("test"));
  const auto problem = [&](const char* name) {
    try {
      image->entry(name);
    } catch (const Error& error) {
      std::string text = error.kind() == ErrorKind::compile ? "" : "wrong kind: ";
      text += std::string(error.what()) + "\n";
      for (const std::string& note : error.notes()) text += note + "\n";
      return text;
    }
    return std::string();
  };
  CHECK(problem("unknown").find("test.ptx:10:1: 'frobnicate.b32' is not an instruction that the emulator knows") == 0);
  CHECK(problem("unknown").find("test.ptx:11:13: 'nothing' is not declared") != std::string::npos);
  CHECK(problem("unread").find("test.ptx:17:16: '<' is not an operand") == 0);
  CHECK(problem("unread").find("'.hovering' is not a directive that can stand in a body") != std::string::npos);
  CHECK(problem("outside").find("'elsewhere' is external: one module stands alone here") != std::string::npos);
  // Textures load, and stop the lanes that come to them.
  const Result texture =
      run(module(".global .texref picture;",
                 "setp.gt.u32 p, r0, 1000;\n@p tex.1d.v4.f32.s32 {r1, r2, r3, r4}, [picture, {r0}];\nmov.b32 r9, r0;"));
  CHECK(texture.findings.empty());
  const Result reached =
      run(module(".global .texref picture;", "tex.1d.v4.f32.s32 {r1, r2, r3, r4}, [picture, {r0}];"));
  CHECK(find_only(reached).find("not-supported: 'tex.1d.v4.f32.s32': not supported: texture references") == 0);
  // Nothing that can be launched: said when the module is loaded.
  CHECK_THROWS_AS(device.load_ptx(module("", "frobnicate.b32 r1, r2;"), "test.ptx"), Error);
}

}  // namespace
}  // namespace tessera::emulator::functions_test
