// Names of the tensor-map arguments, and the rules. Every rule is one predicate; first_broken_rule asks them in the
// order of their numbers. Order matters only in that a later rule may rely on an earlier one (rank before the loops,
// box and element strides before the footprint), never for the verdict.
#include "tessera/tensor_map.h"

namespace tessera {
namespace {

struct TypeRow {
  std::string_view name;
  int bytes;
  int smem_bits;
  bool is_floating;
};
constexpr std::array<TypeRow, 16> kElementTypes{{{"u8", 1, 8, false},
                                                 {"u16", 2, 16, false},
                                                 {"u32", 4, 32, false},
                                                 {"s32", 4, 32, false},
                                                 {"u64", 8, 64, false},
                                                 {"s64", 8, 64, false},
                                                 {"f16", 2, 16, true},
                                                 {"f32", 4, 32, true},
                                                 {"f64", 8, 64, true},
                                                 {"bf16", 2, 16, true},
                                                 {"f32_ftz", 4, 32, true},
                                                 {"tf32", 4, 32, true},
                                                 {"tf32_ftz", 4, 32, true},
                                                 {"u4x16_align8b", 0, 4, false},
                                                 {"u4x16_align16b", 0, 8, false},
                                                 {"u6x16_align16b", 0, 8, false}}};
constexpr std::array<std::string_view, 3> kInterleaves{"none", "16B", "32B"};
constexpr std::array<std::string_view, 7> kSwizzles{
    "none", "32B", "64B", "128B", "128B_atom_32B", "128B_atom_32B_flip_8B", "128B_atom_64B"};
constexpr std::array<std::string_view, 4> kL2Promotions{"none", "64B", "128B", "256B"};
constexpr std::array<std::string_view, 2> kFills{"zero", "nan"};
constexpr std::array<std::string_view, kNumTensorMapRules + 1> kRules{"none",
                                                                      "type",
                                                                      "type_packed",
                                                                      "rank",
                                                                      "interleave",
                                                                      "interleave_rank",
                                                                      "swizzle",
                                                                      "swizzle_atom",
                                                                      "l2_promotion",
                                                                      "fill",
                                                                      "fill_type",
                                                                      "address_alignment",
                                                                      "address_range",
                                                                      "dim",
                                                                      "stride",
                                                                      "box",
                                                                      "element_stride",
                                                                      "box_bytes",
                                                                      "swizzle_span",
                                                                      "footprint",
                                                                      "count",
                                                                      "packed_dim",
                                                                      "packed_box",
                                                                      "packed_swizzle",
                                                                      "packed_interleave"};

template <class E>
constexpr std::size_t index(E value) noexcept {
  return static_cast<std::size_t>(value);
}

// Inlined copies of the public functions below: calls out of a shared library are not.
bool packed(TensorMapType type) noexcept {
  return type >= TensorMapType::u4x16_align8b && type <= TensorMapType::u6x16_align16b;
}
int swizzle_span(TensorMapSwizzle swizzle) noexcept {
  if (swizzle == TensorMapSwizzle::none) return 0;
  return swizzle == TensorMapSwizzle::b32 ? 32 : swizzle == TensorMapSwizzle::b64 ? 64 : 128;
}
int alignment(TensorMapType type, TensorMapInterleave interleave) noexcept {
  return interleave == TensorMapInterleave::b32 || (packed(type) && type != TensorMapType::u4x16_align8b) ? 32 : 16;
}
std::uint64_t footprint_bits(const ResolvedTensorMap& map, std::uint64_t element_bits) noexcept {
  std::uint64_t bits = element_bits;
  for (std::uint32_t i = 0; i < map.rank; ++i)
    bits *= map.element_strides[i] == 1 ? map.box[i] : map.box[i] / map.element_strides[i];
  return bits;
}

template <class E, std::size_t N>
std::string_view name_of(const std::array<std::string_view, N>& names, E value) noexcept {
  return index(value) < N ? names[index(value)] : "?";
}

template <class E, std::size_t N>
bool find_name(const std::array<std::string_view, N>& names, std::string_view text, E& out) noexcept {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] != text) continue;
    out = static_cast<E>(i);
    return true;
  }
  return false;
}

}  // namespace

std::string_view to_string(TensorMapType v) noexcept {
  return index(v) < kElementTypes.size() ? kElementTypes[index(v)].name : "?";
}
std::string_view to_string(TensorMapInterleave v) noexcept { return name_of(kInterleaves, v); }
std::string_view to_string(TensorMapSwizzle v) noexcept { return name_of(kSwizzles, v); }
std::string_view to_string(TensorMapL2Promotion v) noexcept { return name_of(kL2Promotions, v); }
std::string_view to_string(TensorMapFill v) noexcept { return name_of(kFills, v); }
std::string_view to_string(TensorMapRule rule) noexcept { return name_of(kRules, rule); }

bool from_string(std::string_view text, TensorMapType& out) noexcept {
  for (std::size_t i = 0; i < kElementTypes.size(); ++i) {
    if (kElementTypes[i].name != text) continue;
    out = static_cast<TensorMapType>(i);
    return true;
  }
  return false;
}
bool from_string(std::string_view text, TensorMapInterleave& out) noexcept {
  return find_name(kInterleaves, text, out);
}
bool from_string(std::string_view text, TensorMapSwizzle& out) noexcept { return find_name(kSwizzles, text, out); }
bool from_string(std::string_view text, TensorMapL2Promotion& out) noexcept {
  return find_name(kL2Promotions, text, out);
}
bool from_string(std::string_view text, TensorMapFill& out) noexcept { return find_name(kFills, text, out); }

