// `run` of attention over keys in pages and ragged keys: what it draws and poisons shows faults of the loads.
#include <span>

#include "base/npy.h"
#include "tests/cli/machine.h"
#include "tests/support/sample.h"

using namespace tessera;
using namespace tessera::cli;

namespace {

Outcome run_keys(Machine& machine, const std::vector<std::string>& flags, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words{"run", "fmha", "--device", "emulator", "--head-dim", "64", "--tile-m", "64"};
  for (const auto* const list : {&flags, &more}) words.insert(words.end(), list->begin(), list->end());
  return machine.terminal.run(words);
}

const std::vector<std::string> kPagedFlags{"--kv-layout", "paged",      "--page-size", "16",         "--batch",
                                           "3",           "--seqlen-q", "5",           "--seqlen-k", "300"};
const std::vector<std::string> kRaggedFlags{"--kv-layout", "ragged", "--batch",    "3",
                                            "--seqlen-q",  "5",      "--seqlen-k", "300"};

std::vector<std::string> fault_of_loads(const Machine& machine, const std::string& from, const std::string& to) {
  return templates_with_fault(machine, "attention/placed_keys.cuh", from, to);
}

/// Six runs take six times as long.
const char* schedule() { return testing::takes_all_cases() ? "all" : "adversarial"; }

/// Whether this run plants a test's next fault: each is a kernel to compile.
bool plants_next() { return testing::takes_next_case(24); }

}  // namespace

TEST_CASE("run: keys in pages and ragged keys, without a word about where they lie") {
  Machine machine;
  if (!machine.compiler) return;
  CHECK(run_keys(machine, kPagedFlags, {"--schedule", schedule()}).code == 0);
  CHECK(run_keys(machine, kRaggedFlags, {"--schedule", schedule()}).code == 0);
  CHECK(run_keys(machine, {"--kv-layout", "paged", "--page-size", "1", "--mask", "causal"}).code == 0);
  CHECK(run_keys(machine, {"--kv-layout", "paged", "--page-size", "128", "--batch", "0"}).code == 0);
  const Outcome short_table = run_keys(machine, kPagedFlags, {"--max-pages", "5"});
  CHECK(short_table.code == 2);
  CHECK(short_table.err.find("seqlen_k must be at most max_pages times page_size, which is 16") != std::string::npos);
  const Outcome small_pool = run_keys(machine, kPagedFlags, {"--pages", "1"});
  CHECK(small_pool.err.find("pages = 1: sequences of these lengths need ") != std::string::npos);
}

TEST_CASE("run: faults of loads from pages show") {
  Machine machine;
  if (!machine.compiler) return;
  machine.terminal.refuses_hazards = false;
  using FlagList = std::vector<std::string>;
  const auto fails = [&](const FlagList& flags, const std::string& from, const std::string& to,
                         const FlagList& more = {}) {
    if (!plants_next()) return;
    FlagList all = fault_of_loads(machine, from, to);
    all.insert(all.end(), more.begin(), more.end());
    CAPTURE(from);
    CHECK(run_keys(machine, flags, all).code == 1);
  };
  // A page too far.
  fails(kPagedFlags, "/ kPageSize);", "/ kPageSize + 1);");
  // A length that is not the sequence's: what lies behind its end in the last page is NaN.
  for (const FlagList& flags : {kPagedFlags, kRaggedFlags})
    fails(flags, "return is_v() && kBoxKeys > 1", "return false && kBoxKeys > 1");
  fails(kPagedFlags, "clear_and_arrive(slot, full, end - first_key, scales);",
        "clear_and_arrive(slot, full, end - first_key + 1, scales);");
  fails(kPagedFlags, "page >= 0 && key < end ? 16 : 0", "page >= 0 ? 16 : 0", {"--kv-copy", "cp_async"});
  // The neighbour's row of the table.
  fails(kPagedFlags, "static_cast<long long>(batch) * p.max_pages", "0");
  // Rows cleared before their box has come, and without the tensor cores' knowledge.
  fails(kPagedFlags, "    ptx::mbarrier_wait_parity(tail, parity);\n", "", {"--schedule", "all"});
  const Outcome unfenced =
      run_keys(machine, kPagedFlags, fault_of_loads(machine, "    ptx::fence_proxy_async_shared();\n", ""));
  CHECK(unfenced.out.find("missing-proxy-fence") != std::string::npos);
}

