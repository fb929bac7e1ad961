#include "base/suggestion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tessera {

namespace {

struct Synonym {
  std::string_view word;
  std::string_view meaning;  ///< a candidate, perhaps with the value that it takes
};

// In the spelling of plain(): small letters, no leading hyphens, - for _.
constexpr Synonym kSynonyms[] = {
    // element types
    {"fp8", "e4m3"},
    {"fp8", "e5m2"},
    {"float8", "e4m3"},
    {"float8", "e5m2"},
    {"fp8-e4m3", "e4m3"},
    {"fp8-e5m2", "e5m2"},
    {"float8-e4m3", "e4m3"},
    {"float8-e4m3fn", "e4m3"},
    {"float8-e5m2", "e5m2"},
    {"mxfp8", "mxfp8_e4m3"},
    {"mxfp8", "mxfp8_e5m2"},
    {"mxfp6", "mxfp6_e3m2"},
    {"mxfp6", "mxfp6_e2m3"},
    {"fp6", "mxfp6_e3m2"},
    {"fp6", "mxfp6_e2m3"},
    {"fp4", "nvfp4"},
    {"fp4", "mxfp4"},
    {"fp16", "f16"},
    {"half", "f16"},
    {"float16", "f16"},
    {"bfloat16", "bf16"},
    {"bfloat", "bf16"},
    {"fp32", "f32"},
    {"float", "f32"},
    {"float32", "f32"},
    {"single", "f32"},
    {"fp64", "f64"},
    {"double", "f64"},
    {"float64", "f64"},
    {"int8", "s8"},
    {"i8", "s8"},
    {"uint8", "u8"},
    {"uint16", "u16"},
    {"int32", "s32"},
    {"i32", "s32"},
    {"int", "s32"},
    {"uint32", "u32"},
    {"int64", "s64"},
    {"i64", "s64"},
    {"uint64", "u64"},
    {"tfloat32", "tf32"},
    // targets
    {"sm90", "sm_90a"},
    {"90", "sm_90a"},
    {"90a", "sm_90a"},
    {"9.0", "sm_90a"},
    {"h100", "sm_90a"},
    {"h200", "sm_90a"},
    {"h20", "sm_90a"},
    {"h800", "sm_90a"},
    {"gh200", "sm_90a"},
    {"hopper", "sm_90a"},
    {"sm100", "sm_100a"},
    {"100", "sm_100a"},
    {"10.0", "sm_100a"},
    {"b100", "sm_100a"},
    {"b200", "sm_100a"},
    {"gb200", "sm_100a"},
    {"blackwell", "sm_100a"},
    {"blackwell", "sm_103a"},
    {"blackwell", "sm_120a"},
    {"sm103", "sm_103a"},
    {"10.3", "sm_103a"},
    {"b300", "sm_103a"},
    {"gb300", "sm_103a"},
    {"sm120", "sm_120a"},
    {"12.0", "sm_120a"},
    {"rtx5090", "sm_120a"},
    {"5090", "sm_120a"},
    {"rtx-5090", "sm_120a"},
    {"rtx5080", "sm_120a"},
    {"pro6000", "sm_120a"},
    {"rtx-pro-6000", "sm_120a"},
    {"5080", "sm_120a"},
    {"sm121", "sm_121a"},
    {"12.1", "sm_121a"},
    {"gb10", "sm_121a"},
    {"spark", "sm_121a"},
    {"dgx-spark", "sm_121a"},
    // kinds of mma.sync, as PTX has them
    {"mma.f8f6f4", "mma.f8"},
    {"mxf4nvf4", "mma.mxf4nvf4"},
    {"mxf4", "mma.mxf4"},
    {"mxf8f6f4", "mma.mxf8f6f4"},
    // operators
    {"attention", "fmha"},
    {"attn", "fmha"},
    {"mha", "fmha"},
    {"sdpa", "fmha"},
    {"flash-attention", "fmha"},
    {"flash-attn", "fmha"},
    {"matmul", "gemm"},
    {"mm", "gemm"},
    {"bmm", "gemm"},
    {"linear", "gemm"},
    {"grouped-gemm", "gemm"},
    {"copy", "copy2d"},
    {"memcpy", "copy2d"},
    {"matvec", "gemv"},
    {"mv", "gemv"},
    {"quant", "quantize"},
    {"cast", "quantize"},
    {"dequant", "dequantize"},
    // commands
    {"compile", "warm"},
    {"build", "warm"},
    {"precompile", "warm"},
    {"generate", "emit"},
    {"gen", "emit"},
    {"explain", "plan"},
    {"bench", "run"},
    {"bench", "tune"},
    {"benchmark", "run"},
    {"benchmark", "tune"},
    {"time", "run"},
    {"profile", "run"},
    {"launch", "run"},
    {"test", "run"},
    {"test", "check"},
    {"verify", "check"},
    {"verify", "cache verify"},
    {"autotune", "tune"},
    {"simulate", "emulate"},
    {"sim", "emulate"},
    {"list", "cache list"},
    {"ls", "cache list"},
    {"clear", "cache prune --all"},
    {"clean", "cache prune --all"},
    {"prune", "cache prune"},
    {"show", "cache show"},
    {"stat", "cache stat"},
    {"export", "cache export"},
    {"import", "cache import"},
    {"info", "doctor"},
    {"env", "doctor"},
    {"status", "doctor"},
    {"swizzle", "layout swizzle"},
    {"fragment", "layout fragment"},
    {"tensor-map", "layout tensor-map"},
    // what to do with a cache
    {"clear", "prune --all"},
    {"clean", "prune --all"},
    {"purge", "prune --all"},
    {"delete", "prune"},
    {"remove", "prune"},
    {"rm", "prune"},
    {"gc", "prune"},
    {"evict", "prune"},
    {"ls", "list"},
    {"info", "stat"},
    {"stats", "stat"},
    {"du", "stat"},
    {"usage", "stat"},
    {"get", "show"},
    {"cat", "show"},
    {"dump", "export"},
    {"save", "export"},
    {"load", "import"},
    {"check", "verify"},
    // pages of layout
    {"descriptor", "smem-descriptor"},
    {"descriptor", "instruction-descriptor"},
    {"tma", "tensor-map"},
    {"mma", "fragment"},
    {"wgmma", "fragment"},
    {"scales", "scale-factors"},
    // flags and keys
    {"causal", "mask causal"},
    {"is-causal", "mask causal"},
    {"no-causal", "mask none"},
    {"sliding-window", "window sliding"},
    {"window-size", "window-size-left"},
    {"window-size", "window-size-right"},
    {"layout", "a-layout"},
    {"layout", "b-layout"},
    {"layout", "v-layout"},
    {"trans-a", "a-layout"},
    {"trans-b", "b-layout"},
    {"target", "arch"},
    {"targets", "arch"},
    {"archs", "arch"},
    {"architecture", "arch"},
    {"gpu-arch", "arch"},
    {"sm", "arch"},
    {"type", "dtype"},
    {"data-type", "dtype"},
    {"precision", "dtype"},
    {"out-dtype", "d-dtype"},
    {"output-dtype", "d-dtype"},
    {"hdim", "head-dim"},
    {"dim", "head-dim"},
    {"head-size", "head-dim"},
    {"heads", "heads-q"},
    {"heads", "heads-kv"},
    {"num-heads", "heads-q"},
    {"num-heads", "heads-kv"},
    {"num-heads-q", "heads-q"},
    {"num-heads-kv", "heads-kv"},
    {"num-kv-heads", "heads-kv"},
    {"kv-heads", "heads-kv"},
    {"batch-size", "batch"},
    {"batch", "l"},
    {"batch-size", "l"},
    {"bs", "batch"},
    {"seqlen", "seqlen-q"},
    {"seqlen", "seqlen-k"},
    {"seq-len", "seqlen-q"},
    {"seq-len", "seqlen-k"},
    {"sequence-length", "seqlen-q"},
    {"sequence-length", "seqlen-k"},
    {"seqlen-kv", "seqlen-k"},
    {"splits", "num-splits"},
    {"epilogue", "activation"},
    {"act", "activation"},
    {"num-stages", "stages"},
    {"cluster", "cluster-m"},
    {"cluster", "cluster-n"},
    {"schedule", "kernel-schedule"},
    {"scale", "softmax-scale"},
    {"sm-scale", "softmax-scale"},
    {"lda", "size lda=N"},
    {"ldb", "size ldb=N"},
    {"ldc", "size ldc=N"},
    {"ldd", "size ldd=N"},
    {"gpu", "device gpu"},
    {"cuda", "gpu"},
    {"cpu", "emulator"},
    {"cpu", "device emulator"},
    {"emulator", "device emulator"},
    {"emulate", "device emulator"},
    {"iterations", "repeat"},
    {"iters", "repeat"},
    {"workers", "jobs"},
    {"num-threads", "jobs"},
    {"parallel", "jobs"},
    {"j", "jobs"},
    {"q", "quiet"},
    {"v", "verbose"},
    {"cache", "cache-dir"},
    {"out", "o"},
    {"output-file", "o"},
    {"output", "o"},
    {"save-output", "save"},
    // keys of shape lists
    {"operator", "op"},
    {"operation", "op"},
    {"kernel", "op"},
    {"kernels", "op"},
    {"shapes", "kernels"},
    {"problems", "kernels"},
    {"entries", "kernels"},
    {"ops", "kernels"},
    {"shape", "sizes"},
    {"shapes", "sizes"},
    {"size", "sizes"},
    {"problem-sizes", "sizes"},
    // words
    {"swish", "silu"},
    {"full", "none"},
    {"no", "none"},
    {"off", "none"},
    {"false", "none"},
    {"normalised", "normalized"},
    {"unnormalised", "unnormalized"},
    {"e8m0", "ue8m0"},
    {"e4m3", "ue4m3"},
};

std::string plain(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  std::string text(word.substr(0, 64));
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '_' || c == ' ') c = '-';
  }
  return text;
}

