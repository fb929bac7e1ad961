// A wgmma when it completes: operands decoded from shared memory or registers, the product formed, the accumulators
// written; and what there is to say about the descriptors and the memory that they name.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "emulator/math/fragments.h"
#include "emulator/math/matrix_descriptor.h"
#include "emulator/math/mma_integer.h"
#include "emulator/math/mma_tile.h"
#include "emulator/memory/async_memory.h"
#include "emulator/tensor_cores/wgmma.h"

namespace tessera::emulator {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;
using math::Format;

/// Where a column of B and D stands here: of every eight the even ones, then the odd ones. So the values of one
/// register in four neighbouring lanes (columns 2q, or 2q + 1, of a row) stand side by side.
constexpr int position_of(int column) { return (column & ~7) | (column & 1) << 2 | (column & 7) >> 1; }

/// What the opcode says, in Instruction::number and flags.
struct Shape {
  U32 a_code = 0;
  U32 b_code = 0;
  Format a = Format::f16;
  Format b = Format::f16;
  bool is_integer = false;
  int n = 8;
  int k = 16;
  int bits = 16;  // of an element in memory and registers
  bool f16_result = false;
  bool a_in_registers = false;
  math::Major a_major = math::Major::k;
  math::Major b_major = math::Major::k;
  bool negate_a = false;
  bool negate_b = false;
};

// number: n | a << 12 | b << 16; flags: 1 f16 result, 2 A in registers, 4 A MN-major, 8 B MN-major, 16 -A, 32 -B, 64
// .satfinite. a and b are a Format or, from WgmmaInteger::s8 on, an integer's code.
Shape shape_of(const Instruction& in) {
  Shape s;
  s.n = static_cast<int>(in.number & 0xFFF);
  s.a_code = (in.number >> 12) & 15;
  s.b_code = (in.number >> 16) & 15;
  s.is_integer = s.a_code >= static_cast<U32>(WgmmaInteger::s8);
  s.a = static_cast<Format>(s.a_code);
  s.b = static_cast<Format>(s.b_code);
  if (s.is_integer)
    s.bits = s.a_code == static_cast<U32>(WgmmaInteger::b1) ? 1 : 8;
  else
    s.bits = s.a == Format::tf32 ? 32 : s.a == Format::f16 || s.a == Format::bf16 ? 16 : 8;
  s.k = 256 / s.bits;
  s.f16_result = (in.flags & 1) != 0;
  s.a_in_registers = (in.flags & 2) != 0;
  s.a_major = (in.flags & 4) != 0 ? math::Major::mn : math::Major::k;
  s.b_major = (in.flags & 8) != 0 ? math::Major::mn : math::Major::k;
  s.negate_a = (in.flags & 16) != 0;
  s.negate_b = (in.flags & 32) != 0;
  return s;
}

const math::MmaPath& path_of(const Shape& s) {
  using namespace math::mma_paths;
  if (s.bits == 32) return kHopperTf32;
  if (s.bits == 16) return s.f16_result ? kHopperF16 : kHopperF32;
  return s.f16_result ? kHopperFp8F16 : kHopperFp8;
}

/// The operation while it completes: operands decoded, product formed, accumulators written.
class Product {
 public:
  Product(WgmmaOperation& operation, Launch& launch)
      : operation_(operation), launch_(launch), shape_(shape_of(*operation.in)), warp_(*operation.warps[0]) {}

  void run() {
    if (!shape_.is_integer) return run_float();
    if (shape_.bits == 1) return run_bits();
    run_integer();
  }

