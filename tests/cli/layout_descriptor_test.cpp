// tessera layout swizzle, smem-descriptor, instruction-descriptor: passes, bits, mistakes.
#include <set>

#include "tests/cli/layout_pages.h"

using namespace tessera;
using namespace tessera::cli;

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
