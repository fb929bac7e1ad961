// One copy through a tensor map: which elements of the tensor its box takes, where each 16 bytes of it lie in shared
// memory, and what of it lies outside. The rules of base/tensor_map.h judge the map, those of base/tensor_map_copy.h
// the copy.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/tensor_map.h"
#include "base/tensor_map_copy.h"
#include "base/tensor_map_mistake.h"
#include "cli/layout_command.h"
#include "spec/smem_descriptor.h"

namespace tessera::cli {

namespace {

constexpr int kMaxRows = 256;

ResolvedTensorMap map_of(const LayoutArguments& arguments) {
  for (const char* flag : {"dims", "box"})
    if (!arguments.has(flag))
      throw Error(ErrorKind::usage, fmt::format("layout tensor-map: give --dims and --box, innermost first, like "
                                                "--dims 300,40 --box 64,8 (--{} is missing)",
                                                flag));
  ResolvedTensorMap map;
  const std::string dtype = arguments.text("dtype", "bf16");
  if (!from_string(dtype, map.type))
    throw Error(ErrorKind::usage, fmt::format("--dtype = {}: is no tensor-map type", dtype));
  if (!from_string(arguments.text("swizzle", "128B"), map.swizzle) || map.swizzle > TensorMapSwizzle::b128_atom_32b)
    throw Error(ErrorKind::usage, fmt::format("--swizzle = {}: must be one of none, 32B, 64B, 128B, 128B_atom_32B",
                                              arguments.text("swizzle")));
  if (is_packed(map.type))
    throw Error(ErrorKind::unsupported,
                fmt::format("--dtype = {}: packed types are not drawn; their bytes are those of u8", dtype));
  const std::vector<std::int64_t> dims = arguments.list("dims", 1, 5, 1, std::int64_t{1} << 32);
  map.rank = static_cast<std::uint32_t>(dims.size());
  const std::vector<std::int64_t> box = arguments.list("box", dims.size(), dims.size(), 1, 1 << 20);
  const auto es = static_cast<std::uint64_t>(element_bytes(map.type));
  for (std::size_t i = 0; i < dims.size(); ++i) {
    map.dims[i] = static_cast<std::uint64_t>(dims[i]);
    map.box[i] = static_cast<std::uint32_t>(box[i]);
    if (i == 0) continue;
    map.strides_bytes[i - 1] = i == 1 ? map.dims[0] * es : map.strides_bytes[i - 2] * map.dims[i - 1];
  }
  if (arguments.has("strides-bytes")) {
    const auto strides =
        arguments.list("strides-bytes", dims.size() - 1, dims.size() - 1, 0, (std::int64_t{1} << 40) - 1);
    for (std::size_t i = 0; i < strides.size(); ++i) map.strides_bytes[i] = static_cast<std::uint64_t>(strides[i]);
  }
  if (arguments.has("element-strides")) {
    const auto strides = arguments.list("element-strides", dims.size(), dims.size(), 1, 8);
    for (std::size_t i = 0; i < strides.size(); ++i) map.element_strides[i] = static_cast<std::uint32_t>(strides[i]);
  }
  return map;
}

int rows_of(const ResolvedTensorMap& map) {
  std::uint64_t rows = 1;
  for (std::uint32_t d = 1; d < map.rank; ++d)
    rows *= (map.box[d] + map.element_strides[d] - 1) / map.element_strides[d];
  return static_cast<int>(std::min<std::uint64_t>(rows, kMaxRows));
}

void draw(LayoutPage& page, const ResolvedTensorMap& map, const TensorMapCopy& copy) {
  const int es = element_bytes(map.type), per = 16 / es, rows = rows_of(map);
  const int chunks = static_cast<int>(map.box[0]) * es / 16;
  const auto pitch = static_cast<unsigned>(smem_row_pitch_bytes(map));
  const auto mode = static_cast<layout::SmemLayout>(map.swizzle);
  std::vector<std::string> labels;
  LayoutGrid grid =
      make_grid("16 bytes of the box: shared address; in brackets of none, 0 of its elements: outside the tensor",
                "row", {}, "element", numbers(chunks, static_cast<int>(copy.coordinates[0]), per));
  grid.title = fmt::format(
      "the box in shared memory: address of each {} elements; o: outside the tensor, n: the first n are inside", per);
  for (int r = 0; r < rows; ++r) {
    std::array<std::int64_t, 5> at = copy.coordinates;
    std::uint32_t rest = static_cast<std::uint32_t>(r);
    bool is_inside = true;
    std::uint64_t global = 0;
    std::string label;
    for (std::uint32_t d = 1; d < map.rank; ++d) {
      const std::uint32_t extent = (map.box[d] + map.element_strides[d] - 1) / map.element_strides[d];
      at[d] += std::int64_t{rest % extent} * map.element_strides[d];
      rest /= extent;
      is_inside = is_inside && at[d] >= 0 && static_cast<std::uint64_t>(at[d]) < map.dims[d];
      if (is_inside) global += static_cast<std::uint64_t>(at[d]) * map.strides_bytes[d - 1];
      label = label.empty() ? fmt::format("{}", at[d]) : fmt::format("{},{}", label, at[d]);
    }
    grid.rows.push_back(label.empty() ? "0" : label);
    for (int c = 0; c < chunks; ++c) {
      const std::int64_t first = at[0] + c * per;
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
      if (inside > 0)
        cell.values.emplace_back("global_byte",
                                 static_cast<std::int64_t>(global + static_cast<std::uint64_t>(first * es)));
      grid.cells.push_back(std::move(cell));
    }
  }
  page.grids.push_back(std::move(grid));
}

}  // namespace

LayoutPage layout_tensor_map(const LayoutArguments& arguments) {
  if (!arguments.subject.empty())
    throw Error(ErrorKind::usage, fmt::format("layout tensor-map: takes flags alone, {} given", arguments.subject));
  const ResolvedTensorMap map = map_of(arguments);
  TensorMapCopy copy;
  copy.smem_address = static_cast<std::uint64_t>(arguments.number("smem", 0, 0, (1 << 18) - 16));
  if (arguments.has("at")) {
    const auto at = arguments.list("at", map.rank, map.rank, -(std::int64_t{1} << 31), (std::int64_t{1} << 31) - 1);
    std::copy(at.begin(), at.end(), copy.coordinates.begin());
  }
  LayoutPage page;
  const auto shown = [&](const auto& values, std::uint32_t count) {
    return fmt::format("{}", fmt::join(values.begin(), values.begin() + count, ", "));
  };
  page.title = fmt::format("tensor map {}, box at ({})", to_string(map.type), shown(copy.coordinates, map.rank));
  page.facts = {{"dims", shown(map.dims, map.rank)},
                {"strides_bytes", shown(map.strides_bytes, map.rank - 1)},
                {"box", shown(map.box, map.rank)},
                {"swizzle", std::string(to_string(map.swizzle))}};
  for (const TensorMapViolation& violation : broken_rules(map, "map")) page.mistakes.push_back(violation.message);
  if (!page.mistakes.empty()) return page;
  page.facts.emplace_back("pitch of a row in shared memory", fmt::format("{} bytes", smem_row_pitch_bytes(map)));
  page.facts.emplace_back("shared memory", fmt::format("{} bytes", smem_box_bytes(map)));
  page.facts.emplace_back("credited to the mbarrier",
                          fmt::format("{} bytes, whatever lies outside", transaction_bytes(map)));
  if (const std::string fault = fault_message(map, copy, "map"); !fault.empty()) page.mistakes.push_back(fault);
  if (const std::string advice = likely_mistake_message(map, "map"); !advice.empty()) page.notes.push_back(advice);
  draw(page, map, copy);
  if (rows_of(map) == kMaxRows) page.notes.push_back(fmt::format("the first {} rows are shown", kMaxRows));
  return page;
}

}  // namespace tessera::cli
