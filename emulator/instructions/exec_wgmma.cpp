// PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": wgmma.
//
// The four warps of a warpgroup issue an instruction one by one, as far apart as the schedule likes; when the fourth
// has, the whole operation is queued, and the accumulators change when it completes (wgmma_product.cpp). Operations of
// a warpgroup complete in order.
#include <fmt/format.h>

#include "emulator/instructions/bind.h"
#include "emulator/instructions/lanes.h"
#include "emulator/math/float_format.h"
#include "emulator/tensor_cores/wgmma.h"

namespace tessera::emulator::bind {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;
using math::Format;

bool check_warpgroup(Warp& w, const Instruction& in) {
  const std::size_t first = static_cast<std::size_t>(w.index) / 4 * 4;
  if (first + 4 <= w.cta->warps.size()) return true;
  w.fault(in, "wgmma-warpgroup", "the warp belongs to no complete warpgroup of four warps",
          "a block size that is not a multiple of 128");
  return false;
}

// Marks the places of the registers of what is in flight.
void mark(Warp& w) {
  std::vector<bool>& places = w.async.in_flight_places;
  places.assign(w.launch->entry.register_file_bytes / 64 + 1, false);
  for (const WarpAsync::InFlight& flight : w.async.in_flight)
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < flight.in->op[i].count; ++j) places[flight.in->op[i].elements[j].offset / 64] = true;
  for (const WarpAsync::Copy& copy : w.async.copies) places[copy.in->op[0].offset / 64] = true;
  w.update_watch();
}
void watch(Warp& w, const Instruction& in) {
  w.async.in_flight.push_back({&in, w.async.wgmma_groups});
  if (w.async.in_flight.size() == 1) return mark(w);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < in.op[i].count; ++j) w.async.in_flight_places[in.op[i].elements[j].offset / 64] = true;
}
// All but the newest `allowed` groups are waited for.
void release(Warp& w, U64 allowed) {
  w.wgmma_fenced = false;
  const U64 groups = w.async.wgmma_groups;
  const U64 first_left = groups > allowed ? groups - allowed : 0;
  std::erase_if(w.async.in_flight, [&](const WarpAsync::InFlight& f) { return f.group < first_left; });
  std::erase_if(w.async.copies, [&](const WarpAsync::Copy& copy) {
    const bool is_due = copy.group < first_left;
    if (is_due) copy.in->run(w, *copy.in, copy.active);
    return is_due;
  });
  mark(w);
}

// What this wgmma does to results that nobody has read: it adds to one, overwrites it, or takes it as A.
void meet_unread(Warp& w, const Instruction& in, bool accumulate, const std::shared_ptr<WgmmaResult>& result) {
  const auto first = [](const Instruction& i) { return i.op[0].elements[0].offset; };
  const auto last = [](const Instruction& i) { return i.op[0].elements[i.op[0].count - 1].offset; };
  const auto is_a = [&](const Instruction& i) {
    for (int j = 0; j < in.op[1].count; ++j)
      for (int k = 0; k < i.op[0].count; ++k)
        if (in.op[1].elements[j].offset == i.op[0].elements[k].offset) return true;
    return false;
  };
  std::erase_if(w.async.unread, [&](const WarpAsync::Unread& unread) {
    const bool is_same = first(*unread.in) == first(in) && last(*unread.in) == last(in);
    if (is_a(*unread.in)) {
      use_result(*w.launch, *unread.result);
    } else if (!is_same) {
      return false;
    } else if (!accumulate) {
      --unread.result->warps_left;
    } else if (!unread.result->sum) {
      unread.result->sum = result;
      for (EmulatorFinding& finding : unread.result->findings) result->findings.push_back(std::move(finding));
      if (unread.result->is_used) use_result(*w.launch, *result);
    }
    return true;
  });
}

