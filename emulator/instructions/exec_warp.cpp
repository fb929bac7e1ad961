// Instructions by which the lanes of a warp talk. PTX ISA, "shfl.sync", "vote.sync", "match.sync", "redux.sync",
// "activemask", "elect.sync", "bar.warp.sync".
//
// All of them wait until every lane of their member mask is at the same instruction.
#include <fmt/format.h>

#include <cmath>

#include "emulator/findings/schedule_clues.h"
#include "emulator/instructions/bind.h"
#include "emulator/instructions/lanes.h"
#include "emulator/math/float_arithmetic.h"

namespace tessera::emulator::bind {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;

/// The lanes whose value is this one.
template <class T>
Mask lanes_equal(const T* values, T value) {
  alignas(64) std::uint8_t flags[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) flags[lane] = values[lane] == value ? 1 : 0;
  return gather_flags(flags);
}

// The lanes that execute with the same mask as the first one; the others come back to this instruction. Each group
// must be in its own mask: tiles of a cooperative group, or the groups that match.any finds, execute one instruction.
Mask one_group(Warp& w, const Instruction& in, const Operand& mask_operand, Mask& active, Step& out) {
  U32 scratch[kLanes];
  const U32* masks = source<U32>(w, mask_operand, scratch);
  const Mask wanted = masks[first_lane(active)];
  const Mask group = active & lanes_equal(masks, wanted);
  if ((group & ~wanted) != 0) {
    out = w.fault(
        in, "member-mask", fmt::format("lanes 0x{:08x} execute it, their member mask is 0x{:08x}", group, wanted),
        "a warp-wide mask in code that only some lanes reach, or the other way round", first_lane(group & ~wanted));
    return 0;
  }
  if (group != active) {
    w.keep(active);
    w.mask = active & ~group;
    w.park_current({}, false);
    w.mask = active = group;
    w.update_merge_pc();
  }
  const Mask exited = wanted & w.started & ~w.alive;
  if (exited != 0)
    w.hazard(in, "member-mask-exited", first_lane(active), 0,
             fmt::format("the member mask 0x{:08x} names lanes 0x{:08x}, which have exited", wanted, exited),
             "a full mask after some threads have returned");
  return wanted;
}

// Brings the lanes of one member mask together. False: they are not here yet, or a fault; `out` says which.
bool gather(Warp& w, const Instruction& in, const Operand& mask_operand, Mask& active, Step& out) {
  const Mask wanted = one_group(w, in, mask_operand, active, out);
  return wanted != 0 && w.converged(wanted, active, out);
}

enum class Shuffle : std::uint16_t { up, down, bfly, idx };

// All lanes, and offset and clamp from constants that make one segment of 32: what compilers write for a whole warp.
template <class Offset>
void shuffle_whole(Shuffle kind, const U32* a, const Offset& offset, U32* result, Mask& valid) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const int by = offset(lane);
    int from = by;
    if (kind == Shuffle::up) from = lane - by;
    if (kind == Shuffle::down) from = lane + by;
    if (kind == Shuffle::bfly) from = lane ^ by;
    const bool is_one = from >= 0 && from < kLanes;
    valid |= static_cast<Mask>(is_one) << lane;
    result[lane] = a[is_one ? from : lane];
  }
}

