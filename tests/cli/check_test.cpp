// Why `check` fails is on stderr whatever stdout holds.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/command.h"

using namespace tessera;
using namespace tessera::cli;
using Json = nlohmann::ordered_json;

namespace {
constexpr const char* kRejected = "2 problems are rejected, the first: fmha has no kernel for head_dim 100";
}

TEST_CASE("check --json names what is missing on stderr too") {
  Terminal terminal;
  REQUIRE(terminal.run({"warm", "fmha", "--head-dim", "64"}).code == 0);
  for (const bool is_quiet : {false, true}) {
    std::vector<std::string> arguments = {"check", "fmha", "--head-dim", "64,96", "--json"};
    if (is_quiet) arguments.push_back("--quiet");
    const Outcome outcome = terminal.run(arguments);
    CHECK(outcome.code == 1);
    const Json missing = Json::parse(outcome.out)["missing"];
    REQUIRE(missing.size() == 1);
    CHECK(outcome.err ==
          "missing: " + missing[0]["entry"].get<std::string>() + "  (tessera warm fmha --head-dim 96)\n");
  }
  // The lines of stdout are not said twice.
  for (const bool is_quiet : {false, true}) {
    std::vector<std::string> arguments = {"check", "fmha", "--head-dim", "64,96"};
    if (is_quiet) arguments.push_back("--quiet");
    const Outcome text = terminal.run(arguments);
    CHECK(text.code == 1);
    CHECK(text.err == "1 of 2 kernels is missing\n");
    CHECK(text.out.find("missing  ") == 0);
  }
  const Outcome many = terminal.run({"check", "fmha", "--head-dim", "64,96,128,192,256,512", "--mask", "none,causal",
                                     "--dtype", "bf16,f16", "--json"});
  CHECK(many.code == 1);
  const std::size_t left = Json::parse(many.out)["missing"].size();
  REQUIRE(left > 21);
  CHECK(std::count(many.err.begin(), many.err.end(), '\n') == 21);
  CHECK(many.err.ends_with("... and " + std::to_string(left - 20) + " more\n"));
  CHECK(terminal.run({"check", "fmha", "--head-dim", "64", "--json"}).err.empty());
}

TEST_CASE("run --quiet of a product without kernels says why") {
  Terminal terminal;
  const Outcome outcome = terminal.run({"run", "fmha", "--head-dim", "100,104", "--device", "emulator", "--quiet"});
  CHECK(outcome.code == 3);
  CHECK_MESSAGE(outcome.err.find(kRejected) == 0, outcome.err);
}

TEST_CASE("check --quiet says why no kernel exists") {
  Terminal terminal;
  for (const bool is_json : {false, true}) {
    std::vector<std::string> arguments = {"check", "fmha", "--head-dim", "100,104", "--quiet"};
    if (is_json) arguments.push_back("--json");
    const Outcome outcome = terminal.run(arguments);
    CHECK(outcome.code == 3);
    CHECK_MESSAGE(outcome.err.find(kRejected) == 0, outcome.err);
  }
  // Where the call passes it is quiet.
  REQUIRE(terminal.run({"warm", "fmha", "--head-dim", "64"}).code == 0);
  const Outcome passes = terminal.run({"check", "fmha", "--head-dim", "64,100", "--quiet"});
  CHECK(passes.code == 0);
  CHECK(passes.err.empty());
}
