// Attention with packed heads and split keys, in the emulator against float64.
#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "generator/attention/fmha_operator.h"
#include "generator/attention/fmha_tcgen05_operator.h"
#include "generator/candidates.h"
#include "tessera/plan.h"
#include "tests/emulated/fmha_run.h"

namespace tessera::fmha_split_test {
namespace {

using emulator::Schedule;
using testing::check_runs;
using testing::find_compiler;

Fmha problem_of(int head_dim, Mask mask, int pack_gqa, SplitKv split_kv, const char* arch = "sm_100a") {
  Fmha problem;
  problem.arch = Arch::parse(arch);
  problem.head_dim = head_dim;
  problem.mask = mask;
  problem.pack_gqa = pack_gqa;
  problem.split_kv = split_kv;
  return problem;
}

constexpr auto kTwo = {Schedule::lazy, Schedule::adversarial};

TEST_CASE("attention on tcgen05: heads packed into the rows of a tile") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  const auto check = [&](const Fmha& problem, reference::FmhaSizes sizes, const testing::FmhaLaunchFacts& facts = {}) {
    sizes.head_dim = problem.head_dim;
    check_runs(problem, sizes, *compiler, kTwo, 1, facts);
  };
  for (const Mask mask : {Mask::none, Mask::causal}) {
    check(problem_of(64, mask, 8, SplitKv::off), {2, 16, 2, 70, 300});
    check(problem_of(64, mask, 3, SplitKv::off), {1, 6, 2, 100, 300});     // 126 of 128 rows
    check(problem_of(64, mask, 100, SplitKv::off), {2, 100, 1, 5, 290});   // one query in 128 rows
    check(problem_of(128, mask, 128, SplitKv::off), {1, 128, 1, 5, 300});  // one query fills a product
    check(problem_of(64, mask, 256, SplitKv::off), {1, 256, 1, 3, 200});   // two products for a query
    check(problem_of(512, mask, 128, SplitKv::off), {1, 128, 1, 3, 300});  // a query over both CTAs
    check(problem_of(512, mask, 16, SplitKv::off), {1, 16, 1, 11, 300});
  }
  check(problem_of(64, Mask::causal, 300, SplitKv::off), {1, 300, 1, 3, 200});  // three parts of a query, two a tile
  check(problem_of(128, Mask::none, 129, SplitKv::off), {2, 129, 1, 2, 200});   // one row left over
  check(problem_of(512, Mask::causal, 96, SplitKv::off), {1, 192, 2, 2, 300});
  Fmha other = problem_of(64, Mask::causal, 5, SplitKv::off);
  other.output = Output::unnormalized;
  other.dtype = DType::f16;
  check(other, {2, 10, 2, 60, 200});
  other.output = Output::normalized;
  other.cta_group = 2;
  other.head_dim = 128;
  other.window = Window::sliding;
  check(other, {1, 5, 1, 130, 400}, {.softmax_scale = {}, .window_size_left = 120, .window_size_right = 0});
}

void check_split_keys(const char* arch, Compiler& compiler) {
  const auto check = [&](const Fmha& problem, reference::FmhaSizes sizes, std::int64_t num_splits,
                         testing::FmhaLaunchFacts facts = {}) {
    sizes.head_dim = problem.head_dim;
    facts.num_splits = num_splits;
    check_runs(problem, sizes, compiler, kTwo, 1, facts);
  };
  for (const Mask mask : {Mask::none, Mask::causal}) {
    const Fmha single = problem_of(64, mask, 1, SplitKv::on, arch);
    check(single, {1, 2, 1, 70, 900}, 3);
    check(single, {1, 1, 1, 300, 200}, 2, {.softmax_scale = 1.0});  // more queries than keys: the first rows see none
    check(single, {2, 1, 1, 5, 300}, 16);                           // more parts than steps
    check(single, {1, 1, 1, 600, 600}, 1);
    check(problem_of(128, mask, 16, SplitKv::on, arch), {2, 16, 1, 4, 800}, 4);
    const bool is_sm90 = arch == std::string_view("sm_90a");  // whose packed heads divide 64
    const int heads = is_sm90 ? 64 : mask == Mask::none ? 128 : 67;
    check(problem_of(512, mask, heads, SplitKv::on, arch), {1, heads, 1, 1, 700}, 3);
  }
  check(problem_of(64, Mask::none, 1, SplitKv::on, arch), {1, 2, 1, 3, 0}, 3);
  Fmha other = problem_of(64, Mask::causal, 8, SplitKv::on, arch);
  other.output = Output::unnormalized;
  other.window = Window::sliding;
  other.seqused = UsedLengths::qk;
  testing::FmhaLaunchFacts facts;
  facts.window_size_left = 300;
  facts.seqused_q = {30, 7, 0};
  facts.seqused_k = {800, 3, 500};
  check(other, {3, 8, 1, 33, 800}, 3, facts);
}

TEST_CASE("attention: keys split among CTAs and merged") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const char* const arch : {"sm_90a", "sm_100a"}) check_split_keys(arch, *compiler);
}

