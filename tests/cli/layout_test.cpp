// tessera layout: pages as golden files, both directions of every map, what is refused and what is called a mistake.
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/command.h"

using namespace tessera;
using namespace tessera::cli;
using Json = nlohmann::ordered_json;

namespace {

Json page_of(Terminal& terminal, std::vector<std::string> arguments, int code = 0) {
  arguments.insert(arguments.begin(), "layout");
  arguments.emplace_back("--json");
  const Outcome outcome = terminal.run(arguments);
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == code);
  return Json::parse(outcome.out);
}

const std::vector<std::string> kProducts = {
    "mma.m16n8k8.f16",       "mma.m16n8k16.bf16", "mma.m16n8k4.tf32",     "mma.m16n8k8.tf32",  "mma.m8n8k4.f64",
    "mma.m16n8k16.f64",      "mma.m16n8k16.e4m3", "mma.m16n8k32.e5m2",    "mma.m16n8k32.e2m1", "mma.m8n8k16.s8",
    "mma.m16n8k32.u8",       "mma.m8n8k32.s4",    "mma.m16n8k64.u4",      "mma.m8n8k128.b1",   "mma.m16n8k256.b1",
    "mma.m16n8k32.mxf8f6f4", "mma.m16n8k64.mxf4", "mma.m16n8k64.mxf4nvf4"};

}  // namespace

