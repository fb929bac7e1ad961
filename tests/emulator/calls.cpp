// Calls: functions expanded where they are called, what the runtime provides, jump tables.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tessera/emulator/device.h"
#include "tessera/error.h"
#include "tests/support/test_entry.h"

namespace tessera::emulator::calls_test {
namespace {

constexpr const char* kHead = ".version 9.0\n.target sm_90a\n.address_size 64\n";

/// Functions, then the body of an entry whose parameter is a buffer of one u32 a thread.
std::string module(const std::string& functions, const std::string& body) {
  return fmt::format(
      "{}{}\n.visible .entry test(.param .u64 buffer)\n{{\n.reg .pred p, q;\n.reg .b32 r<16>;\n.reg .b64 d<8>;\n"
      "ld.param.u64 d0, [buffer];\nmov.u32 r0, %tid.x;\nmul.wide.u32 d1, r0, 4;\nadd.s64 d0, d0, d1;\n{}\nret;\n}}\n",
      kHead, functions, body);
}

struct Result {
  std::vector<std::uint32_t> values;
  std::vector<EmulatorFinding> findings;
  std::string printed;
};

Result run(const std::string& functions, const std::string& body) {
  Result result;
  DeviceOptions options;
  options.print = [&result](std::string_view text) { result.printed += text; };
  EmulatedDevice device(options);
  result.values.assign(32, 0);
  result.findings = tessera::testing::run_test_entry(device, module(functions, body), result.values, 32);
  return result;
}

std::string load_problem(const std::string& functions, const std::string& body) {
  EmulatedDevice device;
  try {
    device.load_ptx(module(functions, body), "test.ptx");
  } catch (const Error& error) {
    return error.what() + (error.notes().empty() ? "" : "\n" + error.notes().front());
  }
  return {};
}

// f(x) = x odd ? 3x + 1 : x / 2, with a return in the middle; g(x, y) = f(x) + f(y).
constexpr const char* kFunctions = R"(
.func (.param .b32 out) f(.param .b32 x)
{
.reg .pred p;
.reg .b32 a<4>;
ld.param.b32 a1, [x];
and.b32 a2, a1, 1;
setp.eq.b32 p, a2, 0;
@p bra EVEN;
mad.lo.s32 a3, a1, 3, 1;
st.param.b32 [out], a3;
ret;
EVEN:
shr.u32 a3, a1, 1;
st.param.b32 [out], a3;
ret;
}
.func (.param .b32 out) g(.param .b32 x, .param .b32 y)
{
.reg .b32 a<4>;
ld.param.b32 a1, [x];
ld.param.b32 a2, [y];
{
.param .b32 p0;
st.param.b32 [p0], a1;
.param .b32 r0;
call.uni (r0), f, (p0);
ld.param.b32 a1, [r0];
}
{
.param .b32 p0;
st.param.b32 [p0], a2;
.param .b32 r0;
call.uni (r0), f, (p0);
ld.param.b32 a2, [r0];
}
add.s32 a3, a1, a2;
st.param.b32 [out], a3;
ret;
}
)";

std::string call(const std::string& guard, const std::string& name, int arguments) {
  std::string text = "{\n";
  for (int i = 0; i < arguments; ++i) text += fmt::format(".param .b32 p{0};\nst.param.b32 [p{0}], r{0};\n", i);
  return text +
         fmt::format(".param .b32 q0;\nst.param.b32 [q0], 7;\n{}call (q0), {}, ({});\nld.param.b32 r9, [q0];\n}}\n",
                     guard, name, arguments == 1 ? "p0" : "p0, p1");
}

TEST_CASE("device functions") {
  const auto f = [](std::uint32_t x) { return x % 2 != 0 ? 3 * x + 1 : x / 2; };
  const Result one = run(kFunctions, call("", "f", 1) + "st.global.b32 [d0], r9;");
  const Result two = run(kFunctions, "add.s32 r1, r0, 5;\n" + call("", "g", 2) + "st.global.b32 [d0], r9;");
  const Result some = run(kFunctions, "setp.lt.u32 p, r0, 10;\n" + call("@p ", "f", 1) + "st.global.b32 [d0], r9;");
  for (const Result* result : {&one, &two, &some}) CHECK(result->findings.empty());
  for (std::uint32_t i = 0; i < 32; ++i) {
    CHECK(one.values[i] == f(i));
    CHECK(two.values[i] == f(i) + f(i + 5));
    CHECK(some.values[i] == (i < 10 ? f(i) : 7));
  }
}

TEST_CASE("calls that are refused") {
  CHECK(load_problem(kFunctions, call("", "f", 2)).find("'f' has 1 parameters; the call gives 2") != std::string::npos);
  // What nobody provides stops the lanes that come to it, and only these.
  const Result reached =
      run("", fmt::format(fmt::runtime("setp.gt.u32 p, r0, 3;\n@p bra OVER;\n{}OVER:"), call("", "cudaMystery", 1)));
  REQUIRE(reached.findings.size() == 1);
  CHECK(reached.findings[0].name == "not-supported");
  CHECK(reached.findings[0].message ==
        "call of 'cudaMystery': the function has no body here and the emulator does not provide it");
  CHECK(reached.findings[0].ptx_line == 21);
  const Result over = run("", "setp.lt.u32 p, r0, 32;\n@p bra OVER;\n" + call("", "cudaMystery", 1) +
                                  "OVER: add.s32 r1, r0, 5;\nst.global.b32 [d0], r1;");
  CHECK(over.findings.empty());
  CHECK(over.values[3] == 8);
}

TEST_CASE("parameters in registers, and calls that give registers and numbers") {
  // f(a, b) = a odd ? 3a + b : a / 2, whose argument it overwrites; power(x, n) calls itself; g takes memory.
  const std::string functions = R"(
.func (.reg .u32 r) f (.reg .u32 a, .reg .f32 b)
{
.reg .pred p;
.reg .u32 t;
and.b32 t, a, 1;
setp.eq.u32 p, t, 0;
shr.u32 r, a, 1;
{
.reg .u32 r;
mov.u32 r, 77;
@p ret;
}
cvt.rzi.u32.f32 t, b;
mad.lo.u32 a, a, 3, t;
mov.u32 r, a;
}
.func (.reg .u64 r) power (.reg .u32 x, .reg .u32 n)
{
.reg .pred p;
.reg .u64 t;
mov.u64 r, 1;
setp.eq.u32 p, n, 0;
@p ret;
sub.u32 n, n, 1;
call (r), power, (x, n);
cvt.u64.u32 t, x;
mul.lo.u64 r, r, t;
ret;
}
.func (.param .b32 r) g (.param .b32 a)
{
.reg .b32 t;
ld.param.b32 t, [a];
add.u32 t, t, 5;
st.param.b32 [r], t;
ret;
}
)";
  const auto f = [](std::uint32_t a, std::uint32_t b) { return a % 2 != 0 ? 3 * a + b : a / 2; };
  const Result direct =
      run(functions,
          "mov.u32 r1, 9;\nsetp.lt.u32 p, r0, 20;\nmov.b32 r2, 0f40E00000;\n.reg .f32 x;\nmov.b32 x, r2;\n"
          "@p call (r1), f, (r0, x);\ncall (_), f, (r0, x);\ncall (r3), f, (6, 0f3F800000);\n"
          "call (r4), g, (r1);\nadd.u32 r4, r4, r3;\nmul.lo.u32 r5, r0, 1000;\nadd.u32 r4, r4, r5;\n"
          "st.global.b32 [d0], r4;");
  for (const EmulatorFinding& finding : direct.findings) FAIL_CHECK(finding.to_string());
  const Result recursive = run(functions,
                               "and.b32 r1, r0, 7;\ncall (d2), power, (r1, 5);\ncvt.u32.u64 r2, d2;\n"
                               "st.global.b32 [d0], r2;");
  CHECK(recursive.findings.empty());
  const Result by_address = run(functions,
                                ".param .b32 a, b, r;\nst.param.b32 [a], r0;\nst.param.b32 [b], 0f40000000;\n"
                                "mov.u64 d2, f;\nP: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);\n"
                                "call (r), d2, (a, b), P;\nld.param.b32 r1, [r];\nst.global.b32 [d0], r1;");
  CHECK(by_address.findings.empty());
  for (std::uint32_t i = 0; i < 32; ++i) {
    CHECK(direct.values[i] == (i < 20 ? f(i, 7) : 9) + 5 + 3 + 1000 * i);
    const std::uint32_t x = i % 8;
    CHECK(recursive.values[i] == x * x * x * x * x);
    CHECK(by_address.values[i] == f(i, 2));
  }
  CHECK(load_problem(".func h (.reg .pred q)\n{\nret;\n}\n", "setp.eq.u32 p, r0, 0;\ncall h, (p);")
            .find("'q': a parameter in a register has 32 or 64 bits") != std::string::npos);
  CHECK(load_problem(functions, "call (r1), f, (r0);").find("'f' has 2 parameters; the call gives 1") !=
        std::string::npos);
  CHECK(load_problem(functions, "call (r1), f, (r0, r99);") != "");
}

