// PTX ISA, "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "cp.async.bulk.prefetch.tensor": tile, gather4 and
// scatter4 modes. Every active lane starts its own copy. gather4 and scatter4 follow the manual only: nothing that runs
// them on hardware was compared.
#include <fmt/format.h>

#include <algorithm>

#include "emulator/instructions/bind.h"
#include "emulator/instructions/reduce.h"
#include "emulator/memory/async_memory.h"
#include "emulator/memory/tensor_map.h"

namespace tessera::emulator::bind {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;

/// A copy's map and coordinates.
struct Tile {
  math::TensorTile tile;
  math::TileCoordinates at{};
  bool is_gather = false;
  std::array<std::int32_t, 4> rows{};

  U32 credit() const { return is_gather ? 4 * math::tile_credit_bytes(tile) : math::tile_credit_bytes(tile); }
  std::int64_t first_byte() const {
    auto begin = static_cast<std::int64_t>(tile.address) + std::int64_t{at[0]} * math::tile_element_bits(tile.type) / 8;
    for (std::size_t d = 1; d < static_cast<std::size_t>(tile.rank); ++d)
      begin += at[d] * static_cast<std::int64_t>(tile.stride_bytes[d - 1]);
    return begin;
  }
  // Lines that rows touch, and rows that lie in a sector of the L2 more than they need: where they begin repeats after
  // eight.
  void describe_rows(AsyncWork& work) const {
    constexpr std::int64_t kSectorBytes = 32, kLineBytes = 128, kPeriod = 8;
    work.row_bytes = math::tile_row_bytes(tile);
    const std::int64_t bytes = work.row_bytes;
    const std::int64_t all = credit() / std::max(1U, work.row_bytes), begin = first_byte();
    const std::int64_t pitch = tile.rank > 1 ? static_cast<std::int64_t>(tile.stride_bytes[0]) : 0;
    std::int64_t lines = 0, split = 0;
    for (std::int64_t row = 0; row < kPeriod; ++row) {
      const std::int64_t first = begin + row * pitch;
      lines += (first + bytes - 1) / kLineBytes - first / kLineBytes + 1;
      split += static_cast<std::int64_t>(first % kSectorBytes + bytes >
                                         (bytes + kSectorBytes - 1) / kSectorBytes * kSectorBytes);
    }
    work.row_lines = static_cast<U32>(all * lines / kPeriod);
    work.split_rows = static_cast<U32>(all * split / kPeriod);
  }
  template <class Visit>
  void visit_rows(U32 shared, Visit&& f) const {
    if (is_gather)
      math::for_each_row_of_four(tile, at[0], rows, shared, f);
    else
      math::for_each_row(tile, at, shared, f);
  }
  template <class Visit>
  void visit(U32 shared, Visit&& f) const {
    visit_rows(shared, [&](const math::TileRow& row) { math::for_each_chunk_of_row(tile, row, at[0], f); });
  }
};

struct Destination {
  Cta* cta = nullptr;
  Cta* barrier_cta = nullptr;
};

class TensorLoad final : public CopyOperation {
 public:
  using CopyOperation::CopyOperation;
  Tile tile;
  U32 shared = 0;   // offset from a CTA's first byte
  U32 barrier = 0;  // offset
  std::vector<Destination> destinations;

