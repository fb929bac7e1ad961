// What outputs that differ between schedules are put down to, and right kernels of the same instructions.
#include "tests/cli/command.h"

using namespace tessera::cli;

namespace {

std::string kernel_of(const std::string& body) {
  return ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry test(.param .u64 box, .param .u64 out)\n{\n"
         ".reg .pred p<4>;\n.reg .b32 r<16>;\n.reg .b64 d<8>;\nld.param.u64 d0, [box];\nld.param.u64 d1, [out];\n"
         "mov.u32 r0, %tid.x;\nmov.u32 r1, %ctaid.x;\nmul.wide.u32 d2, r0, 8;\nadd.u64 d3, d0, d2;\n"
         "mul.wide.u32 d4, r0, 4;\nadd.u64 d5, d1, d4;\n" +
         body + "\nDONE: ret;\n}\n";
}

/// The verdict under all schedules.
Outcome under_all(Terminal& terminal, const std::string& body, const char* seed) {
  const std::string ptx = terminal.write("kernel.ptx", kernel_of(body));
  const std::string launch = terminal.write("launch.json", R"({"launch": {"buffers": {
      "box": {"dtype": "s32", "shape": [64], "role": "in_out"}, "out": {"dtype": "s32", "shape": [32], "role": "output"}},
      "steps": [{"grid": 2, "block": 32, "parameters": [{"kind": "pointer", "source": "box"},
                                                       {"kind": "pointer", "source": "out"}]}]},
      "bindings": {"buffers": {"box": {"fill": 0}, "out": {"fill": 0}}}})");
  return terminal.run({"emulate", ptx, "--launch", launch, "--schedule", "all", "--seed", seed});
}

bool is_told(const Outcome& outcome, const char* name) { return outcome.out.find(name) != std::string::npos; }

}  // namespace

TEST_CASE("emulate: an activemask that is taken for all lanes") {
  Terminal terminal;
  const std::string sum = "redux.sync.add.u32 r3, r0, r2;\nst.global.u32 [d5], r3;";
  for (const char* const seed : {"1", "2", "3"}) {
    CAPTURE(std::string(seed));
    const Outcome wrong = under_all(terminal, "activemask.b32 r2;\n" + sum, seed);
    INFO(wrong.out);
    CHECK(wrong.code == 1);
    CHECK(is_told(wrong, "hazard: activemask-by-schedule in test, PTX line 17 (activemask.b32)"));
    CHECK(under_all(terminal, "mov.u32 r2, -1;\n" + sum, seed).code == 0);
    // One atomic for the lanes that happen to be together: right for any of them.
    const Outcome right =
        under_all(terminal,
                  "activemask.b32 r2;\nbrev.b32 r3, r2;\nbfind.shiftamt.u32 r4, r3;\n"
                  "setp.ne.u32 p0, r0, r4;\n@p0 bra DONE;\npopc.b32 r5, r2;\nred.global.add.u32 [d1], r5;",
                  seed);
    CHECK(right.code == 0);
    CHECK(!is_told(right, "hazard"));
  }
}

TEST_CASE("emulate: a message and its flag in one vector") {
  Terminal terminal;
  const std::string waits = "setp.ne.u32 p0, r4, 1;\n@p0 bra AGAIN;\nst.global.u32 [d5], r3;\nbra DONE;\nSEND: ";
  const std::string begins = "mad.lo.u32 r2, r0, 7, 5;\nmov.u32 r6, 1;\nsetp.eq.u32 p1, r1, 0;\n@p1 bra SEND;\nAGAIN: ";
  for (const char* const seed : {"1", "2", "3"}) {
    CAPTURE(std::string(seed));
    const Outcome torn = under_all(terminal,
                                   begins + "ld.relaxed.gpu.global.v2.b32 {r3, r4}, [d3];\n" + waits +
                                       "st.relaxed.gpu.global.v2.b32 [d3], {r2, r6};",
                                   seed);
    CHECK(torn.code == 1);
    INFO(torn.out);
    CHECK(is_told(torn, "hazard: vector-access-torn in test, PTX line 21 (ld.relaxed.gpu.global.v2.b32)"));
    // 64 bits at once.
    const Outcome whole = under_all(terminal,
                                    begins + "ld.relaxed.gpu.global.b64 d6, [d3];\nmov.b64 {r3, r4}, d6;\n" + waits +
                                        "mov.b64 d6, {r2, r6};\nst.relaxed.gpu.global.b64 [d3], d6;",
                                    seed);
    CHECK(whole.code == 0);
    CHECK(!is_told(whole, "hazard"));
  }
}
