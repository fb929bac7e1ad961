#include "generator/attention/nvfp4_buffers.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>
#include <vector>

#include "spec/nvfp4_units.h"

namespace tessera {

namespace {

BufferSpec f32_buffer(const char* name, BufferRole role, std::vector<std::string> shape) {
  BufferSpec buffer{.name = name, .role = role, .dtype = "f32", .shape = {}, .strides = {}};
  std::string stride = "1";
  for (auto extent = shape.rbegin(); extent != shape.rend(); ++extent) {
    buffer.shape.insert(buffer.shape.begin(), Expression::parse(*extent));
    buffer.strides.insert(buffer.strides.begin(), Expression::parse(stride));
    stride = stride == "1" ? "(" + *extent + ")" : fmt::format("({}) * {}", *extent, stride);
  }
  return buffer;
}

/// `all`: what sequences have together.
std::string blocks_text(bool is_ragged, const char* all, const char* seqlen, int rows) {
  return is_ragged ? fmt::format("(ceil_div({}, {}) + batch)", all, rows)
                   : fmt::format("batch * ceil_div({}, {})", seqlen, rows);
}

}  // namespace

std::string nvfp4_query_blocks(Nvfp4Layouts layouts, int rows) {
  return blocks_text(layouts.has_ragged_queries, "seqlen_q", "seqlen_q", rows);
}
std::string nvfp4_key_blocks(Nvfp4Layouts layouts) {
  return blocks_text(layouts.has_ragged_keys, "tokens_k", "seqlen_k", nvfp4::kBlockRows);
}

BufferSpec nvfp4_units(const char* name, BufferRole role, int head_dim, Nvfp4Layouts layouts) {
  const bool is_q = name == std::string_view("q");
  const int bytes = is_q ? nvfp4::q_block_bytes(head_dim) : nvfp4::key_block_bytes(head_dim);
  const std::string blocks = is_q ? nvfp4_query_blocks(layouts, nvfp4::kBlockRows) : nvfp4_key_blocks(layouts);
  return {.name = name,
          .role = role,
          .dtype = "u8",
          .shape = {Expression::parse(is_q ? "heads_q" : "heads_kv"), Expression::parse(blocks), Expression(bytes)},
          .strides = {Expression::parse(fmt::format("{} * {}", blocks, bytes)), Expression(bytes), Expression(1)}};
}

BufferSpec nvfp4_delta_s(BufferRole role, Nvfp4Layouts layouts) {
  return f32_buffer("delta_s", role,
                    {"heads_q", nvfp4_query_blocks(layouts, nvfp4::kBlockRows),
                     fmt::format("ceil_div(seqlen_k, {0}) * {0}", nvfp4::kBlockRows)});
}

BufferSpec nvfp4_statistic(const char* name, BufferRole role, Nvfp4Layouts layouts) {
  BufferSpec buffer = layouts.has_ragged_queries ? f32_buffer(name, role, {"heads_q", "seqlen_q"})
                                                 : f32_buffer(name, role, {"batch", "heads_q", "seqlen_q"});
  buffer.alignment = 4;
  return buffer;
}

BufferSpec nvfp4_numbers(const char* name, const char* count) {
  return {.name = name,
          .role = BufferRole::input,
          .dtype = "s32",
          .shape = {Expression::parse(count)},
          .strides = {Expression(1)},
          .alignment = 4};
}

}  // namespace tessera