 private:
  void run_float() {
    // Kept between operations: decoding fills them anew.
    static thread_local math::MmaOperand a;
    static thread_local math::MmaOperand b;
    static thread_local std::vector<U32> d;
    using Run = math::MmaOperand::Run;
    const auto make_room = [this](math::MmaOperand& operand, Format format, int count, math::Major major) {
      if (shape_.bits == 16)
        operand.expect_codes(format, count, shape_.k, major == math::Major::k ? Run::along_k : Run::along_index);
      else
        operand.reshape(count, shape_.k);
    };
    make_room(a, shape_.a, 64, shape_.a_in_registers ? math::Major::k : shape_.a_major);
    make_room(b, shape_.b, shape_.n, shape_.b_major);
    if (shape_.a_in_registers)
      read_registers(a);
    else if (!read_memory(operation_.a_descriptor, true, shape_.a, shape_.a_major, 64, shape_.negate_a, a))
      return;
    if (!read_memory(operation_.b_descriptor, false, shape_.b, shape_.b_major, shape_.n, shape_.negate_b, b)) return;
    const int pitch = (shape_.n + 15) / 16 * 16;
    d.resize(static_cast<std::size_t>(64 * pitch));
    if (operation_.accumulate)
      move_accumulators(d.data(), pitch, true);
    else
      std::fill(d.begin(), d.end(), 0);
    math::mma_tile(path_of(shape_), a, b, d.data(), pitch);
    move_accumulators(d.data(), pitch, false);
  }

  void run_integer() {
    static thread_local math::IntegerOperand a;
    static thread_local math::IntegerOperand b;
    const auto format = [](U32 code) {
      return code == static_cast<U32>(WgmmaInteger::s8) ? math::IntegerFormat::s8 : math::IntegerFormat::u8;
    };
    const auto fill = [&](math::IntegerOperand& operand, U32 code) {
      return [&operand, f = format(code)](const std::byte* packed, int elements, int index, int k) {
        operand.decode(f, packed, elements, index, k, math::IntegerOperand::Run::along_k);
      };
    };
    a.resize(64, shape_.k);
    b.resize(shape_.n, shape_.k);
    if (!read_operands(fill(a, shape_.a_code), fill(b, shape_.b_code))) return;
    std::vector<U32> d(static_cast<std::size_t>(64 * shape_.n), 0);
    if (operation_.accumulate) move_accumulators(d.data(), shape_.n, true);
    const bool saturate = (operation_.in->flags & 64) != 0;
    math::integer_tile(a, b, reinterpret_cast<std::int32_t*>(d.data()), shape_.n, saturate, shape_.k);
    move_accumulators(d.data(), shape_.n, false);
  }

  // b1: a row of K = 256 bits is eight words; .and.popc.
  void run_bits() {
    std::vector<std::array<U32, 8>> a(64);
    std::vector<std::array<U32, 8>> b(static_cast<std::size_t>(shape_.n));
    const auto fill = [](auto& rows) {
      return [&rows](const std::byte* packed, int elements, int index, int k) {
        std::memcpy(reinterpret_cast<std::byte*>(rows[static_cast<std::size_t>(index)].data()) + k / 8, packed,
                    static_cast<std::size_t>(elements / 8));
      };
    };
    if (!read_operands(fill(a), fill(b))) return;
    std::vector<U32> d(static_cast<std::size_t>(64 * shape_.n), 0);
    if (operation_.accumulate) move_accumulators(d.data(), shape_.n, true);
    for (std::size_t m = 0; m < 64; ++m)
      for (std::size_t n = 0; n < b.size(); ++n) {
        U32& at = d[m * b.size() + n];
        at = static_cast<U32>(
            math::bit_dot(math::BitOperation::and_popc, a[m].data(), b[n].data(), 8, static_cast<std::int32_t>(at)));
      }
    move_accumulators(d.data(), shape_.n, false);
  }

  // Both operands of an integer product, K-major: take(packed, elements, index, k) for every run along K.
  template <class TakeA, class TakeB>
  bool read_operands(TakeA take_a, TakeB take_b) {
    if (!shape_.a_in_registers) {
      if (!visit_memory(operation_.a_descriptor, true, math::Major::k, 64, take_a)) return false;
    } else {
      const Operand& list = operation_.in->op[1];
      for (int thread = 0; thread < 128; ++thread)
        for (int r = 0; r < list.count; ++r) {
          const Warp& warp = *operation_.warps[static_cast<std::size_t>(thread / 32)];
          const U32* word = warp.reg<U32>(list.elements[r].offset) + thread % 32;
          const math::Place place = math::wgmma_a(shape_.bits, thread, r, 0);
          take_a(reinterpret_cast<const std::byte*>(word), 32 / shape_.bits, place.row, place.column);
        }
    }
    return visit_memory(operation_.b_descriptor, false, math::Major::k, shape_.n,
                        [&](const std::byte* packed, int elements, int index, int k) {
                          take_b(packed, elements, position_of(index), k);
                        });
  }