int element_bytes(TensorMapType type) noexcept {
  return index(type) < kElementTypes.size() ? kElementTypes[index(type)].bytes : 0;
}
int smem_element_bits(TensorMapType type) noexcept {
  return index(type) < kElementTypes.size() ? kElementTypes[index(type)].smem_bits : 0;
}
bool is_packed(TensorMapType type) noexcept { return packed(type); }
int swizzle_span_bytes(TensorMapSwizzle swizzle) noexcept { return swizzle_span(swizzle); }
int tensor_map_alignment(TensorMapType type, TensorMapInterleave interleave) noexcept {
  return alignment(type, interleave);
}
std::uint64_t inner_box_bits(const ResolvedTensorMap& map) noexcept {
  return std::uint64_t{map.box[0]} * static_cast<std::uint64_t>(smem_element_bits(map.type));
}
std::uint64_t footprint_bytes(const ResolvedTensorMap& map) noexcept {
  return footprint_bits(map, static_cast<std::uint64_t>(smem_element_bits(map.type))) / 8;
}

bool packed_type_takes(TensorMapType type, TensorMapSwizzle swizzle) noexcept {
  return swizzle == TensorMapSwizzle::none || swizzle == TensorMapSwizzle::b128 ||
         swizzle == TensorMapSwizzle::b128_atom_32b ||
         (swizzle == TensorMapSwizzle::b128_atom_64b && type == TensorMapType::u6x16_align16b);
}

namespace {

// Rules 1 to 10: what needs no loop.
TensorMapRule broken_choice(const ResolvedTensorMap& map, TensorMapTarget target) noexcept {
  using Rule = TensorMapRule;
  const bool is_blackwell = target.compute_major >= 10;
  if (index(map.type) >= kElementTypes.size()) return Rule::type;
  if (!is_blackwell && packed(map.type)) return Rule::type_packed;
  if (map.rank < 1 || map.rank > kMaxTensorMapRank) return Rule::rank;
  if (index(map.interleave) >= kInterleaves.size()) return Rule::interleave;
  if (map.interleave != TensorMapInterleave::none && map.rank < 3) return Rule::interleave_rank;
  if (index(map.swizzle) >= kSwizzles.size()) return Rule::swizzle;
  if (!is_blackwell && map.swizzle > TensorMapSwizzle::b128) return Rule::swizzle_atom;
  if (index(map.l2_promotion) >= kL2Promotions.size()) return Rule::l2_promotion;
  if (index(map.fill) >= kFills.size()) return Rule::fill;
  if (map.fill != TensorMapFill::zero && !kElementTypes[index(map.type)].is_floating) return Rule::fill_type;
  return Rule::none;
}

// Rules 11 to 16: each number by itself.
TensorMapRule broken_number(const ResolvedTensorMap& map) noexcept {
  using Rule = TensorMapRule;
  const std::uint64_t below = static_cast<std::uint64_t>(alignment(map.type, map.interleave)) - 1;
  if ((map.address & below) != 0) return Rule::address_alignment;
  if (map.address >= kTensorMapAddressEnd) return Rule::address_range;
  for (std::uint32_t i = 0; i < map.rank; ++i)
    if (map.dims[i] - 1 >= kMaxTensorMapDim) return Rule::dim;
  for (std::uint32_t i = 0; i + 1 < map.rank; ++i)
    if ((map.strides_bytes[i] & below) != 0 || map.strides_bytes[i] >= kTensorMapStrideEnd) return Rule::stride;
  for (std::uint32_t i = 0; i < map.rank; ++i)
    if (map.box[i] - 1 >= kMaxTensorMapBox) return Rule::box;
  for (std::uint32_t i = 0; i < map.rank; ++i)
    if (map.element_strides[i] - 1 >= kMaxTensorMapElementStride) return Rule::element_stride;
  return Rule::none;
}

// Rules 21 to 24.
TensorMapRule broken_packed(const ResolvedTensorMap& map) noexcept {
  using Rule = TensorMapRule;
  const bool is_padded = map.type != TensorMapType::u4x16_align8b;
  if (map.dims[0] % (is_padded ? 128 : 2) != 0) return Rule::packed_dim;
  if (is_padded && map.box[0] != 128) return Rule::packed_box;
  if (is_padded && !packed_type_takes(map.type, map.swizzle)) return Rule::packed_swizzle;
  if (map.type == TensorMapType::u6x16_align16b && map.interleave != TensorMapInterleave::none)
    return Rule::packed_interleave;
  return Rule::none;
}

}  // namespace

TensorMapRule first_broken_rule(const ResolvedTensorMap& map, TensorMapTarget target) noexcept {
  using Rule = TensorMapRule;
  if (const Rule rule = broken_choice(map, target); rule != Rule::none) return rule;
  if (const Rule rule = broken_number(map); rule != Rule::none) return rule;
  const std::uint64_t element_bits = static_cast<std::uint64_t>(kElementTypes[index(map.type)].smem_bits);
  const std::uint64_t inner_bits = map.box[0] * element_bits;
  if (inner_bits % 128 != 0) return Rule::box_bytes;
  if (map.interleave == TensorMapInterleave::none && map.swizzle != TensorMapSwizzle::none &&
      inner_bits > 8 * static_cast<std::uint64_t>(swizzle_span(map.swizzle)))
    return Rule::swizzle_span;
  if (footprint_bits(map, element_bits) / 8 > kMaxTensorMapFootprint) return Rule::footprint;
  return packed(map.type) ? broken_packed(map) : Rule::none;
}

}  // namespace tessera
