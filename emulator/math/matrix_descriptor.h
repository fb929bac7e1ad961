// Shared-memory matrix descriptors of wgmma and tcgen05: from 64 bits to the address of every element.
//
// PTX ISA, "Matrix descriptor" (wgmma) and "Shared memory descriptor" (tcgen05), "Canonical layouts". A descriptor
// names a start address, two strides (leading LBO, stride SBO) and a swizzle; what the strides mean depends on
// major-ness and swizzle:
//   K-major, none      start + (r/8)*SBO + (r%8)*16 + chunk*LBO           chunk: 16 bytes along K
//   K-major, swizzled  start + (r/8)*SBO + (r%8)*W + chunk*16             W: the swizzle's span; LBO has no effect
//   MN-major, none     start + chunk*SBO + (k/8)*LBO + (k%8)*16           chunk: 16 bytes along M or N
//   MN-major, swizzled start + (chunk*16/W)*LBO + chunk*16%W + (k/8)*SBO + (k%8)*W
//   MN-major, 128B with 32-byte atoms: as the line before, but groups of 4 k
// then the XOR on the absolute address, with the base offset subtracted from the row: (a >> 7) - base. Measured on H200
// for none, 32B, 64B, 128B: 16,224 descriptors, any 16-byte start, base offsets 0 to 7. tcgen05: document only.
#pragma once

#include <cstdint>

#include "emulator/math/swizzle.h"

namespace tessera::emulator::math {

enum class DescriptorKind : std::uint8_t { wgmma, tcgen05 };
enum class Major : std::uint8_t { k, mn };

/// Byte quantities, as decoded; the fields count 16 bytes.
struct MatrixDescriptor {
  std::uint32_t start = 0;          ///< shared address in the CTA's own window, below 256 KB
  std::uint32_t leading_bytes = 0;  ///< LBO
  std::uint32_t stride_bytes = 0;   ///< SBO
  std::uint32_t base_offset = 0;    ///< 0 to 7
  Swizzle swizzle = Swizzle::none;
  bool leading_is_address = false;  ///< tcgen05 bit 52: LBO is an absolute address (sm_103a)
};

/// What is wrong with the bits themselves; a value to report, the decoded descriptor is still usable unless `swizzle`.
enum class DescriptorIssue : std::uint8_t {
  none,
  reserved_bits,  ///< bits that must be zero are not
  version,        ///< tcgen05: bits 48..46 must be 0b001
  swizzle         ///< tcgen05: layout codes 3, 5 and 7 do not exist
};

struct DecodedDescriptor {
  MatrixDescriptor descriptor;
  DescriptorIssue issue = DescriptorIssue::none;
};
DecodedDescriptor decode_descriptor(DescriptorKind kind, std::uint64_t bits);

/// The 64 bits of a descriptor (for tests and messages); base offset and version included.
std::uint64_t encode_descriptor(DescriptorKind kind, const MatrixDescriptor& d);

/// A descriptor's map, its powers of two and masks at hand: for those who ask for many chunks.
class ChunkPattern {
 public:
  ChunkPattern(const MatrixDescriptor& d, Major major);
  std::uint32_t at(std::uint32_t index, std::uint32_t chunk, std::uint32_t k) const {
    std::uint32_t address = start_;
    if (major_ == Major::k) {
      address += (index >> 3) * stride_ + ((index & 7) << span_) + chunk * along_;
    } else {
      const std::uint32_t bytes = chunk * 16;
      address += (bytes >> span_) * along_ + (bytes & ((1u << span_) - 1));
      address += (k >> group_) * stride_ + ((k & ((1u << group_) - 1)) << span_);
    }
    return address ^ (((address >> 7) - base_offset_) & row_mask_) << row_shift_;
  }

 private:
  Major major_;
  std::uint32_t start_;
  std::uint32_t along_;   ///< bytes from chunk to chunk (K-major), from span to span (MN-major)
  std::uint32_t stride_;  ///< from group of rows to group of rows
  std::uint32_t base_offset_;
  std::uint32_t row_mask_ = 0;  ///< of the XOR
  int row_shift_ = 4;
  int span_ = 4;   ///< log2 of the swizzle's span
  int group_ = 3;  ///< log2 of the k of a group
};

/// Address of one 16-byte chunk, XOR applied. K-major: row `index`, bytes 16*chunk ... of its K extent; `k` is not
/// read. MN-major: chunk `chunk` along M or N at this `k`; `index` is not read. Not for leading_is_address.
std::uint32_t chunk_address(const MatrixDescriptor& d, Major major, std::uint32_t index, std::uint32_t chunk,
                            std::uint32_t k);

/// Address of an element's first byte. bits: 4 (packed pairs), 8 (padded 4- and 6-bit formats too), 16 or 32.
std::uint32_t element_address(const MatrixDescriptor& d, Major major, int bits, std::uint32_t index, std::uint32_t k);

/// Calls visit(address, index, k, elements) for every 16-byte chunk of a count x k operand: `elements` neighbours along
/// K (K-major) or along M or N (MN-major) from (index, k) on. What lies past count in an MN-major chunk is left out.
template <class Visit>
void for_each_chunk(const MatrixDescriptor& d, Major major, int bits, int count, int k_extent, Visit&& visit) {
  const int per_chunk = 128 / bits;
  const ChunkPattern pattern(d, major);
  if (major == Major::k) {
    for (int index = 0; index < count; ++index)
      for (int k = 0; k < k_extent; k += per_chunk)
        visit(pattern.at(static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(k / per_chunk), 0), index, k,
              per_chunk < k_extent - k ? per_chunk : k_extent - k);
  } else {
    for (int k = 0; k < k_extent; ++k)
      for (int index = 0; index < count; index += per_chunk)
        visit(pattern.at(0, static_cast<std::uint32_t>(index / per_chunk), static_cast<std::uint32_t>(k)), index, k,
              per_chunk < count - index ? per_chunk : count - index);
  }
}

}  // namespace tessera::emulator::math