// op: accumulators, A (descriptor or registers), B descriptor, scale-d, then immediates.
Step issue(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  if (!check_warpgroup(w, in)) return Step::fault;
  const auto member = static_cast<std::size_t>(w.index) % 4;
  WarpgroupAsync& group = w.cta->warpgroups[static_cast<std::size_t>(w.index) / 4];
  const bool a_in_registers = (in.flags & 2) != 0;
  const U64 a = a_in_registers ? 0 : uniform<U64>(w, in.op[1], active);
  const U64 b = uniform<U64>(w, in.op[2], active);
  const Mask scale = w.read_predicate(in.op[3]) & active;
  if (scale != 0 && scale != active)
    return w.fault(in, "wgmma-not-uniform", "scale-d differs between the lanes of a warp");

  const std::size_t slot = static_cast<std::size_t>(w.async.wgmma_issued - group.first);
  if (slot == group.forming.size()) {
    group.forming.push_back(std::make_unique<WgmmaOperation>());
    WgmmaOperation& made = *group.forming.back();
    made.in = &in;
    made.a_descriptor = a;
    made.b_descriptor = b;
    made.accumulate = scale != 0;
    made.chain = &group;
  }
  WgmmaOperation& operation = *group.forming[slot];
  if (operation.in != &in || operation.a_descriptor != a || operation.b_descriptor != b ||
      operation.accumulate != (scale != 0))
    return w.fault(in, "wgmma-not-uniform",
                   fmt::format("this warp issues A 0x{:x} B 0x{:x} scale-d {}; another "
                               "warp of its warpgroup issued PTX line {} "
                               "with A 0x{:x} B 0x{:x} scale-d {}",
                               a, b, scale != 0, operation.in->line, operation.a_descriptor, operation.b_descriptor,
                               operation.accumulate),
                   "a descriptor computed from the thread or warp index");
  if (!w.wgmma_fenced)
    w.hazard(in, "missing-wgmma-fence", -1, 0, "no wgmma.fence since the last wait",
             "registers written before the wgmma may not have arrived when it "
             "reads them");
  meet_unread(w, in, scale != 0, operation.result);
  w.async.unread.push_back({&in, operation.result});
  w.async.watches_unread = w.async.watches_unread || w.race != nullptr;
  watch_unread(w);
  watch(w, in);
  ++w.async.wgmma_issued;
  operation.warps[member] = &w;
  if (w.race) {
    if (group.race_agent == 0) group.race_agent = w.launch->race->make_warpgroup(*w.cta, w.index / 4 * 4);
    const std::shared_ptr<RaceOperation> seen = w.launch->race->issue(w, in, kAllLanes);
    seen->read_agent = group.race_agent;
    seen->read_clock = static_cast<U32>(w.async.wgmma_groups) + 1;
    seen->lanes = Mask{1} << member;  // which warps' parts read
    operation.race[member] = seen;
    w.launch->race->remember(*seen, operation.result);
    if (operation.race_of_all)
      operation.race_of_all->seen.meet(seen->seen), operation.race_of_all->wide.meet(seen->wide);
    else
      operation.race_of_all = std::make_shared<RaceOperation>(*seen);
    operation.race_of_all->lanes = 15;
  }
  ++w.async.wgmma.current().pending;
  operation.groups[member] = w.async.wgmma.open;
  if (++operation.joined == 4) {
    std::unique_ptr<WgmmaOperation> ready = std::move(group.forming.front());
    group.forming.pop_front();
    ++group.first;
    w.launch->async.push(std::move(ready), *w.launch);
  }
  return Step::next;
}

Step fence_handler(Warp& w, const Instruction&, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  w.wgmma_fenced = true;
  return Step::next;
}

Step commit(Warp& w, const Instruction&, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  w.async.wgmma.commit();
  ++w.async.wgmma_groups;
  return Step::next;
}

Step wait(Warp& w, const Instruction& in, Mask active) {
  w.take_wake();
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  const auto allowed = static_cast<U64>(in.op[0].value);
  if (w.async.wgmma.at_most(allowed, false)) {
    release(w, allowed);
    const U32 agent = w.cta->warpgroups[static_cast<std::size_t>(w.index) / 4].race_agent;
    if (w.race && agent != 0 && w.async.wgmma_groups > allowed)
      w.launch->race->wait_wgmma(w, agent, static_cast<U32>(w.async.wgmma_groups - allowed));
    return Step::next;
  }
  return w.block({Wait::Kind::wgmma_groups, 0, allowed, 0});
}

