// The sentences of broken rules: argument, value found, bound, remedy. Which rule is broken is decided here a second
// time, rule by rule and independent of the others, so that a user sees all of them at once; a test compares the two on
// random maps.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/tensor_map_mistake.h"
#include "tessera/tensor_map.h"

namespace tessera {
namespace {

using Rule = TensorMapRule;

class Report {
 public:
  Report(std::string_view name, TensorMapTarget target) : name_(name), target_(target) {}

  // found: "strides_bytes[0] = 200"; bound: "must be ..."; remedy: what to do.
  void add(Rule rule, std::string_view found, std::string_view bound, std::string_view remedy) {
    violations_.push_back({rule, fmt::format("tensor map '{}': rule {} ({}): {}: {}; {}{}", name_,
                                             static_cast<int>(rule), to_string(rule), found, bound, remedy,
                                             target_.is_verified() ? "" : " (not verified by a driver)")});
  }
  TensorMapTarget target() const { return target_; }
  std::vector<TensorMapViolation>& violations() { return violations_; }

 private:
  std::string_view name_;
  TensorMapTarget target_;
  std::vector<TensorMapViolation> violations_;
};

template <class E>
int number(E value) {
  return static_cast<int>(value);
}

bool is_floating(TensorMapType type) { return type >= TensorMapType::f16 && type <= TensorMapType::tf32_ftz; }

void report_type(const ResolvedTensorMap& map, Report& report) {
  if (map.type > TensorMapType::u6x16_align16b) {
    report.add(Rule::type, fmt::format("type = {}", number(map.type)), "must be 0 to 15 (CUtensorMapDataType)",
               "name the type of the tensor's elements, such as bf16");
    return;
  }
  if (is_packed(map.type) && report.target().compute_major < 10) {
    const bool is_six = map.type == TensorMapType::u6x16_align16b;
    report.add(
        Rule::type_packed, fmt::format("type = {}", to_string(map.type)),
        fmt::format("packed 4- and 6-bit types need compute capability 10, this is {}", report.target().compute_major),
        fmt::format("copy the packed bytes as u8, {}, and unpack them in the kernel",
                    is_six ? "3 of them for 4 values" : "1 of them for 2 values"));
  }
  if (map.fill == TensorMapFill::nan_request_zero_fma && !is_floating(map.type))
    report.add(Rule::fill_type, "fill = nan",
               fmt::format("must be zero for {}: only floating-point types have a NaN", to_string(map.type)),
               "use fill zero");
}

void report_choices(const ResolvedTensorMap& map, Report& report) {
  if (map.rank < 1 || map.rank > kMaxTensorMapRank)
    report.add(Rule::rank, fmt::format("rank = {}", map.rank), "must be 1 to 5",
               map.rank < 1 ? "give at least one dimension" : "merge dimensions that are dense in one another");
  if (map.interleave > TensorMapInterleave::b32)
    report.add(Rule::interleave, fmt::format("interleave = {}", number(map.interleave)), "must be 0 to 2",
               "use none, or 16B or 32B for a tensor stored as NC/8HWC8 or NC/16HWC16");
  else if (map.interleave != TensorMapInterleave::none && map.rank < 3)
    report.add(Rule::interleave_rank, fmt::format("rank = {}", map.rank),
               fmt::format("must be 3 to 5 with interleave {}", to_string(map.interleave)), "use interleave none");
  if (map.swizzle > TensorMapSwizzle::b128_atom_64b)
    report.add(Rule::swizzle, fmt::format("swizzle = {}", number(map.swizzle)), "must be 0 to 6",
               "use none, 32B, 64B or 128B");
  else if (map.swizzle > TensorMapSwizzle::b128 && report.target().compute_major < 10)
    report.add(Rule::swizzle_atom, fmt::format("swizzle = {}", to_string(map.swizzle)),
               fmt::format("the atom swizzles need compute capability 10, this is {}", report.target().compute_major),
               "use 128B");
  if (map.l2_promotion > TensorMapL2Promotion::l2_256b)
    report.add(Rule::l2_promotion, fmt::format("l2_promotion = {}", number(map.l2_promotion)), "must be 0 to 3",
               "use none, 64B, 128B or 256B");
  if (map.fill > TensorMapFill::nan_request_zero_fma)
    report.add(Rule::fill, fmt::format("fill = {}", number(map.fill)), "must be 0 or 1", "use zero or nan");
}

// Why the alignment is 32 where it is.
std::string alignment_reason(const ResolvedTensorMap& map, std::uint64_t alignment) {
  if (alignment == 16) return "";
  if (map.interleave == TensorMapInterleave::b32) return " with interleave 32B";
  return fmt::format(" for {}", to_string(map.type));
}

void report_address(const ResolvedTensorMap& map, std::uint64_t alignment, Report& report) {
  const std::string found = fmt::format("address = {:#x}", map.address);
  if (map.address % alignment != 0)
    report.add(Rule::address_alignment, found,
               fmt::format("must be a multiple of {}{}", alignment, alignment_reason(map, alignment)),
               fmt::format("it is {} bytes past one: start the tensor at an aligned element, or copy it to an aligned "
                           "buffer",
                           map.address % alignment));
  if (map.address >= kTensorMapAddressEnd)
    report.add(Rule::address_range, found, "must be below 2^57", "this is no address of device memory");
}

void report_dims(const ResolvedTensorMap& map, Report& report) {
  for (std::uint32_t i = 0; i < map.rank; ++i) {
    const std::string found = fmt::format("dims[{}] = {}", i, map.dims[i]);
    if (map.dims[i] == 0)
      report.add(Rule::dim, found, "must be 1 to 2^32", "an empty tensor has no tensor map: leave out its copies");
    if (map.dims[i] > kMaxTensorMapDim)
      report.add(Rule::dim, found, "must be 1 to 2^32", "split the dimension into two");
  }
}

void report_strides(const ResolvedTensorMap& map, std::uint64_t alignment, Report& report) {
  for (std::uint32_t i = 0; i + 1 < map.rank; ++i) {
    const std::uint64_t stride = map.strides_bytes[i];
    const std::string bound =
        fmt::format("must be a multiple of {}{} and below 2^40", alignment, alignment_reason(map, alignment));
    const std::string found = fmt::format("strides_bytes[{}] = {}", i, stride);
    if (stride >= kTensorMapStrideEnd) {
      report.add(Rule::stride, found, bound, "make a map for each part of the tensor");
    } else if (stride % alignment != 0) {
      const std::uint64_t padded = (stride / alignment + 1) * alignment;
      const std::uint64_t bytes = static_cast<std::uint64_t>(element_bytes(map.type));
      const std::string elements = bytes > 0 && padded % bytes == 0
                                       ? fmt::format(", {} elements of {}", padded / bytes, to_string(map.type))
                                       : "";
      report.add(Rule::stride, found, bound, fmt::format("pad to {} bytes{}", padded, elements));
    }
  }
}

void report_boxes(const ResolvedTensorMap& map, Report& report) {
  for (std::uint32_t i = 0; i < map.rank; ++i) {
    const std::string found = fmt::format("box[{}] = {}", i, map.box[i]);
    if (map.box[i] == 0) report.add(Rule::box, found, "must be 1 to 256", "use 1 for a dimension that is not tiled");
    if (map.box[i] <= kMaxTensorMapBox) continue;
    if (map.box[i] == map.dims[i])
      report.add(Rule::box, found, "must be 1 to 256",
                 fmt::format("this covers the whole dimension (dims[{}] = {}), but the box is the tile of one copy: "
                             "take tiles of at most 256 and give each copy its coordinate",
                             i, map.dims[i]));
    else
      report.add(Rule::box, found, "must be 1 to 256", "take more than one copy for a tile");
  }
  for (std::uint32_t i = 0; i < map.rank; ++i)
    if (map.element_strides[i] == 0 || map.element_strides[i] > kMaxTensorMapElementStride)
      report.add(Rule::element_stride, fmt::format("element_strides[{}] = {}", i, map.element_strides[i]),
                 i == 0 ? "must be 1 to 8, although copies ignore it in dimension 0" : "must be 1 to 8",
                 "use 1 to take every element");
}

std::string inner_box(const ResolvedTensorMap& map) {
  const std::uint64_t bits = inner_box_bits(map);
  return fmt::format("box[0] = {} of {}, {}{} bytes", map.box[0], to_string(map.type), bits / 8,
                     bits % 8 != 0 ? ".5" : "");
}

void report_box_bytes(const ResolvedTensorMap& map, Report& report) {
  const std::uint64_t element_bits = static_cast<std::uint64_t>(smem_element_bits(map.type));
  const std::uint64_t bits = inner_box_bits(map);
  if (bits % 128 != 0) {
    const std::uint64_t unit = 128 / element_bits;  // elements in 16 bytes
    const std::uint64_t below = map.box[0] / unit * unit;
    const std::string choice = below == 0 || below + unit > kMaxTensorMapBox
                                   ? fmt::format("{}", below == 0 ? unit : below)
                                   : fmt::format("{} or {}", below, below + unit);
    report.add(
        Rule::box_bytes, inner_box(map), "must be a multiple of 16 bytes",
        fmt::format("use {} elements; what lies outside the tensor is filled on loads and dropped on stores", choice));
  }
  const std::uint64_t span = static_cast<std::uint64_t>(swizzle_span_bytes(map.swizzle));
  if (map.interleave == TensorMapInterleave::none && span > 0 && bits > 8 * span)
    report.add(Rule::swizzle_span, inner_box(map),
               fmt::format("must fit the {}-byte span of swizzle {}", span, to_string(map.swizzle)),
               fmt::format("use box[0] = {} and a copy for each {} elements", 8 * span / element_bits,
                           8 * span / element_bits));
}

void report_footprint(const ResolvedTensorMap& map, Report& report) {
  const std::uint64_t bytes = footprint_bytes(map);
  if (bytes <= kMaxTensorMapFootprint) return;
  bool is_whole = true;
  for (std::uint32_t i = 0; i < map.rank; ++i) is_whole = is_whole && map.box[i] == map.dims[i];
  report.add(
      Rule::footprint, fmt::format("box {} of {}, {} bytes", braced(map.box, map.rank), to_string(map.type), bytes),
      "must be at most 233472 bytes",
      is_whole ? "this covers the whole tensor, but the box is the tile of one copy: take smaller tiles and give "
                 "each copy its coordinates"
               : "take more than one copy for a tile");
}

void report_packed(const ResolvedTensorMap& map, Report& report) {
  const bool is_padded = map.type != TensorMapType::u4x16_align8b;
  const std::string_view type = to_string(map.type);
  const int unit = is_padded ? 128 : 2;
  if (map.dims[0] % static_cast<std::uint64_t>(unit) != 0)
    report.add(Rule::packed_dim, fmt::format("dims[0] = {}", map.dims[0]),
               fmt::format("must be a multiple of {} for {}", unit, type),
               "count single values, not bytes, and pad the tensor");
  if (!is_padded) return;
  if (map.box[0] != 128)
    report.add(Rule::packed_box, fmt::format("box[0] = {}", map.box[0]), fmt::format("must be 128 for {}", type),
               "count single values, not bytes");
  if (!packed_type_takes(map.type, map.swizzle) && map.swizzle <= TensorMapSwizzle::b128_atom_64b)
    report.add(Rule::packed_swizzle, fmt::format("swizzle = {}", to_string(map.swizzle)),
               fmt::format("must be none, 128B{} 128B_atom_32B{} for {}",
                           map.type == TensorMapType::u6x16_align16b ? "," : " or",
                           map.type == TensorMapType::u6x16_align16b ? " or 128B_atom_64B" : "", type),
               "use 128B");
  if (map.type == TensorMapType::u6x16_align16b && map.interleave != TensorMapInterleave::none)
    report.add(Rule::packed_interleave, fmt::format("interleave = {}", number(map.interleave)),
               fmt::format("must be none for {}", type), "use interleave none");
}

// Says what the numbers look like, once, at the first violation that a mistake in dims or strides explains.
void add_suspicion(const ResolvedTensorMap& map, std::vector<TensorMapViolation>& violations) {
  const TensorMapMistake mistake = suspected_mistake(map);
  if (mistake == TensorMapMistake::none) return;
  for (TensorMapViolation& violation : violations) {
    if (violation.rule < Rule::dim || violation.rule > Rule::footprint) continue;
    violation.message += "; " + mistake_sentence(map, mistake);
    return;
  }
}

}  // namespace

std::vector<TensorMapViolation> broken_rules(const ResolvedTensorMap& map, std::string_view name,
                                             TensorMapTarget target) {
  Report report(name, target);
  report_type(map, report);
  report_choices(map, report);
  std::stable_sort(report.violations().begin(), report.violations().end(),
                   [](const auto& a, const auto& b) { return a.rule < b.rule; });
  const std::uint64_t alignment = static_cast<std::uint64_t>(tensor_map_alignment(map.type, map.interleave));
  report_address(map, alignment, report);
  if (map.rank >= 1 && map.rank <= kMaxTensorMapRank) {
    report_dims(map, report);
    report_strides(map, alignment, report);
    const std::size_t before = report.violations().size();
    report_boxes(map, report);
    if (map.type <= TensorMapType::u6x16_align16b) {
      const bool has_footprint = report.violations().size() == before;
      report_box_bytes(map, report);
      if (has_footprint) report_footprint(map, report);
      if (is_packed(map.type) && target.compute_major >= 10) report_packed(map, report);
    }
    add_suspicion(map, report.violations());
  }
  return std::move(report.violations());
}

namespace {

std::string expected_count(std::string_view array, std::size_t found, std::size_t needed, std::string_view formula) {
  return fmt::format("{} has {} {}: must have {} = {}", array, found, found == 1 ? "entry" : "entries", formula,
                     needed);
}

// rank strides for rank dimensions: which one is the innermost, and what unit do they have?
std::string surplus_stride(const TensorMapArguments& a) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(element_bytes(a.type));
  const std::uint64_t first = a.strides_bytes.front();
  const std::uint64_t last = a.strides_bytes.back();
  if (first == bytes) return fmt::format("leave out strides_bytes[0] = {}, the element size", first);
  if (first == 1) return "leave out strides_bytes[0] = 1 and give the others in bytes: they look like elements";
  if (last == bytes || last == 1)
    return fmt::format(
        "the last one, {}, is that of the innermost dimension: list dims, strides and box innermost "
        "first, and leave it out{}",
        last, last == bytes ? "" : "; give the others in bytes: they look like elements");
  return "leave out the innermost dimension's";
}

}  // namespace

