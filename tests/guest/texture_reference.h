// What a fetch of a texture gives, by the programming guide's formulas in double: images, address modes, filters.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

int failures = 0;
void check(bool is_right, const std::string& what) {
  if (is_right) return;
  if (++failures <= 20) std::printf("wrong: %s (%s)\n", what.c_str(), cudaGetErrorName(cudaPeekAtLastError()));
}
std::mt19937 random_bits(20260728);
int below(int n) { return static_cast<int>(random_bits() % static_cast<unsigned>(n)); }
int between(int first, int last) { return first + below(last - first + 1); }

enum class Shape { one, two, three, layered_one, layered_two, cube, layered_cube, linear, pitch };
const char* const kShapes[] = {"1D", "2D", "3D", "1D layered", "2D layered", "cube", "layered cube", "linear", "pitch"};
struct At {
  float x, y, z;
  int layer;
};
struct Extent {
  int width, height, depth;  // 1 where there is none
};

// Texels as numbers, and how the array's bytes hold them.
struct Image {
  Extent extent{};
  cudaChannelFormatDesc format{};
  int channels = 1, bytes = 1;
  bool is_fraction = false;
  std::vector<unsigned char> data;

  double value(int x, int y, int z, int c) const {
    const std::size_t texel = (static_cast<std::size_t>(z) * extent.height + y) * extent.width + x;
    const unsigned char* const at = data.data() + (texel * channels + c) * bytes;
    double number = 0, most = 1;
    if (format.f == cudaChannelFormatKindFloat) {
      if (bytes == 4) {
        float f;
        std::memcpy(&f, at, 4);
        return f;
      }
      __half h;
      std::memcpy(&h, at, 2);
      return __half2float(h);
    }
    const bool is_signed = format.f == cudaChannelFormatKindSigned;
    if (bytes == 1) number = is_signed ? static_cast<double>(static_cast<signed char>(*at)) : *at;
    if (bytes == 2) {
      unsigned short s;
      std::memcpy(&s, at, 2);
      number = is_signed ? static_cast<double>(static_cast<short>(s)) : s;
    }
    if (bytes == 4) {
      unsigned u;
      std::memcpy(&u, at, 4);
      number = is_signed ? static_cast<double>(static_cast<int>(u)) : u;
    }
    if (!is_fraction) return number;
    most = bytes == 1 ? (is_signed ? 127 : 255) : is_signed ? 32767 : 65535;
    return std::fmax(number / most, -1.0);
  }
};

Image make_image(Extent extent, cudaChannelFormatKind kind, int bytes, int channels, bool is_fraction) {
  Image image;
  image.extent = extent;
  const int bits = 8 * bytes;
  image.format = {bits, channels > 1 ? bits : 0, channels > 2 ? bits : 0, channels > 2 ? bits : 0, kind};
  image.channels = channels;
  image.bytes = bytes;
  image.is_fraction = is_fraction;
  const std::size_t count = static_cast<std::size_t>(extent.width) * extent.height * extent.depth * channels;
  image.data.resize(count * bytes);
  for (std::size_t i = 0; i < count; ++i) {
    unsigned bits_of = random_bits();
    if (kind == cudaChannelFormatKindFloat) {
      const float f = static_cast<float>(between(-1023, 1023)) / 64;
      if (bytes == 4) std::memcpy(&bits_of, &f, 4);
      const __half h = __float2half(f);
      if (bytes == 2) std::memcpy(&bits_of, &h, 2);
    }
    std::memcpy(image.data.data() + i * bytes, &bits_of, bytes);
  }
  return image;
}

// The programming guide's formulas.
struct Axis {
  int first = 0, second = 0;  // -1: the border
  double share = 0;           // of the second
};
int placed(long i, int size, cudaTextureAddressMode mode) {
  if (mode == cudaAddressModeBorder) return i < 0 || i >= size ? -1 : static_cast<int>(i);
  if (mode == cudaAddressModeWrap) return static_cast<int>(i - size * static_cast<long>(std::floor(double(i) / size)));
  return i < 0 ? 0 : i >= size ? size - 1 : static_cast<int>(i);  // a mirrored one has left by a half at most
}
Axis axis_of(double x, int size, cudaTextureAddressMode mode, bool is_normalized, bool is_linear) {
  if (!is_normalized && mode != cudaAddressModeBorder) mode = cudaAddressModeClamp;
  if (is_normalized && mode == cudaAddressModeWrap) x = x - std::floor(x);
  if (is_normalized && mode == cudaAddressModeMirror) {
    const double whole = std::floor(x);
    x = std::fmod(std::fabs(whole), 2.0) == 0 ? x - whole : 1 - (x - whole);
    if (!is_linear && x == 1) x = std::nextafter(1.0, 0.0);
  }
  if (is_normalized) x *= size;
  if (!is_linear) {
    const int i = placed(static_cast<long>(std::floor(x)), size, mode);
    return {i, i, 0};
  }
  const double rounded = std::round((x - 0.5) * 256 + 1e6 * 256) - 1e6 * 256;  // 8 bits of fraction
  const long i = static_cast<long>(std::floor(rounded / 256));
  return {placed(i, size, mode), placed(i + 1, size, mode), rounded / 256 - static_cast<double>(i)};
}

struct Sampler {
  cudaTextureDesc desc{};
  double texel(const Image& image, int x, int y, int z, int c) const {
    if (x < 0 || y < 0 || z < 0)
      return image.is_fraction || image.format.f == cudaChannelFormatKindFloat ? desc.borderColor[c]
                                                                               : std::trunc(desc.borderColor[c]);
    return image.value(x, y, z, c);
  }
  double sample(const Image& image, const At& at, int c, int dimensions, int slice) const {
    const bool is_linear = desc.filterMode == cudaFilterModeLinear;
    const float place[3] = {at.x, at.y, at.z};
    const int size[3] = {image.extent.width, image.extent.height, image.extent.depth};
    Axis axis[3];
    axis[2] = {slice, slice, 0};
    for (int i = 0; i < dimensions; ++i)
      axis[i] = axis_of(place[i], size[i], desc.addressMode[i], desc.normalizedCoords != 0, is_linear);
    const auto along_x = [&](int y, int z) {
      return (1 - axis[0].share) * texel(image, axis[0].first, y, z, c) +
             axis[0].share * texel(image, axis[0].second, y, z, c);
    };
    const auto along_y = [&](int z) {
      return (1 - axis[1].share) * along_x(axis[1].first, z) + axis[1].share * along_x(axis[1].second, z);
    };
    return (1 - axis[2].share) * along_y(axis[2].first) + axis[2].share * along_y(axis[2].second);
  }
};
