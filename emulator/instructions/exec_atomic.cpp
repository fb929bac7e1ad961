// PTX ISA, "Parallel Synchronization and Communication Instructions": atom, red. Lanes act in ascending order.
#include "emulator/findings/race.h"
#include "emulator/instructions/bind.h"
#include "emulator/instructions/integer_ops.h"
#include "emulator/math/float_arithmetic.h"
#include "emulator/math/half_arithmetic.h"
#include "emulator/memory/access.h"
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

// flags: Op; 256: no result, 512: acquires, 1024: releases, 2048: .cta scope, 4096: .cluster scope. Vector forms (v2,
// v4, v8) act on each element.
template <class Kind>
Step atomic(Warp& w, const Instruction& in, Mask active) {
  using T = typename Kind::Value;
  const auto op = static_cast<Op>(in.flags & 0xFF);
  const auto space = static_cast<Space>(in.number);
  const bool has_result = (in.flags & 256) == 0;
  const Operand* operands = has_result ? in.op : in.op - 1;  // operands[1] address, [2] b, [3] c
  const bool is_list = operands[2].kind == Operand::Kind::list;
  const int count = is_list ? operands[2].count : 1;
  const std::size_t bytes = sizeof(T) * static_cast<std::size_t>(count);
  std::unique_lock<std::mutex> lock;
  if (w.launch->options.parts != nullptr && (space == Space::global || space == Space::generic)) [[unlikely]]
    lock = std::unique_lock(w.launch->options.parts->atomics);
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const U64 address = lane_address(w, operands[1], lane);
    Target target;
    if ((address & (bytes - 1)) != 0) return report_misaligned(w, in, lane, address, bytes);
    if (!locate_any(space, w, lane, address, bytes, target) || target.shadow == nullptr ||
        !shadow_has(target.shadow, bytes, kAllocated))
      return report_outside(w, in, space, lane, address, bytes, true);
    if (op != Op::exch && !shadow_has(target.shadow, bytes, kReadable))
      report_uninitialised(w, in, target, lane, address, bytes);
    const bool has_c = op == Op::cas;
    for (int i = 0; i < count; ++i) {
      T old;
      std::byte* at = target.data + static_cast<std::size_t>(i) * sizeof(T);
      std::memcpy(&old, at, sizeof(T));
      const T b = read_lane<T>(w, is_list ? operands[2].elements[i] : operands[2], lane);
      const T c = has_c ? read_lane<T>(w, operands[3], lane) : T{};
      const T result = Kind::run(op, old, b, c, target.cta == nullptr);
      std::memcpy(at, &result, sizeof(T));
      if (has_result) write_lane<T>(w, is_list ? operands[0].elements[i] : operands[0], lane, old);
      if (w.launch->weak) [[unlikely]] {
        Target element = target;
        element.data = at;
        const Scope scope = (in.flags & 2048) != 0 ? Scope::cta : (in.flags & 4096) != 0 ? Scope::cluster : Scope::gpu;
        w.launch->weak->atomic(w, lane, element, sizeof(T),
                               {true, (in.flags & 512) != 0, (in.flags & 1024) != 0, scope},
                               reinterpret_cast<const std::byte*>(&old));
      }
    }
    note_written(w, target, bytes);
    if (w.race) [[unlikely]] {
      w.launch->race->strong_access(
          w, in, lane, target, bytes,
          {(in.flags & 512) != 0, (in.flags & 1024) != 0, (in.flags & 2048) != 0, true, true});
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
      static_cast<U16>(static_cast<unsigned>(op) | (has_result ? 0u : 256u) | (acquires ? 512u : 0u) |
                       (releases ? 1024u : 0u) | (d.has("cta") ? 2048u : 0u) | (d.has("cluster") ? 4096u : 0u));
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