  AsyncWork work() const override {
    AsyncWork work{AsyncWork::Kind::load, tile.credit(), tile.tile.address, destinations.front().cta, place_.in};
    tile.describe_rows(work);
    // A tile that begins outside of its tensor is the tensor's first one.
    work.first_byte =
        static_cast<std::uint64_t>(std::max(tile.first_byte(), static_cast<std::int64_t>(tile.tile.address)));
    for (std::size_t i = 0; i < destinations.size() && destinations.size() > 1; ++i)
      work.to[work.num_to++] = destinations[i].cta;
    return work;
  }
  void complete(Launch& launch) override {
    if (launch.options.skips_values) {
      for (const Destination& to : destinations)
        complete_bytes(launch, *to.barrier_cta, barrier, tile.credit(), place_);
      return;
    }
    const U64 fill = math::tile_fill_pattern(tile.tile);
    bool ok = true;
    tile_ = static_cast<std::uint8_t>(1 + static_cast<unsigned>(tile.tile.swizzle));
    if (destinations.size() == 1) aim(launch, *destinations[0].barrier_cta, barrier);
    // Swizzles act on the absolute address: every CTA's memory starts at the same one, ranks aside.
    const auto copy_chunk = [&](const math::TileChunk& chunk) {
      if (!ok) return;
      std::uint8_t bytes[16];
      std::memcpy(bytes, &fill, 8);
      std::memcpy(bytes + 8, &fill, 8);
      if (chunk.valid_bytes > 0)
        ok = read_global(launch, chunk.global, reinterpret_cast<std::byte*>(bytes),
                         static_cast<std::size_t>(chunk.valid_bytes));
      math::convert_loaded_chunk(tile.tile.type, bytes);
      for (const Destination& to : destinations) {
        if (destinations.size() > 1) aim(launch, *to.barrier_cta, barrier);
        ok = ok &&
             write_shared(launch, *to.cta, chunk.shared - kSharedBase, reinterpret_cast<const std::byte*>(bytes), 16);
      }
    };
    const std::size_t row_bytes = math::tile_row_bytes(tile.tile);
    tile.visit_rows(kSharedBase + shared, [&](const math::TileRow& row) {
      if (!ok) return;
      const U64 global =
          destinations.size() == 1 && row_bytes % 16 == 0 ? math::plain_row(tile.tile, row, tile.at[0]) : 0;
      if (global == 0 || !copy_plain_row(launch, global, *destinations[0].cta, row.shared, tile.tile.swizzle, row_bytes,
                                         tile.tile.rank > 1 ? tile.tile.stride_bytes[0] : 0))
        math::for_each_chunk_of_row(tile.tile, row, tile.at[0], copy_chunk);
    });
    if (!ok) return;
    for (const Destination& to : destinations) complete_bytes(launch, *to.barrier_cta, barrier, tile.credit(), place_);
  }
};

/// The second half of a store: what was read from shared memory reaches global memory.
class TensorWrite final : public CopyOperation {
 public:
  using CopyOperation::CopyOperation;
  TensorWrite(const CopyOperation& base) : CopyOperation(base) {}
  struct Piece {
    U64 global = 0;
    int bytes = 0;
    std::array<std::byte, 16> data{};
  };
  std::vector<Piece> pieces;
  BulkReduce reduce;
  std::shared_ptr<AsyncGroup> group;

  AsyncWork work() const override { return {AsyncWork::Kind::store_write, 0, 0, nullptr, place_.in}; }
  void complete(Launch& launch) override {
    --group->pending;
    is_atomic_ = reduce.op != BulkReduce::Op::none;
    for (Piece& piece : pieces) {
      const auto bytes = static_cast<std::size_t>(piece.bytes);
      if (is_atomic_) {
        std::array<std::byte, 16> old{};
        if (!read_global(launch, piece.global, old.data(), bytes)) return;
        reduce.apply(old.data(), piece.data.data(), bytes);
        piece.data = old;
      }
      if (!write_global(launch, piece.global, piece.data.data(), bytes)) return;
    }
  }
};

class TensorStore final : public CopyOperation {
 public:
  using CopyOperation::CopyOperation;
  Tile tile;
  Cta* cta = nullptr;
  U32 shared = 0;
  BulkReduce reduce;
  std::shared_ptr<AsyncGroup> group;

