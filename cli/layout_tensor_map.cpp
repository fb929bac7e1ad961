// One copy through a tensor map: which elements of the tensor its box takes,
// where each 16 bytes of it lie in shared memory, and what of it lies outside.
// The rules of tessera/tensor_map.h judge the map, those of base/tensor_map_copy.h
// the copy. With --pixels the copy is im2col's: a row of it is a pixel of the
// tensor.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/tensor_map_copy.h"
#include "base/tensor_map_mistake.h"
#include "cli/layout_command.h"
#include "spec/im2col.h"
#include "spec/smem_descriptor.h"
#include "tessera/error.h"
#include "tessera/tensor_map.h"

namespace tessera::cli {

namespace {

constexpr int kMaxRows = 256;

/// Bits of an element in global memory.
std::uint64_t element_bits(TensorMapType type) {
  return type == TensorMapType::u6x16_align16b ? 6
         : is_packed(type)                     ? 4
                                               : static_cast<std::uint64_t>(8 * element_bytes(type));
}
bool is_padded(TensorMapType type) { return is_packed(type) && type != TensorMapType::u4x16_align8b; }

/// A map that only compute capability 10 has is judged by its rules.
TensorMapTarget target_of(TensorMapType type, TensorMapSwizzle swizzle) {
  return {is_packed(type) || swizzle > TensorMapSwizzle::b128 ? 10 : 9};
}

std::string type_names() {
  std::string names;
  for (int i = 0; i <= static_cast<int>(TensorMapType::u6x16_align16b); ++i)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(static_cast<TensorMapType>(i)));
  return names;
}

/// The numbers after a flag, as many as were given: diagnose() says which count
/// is wrong, and why.
template <class To>
std::vector<To> numbers_of(const LayoutArguments& arguments, const char* flag, std::int64_t min, std::int64_t max) {
  constexpr std::size_t kMaxCount = 16;
  const std::vector<std::int64_t> values = arguments.list(flag, 1, kMaxCount, min, max);
  return {values.begin(), values.end()};
}

TensorMapArguments given_map(const LayoutArguments& arguments) {
  const bool is_im2col = arguments.has("pixels");
  for (const char* flag : {"dims", is_im2col ? "channels" : "box"})
    if (!arguments.has(flag))
      throw Error(ErrorKind::usage, fmt::format("layout tensor-map: give --dims and --box, innermost first, like "
                                                "--dims 300,40 --box 64,8, or for im2col --dims, --channels and "
                                                "--pixels (--{} is missing)",
                                                flag));
  TensorMapArguments map;
  const std::string dtype = arguments.text("dtype", "bf16");
  if (!from_string(dtype, map.type))
    throw Error(ErrorKind::usage, fmt::format("--dtype = {}: must be one of {}", dtype, type_names()));
  if (arguments.has("interleave") && !from_string(arguments.text("interleave"), map.interleave))
    throw Error(ErrorKind::usage,
                fmt::format("--interleave = {}: must be one of none, 16B, 32B", arguments.text("interleave")));
  const char* const usual_swizzle = map.interleave == TensorMapInterleave::none ? "128B" : "none";
  if (!from_string(arguments.text("swizzle", usual_swizzle), map.swizzle) ||
      map.swizzle > TensorMapSwizzle::b128_atom_32b)
    throw Error(ErrorKind::usage, fmt::format("--swizzle = {}: must be one of none, 32B, 64B, "
                                              "128B, 128B_atom_32B",
                                              arguments.text("swizzle")));
  map.address = static_cast<std::uint64_t>(arguments.number("address", 0, 0, (std::int64_t{1} << 57) - 1));
  map.dims = numbers_of<std::uint64_t>(arguments, "dims", 1, std::int64_t{1} << 32);
  if (is_im2col) {
    map.box.assign(map.dims.size(), 1);
    map.box[0] = static_cast<std::uint32_t>(arguments.number("channels", 0, 1, 1 << 20));
  } else {
    map.box = numbers_of<std::uint32_t>(arguments, "box", 1, 1 << 20);
  }
  if (arguments.has("strides-bytes")) {
    map.strides_bytes = numbers_of<std::uint64_t>(arguments, "strides-bytes", 0, (std::int64_t{1} << 40) - 1);
  } else {
    std::uint64_t stride = map.dims[0] * element_bits(map.type) / 8;
    for (std::size_t i = 1; i < map.dims.size(); ++i) {
      map.strides_bytes.push_back(stride);
      if (__builtin_mul_overflow(stride, map.dims[i], &stride)) stride = ~std::uint64_t{0};  // refused as too large
    }
  }
  if (arguments.has("element-strides"))
    map.element_strides = numbers_of<std::uint32_t>(arguments, "element-strides", 1, 8);
  return map;
}

/// Of arguments whose counts fit.
ResolvedTensorMap resolved(const TensorMapArguments& given) {
  ResolvedTensorMap map;
  map.type = given.type;
  map.rank = static_cast<std::uint32_t>(given.dims.size());
  map.address = given.address;
  map.interleave = given.interleave;
  map.swizzle = given.swizzle;
  std::copy(given.dims.begin(), given.dims.end(), map.dims.begin());
  std::copy(given.strides_bytes.begin(), given.strides_bytes.end(), map.strides_bytes.begin());
  std::copy(given.box.begin(), given.box.end(), map.box.begin());
  std::copy(given.element_strides.begin(), given.element_strides.end(), map.element_strides.begin());
  return map;
}

/// The copy's rows in the order of shared memory: where each stands in the
/// tensor, dimensions 1 and up.
struct TensorRows {
  int count = 0;
  int all = 0;  ///< more than `count`: these are not shown
  std::vector<std::array<std::int64_t, 5>> at;
};

TensorRows tiled_rows(const ResolvedTensorMap& map, const TensorMapCopy& copy) {
  std::uint64_t all = 1;
  for (std::uint32_t d = 1; d < map.rank; ++d)
    all *= (map.box[d] + map.element_strides[d] - 1) / map.element_strides[d];
  TensorRows rows{static_cast<int>(std::min<std::uint64_t>(all, kMaxRows)), static_cast<int>(all), {}};
  for (int r = 0; r < rows.count; ++r) {
    std::array<std::int64_t, 5> at = copy.coordinates;
    std::uint32_t rest = static_cast<std::uint32_t>(r);
    for (std::uint32_t d = 1; d < map.rank; ++d) {
      const std::uint32_t extent = (map.box[d] + map.element_strides[d] - 1) / map.element_strides[d];
      at[d] += std::int64_t{rest % extent} * map.element_strides[d];
      rest /= extent;
    }
    rows.at.push_back(at);
  }
  return rows;
}

std::string im2col_message(const Verdict<layout::Im2colRule>& verdict) {
  using Rule = layout::Im2colRule;
  const auto corner = [&](const char* flag) {
    return fmt::format("{} = {}: must be from {} to {} at this rank", flag, verdict.found, -verdict.bound,
                       verdict.bound - 1);
  };
  switch (verdict.rule) {
    case Rule::rank:
      return fmt::format("rank {}: im2col takes 3 to 5 dimensions (C, W, N to C, W, H, D, N)", verdict.found);
    case Rule::channels:
      return fmt::format("channels = {}: must be from 1 to {}", verdict.found, verdict.bound);
    case Rule::pixels:
      return fmt::format("pixels = {}: must be from 1 to {}", verdict.found, verdict.bound);
    case Rule::lower_corner:
      return corner("lower_corner");
    case Rule::upper_corner:
      return corner("upper_corner");
    case Rule::offset:
      return fmt::format("offset {}: must be from 0 to {} at this rank", verdict.found, verdict.bound - 1);
    case Rule::ok:
      break;
  }
  return {};
}

TensorRows im2col_rows(LayoutPage& page, const LayoutArguments& arguments, const ResolvedTensorMap& map,
                       const TensorMapCopy& copy) {
  layout::Im2colMap im2col;
  im2col.rank = static_cast<int>(map.rank);
  const std::size_t spatial = map.rank < 3 ? 1 : map.rank - 2;
  const auto read = [&](const char* flag, int(&to)[layout::kIm2colSpatial]) {
    if (!arguments.has(flag)) return;
    const auto values = arguments.list(flag, spatial, spatial, -(1 << 20), 1 << 20);
    std::copy(values.begin(), values.end(), to);
  };
  int offsets[layout::kIm2colSpatial] = {};
  read("lower-corner", im2col.lower);
  read("upper-corner", im2col.upper);
  read("offsets", offsets);
  long long start[5] = {};
  for (std::uint32_t d = 0; d < map.rank; ++d) {
    im2col.dims[d] = static_cast<long long>(map.dims[d]);
    start[d] = copy.coordinates[d];
    if (d >= 1 && d <= spatial) im2col.strides[d - 1] = static_cast<int>(map.element_strides[d]);
  }
  TensorRows rows;
  rows.all = static_cast<int>(arguments.number("pixels", 0, 0, 1 << 20));
  rows.count = std::min(rows.all, kMaxRows);
  if (const auto verdict = why_invalid_im2col(im2col, static_cast<int>(map.box[0]), rows.all, offsets); !verdict.ok()) {
    page.mistakes.push_back(im2col_message(verdict));
    return rows;
  }
  const auto joined = [&](const int* values) { return fmt::format("{}", fmt::join(values, values + spatial, ", ")); };
  page.facts.emplace_back("im2col",
                          fmt::format("{} pixels of {} channels, offsets {}", rows.all, map.box[0], joined(offsets)));
  page.facts.emplace_back("bounding box", fmt::format("lower corner {}, upper corner {} from the tensor's end",
                                                      joined(im2col.lower), joined(im2col.upper)));
  for (int r = 0; r < rows.count; ++r) {
    const layout::Im2colPixel pixel = im2col_pixel(im2col, start, offsets, r);
    rows.at.emplace_back();
    std::copy(std::begin(pixel.at), std::end(pixel.at), rows.at.back().begin());
  }
  return rows;
}

void draw(LayoutPage& page, const ResolvedTensorMap& map, const TensorMapCopy& copy, const TensorRows& rows) {
  // Elements of 16 bytes of shared memory, and their bytes there and in global
  // memory (padded types: 8 or 12).
  const int per = 128 / smem_element_bits(map.type);
  const auto bits = static_cast<std::int64_t>(element_bits(map.type));
  const int chunks = static_cast<int>(map.box[0]) / per;
  const auto pitch = static_cast<unsigned>(smem_row_pitch_bytes(map));
  const auto mode = static_cast<layout::SmemLayout>(map.swizzle);
  LayoutGrid grid = make_grid(fmt::format("the box in shared memory: address of each {} elements; o: "
                                          "outside the tensor, n: the first n are "
                                          "inside",
                                          per),
                              "row", {}, "element", {});
  for (int c = 0; c < chunks; ++c) grid.columns.push_back(std::to_string(copy.coordinates[0] + c * per));
  for (int r = 0; r < rows.count; ++r) {
    const std::array<std::int64_t, 5>& at = rows.at[static_cast<std::size_t>(r)];
    bool is_inside = true;
    std::uint64_t global = 0;
    std::string label;
    for (std::uint32_t d = 1; d < map.rank; ++d) {
      is_inside = is_inside && at[d] >= 0 && static_cast<std::uint64_t>(at[d]) < map.dims[d];
      if (is_inside) global += static_cast<std::uint64_t>(at[d]) * map.strides_bytes[d - 1];
      label = label.empty() ? fmt::format("{}", at[d]) : fmt::format("{},{}", label, at[d]);
    }
    grid.rows.push_back(label.empty() ? "0" : label);
    for (int c = 0; c < chunks; ++c) {
      const std::int64_t first = copy.coordinates[0] + c * per;
      const std::int64_t left = first < 0 ? 0 : static_cast<std::int64_t>(map.dims[0]) - first;
      const std::int64_t inside = is_inside ? std::clamp<std::int64_t>(left, 0, per) : 0;
      const unsigned plain =
          static_cast<unsigned>(copy.smem_address) + static_cast<unsigned>(r) * pitch + static_cast<unsigned>(c) * 16;
      const unsigned address = plain ^ layout::smem_layout_xor(mode, plain >> 7);
      LayoutCell cell;
      cell.text = fmt::format("{:#x}{}", address, inside == 0 ? " o" : inside < per ? fmt::format(" {}", inside) : "");
      cell.link = fmt::format("{},{}", r, c);
      cell.group = static_cast<int>(address / 16 % 8);
      cell.is_outside = inside == 0;
      cell.is_marked = inside > 0 && inside < per;
      cell.values = {{"smem_address", address}, {"bank", address / 4 % 32}, {"elements_inside", inside}};
      if (inside > 0) cell.values.emplace_back("global_byte", static_cast<std::int64_t>(global) + first * bits / 8);
      if (is_padded(map.type)) cell.values.emplace_back("data_bytes", per * bits / 8);
      grid.cells.push_back(std::move(cell));
    }
  }
  LayoutGrid back =
      memory_grid(grid, "smem_address",
                  fmt::format("128 bytes of shared memory: row and first "
                              "element of the {} that lie there",
                              per),
                  [&](const LayoutCell& cell) {
                    const std::size_t index = static_cast<std::size_t>(&cell - grid.cells.data());
                    const std::size_t r = index / grid.columns.size(), c = index % grid.columns.size();
                    return fmt::format("{}:{}{}", grid.rows[r], grid.columns[c], cell.is_outside ? " o" : "");
                  });
  page.grids.push_back(std::move(grid));
  page.grids.push_back(std::move(back));
  page.notes.push_back(
      "o: a load writes zeros there (or a NaN, where the map "
      "asks for it) and counts the bytes; a store skips them");
}

void add_type_notes(LayoutPage& page, const ResolvedTensorMap& map) {
  if (map.type == TensorMapType::u4x16_align8b)
    page.notes.push_back("two elements a byte in both memories, the first in the low four bits");
  if (is_padded(map.type))
    page.notes.push_back(
        fmt::format("16 elements are {} bytes in global memory and 16 in shared memory: {} "
                    "of data, then padding that holds "
                    "anything; stores {}",
                    element_bits(map.type) * 2, element_bits(map.type) * 2,
                    map.type == TensorMapType::u4x16_align16b ? "do not exist" : "take it back"));
  if (!target_of(map.type, map.swizzle).is_verified())
    page.notes.push_back("sm_100 and later only: from the manual, never run on such a device");
}

// What the rules of a map allow and no page shows.
void refuse_undrawn(const LayoutArguments& arguments, const ResolvedTensorMap& map) {
  if (map.interleave != TensorMapInterleave::none)
    throw Error(ErrorKind::unsupported, fmt::format("--interleave = {}: breaks no rule, and is not drawn: the manual "
                                                    "says of channels in slices "
                                                    "of 16 and 32 bytes (NC/8HWC8, NC/16HWC16) not how a box's slices "
                                                    "follow one another in "
                                                    "shared memory, and nothing else here could prove a drawing",
                                                    to_string(map.interleave)));
  constexpr std::string_view kModes[] = {"full", "w", "w128"};
  if (const std::size_t mode = arguments.word("im2col", {"full", "w", "w128"}, 0); mode != 0)
    throw Error(ErrorKind::unsupported, fmt::format("--im2col = {}: not drawn: .im2col::w and .im2col::w::128 "
                                                    "(sm_100 and later) count pixels along "
                                                    "W alone with a halo, of which no source gives the "
                                                    "addresses, and no such device is at hand",
                                                    kModes[mode]));
  if (arguments.has("im2col") && !arguments.has("pixels"))
    throw Error(ErrorKind::usage, "--im2col: goes with --pixels and --channels");
}

}  // namespace

