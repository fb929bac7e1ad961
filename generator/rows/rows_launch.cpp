#include "generator/rows/rows_launch.h"

#include <fmt/format.h>

#include "generator/block_scaled/block_operator.h"
#include "generator/launch_limits.h"
#include "generator/operator_words.h"
#include "generator/words.h"
#include "tessera/row_chain.h"

namespace tessera {

namespace {

constexpr std::int64_t kMaxRows = kMaxExtent;
constexpr std::int64_t kMaxPageSize = 1 << 20;

struct LaunchWriter {
  const rows::Config& c;
  LaunchPlan launch;
  LaunchStep step;

  void size(std::string name, std::int64_t min, std::int64_t max, std::optional<Expression> value, std::string help) {
    launch.sizes.push_back({std::move(name), min, max, std::move(value), std::move(help)});
  }
  void buffer(std::string name, BufferRole role, std::string_view dtype, std::vector<Expression> shape,
              std::vector<Expression> strides, int alignment) {
    step.parameters.push_back(
        {.name = name, .kind = ParameterKind::pointer, .value = {}, .source = name, .offset_bytes = {}});
    launch.buffers.push_back({.name = std::move(name),
                              .role = role,
                              .dtype = std::string(dtype),
                              .shape = std::move(shape),
                              .strides = std::move(strides),
                              .alignment = alignment,
                              .is_optional = false});
  }
  void parameter(const std::string& name, ParameterKind kind) {
    step.parameters.push_back(
        {.name = name, .kind = kind, .value = Expression::parse(name), .source = {}, .offset_bytes = {}});
  }
  /// [rows, columns] with a stride of rows that is a size; 16 bytes are loaded and stored at a time.
  void strided_rows(const std::string& name, const std::string& stride, BufferRole role, DType dtype,
                    const std::string& rows_size, long long columns) {
    const int elements = 16 / dtype_bytes(dtype);
    size(stride, role == BufferRole::input ? 0 : columns, kMaxStride, Expression(columns),
         fmt::format("elements of {} from one row to the next", name));
    launch.domain.push_back({.lhs = Expression::parse(stride),
                             .relation = Relation::multiple_of,
                             .rhs = Expression(elements),
                             .message = fmt::format("{} must be a multiple of {} (16 bytes)", stride, elements)});
    buffer(name, role, to_word(dtype), {Expression::parse(rows_size), Expression(columns)},
           {Expression::parse(stride), Expression(1)}, 16);
    parameter(stride, ParameterKind::i64);
  }
  /// x as values of a format, in bytes; a thread loads 8 of them at a time.
  void values_of_rows(const RowStep& dequant, const std::string& rows_size, long long bytes) {
    const int unit = dequant.is_e4m3 || value_bits(dequant.format) == 8 ? 8 : 4;
    size("x_stride_row", 0, kMaxStride, Expression(bytes), "bytes of x from one row to the next");
    launch.domain.push_back({.lhs = Expression::parse("x_stride_row"),
                             .relation = Relation::multiple_of,
                             .rhs = Expression(unit),
                             .message = fmt::format("x_stride_row must be a multiple of {} (8 values)", unit)});
    buffer("x", BufferRole::input, dequant.is_e4m3 ? "e4m3" : "u8", {Expression::parse(rows_size), Expression(bytes)},
           {Expression::parse("x_stride_row"), Expression(1)}, 8);
    parameter("x_stride_row", ParameterKind::i64);
  }
  void multiple(const std::string& stride, int elements) {
    launch.domain.push_back({.lhs = Expression::parse(stride),
                             .relation = Relation::multiple_of,
                             .rhs = Expression(elements),
                             .message = fmt::format("{} must be a multiple of {} ({} bytes)", stride, elements,
                                                    elements == 8 ? "8 or 16" : "16")});
  }
  /// [tokens, heads, columns]: rows are heads of tokens.
  void heads_of_tokens(const std::string& name, DType dtype, long long columns, BufferRole role = BufferRole::input) {
    const std::string head = name + "_stride_head", token = name + "_stride_seqlen";
    const long long least = role == BufferRole::input ? 0 : columns;
    size(head, least, kMaxStride, Expression(columns), fmt::format("elements of {} from one head to the next", name));
    size(token, least, kMaxStride, expression("heads * {}", head),
         fmt::format("elements of {} from one token to the next", name));
    for (const std::string& stride : {head, token}) multiple(stride, 16 / dtype_bytes(dtype));
    buffer(name, role, to_word(dtype),
           {Expression::parse("ceil_div(rows, heads)"), Expression::parse("heads"), Expression(columns)},
           {Expression::parse(token), Expression::parse(head), Expression(1)}, 16);
    parameter(head, ParameterKind::i64);
    parameter(token, ParameterKind::i64);
  }
  /// [pages, page_size, heads, columns]; dense if nothing else is said.
  void paged(const std::string& name, DType dtype, int columns) {
    const std::string head = name + "_stride_head", token = name + "_stride_seqlen", page = name + "_stride_page";
    size(head, columns, kMaxStride, Expression(columns), fmt::format("elements of {} from one head to the next", name));
    size(token, columns, kMaxStride, expression("heads * {}", columns),
         fmt::format("elements of {} from one token of a page to the next", name));
    size(page, columns, kMaxStride, expression("page_size * heads * {}", columns),
         fmt::format("elements of {} from one page to the next", name));
    for (const std::string& stride : {head, token, page}) multiple(stride, dtype == DType::f32 ? 4 : 8);
    buffer(
        name, BufferRole::output, to_word(dtype),
        {Expression::parse("pages"), Expression::parse("page_size"), Expression::parse("heads"), Expression(columns)},
        {Expression::parse(page), Expression::parse(token), Expression::parse(head), Expression(1)},
        dtype == DType::e4m3 ? 8 : 16);
    for (const std::string& stride : {page, token, head}) parameter(stride, ParameterKind::i64);
  }
  /// Rows of a step: with `heads` those of tokens.
  void rows_of_step(const RowStep& part, const std::string& name, const std::string& stride, BufferRole role,
                    DType dtype, const std::string& rows_size, long long columns) {
    if (has_heads(c.chain, part)) return heads_of_tokens(name, dtype, columns, role);
    strided_rows(name, stride, role, dtype, rows_size, columns);
  }
  void mix(const std::string& name) {
    buffer(name, BufferRole::input, "f32", {Expression::parse("rows"), Expression(kMixColumns)},
           {Expression(kMixColumns), Expression(1)}, 4);
  }
  void vector(const std::string& name, BufferRole role, std::string_view dtype, const std::string& extent,
              int alignment) {
    buffer(name, role, dtype, {Expression::parse(extent)}, {Expression(1)}, alignment);
  }
};

void add_scales(LaunchWriter& w, const RowStep& step, const std::string& name, const std::string& rows_size) {
  const int columns = width(step, w.c.columns);
  if (step.kind == RowPart::quantize) {
    const int blocks = columns / block_elements(step.format);
    if (step.form == ScaleForm::plain) {
      w.buffer(name, BufferRole::output, "u8", {Expression::parse(rows_size), Expression(blocks)},
               {Expression(blocks), Expression(1)}, 1);
      return;
    }
    const auto k_tiles = static_cast<std::int64_t>(ceil_div(blocks, kTileBlocks));
    w.buffer(name, BufferRole::output, "u8",
             {expression("ceil_div({}, {})", rows_size, kTileRows), Expression(k_tiles), Expression(32), Expression(4),
              Expression(4)},
             {Expression(k_tiles * kTileBytes), Expression(kTileBytes), Expression(16), Expression(4), Expression(1)},
             16);
    return;
  }
  if (step.block == 0) {
    w.vector(name, BufferRole::output, "f32", rows_size, 4);
    return;
  }
  const int blocks = columns / step.block;
  if (step.is_packed) {
    const Expression padded = expression("ceil_div({}, 4) * 4", rows_size);
    const auto words = static_cast<std::int64_t>(ceil_div(blocks, 4));
    w.buffer(name, BufferRole::output, "s32", {Expression(words), padded}, {padded, Expression(1)}, 4);
    w.step.parameters.push_back({.name = name + "_stride_block",
                                 .kind = ParameterKind::i64,
                                 .value = padded,
                                 .source = {},
                                 .offset_bytes = {}});
    return;
  }
  if (!step.is_column_major) {
    w.buffer(name, BufferRole::output, "f32", {Expression::parse(rows_size), Expression(blocks)},
             {Expression(blocks), Expression(1)}, 4);
    return;
  }
  const Expression padded = expression("ceil_div({}, 4) * 4", rows_size);
  w.buffer(name, BufferRole::output, "f32", {Expression(blocks), padded}, {padded, Expression(1)}, 4);
  w.step.parameters.push_back(
      {.name = name + "_stride_block", .kind = ParameterKind::i64, .value = padded, .source = {}, .offset_bytes = {}});
}

/// Scales of x as values of a format: as the sinks write them.
void add_scales_of_x(LaunchWriter& w, const RowStep& step, const RowStepNames& names) {
  const std::string rows_size = has_part(w.c.chain, RowPart::gather) ? "x_rows" : "rows";
  if (step.is_e4m3 && step.block <= 0)
    return w.vector(names.in, BufferRole::input, "f32", step.block < 0 ? "1" : rows_size, 4);
  const int of_scale = step.is_e4m3 ? step.block : block_elements(step.format), blocks = w.c.columns / of_scale;
  const Expression all_rows = Expression::parse(rows_size);
  const std::string_view dtype = step.is_e4m3 ? "f32" : "u8";
  if (step.form == ScaleForm::tile) {
    const auto k_tiles = static_cast<std::int64_t>(ceil_div(blocks, kTileBlocks));
    w.buffer(names.in, BufferRole::input, dtype,
             {expression("ceil_div({}, {})", rows_size, kTileRows), Expression(k_tiles), Expression(32), Expression(4),
              Expression(4)},
             {Expression(k_tiles * kTileBytes), Expression(kTileBytes), Expression(16), Expression(4), Expression(1)},
             16);
  } else if (step.is_column_major) {
    const Expression padded = expression("ceil_div({}, 4) * 4", rows_size);
    w.buffer(names.in, BufferRole::input, dtype, {Expression(blocks), padded}, {padded, Expression(1)}, 4);
    w.step.parameters.push_back(
        {.name = names.in_stride, .kind = ParameterKind::i64, .value = padded, .source = {}, .offset_bytes = {}});
  } else {
    w.buffer(names.in, BufferRole::input, dtype, {all_rows, Expression(blocks)}, {Expression(blocks), Expression(1)},
             step.is_e4m3 ? 4 : 1);
  }
  if (step.has_global) w.vector(names.in2, BufferRole::input, "f32", "1", 4);
}

/// Of a page with page_size tokens.
Expression page_bytes(RowCache cache) {
  const int token = cache_layout(cache).token_bytes + cache_layout(cache).tail_bytes, unit = cache_page_unit(cache);
  return expression("ceil_div(page_size * {}, {}) * {}", token, unit, unit);
}

/// Parts of sums, [parts, rows, 24] and [parts, rows].
void add_parts(LaunchWriter& w, const std::string& product, const std::string& squares, BufferRole role,
               const Expression& parts) {
  w.buffer(product, role, "f32", {parts, Expression::parse("rows"), Expression(kMixColumns)},
           {expression("rows * {}", kMixColumns), Expression(kMixColumns), Expression(1)}, 16);
  w.buffer(squares, role, "f32", {parts, Expression::parse("rows")}, {Expression::parse("rows"), Expression(1)}, 4);
}

void add_product(LaunchWriter& w, const RowStepNames& names) {
  const std::int64_t columns = std::int64_t{kStreams} * w.c.columns;
  w.buffer(names.in3, BufferRole::input, "f32", {Expression(kMixColumns), Expression(columns)},
           {Expression(columns), Expression(1)}, 16);
  add_parts(w, names.out2, names.out3, BufferRole::output, Expression(rows::parts_of_product(w.c.columns)));
}

void add_totals(LaunchWriter& w, const RowStepNames& names) {
  w.size("parts", 1, kMaxParts, Expression(rows::parts_of_product(w.c.columns)),
         "parts of product and sum_squares, which are added");
  add_parts(w, names.in, names.in2, BufferRole::input, Expression::parse("parts"));
  w.vector(names.in3, BufferRole::input, "f32", std::to_string(kMixColumns), 4);
  w.vector(names.in4, BufferRole::input, "f32", "3", 4);
  w.buffer(names.out, BufferRole::output, "f32", {Expression::parse("rows"), Expression(kMixColumns)},
           {Expression(kMixColumns), Expression(1)}, 16);
  w.parameter("parts", ParameterKind::i32);
}

void add_step(LaunchWriter& w, const RowStep& step, const RowStepNames& names) {
  const int columns = width(step, w.c.columns);
  const std::string rows_size = step.is_placed ? "placed_rows" : "rows";
  switch (step.kind) {
    case RowPart::residual:
      w.rows_of_step(step, names.in, names.in_stride, BufferRole::input, w.c.dtype, "rows", columns);
      if (step.is_stored)
        w.rows_of_step(step, names.out, names.out_stride, BufferRole::output, w.c.dtype, "rows", columns);
      break;
    case RowPart::join:
      w.rows_of_step(step, names.in, names.in_stride, BufferRole::input, w.c.dtype,
                     has_part(w.c.chain, RowPart::gather) ? "x_rows" : "rows", columns);
      break;
    case RowPart::rope:
      if (!step.has_table) break;
      w.buffer(names.in, BufferRole::input, "f32", {Expression::parse("table_rows"), Expression(columns)},
               {Expression(columns), Expression(1)}, 16);
      if (names.in == "rope_table") w.parameter("table_rows", ParameterKind::i32);  // all tables have as many
      break;
    case RowPart::combine:
      for (const std::string& name : {names.in, names.in2})
        if (!name.empty())
          w.buffer(name, BufferRole::input, name == names.in ? "s32" : "f32",
                   {Expression::parse("rows"), Expression(step.block)}, {Expression(step.block), Expression(1)}, 4);
      break;
    case RowPart::compress: {
      const long long of_row = source_columns(w.c.chain, columns);
      const int tokens = compressed_tokens(step);
      w.strided_rows(names.in, names.in_stride, BufferRole::input, w.c.dtype, "x_rows", of_row);
      w.buffer(names.in2, BufferRole::input, "f32", {Expression(step.block), Expression(of_row)},
               {Expression(of_row), Expression(1)}, 16);
      w.buffer(names.in3, BufferRole::input, "s32", {Expression::parse("rows"), Expression(tokens)},
               {Expression(tokens), Expression(1)}, 4);
      break;
    }
    case RowPart::dequant:
      add_scales_of_x(w, step, names);
      break;
    case RowPart::mhc_pre:
      step.has_product ? add_totals(w, names) : w.mix(names.in);
      break;
    case RowPart::mhc_post:
      w.strided_rows(names.in, names.in_stride, BufferRole::input, w.c.dtype, "rows", kStreams * w.c.columns);
      w.strided_rows(names.out, names.out_stride, BufferRole::output, w.c.dtype, "rows", kStreams * w.c.columns);
      w.mix(names.in2);
      step.has_product ? add_product(w, names) : w.mix(names.in3);
      break;
    case RowPart::cache: {
      const Expression bytes = page_bytes(step.cache);
      w.size(names.out_stride, 0, kMaxStride, bytes, fmt::format("bytes from one page of {} to the next", names.out));
      w.launch.domain.push_back({.lhs = Expression::parse(names.out_stride),
                                 .relation = Relation::multiple_of,
                                 .rhs = Expression(16),
                                 .message = fmt::format("{} must be a multiple of 16", names.out_stride)});
      w.launch.domain.push_back({.lhs = Expression::parse(names.out_stride),
                                 .relation = Relation::at_least,
                                 .rhs = bytes,
                                 .message = fmt::format("{} must be at least the bytes of a page", names.out_stride)});
      w.buffer(names.out, BufferRole::output, "u8", {Expression::parse("pages"), bytes},
               {Expression::parse(names.out_stride), Expression(1)}, 16);
      w.parameter(names.out_stride, ParameterKind::i64);
      break;
    }
    case RowPart::mhc_mix:
      w.vector(names.in, BufferRole::input, "f32", "rows", 4);
      w.vector(names.in2, BufferRole::input, "f32", std::to_string(kMixColumns), 4);
      w.vector(names.in3, BufferRole::input, "f32", "3", 4);
      break;
    case RowPart::factor:
      w.vector(names.in, BufferRole::input, "f32", "rows", 4);
      break;
    case RowPart::rmsnorm:
    case RowPart::layernorm:
      for (const std::string& name : {names.in, names.in2})
        if (!name.empty()) w.vector(name, BufferRole::input, to_word(w.c.dtype), std::to_string(columns), 16);
      break;
    case RowPart::store:
      if (step.is_paged) {
        w.paged(names.out, stored_type(step, w.c.dtype), columns);
        break;
      }
      w.rows_of_step(step, names.out, names.out_stride, step.is_added ? BufferRole::in_out : BufferRole::output,
                     stored_type(step, w.c.dtype), rows_size, columns);
      break;
    case RowPart::quantize: {
      const int bytes = static_cast<int>(value_bytes(step.format, columns));
      w.buffer(names.out, BufferRole::output, "u8", {Expression::parse(rows_size), Expression(bytes)},
               {Expression(bytes), Expression(1)}, 8);
      add_scales(w, step, names.out2, rows_size);
      if (step.has_global) w.vector(names.in, BufferRole::input, "f32", "1", 4);
      break;
    }
    case RowPart::scaled_8:
      if (step.is_paged) {
        w.paged(names.out, DType::e4m3, columns);
        w.vector(names.in, BufferRole::input, "f32", "1", 4);
        break;
      }
      w.buffer(names.out, BufferRole::output, "e4m3", {Expression::parse(rows_size), Expression(columns)},
               {Expression(columns), Expression(1)}, 8);
      if (!names.out2.empty()) add_scales(w, step, names.out2, rows_size);
      if (!names.in.empty()) w.vector(names.in, BufferRole::input, "f32", "1", 4);
      break;
    default:
      break;
  }
}

}  // namespace

LaunchPlan rows_launch(const rows::Config& c, const std::string& arch, const std::string& kernel) {
  LaunchWriter w{c, {}, {}};
  w.launch.op = "rows";
  w.launch.arch = arch;
  w.step.entry = kernel;
  w.size("rows", 0, kMaxRows, {}, "rows of the results");
  const bool is_gathered = has_part(c.chain, RowPart::gather), has_named_rows = rows::has_named_rows(c.chain);
  if (has_named_rows) w.size("x_rows", 0, kMaxRows, Expression::parse("rows"), "rows of x");
  const bool is_paged = has_paged_sink(c.chain), has_pages = is_paged || has_part(c.chain, RowPart::cache);
  const bool are_heads = has_heads(c.chain), takes_heads = are_heads || has_part(c.chain, RowPart::rope);
  if (takes_heads)
    w.size("heads", 1, kMaxHeads, Expression(1),
           is_paged    ? "heads of a token: rows that share a slot and a position, one after the other"
           : are_heads ? "heads of a token: rows that share a position, one after the other"
                       : "rows that share a position, one after the other");
  if (has_rope_table(c.chain)) w.size("table_rows", 0, kMaxRows, {}, "positions that rope's table has");
  if (are_heads)
    w.launch.domain.push_back({.lhs = Expression::parse("rows"),
                               .relation = Relation::multiple_of,
                               .rhs = Expression::parse("heads"),
                               .message = "rows must be a multiple of heads"});
  if (has_placed_sink(c.chain))
    w.size("placed_rows", 0, kMaxRows, Expression::parse("rows"), "rows of the tensors that rows are scattered to");
  if (has_pages) {
    w.size("pages", 0, kMaxRows, {}, "pages of the cache");
    w.size("page_size", 1, kMaxPageSize, Expression(64), "tokens of a page");
    w.launch.domain.push_back({.lhs = Expression::parse("pages * page_size"),
                               .relation = Relation::at_most,
                               .rhs = Expression(kMaxRows),
                               .message = fmt::format("a cache has at most {} tokens", kMaxRows)});
  }
  if (are_heads) {
    w.heads_of_tokens("x", c.dtype, source_columns(c.chain, c.columns));
  } else if (source_of(c.chain) == RowPart::dequant) {
    w.values_of_rows(c.chain.steps[source_step(c.chain)], has_named_rows ? "x_rows" : "rows",
                     source_columns(c.chain, c.columns));
  } else {
    w.strided_rows("x", "x_stride_row", BufferRole::input, c.dtype, has_named_rows ? "x_rows" : "rows",
                   source_columns(c.chain, c.columns));
  }
  if (is_gathered) w.vector("indices", BufferRole::input, "s32", "rows", 4);
  if (has_named_rows) w.parameter("x_rows", ParameterKind::i32);
  if (has_part(c.chain, RowPart::rope)) w.vector("positions", BufferRole::input, "s32", "ceil_div(rows, heads)", 4);
  if (takes_heads) w.parameter("heads", ParameterKind::i32);
  if (has_slots(c.chain)) w.vector("slots", BufferRole::input, "s32", is_paged ? "ceil_div(rows, heads)" : "rows", 4);
  if (has_placed_sink(c.chain)) w.parameter("placed_rows", ParameterKind::i32);
  if (has_pages) {
    w.step.parameters.push_back({.name = "cache_slots",
                                 .kind = ParameterKind::i32,
                                 .value = Expression::parse("pages * page_size"),
                                 .source = {},
                                 .offset_bytes = {}});
    w.parameter("page_size", ParameterKind::i32);
  }
  if (has_row_norm(c.chain)) {
    w.launch.scalars.push_back({.name = "eps", .default_value = 1e-6, .help = "added to the mean of squares"});
    w.step.parameters.push_back(
        {.name = "eps", .kind = ParameterKind::f32, .value = {}, .source = "eps", .offset_bytes = {}});
  }
  w.parameter("rows", ParameterKind::i32);
  const std::vector<RowStepNames> names = row_step_names(c.chain);
  for (std::size_t i = 0; i < names.size(); ++i) add_step(w, c.chain.steps[i], names[i]);
  w.step.grid[0] =
      c.ctas_of_row > 1 ? expression("rows * {}", c.ctas_of_row) : expression("ceil_div(rows, {})", c.rows_of_cta);
  if (begins_with_product(c.chain))
    w.step.grid[0] = expression("ceil_div(rows, {}) * {} + {}", rows::rows_of_mix(c) * c.ctas_of_row, c.ctas_of_row,
                                w.step.grid[0].text());
  if (ends_in_product(c.chain)) {
    w.step.grid[0] = Expression(rows::parts_of_product(c.columns));
    w.step.grid[1] = expression("min(ceil_div(rows, {}), {})", c.rows_of_cta, rows::most_turns(c));
  }
  w.step.cluster[0] = static_cast<std::uint32_t>(c.ctas_of_row);
  w.step.block[0] = static_cast<std::uint32_t>(rows::threads_of_cta(c));
  w.step.dynamic_smem_bytes = rows::smem_bytes(c);
  w.step.programmatic_stream_serialization = true;
  w.launch.steps.push_back(std::move(w.step));
  return std::move(w.launch);
}

}  // namespace tessera
