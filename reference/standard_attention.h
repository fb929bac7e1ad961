// Attention inputs with scores that ordinary random numbers never have.
//
// Two columns of k are no random numbers: column 0 is the same for all keys, so that a query's column 0 moves all of
// its scores alike, and column 1 grows from the last key to the first (kernels go through the keys in that order), so
// that a query's column 1 makes its scores rise or fall. Queries of a head come in groups of 16, of which each is of
// one kind, in turn:
//   ordinary        normal numbers
//   one steep       flat rows (a sixteenth of normal ones), among them one whose scores rise by 60
//   deep            scores near -700, in every second row rising to that from -760
//   ordinary
//   high            scores near 700, in every second row falling to 640
//   one falling     flat rows, among them one whose scores fall by 60
// In every second key head one tile of keys is zero: the last one of the first such head.
#pragma once

#include <cstdint>

#include "reference/fmha.h"

namespace tessera::reference {

/// q [batch, rows, heads, head_dim], filled with normal numbers.
void set_query_kinds(Tensor& q, double softmax_scale, std::uint64_t seed);
/// k [batch, keys, heads, head_dim], or a pool [keys, head_dim]. tile_n: keys of a tile; 0: none is zero.
void set_key_columns(Tensor& k, int tile_n, std::uint64_t seed);

/// All of it over normal numbers.
FmhaTensors make_standard_inputs(const FmhaSizes& sizes, DType dtype, double softmax_scale, int tile_n,
                                 std::uint64_t seed);

}  // namespace tessera::reference
