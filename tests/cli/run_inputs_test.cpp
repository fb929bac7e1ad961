// What `run` feeds by default, and its default sizes, show faults that other inputs and sizes do not.
#include <algorithm>
#include <filesystem>

#include "base/npy.h"
#include "cli/time_inputs.h"
#include "tests/cli/machine.h"
#include "tests/support/input_faults.h"
#include "tests/support/sample.h"

using namespace tessera;
using namespace tessera::cli;
using testing::InputFault;
using testing::Words;

namespace {

Words templates_with(const Machine& machine, const InputFault& fault) {
  return templates_with_fault(machine, fault.file, fault.from, fault.to);
}

Outcome run(Machine& machine, const InputFault& fault, const Words& flags, const Words& templates) {
  Words words{"run"};
  words.insert(words.end(), fault.common.begin(), fault.common.end());
  words.insert(words.end(), flags.begin(), flags.end());
  words.insert(words.end(), {"--device", "emulator"});
  words.insert(words.end(), templates.begin(), templates.end());
  return machine.terminal.run(words);
}

void check_fault(const InputFault& fault) {
  Machine machine;
  if (!machine.compiler) return;
  CAPTURE(fault.fault);
  machine.terminal.refuses_hazards = false;
  const Outcome right = run(machine, fault, fault.seen, {});
  CHECK_MESSAGE(right.code == 0, right.out, right.err);
  const Words templates = templates_with(machine, fault);
  for (const Words& flags : fault.unseen) {
    const Outcome unseen = run(machine, fault, flags, templates);
    CHECK_MESSAGE(unseen.code == 0, testing::text_of(flags), unseen.out, unseen.err);
  }
  const Outcome seen = run(machine, fault, fault.seen, templates);
  CHECK_MESSAGE(seen.code == 1, seen.out, seen.err);
}

}  // namespace

TEST_CASE("run: what inputs of attention must have to show a fault") {
  testing::Sample sample(24);
  for (const InputFault& fault : testing::input_faults())
    if (fault.common.front() == "fmha" && sample.takes()) check_fault(fault);
}

TEST_CASE("run: what inputs of products and quantisers must have to show a fault") {
  testing::Sample sample(24);
  for (const InputFault& fault : testing::input_faults())
    if (fault.common.front() != "fmha" && sample.takes()) check_fault(fault);
}

TEST_CASE("run: padding of scales that is NaN everywhere hides a fault") {
  Machine machine;
  if (!machine.compiler) return;
  const auto& all = testing::input_faults();
  const auto fault = std::find_if(all.begin(), all.end(), [](const InputFault& each) { return each.unseen.empty(); });
  REQUIRE(fault != all.end());
  // Two groups of 150 rows, two tiles of 128 rows each and one to spare, 16 blocks: 4 tiles along k.
  std::vector<std::byte> codes(std::size_t{5} * 4 * 512, std::byte{0xFF});
  for (std::size_t row = 0; row < 2 * 150; ++row)
    for (std::size_t block = 0; block < 16; ++block) {
      const std::size_t tile = row / 150 * 2 + row % 150 / 128, in_tile = row % 150 % 128;
      codes[(tile * 4 + block / 4) * 512 + in_tile % 32 * 16 + in_tile / 32 * 4 + block % 4] = std::byte{0x38};
    }
  const std::string file = (machine.terminal.folder.path / "sfa.npy").string();
  write_npy(file, {"|u1", {1, 5, 4, 32, 4, 4}, codes});
  const Words flags{"--input", "sfa=" + file};
  CHECK(run(machine, *fault, flags, templates_with(machine, *fault)).code == 0);
  // A number in the padding behind the first group's last row.
  for (std::size_t block = 0; block < 16; ++block) codes[(4 + block / 4) * 512 + 22 * 16 + block % 4] = std::byte{0x38};
  write_npy(file, {"|u1", {1, 5, 4, 32, 4, 4}, codes});
  CHECK(run(machine, *fault, flags, {}).code == 0);
  CHECK(run(machine, *fault, flags, templates_with(machine, *fault)).code == 1);
}

TEST_CASE("run: of tensors with more than 2^31 elements tiles are compared, where they can be looked at alone") {
  Machine machine;
  if (!machine.compiler) return;
  const auto run = [&](Words words) {
    words.insert(words.begin(),
                 {"run", "gemm", "--arch", "sm_100a", "--device", "emulator", "--m", "130", "--n", "72"});
    return machine.terminal.run(words);
  };
  // Gaps count: row 129 of a begins behind 2^31 elements.
  const Words far{"--k", "200", "--size", "lda=16777224", "--size", "ldd=16777224"};
  const Outcome outcome = run(far);
  CHECK_MESSAGE(outcome.code == 0, outcome.out, outcome.err);
  CHECK(outcome.err.find("more than 2^31 elements: ") != std::string::npos);
  CHECK(outcome.out.find(" 130 of 130 rows") != std::string::npos);
  Words with_groups = far;
  with_groups.insert(with_groups.end(), {"--grouping", "masked", "--l", "2"});
  CHECK(run(with_groups).code == 3);
  Words with_file = far;
  with_file.insert(with_file.end(), {"--save", "d=" + (machine.terminal.folder.path / "d.npy").string()});
  CHECK(run(with_file).code == 3);
}

