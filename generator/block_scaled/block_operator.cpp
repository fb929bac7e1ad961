#include "generator/block_scaled/block_operator.h"

#include <fmt/format.h>

#include "generator/candidates.h"
#include "generator/operator_words.h"
#include "generator/words.h"
#include "spec/block_map.h"
#include "spec/packed_weights.h"

namespace tessera {

Conversion conversion_of(Arch arch) noexcept { return arch.number < 100 ? Conversion::software : Conversion::hardware; }

std::string scales_text(BlockFormat format) {
  return fmt::format("{}, one for {} along k", to_word(scale_type(format)), block_elements(format));
}

std::string_view scale_form_name(ScaleForm form) noexcept { return to_word(form); }

void add_size(LaunchPlan& launch, std::string name, std::int64_t min, std::int64_t max, std::string help) {
  launch.sizes.push_back(
      {.name = std::move(name), .min = min, .max = max, .default_value = {}, .help = std::move(help)});
}

void add_batch_size(LaunchPlan& launch) {
  launch.sizes.push_back({.name = "l",
                          .min = 1,
                          .max = kMaxBatch,
                          .default_value = Expression(1),
                          .help = "matrices, one after the other"});
}

void add_at_most(LaunchPlan& launch, const Expression& lhs, std::int64_t most, std::string message) {
  launch.domain.push_back(
      {.lhs = lhs, .relation = Relation::at_most, .rhs = Expression(most), .message = std::move(message)});
}

BufferSpec values_buffer(const char* name, BufferRole role, BlockFormat format, const char* rows) {
  const Expression bytes = Expression::parse(value_bits(format) == 4   ? "ceil_div(k, 2)"
                                             : value_bits(format) == 6 ? "ceil_div(k * 3, 4)"
                                                                       : "k");
  return {.name = name,
          .role = role,
          .dtype = "u8",
          .shape = {Expression::parse("l"), Expression::parse(rows), bytes},
          .strides = {expression("{} * {}", rows, bytes.text()), bytes, Expression(1)}};
}

BufferSpec scales_buffer(const char* name, BufferRole role, BlockFormat format, ScaleForm form, const char* rows) {
  BufferSpec buffer{.name = name, .role = role, .dtype = "u8", .shape = {}, .strides = {}};
  const int block = block_elements(format);
  if (form == ScaleForm::plain) {
    const Expression blocks = expression("ceil_div(k, {})", block);
    buffer.shape = {Expression::parse("l"), Expression::parse(rows), blocks};
    buffer.strides = {expression("{} * {}", rows, blocks.text()), blocks, Expression(1)};
    buffer.alignment = 2;
    return buffer;
  }
  const Expression row_tiles = expression("ceil_div({}, {})", rows, kTileRows);
  const Expression k_tiles = expression("ceil_div(k, {})", block * kTileBlocks);
  buffer.shape = {Expression::parse("l"), row_tiles, k_tiles, Expression(32), Expression(4), Expression(4)};
  buffer.strides = {expression("{} * {} * {}", row_tiles.text(), k_tiles.text(), kTileBytes),
                    expression("{} * {}", k_tiles.text(), kTileBytes),
                    Expression(kTileBytes),
                    Expression(16),
                    Expression(4),
                    Expression(1)};
  return buffer;
}

BufferSpec dense_buffer(const char* name, BufferRole role, DType dtype) {
  return {.name = name,
          .role = role,
          .dtype = std::string(to_word(dtype)),
          .shape = {Expression::parse("l"), Expression::parse("rows"), Expression::parse("k")},
          .strides = {Expression::parse("rows * k"), Expression::parse("k"), Expression(1)}};
}

BufferSpec packed_weights_buffer(const char* name, BufferRole role, int block_bytes) {
  const Expression rows = expression("ceil_div(n, {})", kWeightRows),
                   steps = expression("ceil_div(k, {})", kWeightDepth);
  return {.name = name,
          .role = role,
          .dtype = "u8",
          .shape = {Expression::parse("l"), rows, steps, Expression(block_bytes)},
          .strides = {expression("{} * {} * {}", rows.text(), steps.text(), block_bytes),
                      expression("{} * {}", steps.text(), block_bytes), Expression(block_bytes), Expression(1)},
          .alignment = 16};
}

BufferSpec global_scale_buffer(const char* name, BufferRole role, bool is_optional) {
  return {.name = name,
          .role = role,
          .dtype = "f32",
          .shape = {Expression(1)},
          .strides = {Expression(1)},
          .alignment = 4,
          .is_optional = is_optional};
}

OperandPlan scaled_operand(std::string name, BlockFormat format, ScaleForm form, std::string use) {
  OperandPlan operand = plain_operand(std::move(name), to_word(value_type(format)), std::move(use));
  operand.scale_type = to_word(scale_type(format));
  operand.scale_block = block_elements(format);
  operand.scale_form = to_word(form);
  return operand;
}

OperandPlan scale_operand(std::string name, BlockFormat format, std::string use) {
  return plain_operand(std::move(name), to_word(scale_type(format)), std::move(use));
}

OperandPlan plain_operand(std::string name, std::string_view dtype, std::string use) {
  OperandPlan operand;
  operand.name = std::move(name);
  operand.dtype = dtype;
  operand.use = std::move(use);
  return operand;
}

namespace {

/// Tile form: what a CTA visits along k.
int columns_of_cta(BlockFormat format, int threads, int visits) {
  return block_elements(format) * kTileBlocks * (threads / 32) * visits;
}

}  // namespace

void add_block_domain(LaunchPlan& launch, BlockFormat format, ScaleForm form, int threads, int visits) {
  add_batch_size(launch);
  add_size(launch, "rows", 0, kMaxExtent, "rows of a matrix");
  add_size(launch, "k", 0, kMaxExtent, "elements of a row: whole blocks");
  const int block = block_elements(format);
  launch.domain.push_back(
      {.lhs = Expression::parse("k"),
       .relation = Relation::multiple_of,
       .rhs = Expression(block),
       .message = fmt::format("k must be a multiple of {}, the block of {} that shares a scale: pad "
                              "the rows with zeros",
                              block, to_word(format))});
  add_at_most(launch, Expression::parse("l * rows"), kMaxGridX,
              fmt::format("l * rows must be at most {}", grouped(kMaxGridX)));
  if (form == ScaleForm::plain) {
    add_at_most(launch, Expression::parse("l * rows * ceil_div(k, 16)"), kMaxGridX * threads * visits,
                fmt::format("l * rows * k / 16 must be at most {} (grid)", grouped(kMaxGridX * threads * visits)));
  } else {
    const std::int64_t k_step = columns_of_cta(format, threads, visits);
    add_at_most(launch, Expression::parse("rows"), kMaxBatch * kTileRows,
                fmt::format("rows must be at most {} with scales in tiles (grid)", grouped(kMaxBatch * kTileRows)));
    add_at_most(launch, expression("ceil_div(k, {}) * {}", k_step, row_units(format)), kMaxGridX,
                fmt::format("k must be at most {} with scales in tiles (grid)",
                            grouped(kMaxGridX / row_units(format) * k_step)));
  }
}

void add_block_grid(LaunchStep& step, BlockFormat format, ScaleForm form, int threads, int visits, int least) {
  step.block[0] = static_cast<std::uint32_t>(threads);
  if (form == ScaleForm::plain) {
    const Expression groups = Expression::parse("l * rows * ceil_div(k, 16)");
    step.grid[0] = least > 0 ? expression("max(ceil_div({}, {}), {})", groups.text(), threads * visits, least)
                             : expression("ceil_div({}, {})", groups.text(), threads * visits);
    step.parameters.push_back(size_parameter("groups", ParameterKind::i64, groups));
    return;
  }
  const std::string units =
      fmt::format("ceil_div(k, {}) * {}", columns_of_cta(format, threads, visits), row_units(format));
  const std::string tiles = fmt::format("ceil_div(rows, {})", kTileRows);
  step.grid[0] = least > 0 ? expression("max({}, {})", units, least) : Expression::parse(units);
  step.grid[1] = least > 0 ? expression("max({}, {})", tiles, least) : Expression::parse(tiles);
  step.grid[2] = Expression::parse("l");
  step.parameters.push_back(size_parameter("rows", ParameterKind::i32, Expression::parse("rows")));
  step.parameters.push_back(size_parameter("k", ParameterKind::i32, Expression::parse("k")));
}

KernelParameter pointer_parameter(const char* name, const char* source) {
  return {.name = name, .kind = ParameterKind::pointer, .value = {}, .source = source, .offset_bytes = {}};
}

KernelParameter size_parameter(const char* name, ParameterKind kind, Expression value) {
  return {.name = name, .kind = kind, .value = std::move(value), .source = {}, .offset_bytes = {}};
}

}  // namespace tessera
