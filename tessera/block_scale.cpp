#include "tessera/block_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "base/assert.h"
#include "generator/words.h"
#include "reference/quantize.h"
#include "tessera/error.h"

namespace tessera {

namespace {

[[noreturn]] void refuse(std::string message) { throw Error(ErrorKind::usage, std::move(message)); }

std::string shape_text(std::int64_t l, std::int64_t rows, std::int64_t k) {
  return fmt::format("[{}, {}, {}]", l, rows, k);
}

const char* form_text(ScaleForm form) { return form == ScaleForm::plain ? "in the plain form" : "in tiles"; }

reference::Tensor tensor_of(std::span<const float> x, std::int64_t l, std::int64_t rows, std::int64_t k) {
  reference::Tensor tensor(DType::f32, {l, rows, k});
  if (x.size_bytes() != tensor.bytes.size())
    refuse(fmt::format("x has {} elements: {} has {}", x.size(), shape_text(l, rows, k), tensor.bytes.size() / 4));
  std::memcpy(tensor.bytes.data(), x.data(), x.size_bytes());
  return tensor;
}

}  // namespace

void require_scaled(const ScaledDescription& given, BlockFormat format, ScaleForm form) {
  const Verdict<PairingRule> verdict = why_unpaired(given.value_type, given.scale_type, given.block);
  if (verdict.rule == PairingRule::value_without_format)
    refuse(fmt::format("values {} under scales {}: {} scales go with {} values", to_word(given.value_type),
                       to_word(given.scale_type), to_word(given.scale_type), to_word(ValueType::e2m1)));
  if (verdict.rule == PairingRule::block_of_other_scale)
    refuse(fmt::format("scales {}, one for {}: {} goes with blocks of {}", to_word(given.scale_type), given.block,
                       to_word(given.scale_type), verdict.bound));
  if (given.value_type != value_type(format) || given.scale_type != scale_type(format))
    refuse(fmt::format("values {} under scales {} where {} is declared, which has {} under {}",
                       to_word(given.value_type), to_word(given.scale_type), to_word(format),
                       to_word(value_type(format)), to_word(scale_type(format))));
  if (given.form != form)
    refuse(fmt::format("scales {} where {} are declared: convert_scales makes them", form_text(given.form),
                       form == ScaleForm::plain ? "plain ones" : "tiles"));
  if (given.l < 0 || given.rows < 0 || given.k < 0 || given.k % given.block != 0)
    refuse(fmt::format("{}: extents of at least 0, the last a multiple of {}, needed",
                       shape_text(given.l, given.rows, given.k), given.block));
  const std::int64_t pitch = given.pitch == 0 ? given.k : given.pitch;
  if (pitch < given.k || pitch % values_of_whole_bytes(format) != 0)
    refuse(fmt::format("rows that lie {} elements apart: at least k = {} and whole bytes needed", pitch, given.k));
  const std::int64_t values = value_bytes(format, given.l * given.rows * pitch);
  if (given.values_bytes != values)
    refuse(fmt::format("values of {} bytes: {} of {}{} takes {}", given.values_bytes,
                       shape_text(given.l, given.rows, given.k), to_word(format),
                       pitch == given.k ? "" : fmt::format(", rows {} elements apart,", pitch), values));
  const std::int64_t scales = scale_bytes(form, given.l, given.rows, given.k / given.block);
  if (given.scales_bytes != scales)
    refuse(fmt::format("scales of {} bytes: {} {} takes {}", given.scales_bytes,
                       shape_text(given.l, given.rows, given.k / given.block), form_text(form), scales));
}

HostScaled quantize_on_host(std::span<const float> x, std::int64_t l, std::int64_t rows, std::int64_t k,
                            BlockFormat format, ScaleForm form, float g, ScaleRounding rounding) {
  reference::Quantized made = reference::quantize(tensor_of(x, l, rows, k).view(), {format, form, rounding, g});
  return {std::move(made.values), std::move(made.scales)};
}

std::vector<float> dequantize_on_host(const HostScaled& scaled, std::int64_t l, std::int64_t rows, std::int64_t k,
                                      BlockFormat format, ScaleForm form, float g) {
  const reference::Tensor y =
      reference::dequantize(scaled.values, scaled.scales, {format, form, ScaleRounding::up, g}, DType::f32, l, rows, k);
  std::vector<float> out(static_cast<std::size_t>(y.elements()));
  std::memcpy(out.data(), y.bytes.data(), y.bytes.size());
  return out;
}

float global_scale_on_host(std::span<const float> x) {
  return reference::global_scale_of(tensor_of(x, 1, 1, static_cast<std::int64_t>(x.size())).view());
}

std::vector<std::uint8_t> convert_scales_on_host(std::span<const std::uint8_t> scales, ScaleForm from, ScaleForm to,
                                                 std::int64_t l, std::int64_t rows, std::int64_t blocks) {
  return reference::convert_scales(scales, from, to, l, rows, blocks);
}

std::int64_t padded_pitch(BlockFormat format, BlockFormat other, std::int64_t k) {
  if (value_bits(format) == 8) return round_up(k, 16);
  return round_up(k, value_bits(format) == 6 || value_bits(other) != 4 ? 128 : 32);
}

HostScaled pad_on_host(const HostScaled& scaled, std::int64_t l, std::int64_t rows, std::int64_t k, BlockFormat format,
                       ScaleForm form, std::int64_t new_k, std::int64_t pitch) {
  require_scaled(
      {value_type(format), scale_type(format), block_elements(format), form,
       static_cast<std::int64_t>(scaled.values.size()), static_cast<std::int64_t>(scaled.scales.size()), l, rows, k},
      format, form);
  const int block = block_elements(format);
  if (new_k < k || new_k % block != 0 || pitch < new_k || pitch % values_of_whole_bytes(format) != 0)
    refuse(
        fmt::format("k {} padded to {} in rows {} elements apart: a multiple of {} from k on, and a pitch of at least "
                    "that and whole bytes needed",
                    k, new_k, pitch, block));
  HostScaled padded;
  padded.values.assign(static_cast<std::size_t>(value_bytes(format, l * rows * pitch)), 0);
  for (std::int64_t row = 0; row < l * rows && k > 0; ++row)
    std::memcpy(padded.values.data() + value_bytes(format, row * pitch),
                scaled.values.data() + value_bytes(format, row * k), static_cast<std::size_t>(value_bytes(format, k)));
  const std::int64_t blocks = k / block, new_blocks = new_k / block;
  if (new_blocks == blocks) {
    padded.scales = scaled.scales;
    return padded;
  }
  padded.scales.assign(static_cast<std::size_t>(scale_bytes(form, l, rows, new_blocks)), 0);
  for (std::int64_t i = 0; i < l; ++i)
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t b = 0; b < blocks; ++b)
        padded.scales[static_cast<std::size_t>(scale_offset(form, rows, new_blocks, i, row, b))] =
            scaled.scales[static_cast<std::size_t>(scale_offset(form, rows, blocks, i, row, b))];
  return padded;
}

