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
#include "emulator/instructions/wide.h"
#include "emulator/memory/access.h"
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

/// All 32 lanes in one piece of global or of one CTA's shared memory: checked once, as a range. first.data is where the
/// lowest address lies; delta[lane] is the distance to it.
struct Range {
  Target first;
  std::array<std::uint32_t, kLanes> delta;
  bool is_dense = false;  ///< lane i follows lane i - 1 without a gap
  bool is_one = false;    ///< all lanes have one address
};

// Where the lanes' addresses lie.
struct Scan {
  std::uint64_t low;
  std::uint64_t high;
  std::uint64_t bits;  ///< of any address
  std::uint32_t gaps;  ///< 0: lane i follows lane i - 1
};
template <class Base>
[[gnu::always_inline]] inline Scan scan_lanes(const Base* base, std::int64_t displacement, std::size_t bytes,
                                              std::uint32_t* delta) {
  const Base add = static_cast<Base>(displacement);
  Base low = static_cast<Base>(base[0] + add);
  Base high = low;
  Base bits = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    const Base address = static_cast<Base>(base[lane] + add);
    low = std::min(low, address);
    high = std::max(high, address);
    bits |= address;
  }
  std::uint32_t gaps = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    delta[lane] = static_cast<std::uint32_t>(base[lane] + add - low);
    gaps |= delta[lane] ^ (static_cast<std::uint32_t>(lane) * static_cast<std::uint32_t>(bytes));
  }
  return {low, high, bits, gaps};
}
template <class Base>
Scan scan_plain(const Base* base, std::int64_t displacement, std::size_t bytes, std::uint32_t* delta) {
  return scan_lanes(base, displacement, bytes, delta);
}
#if defined(__x86_64__)
template <class Base>
TESSERA_FOR_AVX512 Scan scan_avx512(const Base* base, std::int64_t displacement, std::size_t bytes,
                                    std::uint32_t* delta) {
  return scan_lanes(base, displacement, bytes, delta);
}
template <class Base>
TESSERA_FOR_AVX2 Scan scan_avx2(const Base* base, std::int64_t displacement, std::size_t bytes, std::uint32_t* delta) {
  return scan_lanes(base, displacement, bytes, delta);
}
#endif
template <class Base>
Scan scan(const Base* base, std::int64_t displacement, std::size_t bytes, std::uint32_t* delta) {
#if defined(__x86_64__)
  if (wide::here == wide::Vectors::avx512) return scan_avx512(base, displacement, bytes, delta);
  if (wide::here == wide::Vectors::avx2) return scan_avx2(base, displacement, bytes, delta);
#endif
  return scan_plain(base, displacement, bytes, delta);
}

// False: go lane by lane, which also finds out what is wrong.
template <Space kSpace>
bool find_range(const Warp& w, const Operand& op, std::size_t bytes, Range& out) {
  if constexpr (kSpace == Space::local || kSpace == Space::param) return false;
  const Scan found = op.bytes == 4 ? scan(w.reg<std::uint32_t>(op.offset), op.value, bytes, out.delta.data())
                                   : scan(w.reg<std::uint64_t>(op.offset), op.value, bytes, out.delta.data());
  const std::uint64_t length = found.high - found.low;
  if ((found.bits & (bytes - 1)) != 0 || length > (1u << 20)) return false;
  if constexpr (kSpace == Space::generic)
    if (found.low < kGlobalBase && found.low - kSharedWindow >= kWindowBytes) return false;
  if (!locate<kSpace>(w, 0, found.low, length + bytes, out.first)) return false;
  out.is_dense = found.gaps == 0;
  out.is_one = length == 0;
  return true;
}