std::vector<TensorMapViolation> diagnose(const TensorMapArguments& a, std::string_view name, TensorMapTarget target) {
  Report report(name, target);
  const std::size_t rank = a.dims.size();
  ResolvedTensorMap map;
  map.rank = static_cast<std::uint32_t>(rank);
  if (rank < 1 || rank > kMaxTensorMapRank) {
    report_choices(map, report);
    return std::move(report.violations());
  }
  if (a.strides_bytes.size() == rank)
    report.add(Rule::count, expected_count("strides_bytes", rank, rank - 1, "rank - 1"),
               "dimension 0 is dense and has no stride", surplus_stride(a));
  else if (a.strides_bytes.size() != rank - 1)
    report.add(Rule::count, expected_count("strides_bytes", a.strides_bytes.size(), rank - 1, "rank - 1"),
               "one for each dimension but the innermost", "give them innermost first, in bytes");
  if (a.box.size() != rank)
    report.add(Rule::count, expected_count("box", a.box.size(), rank, "rank"), "one for each dimension",
               "use 1 for a dimension that is not tiled");
  if (!a.element_strides.empty() && a.element_strides.size() != rank)
    report.add(Rule::count, expected_count("element_strides", a.element_strides.size(), rank, "rank"),
               "one for each dimension", "use 1 to take every element");
  if (!report.violations().empty()) return std::move(report.violations());
  map.type = a.type;
  map.address = a.address;
  std::copy(a.dims.begin(), a.dims.end(), map.dims.begin());
  std::copy(a.strides_bytes.begin(), a.strides_bytes.end(), map.strides_bytes.begin());
  std::copy(a.box.begin(), a.box.end(), map.box.begin());
  std::copy(a.element_strides.begin(), a.element_strides.end(), map.element_strides.begin());
  map.interleave = a.interleave;
  map.swizzle = a.swizzle;
  map.l2_promotion = a.l2_promotion;
  map.fill = a.fill;
  return broken_rules(map, name, target);
}

}  // namespace tessera