  void report(const char* name, bool is_failure, U64 address, std::string message, std::string cause) const {
    EmulatorFinding finding = warp_.finding(*operation_.in, name, -1);
    finding.is_failure = is_failure;
    finding.address = address;
    finding.has_address = true;
    finding.message = std::move(message);
    finding.cause = std::move(cause);
    launch_.findings.add(std::move(finding));
  }

  // B's columns by position_of. Along the index there are 16-bit elements only, eight in a chunk.
  bool read_memory(U64 bits, bool is_a, Format format, math::Major major, int count, bool negate,
                   math::MmaOperand& out) {
    return visit_memory(bits, is_a, major, count, [&](const std::byte* packed, int elements, int index, int k) {
      if (major == math::Major::k)
        return take(format, packed, elements, is_a ? index : position_of(index), k, negate, out);
      std::uint16_t codes[8];
      std::memcpy(codes, packed, sizeof(codes));
      if (!is_a) {
        const std::uint16_t ordered[8] = {codes[0], codes[2], codes[4], codes[6],
                                          codes[1], codes[3], codes[5], codes[7]};
        std::memcpy(codes, ordered, sizeof(codes));
      }
      out.take_codes(reinterpret_cast<const std::byte*>(codes), index, k, negate);
    });
  }

  // Elements along K.
  void take(Format format, const std::byte* packed, int elements, int index, int k, bool negate,
            math::MmaOperand& out) const {
    if (shape_.bits == 16)
      out.take_codes(packed, index, k, negate);
    else
      out.decode(format, packed, elements, index, k, math::MmaOperand::Run::along_k, negate);
  }

  // take(packed, elements, index, k) for every 16 bytes of an operand in shared memory. False after a failure.
  template <class Take>
  bool visit_memory(U64 bits, bool is_a, math::Major major, int count, Take take) {
    const math::DecodedDescriptor decoded = math::decode_descriptor(math::DescriptorKind::wgmma, bits);
    if (decoded.issue == math::DescriptorIssue::reserved_bits)
      report("descriptor-reserved-bits", false, bits,
             fmt::format("descriptor 0x{:016x} has bits set that must be zero", bits),
             "fields in bytes instead of 16-byte units, or shifted");
    Cta& cta = *warp_.cta;
    bool ok = true;
    operand_ = {decoded.descriptor, major, count, {}};
    math::for_each_chunk(
        decoded.descriptor, major, shape_.bits, count, shape_.k, [&](U32 address, int index, int k, int elements) {
          if (!ok) return;
          if (!is_in_order(cta, address - kSharedBase))
            ok = check_chunk(cta, address, bits, decoded.descriptor.swizzle);
          if (ok && operation_.race_of_all) {
            const auto& reader = is_a ? operation_.race[static_cast<std::size_t>(index) / 16] : operation_.race_of_all;
            launch_.race->async_access(*reader, place_, &cta, address - kSharedBase, 16, false);
          }
          if (ok) take(cta.shared.data() + (address - kSharedBase), elements, index, k);
        });
    return ok;
  }

  // Bytes that a tensor copy permuted with one swizzle and that are read with another.
  void check_swizzle(U32 address, U64 bits, math::Swizzle swizzle, unsigned written) {
    if (written == 1 + static_cast<unsigned>(swizzle)) {
      if (operand_.descriptor.base_offset != 0)
        report("descriptor-base-offset", false, address,
               fmt::format("descriptor 0x{:016x} has base offset {} over bytes that a tensor copy permuted", bits,
                           operand_.descriptor.base_offset),
               "the copy engine swizzles absolute addresses, so the base offset (bits 49-51) must be 0");
      return;
    }
    constexpr const char* kNames[] = {"none", "32B", "64B", "128B", "128B with 32-byte atoms", "another", "another"};
    report("descriptor-swizzle", false, address,
           fmt::format("descriptor 0x{:016x} reads with swizzle {} what a tensor map with swizzle {} wrote", bits,
                       kNames[static_cast<unsigned>(swizzle) % 7], kNames[(written - 1) % 7]),
           "the descriptor's layout code (bits 62-63: 1 is 128B, 2 is 64B, 3 is 32B) and the tensor map disagree");
  }

