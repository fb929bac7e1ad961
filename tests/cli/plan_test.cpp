// tessera plan: memory budgets, several launches and the workspace between them, in text and JSON.
#include <nlohmann/json.hpp>

#include "tests/cli/machine.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

TEST_CASE("plan prints both budgets, each launch and the workspace between them") {
  Terminal terminal;
  const std::vector<std::string> words{"plan",       "fmha", "--arch",    "sm_100a", "--head-dim", "512",
                                       "--split-kv", "on",   "--heads-q", "128",     "--heads-kv", "1",
                                       "--seqlen-q", "1",    "--batch",   "4"};
  const std::string some = terminal.run(words).out;
  for (const char* const part :
       {"shared memory: 215,704 bytes of 232,448\n", "Tensor Memory: 384 of 512 columns of 128 lanes, 512 allocated\n",
        "       0 ..       64        64  s0\n", "     128 ..      384       256  o0\n",
        "\nlaunch 1 of 2: tessera_fmha_", "\nlaunch 2 of 2: tessera_fmha_", "_merge\n",
        "\nworkspace\n  bytes    num_splits * batch * heads_q * seqlen_q * 2056\n  aligned to "
        "256 bytes, any contents\n",
        "what depends on seqlen_k was not checked"})
    CHECK_MESSAGE(has(some, part), part, " is not in\n", some);
  CHECK(!has(some, "workspace: "));
  std::vector<std::string> sized = words;
  sized.insert(sized.end(), {"--seqlen-k", "8192", "--num-splits", "3"});
  CHECK(has(terminal.run(sized).out, "\nat these sizes\n  workspace: 3,158,016 bytes\n"));  // 3 * 4 * 128 * 2056
  sized.push_back("--json");
  const Json json = Json::parse(terminal.run(sized).out);
  CHECK(json["workspace_bytes"] == 3158016);
  CHECK(json["launch"]["workspace"]["bytes"] == "num_splits * batch * heads_q * seqlen_q * 2056");
  CHECK(json["launch"]["steps"].size() == 2);
}

TEST_CASE("plan is silent about what a kernel has not") {
  Terminal terminal;
  const std::string one = terminal
                              .run({"plan", "fmha", "--batch", "2", "--heads-q", "4", "--heads-kv", "2", "--seqlen-q",
                                    "100", "--seqlen-k", "200"})
                              .out;
  CHECK(has(one, "\nlaunch tessera_fmha_"));
  CHECK(has(one, "\ndomain\n  heads_q must be a multiple of heads_kv\n"));
  CHECK(!has(one, "workspace"));
  CHECK(!has(one, "Tensor Memory"));
  // Zeroed, and of one launch's own.
  const std::string zeroed = terminal.run({"plan", "quantize", "--global-scale", "amax"}).out;
  CHECK(has(zeroed, "\nworkspace\n  bytes    4\n  aligned to 256 bytes, zeroed before every launch\n"));
}

TEST_CASE("plan says whose view the config of a transposed tile is, and why sizes are refused") {
  Terminal terminal;
  const char* const note = "(swapped: a, m and what belongs to them are b and n of the product";
  CHECK(has(terminal.run({"plan", "gemm", "--swap-ab", "on"}).out, note));
  CHECK(!has(terminal.run({"plan", "gemm", "--swap-ab", "off"}).out, note));

  const Outcome refused = terminal.run({"plan", "gemm", "--m", "64", "--n", "64", "--k", "65", "--json"});
  CHECK(refused.code == 3);
  const Json problems = Json::parse(refused.out)["size_problems"];
  REQUIRE(!problems.empty());
  CHECK(has(problems[0].get<std::string>(), "lda must be a multiple of 8"));
}

TEST_CASE("plan --time: the predicted time, for which GPU, and how far off such predictions were") {
  Terminal terminal;
  CHECK(terminal.run({"plan", "gemv", "--time", "h1000"}).err.find("tessera: --time h1000: no such GPU: ") == 0);
  CHECK(terminal.run({"plan", "gemv", "--arch", "sm_100a", "--time", "h200"}).err ==
        "tessera: --time h200: H200 runs sm_90a, and the problem is for sm_100a\n");
  Machine machine;
  if (!machine.compiler) return;
  const std::vector<std::string> words{"plan", "gemv", "--arch", "sm_90a", "--m",
                                       "512",  "--k",  "512",    "--time", "h200"};
  const std::string text = machine.terminal.run(words).out;
  CHECK_MESSAGE(has(text, "\npredicted (docs/time.md)\n  H200: "), text);
  CHECK(has(text, " us, limit: "));
  CHECK(has(text, "k 512"));
  CHECK(has(text, "\n  not measured; where predictions were compared their median error was "));
  std::vector<std::string> as_json = words;
  as_json.push_back("--json");
  const Json small = Json::parse(machine.terminal.run(as_json).out).at("predicted");
  CHECK(small.at("gpu") == "H200");
  CHECK(small.at("time_us").get<double>() > 2);  // a launch alone takes that
  CHECK(small.at("median_error_percent").get<double>() > 0);
  CHECK(!small.at("compared_with").get<std::string>().empty());
  as_json[5] = as_json[7] = "8192";
  const Json large = Json::parse(machine.terminal.run(as_json).out).at("predicted");
  CHECK(large.at("time_us").get<double>() > 4 * small.at("time_us").get<double>());
  CHECK(!Json::parse(machine.terminal.run({"plan", "gemv", "--json"}).out).contains("predicted"));
}

