// PTX ISA, "Parallel Synchronization and Communication Instructions": atom, red. Lanes act in ascending order.
#include <atomic>

#include "emulator/findings/race.h"
#include "emulator/instructions/bind.h"
#include "emulator/instructions/integer_ops.h"
#include "emulator/math/float_arithmetic.h"
#include "emulator/math/half_arithmetic.h"
#include "emulator/memory/range.h"
#include "emulator/memory/weak_memory.h"
#include "emulator/parts.h"

namespace tessera::emulator::bind {
namespace {

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;
using math::Format;

enum class Op : std::uint8_t { add, and_, or_, xor_, exch, cas, inc, dec, min, max };

template <class T>
T combine(Op op, T old, T b, T c) {
  switch (op) {
    case Op::add:
      return ops::wrap_add(old, b);
    case Op::and_:
      return static_cast<T>(old & b);
    case Op::or_:
      return static_cast<T>(old | b);
    case Op::xor_:
      return static_cast<T>(old ^ b);
    case Op::exch:
      return b;
    case Op::cas:
      return old == b ? c : old;
    case Op::inc:
      return old >= b ? T{0} : static_cast<T>(old + 1);
    case Op::dec:
      return old == 0 || old > b ? b : static_cast<T>(old - 1);
    case Op::min:
      return b < old ? b : old;
    case Op::max:
      return b > old ? b : old;
  }
  return old;
}
// atom.add.f32 flushes subnormals in global memory (PTX ISA, atom); shared memory keeps them.
template <bool kFtz>
float combine(Op, float old, float b, float) {
  return math::add(old, b, {math::Rounding::nearest_even, kFtz, false});
}

template <class T>
struct Integer {
  using Value = T;
  static T run(Op op, T old, T b, T c, bool) { return combine<T>(op, old, b, c); }
};
template <class Kind>
inline constexpr bool kIsInteger = false;
template <class T>
inline constexpr bool kIsInteger<Integer<T>> = sizeof(T) >= 4;
struct Float {
  using Value = float;
  static float run(Op op, float old, float b, float c, bool is_global) {
    if (op != Op::add) return combine_minmax(op, old, b);
    return is_global ? combine<true>(op, old, b, c) : combine<false>(op, old, b, c);
  }
  static float combine_minmax(Op op, float old, float b) {
    return op == Op::min ? math::min(old, b) : math::max(old, b);
  }
};
struct Double {
  using Value = double;
  // Global memory's own adder passes a NaN on as it is: of two b's, unless b's alone signals (H200). In shared memory a
  // loop adds, with b first.
  static double run(Op, double old, double b, double, bool is_global) {
    if (!is_global) return math::add(b, old);
    if (old == old && b == b) return math::add(old, b);
    if (old == old) return b;
    constexpr std::uint64_t kQuiet = std::uint64_t{1} << 51;
    const bool takes_old = b == b || ((math::bits_of(b) & kQuiet) == 0 && (math::bits_of(old) & kQuiet) != 0);
    return takes_old ? old : b;
  }
};
template <Format F, bool kPair>
struct Half {
  using Value = std::conditional_t<kPair, U32, U16>;
  static Value run(Op op, Value old, Value b, Value, bool) {
    if (op == Op::add) {
      if constexpr (kPair) return math::on_pairs(math::half_add<F>, old, b, math::HalfModifiers{});
      return static_cast<Value>(math::half_add<F>(old, b));
    }
    const auto function = op == Op::min ? math::half_min<F> : math::half_max<F>;
    if constexpr (kPair) return math::on_pairs(function, old, b, math::MinMaxModifiers{});
    return static_cast<Value>(function(old, b, {}));
  }
};

constexpr U16 kNoResult = 256, kAcquires = 512, kReleases = 1024, kCta = 2048, kInCluster = 4096;

/// What the grid's parts do to global memory at once: nobody reads the results, and one order is as good as another
/// (parts.cpp), so that the host's own atomic operations do.
template <class T>
void add_at_once(Op op, std::byte* at, T b) {
  const std::atomic_ref<T> there(*reinterpret_cast<T*>(at));
  switch (op) {
    case Op::add:
      there.fetch_add(b, std::memory_order_relaxed);
      return;
    case Op::and_:
      there.fetch_and(b, std::memory_order_relaxed);
      return;
    case Op::or_:
      there.fetch_or(b, std::memory_order_relaxed);
      return;
    case Op::xor_:
      there.fetch_xor(b, std::memory_order_relaxed);
      return;
    default:
      break;
  }
  T old = there.load(std::memory_order_relaxed);
  while (!there.compare_exchange_weak(old, combine<T>(op, old, b, T{}), std::memory_order_relaxed)) {
  }
}

/// Operands of atom and red alike: result, address, b, c.
const Operand* operands_of(const Instruction& in) { return (in.flags & kNoResult) == 0 ? in.op : in.op - 1; }

template <Op kOp, class Kind, class T>
void run_lanes(const Range& range, Mask active, const T* b, const T* c, T* old) {
  const bool is_global = range.first.cta == nullptr;
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    std::byte* const at = range.first.data + range.delta[static_cast<std::size_t>(lane)];
    T before;
    std::memcpy(&before, at, sizeof(T));
    const T after = Kind::run(kOp, before, b[lane], kOp == Op::cas ? c[lane] : T{}, is_global);
    std::memcpy(at, &after, sizeof(T));
    if (old != nullptr) old[lane] = before;
  }
}

/// Lanes of one address are summed up first.
template <class T>
void run_at_once(Op op, const Range& range, Mask active, const T* b) {
  if (!range.is_one) {
    for_lanes(active, [&](int lane) {
      add_at_once<T>(op, range.first.data + range.delta[static_cast<std::size_t>(lane)], b[lane]);
    });
    return;
  }
  T all = b[first_lane(active)];
  for_lanes(active & (active - 1), [&](int lane) { all = combine<T>(op, all, b[lane], T{}); });
  add_at_once<T>(op, range.first.data, all);
}

// Lanes one after the other, checked together. False: something is not plain.
template <class Kind, Space kSpace>
bool atomic_range(Warp& w, const Instruction& in, Mask active, bool is_at_once) {
  using T = typename Kind::Value;
  if (w.race || w.launch->weak) [[unlikely]]
    return false;
  const Operand* const operands = operands_of(in);
  const auto op = static_cast<Op>(in.flags & 0xFF);
  T* old = nullptr;
  if ((in.flags & kNoResult) == 0 && !operands[0].is_sink) {
    if (operands[0].kind != Operand::Kind::reg || operands[0].bytes != sizeof(T)) return false;
    old = w.reg<T>(operands[0].offset);
  }
  Range range;
  if (!find_range<kSpace>(w, operands[1], sizeof(T), active, range)) return false;
  if (!range_has(w, range, sizeof(T), active, op == Op::exch ? kAllocated : kReadable)) return false;
  T sb[kLanes];
  T sc[kLanes];
  const T* const b = source<T>(w, operands[2], sb);
  if (is_at_once && range.first.cta == nullptr) {
    if constexpr (!kIsInteger<Kind>) return false;
    if constexpr (kIsInteger<Kind>) run_at_once<T>(op, range, active, b);
    note_range_written(w, range, sizeof(T), active);
    return true;
  }
  const T* const c = op == Op::cas ? source<T>(w, operands[3], sc) : b;
  switch (op) {
    case Op::add:
      run_lanes<Op::add, Kind>(range, active, b, c, old);
      break;
    case Op::exch:
      run_lanes<Op::exch, Kind>(range, active, b, c, old);
      break;
    case Op::cas:
      run_lanes<Op::cas, Kind>(range, active, b, c, old);
      break;
    case Op::min:
      run_lanes<Op::min, Kind>(range, active, b, c, old);
      break;
    case Op::max:
      run_lanes<Op::max, Kind>(range, active, b, c, old);
      break;
    case Op::or_:
      run_lanes<Op::or_, Kind>(range, active, b, c, old);
      break;
    default:
      return false;
  }
  note_range_written(w, range, sizeof(T), active);
  return true;
}
template <class Kind>
bool atomic_range(Warp& w, const Instruction& in, Mask active, bool is_at_once) {
  switch (static_cast<Space>(in.number)) {
    case Space::global:
      return atomic_range<Kind, Space::global>(w, in, active, is_at_once);
    case Space::shared_cta:
      return atomic_range<Kind, Space::shared_cta>(w, in, active, is_at_once);
    case Space::generic:
      return atomic_range<Kind, Space::generic>(w, in, active, is_at_once);
    default:
      return false;
  }
}

// flags: Op, and the words above. Vector forms (v2, v4, v8) act on each element.
template <class Kind>
Step atomic(Warp& w, const Instruction& in, Mask active) {
  using T = typename Kind::Value;
  const auto op = static_cast<Op>(in.flags & 0xFF);
  const auto space = static_cast<Space>(in.number);
  const bool has_result = (in.flags & kNoResult) == 0;
  const Operand* operands = operands_of(in);
  const bool is_list = operands[2].kind == Operand::Kind::list;
  const int count = is_list ? operands[2].count : 1;
  const std::size_t bytes = sizeof(T) * static_cast<std::size_t>(count);
  const bool is_at_once = w.launch->options.parts != nullptr && (space == Space::global || space == Space::generic);
  if (!is_list && atomic_range<Kind>(w, in, active, is_at_once)) {
    ++w.launch->progress;
    return Step::next;
  }
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const U64 address = lane_address(w, operands[1], lane);
    Target target;
    if ((address & (bytes - 1)) != 0) return report_misaligned(w, in, lane, address, bytes);
    if (!locate_any(space, w, lane, address, bytes, target) || target.shadow == nullptr ||
        !shadow_has(target.shadow, bytes, kAllocated))
      return report_outside(w, in, space, lane, address, bytes, true);
    const bool is_readable = shadow_has(target.shadow, bytes, kReadable);
    if (op != Op::exch && !is_readable) report_uninitialised(w, in, target, lane, address, bytes);
    const bool has_c = op == Op::cas;
    for (int i = 0; i < count; ++i) {
      std::byte* at = target.data + static_cast<std::size_t>(i) * sizeof(T);
      const T b = read_lane<T>(w, is_list ? operands[2].elements[i] : operands[2], lane);
      if constexpr (kIsInteger<Kind>) {
        if (is_at_once && target.cta == nullptr) {
          add_at_once<T>(op, at, b);
          continue;
        }
      }
      T old;
      std::memcpy(&old, at, sizeof(T));
      const T c = has_c ? read_lane<T>(w, operands[3], lane) : T{};
      const T result = Kind::run(op, old, b, c, target.cta == nullptr);
      std::memcpy(at, &result, sizeof(T));
      if (has_result) write_lane<T>(w, is_list ? operands[0].elements[i] : operands[0], lane, old);
      if (w.launch->weak) [[unlikely]] {
        Target element = target;
        element.data = at;
        const Scope scope = (in.flags & kCta) != 0         ? Scope::cta
                            : (in.flags & kInCluster) != 0 ? Scope::cluster
                                                           : Scope::gpu;
        w.launch->weak->atomic(w, lane, element, sizeof(T),
                               {true, (in.flags & kAcquires) != 0, (in.flags & kReleases) != 0, scope},
                               reinterpret_cast<const std::byte*>(&old));
      }
    }
    note_written(w, target, bytes, is_readable);
    if (w.race) [[unlikely]] {
      w.launch->race->strong_access(
          w, in, lane, target, bytes,
          {(in.flags & kAcquires) != 0, (in.flags & kReleases) != 0, (in.flags & kCta) != 0, true, true});
    }
  }
  ++w.launch->progress;
  return Step::next;
}