TEST_CASE("attention: the kernel that merges split keys is in place before the parts are") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const char* const arch : {"sm_90a", "sm_100a"}) {
    CAPTURE(arch);
    const Plan plan = make_plan(problem_of(64, Mask::none, 1, SplitKv::on, arch));
    REQUIRE(plan.launch.steps.size() == 2);
    CHECK(plan.launch.steps[0].programmatic_stream_serialization);
    CHECK(plan.launch.steps[1].programmatic_stream_serialization);
    SourceBundle bundle = emit(plan);
    REQUIRE(bundle.merge != nullptr);
    const std::string merge = compiler->compile(*bundle.merge).ptx;
    bundle.merge = nullptr;
    const std::string ptx = compiler->compile(bundle).ptx;
    REQUIRE(merge.find(plan.launch.steps[1].entry + "(") != std::string::npos);
    // The parts read nothing before the kernel in front of them has ended, and only then let the merge come.
    const std::size_t parts = ptx.find(plan.launch.steps[0].entry + "("), wait = ptx.find("griddepcontrol.wait", parts);
    CHECK(wait < ptx.find("griddepcontrol.launch_dependents", parts));
    CHECK(wait < ptx.find("ld.global", parts));
    CHECK(wait < ptx.find("cp.async.bulk", parts));
    CHECK(ptx.find("griddepcontrol.launch_dependents", parts) != std::string::npos);
    // Nothing of the workspace may be read before, nor through the cache of what never changes.
    CHECK(merge.find("griddepcontrol.wait") < merge.find("ld.global"));
    CHECK(merge.find("ld.global.nc") == std::string::npos);
  }
}

TEST_CASE("attention on tcgen05: packed and split where queries are few") {
  Fmha problem;
  problem.arch = Arch::parse("sm_100a");
  const auto chosen = [&] { return chosen_config<FmhaTcgen05Operator>(problem); };
  CHECK(chosen().pack_gqa == 1);
  CHECK(chosen().split_kv == SplitKv::off);
  problem.seqlen_q = 1;
  CHECK(chosen().split_kv == SplitKv::on);
  problem.heads_q = 128;
  problem.heads_kv = 1;
  CHECK(chosen().pack_gqa == 128);
  problem.heads_q = 160;  // more than rows, and no multiple of them
  CHECK(chosen().pack_gqa == 160);
  problem.heads_q = 128;
  problem.seqlen_k = 500;
  CHECK(chosen().split_kv == SplitKv::off);
  problem.seqlen_k = 100000;
  problem.batch = 1000;
  CHECK(chosen().split_kv == SplitKv::off);
  problem.seqlen_q = 4096;
  CHECK(chosen().pack_gqa == 1);
}

TEST_CASE("attention on wgmma: packed and split where queries are few") {
  Fmha problem;
  const auto chosen = [&] { return chosen_config<FmhaOperator>(problem); };
  CHECK(chosen().split_kv == SplitKv::off);
  problem.seqlen_q = 1;  // keys unknown: nobody is asked for a workspace
  CHECK(chosen().split_kv == SplitKv::off);
  problem.seqlen_k = 1024;
  CHECK(chosen().split_kv == SplitKv::off);
  problem.batch = 1;
  problem.heads_q = 64;
  problem.heads_kv = 8;
  CHECK(chosen().pack_gqa == 8);
  CHECK(chosen().split_kv == SplitKv::on);
  problem.seqlen_k = 500;
  CHECK(chosen().split_kv == SplitKv::off);
  problem.seqlen_k = 100000;
  CHECK(chosen().split_kv == SplitKv::on);
  problem.batch = 1000;
  CHECK(chosen().split_kv == SplitKv::off);
}

}  // namespace
}  // namespace tessera::fmha_split_test
