// Tensor maps as data: the recipe that a plan stores, the resolved arguments of one launch, and the numbered rules that
// decide whether cuTensorMapEncodeTiled takes them. CUDA Driver API, "Tensor Map Object Management"; enumerators carry
// the driver's own numbers.
//
// A recipe's extents and strides are expressions over the caller's sizes; everything else is fixed when the kernel is
// compiled. Dimension 0 is the innermost (dense) one. strides_bytes[i] is the distance of two neighbours along
// dimension i + 1, so there are rank - 1 of them. The rules' verdict equals the driver's (measured: see
// docs/tensor-maps.md); a rule that only a Blackwell driver could confirm says so. What no rule catches because it goes
// wrong only at run time stands in tensor_map_copy.h; tensor_map_resolve.h turns a recipe and sizes into arguments.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/expression.h"

namespace tessera {

enum class TensorMapType : std::uint8_t {
  u8 = 0,
  u16 = 1,
  u32 = 2,
  s32 = 3,
  u64 = 4,
  s64 = 5,
  f16 = 6,
  f32 = 7,
  f64 = 8,
  bf16 = 9,
  f32_ftz = 10,
  tf32 = 11,
  tf32_ftz = 12,
  u4x16_align8b = 13,
  u4x16_align16b = 14,
  u6x16_align16b = 15
};
enum class TensorMapInterleave : std::uint8_t { none = 0, b16 = 1, b32 = 2 };
enum class TensorMapSwizzle : std::uint8_t {
  none = 0,
  b32 = 1,
  b64 = 2,
  b128 = 3,
  b128_atom_32b = 4,
  b128_atom_32b_flip_8b = 5,
  b128_atom_64b = 6
};
enum class TensorMapL2Promotion : std::uint8_t { none = 0, l2_64b = 1, l2_128b = 2, l2_256b = 3 };
enum class TensorMapFill : std::uint8_t { zero = 0, nan_request_zero_fma = 1 };

/// The spelling used by flags, JSON and messages ("bf16", "128B", "none", ...), and back (false when there is no such
/// spelling).
std::string_view to_string(TensorMapType v) noexcept;
std::string_view to_string(TensorMapInterleave v) noexcept;
std::string_view to_string(TensorMapSwizzle v) noexcept;
std::string_view to_string(TensorMapL2Promotion v) noexcept;
std::string_view to_string(TensorMapFill v) noexcept;
bool from_string(std::string_view text, TensorMapType& out) noexcept;
bool from_string(std::string_view text, TensorMapInterleave& out) noexcept;
bool from_string(std::string_view text, TensorMapSwizzle& out) noexcept;
bool from_string(std::string_view text, TensorMapL2Promotion& out) noexcept;
bool from_string(std::string_view text, TensorMapFill& out) noexcept;

/// Bytes of one element in global memory; 0 for the packed 4- and 6-bit types, whose element is a fraction of a byte.
int element_bytes(TensorMapType type) noexcept;
/// Bits of one element in shared memory: 8 * element_bytes; 4 for u4x16_align8b; 8 for the types that are padded there
/// (16 elements in 16 bytes).
int smem_element_bits(TensorMapType type) noexcept;
bool is_packed(TensorMapType type) noexcept;
/// Bytes that a row of the swizzle pattern spans: 32, 64 or 128; 0 without swizzle.
int swizzle_span_bytes(TensorMapSwizzle swizzle) noexcept;

inline constexpr int kMaxTensorMapRank = 5;
inline constexpr std::uint64_t kMaxTensorMapDim = 1ull << 32;
inline constexpr std::uint64_t kTensorMapStrideEnd = 1ull << 40;
inline constexpr std::uint64_t kTensorMapAddressEnd = 1ull << 57;
inline constexpr std::uint32_t kMaxTensorMapBox = 256;
inline constexpr std::uint32_t kMaxTensorMapElementStride = 8;
inline constexpr std::uint64_t kMaxTensorMapFootprint = 233472;  ///< 228 KB, the shared memory of an SM

/// How a launch makes one tensor map. Part of a plan.
struct TensorMapRecipe {
  std::string name;    ///< the entry parameter that receives it
  std::string buffer;  ///< the caller's buffer that it describes
  TensorMapType type = TensorMapType::bf16;
  std::vector<Expression> dims;                ///< rank entries, innermost first, elements
  std::vector<Expression> strides_bytes;       ///< rank - 1 entries, bytes
  std::vector<std::uint32_t> box;              ///< rank entries, elements
  std::vector<std::uint32_t> element_strides;  ///< rank entries, normally 1
  TensorMapInterleave interleave = TensorMapInterleave::none;
  TensorMapSwizzle swizzle = TensorMapSwizzle::none;
  TensorMapL2Promotion l2_promotion = TensorMapL2Promotion::l2_256b;
  TensorMapFill fill = TensorMapFill::zero;
};

/// The arguments of one cuTensorMapEncodeTiled call. Entries past the rank are not read.
struct ResolvedTensorMap {
  TensorMapType type = TensorMapType::bf16;
  std::uint32_t rank = 0;
  std::uint64_t address = 0;
  std::array<std::uint64_t, 5> dims{};
  std::array<std::uint64_t, 5> strides_bytes{};
  std::array<std::uint32_t, 5> box{};
  std::array<std::uint32_t, 5> element_strides{1, 1, 1, 1, 1};
  TensorMapInterleave interleave = TensorMapInterleave::none;
  TensorMapSwizzle swizzle = TensorMapSwizzle::none;
  TensorMapL2Promotion l2_promotion = TensorMapL2Promotion::none;
  TensorMapFill fill = TensorMapFill::zero;
};

/// The 128 bytes that a kernel receives; what is in them belongs to the device that encoded them.
struct alignas(128) TensorMapObject {
  std::array<std::byte, 128> bytes;
};

/// What the address and the strides must be a multiple of: 16, or 32 with interleave 32B and for the packed types that
/// are padded in shared memory.
int tensor_map_alignment(TensorMapType type, TensorMapInterleave interleave) noexcept;
/// Bits of the inner row of the box in shared memory.
std::uint64_t inner_box_bits(const ResolvedTensorMap& map) noexcept;
/// What rule 19 bounds: floor(box / element stride) elements in each dimension. Needs rules 1, 3, 15 and 16.
std::uint64_t footprint_bytes(const ResolvedTensorMap& map) noexcept;
/// What rule 23 asks of a padded packed type.
bool packed_type_takes(TensorMapType type, TensorMapSwizzle swizzle) noexcept;

/// What the map is encoded for. Verdicts for compute capability 9 were compared with a driver; those for 10 and above
/// follow the driver's documentation and are marked "not verified by a driver" in every message.
struct TensorMapTarget {
  int compute_major = 9;
  bool is_verified() const noexcept { return compute_major == 9; }
};

/// The numbered rules. The numbers are stable: messages, docs/tensor-maps.md and tests name them.
enum class TensorMapRule : std::uint8_t {
  none = 0,
  type = 1,                ///< type is one of the 16
  type_packed = 2,         ///< the 4- and 6-bit types need compute capability 10
  rank = 3,                ///< 1 to 5
  interleave = 4,          ///< interleave is one of the 3
  interleave_rank = 5,     ///< an interleaved map has rank 3 to 5
  swizzle = 6,             ///< swizzle is one of the 7
  swizzle_atom = 7,        ///< the atom swizzles need compute capability 10
  l2_promotion = 8,        ///< l2_promotion is one of the 4
  fill = 9,                ///< fill is one of the 2
  fill_type = 10,          ///< NaN fill needs a floating-point type
  address_alignment = 11,  ///< multiple of 16, or of 32 (interleave 32B, 16-byte-aligned packed types)
  address_range = 12,      ///< below 2^57
  dim = 13,                ///< 1 to 2^32
  stride = 14,             ///< multiple of 16 (or 32, as for the address), below 2^40
  box = 15,                ///< 1 to 256
  element_stride = 16,     ///< 1 to 8, dimension 0 too
  box_bytes = 17,          ///< the inner box is a multiple of 16 bytes
  swizzle_span = 18,       ///< without interleave, the inner box fits the swizzle's span
  footprint = 19,          ///< the box (floor of box / element stride in each dimension) fits 233,472 bytes
  count = 20,              ///< rank entries in dims, box, element_strides, rank - 1 in strides_bytes; no null pointer
  packed_dim = 21,         ///< packed types: dims[0] is a multiple of 2 (8-byte-aligned) or 128
  packed_box = 22,         ///< 16-byte-aligned packed types: box[0] is 128
  packed_swizzle = 23,     ///< 16-byte-aligned packed types: only some swizzles
  packed_interleave = 24   ///< u6x16_align16b: no interleave
};
inline constexpr int kNumTensorMapRules = 24;

/// The rule's name ("stride").
std::string_view to_string(TensorMapRule rule) noexcept;

/// The first broken rule in the order of their numbers, or none: no allocation, for the launch path. (Rule 20 cannot be
/// broken here: see diagnose.)
TensorMapRule first_broken_rule(const ResolvedTensorMap& map, TensorMapTarget target = {}) noexcept;

struct TensorMapViolation {
  TensorMapRule rule = TensorMapRule::none;
  std::string
      message;  ///< "tensor map 'q': rule 14 (stride): strides_bytes[0] = 200: must be a multiple of 16 ...; remedy"
};

/// Every broken rule (and every argument that breaks it), in order, each with argument, value found, bound and remedy,
/// and the classic mistake behind it where the values show one. name labels the map in the messages ("q"). Empty
/// exactly when first_broken_rule gives none.
std::vector<TensorMapViolation> broken_rules(const ResolvedTensorMap& map, std::string_view name,
                                             TensorMapTarget target = {});

/// Arguments as a user supplies them, where the number of entries can be wrong too. The rank is dims.size().
struct TensorMapArguments {
  TensorMapType type = TensorMapType::bf16;
  std::uint64_t address = 0;
  std::vector<std::uint64_t> dims;
  std::vector<std::uint64_t> strides_bytes;
  std::vector<std::uint32_t> box;
  std::vector<std::uint32_t> element_strides;  ///< empty: all 1
  TensorMapInterleave interleave = TensorMapInterleave::none;
  TensorMapSwizzle swizzle = TensorMapSwizzle::none;
  TensorMapL2Promotion l2_promotion = TensorMapL2Promotion::none;
  TensorMapFill fill = TensorMapFill::zero;
};

/// The broken rules of a user's arguments: rule 3 or rule 20 alone where the counts do not fit, else broken_rules.
std::vector<TensorMapViolation> diagnose(const TensorMapArguments& arguments, std::string_view name,
                                         TensorMapTarget target = {});

/// Mistakes that the driver accepts where the values happen to be legal: the copy would read other elements than meant.
/// Each is a guess from the values, so it is advice and never an error.
enum class TensorMapMistake : std::uint8_t {
  none = 0,
  strides_in_elements = 1,
  outermost_first = 2,
  outermost_first_in_elements = 3
};

/// The mistake that the strides show, or none: elements as given overlap each other, and with the mistake undone they
/// do not. A stride of 0 (a broadcast) is taken as meant. No allocation.
TensorMapMistake likely_mistake(const ResolvedTensorMap& map) noexcept;
/// "tensor map 'q': strides_bytes {128}: elements overlap; ...", or empty for none.
std::string likely_mistake_message(const ResolvedTensorMap& map, std::string_view name);

}  // namespace tessera
