// PTX ISA, "cp.async": the copies of 4, 8 and 16 bytes that threads start one by one.
#include "emulator/instructions/bind.h"
#include "emulator/memory/async_memory.h"

namespace tessera::emulator::bind {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;

/// One instruction's copies, all lanes. cp.async writes through the generic proxy.
class LaneCopies final : public CopyOperation {
 public:
  LaneCopies(const Warp& w, const Instruction& in, Mask active) : CopyOperation(w, in) {
    is_generic_ = true;
    if (w.race) race_ = w.launch->race->issue_copies(w, active);
  }
  struct Piece {
    U64 global = 0;
    U32 shared = 0;
    U32 bytes = 0;  // from global memory; the rest of `size` is zero
    int lane = 0;
    U64 number = 0;  // the group's
    std::shared_ptr<AsyncGroup> group;
  };
  Cta* cta = nullptr;
  int warp = 0;
  U32 size = 0;
  std::vector<Piece> pieces;

  AsyncWork work() const override {
    U64 bytes = 0;
    for (const Piece& piece : pieces) bytes += piece.bytes;
    return {AsyncWork::Kind::lane_copies, bytes, pieces.front().global, cta, place_.in};
  }
  std::vector<std::pair<U64, U32>> pieces_read() const override {
    std::vector<std::pair<U64, U32>> read;
    for (const Piece& piece : pieces)
      if (piece.bytes > 0) read.emplace_back(piece.global, piece.bytes);
    return read;
  }
  void complete(Launch& launch) override {
    if (launch.options.skips_values) {
      for (Piece& piece : pieces) --piece.group->pending;
      return;
    }
    for (Piece& piece : pieces) {
      std::byte data[16] = {};
      if (race_) {
        race_->lanes = Mask{1} << piece.lane;
        race_->read_clock = race_->write_clock = static_cast<U32>(piece.number) + 1;
      }
      if (piece.bytes > 0 && !read_global(launch, piece.global, data, piece.bytes)) return;
      if (!write_shared(launch, *cta, piece.shared, data, size)) return;
      cta->written_at[piece.shared / 16] = launch.fence_clock << 16 | U64{cta->rank} << 8 | static_cast<U64>(warp + 1);
      --piece.group->pending;
    }
  }
};

// op: destination, source, size, source bytes or ignore-src?, cache policy?.
Step copy(Warp& w, const Instruction& in, Mask active) {
  auto operation = std::make_unique<LaneCopies>(w, in, active);
  operation->cta = w.cta;
  operation->warp = w.index;
  operation->chain = &w.async.copy;  // in order, so that an mbarrier arrival comes after the copies before it
  const auto size = static_cast<U32>(in.op[2].value);
  const Mask ignored = in.op[3].kind == Operand::Kind::predicate ? w.read_predicate(in.op[3]) : 0;
  operation->size = size;
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const U64 to = lane_address(w, in.op[0], lane);
    const U64 from = lane_address(w, in.op[1], lane);
    if (((to | from) & (size - 1)) != 0)
      return report_misaligned(w, in, lane, (to & (size - 1)) != 0 ? to : from, size);
    U32 bytes = size;
    if (in.op[3].kind == Operand::Kind::reg) bytes = std::min(size, read_lane<U32>(w, in.op[3], lane));
    if (((ignored >> lane) & 1) != 0) bytes = 0;
    Target target;
    if (!shared_target(w, in, Space::shared_cta, lane, to, size, target)) return Step::fault;
    GroupList& groups = w.async.copy[static_cast<std::size_t>(lane)];
    ++groups.current().pending;
    operation->pieces.push_back({from, target.offset, bytes, lane, groups.closed, groups.open});
  }
  w.launch->async.push(std::move(operation), *w.launch);
  return Step::next;
}

Step commit(Warp& w, const Instruction&, Mask active) {
  for_lanes(active, [&](int lane) { w.async.copy[static_cast<std::size_t>(lane)].commit(); });
  return Step::next;
}

// flags: 1 wait_all, which also covers what is not committed.
Step wait(Warp& w, const Instruction& in, Mask active) {
  w.take_wake();
  U64 allowed = 0;
  if (in.flags != 0)
    for_lanes(active, [&](int lane) { w.async.copy[static_cast<std::size_t>(lane)].commit(); });
  else
    allowed = static_cast<U64>(in.op[0].value);
  bool over = true;
  for_lanes(active,
            [&](int lane) { over = w.async.copy[static_cast<std::size_t>(lane)].at_most(allowed, false) && over; });
  if (over) {
    if (!w.race) return Step::next;
    for (Mask rest = active; rest != 0;) {
      const auto closed_of = [&](int lane) { return w.async.copy[static_cast<std::size_t>(lane)].closed; };
      const U64 closed = closed_of(std::countr_zero(rest));
      Mask lanes = 0;
      for_lanes(rest, [&](int lane) { lanes |= closed_of(lane) == closed ? Mask{1} << lane : 0; });
      if (closed > allowed) w.launch->race->wait_copies(w, lanes, closed - allowed);
      rest &= ~lanes;
    }
    return Step::next;
  }
  w.keep(active);
  return w.block({Wait::Kind::copy_groups, 0, allowed, 0});
}

/// Arrives on an mbarrier once the lane's earlier cp.async are done.
class ArriveLater final : public AsyncOperation {
 public:
  Cta* cta = nullptr;
  U32 barrier = 0;
  std::shared_ptr<RaceOperation> race;
  void complete(Launch& launch) override {
    Mbarrier* b = cta->find_mbarrier(barrier);
    if (b == nullptr || b->pending == 0) return;
    --b->pending;
    if (race && b->race) b->race->complete(*race);
    settle(*b, launch);
  }
};

// flags: 1 noinc.
Step arrive(Warp& w, const Instruction& in, Mask active) {
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const U64 address = lane_address(w, in.op[0], lane);
    Target target;
    if (!shared_target(w, in, static_cast<Space>(in.number), lane, address, 8, target)) return Step::fault;
    Mbarrier* barrier = target.cta->find_mbarrier(target.offset);
    if (barrier == nullptr)
      return w.fault_at(in, "mbarrier-not-initialised", lane, address,
                        "no mbarrier.init was executed for this address");
    if (in.flags == 0) ++barrier->pending;
    auto operation = std::make_unique<ArriveLater>();
    operation->cta = target.cta;
    operation->barrier = target.offset;
    operation->chain = &w.async.copy;  // behind the warp's copies
    if (w.race) {
      // Lanes that arrive together on one barrier tell together.
      const Mask lanes = active == w.alive ? active : Mask{1} << lane;
      operation->race = w.launch->race->issue(w, in, lanes);
      w.launch->race->follow_copies(*operation->race, w, lanes, w.async.copy[static_cast<std::size_t>(lane)].closed);
    }
    w.launch->async.push(std::move(operation), *w.launch);
  }
  return Step::next;
}

}  // namespace

Handler cp_async(const Decoded& d) {
  const std::int64_t size = d.in->op[2].value;
  const bool legal = d.has("cg") ? size == 16 : size == 4 || size == 8 || size == 16;
  return legal ? copy : nullptr;
}
Handler cp_async_commit(const Decoded&) { return commit; }
Handler cp_async_wait(const Decoded& d) {
  d.in->flags = d.form->mnemonic == "cp.async.wait_all" ? 1 : 0;
  return wait;
}
Handler cp_async_mbarrier(const Decoded& d) {
  d.in->flags = d.has("noinc") ? 1 : 0;
  d.in->number = static_cast<U32>(space_of(d));
  return arrive;
}

}  // namespace tessera::emulator::bind
