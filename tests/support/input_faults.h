// Faults that weak inputs do not show: slips in the templates, runs of `tessera run` that pass all the same, and the
// run that fails. tests/cli/run_inputs_test.cpp runs them, docs/mutations.md lists them.
#pragma once

#include <string>
#include <vector>

namespace tessera::testing {

using Words = std::vector<std::string>;

struct InputFault {
  const char* input;          ///< what the inputs must have
  const char* fault;          ///< in words
  const char* file;           ///< below templates/
  const char *from, *to;      ///< the first place of it
  Words common;               ///< operator and selectors of all runs
  std::vector<Words> unseen;  ///< further flags of runs that pass
  Words seen;                 ///< of the one that fails
};

inline const std::vector<InputFault>& input_faults() {
  static const Words attention{"fmha", "--arch", "sm_100a", "--head-dim", "64"};
  static const Words quantized{"gemm",      "--arch", "sm_100a",    "--dtype",    "nvfp4",
                               "--d-dtype", "nvfp4",  "--grouping", "contiguous", "--group-rows",
                               "150,150",   "--n",    "128",        "--k",        "256"};
  static const std::vector<InputFault> all = {
      {"a window without causal mask, and more keys than queries",
       "the window's right side is counted from the query's number, not from the key beside it",
       "attention/visible_keys.cuh",
       "beside + 1 + p.window_size_right",
       "query + 1 + p.window_size_right",
       {"fmha", "--arch", "sm_100a", "--head-dim", "64", "--window", "sliding"},
       {{"--seqlen-q", "200"},
        {"--seqlen-q", "100", "--seqlen-k", "200", "--mask", "causal", "--size", "window_size_right=120"}},
       {}},
      {"one key more than a tile",
       "a last tile of one key is left out",
       "fmha_tcgen05/key_blocks.cuh",
       "(end_key - origin + C.tile_n - 1) / C.tile_n",
       "(end_key - origin + C.tile_n - 2) / C.tile_n",
       attention,
       {{"--seqlen-q", "200"}},
       {}},
      {"one row more than a tile",
       "a last, ragged tile of rows is left out",
       "gemm_tcgen05/schedule.cuh",
       "rows / kRows + (rows % kRows != 0 ? 1 : 0)",
       "rows / kRows",
       {"gemm", "--arch", "sm_100a", "--tile-m", "128", "--tile-n", "64", "--cluster-m", "1", "--k", "200"},
       {{"--m", "384", "--n", "384"}},
       {}},
      {"scores near -700",
       "a row's reference begins with 0, not with its first maximum",
       "fmha_tcgen05/softmax.cuh",
       "      reference = ptx::minus_infinity();\n",
       "      reference = 0.0f;\n",
       attention,
       {{"--inputs", "normal"}, {"--inputs", "uniform"}, {"--inputs", "rising"}},
       {}},
      {"scores near 700",
       "what is subtracted from exponents is at most 512",
       "fmha_tcgen05/softmax.cuh",
       "const float minus_m = -subtrahend();",
       "const float minus_m = -fminf(subtrahend(), 512.0f);",
       attention,
       {{"--inputs", "normal"}, {"--inputs", "rising"}},
       {}},
      {"one steep row among flat ones",
       "O is rescaled only where all rows of a warp move their reference",
       "fmha_tcgen05/correction.cuh",
       "__any_sync(0xffffffff, factor != 1.0f)",
       "__all_sync(0xffffffff, factor != 1.0f)",
       attention,
       {{"--inputs", "normal", "--seqlen-q", "200"}, {"--inputs", "uniform"}},
       {}},
      {"a tile of keys that are zero",
       "a tile whose scores are all 0 counts as one that no row sees",
       "fmha_tcgen05/softmax.cuh",
       "if (!(max > reference + kSlack)) return 1.0f;",
       "if (max == 0.0f || !(max > reference + kSlack)) return 1.0f;",
       attention,
       {{"--inputs", "normal"}, {"--inputs", "rising"}},
       {}},
      {"sinks of packed heads",
       "every row has the sink of its key head's first query head",
       "fmha/consumer.cuh",
       "static_cast<int>(row % C.pack_gqa)",
       "static_cast<int>(row * 0)",
       {"fmha", "--arch", "sm_90a", "--head-dim", "64", "--sink", "per_head", "--heads-q", "4"},
       {{"--pack-gqa", "1"}},
       {"--pack-gqa", "4"}},
      {"several parts of keys beside a sink",
       "each part of the keys adds the sink once more",
       "attention/merge.cuh",
       "whole += sink_share(",
       "whole += static_cast<float>(num_parts) * sink_share(",
       {"fmha", "--arch", "sm_100a", "--head-dim", "64", "--sink", "per_head", "--seqlen-q", "9", "--seqlen-k", "300",
        "--split-kv", "on"},
       {{"--num-splits", "1"}},
       {"--num-splits", "3"}},
      {"keys beside other keys than a query's own",
       "slopes raise scores",
       "attention/altered_scores.cuh",
       "-slope * fabsf(distance)",
       "slope * fabsf(distance)",
       {"fmha", "--arch", "sm_100a", "--head-dim", "64", "--alibi", "per_head"},
       {{"--seqlen-q", "1", "--seqlen-k", "1"}},
       {}},
      {"slopes of packed heads",
       "every row has the slope of its key head's first query head",
       "fmha/consumer.cuh",
       "attention::slope_of<C>(p, head_of_row(tile, r))",
       "attention::slope_of<C>(p, head_of<C>(p, tile).head * C.pack_gqa + 0 * r)",
       {"fmha", "--arch", "sm_90a", "--head-dim", "64", "--alibi", "per_head", "--heads-q", "4"},
       {{"--pack-gqa", "1"}},
       {"--pack-gqa", "4"}},
      {"scores that are not all 0",
       "what is inside of the cap is half of what it should be",
       "attention/altered_scores.cuh",
       "2.0f * kLog2E * p.softmax_scale",
       "kLog2E * p.softmax_scale",
       {"fmha", "--arch", "sm_90a", "--head-dim", "64", "--softcap", "tanh"},
       {{"--softmax-scale", "0"}},
       {}},
      {"several queries in a tree",
       "every second query has the bits of the one before",
       "attention/tree_mask.cuh",
       "(first_token + query) *",
       "(first_token + query / 2 * 2) *",
       {"fmha", "--arch", "sm_90a", "--head-dim", "64", "--tree-mask", "bits", "--seqlen-k", "150"},
       {{"--seqlen-q", "1"}},
       {"--seqlen-q", "40"}},
      {"queries that end a chunk",
       "a chunk begins for the last query of the one before",
       "attention/visible_keys.cuh",
       "static_cast<unsigned>(beside) / chunk",
       "(static_cast<unsigned>(beside) + 1) / chunk",
       {"fmha", "--arch", "sm_90a", "--head-dim", "64", "--mask", "causal", "--window", "chunked"},
       {{"--seqlen-q", "40", "--seqlen-k", "90", "--size", "attention_chunk=100"}},
       {}},
      {"parts whose logarithms are far apart",
       "exponents are not relative to the largest logarithm",
       "merge/kernel.cuh",
       "max == ptx::minus_infinity() ? 0.0f : max;",
       "max > 1000.0f ? max : 0.0f;",
       {"merge"},
       {{"--inputs", "normal", "--parts", "4"}, {"--inputs", "uniform", "--parts", "4"}, {"--inputs", "integer"}},
       {}},
      {"more parts than are loaded at once, each with a larger logarithm",
       "what was summed before is not rescaled",
       "merge/kernel.cuh",
       "factor = exponential(row.max - subtrahend);",
       "factor = first == 0 ? 0.0f : 1.0f;",
       {"merge"},
       {{"--parts", "4"}, {"--inputs", "integer"}},
       {}},
      {"sinks of several heads",
       "every row has the first head's sink",
       "merge/kernel.cuh",
       "p.sink[at.head]",
       "p.sink[0]",
       {"merge", "--sink", "per_head"},
       {{"--heads-q", "1"}},
       {}},
      {"blocks of zeros",
       "the quotients of a block whose scale is 0 are kept",
       "quantize/kernel.cuh",
       "  if (code == 0) words[0] = words[1] = 0;\n",
       "",
       {"quantize", "--global-scale", "given"},
       {{"--inputs", "normal"}, {"--inputs", "uniform"}},
       {}},
      {"numbers in the padding of scales",
       "rows past a group's end store a scale of their own",
       "gemm_tcgen05/quantizer.cuh",
       "is_live ? code : 0",
       "code",
       quantized,
       {},
       {}},
      {"split k of MN-major operands",
       "the first steps of a part of k are counted for K-major operands alone",
       "gemm_tcgen05/producer.cuh",
       "row + i * panel_rows(C), k, matrix)",
       "row + i * panel_rows(C), k - static_cast<int>(blockIdx.x) % C.split_k * tile_k(C), matrix)",
       {"gemm", "--arch", "sm_100a", "--tile-m", "128", "--tile-n", "64", "--cluster-m", "1", "--m", "136", "--n", "72",
        "--k", "256"},
       {{"--split-k", "2"}, {"--split-k", "1", "--a-layout", "mn", "--b-layout", "mn"}},
       {"--split-k", "2", "--a-layout", "mn", "--b-layout", "mn"}},
      {"more than 2^31 elements",
       "the place of an element of d that leaves without TMA is held in 32 bits",
       "gemm/epilogue.cuh",
       "const long long index = batch * p.d_stride_l + (first_row + r) * p.ldd + first_column + c;",
       "const int index = static_cast<int>(batch * p.d_stride_l + (first_row + r) * p.ldd + first_column + c);",
       {"gemm", "--arch", "sm_90a", "--k", "64"},
       {{"--m", "257", "--n", "257"}},
       {"--m", "49153", "--n", "49153"}},
      {"more than 2^31 elements",
       "the place of an element of c is held in 32 bits",
       "gemm/epilogue.cuh",
       "const long long place = is_swapped(C)",
       "const unsigned place = is_swapped(C)",
       {"gemm", "--arch", "sm_90a", "--c", "matrix", "--k", "64"},
       {{"--m", "257", "--n", "256"}},
       {"--m", "90113", "--n", "49152"}},
      {"more than 2^31 elements",
       "a row's place in the matrix is held in 32 bits",
       "gemv/kernel.cuh",
       "(batch * p.m + row) * (p.k / 2)",
       "static_cast<int>(batch * p.m + row) * (p.k / 2)",
       {"gemv"},
       {{"--m", "1000", "--k", "4096"}},
       {"--m", "1100000", "--k", "4096"}},
      {"more than 2^31 elements",
       "the place of a block's values is held in 32 bits",
       "quantize/kernel.cuh",
       "store_values(void* values, long long element, const float (&q)[16], bool is_zero)",
       "store_values(void* values, int element, const float (&q)[16], bool is_zero)",
       {"quantize", "--dtype", "f32", "--k", "512"},
       {{"--rows", "1000"}},
       {"--rows", "4300000"}},
      {"more than 2^31 elements",
       "the row tile of a product's scales is held in 9 bits",
       "gemm_tcgen05/schedule.cuh",
       "group * row_blocks) + row / kTileRows,",
       "group * row_blocks) + (row / kTileRows & 511),",
       {"gemm", "--arch", "sm_100a", "--dtype", "nvfp4", "--k", "128"},
       {{"--m", "300", "--n", "257"}},
       {"--m", "98305", "--n", "49152"}},
      {"more than 2^31 elements",
       "a head's number through all batches is held in 16 bits",
       "fmha_tcgen05/schedule.cuh",
       "head = quotient(i, m_tiles);",
       "head = quotient(i, m_tiles) & 0xffff;",
       attention,
       {{"--batch", "20", "--seqlen-q", "129"}},
       {"--batch", "4100", "--heads-q", "64", "--seqlen-q", "129"}},
  };
  return all;
}

inline std::string text_of(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

/// The section of docs/mutations.md.
inline std::string input_faults_page() {
  std::string page =
      "## Faults that weak inputs do not show\n\n"
      "Slips in the templates, each with runs of `tessera run` in the emulator that pass all the same, and the run "
      "that "
      "fails. An\nempty one is the plain run: its inputs (`--inputs standard`) and its sizes are such that it sees the "
      "fault.\n\n| what inputs must have | fault | runs that pass | run that fails |\n|---|---|---|---|\n";
  for (const InputFault& fault : input_faults()) {
    std::string unseen;
    for (const Words& words : fault.unseen) unseen += (unseen.empty() ? "`" : ", `") + text_of(words) + "`";
    if (unseen.empty()) unseen = "the same with `--input sfa=FILE`, NaN in all of the padding";
    page += std::string("| ") + fault.input + " | `" + text_of(fault.common) + "`: " + fault.fault + " | " + unseen +
            " | " + (fault.seen.empty() ? "" : "`" + text_of(fault.seen) + "`") + " |\n";
  }
  return page + "\n";
}

}  // namespace tessera::testing
