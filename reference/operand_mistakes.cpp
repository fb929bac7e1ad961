#include "reference/operand_mistakes.h"

#include <fmt/format.h>

#include <cstdlib>
#include <limits>
#include <utility>

#include "reference/quantize.h"

namespace tessera::reference {

namespace {

/// Of tiles padding too; what lies behind the last tile of a matrix a tensor map fills with zeros.
double scale_of(const OperandSource& o, std::int64_t matrix, std::int64_t row, std::int64_t block) {
  const bool is_tile = o.form == ScaleForm::tile;
  if (row < 0 || block < 0) return std::numeric_limits<double>::quiet_NaN();
  if (row >= (is_tile ? round_up(o.rows(), kTileRows) : o.rows()) ||
      block >= (is_tile ? round_up(o.blocks(), kTileBlocks) : o.blocks()))
    return is_tile ? 0 : std::numeric_limits<double>::quiet_NaN();
  return o.scale_at(o.scale_place(matrix, row, block));
}

/// The scale of block `f(block)` of row `g(row)`.
Fetch scale_from(std::function<std::int64_t(std::int64_t)> f, std::function<std::int64_t(std::int64_t)> g) {
  return [f = std::move(f), g = std::move(g)](const OperandSource& o, const Place& at) {
    const std::int64_t block = f ? f(at.k / o.block()) : at.k / o.block(), row = g ? g(at.row) : at.row;
    return scale_of(o, at.matrix, row, block);
  };
}
/// The scale of another row and block.
Fetch scale_moved(std::function<std::pair<std::int64_t, std::int64_t>(std::int64_t row, std::int64_t block)> f) {
  return [f = std::move(f)](const OperandSource& o, const Place& at) {
    const auto [row, block] = f(at.row, at.k / o.block());
    return scale_of(o, at.matrix, row, block);
  };
}
/// The scale at byte `f(row, block)` of its tile, of tiles of 128 rows and 4 blocks.
Fetch scale_in_tile(std::function<std::int64_t(std::int64_t row, std::int64_t block)> f) {
  return [f = std::move(f)](const OperandSource& o, const Place& at) {
    const std::int64_t block = at.k / o.block(), within = at.row % kTileRows;
    const std::int64_t tile = o.scale_place(at.matrix, at.row, block) -
                              scale_offset_in_tile(static_cast<int>(within), static_cast<int>(block % kTileBlocks));
    return o.scale_at(tile + f(within, block % kTileBlocks));
  };
}

using I = std::int64_t;

/// A list that grows by text and fetch of a scale.
struct ScaleMistakes {
  std::vector<Mistake> list;
  void add(std::string text, Fetch scale) { list.push_back({std::move(text), {}, std::move(scale)}); }
};

/// Of the right row, another block's.
void add_blocks(I of_step, ScaleMistakes& to) {
  to.add("scales of {} do not count (all are taken as 1)", [](const OperandSource&, const Place&) { return 1.0; });
  to.add(
      "every block of {} takes the scale of the first of its four: the scale id of the instruction descriptor is 0 (of "
      "mma.sync: the byte id)",
      scale_from([](I block) { return block / 4 * 4; }, {}));
  to.add("the third and fourth block of {} take the scales of the first and second: the scale id is 0 in place of 2",
         scale_from([](I block) { return block / 4 * 4 + block % 2; }, {}));
  to.add("each step of k takes the scales of its first tile of {}: the column of Tensor Memory does not move on",
         scale_from([=](I block) { return block / of_step * of_step + block % of_step % 4; }, {}));
  to.add("all steps of k take the scales of the first step of {}",
         scale_from([=](I block) { return block % of_step; }, {}));
  to.add("the second of each pair of blocks of {} takes the scale of the first",
         scale_from([](I block) { return block / 2 * 2; }, {}));
  to.add("the first of each pair of blocks of {} takes the scale of the second",
         scale_from([](I block) { return block | 1; }, {}));
  to.add("blocks of {} take the scale of the neighbour (places 2i and 2i + 1 exchanged)",
         scale_from([](I block) { return block ^ 1; }, {}));
  to.add("the four scales of {} in a word are taken in reverse: block 4 i + j takes that of 4 i + 3 - j",
         [](const OperandSource& o, const Place& at) {
           const I block = at.k / o.block() ^ 3;  // bytes behind the last one are cleared
           return block < o.blocks() ? scale_of(o, at.matrix, at.row, block) : 0.0;
         });
  to.add("blocks of {} take the scale of the block after", scale_from([](I block) { return block + 1; }, {}));
  to.add("blocks of {} take the scale of the block before", scale_from([](I block) { return block - 1; }, {}));
}

/// Of the right block, another row's or matrix's.
void add_rows(const OperandSource& o, ScaleMistakes& to) {
  for (const I part : {64, 32, 16, 8})
    to.add(fmt::format("rows of {{}} take the scales of row r % {} of their 128: the rows' start within the tile of "
                       "scales is left out",
                       part),
           scale_from({}, [=](I row) { return row / kTileRows * kTileRows + row % part; }));
  to.add("all rows of {} take scales of the first tile of 128 rows",
         scale_from({}, [](I row) { return row % kTileRows; }));
  if (o.matrices() > 1)
    to.add("all matrices take the scales of the first one of {}", [](const OperandSource& s, const Place& at) {
      return s.scale_at(s.scale_place(0, at.row, at.k / s.block()));
    });
  for (const I distance : {8, 16})
    to.add(
        fmt::format("rows of {{}} take the scales of row r ^ {}: of another thread of a quad (mma.sync: the lane that "
                    "holds a scale, or the thread id)",
                    distance),
        scale_from({}, [=](I row) { return row ^ distance; }));
  for (const I distance : {8, -8})
    to.add(fmt::format("rows of {{}} take the scales of row r {} 8 within their 32: of the thread {} in the quad "
                       "(mma.sync: the thread id)",
                       distance > 0 ? '+' : '-', distance > 0 ? "behind" : "before"),
           scale_from({}, [=](I row) { return row / 32 * 32 + (row + 32 + distance) % 32; }));
  if (o.form == ScaleForm::plain) return;
  to.add("tiles of 128 rows of scales of {} have changed places in pairs",
         scale_from({}, [](I row) { return row ^ kTileRows; }));
  for (const I tiles : {-1, 1, -2, 2, -3, 3}) {
    const I distance = std::abs(tiles);
    to.add(fmt::format("rows of {{}} take the scales of {} of 128 rows {} theirs",
                       distance == 1 ? "the tile" : fmt::format("{} tiles", distance), tiles < 0 ? "before" : "behind"),
           [=](const OperandSource& s, const Place& at) {
             return s.scale_at(s.scale_place(at.matrix, at.row, at.k / s.block()) +
                               tiles * ceil_div(s.blocks(), kTileBlocks) * kTileBytes);
           });
  }
}

/// Tiles that are read in another order of their bytes, or in another order of tiles.
void add_orders(I of_step, ScaleMistakes& to) {
  to.add("within a tile of scales of {} rows 32 apart and blocks have changed places",
         scale_in_tile([](I row, I block) { return row % 32 * 16 + block * 4 + row / 32; }));
  to.add(
      "tiles of scales of {} are read as if rows followed each other: 4 r + j in place of 16 (r % 32) + 4 (r / 32) + j",
      scale_in_tile([](I row, I block) { return row * 4 + block; }));
  for (const I stride : {64, 256, 0})
    to.add(fmt::format(
               "groups of 8 rows of scales of {{}} are read {} bytes apart, 128 is right (stride in the descriptor)",
               stride),
           scale_in_tile([=](I row, I block) { return row % 32 / 8 * stride + row % 8 * 16 + row / 32 * 4 + block; }));
  const I k_tiles_of_step = of_step / kTileBlocks;
  if (k_tiles_of_step > 1)
    to.add("tiles of scales of {} within a step are taken with rows and k exchanged, of 256 rows",
           scale_moved([=](I row, I block) {
             const I slot = block % of_step / kTileBlocks * 2 + row % 256 / kTileRows;
             return std::pair(row / 256 * 256 + slot / k_tiles_of_step * kTileRows + row % kTileRows,
                              block / of_step * of_step + slot % k_tiles_of_step * kTileBlocks + block % kTileBlocks);
           }));
  to.add("tiles of scales of {} are read as if rows came before k (RM and RK exchanged)",
         [](const OperandSource& s, const Place& at) {
           const I row_tiles = ceil_div(s.rows(), kTileRows), k_tiles = ceil_div(s.blocks(), kTileBlocks);
           const I block = at.k / s.block();
           const I tile = (at.matrix * k_tiles + block / kTileBlocks) * row_tiles + at.row / kTileRows;
           return s.scale_at(tile * kTileBytes + scale_offset_in_tile(static_cast<int>(at.row % kTileRows),
                                                                      static_cast<int>(block % kTileBlocks)));
         });
  to.add("tiles of scales of {} are read as if scales were in the plain form",
         [](const OperandSource& s, const Place& at) {
           return s.scale_at(scale_offset(ScaleForm::plain, s.rows(), s.blocks(), at.matrix, at.row, at.k / s.block()));
         });
}

std::vector<Mistake> scale_mistakes(const ProductSteps& steps, const OperandSource& o) {
  const I of_step = steps.step / o.block();
  ScaleMistakes mistakes;
  add_blocks(of_step, mistakes);
  add_rows(o, mistakes);
  mistakes.add("scales of {} are read as the other type (ue4m3 as ue8m0, or the reverse)",
               [](const OperandSource& s, const Place& at) {
                 const ScaleType right = scale_type(block_format(s.type));
                 return s.scale_at(s.scale_place(at.matrix, at.row, at.k / s.block()),
                                   right == ScaleType::ue4m3 ? ScaleType::ue8m0 : ScaleType::ue4m3);
               });
  if (o.form == ScaleForm::tile) add_orders(of_step, mistakes);
  return std::move(mistakes.list);
}

/// What a descriptor with these fields reads of a tile that TMA wrote with the 128-byte swizzle. span: bytes of its
/// swizzle; stride: bytes from 8 rows to the next.
Fetch through_descriptor(const ProductSteps& s, std::int64_t tile_rows, std::int64_t span, std::int64_t stride) {
  return [=](const OperandSource& o, const Place& at) {
    const std::int64_t in_step = at.k % s.step, byte = in_step * s.bits / 8, row = at.row % tile_rows;
    std::int64_t address = row / 8 * stride + row % 8 * span + byte;
    const std::int64_t mask = span / 16 - 1;
    address ^= (address >> 7 & mask) << 4;
    const std::int64_t found_row = address / 128, unit = (address / 16 % 8) ^ (found_row % 8);
    const std::int64_t found_byte = unit * 16 + address % 16;
    const std::int64_t k = at.k - in_step + found_byte * 8 / s.bits + (s.bits == 4 ? in_step % 2 : 0);
    const std::int64_t wanted = at.row - row + found_row;
    if (found_row >= tile_rows) return std::numeric_limits<double>::quiet_NaN();
    return wanted < o.rows() && k < o.k ? o.value(at.matrix, wanted, k) : 0.0;
  };
}

/// Values of six bits that are read from other bits of their row, or as the other type of six bits.
void add_six_bits(std::int64_t of_step, std::vector<Mistake>& list) {
  const auto add = [&](std::string text, std::function<std::int64_t(std::int64_t)> bit_of, bool is_other_type = false) {
    list.push_back({std::move(text),
                    [bit_of = std::move(bit_of), is_other_type](const OperandSource& from, const Place& at) {
                      const ValueType right = value_type(block_format(from.type));
                      const ValueType other = right == ValueType::e3m2 ? ValueType::e2m3 : ValueType::e3m2;
                      const std::uint8_t code = from.code_at(at.matrix, at.row, bit_of(at.k));
                      return static_cast<double>(decode_value(is_other_type ? other : right, code));
                    },
                    {}});
  };
  for (const int bits : {-2, 2, -1, 1})
    add(fmt::format("values of {{}} of six bits are read {} bit{} too {}: value k of a row is its bits 6 k to 6 k + 5",
                    std::abs(bits), std::abs(bits) == 1 ? "" : "s", bits > 0 ? "high" : "low"),
        [=](std::int64_t k) { return 6 * k + bits; });
  add(
      "values of {} of six bits are read as the other type of six bits (e3m2 as e2m3, or the reverse)",
      [](std::int64_t k) { return 6 * k; }, true);
  // 16 of them have 12 bytes and 4 of padding there.
  add("values of {} of six bits are read in shared memory as if there was no padding behind 12 bytes",
      [=](std::int64_t k) {
        const std::int64_t in_step = k % of_step, bit = 6 * in_step, in_unit = bit % 128;
        return in_unit + 6 > 96 ? std::int64_t{-1} : 6 * (k - in_step) + bit / 128 * 96 + in_unit;
      });
}

std::vector<Mistake> value_mistakes(const ProductSteps& s, std::int64_t tile_rows, const OperandSource& o) {
  std::vector<Mistake> list;
  const auto add = [&](std::string text, Fetch value) { list.push_back({std::move(text), std::move(value), {}}); };
  const auto at_k = [](std::function<std::int64_t(std::int64_t)> f) {
    return [f = std::move(f)](const OperandSource& from, const Place& at) {
      const std::int64_t k = f(at.k);
      return k < from.k ? from.value(at.matrix, at.row, k) : 0.0;
    };
  };
  const auto add_order = [&](std::string text, std::int64_t moved, std::function<std::int64_t(std::int64_t)> f) {
    add(std::move(text), at_k(std::move(f)));
    list.back().is_order_within_block = !is_block_scaled(o.type) || moved <= o.block();
  };
  if (operand_bits(o.type) == 6) add_six_bits(s.step, list);
  if (operand_bits(o.type) == 4)
    add_order("nibbles of {} are exchanged: the lower k is in the low four bits", 2,
              [](std::int64_t k) { return k ^ 1; });
  for (const std::int64_t distance : {2, 4, 8, 16})
    add_order(fmt::format("elements k and k ^ {} of {{}} have changed places", distance), 2 * distance,
              [=](std::int64_t k) { return k ^ distance; });
  for (const int bit : {0, 1, 2, 3, 4})
    add_order(fmt::format("of every {} elements of {{}} the second and third quarter have changed places", 4 << bit),
              4 << bit, [=](std::int64_t k) {
                const std::int64_t low = k >> bit & 1, high = k >> (bit + 1) & 1;
                return (k & ~(std::int64_t{3} << bit)) | low << (bit + 1) | high << bit;
              });
  if (is_block_scaled(o.type))  // else it is no different from d's
    add("values of {} of rows r and r ^ 8 have changed places, their scales have not (halves of a fragment)",
        [](const OperandSource& from, const Place& at) {
          const std::int64_t row = at.row ^ 8;
          return row < from.rows() ? from.value(at.matrix, row, at.k) : 0.0;
        });
  if (o.matrices() > 1)
    add("all matrices take the values of the first one of {}",
        [](const OperandSource& from, const Place& at) { return from.value(0, at.row, at.k); });
  add("every instruction of a step takes the k of the first of {}: the descriptor does not move on",
      at_k([=](std::int64_t k) { return k / s.step * s.step + k % s.step % s.chunk; }));
  if (tile_rows == 0) return list;
  for (const std::int64_t stride : {512, 256, 2048, 128, 0})
    add(fmt::format("groups of 8 rows of {{}} are read {} bytes apart, 1024 is right (stride in the descriptor)",
                    stride),
        through_descriptor(s, tile_rows, 128, stride));
  for (const std::int64_t span : {64, 32})
    add(fmt::format(
            "values of {{}} are read with a swizzle of {} bytes, written with 128 (layout code in the descriptor)",
            span),
        through_descriptor(s, tile_rows, span, 1024));
  add("values of {} are read without their swizzle, or it is undone twice",
      [=](const OperandSource& from, const Place& at) {
        const std::int64_t of_unit = 128 / s.bits, in_step = at.k % s.step;
        const std::int64_t k =
            at.k - in_step + ((in_step / of_unit) ^ (at.row % tile_rows % 8)) * of_unit + in_step % of_unit;
        return k < from.k ? from.value(at.matrix, at.row, k) : 0.0;
      });
  return list;
}

}  // namespace

std::vector<Mistake> operand_mistakes(const OperandSource& operand, const ProductSteps& steps, std::int64_t tile_rows) {
  std::vector<Mistake> list = value_mistakes(steps, tile_rows, operand);
  if (!is_block_scaled(operand.type)) return list;
  for (Mistake& mistake : scale_mistakes(steps, operand)) list.push_back(std::move(mistake));
  return list;
}

}  // namespace tessera::reference