Step shuffle(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!gather(w, in, in.op[5], active, out)) return out;
  U32 sa[kLanes], sb[kLanes], sc[kLanes];
  const U32* a = source<U32>(w, in.op[2], sa);
  const U32* b = source<U32>(w, in.op[3], sb);
  const U32* c = source<U32>(w, in.op[4], sc);
  U32 result[kLanes];
  Mask valid = 0;
  const auto kind = static_cast<Shuffle>(in.flags);
  const U32 whole = kind == Shuffle::up ? 0 : 31;
  if (active == kAllLanes && (lanes_equal(c, c[0]) == kAllLanes) && (c[0] & 0x1F1F) == whole) {
    shuffle_whole(
        kind, a, [b](int lane) { return static_cast<int>(b[lane] & 31); }, result, valid);
    store_lanes(w, in.op[0], active, result);
    write_predicate(w, in.op[1], active, valid);
    return Step::next;
  }
  int bad_lane = -1;
  for_lanes(active, [&](int lane) {
    const int clamp = static_cast<int>(c[lane] & 31);
    const int segment = static_cast<int>((c[lane] >> 8) & 31);
    const int offset = static_cast<int>(b[lane] & 31);
    const int max_lane = (lane & segment) | (clamp & ~segment);
    const int min_lane = lane & segment;
    int from = lane;
    bool ok = false;
    switch (kind) {
      case Shuffle::up:
        from = lane - offset;
        ok = from >= max_lane;
        break;
      case Shuffle::down:
        from = lane + offset;
        ok = from <= max_lane;
        break;
      case Shuffle::bfly:
        from = lane ^ offset;
        ok = from <= max_lane;
        break;
      case Shuffle::idx:
        from = min_lane | (offset & ~segment);
        ok = from <= max_lane;
        break;
    }
    if (!ok) from = lane;
    if (((active >> from) & 1) == 0) bad_lane = lane;
    result[lane] = a[from];
    if (ok) valid |= Mask{1} << lane;
  });
  if (bad_lane >= 0)
    w.hazard(in, "shuffle-inactive-lane", bad_lane, 0,
             "the lane reads from one that does not take part: an undefined value");
  store_lanes(w, in.op[0], active, result);
  write_predicate(w, in.op[1], active, valid);
  return Step::next;
}

enum class Vote : std::uint16_t { all, any, uni, ballot };

Step vote_handler(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!gather(w, in, in.op[2], active, out)) return out;
  const Mask yes = w.read_predicate(in.op[1]) & active;
  const auto kind = static_cast<Vote>(in.flags);
  if (kind == Vote::ballot) {
    for_lanes(active, [&](int lane) { write_lane<U32>(w, in.op[0], lane, yes); });
    return Step::next;
  }
  const bool value = kind == Vote::all ? yes == active : kind == Vote::any ? yes != 0 : yes == 0 || yes == active;
  write_predicate(w, in.op[0], active, value ? kAllLanes : 0);
  return Step::next;
}

template <class T, bool kAll>
Step match_handler(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!gather(w, in, in.op[3], active, out)) return out;
  T sa[kLanes];
  const T* a = source<T>(w, in.op[2], sa);
  U32 result[kLanes];
  const bool all_equal = (active & ~lanes_equal(a, a[first_lane(active)])) == 0;
  for (Mask rest = active; rest != 0;) {
    const Mask same = active & lanes_equal(a, a[first_lane(rest)]);
    for_lanes(same, [&](int lane) { result[lane] = kAll ? (all_equal ? active : 0) : same; });
    rest &= ~same;
  }
  store_lanes(w, in.op[0], active, result);
  write_predicate(w, in.op[1], active, all_equal ? kAllLanes : 0);
  return Step::next;
}

enum class Reduce : std::uint16_t { add, min, max, and_, or_, xor_ };

template <class T>
Step reduce(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!gather(w, in, in.op[2], active, out)) return out;
  T sa[kLanes];
  const T* a = source<T>(w, in.op[1], sa);
  T value = a[first_lane(active)];
  for_lanes(active & (active - 1), [&](int lane) {
    switch (static_cast<Reduce>(in.flags)) {
      case Reduce::add:
        value = static_cast<T>(static_cast<U32>(value) + static_cast<U32>(a[lane]));
        break;
      case Reduce::min:
        value = a[lane] < value ? a[lane] : value;
        break;
      case Reduce::max:
        value = a[lane] > value ? a[lane] : value;
        break;
      case Reduce::and_:
        value = static_cast<T>(value & a[lane]);
        break;
      case Reduce::or_:
        value = static_cast<T>(value | a[lane]);
        break;
      case Reduce::xor_:
        value = static_cast<T>(value ^ a[lane]);
        break;
    }
  });
  for_lanes(active, [&](int lane) { write_lane<T>(w, in.op[0], lane, value); });
  return Step::next;
}

