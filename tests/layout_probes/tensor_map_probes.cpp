// Tensor copies: a box of numbered 32-bit elements is loaded into shared memory, and each lies where the maps say;
// what lies outside the tensor is zero.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "runtime/dynamic_library.h"
#include "spec/im2col.h"
#include "spec/smem_descriptor.h"
#include "tests/layout_probes/probe.h"

namespace tessera::probes {
namespace {

std::vector<std::uint32_t> numbered(std::size_t count) {
  std::vector<std::uint32_t> tensor(count);
  for (std::size_t i = 0; i < count; ++i) tensor[i] = static_cast<std::uint32_t>(i + 1);
  return tensor;
}

/// The word of shared memory where column `column` of a row of `pitch` bytes lies.
std::size_t word_at(layout::SmemLayout mode, int pitch, int row, int column) {
  const auto plain = static_cast<unsigned>(row * pitch + column * 4);
  return (plain ^ layout::smem_layout_xor(mode, plain >> 7)) / 4;
}

TEST_CASE("probe: a tensor copy puts elements where the swizzle's map says, and zeros for what is outside") {
  if (!runs("sm_90a")) return;
  constexpr int kWidth = 44, kHeight = 19, kRows = 24;
  for (const TensorMapSwizzle swizzle :
       {TensorMapSwizzle::none, TensorMapSwizzle::b32, TensorMapSwizzle::b64, TensorMapSwizzle::b128})
    for (const auto& start : {std::pair(0, 0), std::pair(-8, -3), std::pair(40, 7)}) {
      const int x = start.first, y = start.second;
      CAPTURE(static_cast<int>(swizzle));
      CAPTURE(x);
      const int pitch = swizzle == TensorMapSwizzle::none ? 64 : swizzle_span_bytes(swizzle);
      const std::vector<std::uint32_t> tensor = numbered(kWidth * kHeight);
      Probe probe;
      probe.make_map = [&](Device& device, DevicePointer address) {
        ResolvedTensorMap map;
        map.type = TensorMapType::u32;
        map.rank = 2;
        map.address = address;
        map.dims = {kWidth, kHeight};
        map.strides_bytes = {kWidth * 4};
        map.box = {static_cast<std::uint32_t>(pitch / 4), kRows};
        map.swizzle = swizzle;
        TensorMapObject object;
        device.encode(map, object);
        return object;
      };
      const auto out =
          load_tile(probe,
                    fmt::format("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                                "[r159], [d2, {{{}, {}}}], [r10]",
                                x, y),
                    pitch * kRows, tensor);
      for (int row = 0; row < kRows; ++row)
        for (int column = 0; column < pitch / 4; ++column) {
          const int at_x = x + column, at_y = y + row;
          const bool is_inside = at_x >= 0 && at_x < kWidth && at_y >= 0 && at_y < kHeight;
          CAPTURE(row);
          CAPTURE(column);
          REQUIRE(out[word_at(static_cast<layout::SmemLayout>(swizzle), pitch, row, column)] ==
                  (is_inside ? static_cast<std::uint32_t>(at_y * kWidth + at_x + 1) : 0u));
        }
    }
}

/// cuTensorMapEncodeIm2col, which the runtime has no use for.
using EncodeIm2col = int (*)(void*, int, std::uint32_t, void*, const std::uint64_t*, const std::uint64_t*, const int*,
                             const int*, std::uint32_t, std::uint32_t, const std::uint32_t*, int, int, int, int);

void check_im2col(const layout::Im2colMap& im2col, const long long (&start)[5],
                  const int (&offsets)[layout::kIm2colSpatial], int pixels) {
  constexpr int kChannels = 16;
  const auto rank = static_cast<std::uint32_t>(im2col.rank);
  const std::size_t spatial = rank - 2;
  std::size_t elements = 1;
  std::uint64_t dims[5] = {}, strides[5] = {};
  for (std::size_t d = 0; d < rank; ++d) {
    dims[d] = static_cast<std::uint64_t>(im2col.dims[d]);
    elements *= dims[d];
    strides[d] = elements * 4;
  }
  const std::vector<std::uint32_t> tensor = numbered(elements);
  Probe probe;
  probe.make_map = [&](Device&, DevicePointer address) {
    EncodeIm2col encode = nullptr;
    const auto library = DynamicLibrary::open("libcuda.so.1");
    REQUIRE(library.bind(encode, "cuTensorMapEncodeIm2col"));
    std::uint32_t element_strides[5] = {1, 1, 1, 1, 1};
    for (std::size_t d = 0; d < spatial; ++d) element_strides[1 + d] = static_cast<std::uint32_t>(im2col.strides[d]);
    TensorMapObject object;
    REQUIRE(encode(&object, static_cast<int>(TensorMapType::u32), rank, reinterpret_cast<void*>(address), dims, strides,
                   im2col.lower, im2col.upper, kChannels, static_cast<std::uint32_t>(pixels), element_strides, 0, 2, 0,
                   0) == 0);  // no interleave, swizzle 64B
    return object;
  };
  std::string at, taps;
  for (std::size_t d = 0; d < rank; ++d) at += fmt::format("{}{}", d == 0 ? "" : ", ", start[d]);
  for (std::size_t d = 0; d < spatial; ++d) {
    taps += fmt::format("{}h{}", d == 0 ? "" : ", ", d);
    probe.body += fmt::format("mov.b16 h{}, {};\n", d, offsets[d]);
  }
  const auto out = load_tile(
      probe,
      fmt::format("cp.async.bulk.tensor.{}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [r159], "
                  "[d2, {{{}}}], [r10], {{{}}}",
                  rank, at, taps),
      pixels * kChannels * 4, tensor);
  for (int i = 0; i < pixels; ++i) {
    const layout::Im2colPixel pixel = im2col_pixel(im2col, start, offsets, i);
    std::uint64_t index = 0, step = static_cast<std::uint64_t>(im2col.dims[0]);
    bool is_inside = true;
    for (std::size_t d = 1; d < rank; ++d) {
      is_inside = is_inside && pixel.at[d] >= 0 && pixel.at[d] < im2col.dims[d];
      index += static_cast<std::uint64_t>(pixel.at[d]) * step;
      step *= dims[d];
    }
    for (int c = 0; c < kChannels; ++c) {
      const long long channel = start[0] + c;
      const bool is_there = is_inside && channel >= 0 && channel < im2col.dims[0];
      CAPTURE(i);
      CAPTURE(c);
      REQUIRE(out[word_at(layout::SmemLayout::b64, kChannels * 4, i, c)] ==
              (is_there ? static_cast<std::uint32_t>(index + static_cast<std::uint64_t>(channel) + 1) : 0u));
    }
  }
}

TEST_CASE("probe: an im2col copy reads the pixels that the map says") {
  if (!is_on_gpu() || !runs("sm_90a")) return;  // the emulator does not execute it
  layout::Im2colMap conv;                       // 3 x 3 taps, padding 1
  conv.rank = 4;
  const long long extents[5] = {24, 9, 7, 3, 1};
  for (int d = 0; d < 5; ++d) conv.dims[d] = extents[d];
  for (int d = 0; d < 2; ++d) {
    conv.lower[d] = -1;
    conv.upper[d] = -1;
  }
  for (const int h : {0, 1, 2})
    for (const int w : {0, 2}) {
      check_im2col(conv, {0, -1, -1, 0, 0}, {w, h, 0}, 64);
      check_im2col(conv, {8, 3, 2, 1, 0}, {w, h, 0}, 200);  // runs past the last image
    }
  conv.strides[0] = 2;
  conv.strides[1] = 3;
  check_im2col(conv, {0, -1, -1, 0, 0}, {1, 1, 0}, 64);
  conv.upper[0] = 1;
  conv.lower[1] = 1;
  check_im2col(conv, {0, 1, 2, 0, 0}, {1, 1, 0}, 64);
  layout::Im2colMap line;
  line.rank = 3;
  line.dims[0] = 16;
  line.dims[1] = 21;
  line.dims[2] = 4;
  line.lower[0] = -2;
  line.upper[0] = -2;
  check_im2col(line, {0, -2, 0, 0, 0}, {3, 0, 0}, 90);
  layout::Im2colMap volume;
  volume.rank = 5;
  const long long volume_extents[5] = {16, 5, 4, 3, 2};
  for (int d = 0; d < 5; ++d) volume.dims[d] = volume_extents[d];
  for (int d = 0; d < 3; ++d) {
    volume.lower[d] = -1;
    volume.upper[d] = -1;
  }
  check_im2col(volume, {0, -1, -1, -1, 0}, {1, 0, 2}, 150);
}

}  // namespace
}  // namespace tessera::probes