TEST_CASE("layout: pages are as their golden files say") {
  Terminal terminal;
  const std::vector<std::pair<std::string, std::vector<std::string>>> pages = {
      {"fragment-mxf4nvf4-a", {"fragment", "mma.m16n8k64.mxf4nvf4", "--operand", "A", "--lane", "13"}},
      {"fragment-mxf4nvf4-sfa", {"fragment", "mma.m16n8k64.mxf4nvf4", "--operand", "SFA", "--thread-id", "1"}},
      {"fragment-bf16-d", {"fragment", "mma.m16n8k16.bf16", "--element", "9,5"}},
      {"fragment-ldmatrix", {"fragment", "ldmatrix.m8n8.x2.trans", "--lane", "3"}},
      {"fragment-tcgen05", {"fragment", "tcgen05.ld.16x128b.x2", "--lane", "5"}},
      {"repack-mxf4nvf4", {"repack", "D-to-A", "mma.m16n8k64.mxf4nvf4"}},
      {"repack-bf16", {"repack", "D-to-A", "wgmma.m64n128k16.bf16"}},
      {"swizzle-128B", {"swizzle", "128B", "--access", "ldmatrix", "--at", "0,3"}},
      {"smem-descriptor", {"smem-descriptor", "wgmma", "0x4000004000010640", "--rows", "9"}},
      {"instruction-descriptor", {"instruction-descriptor", "f16", "0x08410010"}},
      {"scale-factors", {"scale-factors", "nvfp4", "--rows", "300", "--k", "1024", "--element", "200,100"}},
      {"tensor-map",
       {"tensor-map", "--dtype", "bf16", "--dims", "300,40", "--strides-bytes", "608", "--box", "64,8", "--at",
        "256,36"}}};
  for (const auto& page : pages) {
    const std::string& name = page.first;
    std::vector<std::string> all = {"layout"};
    all.insert(all.end(), page.second.begin(), page.second.end());
    const Outcome outcome = terminal.run(all);
    CAPTURE(name);
    CHECK(outcome.code == 0);
    CHECK(outcome.err.empty());
    check_golden("layout/" + name + ".txt", outcome.out);
  }
}

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
  for (const auto& arguments : all) {
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
  CHECK(spelled.substr(spelled.find('\n')) == own.substr(own.find('\n')));
  for (const auto& [name, short_one] : std::vector<std::pair<std::string, std::string>>{
           {"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", "wgmma.m64n64k16.bf16"},
           {"mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "mma.sp.m16n8k32.f16"}}) {
    const std::string a = text(name).out, b = text(short_one).out;
    CHECK(a.substr(a.find('\n')) == b.substr(b.find('\n')));
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

TEST_CASE("layout tensor-map: an im2col copy walks the bounding box and adds the tap") {
  Terminal terminal;
  const Json page =
      page_of(terminal, {"tensor-map", "--dims", "16,9,7,3", "--channels", "16", "--pixels", "20", "--swizzle", "32B",
                         "--lower-corner=-1,-1", "--upper-corner=-1,-1", "--offsets", "0,2", "--at=0,5,-1,2"});
  // W runs from -1 to 7, then H goes on; the tap adds 2 to H.
  CHECK(page["grids"][0]["rows"][0] == "5,1,2");
  CHECK(page["grids"][0]["rows"][2] == "7,1,2");
  CHECK(page["grids"][0]["rows"][3] == "-1,2,2");
  CHECK(page["grids"][0]["cells"][3][0].contains("outside"));
  CHECK(page["grids"][0]["cells"][0][1]["global_byte"] == (5 + 9 * (1 + 7 * 2)) * 32 + 16);
  CHECK(page_of(terminal, {"tensor-map", "--dims", "16,9,7,3", "--channels", "16", "--pixels", "2000"},
                1)["mistakes"][0] == "pixels = 2000: must be from 1 to 1024");
  CHECK(page_of(terminal,
                {"tensor-map", "--dims", "16,9,7,3", "--channels", "16", "--pixels", "2", "--lower-corner=-200,0"},
                1)["mistakes"][0] == "lower_corner = -200: must be from -128 to 127 at this rank");
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

TEST_CASE("layout swizzle: passes of an access") {
  Terminal terminal;
  const auto facts = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "swizzle");
    return page_of(terminal, arguments)["facts"];
  };
  const char* const matrix = "ldmatrix: 8 rows, 16 bytes of each";
  CHECK(facts({"none"})[matrix] == "8 passes");
  CHECK(facts({"none", "--row-bytes", "144"})[matrix] == "1 pass: no conflict");  // padded by one access
  CHECK(facts({"32B"})[matrix] == "1 pass: no conflict");
  CHECK(facts({"64B"})[matrix] == "1 pass: no conflict");
  CHECK(facts({"128B"})[matrix] == "1 pass: no conflict");
  CHECK(facts({"128B"})["row: 8 neighbouring chunks"] == "1 pass: no conflict");
  CHECK(facts({"none"})["column: 32 rows, 4 bytes of each"] == "32 passes");
  CHECK(facts({"128B"})["column: 32 rows, 4 bytes of each"] == "4 passes");
  // Every chunk has a place of its own, and the lines name them back.
  for (const char* mode : {"none", "32B", "64B", "128B", "128B_atom_32B"}) {
    const Json page = page_of(terminal, {"swizzle", mode, "--rows", "16", "--base", "1040"});
    std::set<int> addresses;
    std::size_t chunks = 0, back = 0;
    for (const auto& row : page["grids"][0]["cells"])
      for (const Json& cell : row) {
        addresses.insert(cell["address"].get<int>());
        ++chunks;
      }
    for (const auto& row : page["grids"][1]["cells"])
      for (const Json& cell : row) back += cell.contains("address") ? 1U : 0U;
    CHECK(addresses.size() == chunks);
    CHECK(back == chunks);
  }
  CHECK(terminal.run({"layout", "swizzle", "64B", "--at", "1,1"}).err ==
        "tessera: layout swizzle: --at has no effect on this page\n");
  CHECK(terminal.run({"layout", "swizzle", "64B", "--row-bytes", "128"})
            .err.find("at most the 64 bytes that 64B spans") != std::string::npos);
}

TEST_CASE("layout descriptors: encode, decode, mistakes") {
  Terminal terminal;
  const Json made = page_of(terminal, {"smem-descriptor", "tcgen05", "--start", "0x6400", "--stride-bytes", "1024"});
  const std::string bits = made["facts"]["bits"];
  CHECK(bits == "0x4000404000010640");
  CHECK(page_of(terminal, {"smem-descriptor", "tcgen05", bits})["facts"] == made["facts"]);
  const auto mistake = [&](std::vector<std::string> arguments) {
    return page_of(terminal, std::move(arguments), 1)["mistakes"][0].get<std::string>();
  };
  CHECK(mistake({"smem-descriptor", "wgmma", bits}) ==
        "bit 46 is set and must be 0: a descriptor made for tcgen05 has it so");
  CHECK(mistake({"smem-descriptor", "tcgen05", "0x4000004000010640"}) ==
        "bits 48:46 are 0 and must be 1: a descriptor made for wgmma has them so");
  CHECK(mistake({"smem-descriptor", "wgmma", "--stride-bytes", "512"}).find("lie at the same address") !=
        std::string::npos);
  CHECK(mistake({"smem-descriptor", "wgmma", "--swizzle", "none", "--leading-bytes", "0", "--stride-bytes", "128"})
            .find("without swizzle both strides count, LBO too") != std::string::npos);
  CHECK(mistake({"smem-descriptor", "wgmma", "--start", "0x38c00"}).find("ends at 0x38c00 (227 KiB)") !=
        std::string::npos);
  const auto refusal = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "layout");
    const Outcome outcome = terminal.run(arguments);
    CHECK(outcome.code == 2);
    return outcome.err;
  };
  CHECK(refusal({"smem-descriptor", "wgmma", "--start", "100"}) == "tessera: start = 100: must be a multiple of 16\n");
  CHECK(refusal({"smem-descriptor", "wgmma", "0x12", "--start", "16"}).find("give fields or bits, not both") !=
        std::string::npos);
  CHECK(refusal({"smem-descriptor", "wgmma", "0x1ffffffffffffffff"}).find("must be a value of 64 bits") !=
        std::string::npos);

  const Json instruction =
      page_of(terminal, {"instruction-descriptor", "mxf4nvf4", "--m", "256", "--n", "64", "--scale-type", "ue4m3"});
  const std::string word = instruction["facts"]["bits"];
  CHECK(page_of(terminal, {"instruction-descriptor", "mxf4nvf4", word})["facts"] == instruction["facts"]);
  CHECK(mistake({"instruction-descriptor", "f16", "0x08410040"}).find("bits 0x40 are set and must be 0") !=
        std::string::npos);
  CHECK(refusal({"instruction-descriptor", "mxf4", "--scale-type", "ue4m3"}) ==
        "tessera: scale_type = ue4m3: kind mxf4 takes ue8m0, mxf4nvf4 both\n");
  CHECK(refusal({"instruction-descriptor", "f16", "--n", "12"}) ==
        "tessera: n = 12: must be a multiple of 8 from 8 to 256\n");
  CHECK(refusal({"instruction-descriptor", "f16", "--type-a", "e4m3"}) ==
        "tessera: type_a = e4m3: kind f16 takes f16, bf16\n");
  CHECK(refusal({"instruction-descriptor", "mxf4", "--major-a", "mn"}).find("K-major operands only") !=
        std::string::npos);
}

TEST_CASE("layout tensor-map: the classic mistakes are named, as they are typed") {
  Terminal terminal;
  const auto mistake = [&](const std::vector<std::string>& arguments) {
    std::vector<std::string> all{"tensor-map", "--dtype", "bf16"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return page_of(terminal, all, 1)["mistakes"][0].get<std::string>();
  };
  CHECK(mistake({"--dims", "128,1000,8", "--strides-bytes", "2,256,256000", "--box", "64,64,1"}) ==
        "tensor map 'map': rule 20 (count): strides_bytes has 3 entries: must have rank - 1 = 2: dimension 0 is dense "
        "and has no stride; leave out strides_bytes[0] = 2, the element size");
  CHECK(mistake({"--dims", "128,1000,8", "--strides-bytes", "256000,256,2", "--box", "64,64,1"})
            .find("list dims, strides and box innermost first") != std::string::npos);
  CHECK(mistake({"--dims", "128,1000", "--box", "64"}) ==
        "tensor map 'map': rule 20 (count): box has 1 entry: must have rank = 2: one for each dimension; use 1 for a "
        "dimension that is not tiled");
  CHECK(mistake({"--dims", "8,1000,128", "--strides-bytes", "256000,256", "--box", "1,64,64"})
            .find("the dimensions look listed outermost first") != std::string::npos);
  CHECK(mistake({"--dims", "130,1000", "--strides-bytes", "130", "--box", "64,8"})
            .find("the strides look like elements") != std::string::npos);
  CHECK(mistake({"--dims", "128,1000", "--box", "64,8", "--address", "0x1008"}) ==
        "tensor map 'map': rule 11 (address_alignment): address = 0x1008: must be a multiple of 16; it is 8 bytes past "
        "one: start the tensor at an aligned element, or copy it to an aligned buffer");
  CHECK(mistake({"--dims", "2,2,2,2,2,2", "--box", "2,2,2,2,2,2"}) ==
        "tensor map 'map': rule 3 (rank): rank = 6: must be 1 to 5; merge dimensions that are dense in one another");
}

TEST_CASE("layout tensor-map: what is not drawn says why, after the rules of the map") {
  Terminal terminal;
  const auto refusal = [&](std::vector<std::string> arguments, int code) {
    arguments.insert(arguments.begin(), {"layout", "tensor-map", "--dims", "64,16,8"});
    const Outcome outcome = terminal.run(arguments);
    CHECK(outcome.code == code);
    return outcome.err;
  };
  CHECK(refusal({"--box", "64,8,1", "--interleave", "32B", "--swizzle", "32B"}, 3)
            .find("--interleave = 32B: breaks no rule, and is not drawn: the manual says") != std::string::npos);
  CHECK(refusal({"--box", "64,8,1", "--interleave", "8B"}, 2) ==
        "tessera: --interleave = 8B: must be one of none, 16B, 32B\n");
  CHECK(refusal({"--channels", "16", "--pixels", "8", "--im2col", "w128"}, 3).find("--im2col = w128: not drawn") !=
        std::string::npos);
  CHECK(refusal({"--channels", "16", "--pixels", "8", "--im2col", "x"}, 2).find("must be one of full, w, w128") !=
        std::string::npos);
  CHECK(refusal({"--box", "64,8,1", "--im2col", "full"}, 2).find("goes with --pixels and --channels") !=
        std::string::npos);
  CHECK(page_of(terminal, {"tensor-map", "--dims", "64,16", "--box", "64,8", "--interleave", "16B"}, 1)["mistakes"]
            .size() >= 1);
}

TEST_CASE("layout tensor-map: rules, faults and what lies outside") {
  Terminal terminal;
  const Json page = page_of(
      terminal, {"tensor-map", "--dims", "300,40", "--strides-bytes", "608", "--box", "64,8", "--at", "256,36"});
  const Json& cells = page["grids"][0]["cells"];
  CHECK(cells[0][4]["elements_inside"] == 8);  // 288..295
  CHECK(cells[0][5]["elements_inside"] == 4);  // 296..299 of 300
  CHECK(cells[0][6]["outside"] == true);
  CHECK(cells[4][0]["outside"] == true);  // row 40 of 40
  CHECK(cells[1][0]["global_byte"] == 37 * 608 + 512);
  CHECK(cells[1][0]["smem_address"] == 128 + 16);
  const Json broken = page_of(terminal, {"tensor-map", "--dims", "300,40", "--box", "128,8"}, 1);
  CHECK(broken["grids"].empty());
  CHECK(broken["mistakes"].size() == 2);  // the stride of 600 bytes, the box wider than the swizzle
  CHECK(page_of(terminal, {"tensor-map", "--dims", "304,40", "--box", "64,8", "--at", "4,0"}, 1)["mistakes"][0]
            .get<std::string>()
            .find("inner_coordinate") != std::string::npos);
}

TEST_CASE("layout smem: the regions of a plan, and regions that cannot be") {
  Terminal terminal;
  const std::string plan = terminal.write("plan.json", terminal.run({"plan", "fmha", "--json"}).out);
  const Json page = page_of(terminal, {"smem", plan});
  const Json regions = Json::parse(read_text(plan))["smem"];
  std::map<int, int> cells;
  for (const auto& row : page["grids"][0]["cells"])
    for (const Json& cell : row)
      if (cell.contains("region")) ++cells[cell["region"].get<int>()];
  REQUIRE(regions.size() >= 3);
  for (std::size_t i = 0; i < regions.size(); ++i)
    CHECK(cells[static_cast<int>(i)] >= regions[i]["bytes"].get<int>() / 1024);
  const std::string bad = terminal.write("bad.json", R"({"smem": [{"name": "q", "offset": 0, "bytes": 2048},
      {"name": "k", "offset": 1024, "bytes": 240000}]})");
  const Json wrong = page_of(terminal, {"smem", bad}, 1);
  CHECK(wrong["mistakes"] ==
        Json::parse(R"(["k ends at 241024: a CTA has at most 232448 bytes", "q and k overlap from 1024 on"])"));
  CHECK(terminal.run({"layout", "smem", terminal.write("none.json", "{}")}).err.find("smem: missing") !=
        std::string::npos);
}

