// tessera layout swizzle, smem-descriptor, instruction-descriptor: passes, bits, mistakes.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "tests/layout_maps/pages.h"

using namespace tessera;
using namespace tessera::cli;

TEST_CASE("layout swizzle: passes of an access") {
  Terminal terminal;
  const auto facts = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "swizzle");
    return page_of(terminal, arguments)["facts"];
  };
  const char* const matrix = "ldmatrix: 8 rows, 16 bytes of each";
  CHECK(facts({"none"})[matrix] == "8 passes, 1 without conflicts");
  CHECK(facts({"none", "--row-bytes", "144"})[matrix] == "1 pass: no conflict");  // padded by one access
  CHECK(facts({"32B"})[matrix] == "1 pass: no conflict");
  CHECK(facts({"64B"})[matrix] == "1 pass: no conflict");
  CHECK(facts({"128B"})[matrix] == "1 pass: no conflict");
  CHECK(facts({"128B"})["row: 8 neighbouring chunks"] == "1 pass: no conflict");
  CHECK(facts({"none"})["column: 32 rows, 4 bytes of each"] == "32 passes, 1 without conflicts");
  CHECK(facts({"128B"})["column: 32 rows, 4 bytes of each"] == "4 passes, 1 without conflicts");
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

TEST_CASE("layout swizzle: the passes of a given access are those of its fullest bank") {
  Terminal terminal;
  for (const std::string mode : {"none", "32B", "64B", "128B", "128B_atom_32B"})
    for (const auto& [down, across, bytes] : std::vector<std::tuple<int, int, int>>{
             {8, 1, 16}, {32, 1, 4}, {8, 4, 4}, {4, 8, 2}, {2, 4, 16}, {16, 2, 8}, {32, 1, 16}, {5, 3, 1}})
      for (const int chunk : {0, 1}) {
        const std::string access = fmt::format("{}x{}x{}", down, across, bytes);
        const Json page = page_of(
            terminal, {"swizzle", mode, "--access", access, "--at", fmt::format("3,{}", chunk), "--base", "128"});
        CAPTURE(mode);
        CAPTURE(access);
        // From the table of chunks on the page: addresses of the lanes, then each group's fullest bank.
        const Json& cells = page["grids"][0]["cells"];
        const int row_chunks = static_cast<int>(page["grids"][0]["columns"].size());
        std::vector<int> addresses;
        std::set<int> touched;
        for (int lane = 0; lane < down * across; ++lane) {
          const int at = chunk * 16 + lane % across * bytes, row = 3 + lane / across + at / 16 / row_chunks;
          const int first =
              cells[static_cast<std::size_t>(row)][static_cast<std::size_t>(at / 16 % row_chunks)]["address"];
          addresses.push_back(first + at % 16);
          touched.insert(first);
        }
        int passes = 0;
        const int together = bytes == 16 ? 8 : bytes == 8 ? 16 : 32;
        for (std::size_t i = 0; i < addresses.size(); i += static_cast<std::size_t>(together)) {
          std::set<int> words;
          for (std::size_t j = i; j < std::min(addresses.size(), i + static_cast<std::size_t>(together)); ++j)
            for (int byte = 0; byte < bytes; ++byte) words.insert((addresses[j] + byte) / 4);
          int fullest = 0;
          for (int bank = 0; bank < 32; ++bank)
            fullest = std::max(fullest, static_cast<int>(std::count_if(words.begin(), words.end(),
                                                                       [&](int word) { return word % 32 == bank; })));
          passes += fullest;
        }
        const std::string said = page["facts"][fmt::format("{} at row 3, chunk {}", access, chunk)];
        CHECK(said.find(fmt::format("of {} bytes: {} pass", bytes, passes)) != std::string::npos);
        std::size_t marked = 0;
        for (const auto& row : cells)
          for (const Json& cell : row) marked += cell.contains("marked") ? 1U : 0U;
        CHECK(marked == touched.size());
      }
  CHECK(refusal_of(terminal, {"swizzle", "64B", "--access", "8x3"})
            .find("ROWSxNEIGHBOURSxBYTES of at most 32 lanes with 1, 2, 4, 8 or 16 bytes each") != std::string::npos);
  CHECK(refusal_of(terminal, {"swizzle", "64B", "--access", "column", "--at", "3,0", "--rows", "8"}) ==
        "tessera: --at: the access touches rows 3 to 34: the tile has 8\n");
}

