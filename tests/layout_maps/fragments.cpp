// tessera layout fragment, repack: both directions of every map, names that exist and names that do not.
#include <fmt/format.h>

#include <map>
#include <set>

#include "tests/layout_maps/pages.h"
#include "tests/support/sample.h"

using namespace tessera;
using namespace tessera::cli;

namespace {

const std::vector<std::string> kProducts = {
    "mma.m16n8k8.f16",       "mma.m16n8k16.bf16", "mma.m16n8k4.tf32",     "mma.m16n8k8.tf32",  "mma.m8n8k4.f64",
    "mma.m16n8k16.f64",      "mma.m16n8k16.e4m3", "mma.m16n8k32.e5m2",    "mma.m16n8k32.e2m1", "mma.m8n8k16.s8",
    "mma.m16n8k32.u8",       "mma.m8n8k32.s4",    "mma.m16n8k64.u4",      "mma.m8n8k128.b1",   "mma.m16n8k256.b1",
    "mma.m16n8k32.mxf8f6f4", "mma.m16n8k64.mxf4", "mma.m16n8k64.mxf4nvf4"};

}  // namespace

TEST_CASE("layout fragment: the matrix and the registers are one map, every element once") {
  Terminal terminal;
  std::vector<std::vector<std::string>> all;
  for (const std::string& product : kProducts)
    for (const char* operand : {"A", "B", "D"}) all.push_back({"fragment", product, "--operand", operand});
  for (const char* wgmma : {"wgmma.m64n8k16.f16", "wgmma.m64n256k32.e4m3", "wgmma.m64n96k8.tf32", "wgmma.m64n64k32.s8"})
    for (const char* operand : {"A", "D"}) all.push_back({"fragment", wgmma, "--operand", operand});
  for (const char* move :
       {"ldmatrix.m8n8.x1", "ldmatrix.m8n8.x4.trans", "ldmatrix.m16n16.x2.trans", "stmatrix.m8n8.x2",
        "stmatrix.m16n8.x4.trans", "tcgen05.ld.32x32b.x8", "tcgen05.st.16x64b.x4", "tcgen05.ld.16x128b.x8",
        "tcgen05.ld.16x256b.x32", "tcgen05.ld.16x32bx2.x16", "ldmatrix.m8n16.x2.b4x16_p64",
        "tcgen05.ld.sync.aligned.16x64b.x4.pack::16b.b32", "tcgen05.st.sync.aligned.16x128b.x2.unpack::16b.b32",
        "tcgen05.ld.red.sync.aligned.32x32b.x4.max.abs.NaN.f32"})
    all.push_back({"fragment", move});
  testing::Sample sample(3);
  for (const auto& arguments : all) {
    if (!sample.takes()) continue;
    CAPTURE(arguments[1]);
    const Json page = page_of(terminal, arguments);
    REQUIRE(page["grids"].size() == 2);
    std::map<std::pair<int, int>, std::vector<int>> from_matrix, from_registers;
    std::size_t cells = 0;
    for (const auto& row : page["grids"][0]["cells"])
      for (const Json& cell : row)
        from_matrix[{cell["row"], cell["column"]}] = {cell["lane"], cell["register"], cell["first_bit"]};
    for (const auto& row : page["grids"][1]["cells"])
      for (const Json& cell : row) {
        from_registers[{cell["row"], cell["column"]}] = {cell["lane"], cell["register"], cell["first_bit"]};
        ++cells;
      }
    CHECK(from_matrix == from_registers);
    CHECK(cells == from_matrix.size());
  }
}