TEST_CASE("layout smem: who owns what when, for every operator and Config that has shared memory") {
  Terminal terminal;
  for (const std::vector<std::string>& problem :
       std::vector<std::vector<std::string>>{{"fmha"},
                                             {"fmha", "--head-dim", "512"},
                                             {"fmha", "--output", "unnormalized"},
                                             {"gemm"},
                                             {"gemm", "--m", "64", "--n", "7168", "--k", "16384"},
                                             {"gemv"},
                                             {"copy2d"}}) {
    std::vector<std::string> command = {"plan"};
    command.insert(command.end(), problem.begin(), problem.end());
    command.push_back("--json");
    const std::string plan = terminal.write("plan.json", terminal.run(command).out);
    CAPTURE(problem.back());
    const Json page =
        page_of(terminal, {"smem", plan});  // no mistakes: owners are roles, slots divide, nothing overlaps
    const Json json = Json::parse(read_text(plan));
    std::size_t phases = 0, barriers = 0;
    for (const Json& region : json["smem"]) {
      phases += region.contains("phases") ? region["phases"].size() : std::size_t{0};
      barriers += region.contains("phases") ? 0U : 1U;
    }
    CHECK(phases >= 2);
    CHECK(page["grids"][1]["rows"].size() == phases + barriers);
    const Json marked = page_of(terminal, {"smem", plan, "--owner", json["roles"].back()["name"].get<std::string>()});
    CHECK(marked.dump().find("\"marked\"") != std::string::npos);
  }
  const std::string plan = terminal.write("plan.json", terminal.run({"plan", "fmha", "--json"}).out);
  CHECK(terminal.run({"layout", "smem", plan, "--owner", "nobody"}).err ==
        "tessera: --owner = nobody: must be one of load_kv, load_q, store_o, idle, consumer\n");
  const std::string bad = terminal.write("bad.json", R"({"smem": [{"name": "q", "offset": 0, "bytes": 2048, "slots": 3,
      "phases": [{"content": "Q", "owner": "loader", "until": "end"}]}], "smem_bytes": 1024,
      "roles": [{"name": "load"}, {"name": "consumer"}]})");
  CHECK(page_of(terminal, {"smem", bad}, 1)["mistakes"] ==
        Json::parse(R"(["q ends at 2048: the plan asks for 1024", "q: 2048 does not divide into 3 slots",
            "q: Q belongs to 'loader', which is no role of the plan: load, consumer"])"));
}