  // Whether every byte of the operand, read with this descriptor, was written.
  bool is_readable(const math::MatrixDescriptor& descriptor) const {
    const Cta& cta = *warp_.cta;
    bool ok = true;
    math::for_each_chunk(descriptor, operand_.major, shape_.bits, operand_.count, shape_.k, [&](U32 at, int, int, int) {
      const U32 offset = at - kSharedBase;
      ok = ok && offset < cta.shared_bytes && cta.shared_bytes - offset >= 16 &&
           shadow_has(cta.shared_shadow.data() + offset, 16, kReadable);
    });
    return ok;
  }

  // The usual cause, or the slip that would explain this descriptor.
  const std::string& hint(const char* usual) {
    if (operand_.hint.empty()) operand_.hint = find_hint(usual);
    return operand_.hint;
  }
  std::string find_hint(const char* usual) const {
    const math::MatrixDescriptor& d = operand_.descriptor;
    math::MatrixDescriptor other = d;
    std::swap(other.leading_bytes, other.stride_bytes);
    // With a swizzle, LBO has no effect on a K-major operand, so whatever stands there would do.
    const bool uses_both = d.swizzle == math::Swizzle::none || operand_.major == math::Major::mn;
    if (uses_both && is_readable(other))
      return "LBO and SBO are exchanged: the other way round all of the operand was written";
    other = d;
    other.leading_bytes /= 16;
    other.stride_bytes /= 16;
    if (is_readable(other)) return "LBO and SBO in bytes: divided by 16, all of the operand was written";
    other = d;
    other.leading_bytes *= static_cast<U32>(shape_.bits) / 8;
    other.stride_bytes *= static_cast<U32>(shape_.bits) / 8;
    if (is_readable(other)) return "LBO and SBO in elements: taken as bytes, all of the operand was written";
    return usual;
  }

  // What is true of nearly every chunk, and leaves nothing to say.
  bool is_in_order(const Cta& cta, U32 offset) const {
    if (offset >= cta.shared_bytes || cta.shared_bytes - offset < 16) return false;
    constexpr U64 kAll = kReadable * 0x0101010101010101;
    U64 shadow[2];
    std::memcpy(shadow, cta.shared_shadow.data() + offset, sizeof(shadow));
    if ((shadow[0] & shadow[1] & kAll) != kAll || cta.written_at[offset / 16] != 0) return false;
    const unsigned written = cta.tile_swizzle[offset / 16];
    return written == 0 ||
           (written == 1 + static_cast<unsigned>(operand_.descriptor.swizzle) && operand_.descriptor.base_offset == 0);
  }

  bool check_chunk(Cta& cta, U32 address, U64 bits, math::Swizzle swizzle) {
    const U32 offset = address - kSharedBase;
    if (offset >= cta.shared_bytes || cta.shared_bytes - offset < 16) {
      report("smem-out-of-bounds", true, address,
             fmt::format("descriptor 0x{:016x} reaches offset {} of {} bytes", bits, static_cast<std::int32_t>(offset),
                         cta.shared_bytes),
             hint("LBO and SBO exchanged, or given in bytes or elements instead of 16-byte units"));
      return false;
    }
    if (!shadow_has(cta.shared_shadow.data() + offset, 16, kReadable))
      report("smem-uninitialised", false, address,
             fmt::format("descriptor 0x{:016x} reads 16 bytes that nobody has written", bits),
             hint("LBO and SBO exchanged, a swizzle unlike the tensor map's, or a tile that was not waited for"));
    if (!is_fenced(cta, offset, warp_.fence_time))
      report("missing-proxy-fence", false, address,
             "wgmma reads shared memory that ordinary stores wrote, without fence.proxy.async between them",
             "the writing threads must execute fence.proxy.async before the barrier that lets wgmma start");
    const unsigned written = cta.tile_swizzle[offset / 16];
    if (written > 1 || (written == 1 && swizzle != math::Swizzle::none)) check_swizzle(address, bits, swizzle, written);
    return true;
  }

