// Tensor maps as data: the recipe that a plan stores, the resolved arguments of one launch, and the numbered rules that
// decide whether cuTensorMapEncodeTiled takes them. CUDA Driver API, "Tensor Map Object Management"; enumerators carry
// the driver's own numbers.
//
// A recipe's extents and strides are expressions over the caller's sizes; everything else is fixed when the kernel is
// compiled. Dimension 0 is the innermost (dense) one. strides_bytes[i] is the distance of two neighbours along
// dimension i + 1, so there are rank - 1 of them. The rules' verdict equals the driver's (measured: see
// docs/tensor-maps.md); a rule that only a Blackwell driver could confirm says so.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/expression.h"

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

inline constexpr int kMaxTensorMapRank = 5;

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

/// The numbered rules. The numbers are stable: messages, docs and tests name them.
enum class TensorMapRule : std::uint8_t;

/// The first broken rule, or none: no allocation, for the launch path.
TensorMapRule first_broken_rule(const ResolvedTensorMap& map) noexcept;

struct TensorMapViolation {
  TensorMapRule rule;
  std::string message;  ///< "tensor map rule 9: strides_bytes[0] = 200: must be a multiple of 16 ...; remedy"
};

/// Every broken rule, in order, each with argument, value found, bound and remedy, and the classic mistake behind it
/// where the values show one. name labels the map in the messages ("q").
std::vector<TensorMapViolation> broken_rules(const ResolvedTensorMap& map, std::string_view name);

}  // namespace tessera
