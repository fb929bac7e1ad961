// What the assembler refuses for a target, or because of a number in the text, is refused here too, when its kernel is
// to be launched. The bounds are those that ptxas 13.0 names.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tessera/emulator/device.h"
#include "tessera/error.h"

namespace tessera::emulator::targets_test {
namespace {

/// Why a kernel with this instruction does not load; empty: it does.
std::string problem(const std::string& target, const std::string& instruction) {
  EmulatedDevice device({.arch = target});
  try {
    device.load_ptx(
        fmt::format(".version 9.0\n.target {}\n.address_size 64\n.visible .entry test()\n{{\n.reg .b32 r<9>;\n"
                    ".reg .b64 d<9>;\n.reg .b16 h;\n{}\nret;\n}}\n",
                    target, instruction),
        "test.ptx");
  } catch (const Error& error) {
    const std::string text = error.what();
    const std::string line = text.substr(0, text.find('\n'));
    return line.substr(line.find(": ") + 2);
  }
  return {};
}

TEST_CASE("tensormap.replace: numbers in the text") {
  const auto replace = [](const std::string& target, const std::string& field, const std::string& operands) {
    const std::string opcode =
        fmt::format("tensormap.replace.tile.{}.shared::cta.b1024.{}", field, field == "global_stride" ? "b64" : "b32");
    const std::string found = problem(target, fmt::format("{} [r1], {};", opcode, operands));
    return found.substr(0, opcode.size() + 4) == "'" + opcode + "': " ? found.substr(opcode.size() + 4) : found;
  };
  CHECK(replace("sm_90a", "elemtype", "12").empty());
  CHECK(replace("sm_90a", "elemtype", "13") == "new value = 13: must lie in 0..12");
  CHECK(replace("sm_100a", "elemtype", "15").empty());
  CHECK(replace("sm_100a", "elemtype", "16") == "new value = 16: must lie in 0..15");
  CHECK(replace("sm_90a", "interleave_layout", "3") == "new value = 3: must lie in 0..2");
  CHECK(replace("sm_90a", "swizzle_mode", "4") == "new value = 4: must lie in 0..3");
  CHECK(replace("sm_103a", "swizzle_mode", "4").empty());
  CHECK(replace("sm_90a", "fill_mode", "-1") == "new value = -1: must lie in 0..1");
  CHECK(replace("sm_100a", "swizzle_atomicity", "3").empty());
  CHECK(replace("sm_100a", "swizzle_atomicity", "4") == "new value = 4: must lie in 0..3");
  CHECK(replace("sm_90a", "box_dim", "4, r2").empty());
  CHECK(replace("sm_90a", "box_dim", "5, r2") == "ordinal = 5: must lie in 0..4");
  CHECK(replace("sm_90a", "global_stride", "5, d2") == "ordinal = 5: must lie in 0..4");
  CHECK(replace("sm_90a", "fill_mode", "r2") == "expected a number that is known when it is compiled");
  CHECK(replace("sm_90a", "rank", "r2").empty());
}

TEST_CASE("features of tcgen05's targets") {
  const std::string copy =
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes{} [r1], [d1, {{r2, r3}}], [r4]{};";
  const auto load = [&](const std::string& target, const std::string& words, const std::string& mask = "") {
    return problem(target, fmt::format(fmt::runtime(copy), words, mask));
  };
  CHECK(load("sm_90a", "").empty());
  CHECK(load("sm_100a", ".cta_group::2").empty());
  CHECK(load("sm_90a", ".cta_group::1").find("needs the target sm_100a|") != std::string::npos);
  CHECK(load("sm_120a", ".cta_group::1").find("needs the target sm_100a|") != std::string::npos);
  CHECK(load("sm_90a", ".multicast::cluster", ", h").empty());
  CHECK(load("sm_90a", ".multicast::cluster.cta_group::2", ", h").find("needs the target sm_100a|") !=
        std::string::npos);
  CHECK(problem("sm_90a", "tensormap.replace.tile.swizzle_atomicity.shared::cta.b1024.b32 [r1], 0;")
            .find("needs the target sm_100a|") != std::string::npos);
}

TEST_CASE("special registers of PTX ISA 9.0") {
  for (const char* name : {"aggr_smem_size",
                           "pm0",
                           "pm7",
                           "envreg0",
                           "envreg31",
                           "reserved_smem_offset_begin",
                           "reserved_smem_offset_end",
                           "reserved_smem_offset_cap",
                           "reserved_smem_offset_0",
                           "reserved_smem_offset_1",
                           "tid.w",
                           "ntid.w",
                           "ctaid.w",
                           "nctaid.w",
                           "clusterid.w",
                           "nclusterid.w",
                           "cluster_ctaid.w",
                           "cluster_nctaid.w",
                           "gridid",
                           "nwarpid"}) {
    CAPTURE(name);
    CHECK(problem("sm_90a", fmt::format("mov.u32 r1, %{};", name)).empty());
  }
  for (const char* name : {"pm0_64", "pm7_64", "current_graph_exec", "gridid", "clock64", "globaltimer"}) {
    CAPTURE(name);
    CHECK(problem("sm_90a", fmt::format("mov.u64 d1, %{};", name)).empty());
  }
  CHECK(problem("sm_90a", "mov.u32 r1, %pm8;").find("'%pm8' is not declared") != std::string::npos);
}

TEST_CASE("atomics of f16 and bf16") {
  for (const char* const word : {"atom.global.add.noftz.f16x2 r1, [d1], r2;", "red.global.add.noftz.f16x2 [d1], r2;",
                                 "atom.global.add.noftz.f16 h, [d1], h;", "red.shared.add.noftz.f16 [r1], h;"})
    CHECK_MESSAGE(problem("sm_75", word).empty(), word);
  for (const char* const word : {"atom.global.add.noftz.bf16x2 r1, [d1], r2;", "red.global.add.noftz.bf16 [d1], h;"}) {
    CHECK_MESSAGE(problem("sm_80", word).find("needs the target sm_90") != std::string::npos, word);
    CHECK_MESSAGE(problem("sm_90", word).empty(), word);
  }
}

}  // namespace
}  // namespace tessera::emulator::targets_test