bool find_format(Type type, Format& format) {
  switch (type) {
    case Type::f16:
      format = Format::f16;
      return true;
    case Type::bf16:
      format = Format::bf16;
      return true;
    case Type::tf32:
      format = Format::tf32;
      return true;
    case Type::e4m3:
      format = Format::e4m3;
      return true;
    case Type::e5m2:
      format = Format::e5m2;
      return true;
    default:
      return false;
  }
}

// Immediates: scale-a, scale-b (1 or -1), then for 16-bit types tnsp-a (A in memory) and tnsp-b.
bool read_immediates(const Decoded& d, bool is_16_bit, bool a_in_registers, unsigned& flags) {
  const Operand* op = d.in->op + 4;
  const auto sign = [](const Operand& o, bool& minus) {
    minus = o.value == -1;
    return o.is_immediate && (o.value == 1 || o.value == -1);
  };
  bool minus_a = false;
  bool minus_b = false;
  if (!sign(op[0], minus_a) || !sign(op[1], minus_b)) return false;
  flags |= (minus_a ? 16u : 0u) | (minus_b ? 32u : 0u);
  const int wanted = !is_16_bit ? 0 : a_in_registers ? 1 : 2;
  for (int i = 0; i < 2; ++i) {
    const Operand& o = op[2 + i];
    if ((o.kind != Operand::Kind::none) != (i < wanted)) return false;
    if (i < wanted && (!o.is_immediate || o.value < 0 || o.value > 1)) return false;
  }
  if (wanted == 2) flags |= (op[2].value != 0 ? 4u : 0u) | (op[3].value != 0 ? 8u : 0u);
  if (wanted == 1) flags |= op[2].value != 0 ? 8u : 0u;
  return true;
}

}  // namespace

// op: accumulators, A, B, scale-d; integers have no immediates.
Handler wgmma_integer(const Decoded& d) {
  const U32 n = d.numbers[0];
  const bool a_in_registers = d.in->op[1].kind == Operand::Kind::list;
  // 8, 16, 24, 32, then every 16: ptxas refuses the others.
  if (n < 8 || n > 256 || n % (n > 32 ? 16 : 8) != 0) return nullptr;
  if (d.in->op[0].count != n / 2 || (a_in_registers && d.in->op[1].count != 4)) return nullptr;
  const auto code = [](Type type) {
    return static_cast<U32>(type == Type::s8   ? WgmmaInteger::s8
                            : type == Type::u8 ? WgmmaInteger::u8
                                               : WgmmaInteger::b1);
  };
  d.in->flags = static_cast<std::uint16_t>((a_in_registers ? 2u : 0u) | (d.has("satfinite") ? 64u : 0u));
  d.in->number = n | code(d.type(1)) << 12 | code(d.type(2)) << 16;
  return issue;
}
Handler wgmma(const Decoded& d) {
  Format a{};
  Format b{};
  if (!find_format(d.type(1), a) || !find_format(d.type(2), b)) return nullptr;
  const U32 n = d.numbers[0];
  const bool is_f16 = d.type(0) == Type::f16;
  const bool a_in_registers = d.in->op[1].kind == Operand::Kind::list;
  if (n < 8 || n > 256 || n % 8 != 0) return nullptr;
  if (d.in->op[0].count != n / (is_f16 ? 4 : 2)) return nullptr;
  if (a_in_registers && d.in->op[1].count != 4) return nullptr;
  unsigned flags = (is_f16 ? 1u : 0u) | (a_in_registers ? 2u : 0u);
  if (!read_immediates(d, a == Format::f16 || a == Format::bf16, a_in_registers, flags)) return nullptr;
  d.in->flags = static_cast<std::uint16_t>(flags);
  d.in->number = n | static_cast<U32>(a) << 12 | static_cast<U32>(b) << 16;
  return issue;
}
Handler wgmma_fence(const Decoded&) { return fence_handler; }
Handler wgmma_commit(const Decoded&) { return commit; }
Handler wgmma_wait(const Decoded&) { return wait; }

}  // namespace tessera::emulator::bind
