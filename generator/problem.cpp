// The hash sees all fields, hints too, as equality does: a Problem is a key of the library's map of kernels.
#include "generator/problem.h"

#include <fmt/format.h>

#include <charconv>
#include <functional>
#include <iterator>

#include "base/error.h"

namespace tessera {

namespace {

template <class T>
void mix(std::size_t& seed, const T& value) {
  seed ^= std::hash<T>{}(value) + 0x9e3779b97f4a7c15ULL + (seed << 6) + (seed >> 2);
}

template <class T>
void mix(std::size_t& seed, const std::optional<T>& value) {
  mix(seed, value.has_value());
  if (value) mix(seed, *value);
}

void mix(std::size_t& seed, Arch arch) {
  mix(seed, arch.number);
  mix(seed, arch.suffix);
}

std::size_t hash_of(const Copy2d& p) {
  std::size_t seed = 1;
  mix(seed, p.arch);
  mix(seed, p.dtype);
  mix(seed, p.rank);
  mix(seed, p.tile_inner);
  mix(seed, p.tile_outer);
  mix(seed, p.swizzle);
  return seed;
}

std::size_t hash_of(const Fmha& p) {
  std::size_t seed = 2;
  mix(seed, p.arch);
  mix(seed, p.head_dim);
  mix(seed, p.head_dim_v);
  mix(seed, p.dtype);
  mix(seed, p.mask);
  mix(seed, p.output);
  mix(seed, p.v_layout);
  for (const std::optional<int>& pin : {p.tile_m, p.tile_n, p.stages, p.cta_group}) mix(seed, pin);
  mix(seed, p.swizzle);
  mix(seed, p.mma_kind);
  mix(seed, p.p_path);
  for (const Hint hint : {p.batch, p.heads_q, p.heads_kv, p.seqlen_q, p.seqlen_k}) mix(seed, hint);
  return seed;
}

std::size_t hash_of(const Gemm& p) {
  std::size_t seed = 7;
  mix(seed, p.arch);
  mix(seed, p.dtype);
  mix(seed, p.b_dtype);
  mix(seed, p.format);
  mix(seed, p.b_format);
  mix(seed, p.scale_form);
  mix(seed, p.d_dtype);
  mix(seed, p.d_format);
  mix(seed, p.gate);
  mix(seed, p.interleave);
  mix(seed, p.a_layout);
  mix(seed, p.b_layout);
  mix(seed, p.accumulation);
  mix(seed, p.c);
  mix(seed, p.bias);
  mix(seed, p.activation);
  for (const std::optional<int>& pin :
       {p.tile_m, p.tile_n, p.stages, p.accumulators, p.cluster_m, p.cluster_n, p.split_k, p.raster})
    mix(seed, pin);
  mix(seed, p.kernel_schedule);
  for (const Hint hint : {p.m, p.n, p.k, p.l}) mix(seed, hint);
  return seed;
}

std::size_t hash_of(const Quantize& p) {
  std::size_t seed = 3;
  mix(seed, p.arch);
  mix(seed, p.dtype);
  mix(seed, p.format);
  mix(seed, p.scale_form);
  mix(seed, p.scale_rounding);
  mix(seed, p.global_scale);
  mix(seed, p.threads);
  for (const Hint hint : {p.l, p.rows, p.k}) mix(seed, hint);
  return seed;
}

std::size_t hash_of(const Dequantize& p) {
  std::size_t seed = 4;
  mix(seed, p.arch);
  mix(seed, p.dtype);
  mix(seed, p.format);
  mix(seed, p.scale_form);
  mix(seed, p.global_scale);
  mix(seed, p.threads);
  for (const Hint hint : {p.l, p.rows, p.k}) mix(seed, hint);
  return seed;
}

std::size_t hash_of(const ConvertScales& p) {
  std::size_t seed = 5;
  mix(seed, p.arch);
  mix(seed, p.to);
  for (const Hint hint : {p.l, p.rows, p.blocks}) mix(seed, hint);
  return seed;
}

std::size_t hash_of(const Gemv& p) {
  std::size_t seed = 6;
  mix(seed, p.arch);
  mix(seed, p.dtype);
  mix(seed, p.format);
  mix(seed, p.scale_form);
  for (const std::optional<int>& pin : {p.warp_rows, p.k_warps}) mix(seed, pin);
  for (const Hint hint : {p.l, p.m, p.k}) mix(seed, hint);
  return seed;
}

/// In the order of the variant.
constexpr std::string_view kOperatorNames[] = {"copy2d",     "fmha",           "gemm", "quantize",
                                               "dequantize", "convert_scales", "gemv"};
static_assert(std::size(kOperatorNames) == std::variant_size_v<Problem>);

}  // namespace

Arch Arch::parse(std::string_view text) {
  const auto fail = [&]() -> Arch {
    throw Error(ErrorKind::usage,
                fmt::format("arch = {}: must be sm_, a compute capability times ten, and an optional 'a' or 'f', like "
                            "sm_90a",
                            text));
  };
  if (text.size() < 5 || text.substr(0, 3) != "sm_") return fail();
  Arch arch{.number = 0, .suffix = 0};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + 3, end, arch.number);
  if (error != std::errc{} || arch.number < 10 || arch.number > 999 || text[3] == '0') return fail();
  if (stop == end) return arch;
  if (stop + 1 != end || (*stop != 'a' && *stop != 'f')) return fail();
  arch.suffix = *stop;
  return arch;
}

std::string Arch::to_string() const {
  return suffix == 0 ? fmt::format("sm_{}", number) : fmt::format("sm_{}{}", number, suffix);
}

bool has_tcgen05(Arch arch) noexcept {
  return (arch.number == 100 || arch.number == 103) && (arch.suffix == 'a' || arch.suffix == 'f');
}

std::string_view operator_name(const Problem& problem) noexcept { return kOperatorNames[problem.index()]; }

Arch arch_of(const Problem& problem) noexcept {
  return std::visit([](const auto& p) { return p.arch; }, problem);
}

std::size_t ProblemHash::operator()(const Problem& problem) const noexcept {
  return std::visit([](const auto& p) { return hash_of(p); }, problem);
}

}  // namespace tessera
