#include "emulator/instructions/reduce.h"

#include <cstring>

#include "emulator/instructions/integer_ops.h"
#include "emulator/math/float_arithmetic.h"
#include "emulator/math/half_arithmetic.h"

namespace tessera::emulator {
namespace {

using Op = BulkReduce::Op;

template <class T>
T combine_integer(Op op, T a, T b) {
  switch (op) {
    case Op::add:
      return ops::wrap_add(a, b);
    case Op::min:
      return b < a ? b : a;
    case Op::max:
      return b > a ? b : a;
    case Op::inc:
      return a >= b ? T{0} : static_cast<T>(a + 1);
    case Op::dec:
      return a == 0 || a > b ? b : static_cast<T>(a - 1);
    case Op::and_:
      return static_cast<T>(a & b);
    case Op::or_:
      return static_cast<T>(a | b);
    case Op::xor_:
      return static_cast<T>(a ^ b);
    case Op::none:
      break;
  }
  return b;
}
template <math::Format F>
std::uint16_t combine_half(Op op, std::uint16_t a, std::uint16_t b) {
  const std::uint32_t r = op == Op::add   ? math::half_add<F>(a, b)
                          : op == Op::min ? math::half_min<F>(a, b)
                                          : math::half_max<F>(a, b);
  return static_cast<std::uint16_t>(r);
}

template <class T, class F>
void each(std::byte* old, const std::byte* value, std::size_t bytes, F f) {
  for (std::size_t i = 0; i + sizeof(T) <= bytes; i += sizeof(T)) {
    T a;
    T b;
    std::memcpy(&a, old + i, sizeof(T));
    std::memcpy(&b, value + i, sizeof(T));
    const T r = f(a, b);
    std::memcpy(old + i, &r, sizeof(T));
  }
}

}  // namespace

bool BulkReduce::set_type(math::TileType tile_type) {
  using math::TileType;
  switch (tile_type) {
    case TileType::u32:
      return set_type(Type::u32);
    case TileType::s32:
      return set_type(Type::s32);
    case TileType::u64:
      return set_type(Type::u64);
    case TileType::s64:
      return set_type(Type::s64);
    case TileType::f16:
      return set_type(Type::f16);
    case TileType::bf16:
      return set_type(Type::bf16);
    case TileType::f32:
    case TileType::f32_ftz:
      return set_type(Type::f32);
    default:
      return false;
  }
}

bool BulkReduce::set_type(Type element) {
  type = element;
  const bool is_half = type == Type::f16 || type == Type::bf16;
  if (type == Type::f32 || type == Type::f64) return op == Op::add;
  if (is_half) return op == Op::add || op == Op::min || op == Op::max;
  if (op == Op::inc || op == Op::dec) return type == Type::u32;
  return true;
}

void BulkReduce::apply(std::byte* old, const std::byte* value, std::size_t bytes) const {
  const auto integer = [this](auto a, auto b) { return combine_integer(op, a, b); };
  switch (type) {
    case Type::s32:
      return each<std::int32_t>(old, value, bytes, integer);
    case Type::s64:
      return each<std::int64_t>(old, value, bytes, integer);
    case Type::u64:
    case Type::b64:
      return each<std::uint64_t>(old, value, bytes, integer);
    case Type::f32:
      return each<float>(old, value, bytes, [](float a, float b) { return math::add(a, b); });
    case Type::f64:
      return each<double>(old, value, bytes, [](double a, double b) { return math::add(a, b); });
    case Type::f16:
      return each<std::uint16_t>(old, value, bytes,
                                 [this](auto a, auto b) { return combine_half<math::Format::f16>(op, a, b); });
    case Type::bf16:
      return each<std::uint16_t>(old, value, bytes,
                                 [this](auto a, auto b) { return combine_half<math::Format::bf16>(op, a, b); });
    default:
      return each<std::uint32_t>(old, value, bytes, integer);
  }
}

}  // namespace tessera::emulator