LayoutPage layout_tensor_map(const LayoutArguments& arguments) {
  if (!arguments.subject.empty())
    throw Error(ErrorKind::usage, fmt::format("layout tensor-map: takes flags alone, {} given", arguments.subject));
  const TensorMapArguments given = given_map(arguments);
  TensorMapCopy copy;
  copy.smem_address = static_cast<std::uint64_t>(arguments.number("smem", 0, 0, (1 << 18) - 16));
  std::vector<std::int64_t> at(given.dims.size(), 0);
  if (arguments.has("at"))
    at = arguments.list("at", at.size(), at.size(), -(std::int64_t{1} << 31), (std::int64_t{1} << 31) - 1);
  LayoutPage page;
  page.title = fmt::format("tensor map {}, box at ({})", to_string(given.type), fmt::join(at, ", "));
  page.facts = {
      {"dims", fmt::format("{}", fmt::join(given.dims, ", "))},
      {"strides_bytes", fmt::format("{}", fmt::join(given.strides_bytes, ", "))},
      {arguments.has("pixels") ? "channels" : "box",
       arguments.has("pixels") ? fmt::format("{}", given.box[0]) : fmt::format("{}", fmt::join(given.box, ", "))},
      {"swizzle", std::string(to_string(given.swizzle))}};
  if (given.interleave != TensorMapInterleave::none)
    page.facts.emplace_back("interleave", std::string(to_string(given.interleave)));
  if (arguments.has("address")) page.facts.emplace_back("address", fmt::format("{:#x}", given.address));
  for (const TensorMapViolation& violation : diagnose(given, "map", target_of(given.type, given.swizzle)))
    page.mistakes.push_back(violation.message);
  if (!page.mistakes.empty()) return page;
  const ResolvedTensorMap map = resolved(given);
  refuse_undrawn(arguments, map);
  std::copy(at.begin(), at.end(), copy.coordinates.begin());
  const bool is_im2col = arguments.has("pixels");
  TensorRows rows = is_im2col ? im2col_rows(page, arguments, map, copy) : tiled_rows(map, copy);
  if (!page.mistakes.empty()) return page;
  const auto count = static_cast<std::uint64_t>(rows.all), pitch = smem_row_pitch_bytes(map);
  const std::uint64_t credit = is_im2col ? count * transaction_bytes(map) : transaction_bytes(map);
  page.facts.emplace_back("pitch of a row in shared memory", fmt::format("{} bytes", pitch));
  page.facts.emplace_back("shared memory", fmt::format("{} bytes", count * pitch));
  page.facts.emplace_back("credited to the mbarrier", fmt::format("{} bytes, whatever lies outside", credit));
  if (const std::string fault = fault_message(map, copy, "map"); !fault.empty()) page.mistakes.push_back(fault);
  if (const std::string advice = likely_mistake_message(map, "map"); !advice.empty()) page.notes.push_back(advice);
  draw(page, map, copy, rows);
  add_type_notes(page, map);
  if (rows.all > rows.count) page.notes.push_back(fmt::format("the first {} rows are shown", kMaxRows));
  return page;
}

}  // namespace tessera::cli
