// tessera layout smem, tmem: the memories of plans by phase, and plans that cannot be.
#include <map>

#include "tests/layout_maps/pages.h"

using namespace tessera;
using namespace tessera::cli;

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
        "tessera: --owner = nobody: must be one of load_k, load_v, load_q, store_o, consumer\n");
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

TEST_CASE("layout smem: what is no single plan, and a plan without shared memory") {
  Terminal terminal;
  const std::string product =
      terminal.write("plans.json", terminal.run({"plan", "fmha", "--head-dim", "64,128", "--json"}).out);
  CHECK(refusal_of(terminal, {"smem", product}).find("holds the plans of a product: give one plan") !=
        std::string::npos);
  const std::string quantize = terminal.write("quantize.json", terminal.run({"plan", "quantize", "--json"}).out);
  CHECK(page_of(terminal, {"smem", quantize})["notes"][0].get<std::string>().find("no shared memory") !=
        std::string::npos);
  const std::string nameless = terminal.write("\xff.json", R"({"smem": [{"name": "q", "offset": 0, "bytes": 64}]})");
  CHECK(page_of(terminal, {"smem", nameless})["title"] == "shared memory of a plan without a name");
}
