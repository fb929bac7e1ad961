// Ragged sequences: one thread finds the tiles, and tells the others.
//
// Where a tile lies and which keys it sees follows from lengths in memory, by a chain of loads and divisions. Consumers
// issue no product between two tiles until they know, and the next tile's first keys are not on their way. So the
// thread that loads Q finds it and leaves messages in a ring. A message without blocks says that no tile is left.
//
// That of tile t is written before Q's slot is waited for, when Q of tile t - 1 is on its way: then the slot of tile
// t - 1 - q_stages was empty, all are done with that tile, and of two slots four messages are in use at most.
#pragma once

#include "fmha/key_blocks.cuh"
#include "fmha/params.cuh"
#include "fmha/ring.cuh"
#include "fmha/schedule.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_words.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// Of the tile of a round.
template <Config C>
__device__ __forceinline__ unsigned passed_tile(unsigned smem, int round) {
  return smem + smem_layout(C).passed.offset +
         static_cast<int>(static_cast<unsigned>(round) % kPassedTiles) * kPassedTileBytes;
}
template <Config C>
__device__ __forceinline__ unsigned passed_barrier(unsigned smem, int round) {
  return barrier_at<barriers(C).passed>(smem, static_cast<int>(static_cast<unsigned>(round) % kPassedTiles));
}

// Where a tile's blocks begin in the rings of raw slots and of what consumers are told of: has_raw_tiles().
template <Config C>
struct RawPlaces {
  RingPosition<load_stages(C, false)> ring;
  RingPosition<load_stages(C, false)> ready;  // of raw tiles' blocks alone
};

// The loading thread's side.
template <Config C>
__device__ __forceinline__ void pass_tile(const Params& p, unsigned smem, const TileIndex& tile, bool is_real,
                                          int round, const RawPlaces<C>& places = {}) {
  static_assert(C.q_stages + 2 <= kPassedTiles);
  const auto word = [](int value) { return static_cast<unsigned>(value); };
  const unsigned to = passed_tile<C>(smem, round);
  ptx::st_shared_v4(to, {word(tile.m), word(tile.head), word(tile.sequence), word(tile.first_query)});
  const KeyBlocks<C> keys(p, lengths_of<C>(p, tile));
  const Blocks blocks = keys.of_tile(tile);
  ptx::st_shared_v4(to + 16, {word(tile.queries), word(keys.lengths.k), is_real ? word(blocks.end - blocks.begin) : 0u,
                              word(keys.key_of(blocks.begin))});
  ptx::st_shared_u32(to + 48, word(end_of_loads(p, keys, blocks)));
  if constexpr (is_dealt(C)) ptx::st_shared_u32(to + 52, word(tile.split));
  if constexpr (has_raw_tiles(C)) {
    const bool is_raw = rows_of_tile_head<C>(p, tile) - tile.m * C.tile_m <= kRowsOfTransposed;
    ptx::st_shared_v2(to + 56, is_raw ? word(2 * places.ready.state + 1) : 0u, word(places.ring.state));
  }
#pragma unroll 1
  for (int warpgroup = 0; warpgroup < row_groups(C); ++warpgroup) {
    const int hidden = keys.hidden_of(blocks, tile.m * C.tile_m + warpgroup * kRowsPerWarpgroup);
    ptx::st_shared_u32(to + 32 + 4 * warpgroup, word(hidden));
  }
  ptx::mbarrier_arrive(passed_barrier<C>(smem, round));
}
// No tile is left.
template <Config C>
__device__ __forceinline__ void pass_the_end(unsigned smem, int round) {
  ptx::st_shared_v4(passed_tile<C>(smem, round) + 16, {0, 0, 0, 0});
  ptx::mbarrier_arrive(passed_barrier<C>(smem, round));
}

// The side of who is told, as a Schedule: in the order of rounds.
template <Config C>
struct PassedTiles {
  const unsigned smem;
  mutable int at_hand = 0;  // its round

  __device__ __forceinline__ explicit PassedTiles(unsigned shared_memory) : smem(shared_memory) {}