TEST_CASE("layout fragment: what does not exist is answered with what does") {
  Terminal terminal;
  const auto refusal = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"layout", "fragment"});
    const Outcome outcome = terminal.run(arguments);
    CHECK(outcome.code == 2);
    CHECK(outcome.out.empty());
    return outcome.err;
  };
  CHECK(
      refusal({"mma.m16n8k64.mxf8f6f4"}) ==
      "tessera: mma.m16n8k64.mxf8f6f4: there is no such instruction; mxf8f6f4 goes with m16n8k32; m16n8k64 exists for "
      "s4, u4, mxf4, mxf4nvf4; e2m1 at K = 64 is mxf4 (scale_vec::2X, ue8m0) or mxf4nvf4 (2X ue8m0, 4X ue4m3)\n");
  CHECK(refusal({"mma.m16n8k32.mxf8f6f4", "--operand", "SFA", "--scale-vec", "2X"}) ==
        "tessera: --scale-vec = 2X: mxf8f6f4 takes 1X (ue8m0, blocks of 32)\n");
  CHECK(refusal({"mma.m16n8k64.mxf4nvf4", "--operand", "SFB", "--thread-id", "4"}) ==
        "tessera: --thread-id = 4: must be from 0 to 3 for SFB\n");
  CHECK(refusal({"mma.m16n8k64.mxf4", "--operand", "SFA", "--byte-id", "1"}) ==
        "tessera: --byte-id = 1: with 2X it must be 0 or 2\n");
  CHECK(refusal({"mma.m16n8k16.bf16", "--operand", "SFA"}).find("has no block scales") != std::string::npos);
  CHECK(refusal({"mma.m16n8k16.fp4"}).find("m16n8k16 exists for f16, bf16") != std::string::npos);
  CHECK(refusal({"wgmma.m64n40k32.s8"}).find("N = 40: must be a multiple of 8 from 8 to 256, above 32 of 16") !=
        std::string::npos);
  CHECK(refusal({"wgmma.m64n64k8.bf16"}).find("wgmma is m64nNk16 for f16, bf16") != std::string::npos);
  CHECK(refusal({"wgmma.m64n64k16.bf16", "--operand", "B"}).find("smem-descriptor wgmma") != std::string::npos);
  CHECK(refusal({"ldmatrix.m8n8.x3"}).find("there are ldmatrix.m8n8.x1|x2|x4[.trans]") != std::string::npos);
  CHECK(refusal({"ldmatrixx.m8n8.x4"}).find("there is no such instruction") != std::string::npos);
  CHECK(refusal({"ldmatrix.sync.aligned.m8n8.x4.shared.b8"}).find("[.trans] (b16)") != std::string::npos);
  CHECK(refusal({"stmatrix.m16n8.x1.trans.b16"}).find("m16n8.x1|x2|x4.trans (b8)") != std::string::npos);
  for (const char* const form :
       {"tcgen05.ld.16x256b.x64", "tcgen05.ld.32x32b.x3", "tcgen05.ld.32x32b.x04", "tcgen05.ld.32x32b.x2.unpack::16b",
        "tcgen05.st.32x32b.x2.pack::16b", "tcgen05.ld.red.16x64b.x2.min.f32", "tcgen05.ld.red.32x32b.x1.min.f32",
        "tcgen05.ld", "tcgen05.ld.x2"}) {
    CAPTURE(form);
    CHECK(refusal({form}).find("16x256b (x1 to x32), ld also with .pack::16b") != std::string::npos);
  }
  CHECK(refusal({"tcgen05.mma"}).find("fills or empties no registers") != std::string::npos);
  CHECK(refusal({"mma.m16n8k16.bf16", "--lane", "32"}) ==
        "tessera: --lane = 32: must be a whole number from 0 to 31\n");
  CHECK(refusal({"mma.m16n8k16.bf16", "--element", "16,0"}).find("the matrix has 16 rows and 8 columns") !=
        std::string::npos);
  CHECK(refusal({"mma.m16n8k16.bf16", "--start", "0"}) ==
        "tessera: --start is no flag of layout fragment: it goes with smem-descriptor\n");
  CHECK(refusal({"mma.m16n8k64.mxf4nvf4", "--operand", "A", "--byte-id", "0", "--thread-id", "1"}) ==
        "tessera: layout fragment: --byte-id, --thread-id has no effect on this page\n");
  CHECK(refusal({"mma.m16n8k16.bf16", "--operand", "A", "--type-d", "f32"}).find("--type-d has no effect") !=
        std::string::npos);
  CHECK(refusal({}).find("name an instruction") != std::string::npos);
}