Step reduce_float(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!gather(w, in, in.op[2], active, out)) return out;
  float sa[kLanes];
  const float* a = source<float>(w, in.op[1], sa);
  const math::MinMaxModifiers m{false, (in.flags & 256) != 0, false};
  const bool absolute = (in.flags & 512) != 0;
  const auto value_of = [&](int lane) { return absolute ? std::fabs(a[lane]) : a[lane]; };
  float value = value_of(first_lane(active));
  const bool is_max = static_cast<Reduce>(in.flags & 255) == Reduce::max;
  for_lanes(active & (active - 1), [&](int lane) {
    value = is_max ? math::max(value, value_of(lane), m) : math::min(value, value_of(lane), m);
  });
  for_lanes(active, [&](int lane) { write_lane<float>(w, in.op[0], lane, value); });
  return Step::next;
}

Step active_lanes(Warp& w, const Instruction& in, Mask active) {
  w.launch->clues->note_activemask(w, in, active);
  for_lanes(active, [&](int lane) { write_lane<U32>(w, in.op[0], lane, active); });
  return Step::next;
}

// The lowest lane of the mask is elected (measured on H200: 465 masks).
Step elect_handler(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!gather(w, in, in.op[2], active, out)) return out;
  const int leader = first_lane(active);
  for_lanes(active, [&](int lane) { write_lane<U32>(w, in.op[0], lane, static_cast<U32>(leader)); });
  write_predicate(w, in.op[1], active, Mask{1} << leader);
  return Step::next;
}

// Lanes meet at any bar.warp.sync with the same mask, in whichever branch it stands (sm_70 and later).
Step sync(Warp& w, const Instruction& in, Mask active) {
  if (w.take_wake() == Wake::ready) return Step::next;
  Step out{};
  const Mask wanted = one_group(w, in, in.op[0], active, out);
  if (wanted == 0) return out;
  w.keep(active);
  if (w.missing_at_barrier(wanted, active) != 0) return w.block({Wait::Kind::warp_barrier, 0, 0, wanted});
  w.release_barrier(wanted);
  return Step::next;
}

}  // namespace

Handler shfl(const Decoded& d) {
  d.in->flags = static_cast<std::uint16_t>(d.has("up")     ? Shuffle::up
                                           : d.has("down") ? Shuffle::down
                                           : d.has("bfly") ? Shuffle::bfly
                                                           : Shuffle::idx);
  return shuffle;
}
Handler vote(const Decoded& d) {
  d.in->flags = static_cast<std::uint16_t>(d.has("all")   ? Vote::all
                                           : d.has("any") ? Vote::any
                                           : d.has("uni") ? Vote::uni
                                                          : Vote::ballot);
  return vote_handler;
}
Handler match(const Decoded& d) {
  if (d.has("all")) return bits_of(d.type()) == 32 ? match_handler<U32, true> : match_handler<U64, true>;
  return bits_of(d.type()) == 32 ? match_handler<U32, false> : match_handler<U64, false>;
}
Handler redux(const Decoded& d) {
  constexpr std::string_view kOps[] = {"add", "min", "max", "and", "or", "xor"};
  for (std::uint16_t i = 0; i < 6; ++i)
    if (d.has(kOps[i])) d.in->flags = i;
  if (d.type() == Type::f32) {
    d.in->flags = static_cast<std::uint16_t>(d.in->flags | (d.has("NaN") ? 256 : 0) | (d.has("abs") ? 512 : 0));
    return reduce_float;
  }
  return d.type() == Type::s32 ? reduce<std::int32_t> : reduce<U32>;
}
Handler activemask(const Decoded&) { return active_lanes; }
Handler elect(const Decoded&) { return elect_handler; }
Handler warp_sync(const Decoded&) { return sync; }

}  // namespace tessera::emulator::bind