TEST_CASE(
    "plan: a choice for a GPU that nothing was measured on is as predicted, for which one, and how far off those "
    "were") {
  Terminal terminal;
  const auto plan = [&](const char* arch, bool as_json) {
    std::vector<std::string> words{"plan", "gemv", "--arch", arch};
    if (as_json) words.push_back("--json");
    return terminal.run(words).out;
  };
  for (const char* const arch : {"sm_100a", "sm_103f", "sm_120a"}) {
    const char* const gpu = arch == std::string_view("sm_120a") ? "RTX5090" : "B200";
    const Json chosen = Json::parse(plan(arch, true)).at("chosen");
    CHECK(chosen.at("predicted_for") == gpu);
    const double error = chosen.at("median_error_percent").get<double>();
    CHECK(error > 0);
    CHECK(has(
        plan(arch, false),
        fmt::format(
            "\n  chosen    as predicted for the {}, not measured; median error of predictions {:g} % (docs/time.md)\n",
            gpu, error)
            .c_str()));
  }
  CHECK(has(plan("sm_121a", false), "as predicted for the GB10, not measured; no prediction for it has been compared"));
  CHECK(Json::parse(plan("sm_121a", true)).at("chosen").at("median_error_percent").is_null());
  CHECK(!has(plan("sm_90a", false), "predicted"));
  CHECK(!Json::parse(plan("sm_90a", true)).contains("chosen"));
}

TEST_CASE("plans of a list are one JSON value, as it would be printed in one go, whatever is among them") {
  Terminal terminal;
  const std::string list = terminal.write(
      "list.json",
      R"({"kernels": [{"op": "fmha", "head_dim": [64, 40]}, {"op": "copy2d", "rank": [2, 9]}, {"op": "gemm", "m": 7}]})");
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"plan", list}, {"plan", "fmha", "--head-dim", "40,88"}, {"check", list}, {"warm", list, "--dry-run"}}) {
    std::vector<std::string> json = words;
    json.emplace_back("--json");
    const std::string out = terminal.run(json).out;
    CHECK(Json::parse(out).dump(2) + "\n" == out);
  }
  const Outcome outcome = terminal.run({"plan", list, "--json"});
  CHECK(outcome.code == 0);
  const Json plans = Json::parse(outcome.out);
  CHECK(plans["plans"].size() == 3);
  CHECK(plans["rejected"][0]["problem"] == "fmha --head-dim 40");
  CHECK(plans["rejected"][1]["problem"] == "copy2d --rank 9");
  CHECK(has(plans["rejected"][0]["reason"].get<std::string>(), "fmha has no kernel for head_dim 40"));
  // Of several threads' plans the order is the list's.
  CHECK(has(plans["plans"][2]["kernel"].get<std::string>(), "gemm"));
  const Outcome none = terminal.run({"plan", "fmha", "--head-dim", "40,88", "--json"});
  CHECK(none.code == 3);
  CHECK(Json::parse(none.out)["plans"].empty());
}

TEST_CASE("plan of a list: a size that some kernels lack rejects their problems, one that all lack fails the call") {
  Terminal terminal;
  const std::string list =
      terminal.write("list.json", R"({"kernels": [{"op": "fmha"}, {"op": "gemm", "m": [64, 128], "n": 64, "k": 64}]})");
  const Outcome some = terminal.run({"plan", list, "--size", "lda=72", "--json"});
  CHECK(some.code == 0);
  const Json json = Json::parse(some.out);
  CHECK(json["plans"].size() == 2);
  REQUIRE(json["rejected"].size() == 1);
  CHECK(has(json["rejected"][0]["reason"].get<std::string>(), "fmha has no size lda"));
  const Outcome none = terminal.run({"plan", list, "--size", "ldz=72", "--json"});
  CHECK(none.code == 2);
  CHECK(none.out.empty());
  CHECK(has(none.err, "fmha has no size ldz"));
}

TEST_CASE("plan takes a window without a bound on one side, as a launch does") {
  Terminal terminal;
  const Outcome open = terminal.run({"plan", "fmha", "--arch", "sm_100a", "--window", "sliding", "--window-size-left",
                                     "-1", "--window-size-right", "0"});
  CHECK(open.code == 0);
  CHECK(has(open.out, "hints: window_size_left -1, window_size_right 0\n"));
  const Outcome wrong =
      terminal.run({"plan", "fmha", "--arch", "sm_100a", "--window", "sliding", "--window-size-left", "-2"});
  CHECK(wrong.code == 2);
  CHECK(has(wrong.err, "window_size_left = -2: must be from -1 to 2147418112"));
}

}  // namespace
}  // namespace tessera::cli
