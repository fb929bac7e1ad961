#include "tests/mutations/warp_syncs.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>
#include <tuple>

#include "base/file.h"
#include "reference/parallel.h"
#include "tests/mutations/subject.h"

namespace tessera::mutations {
namespace {

using Sizes = std::map<std::string, std::int64_t>;

/// The one that every run of the tests takes: small, and each lane reads words for itself before lane 0 hands them
/// back.
constexpr std::string_view kOfEachRun = "fmha head_dim=64 kv_pools=sparse_window pack_gqa=2";

/// Kernels that together execute every __syncwarp.
const std::vector<std::pair<const char*, Sizes>>& kernels() {
  static const Sizes attention{{"batch", 2}, {"heads_q", 2}, {"heads_kv", 1}, {"seqlen_q", 150}, {"seqlen_k", 300}};
  static const Sizes pools{{"batch", 2},     {"heads_q", 2}, {"heads_kv", 1},    {"seqlen_q", 3},
                           {"seqlen_k", 90}, {"topk", 140},  {"seqlen_swa", 150}};
  static const Sizes pages{{"batch", 2},      {"heads_q", 2}, {"heads_kv", 1},
                           {"seqlen_q", 150}, {"pages", 30},  {"max_pages", 19}};
  static const Sizes tokens{{"batch", 2},     {"heads_q", 2}, {"heads_kv", 1},
                            {"seqlen_q", 50}, {"pages", 300}, {"max_pages", 200}};
  static const Sizes few{{"batch", 2},    {"heads_q", 2}, {"heads_kv", 1},
                         {"seqlen_q", 1}, {"pages", 30},  {"max_pages", 19}};
  static const Sizes packed{{"batch", 2},      {"heads_q", 2},    {"heads_kv", 1},
                            {"seqlen_q", 150}, {"seqlen_k", 300}, {"tokens_k", 500}};
  static const Sizes latent{{"batch", 2}, {"heads_q", 16}, {"heads_kv", 1}, {"seqlen_q", 1}, {"seqlen_k", 300}};
  static const Sizes product{{"m", 200}, {"n", 232}, {"k", 608}};
  static const std::vector<std::pair<const char*, Sizes>> all = {
      {"fmha head_dim=64 mask=causal", attention},
      {"fmha head_dim=64 mask=causal q_layout=ragged", attention},
      {"fmha head_dim=64 mask=causal q_layout=ragged split_kv=dealt tile_m=64 tile_n=64", attention},
      {"fmha head_dim=64 mask=causal q_layout=ragged split_kv=dealt output=unnormalized tile_m=64 tile_n=64",
       attention},
      {"fmha head_dim=64 kv_layout=paged page_size=16 mask=causal", pages},
      {"fmha head_dim=64 kv_layout=paged page_size=16 split_kv=on mma_kind=mma.f16 tile_m=16 pack_gqa=2", few},
      {"fmha head_dim=128 kv_layout=paged page_size=1 pack_gqa=2", tokens},
      {"fmha head_dim=64 kv_layout=ragged q_layout=ragged mask=causal", packed},
      {"fmha head_dim=64 q_layout=ragged seqused=k split_kv=dealt tile_m=64 tile_n=64", attention},
      {"fmha head_dim=64 kv_pools=sparse_window pack_gqa=2", pools},
      {"fmha head_dim=64 dtype=e4m3 tile_m=128 tile_n=64", attention},
      {"fmha head_dim=256 dtype=e4m3 tile_m=128 tile_n=96 promote_every=96", attention},
      {"fmha head_dim=64 kv_dtype=e4m3 mask=causal", attention},
      {"fmha head_dim=64 kv_dtype=e4m3 kv_layout=paged page_size=16 mask=causal", pages},
      {"fmha head_dim=64 kv_dtype=e4m3 mma_kind=mma.f16 pack_gqa=2", attention},
      {"fmha head_dim=512 mask=causal", attention},
      {"fmha head_dim=576 head_dim_v=512 v_is_k=on pack_gqa=16", latent},
      {"fmha head_dim=576 head_dim_v=512 v_is_k=on kv_dtype=e4m3 pack_gqa=16 seqused=k", latent},
      {"gemm", product},
      {"gemm split_k=2 tile_m=64 tile_n=64", product},
      {"gemm c=matrix split_k=1 tile_m=64 tile_n=128 stages=2", {{"m", 100}, {"n", 134}, {"k", 72}}},
      {"gemm dtype=e4m3 a_scale_block=1x128 b_scale_block=1x128 split_k=1 tile_m=128 tile_n=64 stages=3", product},
      {"gemm dtype=e4m3 a_scale_block=1x128 b_scale_block=128x128 split_k=1 tile_m=128 tile_n=192 stages=2",
       {{"m", 170}, {"n", 232}, {"k", 608}}},
      {"gemm dtype=e4m3 a_scale_block=1x128 b_scale_block=128x128 split_k=1 tile_m=128 tile_n=64 stages=3",
       {{"m", 200}, {"n", 128}, {"k", 1024}, {"sfa_stride_m", 1}, {"sfa_stride_k", 200}}},
      {"gemm grouping=masked gather=rows tile_m=64 tile_n=64 split_k=1 stages=4",
       {{"m", 100}, {"n", 72}, {"k", 384}, {"l", 3}, {"a_rows", 60}}},
      {"rows dtype=f32 columns=65536 chain=rmsnorm+bf16", {{"rows", 2}}},
      {"rows columns=136 rows_of_cta=16 chain=mhc_post(product)", {{"rows", 300}}},
      {"mhc_product warps_m=2 warps_k=2 ctas=1", {{"m", 100}, {"k", 1600}}},
      {"fmha dtype=nvfp4 arch=sm_120a head_dim=64 mask=causal", attention},
      {"fmha dtype=nvfp4 arch=sm_120a head_dim=64 output=unnormalized", attention},
      {"gemm mma_kind=mma.f16 tile_m=128 tile_n=128 split_k=1 swap_ab=off stages=2", product},
      {"gemm mma_kind=mma.f16 tile_m=64 tile_n=64 split_k=2 swap_ab=off stages=2", product},
      {"gemm mma_kind=mma.f16 c=matrix tile_m=64 tile_n=64 split_k=1 swap_ab=off stages=2", product},
      {"gemm arch=sm_120a dtype=nvfp4 d_dtype=nvfp4 c=matrix tile_m=64 tile_n=64 split_k=1 stages=2",
       {{"m", 200}, {"n", 256}, {"k", 608}}},
      {"fmha arch=sm_100a head_dim=64 mask=causal", attention},
      {"fmha arch=sm_100a head_dim=256 cta_group=2 p_path=smem", attention},
      {"fmha arch=sm_100a head_dim=64 kv_layout=paged page_size=16", pages},
      {"fmha arch=sm_100a head_dim=64 kv_layout=paged page_size=1", tokens},
      {"fmha arch=sm_100a head_dim=64 kv_layout=ragged q_layout=ragged mask=causal", packed},
      {"fmha arch=sm_100a head_dim=64 kv_pools=sparse_window pack_gqa=2", pools},
      {"fmha arch=sm_100a head_dim=64 kv_dtype=e4m3", attention},
      {"fmha arch=sm_100a head_dim=576 head_dim_v=512 v_is_k=on kv_dtype=e4m3 pack_gqa=16", latent},
      {"fmha arch=sm_100a head_dim=64 dtype=e4m3", attention},
      {"gemm arch=sm_100a tile_m=128 tile_n=64 cluster_m=1 stages=2", product},
      {"gemm arch=sm_100a c=matrix tile_m=128 tile_n=64 cluster_m=1 stages=2", product},
      {"gemm arch=sm_100a dtype=nvfp4 tile_m=128 tile_n=64 cluster_m=1 stages=3", product},
      {"gemm arch=sm_100a dtype=nvfp4 tile_m=128 tile_n=64 cluster_m=2 cluster_n=1 stages=2", product},
      {"gemm arch=sm_100a dtype=mxfp8_e4m3 grouping=contiguous tile_m=128 tile_n=64 cluster_m=2 cluster_n=1 stages=2",
       {{"m", 300}, {"n", 72}, {"k", 160}, {"l", 3}}},
  };
  return all;
}

constexpr const char* kElsewhere = "of kernels that this list leaves out";

/// A place that may go unseen, and why it is no fault. The function, and which of its __syncwarps.
const std::map<std::string, const char*>& sync_reasons() {
  static const char* const kLast = "what follows takes nothing from another lane; it keeps the warp together";
  static const char* const kBarrier =
      "a barrier of whole warps follows, for which the assembler wants the warp together; it orders the lanes too";
  static const char* const kAnnounced =
      "a phase waits for the arrival that announces its bytes, whether these come before or after it";
  static const char* const kIssuer =
      "the other lanes take nothing from the one that issues; it keeps the warp together";
  static const char* const kOtherC = "of a c that is not d";
  static const char* const kMatrices = "ldmatrix, which lanes execute together, is the last to read the slot";
  static const std::map<std::string, const char*> known = {
      {"attention/placed_keys.cuh: load_boxes", "of launches without keys, which these are not"},
      {"attention/placed_keys.cuh: load_boxes, 2", kAnnounced},
      {"attention/placed_keys.cuh: load_boxes, 3", kLast},
      {"attention/placed_keys.cuh: clear_and_arrive", kLast},
      {"fmha/epilogue.cuh: hand_over_ragged",
       "the ring of tiles' messages does not come round with these lengths; with twelve short sequences it is seen "
       "(planted fault ragged-handed-sync)"},
      // Of a CTA's tiles only the first and the last are parts. The first one's message is overwritten once a whole
      // tile behind it has left, and give_rows() brings the warp together for that; behind the last one none is
      // written.
      {"fmha/epilogue.cuh: store_part",
       "where whole tiles leave by their slot: the warp meets for the one that comes behind a part before the part's "
       "message is overwritten"},
      {"fmha/kernel.cuh: run", kBarrier},
      {"fmha/warps.cuh: end_reads", kMatrices},
      {"fmha/widened.cuh: load_tiles", kIssuer},
      {"fmha_latent/consumer.cuh: release",
       "wgmma.wait_group, which lanes execute together, lies between the last reads and the arrival"},
      {"fmha_latent/producer.cuh: load", kAnnounced},
      {"fmha_latent/producer.cuh: wait_of_warp",
       "of a launch that fills no slot a second time: no lane can be a phase behind"},
      {"fmha_latent/transposed.cuh: release",
       "wgmma, which lanes execute together, lies between the last reads and the arrival"},
      {"fmha_tcgen05/kernel.cuh: kernel", kBarrier},
      {"fmha_tcgen05/kernel.cuh: kernel, 2", kBarrier},
      {"fmha_tcgen05/softmax.cuh: arrive_of_warp",
       "of rows that leave from registers: tcgen05.wait::ld, which lanes execute together, lies before the arrival"},
      {"fmha_tcgen05/softmax.cuh: arrive_at_issuer",
       "of what lies in Tensor Memory: tcgen05.wait, which lanes execute together, lies before the arrival"},
      {"fmha/paged_load.cuh: start_first_block", kAnnounced},
      {"fmha/paged_load.cuh: start_first_block, 2", kLast},
      {"fmha/paged_load.cuh: load_key_blocks", kLast},
      {"fmha/paged_load.cuh: load_key_blocks, 2", kElsewhere},
      {"gemm/addend.cuh: add", kMatrices},
      {"gemm/kernel.cuh: kernel", kBarrier},
      {"gemm/scales.cuh: load_bulk",
       "lane 0, which starts the copies, has met the others behind their last ones, and executes the fence itself"},
      {"gemm/split.cuh: release_partial_sums",
       "the epilogue's barrier of the warpgroup lies between the last loads and the arrival"},
      {"mhc_product/kernel.cuh: kernel", kBarrier},
      {"fmha_latent/kernel.cuh: kernel", kElsewhere},
      {"gemm_mma/consumer.cuh: release", kMatrices},
      {"gemm_mma/epilogue.cuh: store_blocks", kOtherC},
      {"gemm_mma/kernel.cuh: kernel", kBarrier},
      {"gemm_mma/kernel.cuh: kernel, 2", kBarrier},
      {"gemm_tcgen05/kernel.cuh: kernel", kBarrier},
      {"gemm_tcgen05/kernel.cuh: kernel, 2", kBarrier},
      {"gemm_tcgen05/multiplier.cuh: multiply", kIssuer},
      {"gemm_tcgen05/multiplier.cuh: multiply, 2", kIssuer},
      {"gemm_tcgen05/storer.cuh: release_sums",
       "tcgen05.wait::ld, which lanes execute together, lies between the loads and the arrival"},
      {"rows/row.cuh: begin_shared_sums", kBarrier},
  };
  return known;
}

/// Files of which no kernel is in the list above.
bool is_left_out(const std::string& name) {
  constexpr std::string_view kFiles[] = {"fmha_latent/gather", "fmha_tcgen05/gather", "gemm_weights/", "indexer"};
  return std::any_of(std::begin(kFiles), std::end(kFiles),
                     [&](std::string_view file) { return std::string_view(name).substr(0, file.size()) == file; });
}

struct Place {
  std::string file;  ///< below templates/
  int line = 0;
  bool operator<(const Place& other) const { return std::tie(file, line) < std::tie(other.file, other.line); }
};

// "fmha/pools.cuh: load", with a number behind it where a function has several.
std::string name_of(const Place& place) {
  static const std::regex kFunction(R"(__(?:device|global)__.*?(\w+)\()");
  std::istringstream text(read_text(std::string(TESSERA_SOURCE_DIR "/templates/") + place.file));
  std::string function = "?";
  int number = 0, line = 0;
  std::smatch match;
  for (std::string words; std::getline(text, words) && ++line <= place.line;) {
    if (std::regex_search(words, match, kFunction)) function = match[1], number = 0;
    if (words.find("__syncwarp(") != std::string::npos) ++number;
  }
  return fmt::format("{}: {}{}", place.file, function, number > 1 ? fmt::format(", {}", number) : "");
}

/// The bar.warp.syncs of a module by the places of the template that they come from.
std::map<Place, std::vector<int>> syncs_of(const std::string& ptx) {
  std::map<std::string, std::string> files;
  static const std::regex kFile(R"re(^\s*\.file\s+(\d+)\s+"/tessera/([^"]+)")re"),
      kPlace(R"(^\s*\.loc\s+(\d+)\s+(\d+))");
  std::map<std::pair<std::string, int>, std::vector<int>> by_number;
  std::istringstream text(ptx);
  std::smatch match;
  std::pair<std::string, int> at;
  int line = 0;
  for (std::string words; std::getline(text, words);) {
    ++line;
    if (std::regex_search(words, match, kFile)) files[match[1]] = match[2];
    if (std::regex_search(words, match, kPlace)) at = {match[1], std::stoi(match[2])};
    if (words.find("bar.warp.sync") != std::string::npos) by_number[at].push_back(line);
  }
  std::map<Place, std::vector<int>> places;
  for (const auto& [where, lines] : by_number) places[{files[where.first], where.second}] = lines;
  return places;
}

struct Outcome {
  std::map<std::string, std::set<std::string>> kernels_by_name;  ///< of the first new finding; "": unseen
  int runs = 0, named = 0, numbers = 0;
  int split = 0;  ///< wrong, or stopped by a failure, under Schedule::split with one of a few seeds
};

bool is_wrong_when_split(const Subject& subject, const Verdict& clean, const std::string& ptx) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const Verdict verdict = subject.run(ptx, emulator::Schedule::split, seed);
    if (verdict.output != clean.output) return true;
    for (const std::string& name : verdict.names)
      if (name.find("(hazard)") == std::string::npos) return true;
  }
  return false;
}

Outcome judge(const Subject& subject, const Verdict& clean, const std::vector<int>& lines) {
  Outcome outcome;
  constexpr std::size_t kMost = 3;
  const std::size_t count = std::min(kMost, lines.size());
  for (std::size_t i = 0; i < count; ++i) {
    const int line = lines[i * lines.size() / count];
    const Verdict trap = subject.run(with_line(subject.ptx(), line, "trap;"));
    if (std::find(trap.names.begin(), trap.names.end(), "trap") == trap.names.end()) continue;
    ++outcome.runs;
    const Verdict verdict = subject.run(with_line(subject.ptx(), line, ""));
    const bool is_wrong = verdict.output != clean.output;
    const std::string name = verdict.names.empty() ? is_wrong ? "wrong output" : "" : verdict.names.front();
    outcome.named += verdict.names.empty() ? 0 : 1;
    outcome.numbers += verdict.names.empty() && is_wrong ? 1 : 0;
    outcome.kernels_by_name[name].insert(subject.plan().kernel);
    outcome.split += is_wrong_when_split(subject, clean, with_line(subject.ptx(), line, "")) ? 1 : 0;
  }
  return outcome;
}

std::set<Place> all_places() {
  std::set<Place> places;
  const std::filesystem::path root = TESSERA_SOURCE_DIR "/templates";
  for (const auto& file : std::filesystem::recursive_directory_iterator(root)) {
    if (!file.is_regular_file()) continue;
    std::istringstream text(read_text(file.path().string()));
    int line = 0;
    for (std::string words; std::getline(text, words);) {
      ++line;
      if (words.find("__syncwarp(") != std::string::npos)
        places.insert({std::filesystem::relative(file.path(), root).string(), line});
    }
  }
  return places;
}

}  // namespace

std::string warp_syncs_page(Compiler& compiler, bool takes_all) {
  std::vector<Subject> subjects;
  for (const auto& [words, sizes] : kernels())
    if (takes_all || words == kOfEachRun) subjects.emplace_back(words, sizes, compiler);
  std::vector<std::map<Place, Outcome>> found(subjects.size());
  std::vector<std::string> unharmed(subjects.size());
  reference::parallel_for(static_cast<std::int64_t>(subjects.size()), 0, [&](std::int64_t index) {
    const Subject& subject = subjects[static_cast<std::size_t>(index)];
    const Verdict clean = subject.run(subject.ptx());
    if (!clean.messages.empty()) {
      unharmed[static_cast<std::size_t>(index)] = clean.messages.front();
      return;
    }
    for (const auto& [place, lines] : syncs_of(subject.ptx()))
      found[static_cast<std::size_t>(index)][place] = judge(subject, clean, lines);
  });
  for (const std::string& message : unharmed) CHECK_MESSAGE(message.empty(), message);
  std::map<Place, Outcome> all;
  for (const auto& by_place : found)
    for (const auto& [place, outcome] : by_place) {
      Outcome& to = all[place];
      to.runs += outcome.runs, to.named += outcome.named, to.numbers += outcome.numbers, to.split += outcome.split;
      for (const auto& [name, names] : outcome.kernels_by_name)
        to.kernels_by_name[name].insert(names.begin(), names.end());
    }
  std::string rows;
  for (const Place& place : all_places()) {
    const Outcome& outcome = all[place];
    const std::string name = name_of(place);
    const auto reason = sync_reasons().find(name);
    if (outcome.runs == 0) {
      const bool has_reason = reason != sync_reasons().end();
      CHECK_MESSAGE((!takes_all || has_reason || is_left_out(name)), name, " is executed by no kernel");
      rows += fmt::format("| {} | 0 | | | | {} |\n", name,
                          has_reason          ? reason->second
                          : is_left_out(name) ? kElsewhere
                                              : "?");
      continue;
    }
    std::string names;
    for (const auto& [finding, of] : outcome.kernels_by_name)
      if (!finding.empty()) names += (names.empty() ? "" : ", ") + finding;
    const int unseen = outcome.runs - outcome.named - outcome.numbers;
    CHECK_MESSAGE(outcome.split <= outcome.runs - unseen, name,
                  " is called no fault, and schedule split says otherwise");
    CHECK_MESSAGE((unseen == 0 || reason != sync_reasons().end()), name, " is missed in ",
                  unseen == 0 ? "" : *outcome.kernels_by_name.at("").begin());
    rows += fmt::format("| {} | {} | {} | {} | {} | {} |\n", name, outcome.runs, names, outcome.named + outcome.numbers,
                        outcome.split,
                        unseen == 0                      ? ""
                        : reason == sync_reasons().end() ? fmt::format("{}: ?", unseen)
                                                         : fmt::format("{}: {}", unseen, reason->second));
  }
  return "## Each __syncwarp of the templates, left out\n\nIn kernels that together execute all of them, with the race "
         "detector, schedule fair, seed 1; at most three copies of a line in a\nkernel. *split*: wrong, or stopped by "
         "a failure, under schedule split with "
         "seeds 1 to 3, which needs no race detector.\n\n"
         "| function of the template | places | first finding | seen | split | not seen, and why it is no fault |\n"
         "|---|---|---|---|---|---|\n" +
         rows + "\n";
}

}  // namespace tessera::mutations