/// Every byte that the lanes touch has these shadow bits.
bool range_has(const Range& range, std::size_t bytes, std::uint8_t bits) {
  const std::uint8_t* shadow = range.first.shadow;
  if (range.is_one) return shadow_has(shadow, bytes, bits);
  if (range.is_dense) {
    std::array<std::uint64_t, kLanes / 8> all;
    all.fill(~std::uint64_t{0});
    for (std::size_t i = 0; i < bytes; ++i) {
      std::array<std::uint64_t, kLanes / 8> some;
      std::memcpy(some.data(), shadow + i * kLanes, kLanes);
      for (std::size_t j = 0; j < all.size(); ++j) all[j] &= some[j];
    }
    const std::uint64_t want = bits * 0x0101010101010101u;
    return (all[0] & all[1] & all[2] & all[3] & want) == want;
  }
  for (const std::uint32_t delta : range.delta)
    if (!shadow_has(shadow + delta, bytes, bits)) return false;
  return true;
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
void follow_range(Warp& w, const Instruction& in, const Range& range, std::size_t bytes, bool is_write) {
  if (in.flags == 0 && w.race->views.size() == 1) {
    if (range.is_one) return w.launch->race->access(w, in, kAllLanes, range.first, bytes, {is_write});
    if (range.first.cta == nullptr || range.first.cta == w.cta)
      return w.launch->race->access_lanes(w, in, range.first, range.delta.data(), bytes, is_write);
  }
  LaneAccesses weak(w, in, is_write);
  for (int lane = 0; lane < kLanes; ++lane) {
    Target target = range.first;
    const std::uint32_t delta = range.delta[static_cast<std::size_t>(lane)];
    target.data += delta;
    target.offset += delta;
    follow(w, in, lane, target, bytes, is_write, weak);
  }
}

/// Every element is a register as wide as memory's.
template <class T>
bool is_plain(const Elements& list) {
  bool is_it = true;
  for (int i = 0; i < list.count; ++i) is_it = is_it && list.first[i].bytes == sizeof(T) && !list.first[i].is_sink;
  return is_it;
}

/// What all lanes read at one address: a kernel's parameters, mostly.
template <class T, class Base>
bool load_same(Warp& w, const Instruction& in, const Elements& to) {
  const Base* const base = w.reg<Base>(in.op[1].offset);
  Base different = 0;
  for (int lane = 1; lane < kLanes; ++lane) different |= base[lane] ^ base[0];
  const std::size_t bytes = sizeof(T) * static_cast<std::size_t>(to.count);
  const std::uint64_t address = lane_address(w, in.op[1], 0);
  Target target;
  if (different != 0 || (address & (bytes - 1)) != 0 || !locate_parameter(w, address, bytes, target)) return false;
  for (int i = 0; i < to.count; ++i) {
    T value;
    std::memcpy(&value, target.data + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    std::fill_n(w.reg<T>(to.first[i].offset), kLanes, value);
  }
  return true;
}

template <class T, Space kSpace>
bool load_range(Warp& w, const Instruction& in) {
  const Elements to = elements(in.op[0]);
  if (!is_plain<T>(to)) return false;
  if constexpr (kSpace == Space::param)
    return in.op[1].bytes == 4 ? load_same<T, std::uint32_t>(w, in, to) : load_same<T, std::uint64_t>(w, in, to);
  if constexpr (kSpace != Space::local && kSpace != Space::param)
    if (w.launch->weak) [[unlikely]]
      return false;
  const std::size_t bytes = sizeof(T) * static_cast<std::size_t>(to.count);
  Range range;
  if (!find_range<kSpace>(w, in.op[1], bytes, range) || !range_has(range, bytes, kReadable)) return false;
  if (w.race) [[unlikely]]
    follow_range(w, in, range, bytes, false);
  if (range.is_dense && to.count == 1) {
    std::memcpy(w.reg<T>(to.first->offset), range.first.data, kLanes * sizeof(T));
    return true;
  }
  for (int i = 0; i < to.count; ++i) {
    T* const d = w.reg<T>(to.first[i].offset);
    const std::byte* const s = range.first.data + static_cast<std::size_t>(i) * sizeof(T);
    for (std::size_t lane = 0; lane < kLanes; ++lane) std::memcpy(d + lane, s + range.delta[lane], sizeof(T));
  }
  return true;
}

template <class T, Space kSpace>
bool store_range(Warp& w, const Instruction& in) {
  if constexpr (kSpace != Space::local)
    if (w.launch->weak) [[unlikely]]
      return false;
  const Elements from = elements(in.op[1]);
  if (!is_plain<T>(from)) return false;
  const std::size_t bytes = sizeof(T) * static_cast<std::size_t>(from.count);
  Range range;
  if (!find_range<kSpace>(w, in.op[0], bytes, range) || !range_has(range, bytes, kAllocated)) return false;
  if (w.race) [[unlikely]] {
    SameStore same(w);
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      for (int i = 0; i < from.count; ++i)
        same.compare(range.first.data + range.delta[lane] + static_cast<std::size_t>(i) * sizeof(T),
                     w.reg<T>(from.first[i].offset) + lane, sizeof(T));
    follow_range(w, in, range, bytes, true);
  }
  for (std::size_t lane = 0; lane < kLanes;
       ++lane)  // a lane's elements together: of several that write a place the last stays
    for (int i = 0; i < from.count; ++i)
      std::memcpy(range.first.data + range.delta[lane] + static_cast<std::size_t>(i) * sizeof(T),
                  w.reg<T>(from.first[i].offset) + lane, sizeof(T));
  if (range.is_dense) {
    note_written(w, range.first, kLanes * bytes);
    return true;
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    Target target = range.first;
    target.data += range.delta[lane];
    target.shadow += range.delta[lane];
    target.offset += range.delta[lane];
    note_written(w, target, bytes);
  }
  return true;
}

template <class T>
void write_value(const Warp& w, const Operand& to, int lane, const std::byte* value) {
  T element;
  std::memcpy(&element, value, sizeof(T));
  write_lane<T>(w, to, lane, element);
}

// The weak schedule, and an access with an order: a vector of scalars that come one by one.
template <class T>
void load_torn(const Warp& w, const Instruction& in, int lane, const Target& target, const Elements& to) {
  std::array<VectorStore, 8> met{};
  VectorStore beside;
  const bool is_backwards = w.launch->weak->is_backwards();
  for (int n = 0; n < to.count; ++n) {
    const int i = is_backwards ? to.count - 1 - n : n;
    T value;
    Target element = target;
    element.data += static_cast<std::size_t>(i) * sizeof(T);
    VectorStore& here = met[static_cast<std::size_t>(i)];
    here =
        w.launch->weak->load(w, lane, element, sizeof(T), order_of(in), reinterpret_cast<std::byte*>(&value), beside);
    if (here.number > beside.number) beside = here;
    if (to.first[i].bytes == sizeof(T))
      w.reg<T>(to.first[i].offset)[lane] = value;
    else
      write_lane<T>(w, to.first[i], lane, value);
  }
  for (int i = 0; i < to.count; ++i) {
    const std::byte* const place = target.data + static_cast<std::size_t>(i) * sizeof(T);
    if (beside.has(place) && met[static_cast<std::size_t>(i)].number < beside.number)
      return w.launch->clues->note_torn(w, in, lane);
  }
}

// T is one element as memory holds it.
template <class T, Space kSpace>
Step load(Warp& w, const Instruction& in, Mask active) {
  if (active == kAllLanes && load_range<T, kSpace>(w, in)) return Step::next;
  const Elements to = elements(in.op[0]);
  const std::size_t bytes = sizeof(T) * static_cast<std::size_t>(to.count);
  const bool is_weak = kSpace != Space::local && kSpace != Space::param && w.launch->weak != nullptr;
  const bool is_vector = is_weak && to.count > 1 && order_of(in).is_strong;
  const bool is_late = is_weak && !is_vector && w.launch->weak->is_late(order_of(in));
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
    if (is_vector && target.shadow != nullptr) [[unlikely]] {
      load_torn<T>(w, in, lane, target, to);
      continue;
    }
    for (int i = 0; i < to.count; ++i) {
      T value;
      Target element = target;
      element.data += static_cast<std::size_t>(i) * sizeof(T);
      if (is_late && target.shadow != nullptr && !to.first[i].is_sink) {
        w.launch->weak->load_later(w, lane, element, sizeof(T), order_of(in), to.first[i], write_value<T>);
        continue;
      }
      if (is_weak && target.shadow != nullptr) [[unlikely]]
        w.launch->weak->load(w, lane, element, sizeof(T), order_of(in), reinterpret_cast<std::byte*>(&value));
      else
        std::memcpy(&value, element.data, sizeof(T));
      if (to.first[i].bytes == sizeof(T))
        w.reg<T>(to.first[i].offset)[lane] = value;
      else
        write_lane<T>(w, to.first[i], lane, value);
    }
  }
  return Step::next;
}

template <class T, Space kSpace>
Step store(Warp& w, const Instruction& in, Mask active) {
  if (active == kAllLanes && store_range<T, kSpace>(w, in)) return Step::next;
  const Elements from = elements(in.op[1]);
  const std::size_t bytes = sizeof(T) * static_cast<std::size_t>(from.count);
  const bool is_weak = kSpace != Space::local && w.launch->weak != nullptr;
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
    const VectorStore vector = is_weak && from.count > 1 ? w.launch->weak->new_vector(target, bytes) : VectorStore{};
    for (int i = 0; i < from.count; ++i) {
      const T value = from.first[i].bytes == sizeof(T) ? w.reg<T>(from.first[i].offset)[lane]
                                                       : read_lane<T>(w, from.first[i], lane);
      Target element = target;
      element.data += static_cast<std::size_t>(i) * sizeof(T);
      same.compare(element.data, &value, sizeof(T));
      if (is_weak) [[unlikely]]
        w.launch->weak->store(w, lane, element, sizeof(T), order_of(in), reinterpret_cast<const std::byte*>(&value),
                              vector);
      else
        std::memcpy(element.data, &value, sizeof(T));
    }
    note_written(w, target, bytes);
    if (w.race) [[unlikely]]
      follow(w, in, lane, target, bytes, true, weak);
  }
  return Step::next;
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
template <class T>
Step load_read_only(Warp& w, const Instruction& in, Mask active) {
  const std::size_t bytes = sizeof(T) * static_cast<std::size_t>(elements(in.op[0]).count);
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const std::uint64_t address = lane_address(w, in.op[1], lane);
    if (w.launch->written->may_hold(address, bytes)) [[unlikely]]
      report_written(w, in, lane, address, bytes);
  }
  return load<T, Space::global>(w, in, active);
}

template <class T, bool kLoad>
Handler pick_space(Space space, bool is_read_only) {
  if (kLoad && is_read_only && space == Space::global) return load_read_only<T>;
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