TEST_CASE("layout fragment: PTX's own spelling is taken, and refused where PTX refuses it") {
  Terminal terminal;
  const auto text = [&](const std::string& name) {
    return terminal.run({"layout", "fragment", name, "--operand", "A"});
  };
  const std::string full =
      "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3";
  const std::string own = text("mma.m16n8k64.mxf4nvf4").out, spelled = text(full).out;
  CHECK(spelled.substr(spelled.find("\nthe matrix")) == own.substr(own.find("\nthe matrix")));
  for (const auto& [name, short_one] : std::vector<std::pair<std::string, std::string>>{
           {"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", "wgmma.m64n64k16.bf16"},
           {"mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "mma.sp.m16n8k32.f16"}}) {
    const std::string a = text(name).out, b = text(short_one).out;
    CHECK(a.substr(a.find("\nthe matrix")) == b.substr(b.find("\nthe matrix")));
    CHECK(a.size() > 1000);
  }
  CHECK(terminal.run({"layout", "fragment", "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"}).code == 0);
  CHECK(text("mma.m16n8k32.kind::mxf8f6f4.scale_vec::2X").err ==
        "tessera: mma.m16n8k32.kind::mxf8f6f4.scale_vec::2X: scale_vec::2X: mxf8f6f4 takes 1X (ue8m0, blocks of 32)\n");
  CHECK(text("mma.m16n8k64.kind::mxf8f6f4.scale_vec::2X")
            .err.find("e2m1 at K = 64 is mxf4 (scale_vec::2X, ue8m0) or mxf4nvf4") != std::string::npos);
  CHECK(text("mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16").err ==
        "tessera: mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16: bf16 accumulates in f32, not f16\n");
  CHECK(
      text("mma.sp.m16n8k64.f64").err ==
      "tessera: mma.sp.m16n8k64.f64: there is no such instruction; there is no sparse product of f64; m16n8k64 exists "
      "for e4m3, e5m2, e3m2, e2m3, e2m1, s8, u8, s4, u4, mxf8f6f4\n");
  CHECK(terminal.run({"layout", "fragment", "mma.m16n8k16.f16", "--operand", "E"}).err ==
        "tessera: mma.m16n8k16.f16 has no metadata: mma.sp and wgmma.sp have\n");
}

TEST_CASE("layout fragment: a short name shows PTX's spelling, which is taken in turn") {
  Terminal terminal;
  for (const auto& spellings : std::vector<std::pair<std::string, std::string>>{
           {"mma.m16n8k16.bf16", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"},
           {"mma.m16n8k32.e2m1", "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32"},
           {"mma.m16n8k32.u8", "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32"},
           {"mma.m8n8k128.b1", "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc"},
           {"mma.m16n8k64.mxf4",
            "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0"},
           {"mma.m16n8k64.mxf4nvf4",
            "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"},
           {"mma.sp.m16n8k32.f16", "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"},
           {"wgmma.m64n128k32.e4m3", "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3"},
           {"wgmma.sp.m64n8k32.bf16", "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16"},
           {"wgmma.m64n8k256.b1", "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc"},
           {"ldmatrix.m8n8.x4.trans", "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"},
           {"ldmatrix.m8n16.x2.b6x16_p32", "ldmatrix.sync.aligned.m8n16.x2.shared.b8x16.b6x16_p32"},
           {"stmatrix.m16n8.x1.trans", "stmatrix.sync.aligned.m16n8.x1.trans.shared.b8"},
           {"tcgen05.st.16x64b.x4.unpack::16b", "tcgen05.st.sync.aligned.16x64b.x4.unpack::16b.b32"},
           {"tcgen05.ld.red.16x32bx2.x2", "tcgen05.ld.red.sync.aligned.16x32bx2.x2.max.f32"}}) {
    const std::string &name = spellings.first, &ptx = spellings.second;
    CAPTURE(name);
    CHECK(page_of(terminal, {"fragment", name})["facts"]["PTX"] == ptx);
    CHECK(page_of(terminal, {"fragment", ptx})["grids"] == page_of(terminal, {"fragment", name})["grids"]);
  }
}

TEST_CASE("layout fragment: a spelling that is not PTX's is answered with the one that is") {
  Terminal terminal;
  const std::string nvf4 = "mma.sync.aligned.kind::mxf4nvf4.block_scale";
  for (const auto& [name, why] : std::vector<std::pair<std::string, std::string>>{
           {"mma.sync.aligned.m16n8k16.col.row.f32.bf16.bf16.f32",
            "PTX spells it mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"},
           {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.f16.f32", "B is f16: A's bf16 goes with bf16"},
           {"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.s8.f32", "B is s8: A's e4m3 goes with e4m3, e5m2"},
           {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16", "C is f16: it must be D's f32"},
           {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16",
            "names 3 types: 4 are due, of D, A, B, C: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"},
           {nvf4 + ".m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3",
            "PTX spells it " + nvf4 + ".scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3"},
           {nvf4 + ".scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3",
            "scales are ue4m3: mxf4nvf4 takes 2X (ue8m0, blocks of 32) and 4X (ue4m3, blocks of 16; from PTX 9.1 on "
            "ue8m0 too)"},
           {"mma.sync.aligned.m16n8k32.row.col.f32.e2m1.e2m1.f32",
            "PTX spells it mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32"},
           {"mma.m16n8k64.kind::mxf4.e4m3", "A is e4m3: mxf4 takes e2m1"},
           {"mma.m16n8k16.kind::f8f6f4.e4m3", "kind::f8f6f4 is mma.m16n8k32 of e4m3, e5m2, e3m2, e2m3, e2m1"},
           {"wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.u8.satfinite",
            "PTX spells it wgmma.mma_async.sync.aligned.m64n64k32.satfinite.s32.s8.u8"},
           {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.shared.b16",
            "PTX spells it ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"},
           {"tcgen05.ld.red.32x32b.x4.min.min", "PTX spells it tcgen05.ld.red.sync.aligned.32x32b.x4.min.f32"}})
    CHECK(refusal_of(terminal, {"fragment", name}) == "tessera: " + name + ": " + why + "\n");
  for (const char* name : {"mma.m16n8k16.bf16.foo", "mma.m16n8k64.kind::mxf4nvf4.scale_vec::3X", "wgmma.m064n8k16.bf16",
                           "mma.sp.sp.m16n8k32.f16", "mma.m16n8k16.m16n8k16.bf16"})
    CHECK(refusal_of(terminal, {"fragment", name}).find("is no word of a matrix product") != std::string::npos);
  // What differs from PTX in one word is no PTX: each word left out, doubled or swapped with the next.
  for (const std::string name :
       {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32",
        "wgmma.mma_async.sync.aligned.m64n16k32.f16.e4m3.e5m2", "ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b4x16_p64",
        "tcgen05.ld.sync.aligned.32x32b.x8.pack::16b.b32"}) {
    std::vector<std::string> words;
    for (std::size_t at = 0; at <= name.size();
         at = name.find('.', at) == std::string::npos ? name.size() + 1 : name.find('.', at) + 1)
      words.push_back(name.substr(at, name.find('.', at) - at));
    CHECK(terminal.run({"layout", "fragment", name}).code == 0);
    const auto joined = [](const std::vector<std::string>& parts) {
      std::string text;
      for (const std::string& part : parts) text += (text.empty() ? "" : ".") + part;
      return text;
    };
    for (std::size_t i = 1; i < words.size(); ++i) {
      // Left out, `shared` means generic addressing; `satfinite` and `pack::16b` are free.
      const bool is_free = words[i] == "shared" || words[i] == "satfinite" || words[i] == "pack::16b";
      std::vector<std::string> less = words, more = words, swapped = words;
      less.erase(less.begin() + static_cast<std::ptrdiff_t>(i));
      more.insert(more.begin() + static_cast<std::ptrdiff_t>(i), words[i]);
      if (i + 1 < words.size()) std::swap(swapped[i], swapped[i + 1]);
      if (!is_free) CHECK(terminal.run({"layout", "fragment", joined(less)}).code == 2);
      CHECK(terminal.run({"layout", "fragment", joined(more)}).code == 2);
      // Types of the same family may stand the other way round.
      const bool is_typed = words[i].size() < 5 && words[i].find_first_of("0123456789") == 1;
      if (swapped != words && !is_typed) CHECK(terminal.run({"layout", "fragment", joined(swapped)}).code == 2);
    }
  }
}

TEST_CASE("layout fragment: a register of a lane is looked up") {
  Terminal terminal;
  const Json page =
      page_of(terminal, {"fragment", "mma.m16n8k32.s8", "--operand", "A", "--lane", "13", "--register", "2"});
  CHECK(page["facts"]["thread 13, register 2"] ==
        "3,20 in bits 7..0; 3,21 in bits 15..8; 3,22 in bits 23..16; 3,23 in bits 31..24");
  std::size_t marked = 0;
  for (const auto& row : page["grids"][0]["cells"])
    for (const Json& cell : row) marked += cell.contains("marked") ? 1U : 0U;
  CHECK(marked == 4);
  CHECK(refusal_of(terminal, {"fragment", "mma.m16n8k32.s8", "--register", "2"}) ==
        "tessera: --register: goes with --lane, whose it is\n");
  CHECK(refusal_of(terminal, {"fragment", "mma.m16n8k32.s8", "--lane", "0", "--register", "4"}) ==
        "tessera: --register = 4: must be a whole number from 0 to 3\n");
  CHECK(refusal_of(terminal, {"fragment", "mma.m16n8k32.s8", "extra"}) ==
        "tessera: layout fragment: 'extra' is one word too many\n");
}

TEST_CASE("layout repack: what needs a renamed K, and what has no such map") {
  Terminal terminal;
  for (const auto& [product, is_free] : {std::pair("mma.m16n8k16.f16", true), std::pair("wgmma.m64n64k32.e4m3", false),
                                         std::pair("mma.m16n8k8.tf32", false), std::pair("mma.m16n8k64.mxf4", false)}) {
    const Json page = page_of(terminal, {"repack", "D-to-A", product});
    CHECK((page["facts"]["shuffles"].get<std::string>().find("none:") == 0) == is_free);
    std::set<std::string> columns;
    for (const Json& cell : page["grids"][1]["cells"][0]) columns.insert(cell["text"].get<std::string>());
    CHECK(columns.size() == page["grids"][1]["columns"].size());
  }
  for (const char* product : {"mma.m16n8k4.tf32", "mma.m8n8k4.f64", "mma.m16n8k128.b1"})
    CHECK(
        terminal.run({"layout", "repack", "D-to-A", product}).err.find("D-to-A is for dense products of m16 or m64") !=
        std::string::npos);
  CHECK(terminal.run({"layout", "repack", "A-to-D", "mma.m16n8k16.f16"}).code == 2);
}

TEST_CASE("layout repack: tcgen05.mma's A in Tensor Memory") {
  Terminal terminal;
  for (const auto& [kind, bits] :
       {std::pair("f16", 16), std::pair("kind::tf32", 32), std::pair("i8", 8), std::pair("mxf4nvf4", 4)}) {
    const Json page = page_of(terminal, {"repack", "D-to-A", fmt::format("tcgen05.mma.{}", kind)});
    std::size_t cells = 0;
    for (const auto& row : page["grids"][0]["cells"])
      for (const Json& cell : row) {
        const int d = cell["column_of_d"];
        CHECK(cell["column"] == d * bits / 32);
        CHECK(cell["first_bit"] == d * bits % 32);
        CHECK(page["grids"][1]["cells"][0][static_cast<std::size_t>(d)]["column"] == cell["column"]);
        ++cells;
      }
    CHECK(cells == static_cast<std::size_t>(256 / bits));
  }
  CHECK(refusal_of(terminal, {"repack", "D-to-A", "tcgen05.mma.fp4"}).find("tcgen05.mma.KIND with f16, tf32") !=
        std::string::npos);
  CHECK(refusal_of(terminal, {"repack", "D-to-A", "ldmatrix.m8n8.x4"}).find("there are mma.SHAPE.TYPE") !=
        std::string::npos);
}

TEST_CASE("layout repack: in natural order every element comes from the thread that holds it") {
  Terminal terminal;
  for (const auto& [name, per] : {std::pair("mma.m16n8k8.tf32", 1), std::pair("wgmma.m64n64k32.e4m3", 4),
                                  std::pair("mma.m16n8k64.mxf4nvf4", 8)}) {
    const Json page = page_of(terminal, {"repack", "D-to-A", name});
    REQUIRE(page["grids"].size() == 3);
    const Json& rows = page["grids"][2]["cells"];
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (const Json& cell : rows[i]) {
        const int q = cell["thread_of_quad"], reg = cell["register"];
        const int e = static_cast<int>(&cell - &rows[i][0]), k = (reg / 2 * 4 + q) * per + e;
        CHECK(cell["tile"] == k / 8);
        CHECK(cell["from_thread"] == k % 8 / 2);
        CHECK(cell["value"] == k % 2 + 2 * (reg % 2));
      }
    CHECK(page["notes"][0].get<std::string>().find("in natural order each register of A takes") == 0);
  }
}
