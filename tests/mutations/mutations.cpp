// Our own kernels with one fault planted at a time: which finding names it, or is it only the wrong numbers that show?
// A check that no fault needs is not worth much, and a fault that nobody sees is a hole; docs/mutations.md has the
// table.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "base/file.h"
#include "reference/parallel.h"
#include "runtime/nvrtc.h"
#include "tessera/error.h"
#include "tests/mutations/mutate.h"
#include "tests/mutations/page.h"
#include "tests/mutations/subject.h"
#include "tests/mutations/warp_syncs.h"
#include "tests/support/input_faults.h"
#include "tests/support/sample.h"

namespace tessera::mutations {
namespace {

/// Words of a Problem, and sizes.
using Kernel = std::pair<const char*, std::map<std::string, std::int64_t>>;

/// One line of the table.
struct Row {
  int places = 0;
  int named = 0;    ///< a finding that the clean kernel has not
  int numbers = 0;  ///< no finding, but another output
  std::map<std::string, int> names;
  std::vector<int> survivors;  ///< PTX lines
};

// At most this many places of a kind, spread evenly: the unrolled products repeat themselves.
constexpr std::size_t kMaxPlaces = 6, kMaxPlacesOfSample = 2;

// What and where, without CTA, warp and the rest: "hazard: smem-race in kernel, PTX line 12 (...)".
std::string place_of(const std::string& message) { return message.substr(0, message.find(", CTA (")); }

bool is_executed(const Subject& subject, int line) {
  const Verdict verdict = subject.run(with_line(subject.ptx(), line, "trap;"));
  return std::find(verdict.names.begin(), verdict.names.end(), "trap") != verdict.names.end();
}

/// A subject, what its unharmed kernel does, and its faults by kind.
struct Trial {
  const Subject* subject = nullptr;
  Verdict clean{};
  std::set<std::string> known{};
  std::map<std::string, std::vector<Mutant>> by_kind{};
  std::map<std::string, Row> rows{};
};

Row judge(const Trial& trial, const std::vector<Mutant>& mutants, std::size_t most) {
  Row row;
  const std::size_t count = std::min(most, mutants.size());
  for (std::size_t i = 0; i < count; ++i) {
    const Mutant& mutant = mutants[i * mutants.size() / count];
    const Verdict verdict = trial.subject->run(mutant.ptx, emulator::Schedule::fair, 1, mutant.kind == kUnwritten);
    ++row.places;
    std::string first;
    for (std::size_t n = 0; n < verdict.names.size(); ++n)
      if (first.empty() && trial.known.count(place_of(verdict.messages[n])) == 0) first = verdict.names[n];
    if (verdict.is_refused) first = "refused when it is loaded";
    if (!first.empty()) {
      ++row.named;
      ++row.names[first];
    } else if (verdict.output != trial.clean.output) {
      ++row.numbers;
    } else if (is_executed(*trial.subject, mutant.line)) {
      row.survivors.push_back(mutant.line);
    } else {
      --row.places;  // no fault: these sizes never come here
    }
  }
  return row;
}

/// All subjects with all their faults, on all cores.
std::vector<Trial> judge_all(const std::vector<Subject>& subjects, std::size_t most) {
  std::vector<Trial> trials;
  std::vector<std::pair<std::size_t, std::string>> work;
  for (const Subject& subject : subjects) {
    Trial trial{.subject = &subject, .clean = subject.run(subject.ptx())};
    REQUIRE(!trial.clean.is_refused);
    for (const std::string& message : trial.clean.messages) trial.known.insert(place_of(message));
    for (Mutant& mutant : mutants_of(subject.ptx(), subject.family()))
      trial.by_kind[mutant.kind].push_back(std::move(mutant));
    for (const auto& [kind, mutants] : trial.by_kind) {
      trial.rows[kind];
      work.emplace_back(trials.size(), kind);
    }
    trials.push_back(std::move(trial));
  }
  reference::parallel_for(static_cast<std::int64_t>(work.size()), 0, [&](std::int64_t at) {
    const auto& [trial, kind] = work[static_cast<std::size_t>(at)];
    trials[trial].rows.at(kind) = judge(trials[trial], trials[trial].by_kind.at(kind), most);
  });
  return trials;
}

/// Kinds that may survive, and why.
const std::map<std::string, const char*>& reasons() {
  static const std::map<std::string, const char*> known = {
      {"wgmma: LBO of B", "no effect on a swizzled operand that is one atom wide"},
      {"drop shfl", "of a merge's tree over 32 parts, of which there are two"},
      {"drop fence.proxy.async",
       "of the slot that d leaves by: the fence before its stores ends the reads of operands too, where a map stores"},
      {"drop setmaxnreg", "too few registers are the assembler's matter, not seen in PTX"},
      {"mbarrier.arrive: relaxed",
       "of what lies in Tensor Memory: tcgen05.fence hands it over, and the manual's own patterns arrive relaxed "
       "there; "
       "of a block that a warpgroup leaves out: it has read nothing of it; "
       "of Q where two slots take turns: the same warps release K of the tile behind it before the slot is loaded "
       "again"},
      {"mbarrier.arrive: .cta scope",
       "of what lies in Tensor Memory, likewise: the fence hands it over, not the arrival"},
      {"drop mov.b32",
       "of registers that nothing reads; of values behind the last row or piece, which are multiplied by zeros or not "
       "stored"},
      {"drop bulk wait_group", "the last one: its sources are waited for before, the kernel's end does the rest"},
      {"barrier.cluster.arrive: relaxed",
       "of the last one: nobody passes it before the others' loads of Tensor Memory are over, and it hands no memory "
       "over"},
      {"drop barrier.sync", "turns of the warpgroups: they order the products for speed alone"},
      {"tcgen05.mma: LBO of B", "no effect on a swizzled operand that is one atom wide"},
      {"tcgen05.mma: always adds", "of the instructions after a tile's first one, which add anyway"},
      {"drop tcgen05.fence::after_thread_sync",
       "after allocation and at the end, where instructions are synchronous: barriers order them; before products: "
       "another one stands behind the same loads, that of the wait before or of the first part of P"},
      {"drop tcgen05.fence::before_thread_sync",
       "after allocation and at the end: the emulator asks for it between stores or loads and what overwrites or reads "
       "them; of one part of a P in shared memory: the other part's stands behind the same loads of S"},
      {"drop mbarrier.try_wait",
       "of a block that a warpgroup leaves out: it waits for V; of an accumulator that was read in time; of O where "
       "the "
       "next scores, which are waited for, were issued behind its product"},
      {"drop griddepcontrol.launch_dependents", "the next kernel starts when this one has ended: later, and as right"},
      {"mbarrier.try_wait: answer ignored",
       "of a block that a warpgroup leaves out: it waits for V; of an accumulator that was read in time; of O where "
       "the next scores, which are waited for, were issued behind its product"},
      {"drop fence.mbarrier_init",
       "copies that complete on the CTA's own barriers, and the barriers after it, need none"},
      {"ld.shared.f32: the next lane's", "of last factors where O leaves un-normalised: all of them are 1"},
      {"drop st.shared.f32", "of last factors where keys are split: O leaves un-normalised, and nobody reads them"},
      {"drop wgmma.fence", "no register of these products was written since the fence before"},
      {"drop tcgen05.wait::ld", "of a gate's load: its registers are used behind the wait of the other half's load"},
      {"ld.global, 16 bytes: the next piece", "of the step before: the tensor's largest magnitude lies elsewhere"},
      {"ld.shared, 8 bytes: the next lane's", "of the step before: the tensor's largest magnitude lies elsewhere"},
      {"shl: a bit more", "what is shifted is 0 at these sizes"},
      {"drop abs", "of elements none of which is the largest of its block or of the tensor"},
      {"max: the other", "of elements none of which is the largest of its block or of the tensor"},
      {"max of pairs: the other", "of elements none of which is the largest of its block or of the tensor"},
      {"fma.f32: a sign", "of a division's remainder on which no rounding of these values depends"},
      {"setp.ge: the bound belongs", "no row or piece of these sizes lies on the bound, or its scale is 0"},
      {"setp.ge: the bound belongs (64 bits)", "no row or piece of these sizes lies on the bound, or its scale is 0"},
      {"setp.lt: the bound belongs", "no row or piece of these sizes lies on the bound, or its scale is 0"},
      {"setp.lt: the bound belongs (64 bits)", "no row or piece of these sizes lies on the bound, or its scale is 0"},
  };
  return known;
}

/// The same of kernels whose names have a part: elsewhere these kinds are to be seen.
struct ReasonOfKernels {
  const char* part;
  const char* kind;
  const char* reason;
};
constexpr ReasonOfKernels kReasonsOfKernels[] = {
    {"kve4m3_v_is_k", "drop wgmma.commit_group",
     "of a step whose products the next group has then: that one is waited for before sums are read"},
    {"kve4m3_v_is_k", "drop wgmma.wait_group",
     "of the step that read registers of A: PTX has others for each step, so that a later wait is in time; the "
     "assembler's are the kernel's matter"},
    {"kve4m3_v_is_k", "wgmma.wait_group: one more in flight",
     "of the step that read registers of A: PTX has others for each step, so that a later wait is in time; the "
     "assembler's are the kernel's matter"},
    {"kve4m3_v_is_k", "ex2: an exponent more", "of rows of a tile that are nobody's"},
    {"sm100a_d64_256x128_s3", "tcgen05.commit: the next barrier",
     "of V's slot of a tile's last block, which has a copy of the step: no load of this problem comes after it"},
    {"pack4_split", "drop mbarrier.arrive",
     "of last factors where keys are split: O leaves un-normalised, and nobody waits for them"},
    {"pack4_split", "mbarrier.init: one arrival more",
     "of last factors where keys are split: O leaves un-normalised, and nobody waits for them"},
};

/// Why faults of this kind may survive in a kernel, or null.
const char* reason_of(const std::string& kernel, const std::string& kind) {
  for (const ReasonOfKernels& known : kReasonsOfKernels)
    if (kind == known.kind && kernel.find(known.part) != std::string::npos) return known.reason;
  const auto found = reasons().find(kind);
  return found == reasons().end() ? nullptr : found->second;
}

std::string table(const std::string& kernel, const std::map<std::string, Row>& rows) {
  int places = 0;
  int named = 0;
  int numbers = 0;
  std::string lines;
  for (const auto& [kind, row] : rows) {
    places += row.places;
    named += row.named;
    numbers += row.numbers;
    std::string names;
    for (const auto& [name, count] : row.names) names += fmt::format("{}{} {}", names.empty() ? "" : ", ", name, count);
    const char* const reason = reason_of(kernel, kind);
    const std::string rest = row.survivors.empty() ? ""
                             : reason == nullptr   ? "?"
                                                   : fmt::format("{}: {}", row.survivors.size(), reason);
    lines += fmt::format("| {} | {} | {} | {} | {} |\n", kind, row.places, names, row.numbers, rest);
  }
  return fmt::format(
      "## {}\n\n{} faults: {} named by a finding, {} seen in the output only, {} not seen ({:.0f} % caught).\n\n"
      "| fault | places | first finding | wrong output only | not seen |\n|---|---|---|---|---|\n{}\n",
      kernel, places, named, numbers, places - named - numbers, 100.0 * (named + numbers) / places, lines);
}

/// TESSERA_MUTATIONS: a part of the words of the kernels that are asked about, "__syncwarp" for that section; null:
/// all.
const char* only() { return std::getenv("TESSERA_MUTATIONS"); }
bool is_asked(const std::string& words) { return only() == nullptr || words.find(only()) != std::string::npos; }

std::unique_ptr<Compiler> find_compiler() {
  try {
    return make_nvrtc_compiler({.library = {}, .repro_folder = {}, .makes_cubin = false});
  } catch (const Error&) {
    MESSAGE("skipped: no NVRTC");
    return nullptr;
  }
}

TEST_CASE("unharmed kernels say nothing under any schedule") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  const std::map<std::string, std::int64_t> small{
      {"batch", 2}, {"heads_q", 2}, {"heads_kv", 1}, {"seqlen_q", 150}, {"seqlen_k", 300}};
  const Kernel kernels[] = {
      {"copy2d", {{"dim0", 96}, {"dim1", 200}}},
      {"copy2d rank=1 dtype=u8", {{"dim0", 4096}}},
      {"copy2d rank=3 dtype=bf16 swizzle=64B", {{"dim0", 72}, {"dim1", 50}, {"dim2", 3}}},
      {"copy2d rank=5 dtype=f64 swizzle=none", {{"dim0", 18}, {"dim1", 20}, {"dim2", 2}, {"dim3", 3}, {"dim4", 2}}},
      {"fmha head_dim=64", small},
      {"fmha head_dim=64 mask=causal dtype=f16", small},
      {"fmha head_dim=128 mask=causal", small},
      {"fmha head_dim=128 output=unnormalized", small},
      {"fmha head_dim=256", small},
      {"fmha head_dim=256 mask=causal output=unnormalized dtype=f16", small},
      {"fmha head_dim=64 kv_layout=paged page_size=16 mask=causal",
       {{"batch", 2}, {"heads_q", 2}, {"heads_kv", 1}, {"seqlen_q", 150}, {"pages", 30}, {"max_pages", 19}}},
      {"fmha head_dim=128 kv_layout=paged page_size=1 pack_gqa=2",
       {{"batch", 2}, {"heads_q", 2}, {"heads_kv", 1}, {"seqlen_q", 50}, {"pages", 300}, {"max_pages", 200}}},
      {"fmha head_dim=64 dtype=e4m3 tile_m=128 tile_n=64 promote_every=64", small},
      {"fmha arch=sm_100a head_dim=64 mask=causal", small},
      {"fmha arch=sm_100a head_dim=64 mask=causal pack_gqa=2 window=sliding", small},
      {"fmha arch=sm_100a head_dim=128 seqused=qk", small},
      {"fmha arch=sm_100a head_dim=64 mask=causal q_layout=ragged", small},
      {"fmha arch=sm_100a head_dim=64 pack_gqa=2 split_kv=on", small},
      {"fmha arch=sm_100a head_dim=64 kv_pools=sparse_window pack_gqa=2",
       {{"batch", 2},
        {"heads_q", 2},
        {"heads_kv", 1},
        {"seqlen_q", 3},
        {"seqlen_k", 90},
        {"topk", 140},
        {"seqlen_swa", 150}}},
      {"gemm arch=sm_100a tile_m=128 tile_n=64 cluster_m=1 stages=2", {{"m", 200}, {"n", 100}, {"k", 200}}},
      {"gemm arch=sm_100a dtype=nvfp4 tile_m=128 tile_n=64 cluster_m=1 stages=3", {{"m", 200}, {"n", 100}, {"k", 608}}},
      {"gemm arch=sm_100a tile_m=128 tile_n=64 cluster_m=4 stages=2", {{"m", 700}, {"n", 200}, {"k", 200}}},
      {"gemm arch=sm_100a dtype=s8 b_dtype=u8 d_dtype=f32 tile_m=128 tile_n=64 cluster_m=1 split_k=1 stages=2",
       {{"m", 136}, {"n", 100}, {"k", 912}}},
      {"gemm arch=sm_100a dtype=nvfp4 tile_m=128 tile_n=64 cluster_m=2 cluster_n=1 stages=2",
       {{"m", 200}, {"n", 100}, {"k", 608}}},
      {"gemm arch=sm_100a dtype=nvfp4 gate=dual tile_m=128 tile_n=64 cluster_m=1 stages=2",
       {{"m", 136}, {"n", 72}, {"k", 352}}},
      {"gemm arch=sm_100a dtype=mxfp8_e4m3 grouping=contiguous tile_m=128 tile_n=64 cluster_m=2 cluster_n=1 stages=2",
       {{"m", 300}, {"n", 72}, {"k", 160}, {"l", 3}}},
      {"gemm arch=sm_100a dtype=nvfp4 d_dtype=nvfp4 gate=interleaved grouping=masked tile_m=128 tile_n=64 cluster_m=1 "
       "stages=2",
       {{"m", 150}, {"n", 128}, {"k", 352}, {"l", 3}}},
  };
  testing::Sample sample(20);
  for (const auto& [words, sizes] : kernels) {
    if (!sample.takes()) continue;
    CAPTURE(words);
    const Subject subject(words, sizes, *compiler);
    for (const emulator::Schedule schedule :
         {emulator::Schedule::fair, emulator::Schedule::eager, emulator::Schedule::lazy,
          emulator::Schedule::adversarial, emulator::Schedule::split}) {
      const Verdict verdict = subject.run(subject.ptx(), schedule, 2);
      CHECK(!verdict.is_refused);
      for (const std::string& message : verdict.messages) FAIL_CHECK(message);
    }
  }
}

/// Other kinds of attention kernels, and products by mma.sync, for the page alone: they would double the time of a test
/// run.
const std::vector<Kernel>& kernels_of_page() {
  static const std::vector<Kernel> all = {
      {"fmha head_dim=64 dtype=e4m3 tile_m=128 tile_n=64 promote_every=64",
       {{"batch", 2}, {"heads_q", 2}, {"heads_kv", 1}, {"seqlen_q", 150}, {"seqlen_k", 300}}},
      {"fmha head_dim=64 kv_dtype=e4m3 mma_kind=mma.f16 pack_gqa=4 tile_m=16 tile_n=64 stages=2",
       {{"batch", 3}, {"heads_q", 8}, {"heads_kv", 2}, {"seqlen_q", 3}, {"seqlen_k", 300}}},
      {"fmha arch=sm_100a head_dim=128",
       {{"batch", 1}, {"heads_q", 1}, {"heads_kv", 1}, {"seqlen_q", 300}, {"seqlen_k", 300}}},
      {"fmha arch=sm_100a head_dim=512 mask=causal",
       {{"batch", 1}, {"heads_q", 2}, {"heads_kv", 1}, {"seqlen_q", 150}, {"seqlen_k", 200}}},
      {"fmha arch=sm_100a head_dim=256 cta_group=2 p_path=smem v_layout=k output=unnormalized dtype=f16",
       {{"batch", 1}, {"heads_q", 2}, {"heads_kv", 1}, {"seqlen_q", 300}, {"seqlen_k", 200}}},
      {"fmha arch=sm_100a head_dim=64 window=sliding seqused=qk pack_gqa=4 split_kv=on",
       {{"batch", 2},
        {"heads_q", 4},
        {"heads_kv", 1},
        {"seqlen_q", 40},
        {"seqlen_k", 500},
        {"window_size_left", 450},
        {"window_size_right", 10},
        {"num_splits", 2}}},
      {"fmha arch=sm_100a head_dim=64 mask=causal q_layout=ragged",
       {{"batch", 3}, {"heads_q", 1}, {"heads_kv", 1}, {"seqlen_q", 300}, {"seqlen_k", 300}}},
      {"fmha arch=sm_100a head_dim=64 mask=causal kv_pools=sparse_window pack_gqa=16",
       {{"batch", 2},
        {"heads_q", 16},
        {"heads_kv", 1},
        {"seqlen_q", 2},
        {"seqlen_k", 300},
        {"topk", 300},
        {"seqlen_swa", 150}}},
      {"fmha arch=sm_100a head_dim=64 kv_dtype=e4m3 mask=causal",
       {{"batch", 2}, {"heads_q", 2}, {"heads_kv", 1}, {"seqlen_q", 150}, {"seqlen_k", 300}}},
      {"fmha arch=sm_100a head_dim=64 dtype=e4m3",
       {{"batch", 2}, {"heads_q", 2}, {"heads_kv", 1}, {"seqlen_q", 150}, {"seqlen_k", 300}}},
      {"fmha head_dim=576 head_dim_v=512 v_is_k=on kv_dtype=e4m3 pack_gqa=16",
       {{"batch", 2}, {"heads_q", 16}, {"heads_kv", 1}, {"seqlen_q", 1}, {"seqlen_k", 200}}},
      {"fmha arch=sm_100a head_dim=576 head_dim_v=512 v_is_k=on pack_gqa=16 mask=causal",
       {{"batch", 2}, {"heads_q", 16}, {"heads_kv", 1}, {"seqlen_q", 2}, {"seqlen_k", 200}}},
      {"fmha arch=sm_100a head_dim=576 head_dim_v=512 v_is_k=on kv_dtype=e4m3 pack_gqa=16",
       {{"batch", 2}, {"heads_q", 16}, {"heads_kv", 1}, {"seqlen_q", 1}, {"seqlen_k", 200}}},
      {"gemm mma_kind=mma.f16 tile_m=256 tile_n=64 split_k=1 swap_ab=off stages=2",
       {{"m", 100}, {"n", 136}, {"k", 400}}},
      {"fmha arch=sm_120a dtype=nvfp4 head_dim=64 mask=causal tile_m=64 tile_n=64 stages=2",
       {{"batch", 1}, {"heads_q", 2}, {"heads_kv", 1}, {"seqlen_q", 150}, {"seqlen_k", 300}}},
      {"gemm arch=sm_120a dtype=nvfp4 tile_m=128 tile_n=128 split_k=1 stages=2", {{"m", 200}, {"n", 136}, {"k", 608}}}};
  return all;
}

TEST_CASE("each __syncwarp of the templates") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (compiler) static_cast<void>(warp_syncs_page(*compiler, testing::takes_all_cases()));
}

