// PTX ISA, "cp.async.bulk", "cp.reduce.async.bulk", "cp.async.bulk.commit_group", "cp.async.bulk.wait_group".
#include <fmt/format.h>

#include "emulator/instructions/bind.h"
#include "emulator/instructions/reduce.h"
#include "emulator/memory/async_memory.h"

namespace tessera::emulator::bind {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;

/// Global or shared memory to shared memory, completing on mbarriers.
class BulkLoad final : public CopyOperation {
 public:
  using CopyOperation::CopyOperation;
  U64 global = 0;
  Cta* source_cta = nullptr;  // nullptr: from global memory
  U32 source = 0;
  U32 bytes = 0;
  U32 shared = 0;
  U32 barrier = 0;
  std::vector<Cta*> destinations;
  BulkReduce reduce;

  AsyncWork work() const override {
    AsyncWork work{AsyncWork::Kind::load, bytes, source_cta != nullptr ? 0 : global, destinations.front(), place_.in};
    for (std::size_t i = 0; i < destinations.size() && destinations.size() > 1; ++i)
      work.to[work.num_to++] = destinations[i];
    return work;
  }
  void complete(Launch& launch) override {
    if (launch.options.skips_values) {
      for (Cta* cta : destinations) complete_bytes(launch, *cta, barrier, bytes, place_);
      return;
    }
    std::vector<std::byte> data(bytes);
    aim(launch, *destinations[0], barrier);
    const bool ok = source_cta != nullptr ? read_shared(launch, *source_cta, source, data.data(), bytes)
                                          : read_global(launch, global, data.data(), bytes);
    if (!ok) return;
    for (Cta* cta : destinations) {
      aim(launch, *cta, barrier);
      is_atomic_ = reduce.op != BulkReduce::Op::none;
      if (is_atomic_) {
        std::vector<std::byte> old(bytes);
        if (!read_shared(launch, *cta, shared, old.data(), bytes)) return;
        reduce.apply(old.data(), data.data(), bytes);
        data = std::move(old);
      }
      if (!write_shared(launch, *cta, shared, data.data(), bytes)) return;
      complete_bytes(launch, *cta, barrier, bytes, place_);
    }
  }
};

class BulkWrite final : public CopyOperation {
 public:
  BulkWrite(const CopyOperation& base) : CopyOperation(base) {}
  U64 global = 0;
  std::vector<std::byte> data;
  BulkReduce reduce;
  std::uint16_t byte_mask = 0xFFFF;  // which bytes of every 16 are written
  std::shared_ptr<AsyncGroup> group;

  AsyncWork work() const override { return {AsyncWork::Kind::store_write, data.size(), global, nullptr, place_.in}; }
  void complete(Launch& launch) override {
    --group->pending;
    if (launch.options.skips_values) return;
    if (byte_mask != 0xFFFF) {
      for (std::size_t i = 0; i < data.size(); ++i)
        if ((byte_mask >> i % 16 & 1) != 0 && !write_global(launch, global + i, data.data() + i, 1)) return;
      return;
    }
    is_atomic_ = reduce.op != BulkReduce::Op::none;
    if (is_atomic_) {
      std::vector<std::byte> old(data.size());
      if (!read_global(launch, global, old.data(), old.size())) return;
      reduce.apply(old.data(), data.data(), data.size());
      data = std::move(old);
    }
    write_global(launch, global, data.data(), data.size());
  }
};

class BulkStore final : public CopyOperation {
 public:
  using CopyOperation::CopyOperation;
  U64 global = 0;
  Cta* cta = nullptr;
  U32 shared = 0;
  U32 bytes = 0;
  BulkReduce reduce;
  std::uint16_t byte_mask = 0xFFFF;
  std::shared_ptr<AsyncGroup> group;

  AsyncWork work() const override { return {AsyncWork::Kind::store_read, bytes, global, cta, place_.in}; }
  void complete(Launch& launch) override {
    auto write = std::make_unique<BulkWrite>(*this);
    write->global = global;
    write->reduce = reduce;
    write->byte_mask = byte_mask;
    write->group = group;
    write->data.resize(bytes);
    --group->reading;
    if (launch.options.skips_values) return launch.async.push(std::move(write), launch);
    if (read_shared(launch, *cta, shared, write->data.data(), bytes)) launch.async.push(std::move(write), launch);
  }
};

bool check(Warp& w, const Instruction& in, int lane, U64 a, U64 b, U32 bytes) {
  if (((a | b) & 15) != 0) {
    report_misaligned(w, in, lane, (a & 15) != 0 ? a : b, 16);
    return false;
  }
  if (bytes % 16 == 0) return true;
  w.fault_at(in, "bulk-size", lane, a, fmt::format("{} bytes: must be a multiple of 16", bytes));
  return false;
}

// flags: 1 the source is shared memory, 4 multicast, reduction << 8. number: space | the reduction's type << 8. op:
// destination, source, size, barrier, mask?/policy?.
Step load(Warp& w, const Instruction& in, Mask active) {
  const auto space = static_cast<Space>(in.number & 0xFF);
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    auto operation = std::make_unique<BulkLoad>(w, in, lane);
    const U64 to = lane_address(w, in.op[0], lane);
    const U64 from = lane_address(w, in.op[1], lane);
    operation->bytes = read_lane<U32>(w, in.op[2], lane);
    if (!check(w, in, lane, to, from, operation->bytes)) return Step::fault;
    Target target;
    Target barrier;
    if (!shared_target(w, in, space, lane, to, operation->bytes, target)) return Step::fault;
    if (!shared_target(w, in, space, lane, lane_address(w, in.op[3], lane), 8, barrier)) return Step::fault;
    operation->global = from;
    operation->shared = target.offset;
    operation->barrier = barrier.offset;
    check_init_fence(w, in, lane, *barrier.cta, barrier.offset);
    operation->reduce.op = static_cast<BulkReduce::Op>(in.flags >> 8);
    operation->reduce.type = static_cast<Type>(in.number >> 8);
    if ((in.flags & 1) != 0) {
      Target source;
      if (!shared_target(w, in, Space::shared_cta, lane, from, operation->bytes, source)) return Step::fault;
      operation->source_cta = source.cta;
      operation->source = source.offset;
    }
    if ((in.flags & 4) == 0) {
      operation->destinations.push_back(target.cta);
    } else {
      const auto mask = read_lane<std::uint16_t>(w, in.op[4], lane);
      const Cluster& cluster = *w.cta->cluster;
      for (U32 rank = 0; rank < 16; ++rank) {
        if (((mask >> rank) & 1) == 0) continue;
        if (rank >= cluster.ctas.size())
          return w.fault_at(in, "multicast-mask", lane, mask,
                            fmt::format("the mask names CTA rank {} of {}", rank, cluster.ctas.size()));
        operation->destinations.push_back(cluster.ctas[rank].get());
        check_init_fence(w, in, lane, *cluster.ctas[rank], barrier.offset);
      }
    }
    w.launch->async.push(std::move(operation), *w.launch);
  }
  return Step::next;
}

