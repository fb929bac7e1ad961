#include "emulator/math/matrix_descriptor.h"

#include <utility>

namespace tessera::emulator::math {
namespace {

constexpr std::uint32_t field(std::uint64_t bits, int low, int width) {
  return static_cast<std::uint32_t>(bits >> low & ((std::uint64_t{1} << width) - 1));
}

// Codes in bits 63..61 (tcgen05). wgmma's two-bit codes in 63..62 are the even ones of these.
constexpr Swizzle kLayouts[8] = {Swizzle::none, Swizzle::b128_atom_32b, Swizzle::b128, Swizzle::none,
                                 Swizzle::b64,  Swizzle::none,          Swizzle::b32,  Swizzle::none};

constexpr std::uint64_t mask(int low, int width) { return ((std::uint64_t{1} << width) - 1) << low; }
constexpr std::uint64_t kCommonZero = mask(14, 2) | mask(30, 2);
constexpr std::uint64_t kWgmmaZero = kCommonZero | mask(46, 3) | mask(52, 10);
constexpr std::uint64_t kTcgen05Zero = kCommonZero | mask(53, 8);

}  // namespace

DecodedDescriptor decode_descriptor(DescriptorKind kind, std::uint64_t bits) {
  DecodedDescriptor out;
  MatrixDescriptor& d = out.descriptor;
  d.start = field(bits, 0, 14) << 4;
  d.leading_bytes = field(bits, 16, 14) << 4;
  d.stride_bytes = field(bits, 32, 14) << 4;
  d.base_offset = field(bits, 49, 3);
  if (kind == DescriptorKind::wgmma) {
    d.swizzle = kLayouts[field(bits, 62, 2) * 2];
    if ((bits & kWgmmaZero) != 0) out.issue = DescriptorIssue::reserved_bits;
    return out;
  }
  const std::uint32_t layout = field(bits, 61, 3);
  d.swizzle = kLayouts[layout];
  d.leading_is_address = field(bits, 52, 1) != 0;
  if ((bits & kTcgen05Zero) != 0) out.issue = DescriptorIssue::reserved_bits;
  if (field(bits, 46, 3) != 1) out.issue = DescriptorIssue::version;
  if (layout == 3 || layout == 5 || layout == 7) out.issue = DescriptorIssue::swizzle;
  return out;
}

std::uint64_t encode_descriptor(DescriptorKind kind, const MatrixDescriptor& d) {
  std::uint64_t layout = 0;
  for (std::uint64_t code = 1; code < 7; ++code)
    if (kLayouts[code] == d.swizzle && d.swizzle != Swizzle::none) layout = code;
  const auto units = [](std::uint32_t bytes) { return std::uint64_t{(bytes & 0x3FFFF) >> 4}; };
  std::uint64_t bits = units(d.start) | units(d.leading_bytes) << 16 | units(d.stride_bytes) << 32 | layout << 61 |
                       std::uint64_t{d.base_offset & 7} << 49;
  if (kind == DescriptorKind::tcgen05) bits |= std::uint64_t{1} << 46 | std::uint64_t{d.leading_is_address} << 52;
  return bits;
}

ChunkPattern::ChunkPattern(const MatrixDescriptor& d, Major major)
    : major_(major),
      start_(d.start),
      along_(d.swizzle == Swizzle::none || major == Major::mn ? d.leading_bytes : 16),
      stride_(d.stride_bytes),
      base_offset_(d.base_offset) {
  if (d.swizzle == Swizzle::none && major == Major::mn) std::swap(along_, stride_);
  switch (d.swizzle) {
    case Swizzle::b32:
      span_ = 5;
      row_mask_ = 1;
      break;
    case Swizzle::b64:
      span_ = 6;
      row_mask_ = 3;
      break;
    case Swizzle::b128:
      span_ = 7;
      row_mask_ = 7;
      break;
    case Swizzle::b128_atom_32b:
      span_ = 7;
      row_mask_ = 3;
      row_shift_ = 5;
      group_ = 2;
      break;
    default:
      break;
  }
}

std::uint32_t chunk_address(const MatrixDescriptor& d, Major major, std::uint32_t index, std::uint32_t chunk,
                            std::uint32_t k) {
  return ChunkPattern(d, major).at(index, chunk, k);
}

std::uint32_t element_address(const MatrixDescriptor& d, Major major, int bits, std::uint32_t index, std::uint32_t k) {
  const auto per_chunk = static_cast<std::uint32_t>(128 / bits);
  const std::uint32_t along = major == Major::k ? k : index;
  const std::uint32_t inside = along % per_chunk * static_cast<std::uint32_t>(bits) / 8;
  return chunk_address(d, major, index, along / per_chunk, k) + inside;
}

}  // namespace tessera::emulator::math