  AsyncWork work() const override {
    AsyncWork work{AsyncWork::Kind::store_read, tile.credit(), tile.tile.address, cta, place_.in};
    work.first_byte = static_cast<std::uint64_t>(tile.first_byte());
    return work;
  }
  void complete(Launch& launch) override {
    auto write = std::make_unique<TensorWrite>(*this);
    write->group = group;
    write->reduce = reduce;
    if (launch.options.skips_values) {
      --group->reading;
      return launch.async.push(std::move(write), launch);
    }
    bool ok = true;
    tile.visit(kSharedBase + shared, [&](const math::TileChunk& chunk) {
      if (chunk.valid_bytes == 0 || !ok) return;
      TensorWrite::Piece piece;
      piece.global = chunk.global;
      // What lies outside the tensor is not taken from shared memory, but its bytes of the last unit are written:
      // zeros.
      piece.bytes = reduce.op == BulkReduce::Op::none ? math::stored_bytes(tile.tile, chunk) : chunk.valid_bytes;
      ok = read_shared(launch, *cta, chunk.shared - kSharedBase, piece.data.data(),
                       static_cast<std::size_t>(chunk.valid_bytes));
      write->pieces.push_back(piece);
    });
    --group->reading;
    launch.async.push(std::move(write), launch);
  }
};

// flags: 1 gather4, 2 cta_group::2, 4 multicast; number: space | dimensions << 8.
int dimensions(const Instruction& in) { return static_cast<int>(in.number >> 8); }
Space space_in(const Instruction& in) { return static_cast<Space>(in.number & 0xFF); }

// Reads the map at its address, and the coordinates. False after a report.
bool read_tile(Warp& w, const Instruction& in, const Operand& map, int lane, Tile& out) {
  const U64 address = lane_address(w, map, lane);
  Target target;
  if ((address & 63) != 0) {
    report_misaligned(w, in, lane, address, 64);
    return false;
  }
  if (!locate_any(Space::generic, w, lane, address, 128, target)) {
    report_outside(w, in, Space::generic, lane, address, 128, false);
    return false;
  }
  if (target.cta != nullptr) {
    w.fault_at(in, "tensor-map-invalid", lane, address, "the map lies in shared memory",
               "a map must lie in parameters, constant or global memory: tensormap.cp_fenceproxy takes it there");
    return false;
  }
  if (w.race || !w.launch->map_fences.is_empty()) w.launch->map_fences.check(w, in, lane, address);
  std::array<std::byte, 128> bytes;
  std::memcpy(bytes.data(), target.data, 128);
  const char* problem = nullptr;
  if (!decode_tensor_map(bytes, out.tile, problem)) {
    w.fault_at(in, "tensor-map-invalid", lane, address, problem,
               "the map is passed by pointer from the host, not as __grid_constant__, or was never encoded");
    return false;
  }
  const Operand& list = (&map)[1];
  out.is_gather = (in.flags & 1) != 0;
  const int rank = dimensions(in);
  if (out.tile.rank != rank || list.count != (out.is_gather ? 5 : rank)) {
    w.fault_at(in, "tensor-map-rank", lane, address,
               fmt::format("the map has rank {}, the instruction {} dimensions and {} coordinates", out.tile.rank, rank,
                           list.count),
               "strides with rank entries, or another map than the one meant");
    return false;
  }
  for (int i = 0; i < list.count; ++i) {
    const auto value = read_lane<std::int32_t>(w, list.elements[i], lane);
    if (out.is_gather && i > 0)
      out.rows[static_cast<std::size_t>(i - 1)] = value;
    else
      out.at[static_cast<std::size_t>(i)] = value;
  }
  return true;
}

// What the hardware refuses. False after a report.
bool check(Warp& w, const Instruction& in, const Tile& tile, U64 shared, int lane, bool is_store) {
  switch (math::check_tile(tile.tile, tile.at, static_cast<U32>(shared), is_store)) {
    case math::TileFault::none:
      return true;
    case math::TileFault::shared_alignment:
      w.fault_at(in, "tensor-smem-alignment", lane, shared, "the shared address must be a multiple of 128",
                 "a tile placed without alignment in the shared-memory layout");
      return false;
    case math::TileFault::inner_coordinate:
      w.fault_at(
          in, "tensor-inner-coordinate", lane, shared,
          fmt::format("inner coordinate {}: times the element size it must be a multiple of 16 bytes", tile.at[0]),
          "coordinates in another order than the map's dimensions");
      return false;
    case math::TileFault::negative_store:
      w.fault_at(in, "tensor-negative-store", lane, shared, "a store with a negative coordinate", "");
      return false;
  }
  return true;
}

/// ": the map is parameter 1", counted from 0; empty where it lies elsewhere.
std::string parameter_text(const Warp& w, U64 map) {
  const std::vector<ParameterSlot>& slots = w.launch->entry.parameters;
  for (std::size_t i = 0; i < slots.size(); ++i)
    if (map - kParamWindow - slots[i].offset < slots[i].bytes)
      return fmt::format("; the map is parameter {} of {}", i, slots.size());
  return "";
}

// Some memory of a live allocation behind the map: where the box lies, or else where the tensor begins. A box outside
// of the tensor moves no byte, but the hardware faults all the same where the map is of no memory. False after a
// report.
bool check_memory(Warp& w, const Instruction& in, const Operand& map, const Tile& tile, int lane, bool is_store) {
  const GlobalMemory& memory = w.launch->memory;
  const U64 address = tile.tile.address;
  if (memory.is_allocated(address, 1)) return true;
  bool has_any = false;
  tile.visit(kSharedBase, [&](const math::TileChunk& chunk) {
    has_any = has_any || (chunk.valid_bytes > 0 && memory.is_allocated(chunk.global, 1));
  });
  if (has_any) return true;
  w.fault_at(in, "global-out-of-bounds", lane, address,
             fmt::format("a tensor {} through a map of no memory: its tensor begins at {}{}",
                         is_store ? "store" : "load", address == 0 ? "a null pointer" : memory.describe(address),
                         parameter_text(w, lane_address(w, map, lane))),
             "a tensor without elements, whose pointer may be null: nothing may be copied through its map, not even a "
             "box outside of it; or a buffer that was freed");
  return false;
}

// op: destination, map, coordinates, barrier, then mask (multicast) and cache policy.
Step load(Warp& w, const Instruction& in, Mask active) {
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    auto operation = std::make_unique<TensorLoad>(w, in, lane);
    const U64 shared = lane_address(w, in.op[0], lane);
    if (!read_tile(w, in, in.op[1], lane, operation->tile)) return Step::fault;
    if (!check(w, in, operation->tile, shared & 0xFFFFFF, lane, false)) return Step::fault;
    if (!check_memory(w, in, in.op[1], operation->tile, lane, false)) return Step::fault;
    Target target;
    Target barrier;
    if (!shared_target(w, in, space_in(in), lane, shared, 16, target)) return Step::fault;
    const U64 barrier_address = lane_address(w, in.op[3], lane);
    // With a pair the barrier may be the peer's, also where the data's address is one of .shared::cta.
    const bool is_pair = (in.flags & 2) != 0;
    const Space barrier_space = is_pair ? Space::shared_cluster : space_in(in);
    if (!shared_target(w, in, barrier_space, lane, barrier_address, 8, barrier)) return Step::fault;
    operation->shared = target.offset;
    operation->barrier = barrier.offset;
    check_init_fence(w, in, lane, *barrier.cta, barrier.offset);
    const Cluster& cluster = *w.cta->cluster;
    if ((in.flags & 4) == 0) {
      if (target.cta != barrier.cta && (!is_pair || (target.cta->rank ^ 1) != barrier.cta->rank))
        return w.fault_at(
            in, "tensor-barrier-cta", lane, barrier_address,
            fmt::format("data goes to CTA rank {}, the barrier is rank {}'s", target.cta->rank, barrier.cta->rank));
      operation->destinations.push_back({target.cta, barrier.cta});
    } else {
      const auto mask = read_lane<std::uint16_t>(w, in.op[4], lane);
      for (U32 rank = 0; rank < 16; ++rank) {
        if (((mask >> rank) & 1) == 0) continue;
        if (rank >= cluster.ctas.size())
          return w.fault_at(in, "multicast-mask", lane, mask,
                            fmt::format("the mask names CTA rank {} of {}", rank, cluster.ctas.size()));
        // With a pair, the signal of ranks 2i and 2i + 1 goes to the one of them that the barrier's own parity picks.
        const U32 signal = is_pair ? (rank & ~1u) | (barrier.cta->rank & 1) : rank;
        operation->destinations.push_back({cluster.ctas[rank].get(), cluster.ctas[signal].get()});
        check_init_fence(w, in, lane, *cluster.ctas[signal], barrier.offset);
      }
    }
    w.launch->async.push(std::move(operation), *w.launch);
  }
  return Step::next;
}