TEST_CASE("a kernel's address, as dynamic parallelism takes it") {
  const std::string child = ".entry child(.param .u64 p)\n{\nret;\n}\n";
  const std::string body =
      "setp.ge.u32 p, r0, 4;\nmov.u64 d2, child;\nsetp.ne.u64 q, d2, 0;\nselp.b32 r1, 3, 4, q;\n"
      "st.global.b32 [d0], r1;\n";
  const Result taken = run(child, body);
  CHECK(taken.findings.empty());
  CHECK(taken.values[0] == 3);
  const Result called = run(child, body + "P: .callprototype _ ();\ncall d2, P;");
  REQUIRE(called.findings.size() == 1);
  CHECK(called.findings[0].name == "call-target");
  CHECK(called.findings[0].message == "'child' is a kernel, which only a launch starts");
}

constexpr const char* kStrings =
    ".global .align 1 .b8 text[24] = {116, 61, 37, 100, 32, 120, 61, 37, 46, 50, 102, 32, 37, 115, 33, 10, 0};\n"
    ".global .align 1 .b8 word[4] = {97, 98, 99, 0};\n"
    ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
    ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);\n";

TEST_CASE("vprintf") {
  // t=%d x=%.2f %s!\n
  const Result result = run(kStrings, R"(
setp.gt.u32 p, r0, 1;
@p bra DONE;
{
.local .align 8 .b8 arguments[24];
mov.u64 d2, arguments;
cvta.local.u64 d3, d2;
st.local.b32 [d2], r0;
cvt.rn.f64.u32 d4, r0;
st.local.b64 [d2+8], d4;
mov.u64 d5, word;
cvta.global.u64 d5, d5;
st.local.b64 [d2+16], d5;
mov.u64 d6, text;
cvta.global.u64 d6, d6;
.param .b64 p0;
st.param.b64 [p0], d6;
.param .b64 p1;
st.param.b64 [p1], d3;
.param .b32 q0;
call.uni (q0), vprintf, (p0, p1);
ld.param.b32 r9, [q0];
st.global.b32 [d0], r9;
}
DONE:
)");
  CHECK(result.findings.empty());
  CHECK(result.printed == "t=0 x=0.00 abc!\nt=1 x=1.00 abc!\n");
  CHECK(result.values[0] == 3);  // its arguments
}

