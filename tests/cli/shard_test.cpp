// warm --shard: the parts of a list are all of it, each kernel is in one, and schedulers' variables are read on
// request.
#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/command.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

std::set<std::string> kernels_of(const Outcome& outcome) {
  std::set<std::string> names;
  for (const auto& entry : Json::parse(outcome.out)["entries"]) names.insert(entry["entry"].get<std::string>());
  return names;
}

TEST_CASE("warm --shard: parts are disjoint, whole, even, and do not change with the list") {
  Terminal terminal;
  const std::vector<std::string> list{"warm",        "fmha",    "--head-dim", "64,96,128,192,256", "--mask",
                                      "none,causal", "--dtype", "bf16,f16",   "--dry-run",         "--json"};
  const auto part = [&](const std::string& shard, std::vector<std::string> words) {
    words.insert(words.end(), {"--shard", shard});
    return kernels_of(terminal.run(words));
  };
  const std::set<std::string> all = kernels_of(terminal.run(list));
  std::set<std::string> seen;
  for (const std::string shard : {"0/3", "1/3", "2/3"}) {
    const std::set<std::string> names = part(shard, list);
    CHECK(names.size() >= all.size() / 6);
    for (const std::string& name : names) CHECK(seen.insert(name).second);
    std::vector<std::string> fewer = list;
    fewer[3] = "64,128";
    for (const std::string& name : part(shard, fewer)) CHECK(names.count(name) == 1);
  }
  CHECK(seen == all);
  CHECK(part("0/1", list) == all);
}

TEST_CASE("warm --shard auto reads what a scheduler says, on request alone") {
  Terminal terminal;
  const std::vector<std::string> list{"warm", "fmha", "--head-dim", "64,96,128,192,256", "--dry-run", "--json"};
  const auto with = [&](std::vector<std::pair<const char*, const char*>> variables, std::vector<std::string> flags) {
    for (const auto& [name, value] : variables) ::setenv(name, value, 1);
    std::vector<std::string> words = list;
    words.insert(words.end(), flags.begin(), flags.end());
    Outcome outcome = terminal.run(words);
    for (const auto& each : variables) ::unsetenv(each.first);
    return outcome;
  };
  const auto second = kernels_of(with({}, {"--shard", "1/3"}));
  const auto all = kernels_of(with({}, {}));
  const std::vector<std::string> automatic{"--shard", "auto"};
  CHECK(kernels_of(with({{"SLURM_ARRAY_TASK_ID", "5"}, {"SLURM_ARRAY_TASK_COUNT", "3"}, {"SLURM_ARRAY_TASK_MIN", "4"}},
                        automatic)) == second);
  CHECK(kernels_of(with({{"CI_NODE_INDEX", "2"}, {"CI_NODE_TOTAL", "3"}}, automatic)) == second);
  CHECK(kernels_of(with({{"JOB_COMPLETION_INDEX", "1"}}, {"--shard", "auto", "--shards", "3"})) == second);
  CHECK(kernels_of(with({{"TESSERA_SHARD_INDEX", "1"}, {"TESSERA_SHARD_COUNT", "3"}}, automatic)) == second);
  CHECK(kernels_of(with({{"CI_NODE_INDEX", "2"}, {"CI_NODE_TOTAL", "3"}}, {})) == all);
  // --array=4-8:2
  CHECK(kernels_of(with({{"SLURM_ARRAY_TASK_ID", "6"},
                         {"SLURM_ARRAY_TASK_COUNT", "3"},
                         {"SLURM_ARRAY_TASK_MIN", "4"},
                         {"SLURM_ARRAY_TASK_STEP", "2"}},
                        automatic)) == second);
  // What was set for tessera counts inside a job of Slurm, too.
  CHECK(kernels_of(with({{"SLURM_ARRAY_TASK_ID", "0"},
                         {"SLURM_ARRAY_TASK_COUNT", "9"},
                         {"TESSERA_SHARD_INDEX", "1"},
                         {"TESSERA_SHARD_COUNT", "3"}},
                        automatic)) == second);
  const std::vector<std::pair<const char*, const char*>> gitlab{{"CI_NODE_INDEX", "2"}, {"CI_NODE_TOTAL", "3"}};
  CHECK(kernels_of(with(gitlab, {"--shard", "auto", "--shards", "3"})) == second);
  CHECK(with(gitlab, {"--shard", "auto", "--shards", "6"}).err.find("would be missing") != std::string::npos);
  CHECK(with({}, {"--shards", "3"}).code == 2);
  CHECK(with({}, {"--shard", "1/3", "--shards", "3"}).code == 2);
  CHECK(with({}, automatic).code == 2);
  CHECK(with({{"JOB_COMPLETION_INDEX", "1"}}, automatic).err.find("give --shards N") != std::string::npos);
  CHECK(with({{"CI_NODE_INDEX", "4"}, {"CI_NODE_TOTAL", "3"}}, automatic).code == 2);
  CHECK(with({{"CI_NODE_INDEX", "x"}, {"CI_NODE_TOTAL", "3"}}, automatic).code == 2);
  for (const char* wrong : {"3/3", "-1/3", "1", "1/0", "a/b", "1/3/4"}) {
    CAPTURE(wrong);
    CHECK(with({}, {"--shard", wrong}).code == 2);
  }
}

}  // namespace
}  // namespace tessera::cli