TEST_CASE("layout tmem: columns and lanes by phase, and regions that cannot be") {
  Terminal terminal;
  const std::string roles = R"("roles": [{"name": "mma"}, {"name": "softmax"}])";
  const std::string good =
      terminal.write("good.json", R"({"kernel": "k", "arch": "sm_100a", "tmem_columns": 512, "tmem": [
      {"name": "s", "first_column": 0, "columns": 256, "first_lane": 0, "lanes": 128, "slots": 2, "phases": [
        {"content": "S", "owner": "mma", "until": "barrier s_full"},
        {"content": "S, then P", "owner": "softmax", "until": "barrier p_full"}]},
      {"name": "o", "first_column": 256, "columns": 64, "first_lane": 0, "lanes": 64}], )" +
                                      roles + "}");
  const Json page = page_of(terminal, {"tmem", good, "--owner", "softmax"});
  CHECK(page["facts"]["0 s"] == "columns 0 .. 256, 2 slots of 128 columns, lanes 0 .. 128");
  const Json& map = page["grids"][0];
  REQUIRE(map["rows"].size() == 8);
  REQUIRE(map["columns"].size() == 16);  // 32 columns a cell
  for (std::size_t r = 0; r < 8; ++r)
    for (std::size_t c = 0; c < 16; ++c) {
      const Json& cell = map["cells"][r][c];
      CHECK(cell["text"] == (c < 8 ? "0" : c < 10 && r < 4 ? "1" : ""));
      CHECK(cell.contains("marked") == (c < 8));
      CHECK(cell.contains("outside") == (c >= 10 || (c >= 8 && r >= 4)));
    }
  CHECK(page["grids"][1]["rows"] == Json::parse(R"(["0 s, 1", "0 s, 2", "1 o, 1"])"));
  CHECK(page["grids"][1]["cells"][1][1]["text"] == "softmax");
  const std::string bad = terminal.write("bad.json", R"({"tmem_columns": 96, "tmem": [
      {"name": "s", "first_column": 0, "columns": 64, "first_lane": 64, "lanes": 128},
      {"name": "o", "first_column": 60, "columns": 64, "first_lane": 0, "lanes": 128}], )" +
                                                         roles + "}");
  CHECK(page_of(terminal, {"tmem", bad}, 1)["mistakes"] ==
        Json::parse(R"(["tmem_columns = 96: must be a power of two from 32 to 512",
            "s ends at lane 192, column 64: Tensor Memory has 128 lanes of 512 columns",
            "o ends at 124: the plan asks for 96", "s and o overlap from 60 on"])"));
  const std::string none = terminal.write("none.json", terminal.run({"plan", "fmha", "--json"}).out);
  CHECK(terminal.run({"layout", "tmem", none}).err.find("uses no Tensor Memory") != std::string::npos);
}