TEST_CASE("run: keys in e4m3, and faults of descales and of what is widened") {
  Machine machine;
  if (!machine.compiler) return;
  const std::vector<std::string> dense{"--kv-dtype", "e4m3", "--batch",    "2", "--heads-q",  "4",
                                       "--heads-kv", "2",    "--seqlen-q", "5", "--seqlen-k", "300"};
  CHECK(run_keys(machine, dense, {"--schedule", schedule(), "--races"}).code == 0);
  CHECK(run_keys(machine, kPagedFlags, {"--kv-dtype", "e4m3"}).code == 0);
  machine.terminal.refuses_hazards = false;
  const auto fails = [&](const std::string& from, const std::string& to) {
    if (plants_next())
      CHECK(run_keys(machine, dense, templates_with_fault(machine, "fmha/widened.cuh", from, to)).code == 1);
  };
  fails("head * stride_head", "0 * stride_head");
  fails("min(at.batch, p.batch - 1) * stride_batch", "0");
  const auto unfenced =
      templates_with_fault(machine, "fmha/widened.cuh", "      ptx::fence_proxy_async_shared();\n", "");
  std::vector<std::string> with_races = dense;
  with_races.emplace_back("--races");
  const Outcome hazards = run_keys(machine, with_races, unfenced);
  CHECK(hazards.out.find("hazard") != std::string::npos);
}

TEST_CASE("run: e4m3 in all, and faults of the transposition, of references and of sums") {
  Machine machine;
  if (!machine.compiler) return;
  const std::vector<std::string> flags{"--dtype",    "e4m3", "--batch",         "2",  "--heads-q", "4",
                                       "--heads-kv", "2",    "--seqlen-q",      "70", "--tile-n",  "64",
                                       "--seqlen-k", "300",  "--promote-every", "64"};
  CHECK(run_keys(machine, flags, {"--schedule", schedule(), "--races"}).code == 0);
  CHECK(run_keys(machine, kPagedFlags, {"--dtype", "e4m3", "--o-dtype", "f16"}).code == 0);
  CHECK(run_keys(machine, flags, {"--inputs", "integer"}).code == 0);
  machine.terminal.refuses_hazards = false;
  const auto fails = [&](const std::string& file, const std::string& from, const std::string& to) {
    CAPTURE(from);
    if (plants_next()) CHECK(run_keys(machine, flags, templates_with_fault(machine, file, from, to)).code == 1);
  };
  fails("fmha/transpose.cuh", "0x7531", "0x5731");
  fails("fmha/softmax_8_bit.cuh", "ptx::ex2(-raise[r])", "1.0f");
  fails("fmha/softmax_8_bit.cuh", "max(partial[i], of_pair)", "partial[i]");
  fails("fmha/step_8_bit.cuh", "      accumulate = 0;\n", "");
  fails("fmha/promoted.cuh", "ptx::ld_shared_f32(address) * factor[0]", "ptx::ld_shared_f32(address)");
  fails("fmha/consumer.cuh", "p.q_descale_stride_batch, p.q_descale_stride_head", "0, p.q_descale_stride_head");
  const auto has = [&](const char* hazard, const std::string& from) {
    if (!plants_next()) return;
    std::vector<std::string> more = templates_with_fault(machine, "fmha/transpose.cuh", from, "");
    more.insert(more.end(), {"--races", "--schedule", "all"});
    CHECK(run_keys(machine, flags, more).out.find(hazard) != std::string::npos);
  };
  has("missing-proxy-fence", "      ptx::fence_proxy_async_shared();\n");
  has("hazard",
      "      ptx::mbarrier_wait_parity(barrier_at<kBarriers.v_empty>(smem, ring.slot()), ring.parity() ^ 1);\n");
}