TEST_CASE("faults in our own kernels are caught") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  const bool writes_page = std::getenv("TESSERA_UPDATE_GOLDEN") != nullptr;
  const Kernel kernels[] = {
      {"copy2d", {{"dim0", 96}, {"dim1", 200}}},
      {"fmha head_dim=64", {{"batch", 1}, {"heads_q", 1}, {"heads_kv", 1}, {"seqlen_q", 400}, {"seqlen_k", 400}}},
      {"fmha arch=sm_100a head_dim=64 mask=causal",
       {{"batch", 1}, {"heads_q", 1}, {"heads_kv", 1}, {"seqlen_q", 300}, {"seqlen_k", 700}}},
      {"gemm arch=sm_100a tile_m=128 tile_n=32 cluster_m=1 split_k=1 stages=2", {{"m", 136}, {"n", 40}, {"k", 200}}},
      {"gemm arch=sm_100a dtype=nvfp4 tile_m=128 tile_n=64 cluster_m=2 cluster_n=1 stages=2",
       {{"m", 136}, {"n", 200}, {"k", 352}}},
      {"gemm arch=sm_100a tile_m=128 tile_n=64 cluster_m=4 stages=2", {{"m", 520}, {"n", 72}, {"k", 264}}},
      {"gemm arch=sm_100a dtype=s8 b_dtype=u8 d_dtype=f32 tile_m=128 tile_n=64 cluster_m=1 split_k=1 stages=2",
       {{"m", 136}, {"n", 100}, {"k", 912}}},
      {"gemm arch=sm_100a dtype=nvfp4 gate=dual tile_m=128 tile_n=64 cluster_m=1 stages=2",
       {{"m", 136}, {"n", 72}, {"k", 352}}},
      {"gemm arch=sm_100a dtype=mxfp8_e4m3 grouping=contiguous tile_m=128 tile_n=64 cluster_m=2 cluster_n=1 stages=2",
       {{"m", 300}, {"n", 72}, {"k", 160}, {"l", 3}}},
      {"gemm arch=sm_100a dtype=nvfp4 d_dtype=nvfp4 gate=interleaved grouping=masked tile_m=128 tile_n=64 cluster_m=1 "
       "stages=2",
       {{"m", 150}, {"n", 128}, {"k", 352}, {"l", 3}}},
      {"quantize global_scale=amax scale_form=tile", {{"rows", 150}, {"k", 816}}},
      {"quantize arch=sm_100a dtype=f32 format=mxfp8_e4m3", {{"rows", 40}, {"k", 288}}},
      {"dequantize arch=sm_100a scale_form=tile", {{"rows", 150}, {"k", 336}}},
      {"convert_scales", {{"rows", 150}, {"blocks", 21}}},
      {"gemv", {{"l", 2}, {"m", 37}, {"k", 2080}}},
      {"merge sink=per_head head_dim_v=64", {{"parts", 5}, {"batch", 2}, {"heads_q", 2}, {"seqlen_q", 9}}},
      {"gemv arch=sm_100a scale_form=tile", {{"m", 150}, {"k", 1120}, {"b_rows", 128}}},
  };
  const bool takes_all = writes_page || testing::takes_all_cases();
  testing::Sample sample(20);
  std::vector<Subject> subjects;
  for (const auto& [words, sizes] : kernels)
    if ((sample.takes() || takes_all) && is_asked(words)) subjects.emplace_back(words, sizes, *compiler);
  if (writes_page)
    for (const auto& [words, sizes] : kernels_of_page())
      if (is_asked(words)) subjects.emplace_back(words, sizes, *compiler);
  std::string page =
      "# Faults planted in our own kernels\n\n"
      "Generated by `TESSERA_UPDATE_GOLDEN=1 build/tests/test_mutations`. Each row: a slip at one instruction of the "
      "compiled\nPTX (at most six places of a kind, those that are executed), run in the emulator with the race "
      "detector, schedule fair, seed "
      "1. "
      "*first finding*:\nwhat names the fault, and how often; hazards are marked. *wrong output only*: nothing is "
      "reported, and the output differs\nfrom the unharmed kernel's.\n\n" +
      testing::input_faults_page() + (writes_page && is_asked("__syncwarp") ? warp_syncs_page(*compiler, true) : "");
  for (const Trial& trial : judge_all(subjects, takes_all ? kMaxPlaces : kMaxPlacesOfSample)) {
    const std::string& kernel = trial.subject->plan().kernel;
    for (const auto& [kind, row] : trial.rows)
      for (const int line : row.survivors)
        CHECK_MESSAGE(reason_of(kernel, kind) != nullptr, kernel, ": ", kind, " at PTX line ", line, " is not seen");
    page += table(kernel, trial.rows);
  }
  const char* const file = TESSERA_SOURCE_DIR "/docs/mutations.md";
  if (writes_page) write_file(file, only() == nullptr ? page : with_sections(read_text(file), page));
}

}  // namespace
}  // namespace tessera::mutations