TEST_CASE("layout smem-descriptor: without strides the picture is dense, and types that cannot be are mistakes") {
  Terminal terminal;
  for (const char* kind : {"wgmma", "tcgen05"})
    for (const char* major : {"k", "mn"})
      for (const char* swizzle : {"none", "32B", "64B", "128B", "128B_atom_32B"}) {
        const bool is_atom = std::string_view(swizzle).size() > 5;
        if (is_atom && (kind[0] == 'w' || major[0] == 'k')) continue;
        const Json page = page_of(terminal, {"smem-descriptor", kind, "--major", major, "--swizzle", swizzle});
        // Both directions have every chunk once, and a dense picture leaves no hole.
        std::size_t chunks = 0, back = 0, holes = 0;
        for (const auto& row : page["grids"][0]["cells"]) chunks += row.size();
        for (const auto& row : page["grids"][1]["cells"])
          for (const Json& cell : row) ++(cell.contains("chunk") ? back : holes);
        CHECK(back == chunks);
        CHECK((holes == 0 || (major[0] == 'k' && std::string_view(swizzle) != "none")));  // 32 bytes of a wider span
      }
  const auto mistake = [&](std::vector<std::string> arguments) {
    return page_of(terminal, std::move(arguments), 1)["mistakes"][0].get<std::string>();
  };
  CHECK(mistake({"smem-descriptor", "wgmma", "--major", "mn", "--bits", "8"}) ==
        "wgmma reads elements of 8 bits K-major only: MN-major is for f16 and bf16");
  CHECK(mistake({"smem-descriptor", "tcgen05", "--swizzle", "128B_atom_32B"}) ==
        "128B_atom_32B is for MN-major 32-bit elements (tf32) alone: --major mn --bits 32");
  CHECK(mistake({"smem-descriptor", "tcgen05", "--major", "mn", "--bits", "4"}).find("K-major only") !=
        std::string::npos);
  CHECK(mistake({"smem-descriptor", "tcgen05", "--major", "mn", "--bits", "32"}).find("128B_atom_32B only") !=
        std::string::npos);
  CHECK(mistake({"smem-descriptor", "wgmma", "--major", "mn", "--leading-bytes", "16"}) ==
        "k 0, chunk 8 and k 0, chunk 1 lie at the same address 0x10: 8 k of a 128-byte span take 1024 bytes, "
        "stride_bytes = 1024; all 16 k of a span, leading_bytes = 16");
}