TEST_CASE("run: faults of a step's whole tiles and of its ranges of dealt keys") {
  Machine machine;
  if (!machine.compiler) return;
  const std::string lengths = (machine.terminal.folder.path / "lengths").string();
  write_file(lengths, "1 400\n130 190\n1 90\n0 20\n100 100\n1 0\n40 300\n17 17\n");
  std::vector<std::string> step{"--split-kv", "dealt", "--pack-gqa", "4", "--tile-n", "64"};
  for (const char* const word : {"--kv-layout", "paged", "--page-size", "16", "--q-layout", "ragged", "--mask",
                                 "causal", "--batch", "8", "--heads-q", "8", "--heads-kv", "2", "--lengths"})
    step.emplace_back(word);
  step.push_back(lengths);
  const auto code = [&](int num_sms, std::vector<std::string> more) {
    more.insert(more.end(), {"--size", "num_sms=" + std::to_string(num_sms)});
    return run_keys(machine, step, more).code;
  };
  CHECK(code(2, {"--schedule", schedule(), "--races"}) == 0);
  machine.terminal.refuses_hazards = false;
  const auto fails = [&](int num_sms, const std::string& file, const std::string& from, const std::string& to) {
    CAPTURE(from);
    if (plants_next()) CHECK(code(num_sms, templates_with_fault(machine, file, from, to)) == 1);
  };
  fails(2, "fmha/step_work.cuh", "head, tiles - 1 - (place", "head, tiles - 2 - (place");
  fails(3, "fmha/step_work.cuh", "(number < level.rest ? 1 : 0)", "0");     // blocks that nobody takes
  fails(5, "fmha/step_work.cuh", "own > 0 ? with_range", "own > 0 ? cta");  // ranks count CTAs without a range
  fails(3, "fmha/merge_dealt.cuh", "begin_of(before + found.parts) < begin + cut.blocks", "false");  // a third part
  fails(3, "fmha/merge_dealt.cuh", "const int begin_before = begin_of(before)", "const int begin_before = begin");
  fails(2, "fmha/step_work.cuh", "|| longest > work.most_blocks;", "|| tiles > 1;");  // dealt too
  // The last tile is nobody's.
  if (plants_next()) {
    const auto a_tile_less = templates_with_fault(machine, "fmha/step_work.cuh", "number < work.whole_tiles && (",
                                                  "number + 1 < work.whole_tiles && (");
    CHECK(code(2, a_tile_less) != 0);
  }
  // Another order is as right as this one.
  const auto other_order =
      templates_with_fault(machine, "fmha/step_work.cuh", "round % 2 == 0 ? cta", "round % 2 == 1 ? cta");
  CHECK(code(2, other_order) == 0);
}

TEST_CASE("run: tables and lengths from files") {
  Machine machine;
  if (!machine.compiler) return;
  const auto file = [&](const char* name, std::vector<std::int64_t> shape, const std::vector<std::int32_t>& values) {
    const std::string path = (machine.terminal.folder.path / name).string();
    const auto bytes = std::as_bytes(std::span(values));
    write_npy(path, {"<i4", std::move(shape), {bytes.begin(), bytes.end()}});
    return path;
  };
  // A shared page, one that is none of the pool, entries behind the end.
  const std::string table = file("table.npy", {2, 3}, {4, 2, 1000000, 4, -1, 3});
  const std::string used = file("used.npy", {2}, {31, 48});
  CHECK(run_keys(machine, {"--kv-layout", "paged", "--page-size", "16", "--seqlen-q", "5", "--input",
                           "block_table=" + table, "--input", "seqused_k=" + used})
            .code == 0);
  const std::string ends = file("ends.npy", {4}, {0, 100, 100, 170});
  CHECK(run_keys(machine, {"--kv-layout", "ragged", "--seqlen-q", "5", "--batch", "3", "--seqlen-k", "150", "--input",
                           "cu_seqlens_k=" + ends})
            .code == 0);
  // Ends that lie outside of the tensor, run backwards and overlap: cut as the kernel cuts them.
  for (const std::vector<std::int32_t>& wild : std::vector<std::vector<std::int32_t>>{
           {-5, 10, 30, 20}, {0, -5, 30, 2147483647}, {-2147483647 - 1, 2147483647, 0, 170}, {5, 400, 20, 160}})
    CHECK(run_keys(machine, {"--kv-layout", "ragged", "--seqlen-q", "5", "--batch", "3", "--seqlen-k", "150",
                             "--tokens-k", "170", "--input", "cu_seqlens_k=" + file("wild.npy", {4}, wild)})
              .code == 0);
}

TEST_CASE("run: queries of sequences that overlap are refused, those out of range are cut to it") {
  Machine machine;
  if (!machine.compiler) return;
  const auto run = [&](const std::vector<std::int32_t>& ends) {
    const std::string path = (machine.terminal.folder.path / "queries.npy").string();
    const auto bytes = std::as_bytes(std::span(ends));
    write_npy(path, {"<i4", {static_cast<std::int64_t>(ends.size())}, {bytes.begin(), bytes.end()}});
    return run_keys(machine, {"--q-layout", "ragged", "--batch", "4", "--seqlen-q", "9", "--seqlen-k", "20", "--input",
                              "cu_seqlens_q=" + path});
  };
  CHECK(run({-4, 3, 3, 5, 2147483647}).code == 0);
  CHECK(run({5, 9, 0, 2, 1}).code == 0);
  const std::string apart = ": queries of sequences must lie apart (one that ends before it begins has none)\n";
  CHECK(run({0, 4, 6, 2, 5}).err == "tessera: --input cu_seqlens_q: sequences 0 and 3 both have query 2" + apart);
  CHECK(run({2, 6, 0, 3, 3}).err == "tessera: --input cu_seqlens_q: sequences 0 and 2 both have query 2" + apart);
  CHECK(run({3, 5, 3, 7, 7}).err == "tessera: --input cu_seqlens_q: sequences 0 and 2 both have query 3" + apart);
}