// Insertions, deletions, replacements and swaps of neighbours.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1), last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = last;
    last = row;
  }
  return last.back();
}

/// The candidates that the table names, with the values that they take there: "--mask causal".
std::vector<std::string> meant(const std::string& word, const std::vector<std::string_view>& candidates) {
  std::vector<std::string> found;
  for (const Synonym& row : kSynonyms) {
    if (row.word != word) continue;
    const std::string name = plain(row.meaning.substr(0, row.meaning.find(' ')));
    const std::string_view value = row.meaning.substr(std::min(row.meaning.find(' '), row.meaning.size()));
    for (const std::string_view candidate : candidates) {
      if (plain(candidate) != name) continue;
      found.push_back(fmt::format("{}{}", candidate, value));
      break;
    }
  }
  return found;
}

}  // namespace

std::string suggestion(std::string_view word, const std::vector<std::string_view>& candidates) {
  if (word.size() > 64) return "";
  const std::string typed = plain(word);
  if (const std::vector<std::string> found = meant(typed, candidates); !found.empty())
    return fmt::format(", did you mean {}?", fmt::join(found, " or "));
  std::string_view best;
  // Of one or two letters nothing is left after an edit.
  std::size_t best_distance = typed.size() < 3 ? 1 : std::min<std::size_t>(3, typed.size() / 3 + 1);
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(typed, plain(candidate));
    if (typed.empty() || distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
  }
  if (!best.empty()) return fmt::format(", did you mean {}?", best);
  // "wgmma" of "wgmma.f16": the beginning of few.
  std::vector<std::string_view> longer;
  for (const std::string_view candidate : candidates)
    if (const std::string name = plain(candidate); typed.size() >= 3 && name.size() > typed.size() &&
                                                   name.starts_with(typed) &&
                                                   std::strchr("-.", name[typed.size()]) != nullptr)
      longer.push_back(candidate);
  return longer.empty() || longer.size() > 3 ? "" : fmt::format(", did you mean {}?", fmt::join(longer, " or "));
}

}  // namespace tessera
