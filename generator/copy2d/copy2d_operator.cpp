#include "generator/copy2d/copy2d_operator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "generator/family.h"
#include "generator/field_table.h"
#include "generator/launch_limits.h"
#include "generator/operator_words.h"

namespace tessera {

namespace {

// Rows of a tile along dimension 1; further dimensions have two each, so that a tile really has every dimension.
constexpr int kTileOuter[] = {64, 128, 32, 16, 8};
constexpr int kDeepExtent = 2;
// Without swizzle a row may be as wide as a box; rows of 128 bytes fill a cache line.
constexpr Swizzle kSwizzles[] = {Swizzle::b128, Swizzle::none, Swizzle::b64, Swizzle::b32};
constexpr int kLineBytes = 128;

constexpr std::int64_t kMaxCoordinate = (std::int64_t{1} << 31) - 257;  // a box never crosses the end of int
constexpr std::int64_t kMaxGrid = (std::int64_t{1} << 31) - 1;

constexpr int kMaxCtasOfSm = 32;

long long ctas_of_sm(const copy2d::Config& c) {
  return std::min<long long>(kMaxCtasOfSm, kSmemBytesOfSm / (copy2d::smem_layout(c).total_bytes + kSmemBytesOfSystem));
}

void add_sizes(const copy2d::Config& c, LaunchPlan& launch) {
  for (int d = 0; d < c.rank; ++d) {
    launch.sizes.push_back({.name = fmt::format("dim{}", d),
                            .min = 0,
                            .max = kMaxCoordinate,
                            .default_value = {},
                            .help = fmt::format("elements along dimension {}{}", d, d == 0 ? ", the dense one" : "")});
  }
  for (const char* const tensor : {"x", "y"}) {
    for (int d = 1; d < c.rank; ++d) {
      // What is written must not overlap: a stride of 0 is for x only.
      const bool is_output = tensor[0] == 'y';
      // A tensor map's strides are multiples of 16 bytes, also where dimension 0 is empty and nothing is copied.
      const int unit = 16 / dtype_bytes(c.dtype);
      launch.sizes.push_back(
          {.name = fmt::format("{}_stride{}", tensor, d),
           .min = is_output ? 1 : 0,
           .max = kMaxStride,
           .default_value = d == 1 ? expression("dim0 + max({} - {} * dim0, 0)", unit, unit)
                                   : expression("{}_stride{} * max(dim{}, 1)", tensor, d - 1, d - 1),
           .help = fmt::format("elements from one index to the next along dimension {} of {}", d, tensor)});
    }
  }
}

void add_tensor(const copy2d::Config& c, const char* name, BufferRole role, LaunchPlan& launch) {
  BufferSpec buffer{.name = name, .role = role, .dtype = std::string(to_word(c.dtype)), .shape = {}, .strides = {}};
  TensorMapRecipe map;
  map.name = name;
  map.buffer = name;
  map.type = tensor_map_type(c.dtype);
  map.swizzle = tensor_map_swizzle(c.swizzle);
  for (int d = 0; d < c.rank; ++d) {
    map.dims.push_back(expression("max(dim{}, 1)", d));
    if (d > 0) map.strides_bytes.push_back(expression("{}_stride{} * {}", name, d, dtype_bytes(c.dtype)));
    map.box.push_back(static_cast<std::uint32_t>(c.box[d]));
    map.element_strides.push_back(1);
  }
  for (int d = c.rank - 1; d >= 0; --d) {
    buffer.shape.push_back(expression("dim{}", d));
    buffer.strides.push_back(d == 0 ? Expression(1) : expression("{}_stride{}", name, d));
  }
  launch.buffers.push_back(std::move(buffer));
  launch.tensor_maps.push_back(std::move(map));
}

LaunchPlan launch_of(const copy2d::Config& c, const std::string& arch, const std::string& kernel) {
  LaunchPlan launch;
  launch.op = "copy2d";
  launch.arch = arch;
  add_sizes(c, launch);
  add_tensor(c, "x", BufferRole::input, launch);
  add_tensor(c, "y", BufferRole::output, launch);

  LaunchStep step;
  step.entry = kernel;
  for (const char* const map : {"x", "y"}) {
    step.parameters.push_back(
        {.name = map, .kind = ParameterKind::tensor_map, .value = {}, .source = map, .offset_bytes = {}});
  }
  // A tensor store writes whole units: it would zero what follows a row that ends inside one, in y or behind it.
  const int unit = 16 / dtype_bytes(c.dtype);
  launch.domain.push_back(
      {.lhs = Expression::parse("dim0"),
       .relation = Relation::multiple_of,
       .rhs = Expression(unit),
       .message =
           fmt::format("dim0 must be a multiple of {} (16 bytes): a tensor store writes whole 16-byte units, and "
                       "zeroes what lies between a row's end and the end of its unit; pad the rows, or copy the "
                       "tensor as bytes",
                       unit)});
  // The rules bound one factor after the other, so that no product leaves 64 bits before a rule refuses it.
  std::string grid;
  for (int d = 0; d < copy2d::kMaxRank; ++d) {
    const std::string tiles = d < c.rank ? fmt::format("ceil_div(dim{}, {})", d, c.box[d]) : "1";
    if (d < 4) {
      step.parameters.push_back({.name = fmt::format("tiles{}", d),
                                 .kind = ParameterKind::i32,
                                 .value = Expression::parse(tiles),
                                 .source = {},
                                 .offset_bytes = {}});
    }
    if (d >= c.rank) continue;
    grid += (d == 0 ? "" : " * ") + tiles;
    if (d == 0) continue;
    launch.domain.push_back(
        {.lhs = Expression::parse(grid),
         .relation = Relation::at_most,
         .rhs = Expression(kMaxGrid),
         .message = fmt::format("the tiles along dimensions 0 to {} must be at most {} (grid)", d, grouped(kMaxGrid))});
  }
  step.grid[0] = Expression::parse(grid);
  step.block[0] = copy2d::kNumThreads;
  step.dynamic_smem_bytes = copy2d::smem_layout(c).total_bytes;
  launch.steps.push_back(std::move(step));
  return launch;
}

}  // namespace

void Copy2dOperator::require_facts(const Copy2d&) {}  // every type and every legal rank has a Config

std::vector<copy2d::Config> Copy2dOperator::candidates(const Copy2d& problem) {
  std::vector<Config> list;
  for (const Swizzle swizzle : kSwizzles) {
    for (const int outer : kTileOuter) {
      Config c;
      c.rank = problem.rank;
      c.dtype = problem.dtype;
      c.swizzle = problem.swizzle.value_or(swizzle);
      const int row_bytes = c.swizzle == Swizzle::none ? kLineBytes : swizzle_span_bytes(c.swizzle);
      // A tensor of rank 1 has no rows: its unswizzled tile is as long as a box can be.
      const bool is_long_row = c.rank == 1 && c.swizzle == Swizzle::none;
      const int inner = is_long_row ? copy2d::kMaxBoxExtent : row_bytes / dtype_bytes(c.dtype);
      c.box[0] = problem.tile_inner.value_or(inner);
      c.box[1] = problem.tile_outer.value_or(c.rank == 1 ? 1 : outer);
      for (int d = 2; d < copy2d::kMaxRank; ++d) c.box[d] = d < c.rank ? kDeepExtent : 1;
      list.push_back(c);
    }
  }
  return list;
}

double Copy2dOperator::score(const Config& config, const Copy2d&) {
  const double in_flight = static_cast<double>(ctas_of_sm(config) * copy2d::transfer_bytes(config)) / kSmemBytesOfSm;
  return in_flight * std::min(copy2d::inner_bytes(config), kLineBytes) / kLineBytes;
}

std::string Copy2dOperator::merit(const Config& config, const Copy2d&) {
  return fmt::format("{} of {} bytes in flight on an SM", counted(ctas_of_sm(config), "tile"),
                     grouped(copy2d::transfer_bytes(config)));
}

std::string Copy2dOperator::label(const Config& config) {
  return fmt::format("tile {}, {}", extents_text(config.box, std::clamp(config.rank, 1, copy2d::kMaxRank)),
                     to_word(config.swizzle));
}

std::string Copy2dOperator::subject(const Config& config) {
  return fmt::format("copy2d rank {}, {}, {}", config.rank, to_word(config.dtype), label(config));
}

std::string Copy2dOperator::explain(const Config& config, const Verdict& verdict) {
  const std::string found = grouped(verdict.found);
  const std::string bound = grouped(verdict.bound);
  const int bytes = dtype_bytes(config.dtype);
  switch (verdict.rule) {
    case copy2d::Rule::ok:
      break;
    case copy2d::Rule::rank_out_of_range:
      return fmt::format("rank {}, 1 to {} allowed", found, bound);
    case copy2d::Rule::box_extent_out_of_range:
      return fmt::format("a tile extent of {} elements, 1 to {} allowed", found, bound);
    case copy2d::Rule::box_beyond_rank:
      return fmt::format(
          "a tile extent of {} along a dimension that rank {} does not have: leave tile_outer to the "
          "planner",
          found, config.rank);
    case copy2d::Rule::inner_bytes_not_multiple_of_16:
      return fmt::format("rows of {} bytes, a multiple of {} needed: make tile_inner a multiple of {}", found, bound,
                         16 / bytes);
    case copy2d::Rule::inner_bytes_beyond_span:
      return fmt::format(
          "rows of {} bytes, {} allowed by the {} swizzle: make tile_inner at most {}, or the swizzle "
          "none",
          found, bound, to_word(config.swizzle), verdict.bound / bytes);
    case copy2d::Rule::shared_memory_exceeded:
      return fmt::format("{} bytes of shared memory, {} allowed: take a smaller tile", found, bound);
  }
  return "?";
}

std::string Copy2dOperator::kernel_name(Arch arch, const Config& config) {
  return fmt::format("tessera_copy2d_{}_r{}_{}_{}_{}", arch_name(arch.to_string()), config.rank, to_word(config.dtype),
                     extents_text(config.box, config.rank), swizzle_name(config.swizzle));
}

void Copy2dOperator::describe(const Config& config, Plan& plan) {
  const copy2d::SmemLayout layout = copy2d::smem_layout(config);
  for (const char* const name : {"x", "y"}) {
    plan.operands.push_back({.name = name,
                             .dtype = std::string(to_word(config.dtype)),
                             .tensor_map_type = std::string(to_string(tensor_map_type(config.dtype))),
                             .swizzle = std::string(to_word(config.swizzle)),
                             .use = std::string_view(name) == "x" ? "copied from" : "copied to"});
  }
  plan.smem = {{"tile",
                0,
                layout.tile_bytes,
                1,
                {{"box on its way in", "copy", "barrier"}, {"box on its way out", "copy", "the store has read it"}}},
               {"barrier", layout.barrier_offset, 8}};
  plan.smem_bytes = layout.total_bytes;
  plan.roles = {{.name = "copy", .first_warp = 0, .warps = copy2d::kNumThreads / 32, .registers = 0}};
  plan.launch = launch_of(config, plan.arch.to_string(), plan.kernel);
}

std::string Copy2dOperator::launch_bounds() { return "tessera::copy2d::kNumThreads"; }

std::string Copy2dOperator::call(const Config&) {
  return "tessera::copy2d::kernel<kConfig>(x, y, tiles0, tiles1, tiles2, tiles3)";
}

std::vector<SourceFile> Copy2dOperator::generated_headers(const Config&) { return {}; }

std::span<const Selector> copy2d_fields() {
  static const std::vector<Selector> table = {
      field<&Copy2d::arch>("arch", "arch", "target: sm_90a"),
      field<&Copy2d::dtype>("dtype", "dtype", "element type"),
      field<&Copy2d::rank>("rank", "rank", "dimensions of the tensor: 1 to 5"),
      field<&Copy2d::tile_inner>("tile-inner", "tile_inner", "elements of a tile along dimension 0"),
      field<&Copy2d::tile_outer>("tile-outer", "tile_outer", "rows of a tile along dimension 1"),
      field<&Copy2d::swizzle>("swizzle", "swizzle", "how TMA permutes a tile in shared memory"),
  };
  return table;
}

namespace {

constexpr FamilyRow kFamilies[] = {family_row<Copy2dOperator>("tma", kWgmmaTargets)};
constexpr OperatorType kType = make_operator_type<Copy2d>(copy2d_fields, kFamilies);

}  // namespace

template <>
const OperatorType& operator_type<Copy2d>() noexcept {
  return kType;
}

}  // namespace tessera
