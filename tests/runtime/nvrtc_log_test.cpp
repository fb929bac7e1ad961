// Against logs as NVRTC 13.0 printed them.
#include "runtime/nvrtc_log.h"

#include <doctest/doctest.h>

namespace tessera {
namespace {

constexpr std::string_view kGoodLog =
    R"(/tessera/t/entry.cu(3): warning #177-D: variable "unused" was declared but never referenced
  extern "C" __global__ void k2(int* p){ unsigned unused; }
                                                  ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.
ptxas warning : Registers are spilled to local memory in function 'k', 8 bytes spill stores, 16 bytes spill loads
ptxas info    : 4 bytes gmem
ptxas info    : Compiling entry function 'k2' for 'sm_90a'
ptxas info    : Function properties for k2
ptxas         .     400 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 400 bytes cumulative stack size
ptxas info    : Compile time = 13.369 ms
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
    24 bytes stack frame, 8 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 168 registers, used 5 barriers, 256 bytes smem
ptxas info    : Compile time = 1.953 ms
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.
)";

constexpr std::string_view kBadLog = R"(fmha/kernel.cuh(3): error: identifier "undefined_thing" is undefined
  return undefined_thing<N>(3);
         ^

/tessera/t/entry.cu(2): catastrophic error: could not open source file "missing.h" (no directories in search list)
  #include "missing.h"
                      ^

 and 1 catastrophic error detected in the compilation of "/tessera/t/entry.cu".
Compilation terminated.
ptxas application ptx input, line 23; error   : Unknown modifier '.bar'
ptxas fatal   : Ptx assembly aborted due to errors
)";

}  // namespace

TEST_CASE("resources of every kernel") {
  const std::vector<EntryReport> entries = parse_entry_reports(kGoodLog);
  REQUIRE(entries.size() == 2);
  CHECK(entries[0].name == "k2");
  CHECK(entries[0].registers == 32);
  CHECK(entries[0].stack_bytes == 400);
  CHECK(entries[0].spill_store_bytes == 0);
  CHECK(entries[0].barriers == 0);
  CHECK(entries[1].name == "k");
  CHECK(entries[1].registers == 168);
  CHECK(entries[1].stack_bytes == 24);
  CHECK(entries[1].spill_store_bytes == 8);
  CHECK(entries[1].spill_load_bytes == 16);
  CHECK(entries[1].static_smem_bytes == 256);
  CHECK(entries[1].barriers == 5);
}

TEST_CASE("notes: warnings and performance notes, each once, nothing else") {
  const std::vector<std::string> notes = parse_notes(kGoodLog);
  REQUIRE(notes.size() == 3);
  CHECK(notes[0] == "/tessera/t/entry.cu(3): warning #177-D: variable \"unused\" was declared but never referenced");
  CHECK(notes[1] ==
        "(C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.");
  CHECK(notes[2] ==
        "Registers are spilled to local memory in function 'k', 8 bytes spill stores, 16 bytes spill loads");
}

TEST_CASE("errors stand at their place in the template, with its indentation") {
  SourceBundle bundle;
  bundle.program = "/tessera/t/entry.cu";
  bundle.text = "#include \"fmha/kernel.cuh\"\n#include \"missing.h\"\n";
  bundle.headers = {{"fmha/kernel.cuh", "template <int N>\nint g() {\n\t  return undefined_thing<N>(3);\n}\n"}};
  const std::vector<Diagnostic> errors = parse_errors(kBadLog, bundle);
  REQUIRE(errors.size() == 4);
  CHECK(errors[0].to_string() ==
        "fmha/kernel.cuh:3:11: error: identifier \"undefined_thing\" is undefined\n"
        "     return undefined_thing<N>(3);\n"
        "            ^");
  CHECK(errors[1].line == 2);
  CHECK(errors[1].source_line == "#include \"missing.h\"");
  CHECK(errors[2].to_string() == "ptxas application ptx input, line 23; error   : Unknown modifier '.bar'");
  CHECK(errors[3].to_string() == "ptxas fatal   : Ptx assembly aborted due to errors");
}

TEST_CASE("errors in a source that the bundle lacks keep what was printed") {
  const std::vector<Diagnostic> errors = parse_errors(kBadLog, {});
  REQUIRE(errors.size() == 4);
  CHECK(errors[0].source_line == "return undefined_thing<N>(3);");
  CHECK(errors[0].column == 8);
}

TEST_CASE("any text is a log") {
  for (const std::string_view log :
       {std::string_view{}, std::string_view{"\n\n"}, std::string_view{"ptxas"}, std::string_view{"ptxas info"},
        std::string_view{"(): "}, std::string_view{"a(9"}, std::string_view{"Used registers, used barriers"},
        std::string_view{"x(1): error"}}) {
    CHECK(parse_entry_reports(log).empty());
    CHECK(parse_notes(log).empty());
    parse_errors(log, {});
  }
}

}  // namespace tessera