TEST_CASE("layout: SVG is whole, HTML needs nothing from elsewhere") {
  Terminal terminal;
  const std::string svg_file = (terminal.folder.path / "a.svg").string(),
                    html_file = (terminal.folder.path / "a.html").string();
  CHECK(terminal
            .run({"layout", "fragment", "mma.m16n8k64.mxf4nvf4", "--operand", "A", "--svg", svg_file, "--html",
                  html_file})
            .code == 0);
  const std::string svg = read_text(svg_file), html = read_text(html_file);
  CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  CHECK(svg.ends_with("</svg>\n"));
  const auto count = [](const std::string& text, std::string_view part) {
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  };
  CHECK(count(svg, "<rect ") == 2 * 16 * 64);
  CHECK(count(svg, "<g>") == count(svg, "</g>"));
  CHECK(count(html, "<td ") == 2 * 16 * 64);
  CHECK(count(html, "data-link=\"5,17\"") == 2);
  for (const char* foreign : {"http://", "https://", "src=", "@import", "url("})
    CHECK(html.find(foreign) == std::string::npos);
  CHECK(html.find("prefers-color-scheme:dark") != std::string::npos);
  CHECK(terminal.run({"layout", "swizzle", "128B", "--svg", "/dev/null/x.svg"}).code == 5);
}