struct U128Kind {
  using Value = U128;
  static U128 run(Op op, U128 old, U128 b, U128 c, bool) {
    if (op == Op::exch) return b;
    return old.low == b.low && old.high == b.high ? c : old;
  }
};

Handler pick(const Decoded& d, Op op) {
  switch (d.type()) {
    case Type::f32:
      return atomic<Float>;
    case Type::f64:
      return atomic<Double>;
    case Type::f16:
      return atomic<Half<Format::f16, false>>;
    case Type::bf16:
      return atomic<Half<Format::bf16, false>>;
    case Type::f16x2:
      return atomic<Half<Format::f16, true>>;
    case Type::bf16x2:
      return atomic<Half<Format::bf16, true>>;
    case Type::s32:
      return atomic<Integer<std::int32_t>>;
    case Type::s64:
      return atomic<Integer<std::int64_t>>;
    case Type::b16:
      return atomic<Integer<U16>>;
    case Type::u32:
    case Type::b32:
      return atomic<Integer<U32>>;
    case Type::u64:
    case Type::b64:
      return atomic<Integer<U64>>;
    case Type::b128:
      return op == Op::cas || op == Op::exch ? atomic<U128Kind> : nullptr;
    default:
      return nullptr;
  }
}

Handler bind_atomic(const Decoded& d, bool has_result) {
  constexpr std::string_view kOps[] = {"add", "and", "or", "xor", "exch", "cas", "inc", "dec", "min", "max"};
  Op op = Op::add;
  for (std::size_t i = 0; i < 10; ++i)
    if (d.has(kOps[i])) op = static_cast<Op>(i);
  const bool acquires = d.has("acquire") || d.has("acq_rel");
  const bool releases = d.has("release") || d.has("acq_rel");
  d.in->flags =
      static_cast<U16>(static_cast<unsigned>(op) | (has_result ? 0u : kNoResult) | (acquires ? kAcquires : 0u) |
                       (releases ? kReleases : 0u) | (d.has("cta") ? kCta : 0u) | (d.has("cluster") ? kInCluster : 0u));
  d.in->number = static_cast<U32>(space_of(d));
  const Operand& value = d.in->op[has_result ? 2 : 1];
  const int count = value.kind == Operand::Kind::list ? value.count : 1;
  const int wanted = d.has("v2") ? 2 : d.has("v4") ? 4 : d.has("v8") ? 8 : 1;
  return count == wanted ? pick(d, op) : nullptr;
}

}  // namespace

Handler atom(const Decoded& d) { return bind_atomic(d, true); }
Handler red(const Decoded& d) { return bind_atomic(d, false); }

}  // namespace tessera::emulator::bind
