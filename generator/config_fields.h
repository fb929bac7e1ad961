// The fields of each Config, visited in one order: designated initializers of generated code, JSON and printed plans
// all come from here. The structured bindings fail to compile when a Config gains a field that is not visited.
#pragma once

#include "spec/copy2d.h"
#include "spec/fmha.h"

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
void visit_fields(const fmha::Config& config, Visit&& visit) {
  const auto& [head_dim, head_dim_v, tile_m, tile_n, stages, q_stages, swizzle, mma_kind, dtype, mask, output,
               ping_pong, cta_pair] = config;
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
}

}  // namespace tessera