  // A from registers, 16 rows a warp: four neighbouring lanes hold neighbouring elements of a row (math::wgmma_a).
  void read_registers(math::MmaOperand& out) {
    const Operand& list = operation_.in->op[1];
    const int elements = 4 * 32 / shape_.bits;
    for (int w = 0; w < 4; ++w)
      for (int r = 0; r < list.count; ++r) {
        const U32* words = operation_.warps[static_cast<std::size_t>(w)]->reg<U32>(list.elements[r].offset);
        for (int lane = 0; lane < kLanes; lane += 4) {
          const math::Place place = math::wgmma_a(shape_.bits, 32 * w + lane, r, 0);
          take(shape_.a, reinterpret_cast<const std::byte*>(words + lane), elements, place.row, place.column,
               shape_.negate_a, out);
        }
      }
  }

  // A register's four neighbouring lanes are four neighbouring positions of a row (math::wgmma_d); with f16 results
  // each word is two values, of positions that are four apart.
  void move_accumulators(U32* d, int pitch, bool to_matrix) {
    if (shape_.f16_result) return to_matrix ? move_halves<true>(d, pitch) : move_halves<false>(d, pitch);
    return to_matrix ? move_words<true>(d, pitch) : move_words<false>(d, pitch);
  }

  // Registers 4g to 4g + 3 are columns 8g to 8g + 7 of a row and of the one 8 below: 32 bytes of each, side by side.
  template <bool kToMatrix>
  void move_words(U32* d, int pitch) {
    const Operand& list = operation_.in->op[0];
    for (int w = 0; w < 4; ++w) {
      const Warp& warp = *operation_.warps[static_cast<std::size_t>(w)];
      for (int r = 0; r < list.count; r += 2) {
        U32* even = warp.reg<U32>(list.elements[r].offset);
        U32* odd = warp.reg<U32>(list.elements[r + 1].offset);
        const math::Place place = math::wgmma_d(32 * w, r);
        U32* at = d + place.row * pitch + position_of(place.column);
        for (int i = 0; i < kLanes / 4; ++i) {
          U32* const row = at + i * pitch;
          if constexpr (kToMatrix) {
            std::memcpy(row, even + 4 * i, 16);
            std::memcpy(row + 4, odd + 4 * i, 16);
          } else {
            std::memcpy(even + 4 * i, row, 16);
            std::memcpy(odd + 4 * i, row + 4, 16);
          }
        }
      }
    }
  }

  template <bool kToMatrix>
  void move_halves(U32* d, int pitch) {
    const Operand& list = operation_.in->op[0];
    for (int w = 0; w < 4; ++w) {
      const Warp& warp = *operation_.warps[static_cast<std::size_t>(w)];
      for (int r = 0; r < list.count; ++r) {
        U32* reg = warp.reg<U32>(list.elements[r].offset);
        const math::Place place = math::wgmma_d(32 * w, 2 * r);
        U32* at = d + place.row * pitch + position_of(place.column);
        for (int lane = 0; lane < kLanes; lane += 4, at += pitch, reg += 4) {
          for (int q = 0; q < 4; ++q) {
            if constexpr (kToMatrix) {
              at[q] = reg[q] & 0xFFFF;
              at[q + 4] = reg[q] >> 16;
            } else {
              reg[q] = (at[q] & 0xFFFF) | at[q + 4] << 16;
            }
          }
        }
      }
    }
  }

  WgmmaOperation& operation_;
  Launch& launch_;
  Shape shape_;
  Warp& warp_;
  const InstructionPlace place_ = warp_.place(*operation_.in, -1);
  struct {
    math::MatrixDescriptor descriptor;
    math::Major major = math::Major::k;
    int count = 0;
    std::string hint;
  } operand_;  // in memory, the one being read
};

}  // namespace

void WgmmaOperation::complete(Launch& launch) {
  WgmmaResult& last = result->last();
  if (!last.is_used) launch.findings.capture(&last.findings);
  if (!launch.options.skips_values) Product(*this, launch).run();
  launch.findings.capture(nullptr);
  if (!last.is_used && !last.findings.empty()) {
    for (Warp* warp : warps) {
      warp->async.watches_unread = true;
      watch_unread(*warp);
    }
  }
  for (std::size_t i = 0; i < 4; ++i) {
    --groups[i]->pending;
  }
}

}  // namespace tessera::emulator