  // Waits for the round's message.
  __device__ __forceinline__ bool has(int round) const {
    ptx::mbarrier_wait_parity(passed_barrier<C>(smem, round), static_cast<unsigned>(round) / kPassedTiles & 1);
    at_hand = round;
    return blocks() > 0;
  }
  __device__ __forceinline__ int next(int round, const TileIndex& /*tile*/) const { return round + 1; }

  // The tile at hand, and the one before it: read again rather than kept.
  __device__ __forceinline__ TileIndex at(int round) const { return tile_of(round); }
  __device__ __forceinline__ TileIndex before() const { return tile_of(at_hand - 1); }
  __device__ __forceinline__ TileIndex tile_of(int round) const {
    const unsigned message = passed_tile<C>(smem, round);
    const ptx::Words4 words = ptx::ld_shared_v4(message);
    TileIndex tile{static_cast<int>(words.x), static_cast<int>(words.y)};
    tile.sequence = static_cast<int>(words.z);
    tile.first_query = static_cast<int>(words.w);
    tile.queries = static_cast<int>(ptx::ld_shared_u32(message + 16));
    if constexpr (is_dealt(C)) tile.split = static_cast<int>(ptx::ld_shared_u32(message + 52));
    return tile;
  }
  __device__ __forceinline__ int word(int i) const {
    return static_cast<int>(ptx::ld_shared_u32(passed_tile<C>(smem, at_hand) + 4 * static_cast<unsigned>(i)));
  }

  // Of the tile at hand.
  __device__ __forceinline__ int keys() const { return word(5); }
  __device__ __forceinline__ int blocks() const { return word(6); }
  __device__ __forceinline__ int first_key() const { return word(7); }
  __device__ __forceinline__ int hidden_blocks(int warpgroup) const { return word(8 + warpgroup); }
  __device__ __forceinline__ LoadedKeys loaded_keys() const { return {word(12), blocks()}; }
  __device__ __forceinline__ bool is_raw() const { return word(14) != 0; }
  __device__ __forceinline__ RawPlaces<C> raw_places() const { return {{word(15)}, {word(14) / 2}}; }
};

// The side of a warp that loads, where one lane of the warp of K finds the tiles as well: both are told.
template <Config C>
struct FoundTiles : PassedTiles<C> {
  const Params& p;
  const bool finds;
  const Schedule<C> found;
  mutable RawPlaces<C> places{};  // of the next tile

  __device__ __forceinline__ FoundTiles(const Params& params, unsigned shared_memory, bool is_finder)
      : PassedTiles<C>(shared_memory), p(params), finds(is_finder), found(params) {}

  __device__ __forceinline__ bool has(int round) const {
    if (finds && threadIdx.x % 32 == 0) {
      const bool is_real = found.has(round);
      if (is_real || (joins_tiles(C) && round > 0)) {
        pass_tile<C>(p, this->smem, found.at(round), is_real, round, places);
        if constexpr (has_raw_tiles(C)) {
          this->at_hand = round;
          places.ring.advance(this->blocks());
          if (this->is_raw()) places.ready.advance(this->blocks());
        }
      } else {
        pass_the_end<C>(this->smem, round);
      }
    }
    return PassedTiles<C>::has(round);
  }
};

// What consumers walk by.
template <Config C>
struct ConsumerSchedule {
  using Type = Schedule<C>;
};
template <Config C>
requires(passes_tiles(C)) struct ConsumerSchedule<C> {
  using Type = PassedTiles<C>;
};

// The keys of a tile's sequence.
template <Config C, class Walk>
__device__ __forceinline__ int valid_keys_of(const Params& p, const Walk& schedule, const TileIndex& tile) {
  if constexpr (passes_tiles(C)) {
    return schedule.keys();
  } else {
    return lengths_of<C>(p, tile).k;
  }
}
// What of them its loads walk over.
template <Config C, class Walk>
__device__ __forceinline__ LoadedKeys loaded_keys_of(const Params& p, const Walk& schedule, const TileIndex& tile) {
  if constexpr (passes_tiles(C)) {
    return schedule.loaded_keys();
  } else {
    return loaded_keys<C>(p, tile);
  }
}

}  // namespace tessera::fmha
