// tessera layout tensor-map: what lies where and what lies outside, mistakes as they are typed.
#include "tests/layout_maps/pages.h"

using namespace tessera;
using namespace tessera::cli;

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