namespace block_scale {

void require_no_pitch(const char* what, std::int64_t k, std::int64_t pitch) {
  if (pitch != 0 && pitch != k)
    refuse(fmt::format("{} has rows {} elements apart: this kernel takes dense ones, {} apart", what, pitch, k));
}

void launch(Kernel& kernel, Device& device, Stream stream, std::span<const Argument> sizes,
            std::span<const Buffer> buffers, double alpha, DevicePointer workspace) {
  const LaunchPlan& plan = kernel.plan().launch;
  std::array<std::int64_t, 8> ordered_sizes{};
  std::array<DevicePointer, 8> ordered_buffers{};
  TESSERA_ASSERT(plan.sizes.size() <= ordered_sizes.size() && plan.buffers.size() <= ordered_buffers.size(),
                 "more arguments than any block-scaled plan has");
  for (std::size_t i = 0; i < plan.sizes.size(); ++i) {
    const auto found =
        std::find_if(sizes.begin(), sizes.end(), [&](const Argument& a) { return plan.sizes[i].name == a.name; });
    ordered_sizes[i] = found == sizes.end() ? kUseDefault : found->size;
  }
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const auto found =
        std::find_if(buffers.begin(), buffers.end(), [&](const Buffer& b) { return plan.buffers[i].name == b.name; });
    TESSERA_ASSERT(found != buffers.end(), plan.buffers[i].name);
    ordered_buffers[i] = found->pointer;
  }
  LaunchArguments arguments;
  arguments.sizes = {ordered_sizes.data(), plan.sizes.size()};
  arguments.scalars = {&alpha, plan.scalars.size()};
  arguments.buffers = {ordered_buffers.data(), plan.buffers.size()};
  arguments.workspace = workspace;
  arguments.workspace_bytes = workspace == 0 ? 0 : kAmaxWorkspaceBytes;
  kernel.launch(device, stream, arguments);
}

void require_dense(const char* what, std::int64_t found, std::int64_t l, std::int64_t rows, std::int64_t k,
                   DType dtype) {
  const std::int64_t wanted = l * rows * k * dtype_bytes(dtype);
  if (found != wanted)
    refuse(
        fmt::format("{} of {} bytes: {} of {} takes {}", what, found, shape_text(l, rows, k), to_word(dtype), wanted));
}

void require_same(const char* what, std::int64_t a, std::int64_t b) {
  if (a != b) refuse(fmt::format("{} differs: {} and {}", what, a, b));
}

}  // namespace block_scale

}  // namespace tessera
