// PTX ISA, "Data Movement and Conversion Instructions": ld, ld.global.nc, ldu, st, prefetch, applypriority, discard.
//
// Cache operators and eviction hints have no effect here. Memory orders and scopes have with Schedule::weak and for the
// race detector alone: else accesses happen one after another, which every order allows.
#include <fmt/format.h>

#include <algorithm>

#include "emulator/findings/race.h"
#include "emulator/findings/same_store.h"
#include "emulator/findings/schedule_clues.h"
#include "emulator/instructions/bind.h"
#include "emulator/memory/range.h"
#include "emulator/memory/weak_memory.h"

namespace tessera::emulator::bind {
namespace {

/// The elements of a vector operand, or the operand itself.
struct Elements {
  const Operand* first;
  int count;
};
Elements elements(const Operand& op) {
  if (op.kind == Operand::Kind::list) return {op.elements, op.count};
  return {&op, 1};
}

// Instruction::flags of loads and stores.
constexpr std::uint16_t kStrong = 1;  // volatile, relaxed, acquire, release, mmio
constexpr std::uint16_t kAcquire = 2;
constexpr std::uint16_t kRelease = 4;
constexpr std::uint16_t kNarrow = 8;  // .cta scope
constexpr std::uint16_t kInCluster = 16;

Order order_of(const Instruction& in) {
  const Scope scope = (in.flags & kNarrow) != 0      ? Scope::cta
                      : (in.flags & kInCluster) != 0 ? Scope::cluster
                                                     : Scope::gpu;
  return {(in.flags & kStrong) != 0, (in.flags & kAcquire) != 0, (in.flags & kRelease) != 0, scope};
}

// The race detector's share of an access.
void follow(Warp& w, const Instruction& in, int lane, const Target& target, std::size_t bytes, bool is_write,
            LaneAccesses& weak) {
  if ((in.flags & kStrong) == 0) return weak.add(lane, target, bytes);
  if (target.shadow == nullptr) return;
  w.launch->race->strong_access(
      w, in, lane, target, bytes,
      {(in.flags & kAcquire) != 0, (in.flags & kRelease) != 0, (in.flags & kNarrow) != 0, !is_write, is_write});
}
[[gnu::noinline]] void follow_range(Warp& w, const Instruction& in, const Range& range, std::size_t bytes, Mask active,
                                    bool is_write) {
  if (in.flags == 0 && w.race->views.size() == 1 && active == kAllLanes) {
    if (range.is_one) return w.launch->race->access(w, in, kAllLanes, range.first, bytes, {is_write});
    if (range.first.cta == nullptr || range.first.cta == w.cta)
      return w.launch->race->access_lanes(w, in, range.first, range.delta.data(), bytes, is_write);
  }
  LaneAccesses weak(w, in, is_write);
  for_lanes(active, [&](int lane) { follow(w, in, lane, range.of_lane(lane), bytes, is_write, weak); });
}

/// Every element is a register, as wide as memory's or, of bytes, wider.
template <class T>
bool is_plain(const Elements& list) {
  bool is_it = true;
  for (int i = 0; i < list.count; ++i) {
    const Operand& element = list.first[i];
    is_it = is_it && (element.bytes == sizeof(T) || (sizeof(T) == 1 && element.bytes > 1)) && !element.is_sink;
  }
  return is_it;
}
/// One lane's element of that kind.
template <class T>
[[gnu::always_inline]] inline T take(const Warp& w, const Operand& from, int lane) {
  if constexpr (sizeof(T) == 1)
    return read_lane<T>(w, from, lane);
  else
    return w.reg<T>(from.offset)[lane];
}

/// The same value for these lanes.
template <class T>
[[gnu::always_inline]] inline void put_one(const Warp& w, const Operand& to, Mask active, T value) {
  if constexpr (sizeof(T) == 1) return for_lanes(active, [&](int lane) { write_lane<T>(w, to, lane, value); });
  T* const d = w.reg<T>(to.offset);
  for_lanes(active, [=](int lane) { d[lane] = value; });
}
/// What lies at each lane's distance from `from`.
template <class T>
[[gnu::always_inline]] inline void put_each(const Warp& w, const Operand& to, Mask active, const std::byte* from,
                                            const std::uint32_t* delta) {
  T* const d = w.reg<T>(to.offset);
  for_lanes(active, [&, d, from, delta](int lane) {
    T value;
    std::memcpy(&value, from + delta[lane], sizeof(T));
    if constexpr (sizeof(T) == 1)
      write_lane<T>(w, to, lane, value);
    else
      d[lane] = value;
  });
}

/// What all lanes read at one address: a kernel's parameters, mostly.
template <class T, class Base>
bool load_same(Warp& w, const Instruction& in, Mask active, const Elements& to) {
  const Base* const base = w.reg<Base>(in.op[1].offset);
  const Base first = base[first_lane(active)];
  Base different = 0;
  for (int lane = 0; lane < kLanes; ++lane) different |= (active >> lane & 1) != 0 ? base[lane] ^ first : 0;
  const std::size_t bytes = sizeof(T) * static_cast<std::size_t>(to.count);
  const std::uint64_t address = lane_address(w, in.op[1], first_lane(active));
  Target target;
  if (different != 0 || (address & (bytes - 1)) != 0 || !locate_parameter(w, address, bytes, target)) return false;
  for (int i = 0; i < to.count; ++i) {
    T value;
    std::memcpy(&value, target.data + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    put_one<T>(w, to.first[i], active, value);
  }
  return true;
}

// What a range gives and takes does not ask for its space, and is compiled once for all of them.
template <class T>
[[gnu::noinline]] void put_range(const Warp& w, const Range& range, const Elements& to, Mask active) {
  if (range.is_dense && to.count == 1 && to.first->bytes == sizeof(T)) {
    std::memcpy(w.reg<T>(to.first->offset), range.first.data, kLanes * sizeof(T));
    return;
  }
  for (int i = 0; i < to.count; ++i) {
    const Operand& element = to.first[i];
    const std::byte* const s = range.first.data + static_cast<std::size_t>(i) * sizeof(T);
    if (!range.is_one) {
      put_each<T>(w, element, active, s, range.delta.data());
      continue;
    }
    T value;
    std::memcpy(&value, s, sizeof(T));
    put_one<T>(w, element, active, value);
  }
}
template <class T>
[[gnu::noinline]] void take_range(const Warp& w, const Range& range, const Elements& from, Mask active) {
  if (range.is_dense && from.count == 1 && from.first->bytes == sizeof(T))
    std::memcpy(range.first.data, w.reg<T>(from.first->offset), kLanes * sizeof(T));
  else if (from.count == 1 && from.first->bytes == sizeof(T))
    for_lanes(active, [to = range.first.data, delta = range.delta.data(), s = w.reg<T>(from.first->offset)](int lane) {
      std::memcpy(to + delta[lane], s + lane, sizeof(T));
    });
  else  // a lane's elements together: of several that write a place the last stays
    for_lanes(active, [&](int lane) {
      std::byte* const to = range.first.data + range.delta[static_cast<std::size_t>(lane)];
      for (int i = 0; i < from.count; ++i) {
        const T value = take<T>(w, from.first[i], lane);
        std::memcpy(to + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
      }
    });
}
template <class T>
[[gnu::noinline]] void compare_range(const Warp& w, const Range& range, const Elements& from, SameStore& same) {
  for (std::size_t lane = 0; lane < kLanes; ++lane)
    for (int i = 0; i < from.count; ++i) {
      const T value = take<T>(w, from.first[i], static_cast<int>(lane));
      same.compare(range.first.data + range.delta[lane] + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
    }
}

/// Of fewer lanes each alone is no slower.
constexpr int kLeastLanes = 3;

template <class T, Space kSpace, bool kReadOnly>
bool load_range(Warp& w, const Instruction& in, Mask active) {
  const Elements to = elements(in.op[0]);
  if (!is_plain<T>(to) || (active != kAllLanes && std::popcount(active) < kLeastLanes)) return false;
  if constexpr (kSpace == Space::param) {
    return in.op[1].bytes == 4 ? load_same<T, std::uint32_t>(w, in, active, to)
                               : load_same<T, std::uint64_t>(w, in, active, to);
  } else {
    if constexpr (kSpace != Space::local)
      if (w.launch->weak || (w.race && (active != kAllLanes || sizeof(T) == 1))) [[unlikely]]
        return false;
    const std::size_t bytes = sizeof(T) * static_cast<std::size_t>(to.count);
    Range range;
    if (!find_range<kSpace>(w, in.op[1], bytes, active, range) || !range_has(w, range, bytes, active, kReadable))
      return false;
    if constexpr (kReadOnly) {
      const std::uint64_t low = w.launch->memory.address_of(range.first.data);
      if (w.launch->written->may_hold_any(low, range.length + bytes)) return false;
    }
    if constexpr (kSpace != Space::local)
      if (w.race) [[unlikely]]
        follow_range(w, in, range, bytes, active, false);
    put_range<T>(w, range, to, active);
    return true;
  }
}

template <class T, Space kSpace>
bool store_range(Warp& w, const Instruction& in, Mask active) {
  if constexpr (kSpace != Space::local)
    if (w.launch->weak || (w.race && (active != kAllLanes || sizeof(T) == 1))) [[unlikely]]
      return false;
  const Elements from = elements(in.op[1]);
  if (!is_plain<T>(from) || (active != kAllLanes && std::popcount(active) < kLeastLanes)) return false;
  const std::size_t bytes = sizeof(T) * static_cast<std::size_t>(from.count);
  Range range;
  if (!find_range<kSpace>(w, in.op[0], bytes, active, range) || !range_has(w, range, bytes, active, kAllocated))
    return false;
  if constexpr (kSpace != Space::local) {
    if (w.race) [[unlikely]] {
      SameStore same(w);  // until the race detector has followed
      compare_range<T>(w, range, from, same);
      follow_range(w, in, range, bytes, active, true);
    }
  }
  take_range<T>(w, range, from, active);
  note_range_written(w, range, bytes, active);
  return true;
}

// Where lanes go one by one, an element is as many bytes, and a register takes and gives it by these.
template <class T>
void write_value(const Warp& w, const Operand& to, int lane, const std::byte* value) {
  T element;
  std::memcpy(&element, value, sizeof(T));
  write_lane<T>(w, to, lane, element);
}
template <class T>
void read_value(const Warp& w, const Operand& from, int lane, std::byte* value) {
  const T element = read_lane<T>(w, from, lane);
  std::memcpy(value, &element, sizeof(T));
}
struct ElementType {
  std::size_t bytes;
  void (*write)(const Warp&, const Operand&, int, const std::byte*);
  void (*read)(const Warp&, const Operand&, int, std::byte*);
};
template <class T>
constexpr ElementType kElement = {sizeof(T), write_value<T>, read_value<T>};

// The weak schedule, and an access with an order: a vector of scalars that come one by one.
void load_torn(const Warp& w, const Instruction& in, int lane, const Target& target, const Elements& to,
               const ElementType& type) {
  std::array<VectorStore, 8> met{};
  VectorStore beside;
  const bool is_backwards = w.launch->weak->is_backwards();
  for (int n = 0; n < to.count; ++n) {
    const int i = is_backwards ? to.count - 1 - n : n;
    alignas(16) std::byte value[16];
    Target element = target;
    element.data += static_cast<std::size_t>(i) * type.bytes;
    VectorStore& here = met[static_cast<std::size_t>(i)];
    here = w.launch->weak->load(w, lane, element, type.bytes, order_of(in), value, beside);
    if (here.number > beside.number) beside = here;
    type.write(w, to.first[i], lane, value);
  }
  for (int i = 0; i < to.count; ++i) {
    const std::byte* const place = target.data + static_cast<std::size_t>(i) * type.bytes;
    if (beside.has(place) && met[static_cast<std::size_t>(i)].number < beside.number)
      return w.launch->clues->note_torn(w, in, lane);
  }
}

// Whether a vector access, of memory that has a weak order, is one access.
bool is_whole(const Warp& w, int count, std::size_t bytes) {
  return count > 1 && bytes <= WeakMemory::kMostWholeBytes && w.launch->weak->vectors == Vectors::whole;
}

// ld.global.nc of what this launch wrote.
void report_written(Warp& w, const Instruction& in, int lane, std::uint64_t address, std::size_t bytes) {
  const std::uint16_t writer = w.launch->written->find(address, bytes);
  if (writer == WrittenLines::kNobody) return;
  std::string who = "an asynchronous operation";
  if (writer != WrittenLines::kCopy) {
    who = "another instruction";
    if (writer != WrittenLines::kUnknown) {
      const Instruction& store = w.code[writer - 1];
      who = fmt::format("PTX line {} ({})", store.line, store.opcode);
    }
  }
  w.hazard(in, "nc-load-of-written", lane, address,
           fmt::format(
               "{} of this launch wrote the bytes; a load through the read-only path may give those from before", who),
           "a const __restrict__ pointer, or __ldg, where the kernel writes the memory too");
}

// All lanes before any is read; what is not in global memory is the load's to report.
void look_for_written(Warp& w, const Instruction& in, Mask active, std::size_t bytes) {
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const std::uint64_t address = lane_address(w, in.op[1], lane);
    if (w.launch->written->may_hold(address, bytes)) [[unlikely]]
      report_written(w, in, lane, address, bytes);
  }
}

// kReadOnly: ld.global.nc.
template <Space kSpace, bool kReadOnly>
Step load_by_lane(Warp& w, const Instruction& in, Mask active, const ElementType& type) {
  const Elements to = elements(in.op[0]);
  const std::size_t bytes = type.bytes * static_cast<std::size_t>(to.count);
  if constexpr (kReadOnly) look_for_written(w, in, active, bytes);
  const bool is_weak = kSpace != Space::local && kSpace != Space::param && w.launch->weak != nullptr;
  const bool is_one = is_weak && is_whole(w, to.count, bytes);
  const bool is_vector = is_weak && to.count > 1 && order_of(in).is_strong && !is_one;
  const bool is_late = is_weak && !is_vector && !is_one && w.launch->weak->is_late(order_of(in));
  LaneAccesses weak(w, in, false);
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const std::uint64_t address = lane_address(w, in.op[1], lane);
    Target target;
    if ((address & (bytes - 1)) != 0) return report_misaligned(w, in, lane, address, bytes);
    if (!locate<kSpace>(w, lane, address, bytes, target))
      return report_outside(w, in, kSpace, lane, address, bytes, false);
    if (target.shadow != nullptr && !shadow_has(target.shadow, bytes, kReadable)) {
      if (!shadow_has(target.shadow, bytes, kAllocated))
        return report_outside(w, in, kSpace, lane, address, bytes, false);
      report_uninitialised(w, in, target, lane, address, bytes);
    }
    if (w.race) [[unlikely]]
      follow(w, in, lane, target, bytes, false, weak);
    if (is_one && target.shadow != nullptr) [[unlikely]] {
      alignas(16) std::byte values[WeakMemory::kMostWholeBytes];
      w.launch->weak->load_whole(w, lane, target, type.bytes, to.count, order_of(in), values);
      for (int i = 0; i < to.count; ++i)
        type.write(w, to.first[i], lane, values + static_cast<std::size_t>(i) * type.bytes);
      continue;
    }
    if (is_vector && target.shadow != nullptr) [[unlikely]] {
      load_torn(w, in, lane, target, to, type);
      continue;
    }
    for (int i = 0; i < to.count; ++i) {
      Target element = target;
      element.data += static_cast<std::size_t>(i) * type.bytes;
      if (is_late && target.shadow != nullptr && !to.first[i].is_sink) {
        w.launch->weak->load_later(w, lane, element, type.bytes, order_of(in), to.first[i], type.write);
        continue;
      }
      if (is_weak && target.shadow != nullptr) [[unlikely]] {
        alignas(16) std::byte value[16];
        w.launch->weak->load(w, lane, element, type.bytes, order_of(in), value);
        type.write(w, to.first[i], lane, value);
      } else {
        type.write(w, to.first[i], lane, element.data);
      }
    }
  }
  return Step::next;
}

// T is one element as memory holds it.
template <class T, Space kSpace, bool kReadOnly = false>
Step load(Warp& w, const Instruction& in, Mask active) {
  if (load_range<T, kSpace, kReadOnly>(w, in, active)) return Step::next;
  return load_by_lane<kSpace, kReadOnly>(w, in, active, kElement<T>);
}

template <Space kSpace>
Step store_by_lane(Warp& w, const Instruction& in, Mask active, const ElementType& type) {
  const Elements from = elements(in.op[1]);
  const std::size_t bytes = type.bytes * static_cast<std::size_t>(from.count);
  const bool is_weak = kSpace != Space::local && w.launch->weak != nullptr;
  const bool is_one = is_weak && is_whole(w, from.count, bytes);
  SameStore same(w);
  LaneAccesses weak(w, in, true);
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const std::uint64_t address = lane_address(w, in.op[0], lane);
    Target target;
    if ((address & (bytes - 1)) != 0) return report_misaligned(w, in, lane, address, bytes);
    if (!locate<kSpace>(w, lane, address, bytes, target))
      return report_outside(w, in, kSpace, lane, address, bytes, true);
    if (target.shadow == nullptr || !shadow_has(target.shadow, bytes, kAllocated))
      return report_outside(w, in, kSpace, lane, address, bytes, true);
    alignas(16) std::byte values[WeakMemory::kMostWholeBytes];
    const VectorStore vector =
        is_weak && !is_one && from.count > 1 ? w.launch->weak->new_vector(target, bytes) : VectorStore{};
    for (int i = 0; i < from.count; ++i) {
      alignas(16) std::byte value[16];
      type.read(w, from.first[i], lane, value);
      Target element = target;
      element.data += static_cast<std::size_t>(i) * type.bytes;
      same.compare(element.data, value, type.bytes);
      if (is_one) [[unlikely]]
        std::memcpy(values + static_cast<std::size_t>(i) * type.bytes, value, type.bytes);
      else if (is_weak) [[unlikely]]
        w.launch->weak->store(w, lane, element, type.bytes, order_of(in), value, vector);
      else
        std::memcpy(element.data, value, type.bytes);
    }
    if (is_one) [[unlikely]]
      w.launch->weak->store_whole(w, lane, target, type.bytes, from.count, order_of(in), values);
    note_written(w, target, bytes);
    if (w.race) [[unlikely]]
      follow(w, in, lane, target, bytes, true, weak);
  }
  return Step::next;
}

template <class T, Space kSpace>
Step store(Warp& w, const Instruction& in, Mask active) {
  if (store_range<T, kSpace>(w, in, active)) return Step::next;
  return store_by_lane<kSpace>(w, in, active, kElement<T>);
}

template <class T, bool kLoad>
Handler pick_space(Space space, bool is_read_only) {
  if (kLoad && is_read_only && space == Space::global) return load<T, Space::global, true>;
  switch (space) {
    case Space::generic:
      return kLoad ? load<T, Space::generic> : store<T, Space::generic>;
    case Space::global:
      return kLoad ? load<T, Space::global> : store<T, Space::global>;
    case Space::shared_cta:
      return kLoad ? load<T, Space::shared_cta> : store<T, Space::shared_cta>;
    case Space::shared_cluster:
      return kLoad ? load<T, Space::shared_cluster> : store<T, Space::shared_cluster>;
    case Space::local:
      return kLoad ? load<T, Space::local> : store<T, Space::local>;
    case Space::param:
      return kLoad ? load<T, Space::param> : nullptr;
  }
  return nullptr;
}

template <bool kLoad>
Handler pick_type(const Decoded& d) {
  const Space space = space_of(d);
  const bool is_strong = d.has("volatile") || d.has("relaxed") || d.has("acquire") || d.has("release") || d.has("mmio");
  d.in->flags = static_cast<std::uint16_t>(
      (is_strong ? kStrong : 0) | (d.has("acquire") ? kAcquire : 0) | (d.has("release") ? kRelease : 0) |
      (is_strong && d.has("cta") ? kNarrow : 0) | (is_strong && d.has("cluster") ? kInCluster : 0));
  const Operand& value = d.in->op[kLoad ? 0 : 1];
  const int count = value.kind == Operand::Kind::list ? value.count : 1;
  const int wanted = d.has("v2") ? 2 : d.has("v4") ? 4 : d.has("v8") ? 8 : 1;
  if (count != wanted) return nullptr;
  switch (d.type()) {
    case Type::u8:
    case Type::b8:
      return pick_space<std::uint8_t, kLoad>(space, d.has("nc"));
    case Type::s8:
      return pick_space<std::int8_t, kLoad>(space, d.has("nc"));
    case Type::s16:
      return pick_space<std::int16_t, kLoad>(space, d.has("nc"));
    case Type::s32:
      return pick_space<std::int32_t, kLoad>(space, d.has("nc"));
    default:
      break;
  }
  switch (bits_of(d.type())) {
    case 16:
      return pick_space<std::uint16_t, kLoad>(space, d.has("nc"));
    case 32:
      return pick_space<std::uint32_t, kLoad>(space, d.has("nc"));
    case 64:
      return pick_space<std::uint64_t, kLoad>(space, d.has("nc"));
    case 128:
      return pick_space<U128, kLoad>(space, d.has("nc"));
    default:
      return nullptr;
  }
}

Step no_effect(Warp&, const Instruction&, Mask) { return Step::next; }
// createpolicy: policies are hints, any value does.
Step zero_result(Warp& w, const Instruction& in, Mask active) {
  return apply_lanes<std::uint64_t>(w, in.op[0], active, [](int) { return std::uint64_t{0}; });
}

}  // namespace

Handler ld(const Decoded& d) { return pick_type<true>(d); }
Handler st(const Decoded& d) { return pick_type<false>(d); }
Handler nothing(const Decoded& d) {
  return d.in->num_operands > 0 && d.in->op[0].is_destination ? zero_result : no_effect;
}

}  // namespace tessera::emulator::bind
