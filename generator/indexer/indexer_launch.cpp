#include "generator/indexer/indexer_launch.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "generator/block_scaled/block_operator.h"
#include "generator/operator_words.h"
#include "generator/words.h"

namespace tessera::indexer {

namespace {

constexpr std::int64_t kMostStride = std::int64_t{1} << 40;

Expression parsed(std::string_view text) { return Expression::parse(text); }

/// Queries of all sequences, in words of sizes.
std::string queries(const Config& c) {
  return indexer::is_paged(c) ? fmt::format("batch * {}", c.next_n) : std::string("m");
}

void add_sizes(const Config& c, LaunchPlan& launch) {
  const auto size = [&](const char* name, std::int64_t min, std::int64_t max, std::optional<Expression> value,
                        const char* help) {
    launch.sizes.push_back({name, min, max, std::move(value), help});
  };
  const auto multiple = [&](const char* name, int of) {
    launch.domain.push_back({.lhs = parsed(name),
                             .relation = Relation::multiple_of,
                             .rhs = Expression(of),
                             .message = fmt::format("{} must be a multiple of {} (16 bytes)", name, of)});
  };
  if (indexer::is_paged(c)) {
    size("batch", 0, kMaxExtent / indexer::kMaxNextN, {}, "sequences");
    size("pages", 0, kMaxExtent, {}, "pages of the cache");
    size("max_pages", 0, kMaxExtent, {}, "entries of a sequence in the table of pages");
    size("columns", 0, kMaxExtent, expression("min(max_pages * {}, {})", c.page_size, kMaxExtent),
         "columns of scores: keys of the longest sequence");
  } else {
    size("m", 0, kMaxExtent, {}, "queries");
    size("n", 0, kMaxExtent, {}, "keys");
    size("columns", 0, kMaxExtent, parsed("n"),
         c.score_columns == ScoreColumns::keys ? "columns of scores: keys" : "columns of scores: keys of a range");
  }
  const int row = indexer::row_bytes(c);
  const bool is_fp4 = indexer::is_fp4(c);
  size("q_stride_head", 0, kMostStride, Expression(row),
       is_fp4 ? "bytes of q from one head to the next" : "elements of q from one head to the next");
  size("q_stride_m", 0, kMostStride, Expression(c.heads * row),
       is_fp4 ? "bytes of q from one query to the next" : "elements of q from one query to the next");
  size("weights_stride_m", 0, kMostStride, Expression(c.heads), "elements of weights from one query to the next");
  if (is_fp4)
    size("q_scales_stride_m", 0, kMostStride, Expression(4 * c.heads), "bytes of q_scales from one query to the next");
  if (indexer::is_paged(c)) {
    size("cache_stride_page", 0, kMostStride, Expression(indexer::page_bytes(c)), "bytes from one page to the next");
    size("block_table_stride_batch", 0, kMostStride, parsed("max_pages"),
         "elements of block_table from one sequence to the next");
  } else {
    size("k_stride_n", 0, kMostStride, Expression(row),
         is_fp4 ? "bytes of k from one key to the next" : "elements of k from one key to the next");
  }
  size("scores_stride_m", 1, kMostStride, parsed("max(columns, 1)"), "elements of scores from one query to the next");
  size("num_sms", 1, 65536, {}, "multiprocessors of the device: filled in by the launcher");
  multiple("q_stride_head", 16);
  multiple("q_stride_m", 16);
  multiple("weights_stride_m", 4);
  if (is_fp4) multiple("q_scales_stride_m", 16);
  multiple(indexer::is_paged(c) ? "cache_stride_page" : "k_stride_n", 16);
}

void add_buffers(const Config& c, LaunchPlan& launch) {
  const auto buffer = [&](const char* name, BufferRole role, std::string_view dtype, std::vector<Expression> shape,
                          std::vector<Expression> strides, int alignment) {
    launch.buffers.push_back({.name = name,
                              .role = role,
                              .dtype = std::string(dtype),
                              .shape = std::move(shape),
                              .strides = std::move(strides),
                              .alignment = alignment,
                              .is_optional = false});
  };
  const Expression one(1), four(4), heads(c.heads), dim(indexer::row_bytes(c)), next(c.next_n);
  const bool is_fp4 = indexer::is_fp4(c);
  const std::string_view codes = is_fp4 ? "u8" : "e4m3";
  if (indexer::is_paged(c)) {
    buffer("q", BufferRole::input, codes, {parsed("batch"), next, heads, dim},
           {expression("{} * q_stride_m", c.next_n), parsed("q_stride_m"), parsed("q_stride_head"), one}, 16);
    buffer("weights", BufferRole::input, "f32", {parsed("batch"), next, heads},
           {expression("{} * weights_stride_m", c.next_n), parsed("weights_stride_m"), one}, 16);
    if (is_fp4)
      buffer("q_scales", BufferRole::input, "u8", {parsed("batch"), next, heads, four},
             {expression("{} * q_scales_stride_m", c.next_n), parsed("q_scales_stride_m"), four, one}, 16);
    buffer("cache", BufferRole::input, "u8", {parsed("pages"), Expression(indexer::page_bytes(c))},
           {parsed("cache_stride_page"), one}, 16);
    buffer("block_table", BufferRole::input, "s32", {parsed("batch"), parsed("max_pages")},
           {parsed("block_table_stride_batch"), one}, 4);
    if (c.context_lengths == ContextLengths::query) {
      buffer("context_lens", BufferRole::input, "s32", {parsed("batch"), next}, {next, one}, 4);
    } else {
      buffer("context_lens", BufferRole::input, "s32", {parsed("batch")}, {one}, 4);
    }
  } else {
    buffer("q", BufferRole::input, codes, {parsed("m"), heads, dim},
           {parsed("q_stride_m"), parsed("q_stride_head"), one}, 16);
    buffer("weights", BufferRole::input, "f32", {parsed("m"), heads}, {parsed("weights_stride_m"), one}, 16);
    if (is_fp4)
      buffer("q_scales", BufferRole::input, "u8", {parsed("m"), heads, four}, {parsed("q_scales_stride_m"), four, one},
             16);
    buffer("k", BufferRole::input, codes, {parsed("n"), dim}, {parsed("k_stride_n"), one}, 16);
    if (is_fp4) {
      buffer("k_scales", BufferRole::input, "u8", {parsed("n"), four}, {four, one}, 16);
    } else {
      buffer("k_scales", BufferRole::input, "f32", {parsed("n")}, {one}, 16);
    }
    buffer("ks", BufferRole::input, "s32", {parsed("m")}, {one}, 4);
    buffer("ke", BufferRole::input, "s32", {parsed("m")}, {one}, 4);
  }
  buffer("scores", BufferRole::output, to_word(c.score_dtype), {parsed(queries(c)), parsed("columns")},
         {parsed("scores_stride_m"), one}, dtype_bytes(c.score_dtype));
}

void add_maps(const Config& c, LaunchPlan& launch) {
  const auto map = [&](const char* name, const char* buffer, TensorMapType type, TensorMapSwizzle swizzle,
                       std::vector<Expression> dims, std::vector<Expression> strides, std::vector<int> box) {
    TensorMapRecipe recipe;
    recipe.name = name;
    recipe.buffer = buffer;
    recipe.type = type;
    recipe.swizzle = swizzle;
    recipe.l2_promotion = TensorMapL2Promotion::l2_128b;  // 256 bytes cost boxes of 64 rows 8 % of the memory's rate
    recipe.element_strides.assign(dims.size(), 1);
    recipe.dims = std::move(dims);
    recipe.strides_bytes = std::move(strides);
    for (const int extent : box) recipe.box.push_back(static_cast<std::uint32_t>(extent));
    launch.tensor_maps.push_back(std::move(recipe));
  };
  const int row = indexer::row_bytes(c);
  const TensorMapSwizzle of_rows = row == 128  ? TensorMapSwizzle::b128
                                   : row == 64 ? TensorMapSwizzle::b64
                                               : TensorMapSwizzle::b32;
  const TensorMapType of_scales = indexer::is_fp4(c) ? TensorMapType::u32 : TensorMapType::f32;
  const Expression dim(row), heads(c.heads), rows = expression("max({}, 1)", queries(c));
  const int run = indexer::keys_of_run(c), loaded = indexer::loaded_queries(c);
  map("q", "q", TensorMapType::u8, of_rows, {dim, heads, rows}, {parsed("q_stride_head"), parsed("q_stride_m")},
      {row, c.heads, loaded});
  map("weights", "weights", TensorMapType::f32, TensorMapSwizzle::none, {heads, rows}, {parsed("weights_stride_m * 4")},
      {c.heads, loaded});
  if (indexer::is_paged(c)) {
    map("keys", "cache", TensorMapType::u8, of_rows, {dim, Expression(c.page_size), parsed("max(pages, 1)")},
        {dim, parsed("cache_stride_page")}, {row, run, 1});
    map("scales", "cache", of_scales, TensorMapSwizzle::none,
        {Expression(indexer::page_bytes(c) / 4), parsed("max(pages, 1)")}, {parsed("cache_stride_page")}, {run, 1});
  } else {
    map("keys", "k", TensorMapType::u8, of_rows, {dim, parsed("max(n, 1)")}, {parsed("k_stride_n")}, {row, run});
    map("scales", "k_scales", of_scales, TensorMapSwizzle::none, {parsed("max(n, 1)")}, {}, {run});
  }
  if (indexer::is_fp4(c))
    map("q_scales", "q_scales", of_scales, TensorMapSwizzle::none, {heads, rows}, {parsed("q_scales_stride_m")},
        {c.heads, loaded});
}

}  // namespace

LaunchPlan indexer_launch(const Config& c, const std::string& arch, const std::string& kernel) {
  LaunchPlan launch;
  launch.op = "indexer";
  launch.arch = arch;
  add_sizes(c, launch);
  add_buffers(c, launch);
  add_maps(c, launch);
  const bool is_paged = indexer::is_paged(c);
  LaunchStep step;
  step.entry = kernel;
  for (const TensorMapRecipe& map : launch.tensor_maps)
    step.parameters.push_back(
        {.name = map.name, .kind = ParameterKind::tensor_map, .value = {}, .source = map.name, .offset_bytes = {}});
  step.parameters.push_back(pointer_parameter("first", is_paged ? "block_table" : "ks"));
  step.parameters.push_back(pointer_parameter("last", is_paged ? "context_lens" : "ke"));
  step.parameters.push_back(pointer_parameter("scores", "scores"));
  step.parameters.push_back(size_parameter("scores_stride_m", ParameterKind::i64, parsed("scores_stride_m")));
  step.parameters.push_back(size_parameter("table_stride", ParameterKind::i64,
                                           is_paged ? parsed("block_table_stride_batch") : Expression(0)));
  step.parameters.push_back(size_parameter("m", ParameterKind::i32, parsed(queries(c))));
  step.parameters.push_back(size_parameter("n", ParameterKind::i32, parsed(is_paged ? "pages" : "n")));
  step.parameters.push_back(size_parameter("columns", ParameterKind::i32, parsed("columns")));
  step.parameters.push_back(
      size_parameter("max_pages", ParameterKind::i32, is_paged ? parsed("max_pages") : Expression(0)));
  step.grid[0] = expression("num_sms * min({}, 1) * min(columns, 1)", queries(c));
  step.block[0] = static_cast<std::uint32_t>(indexer::threads(c));
  step.dynamic_smem_bytes = indexer::smem_bytes(c);
  step.programmatic_stream_serialization = true;
  launch.steps.push_back(std::move(step));
  return launch;
}

}  // namespace tessera::indexer