TEST_CASE("__assertfail") {
  const Result result = run(kStrings, R"(
setp.ne.u32 p, r0, 3;
@p bra DONE;
{
mov.u64 d6, word;
cvta.global.u64 d6, d6;
.param .b64 p0;
st.param.b64 [p0], d6;
.param .b64 p1;
st.param.b64 [p1], d6;
.param .b32 p2;
st.param.b32 [p2], 42;
.param .b64 p3;
st.param.b64 [p3], d6;
.param .b64 p4;
st.param.b64 [p4], 1;
call.uni __assertfail, (p0, p1, p2, p3, p4);
}
DONE:
)");
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].name == "assert");
  CHECK(result.findings[0].lane == 3);
  CHECK(result.findings[0].message == "abc:42: abc: assertion `abc' failed");
}

TEST_CASE("jump tables") {
  const std::string body =
      "T: .branchtargets A, B, C;\nand.b32 r1, r0, {};\nbrx.idx r1, T;\nA: add.s32 r2, r0, 100;\nbra E;\n"
      "B: add.s32 r2, r0, 200;\nbra.uni E;\nC: add.s32 r2, r0, 300;\nE: st.global.b32 [d0], r2;";
  const Result result = run("", fmt::format(fmt::runtime(body), 2));
  CHECK(result.findings.empty());
  for (std::uint32_t i = 0; i < 32; ++i) CHECK(result.values[i] == i + ((i & 2) != 0 ? 300 : 100));
  const Result outside = run("", fmt::format(fmt::runtime(body), 3));
  REQUIRE(outside.findings.size() == 1);
  CHECK(outside.findings[0].name == "branch-index");
  CHECK(outside.findings[0].lane == 3);
}

}  // namespace
TEST_CASE("an entry has the shared variables of the module that it, or what it calls, names") {
  const std::string functions = R"(
.shared .align 128 .b8 of_another_kernel[200000];
.shared .align 4 .u32 mine;
.shared .align 128 .b8 the_functions[128];
.func keep(.param .b32 x)
{
.reg .b32 a<2>;
ld.param.b32 a1, [x];
st.shared.u32 [the_functions+4], a1;
ret;
}
)";
  const Result result = run(functions, R"(
setp.eq.u32 p, r0, 0;
@!p bra WAIT;
st.shared.u32 [mine], 17;
{
.param .b32 given;
st.param.b32 [given], 40;
call keep, (given);
}
WAIT: bar.sync 0;
ld.shared.u32 r1, [mine];
mov.u32 r2, the_functions;
ld.shared.u32 r3, [r2+4];
add.u32 r1, r1, r3;
st.global.u32 [d0], r1;
)");
  CHECK(result.findings.empty());
  CHECK(result.values == std::vector<std::uint32_t>(32, 57));
}

TEST_CASE("a generic address where .shared is named: its low word is taken, and reported") {
  const Result result = run(".shared .align 4 .u32 word;", R"(
mov.u32 r2, word;
cvt.u64.u32 d1, r2;
cvta.shared.u64 d2, d1;
setp.eq.u32 p, r0, 0;
@p st.shared.u32 [d2], 23;
bar.sync 0;
ld.shared.u32 r1, [word];
st.global.u32 [d0], r1;
)");
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].name == "generic-address-as-shared");
  CHECK_FALSE(result.findings[0].is_failure);
  CHECK(result.values == std::vector<std::uint32_t>(32, 23));
  const Result outside = run(".shared .align 4 .u32 word;", "mov.b64 d2, 0x7000000000;\nst.shared.u32 [d2], 23;");
  REQUIRE(outside.findings.size() == 1);
  CHECK(outside.findings[0].name == "smem-out-of-bounds");
}

}  // namespace tessera::emulator::calls_test