// op: map, coordinates, source, cache policy?.
Step store(Warp& w, const Instruction& in, Mask active) {
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    auto operation = std::make_unique<TensorStore>(w, in, lane);
    const U64 shared = lane_address(w, in.op[2], lane);
    if (!read_tile(w, in, in.op[0], lane, operation->tile)) return Step::fault;
    if (!check(w, in, operation->tile, shared & 0xFFFFFF, lane, true)) return Step::fault;
    if (!check_memory(w, in, in.op[0], operation->tile, lane, true)) return Step::fault;
    Target target;
    if (!shared_target(w, in, Space::shared_cta, lane, shared, 16, target)) return Step::fault;
    operation->cta = target.cta;
    operation->shared = target.offset;
    if (in.flags >= 256) {
      operation->reduce.op = static_cast<BulkReduce::Op>(in.flags >> 8);
      if (!operation->reduce.set_type(operation->tile.tile.type))
        return w.fault_at(in, "semantics-unknown", lane, shared, "this reduction of the map's element type");
    }
    GroupList& groups = w.async.bulk[static_cast<std::size_t>(lane)];
    AsyncGroup& group = groups.current();
    ++group.reading;
    ++group.pending;
    operation->group = groups.open;
    operation->join_group(w, groups);
    w.launch->async.push(std::move(operation), *w.launch);
  }
  return Step::next;
}

void set_dimensions(const Decoded& d, Space space) {
  constexpr std::string_view kDims[] = {"1d", "2d", "3d", "4d", "5d"};
  for (U32 i = 0; i < 5; ++i)
    if (d.has(kDims[i])) d.in->number = static_cast<U32>(space) | (i + 1) << 8;
}

}  // namespace

Handler tensor_load(const Decoded& d) {
  set_dimensions(d, d.has("shared::cluster") ? Space::shared_cluster : Space::shared_cta);
  d.in->flags = static_cast<std::uint16_t>((d.has("tile::gather4") ? 1 : 0) | (d.has("cta_group::2") ? 2 : 0) |
                                           (d.has("multicast::cluster") ? 4 : 0));
  return load;
}
Handler tensor_store(const Decoded& d) {
  set_dimensions(d, Space::shared_cta);
  if (d.has("tile::scatter4")) {
    d.in->flags = 1;
    return store;
  }
  constexpr std::string_view kOps[] = {"add", "min", "max", "inc", "dec", "and", "or", "xor"};
  for (std::uint16_t i = 0; i < 8; ++i)
    if (d.has(kOps[i])) d.in->flags = static_cast<std::uint16_t>((i + 1) << 8);
  return store;
}

}  // namespace tessera::emulator::bind