TEST_CASE("run: arrays of row operators bring their sizes along") {
  Machine machine;
  if (!machine.compiler) return;
  const auto file = [&](const std::string& name, const std::string& descr, const std::vector<std::int64_t>& shape) {
    NpyArray array{descr, shape, {}};
    array.data.resize(static_cast<std::size_t>(array.count()) * 4);
    write_npy(machine.terminal.folder.path / (name + ".npy"), array);
    return name + "=" + (machine.terminal.folder.path / (name + ".npy")).string();
  };
  const auto passes = [&](const std::string& chain, const std::string& rows, const std::vector<std::string>& arrays,
                          const Words& sizes = {}) {
    Words words{"run", "rows", "--dtype", "f32", "--columns", "64", "--chain", chain, "--device", "emulator"};
    for (const std::string& array : arrays) words.insert(words.end(), {"--input", array});
    words.insert(words.end(), sizes.begin(), sizes.end());
    const Outcome outcome = machine.terminal.run(words);
    CHECK_MESSAGE(outcome.code == 0, chain, outcome.out, outcome.err);
    CHECK(outcome.out.find(rows + " of " + rows + " rows") != std::string::npos);
  };
  const std::string x = file("x", "<f4", {11, 64});
  passes("rope+f32", "11", {x, file("positions", "<i4", {11})});
  passes("rope+f32", "11", {x, file("positions", "<i4", {6})});  // two heads each, the last token one
  passes("rope+f32", "5", {file("positions", "<i4", {5})}, {"--rows", "5"});
  passes("gather+f32", "4", {x, file("indices", "<i4", {4})});
  passes("combine(3,no_weight)+f32", "7", {x, file("indices", "<i4", {7, 3})});
  passes("compress(2)+f32", "2", {x, file("scores", "<f4", {11, 64}), file("tokens", "<i4", {2, 2})});
}

TEST_CASE("where time alone is asked ranges are causal, contexts whole, pages there, and scores of topk numbers") {
  const auto inputs_of = [](const Problem& problem, const std::vector<GivenSize>& given, bool is_for_time) {
    const Plan plan = make_plan(problem);
    const LaunchSizes launch(plan.launch);
    const std::unique_ptr<RunOperator> op = make_run_operator(plan.op);
    const std::vector<std::int64_t> sizes = *launch.complete(given);
    RunFlags flags;
    flags.sizes = launch.by_name(sizes);
    return is_for_time ? inputs_for_time(*op, plan, launch, sizes, flags) : op->inputs(plan, launch, sizes, flags);
  };
  const auto integer = [](const reference::Tensor& tensor, std::int64_t i) {
    return static_cast<std::int64_t>(tensor.at(i));
  };
  for (const bool is_for_time : {true, false}) {
    CAPTURE(is_for_time);
    const auto ragged = inputs_of(Indexer{}, {{"m", 96}, {"n", 500}}, is_for_time);
    int causal = 0;
    for (std::int64_t i = 0; i < 96; ++i)
      causal += integer(ragged.at("ks"), i) == 0 && integer(ragged.at("ke"), i) == 500 - 96 + i + 1;
    CHECK((causal == 96) == is_for_time);
    const auto paged = inputs_of(Indexer{.kv_layout = KvLayout::paged},
                                 {{"batch", 40}, {"max_pages", 3}, {"pages", 120}}, is_for_time);
    int whole = 0, there = 0;
    for (std::int64_t i = 0; i < 40; ++i) whole += integer(paged.at("context_lens"), i) == 3 * 64;
    for (std::int64_t i = 0; i < 120; ++i) {
      const std::int64_t page = integer(paged.at("block_table"), i);
      there += page >= 0 && page < 120;
    }
    CHECK((whole == 40) == is_for_time);
    CHECK((there == 120) == is_for_time);
    const auto topk = inputs_of(Topk{.range = RowRange::lengths}, {{"m", 18}, {"n", 4096}}, is_for_time);
    int ordinary = 0;
    for (std::int64_t row = 0; row < 18; ++row)
      ordinary += topk.at("scores").at(row * 4096) != topk.at("scores").at(row * 4096 + 1) &&
                  integer(topk.at("lengths"), row) == 4096;
    CHECK((ordinary == 18) == is_for_time);
  }
}

TEST_CASE("the page of planted faults lists those that weak inputs do not show") {
  const std::filesystem::path file = std::filesystem::path(TESSERA_SOURCE_DIR) / "docs/mutations.md";
  std::string page = read_text(file);
  const std::string section = testing::input_faults_page();
  const char* const update = std::getenv("TESSERA_UPDATE_GOLDEN");
  if (update != nullptr && std::string_view(update) == "1") {
    const std::size_t begin = std::min(page.find("## Faults that weak inputs"), page.find("## tessera_"));
    page.replace(begin, page.find("\n## ", begin) + 1 - begin, section);
    write_file(file, page);
  }
  CHECK(page.find(section) != std::string::npos);
}