TEST_CASE("layout instruction-descriptor: shapes are those of the manual's table") {
  Terminal terminal;
  const auto is_legal = [](const std::string& kind, const std::string& form, bool is_sparse, int m, int n) {
    const bool scaled = kind.starts_with("mx"), is_i8 = kind == "i8";
    if (form == "ws")
      return !scaled && (m == 32 || m == 64 || m == 128) && (n == 64 || n == 128 || (n == 256 && !is_sparse));
    if (form == "2") return (m == 256 || (m == 128 && !(scaled && is_sparse))) && n % (is_i8 ? 32 : 16) == 0;
    return (m == 128 || (m == 64 && !scaled)) && (!is_i8 || n <= 32 || n % 16 == 0);
  };
  for (const std::string kind : {"f16", "i8", "mxf4"})
    for (const std::string form : {"1", "2", "ws"})
      for (const bool is_sparse : {false, true})
        for (const int m : {32, 64, 128, 256})
          for (const int n : {8, 16, 24, 32, 40, 48, 64, 128, 192, 256}) {
            std::vector<std::string> arguments = {"layout", "instruction-descriptor", kind, "--m", std::to_string(m),
                                                  "--n",    std::to_string(n)};
            if (form == "ws") arguments.emplace_back("--ws");
            if (form != "ws") arguments.insert(arguments.end(), {"--cta-group", form});
            if (is_sparse) arguments.emplace_back("--sparse");
            CAPTURE(kind);
            CAPTURE(form);
            CAPTURE(m);
            CAPTURE(n);
            CHECK((terminal.run(arguments).code == 0) == is_legal(kind, form, is_sparse, m, n));
          }
  CHECK(
      refusal_of(terminal, {"instruction-descriptor", "i8", "--n", "40"}) ==
      "tessera: m = 128 with n = 40: kind i8 has cta_group::1: M = 64, 128 with N = 8, 16, 24, 32, then multiples of "
      "16 "
      "to 256; cta_group::2: M = 128, 256 with N = multiples of 32 to 256; .ws, cta_group::1: M = 32, 64, 128 with N = "
      "64, 128, 256\n");
  for (const auto& [arguments, why] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"f8f6f4", "--type-a", "e2m1", "--major-a", "mn"}, "4- and 6-bit elements must be K-major"},
           {{"f16", "--type-a", "bf16", "--type-d", "f16"}, "type_d = f16: bf16 operands accumulate in f32"},
           {{"f16", "--sparsity-selector", "2"}, "sparsity_selector = 2: must be 0 for a dense product"},
           {{"f16", "--max-shift", "8", "--n", "16"},
            "max_shift = 8: only .ws has one, and no .ws has m = 128 with n = 16"},
           {{"mxf4nvf4", "--scale-id-b", "1"}, "scale_id_b = 1: must be 0 or 2"},
           {{"f16", "--scale-type", "ue4m3"}, "layout instruction-descriptor: --scale-type has no effect on this page"},
           {{"f16", "--ws", "--cta-group", "2"}, "--cta-group = 2: .ws is a form of cta_group::1"}}) {
    std::vector<std::string> all = {"instruction-descriptor"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    CHECK(refusal_of(terminal, all) == "tessera: " + why + "\n");
  }
  // The same of a value: kind f16, M = 256, N = 8.
  CHECK(page_of(terminal, {"instruction-descriptor", "f16", "0x10020010"}, 1)["mistakes"][0].get<std::string>().find(
            "m = 256 with n = 8: kind f16 has") == 0);
}

TEST_CASE("layout scale-factors: tile, places and registers are one map, padding is named") {
  Terminal terminal;
  for (const std::string format : {"nvfp4", "mxfp4", "mxfp8"}) {
    const int block = format == "nvfp4" ? 16 : 32, vector = format == "nvfp4" ? 4 : format == "mxfp4" ? 2 : 1;
    const Json page = page_of(terminal, {"scale-factors", format, "--rows", "300", "--k", std::to_string(6 * block),
                                         "--element", fmt::format("299,{}", 5 * block)});
    REQUIRE(page["grids"].size() == 4);
    std::map<int, std::pair<int, int>> in_tile;
    int pads = 0;
    for (const auto& row : page["grids"][0]["cells"])
      for (const Json& cell : row) {
        in_tile[cell["byte"]] = {cell["row"], cell["block"]};
        const bool is_pad = cell["row"].get<int>() >= 300 || cell["block"].get<int>() >= 6;
        CHECK((cell["text"] == "pad") == is_pad);
        pads += is_pad ? 1 : 0;
      }
    CHECK(in_tile.size() == 512);
    CHECK(pads == 512 - 44 * 2);
    for (const auto& row : page["grids"][1]["cells"])
      for (const Json& cell : row) {
        const int byte = cell["byte"];
        CHECK(in_tile[byte] == std::pair<int, int>(cell["row"], cell["block"]));
        CHECK(cell["tmem_lane"] == byte / 16);
        CHECK(cell["tmem_byte"] == byte % 4);
      }
    for (int b = 0; b < 4; ++b) {
      const int id = vector == 4 ? 0 : b / vector * vector;
      CHECK(page["grids"][1]["columns"][static_cast<std::size_t>(b)] == fmt::format("block {}, id {}", 4 + b, id));
      for (int r = 0; r < 16; ++r) {  // rows g and g + 8 of A: threads 4g and 4g + 1
        const Json& cell = page["grids"][2]["cells"][static_cast<std::size_t>(r)][static_cast<std::size_t>(b)];
        CHECK(cell["text"] == fmt::format("T{} byte {}", r % 8 * 4 + r / 8, b));
      }
      for (int n = 0; n < 8; ++n)
        CHECK(page["grids"][3]["cells"][static_cast<std::size_t>(n)][static_cast<std::size_t>(b)]["text"] ==
              fmt::format("T{} byte {}", 4 * n, b));
    }
  }
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
            .find("without swizzle both strides count: leading_bytes = 0, stride_bytes = 128") != std::string::npos);
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
