// Inputs and verdicts of the block-scaled operators, by the names of their buffers: what `tessera run` and the tests
// have in common. Quantised bytes are compared bit for bit; padding of the tile form, where it is an input, holds NaN
// codes, which must not reach a result.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "reference/comparison.h"
#include "reference/quantize.h"
#include "reference/random.h"
#include "reference/tensor.h"
#include "tessera/spec/block_scale.h"

namespace tessera::reference {

using Tensors = std::map<std::string, Tensor>;

struct BlockRun {
  BlockFormat format = BlockFormat::nvfp4;
  ScaleForm form = ScaleForm::plain;
  ScaleRounding rounding = ScaleRounding::up;
  GlobalScale global_scale = GlobalScale::none;
  DType dtype = DType::bf16;
  std::int64_t l = 1, rows = 0, k = 0;
  std::int64_t b_rows = 1;                ///< gemv only
  std::optional<BlockFormat> b_format{};  ///< gemv only: of b, where it is not a's
  std::uint64_t seed = 1;
  float given_scale = 0;  ///< of GlobalScale::given; 0: random
};

enum class Range : std::uint8_t {
  normal,    ///< mean 0, variance 1
  uniform,   ///< [-1, 1)
  integer,   ///< small whole numbers: results without rounding
  standard,  ///< as normal, with blocks of zeros and scales of 0, and steep rows among flat ones
  edge,      ///< quantize: elements beside and on the boundaries at which values round; elsewhere as normal
  wide       ///< blocks of any magnitude that the type has, with zeros, infinities and NaN among them
};

/// x, and global_scale where it is given.
Tensors quantize_inputs(const BlockRun& run, Range range);
/// outputs: values, scales, and global_scale of amax.
Comparison check_quantize(const BlockRun& run, const Tensors& inputs, const Tensors& outputs);

/// values and scales, any codes; global_scale where it is given.
Tensors dequantize_inputs(const BlockRun& run, Range range);
Comparison check_dequantize(const BlockRun& run, const Tensors& inputs, const Tensors& outputs);

/// from: scales of [l, rows, k] with k blocks, in the form that run.form is not.
Tensors convert_scales_inputs(const BlockRun& run);
Comparison check_convert_scales(const BlockRun& run, const Tensors& inputs, const Tensors& outputs);

/// a, sfa, b, sfb, a_global_scale, b_global_scale; rows is m.
Tensors gemv_inputs(const BlockRun& run, Range range);
Comparison check_gemv(const BlockRun& run, const Tensors& inputs, const Tensors& outputs, double alpha);

}  // namespace tessera::reference
