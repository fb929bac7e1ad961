// One operand of a product as it is stored, element by element: what a kernel that takes a wrong element or scale
// reads.
#pragma once

#include <cstdint>
#include <span>

#include "reference/tensor.h"
#include "tessera/spec/block_scale.h"
#include "tessera/spec/operand_type.h"

namespace tessera::reference {

struct OperandSource {
  OperandType type = OperandType::bf16;
  TensorView values;                  ///< [l, rows, k], k last; of packed values [l, rows, bytes]
  std::span<const std::byte> scales;  ///< block-scaled types only
  ScaleForm form = ScaleForm::tile;
  std::int64_t k = 0;
  std::int64_t scales_begin = 0;  ///< byte of `scales` where this operand's begin: others lie beside them

  std::int64_t matrices() const { return values.shape[0]; }
  std::int64_t rows() const { return values.shape[1]; }
  std::int64_t block() const { return block_elements(block_format(type)); }  ///< block-scaled types only
  std::int64_t blocks() const { return k / block(); }

  /// In float64; tf32 without its low 13 bits.
  double value(std::int64_t matrix, std::int64_t row, std::int64_t element) const;
  /// Of packed values: the code that begins with bit `bit` of a row, 0 where it reaches outside of the row.
  std::uint8_t code_at(std::int64_t matrix, std::int64_t row, std::int64_t bit) const;
  std::int64_t scale_place(std::int64_t matrix, std::int64_t row, std::int64_t of_block) const {
    return scale_offset(form, rows(), blocks(), matrix, row, of_block);
  }
  /// What the byte at `place` stands for, NaN for one outside of all scales; as a type of scales, which may be the
  /// wrong one.
  double scale_at(std::int64_t place, ScaleType as) const;
  double scale_at(std::int64_t place) const { return scale_at(place, scale_type(block_format(type))); }
};

}  // namespace tessera::reference
