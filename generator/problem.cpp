// The hash sees all fields, hints too, as equality does: a Problem is a key of the library's map of kernels.
#include "generator/problem.h"

#include <functional>
#include <iterator>

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

template <class... Fields>
std::size_t hash_all(const Fields&... fields) {
  std::size_t seed = 0;
  (mix(seed, fields), ...);
  return seed;
}

// Each binds all fields by name: a new one does not compile until it stands here too.

std::size_t hash_of(const Copy2d& p) {
  const auto& [arch, dtype, rank, tile_inner, tile_outer, swizzle] = p;
  return hash_all(arch, dtype, rank, tile_inner, tile_outer, swizzle);
}

std::size_t hash_of(const Fmha& p) {
  const auto& [arch, head_dim, head_dim_v, dtype, mask, window, seqused, kv_pools, output, v_layout, tile_m, tile_n,
               stages, swizzle, mma_kind, p_path, cta_group, pack_gqa, split_kv, batch, heads_q, heads_kv, seqlen_q,
               seqlen_k, num_splits, topk, seqlen_swa, window_size_left, window_size_right] = p;
  return hash_all(arch, head_dim, head_dim_v, dtype, mask, window, seqused, kv_pools, output, v_layout, tile_m, tile_n,
                  stages, swizzle, mma_kind, p_path, cta_group, pack_gqa, split_kv, batch, heads_q, heads_kv, seqlen_q,
                  seqlen_k, num_splits, topk, seqlen_swa, window_size_left, window_size_right);
}

std::size_t hash_of(const Gemm& p) {
  const auto& [arch, dtype, b_dtype, format, b_format, scale_form, d_dtype, d_format, a_layout, b_layout, accumulation,
               c, bias, activation, grouping, gate, interleave, tile_m, tile_n, stages, accumulators, cluster_m,
               cluster_n, split_k, kernel_schedule, swap_ab, raster, m, n, k, l] = p;
  return hash_all(arch, dtype, b_dtype, format, b_format, scale_form, d_dtype, d_format, a_layout, b_layout,
                  accumulation, c, bias, activation, grouping, gate, interleave, tile_m, tile_n, stages, accumulators,
                  cluster_m, cluster_n, split_k, kernel_schedule, swap_ab, raster, m, n, k, l);
}

std::size_t hash_of(const Quantize& p) {
  const auto& [arch, dtype, format, scale_form, scale_rounding, global_scale, threads, l, rows, k] = p;
  return hash_all(arch, dtype, format, scale_form, scale_rounding, global_scale, threads, l, rows, k);
}

std::size_t hash_of(const Dequantize& p) {
  const auto& [arch, dtype, format, scale_form, global_scale, threads, l, rows, k] = p;
  return hash_all(arch, dtype, format, scale_form, global_scale, threads, l, rows, k);
}

std::size_t hash_of(const ConvertScales& p) {
  const auto& [arch, to, l, rows, blocks] = p;
  return hash_all(arch, to, l, rows, blocks);
}

std::size_t hash_of(const Gemv& p) {
  const auto& [arch, dtype, format, scale_form, warp_rows, k_warps, l, m, k] = p;
  return hash_all(arch, dtype, format, scale_form, warp_rows, k_warps, l, m, k);
}

/// In the order of the variant.
constexpr std::string_view kOperatorNames[] = {"copy2d",     "fmha",           "gemm", "quantize",
                                               "dequantize", "convert_scales", "gemv"};
static_assert(std::size(kOperatorNames) == std::variant_size_v<Problem>);

}  // namespace

std::string_view operator_name(const Problem& problem) noexcept { return kOperatorNames[problem.index()]; }

Arch arch_of(const Problem& problem) noexcept {
  return std::visit([](const auto& p) { return p.arch; }, problem);
}

std::size_t ProblemHash::operator()(const Problem& problem) const noexcept {
  std::size_t seed = std::visit([](const auto& p) { return hash_of(p); }, problem);
  mix(seed, problem.index());
  return seed;
}

}  // namespace tessera
