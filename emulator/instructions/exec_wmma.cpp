// PTX ISA, "wmma.load", "wmma.store": a warp's matrix between memory and registers.
//
// Lines are rows of a .row matrix and columns of a .col one; a line's elements lie side by side, lines `stride`
// elements apart. A line is found and checked as one piece. Every lane gives the same address and stride. How wide the
// accesses are that hardware makes of a line, and so what traps as misaligned, was read off the code that ptxas writes
// for sm_90.
#include "emulator/instructions/exec_wmma.h"

#include <fmt/format.h>

#include <algorithm>

#include "emulator/findings/race.h"
#include "emulator/instructions/bind.h"
#include "emulator/memory/access.h"

namespace tessera::emulator {
namespace {

using math::WmmaMatrix;
using U32 = std::uint32_t;
using U64 = std::uint64_t;

constexpr int kWidths[] = {1, 4, 8, 16, 32, 64};
constexpr U32 kMatrices = 3;
constexpr int kMaxLines = 32;

WmmaMap make_map(const math::WmmaFragment& fragment) {
  WmmaMap map;
  map.fragment = fragment;
  if (!fragment.exists()) return map;
  map.per_register = fragment.per_register();
  map.registers = fragment.registers();
  for (int lane = 0; lane < kLanes; ++lane)
    for (int r = 0; r < map.registers; ++r)
      for (int e = 0; e < map.per_register; ++e) {
        const math::Place place = fragment.place(lane, r, e);
        map.places.push_back({static_cast<std::uint8_t>(place.row), static_cast<std::uint8_t>(place.column)});
      }
  return map;
}

}  // namespace

std::uint32_t wmma_number(int shape, WmmaMatrix matrix, int bits) {
  const auto width = static_cast<U32>(std::find(std::begin(kWidths), std::end(kWidths), bits) - std::begin(kWidths));
  return (static_cast<U32>(shape) * kMatrices + static_cast<U32>(matrix)) * U32{std::size(kWidths)} + width;
}

const WmmaMap& wmma_map(std::uint32_t number) {
  static const std::vector<WmmaMap> maps = [] {
    std::vector<WmmaMap> made;
    for (const math::WmmaShape& shape : math::kWmmaShapes)
      for (const WmmaMatrix matrix : {WmmaMatrix::a, WmmaMatrix::b, WmmaMatrix::d})
        for (const int bits : kWidths) made.push_back(make_map({shape, matrix, bits}));
    return made;
  }();
  return maps[number];
}

int wmma_shape(const Decoded& d) {
  for (std::size_t i = 0; i < std::size(math::kWmmaShapes); ++i) {
    const math::WmmaShape& shape = math::kWmmaShapes[i];
    if (d.has(fmt::format("m{}n{}k{}", shape.m, shape.n, shape.k))) return static_cast<int>(i);
  }
  return -1;
}

int wmma_registers(const WmmaMap& map, Type type) {
  return type == Type::f16 && map.fragment.matrix != WmmaMatrix::d ? 8 : map.registers;
}

namespace bind {
namespace {

/// The matrix of one execution: where its lines are in the host's memory.
struct Lines {
  std::array<Target, kMaxLines> target;
  int count = 0;
  std::size_t bytes = 0;
};

/// The value that all lanes should give; false after a report.
template <class F>
bool same_in_all_lanes(Warp& w, const Instruction& in, const char* what, F value_of) {
  const U64 first = value_of(0);
  for (int lane = 1; lane < kLanes; ++lane) {
    if (value_of(lane) == first) continue;
    w.fault_at(in, "wmma-not-uniform", lane, value_of(lane),
               fmt::format("the {} of lane {} is 0x{:x}, that of lane 0 is 0x{:x}: they must be the same in all lanes",
                           what, lane, value_of(lane), first),
               "a pointer that was advanced by threadIdx.x; wmma takes the address of the whole matrix");
    return false;
  }
  return true;
}

// PTX wants the matrix aligned to a thread's share of it, nvcuda::wmma strides of 16 bytes; hardware may want less.
void check_alignment(Warp& w, const Instruction& in, const WmmaMap& map, U64 address, U64 stride_bits, int lines) {
  const int share = map.registers * (map.fragment.bits == 64 ? 8 : 4);
  const auto wanted = static_cast<U64>(std::min(share, 16));
  if (address % wanted != 0)
    w.hazard(in, "wmma-alignment", 0, address, fmt::format("the matrix must be aligned to {} bytes", wanted),
             "this target makes narrower accesses of it; others may not");
  else if (lines > 1 && stride_bits % (8 * wanted) != 0)
    w.hazard(in, "wmma-alignment", 0, address,
             fmt::format("the stride is {} bits: must be a multiple of {} bytes", stride_bits, wanted),
             "this target makes narrower accesses of the lines; others may not");
}

bool find_lines(Warp& w, const Instruction& in, const Operand& at, const Operand& stride, bool is_write, Lines& out) {
  const WmmaInstruction wmma = decode_wmma(in);
  const WmmaMap& map = *wmma.map;
  const bool is_row = wmma.is_row;
  const auto space = static_cast<Space>(wmma.space);
  const U64 aligned = wmma.aligned;
  const int length = is_row ? map.fragment.columns() : map.fragment.rows();
  out.count = is_row ? map.fragment.rows() : map.fragment.columns();
  out.bytes = static_cast<std::size_t>(length * map.fragment.bits / 8);
  if (!same_in_all_lanes(w, in, "address", [&](int lane) { return lane_address(w, at, lane); })) return false;
  U64 elements = static_cast<U64>(length);
  if (stride.kind != Operand::Kind::none) {
    if (!same_in_all_lanes(w, in, "stride", [&](int lane) { return U64{read_lane<U32>(w, stride, lane)}; }))
      return false;
    elements = read_lane<U32>(w, stride, 0);
  }
  const U64 base = lane_address(w, at, 0);
  if (space == Space::generic && base - kLocalWindow < kWindowBytes) {
    w.fault_at(in, "not-supported", -1, base, "wmma on local memory: every lane has its own at this address",
               "an array of the thread's own; fragments are shared by the warp");
    return false;
  }
  const U64 stride_bits = elements * static_cast<U64>(map.fragment.bits);
  check_alignment(w, in, map, base, stride_bits, out.count);
  for (int line = 0; line < out.count; ++line) {
    const U64 address = base + static_cast<U64>(line) * stride_bits / 8;
    if (address % aligned != 0 || static_cast<U64>(line) * stride_bits % 8 != 0) {
      report_misaligned(w, in, -1, address, aligned);
      return false;
    }
    Target& target = out.target[static_cast<std::size_t>(line)];
    if (!locate_any(space, w, 0, address, out.bytes, target) || target.shadow == nullptr ||
        !shadow_has(target.shadow, out.bytes, kAllocated)) {
      report_outside(w, in, space, -1, address, out.bytes, is_write);
      return false;
    }
    if (!is_write && !shadow_has(target.shadow, out.bytes, kReadable))
      report_uninitialised(w, in, target, -1, address, out.bytes);
    if (w.race) [[unlikely]]
      w.launch->race->access(w, in, kAllLanes, target, out.bytes, {is_write, false, false});
  }
  return true;
}

/// Line and position in it.
struct Spot {
  std::size_t line;
  std::size_t position;
};
Spot spot_of(WmmaMap::SmallPlace place, bool is_row) {
  return is_row ? Spot{place.row, place.column} : Spot{place.column, place.row};
}

// T: an element, or the 32 bits that hold several narrower than a byte; those lie side by side in memory too.
template <class T>
Step load(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  Lines lines;
  if (!find_lines(w, in, in.op[1], in.op[2], false, lines)) return Step::fault;
  const WmmaMap& map = *decode_wmma(in).map;
  const bool is_row = decode_wmma(in).is_row;
  const int bits = map.fragment.bits;
  const int parts = bits < 8 ? 1 : map.per_register;
  for (int r = 0; r < wmma_count(in.op[0]); ++r) {
    const U32 offset = wmma_offset(in.op[0], r);
    constexpr std::size_t kRegister = sizeof(T) == 8 ? 8 : 4;
    for (int lane = 0; lane < kLanes; ++lane) {
      const WmmaMap::SmallPlace* places = map.of(lane, r % map.registers);
      std::byte* to = w.registers + offset + static_cast<std::size_t>(lane) * kRegister;
      for (int e = 0; e < parts; ++e) {
        const Spot spot = spot_of(places[e], is_row);
        std::memcpy(to + static_cast<std::size_t>(e) * sizeof(T),
                    lines.target[spot.line].data + spot.position * static_cast<std::size_t>(bits) / 8, sizeof(T));
      }
    }
  }
  return Step::next;
}

template <class T>
Step store(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  Lines lines;
  if (!find_lines(w, in, in.op[0], in.op[2], true, lines)) return Step::fault;
  const WmmaMap& map = *decode_wmma(in).map;
  const bool is_row = decode_wmma(in).is_row;
  for (int r = 0; r < map.registers; ++r) {
    const U32 offset = wmma_offset(in.op[1], r);
    constexpr std::size_t kRegister = sizeof(T) == 8 ? 8 : 4;
    for (int lane = 0; lane < kLanes; ++lane) {
      const WmmaMap::SmallPlace* places = map.of(lane, r);
      const std::byte* from = w.registers + offset + static_cast<std::size_t>(lane) * kRegister;
      for (int e = 0; e < map.per_register; ++e) {
        const Spot spot = spot_of(places[e], is_row);
        std::memcpy(lines.target[spot.line].data + spot.position * sizeof(T),
                    from + static_cast<std::size_t>(e) * sizeof(T), sizeof(T));
      }
    }
  }
  for (int line = 0; line < lines.count; ++line)
    note_written(w, lines.target[static_cast<std::size_t>(line)], lines.bytes);
  return Step::next;
}

// What the widest access of a line needs: ldmatrix of factors in .shared whose machine code has it, else the register
// or the pair of accumulators that lie side by side.
U32 access_bytes(const math::WmmaFragment& fragment, bool is_row, bool is_shared) {
  const int element = std::max(fragment.bits / 8, 1);
  if (fragment.matrix == WmmaMatrix::d) {
    const bool is_transposed = fragment.shape.m == 8 && fragment.shape.n == 32;
    if (element == 2) return 4;
    return static_cast<U32>(is_row != is_transposed ? 2 * element : element);
  }
  if (fragment.bits >= 32) return static_cast<U32>(element);
  // Bytes of the side that is not k are loaded one by one, two-byte elements are transposed in registers.
  if (fragment.bits == 8 && is_row != (fragment.matrix == WmmaMatrix::a)) return 1;
  return is_shared ? 16 : 4;
}

Handler bind_access(const Decoded& d, WmmaMatrix matrix, bool is_store) {
  const int shape = wmma_shape(d);
  const U32 number = wmma_number(shape, matrix, bits_of(d.type()));
  const WmmaMap& map = wmma_map(number);
  if (wmma_count(d.in->op[is_store ? 1 : 0]) != wmma_registers(map, d.type())) return nullptr;
  const bool is_row = d.has("row");
  const Space space = space_of(d);
  d.in->number = encode_wmma(number, is_row, static_cast<U32>(space),
                             access_bytes(map.fragment, is_row, space == Space::shared_cta));
  switch (map.fragment.bits) {
    case 8:
      return is_store ? nullptr : load<std::uint8_t>;
    case 16:
      return is_store ? store<std::uint16_t> : load<std::uint16_t>;
    case 64:
      return is_store ? store<U64> : load<U64>;
    default:
      return is_store ? store<U32> : load<U32>;
  }
}

}  // namespace

Handler wmma_load_a(const Decoded& d) { return bind_access(d, WmmaMatrix::a, false); }
Handler wmma_load_b(const Decoded& d) { return bind_access(d, WmmaMatrix::b, false); }
Handler wmma_load_c(const Decoded& d) { return bind_access(d, WmmaMatrix::d, false); }
Handler wmma_store(const Decoded& d) { return bind_access(d, WmmaMatrix::d, true); }

}  // namespace bind
}  // namespace tessera::emulator
