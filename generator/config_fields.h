// The fields of each Config, visited in one order: designated initializers of generated code, JSON and printed plans
// all come from here. The structured bindings fail to compile when a Config gains a field that is not visited.
#pragma once

#include "spec/convert_scales.h"
#include "spec/copy2d.h"
#include "spec/dequantize.h"
#include "spec/fmha.h"
#include "spec/fmha_tcgen05.h"
#include "spec/gemm.h"
#include "spec/gemm_tcgen05.h"
#include "spec/gemv.h"
#include "spec/quantize.h"

namespace tessera {

/// visit("rank", 2), visit("dtype", DType::f32), ...: int, bool, an enumeration, or an array of int.
template <class Visit>
void visit_fields(const copy2d::Config& config, Visit&& visit) {
  const auto& [rank, dtype, box, swizzle] = config;
  visit("rank", rank);
  visit("dtype", dtype);
  visit("box", box);
  visit("swizzle", swizzle);
}

template <class Visit>
void visit_fields(const quantize::Config& config, Visit&& visit) {
  const auto& [dtype, format, scale_form, scale_rounding, global_scale, conversion, threads] = config;
  visit("dtype", dtype);
  visit("format", format);
  visit("scale_form", scale_form);
  visit("scale_rounding", scale_rounding);
  visit("global_scale", global_scale);
  visit("conversion", conversion);
  visit("threads", threads);
}

template <class Visit>
void visit_fields(const dequantize::Config& config, Visit&& visit) {
  const auto& [dtype, format, scale_form, global_scale, conversion, threads] = config;
  visit("dtype", dtype);
  visit("format", format);
  visit("scale_form", scale_form);
  visit("global_scale", global_scale);
  visit("conversion", conversion);
  visit("threads", threads);
}

template <class Visit>
void visit_fields(const convert_scales::Config& config, Visit&& visit) {
  const auto& [to] = config;
  visit("to", to);
}

template <class Visit>
void visit_fields(const gemv::Config& config, Visit&& visit) {
  const auto& [dtype, format, scale_form, conversion, warp_rows, k_warps, k_panel] = config;
  visit("dtype", dtype);
  visit("format", format);
  visit("scale_form", scale_form);
  visit("conversion", conversion);
  visit("warp_rows", warp_rows);
  visit("k_warps", k_warps);
  visit("k_panel", k_panel);
}

template <class Visit>
void visit_fields(const fmha::Config& config, Visit&& visit) {
  const auto& [head_dim, head_dim_v, tile_m, tile_n, stages, q_stages, swizzle, mma_kind, dtype, mask, output,
               ping_pong, cta_pair, pack_gqa] = config;
  visit("head_dim", head_dim);
  visit("head_dim_v", head_dim_v);
  visit("tile_m", tile_m);
  visit("tile_n", tile_n);
  visit("stages", stages);
  visit("q_stages", q_stages);
  visit("swizzle", swizzle);
  visit("mma_kind", mma_kind);
  visit("dtype", dtype);
  visit("mask", mask);
  visit("output", output);
  visit("ping_pong", ping_pong);
  visit("cta_pair", cta_pair);
  visit("pack_gqa", pack_gqa);
}

template <class Visit>
void visit_fields(const fmha_tcgen05::Config& config, Visit&& visit) {
  const auto& [head_dim, head_dim_v, tile_m, tile_n, stages, swizzle, mma_kind, dtype, mask, window, seqused, output,
               v_layout, p_path, cta_pair, pack_gqa, split_kv, kv_pools] = config;
  visit("head_dim", head_dim);
  visit("head_dim_v", head_dim_v);
  visit("tile_m", tile_m);
  visit("tile_n", tile_n);
  visit("stages", stages);
  visit("swizzle", swizzle);
  visit("mma_kind", mma_kind);
  visit("dtype", dtype);
  visit("mask", mask);
  visit("window", window);
  visit("seqused", seqused);
  visit("output", output);
  visit("v_layout", v_layout);
  visit("p_path", p_path);
  visit("cta_pair", cta_pair);
  visit("pack_gqa", pack_gqa);
  visit("split_kv", split_kv);
  visit("kv_pools", kv_pools);
}

template <class Visit>
void visit_fields(const gemm::Config& config, Visit&& visit) {
  const auto& [a_dtype, b_dtype, d_dtype, a_layout, b_layout, accumulation, c, bias, activation, tile_m, tile_n, stages,
               cluster_m, cluster_n, split_k, kernel_schedule, raster, swap_ab, box_m] = config;
  visit("a_dtype", a_dtype);
  visit("b_dtype", b_dtype);
  visit("d_dtype", d_dtype);
  visit("a_layout", a_layout);
  visit("b_layout", b_layout);
  visit("accumulation", accumulation);
  visit("c", c);
  visit("bias", bias);
  visit("activation", activation);
  visit("tile_m", tile_m);
  visit("tile_n", tile_n);
  visit("stages", stages);
  visit("cluster_m", cluster_m);
  visit("cluster_n", cluster_n);
  visit("split_k", split_k);
  visit("kernel_schedule", kernel_schedule);
  visit("raster", raster);
  visit("swap_ab", swap_ab);
  visit("box_m", box_m);
}

template <class Visit>
void visit_fields(const gemm_tcgen05::Config& config, Visit&& visit) {
  const auto& [a_type, b_type, a_layout, b_layout, d_dtype, c, bias, activation, gate, interleave, d_format, grouping,
               tile_m, tile_n, stages, accumulators, cluster_m, cluster_n, split_k, raster] = config;
  visit("a_type", a_type);
  visit("b_type", b_type);
  visit("a_layout", a_layout);
  visit("b_layout", b_layout);
  visit("d_dtype", d_dtype);
  visit("c", c);
  visit("bias", bias);
  visit("activation", activation);
  visit("gate", gate);
  visit("interleave", interleave);
  visit("d_format", d_format);
  visit("grouping", grouping);
  visit("tile_m", tile_m);
  visit("tile_n", tile_n);
  visit("stages", stages);
  visit("accumulators", accumulators);
  visit("cluster_m", cluster_m);
  visit("cluster_n", cluster_n);
  visit("split_k", split_k);
  visit("raster", raster);
}

}  // namespace tessera