// op: destination, source, size, policy?, byte mask with cp_mask. flags: 1 cp_mask, reduction << 8; number: its type.
Step store(Warp& w, const Instruction& in, Mask active) {
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    auto operation = std::make_unique<BulkStore>(w, in, lane);
    const U64 to = lane_address(w, in.op[0], lane);
    const U64 from = lane_address(w, in.op[1], lane);
    operation->bytes = read_lane<U32>(w, in.op[2], lane);
    if (!check(w, in, lane, to, from, operation->bytes)) return Step::fault;
    Target source;
    if (!shared_target(w, in, Space::shared_cta, lane, from, operation->bytes, source)) return Step::fault;
    operation->global = to;
    operation->cta = source.cta;
    operation->shared = source.offset;
    operation->reduce.op = static_cast<BulkReduce::Op>(in.flags >> 8);
    operation->reduce.type = static_cast<Type>(in.number);
    if ((in.flags & 1) != 0) operation->byte_mask = read_lane<std::uint16_t>(w, in.op[4], lane);
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

Step commit(Warp& w, const Instruction&, Mask active) {
  for_lanes(active, [&](int lane) { w.async.bulk[static_cast<std::size_t>(lane)].commit(); });
  return Step::next;
}

// flags: 1 .read.
Step wait(Warp& w, const Instruction& in, Mask active) {
  w.take_wake();
  const auto allowed = static_cast<U64>(in.op[0].value);
  bool over = true;
  for_lanes(active, [&](int lane) {
    over = w.async.bulk[static_cast<std::size_t>(lane)].at_most(allowed, in.flags != 0) && over;
  });
  if (over) {
    if (w.race)
      for_lanes(active, [&](int lane) {
        w.launch->race->wait_group(w, lane, w.async.bulk[static_cast<std::size_t>(lane)], allowed, in.flags != 0);
      });
    return Step::next;
  }
  w.keep(active);
  return w.block({Wait::Kind::bulk_groups, in.flags, allowed, 0});
}

// The operation that the opcode names, none without one. False when the type has no such operation.
bool find_reduction(const Decoded& d, BulkReduce& reduce) {
  constexpr std::string_view kOps[] = {"add", "min", "max", "inc", "dec", "and", "or", "xor"};
  for (std::uint16_t i = 0; i < 8; ++i)
    if (d.has(kOps[i])) reduce.op = static_cast<BulkReduce::Op>(i + 1);
  return reduce.op == BulkReduce::Op::none || reduce.set_type(d.type());
}

}  // namespace

Handler bulk_commit(const Decoded&) { return commit; }
Handler bulk_wait(const Decoded& d) {
  d.in->flags = d.has("read") ? 1 : 0;
  return wait;
}
Handler bulk_load(const Decoded& d) {
  d.in->number = static_cast<U32>(d.has("shared::cluster") ? Space::shared_cluster : Space::shared_cta);
  d.in->flags = d.has("multicast::cluster") ? 4 : 0;
  return load;
}
Handler bulk_to_cluster(const Decoded& d) {
  BulkReduce reduce;
  if (!find_reduction(d, reduce)) return nullptr;
  d.in->number = static_cast<U32>(Space::shared_cluster) | static_cast<U32>(reduce.type) << 8;
  d.in->flags = static_cast<std::uint16_t>(1u | static_cast<unsigned>(reduce.op) << 8);
  return load;
}
Handler bulk_store(const Decoded& d) {
  BulkReduce reduce;
  if (!find_reduction(d, reduce)) return nullptr;
  d.in->flags = static_cast<std::uint16_t>((d.has("cp_mask") ? 1u : 0u) | static_cast<unsigned>(reduce.op) << 8);
  d.in->number = static_cast<U32>(reduce.type);
  return store;
}

}  // namespace tessera::emulator::bind
