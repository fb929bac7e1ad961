// Textures and surfaces: every geometry, address mode and filter, elements of 8, 16 and 32 bits, extents that fit
// nothing; each fetch against arithmetic of its own in double. Values and coordinates are chosen so that double holds
// every sum exactly, but for integers that are read as fractions, which may be off by the last bit of a float.
#include <cuda.h>

#include <algorithm>

#include "texture_reference.h"

template <class T>
__global__ void fetch(T* out, const At* at, int count, cudaTextureObject_t texture, Shape shape, int component) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  const At a = at[i];
  T value{};
  if (component >= 0) {
    value = component == 0   ? tex2Dgather<T>(texture, a.x, a.y, 0)
            : component == 1 ? tex2Dgather<T>(texture, a.x, a.y, 1)
            : component == 2 ? tex2Dgather<T>(texture, a.x, a.y, 2)
                             : tex2Dgather<T>(texture, a.x, a.y, 3);
  } else {
    switch (shape) {
      case Shape::one:
        value = tex1D<T>(texture, a.x);
        break;
      case Shape::two:
      case Shape::pitch:
        value = tex2D<T>(texture, a.x, a.y);
        break;
      case Shape::three:
        value = tex3D<T>(texture, a.x, a.y, a.z);
        break;
      case Shape::layered_one:
        value = tex1DLayered<T>(texture, a.x, a.layer);
        break;
      case Shape::layered_two:
        value = tex2DLayered<T>(texture, a.x, a.y, a.layer);
        break;
      case Shape::cube:
        value = texCubemap<T>(texture, a.x, a.y, a.z);
        break;
      case Shape::layered_cube:
        value = texCubemapLayered<T>(texture, a.x, a.y, a.z, a.layer);
        break;
      case Shape::linear:
        value = tex1Dfetch<T>(texture, a.layer);
        break;
    }
  }
  out[i] = value;
}
template <class T>
__global__ void fetch_level(T* out, const At* at, int count, cudaTextureObject_t texture, float level, float2 step) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  bool is_resident = false;
  out[i] = step.x != 0 ? tex2DGrad<T>(texture, at[i].x, at[i].y, step, make_float2(0, 0))
                       : tex2DLod<T>(texture, at[i].x, at[i].y, level, &is_resident);
  if (step.x == 0 && !is_resident) out[i] = T{};
}

template <class T>
T* on_device(const std::vector<T>& values) {
  T* made = nullptr;
  cudaMalloc(&made, values.size() * sizeof(T));
  cudaMemcpy(made, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice);
  return made;
}

// Four words of each fetch.
std::vector<unsigned> fetched(const std::vector<At>& at, cudaTextureObject_t texture, Shape shape, int component,
                              const Image& image, bool by_level = false, float level = 0, float2 step = {0, 0}) {
  const int count = static_cast<int>(at.size());
  At* const places = on_device(at);
  std::vector<unsigned> out(4 * at.size(), 0xDEADBEEF);
  unsigned* const to = on_device(out);
  const int blocks = (count + 63) / 64;
  const auto run = [&](auto* typed) {
    if (by_level)
      fetch_level<<<blocks, 64>>>(typed, places, count, texture, level, step);
    else
      fetch<<<blocks, 64>>>(typed, places, count, texture, shape, component);
  };
  if (image.is_fraction || image.format.f == cudaChannelFormatKindFloat)
    run(reinterpret_cast<float4*>(to));
  else if (image.format.f == cudaChannelFormatKindSigned)
    run(reinterpret_cast<int4*>(to));
  else
    run(reinterpret_cast<uint4*>(to));
  check(cudaMemcpy(out.data(), to, out.size() * 4, cudaMemcpyDeviceToHost) == cudaSuccess, "fetch");
  cudaFree(places);
  cudaFree(to);
  return out;
}
bool agrees(const Image& image, unsigned got, double want) {
  if (image.is_fraction || image.format.f == cudaChannelFormatKindFloat) {
    float value;
    std::memcpy(&value, &got, 4);
    if (!image.is_fraction) return value == static_cast<float>(want);
    return std::fabs(value - want) <= 1.2e-7 * std::fmax(std::fabs(want), 0.5);
  }
  const double value = image.format.f == cudaChannelFormatKindSigned ? static_cast<double>(static_cast<int>(got)) : got;
  return value == want;
}

struct Resource {
  cudaResourceDesc desc{};
  cudaArray_t array = nullptr;
  void* memory = nullptr;
  ~Resource() {
    cudaFreeArray(array);
    cudaFree(memory);
  }
};
void fill(Resource& resource, const Image& image, Shape shape, unsigned flags) {
  const Extent& e = image.extent;
  const std::size_t texel = static_cast<std::size_t>(image.bytes) * image.channels, row = e.width * texel;
  auto* const data = const_cast<unsigned char*>(image.data.data());
  if (shape == Shape::linear) {
    check(cudaMalloc(&resource.memory, image.data.size()) == cudaSuccess, "memory");
    cudaMemcpy(resource.memory, data, image.data.size(), cudaMemcpyHostToDevice);
    resource.desc.resType = cudaResourceTypeLinear;
    resource.desc.res.linear = {resource.memory, image.format, image.data.size()};
    return;
  }
  if (shape == Shape::pitch) {
    std::size_t pitch = 0;
    check(cudaMallocPitch(&resource.memory, &pitch, row, e.height) == cudaSuccess, "pitched memory");
    cudaMemcpy2D(resource.memory, pitch, data, row, row, e.height, cudaMemcpyHostToDevice);
    resource.desc.resType = cudaResourceTypePitch2D;
    resource.desc.res.pitch2D.devPtr = resource.memory;
    resource.desc.res.pitch2D.desc = image.format;
    resource.desc.res.pitch2D.width = e.width;
    resource.desc.res.pitch2D.height = e.height;
    resource.desc.res.pitch2D.pitchInBytes = pitch;
    return;
  }
  const bool has_rows = shape != Shape::one && shape != Shape::layered_one;
  const bool has_slices = shape != Shape::one && shape != Shape::two;
  const cudaExtent extent{std::size_t(e.width), has_rows ? std::size_t(e.height) : 0,
                          has_slices ? std::size_t(e.depth) : 0};
  check(cudaMalloc3DArray(&resource.array, &image.format, extent, flags) == cudaSuccess,
        std::string("array ") + kShapes[int(shape)]);
  cudaMemcpy3DParms copy{};
  copy.srcPtr = make_cudaPitchedPtr(data, row, e.width, e.height);
  copy.dstArray = resource.array;
  copy.extent = {std::size_t(e.width), std::size_t(e.height), std::size_t(e.depth)};
  copy.kind = cudaMemcpyHostToDevice;
  check(cudaMemcpy3D(&copy) == cudaSuccess, "copy to an array");
  resource.desc.resType = cudaResourceTypeArray;
  resource.desc.res.array.array = resource.array;
}

float coordinate(int size, bool is_normalized) {
  const float scale = is_normalized ? 1.0f : static_cast<float>(size);
  if (below(4) == 0) return scale * static_cast<float>(between(-40, 56)) / 16;  // on and between texels
  return scale * (static_cast<float>(random_bits() >> 8) / (1 << 24) * 4 - 1.5f);
}

void one_texture(Shape shape) {
  const cudaTextureAddressMode modes[] = {cudaAddressModeWrap, cudaAddressModeClamp, cudaAddressModeMirror,
                                          cudaAddressModeBorder};
  const bool is_cube = shape == Shape::cube || shape == Shape::layered_cube;
  const bool is_layered = shape == Shape::layered_one || shape == Shape::layered_two || shape == Shape::layered_cube;
  const int dimensions = shape == Shape::one || shape == Shape::layered_one || shape == Shape::linear ? 1
                         : shape == Shape::three                                                      ? 3
                                                                                                      : 2;
  Extent extent{between(1, 37), dimensions > 1 ? between(1, 23) : 1, dimensions > 2 || is_layered ? between(1, 9) : 1};
  if (is_cube) extent = {between(1, 19), 0, 6 * (is_layered ? between(1, 3) : 1)};
  if (is_cube) extent.height = extent.width;
  const int kind = below(3), channels = 1 << below(3);
  const int bytes = kind == 2 ? 2 << below(2) : 1 << below(3);
  const bool is_fraction = kind != 2 && bytes < 4 && below(2) == 0;
  const Image image = make_image(extent, static_cast<cudaChannelFormatKind>(kind), bytes, channels, is_fraction);
  Resource resource;
  fill(resource, image, shape, (is_layered ? cudaArrayLayered : 0) | (is_cube ? cudaArrayCubemap : 0));
  Sampler sampler;
  for (auto& mode : sampler.desc.addressMode) mode = modes[below(4)];
  for (auto& color : sampler.desc.borderColor) color = static_cast<float>(between(0, 640)) / 64;
  const bool reads_floats = is_fraction || kind == 2;
  sampler.desc.filterMode = reads_floats && below(2) == 0 ? cudaFilterModeLinear : cudaFilterModePoint;
  sampler.desc.readMode = is_fraction ? cudaReadModeNormalizedFloat : cudaReadModeElementType;
  sampler.desc.normalizedCoords = below(2);
  cudaTextureObject_t texture = 0;
  const std::string name = std::string(kShapes[int(shape)]) + " kind " + std::to_string(kind) + " of " +
                           std::to_string(bytes) + " bytes x " + std::to_string(channels);
  check(cudaCreateTextureObject(&texture, &resource.desc, &sampler.desc, nullptr) == cudaSuccess, "create " + name);
  std::vector<At> at(200), expected(200);
  std::vector<int> slices(200, 0);
  for (std::size_t i = 0; i < at.size(); ++i) {
    const bool is_normalized = sampler.desc.normalizedCoords != 0;
    at[i] = {coordinate(extent.width, is_normalized), coordinate(extent.height, is_normalized),
             coordinate(extent.depth, is_normalized), between(-2, extent.depth + 2)};
    expected[i] = at[i];
    const int layers = is_cube ? extent.depth / 6 : extent.depth;
    // A layer is unsigned: -1 is the last one.
    const int layer = at[i].layer < 0 || at[i].layer >= layers ? layers - 1 : at[i].layer;
    slices[i] = is_layered ? layer : 0;
    if (shape == Shape::linear) at[i].layer = between(-3, extent.width + 3);
    if (!is_cube) continue;
    const int face = below(6);
    const float major = static_cast<float>(between(1, 8)), u = static_cast<float>(between(-63, 63)) / 64,
                v = static_cast<float>(between(-63, 63)) / 64, s = u * major, t = v * major;
    const float to[6][3] = {{major, -t, -s}, {-major, -t, s}, {s, major, t},
                            {s, -major, -t}, {s, -t, major},  {-s, -t, -major}};
    at[i].x = to[face][0];
    at[i].y = to[face][1];
    at[i].z = to[face][2];
    expected[i].x = (u + 1) / 2;
    expected[i].y = (v + 1) / 2;
    slices[i] = slices[i] * 6 + face;
  }
  Sampler own = sampler;
  if (is_cube) own.desc.normalizedCoords = 1;
  if (is_cube) own.desc.addressMode[0] = own.desc.addressMode[1] = cudaAddressModeClamp;
  const std::vector<unsigned> out = fetched(at, texture, shape, -1, image);
  for (std::size_t i = 0; i < at.size(); ++i)
    for (int c = 0; c < channels; ++c) {
      double want = 0;
      if (shape != Shape::linear)
        want = own.sample(image, expected[i], c, dimensions, slices[i]);
      else if (at[i].layer >= 0 && at[i].layer < extent.width)
        want = image.value(at[i].layer, 0, 0, c);
      check(agrees(image, out[4 * i + c], want),
            name + " at " + std::to_string(at[i].x) + " " + std::to_string(at[i].y) + " " + std::to_string(at[i].z) +
                " layer " + std::to_string(at[i].layer) + " channel " + std::to_string(c));
    }
  if (shape == Shape::two) {
    const int component = below(channels);
    const std::vector<unsigned> four = fetched(at, texture, shape, component, image);
    for (std::size_t i = 0; i < at.size(); ++i) {
      const Axis x = axis_of(at[i].x, extent.width, own.desc.addressMode[0], own.desc.normalizedCoords != 0, true);
      const Axis y = axis_of(at[i].y, extent.height, own.desc.addressMode[1], own.desc.normalizedCoords != 0, true);
      const int order[4][2] = {{x.first, y.second}, {x.second, y.second}, {x.second, y.first}, {x.first, y.first}};
      for (int k = 0; k < 4; ++k)
        check(agrees(image, four[4 * i + k], own.texel(image, order[k][0], order[k][1], 0, component)),
              "gather of " + name);
    }
  }
  cudaResourceDesc found{};
  cudaTextureDesc same{};
  check(cudaGetTextureObjectResourceDesc(&found, texture) == cudaSuccess && found.resType == resource.desc.resType,
        "resource of " + name);
  check(cudaGetTextureObjectTextureDesc(&same, texture) == cudaSuccess &&
            std::memcmp(&same, &sampler.desc, sizeof(same)) == 0,
        "description of " + name);
  check(cudaDestroyTextureObject(texture) == cudaSuccess, "destroy");
}

void mipmaps() {
  const Extent extent{between(9, 40), between(9, 40), 1};
  const cudaChannelFormatDesc format{32, 32, 0, 0, cudaChannelFormatKindFloat};
  cudaMipmappedArray_t array{};
  check(cudaMallocMipmappedArray(&array, &format, {std::size_t(extent.width), std::size_t(extent.height), 0}, 99) ==
            cudaSuccess,
        "mipmapped array");
  std::vector<Image> levels;
  for (unsigned i = 0;; ++i) {
    cudaArray_t level{};
    if (cudaGetMipmappedArrayLevel(&level, array, i) != cudaSuccess) break;
    cudaExtent size{};
    cudaArrayGetInfo(nullptr, &size, nullptr, level);
    levels.push_back(make_image({int(size.width), int(size.height), 1}, cudaChannelFormatKindFloat, 4, 2, false));
    cudaMemcpy2DToArray(level, 0, 0, levels.back().data.data(), size.width * 8, size.width * 8, size.height,
                        cudaMemcpyHostToDevice);
  }
  cudaGetLastError();
  check(levels.size() == (std::max(extent.width, extent.height) >= 32   ? 6
                          : std::max(extent.width, extent.height) >= 16 ? 5
                                                                        : 4),
        "levels");
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeMipmappedArray;
  resource.res.mipmap.mipmap = array;
  for (const bool is_linear : {false, true}) {
    Sampler sampler;
    sampler.desc.normalizedCoords = 1;
    sampler.desc.filterMode = cudaFilterModeLinear;
    sampler.desc.mipmapFilterMode = is_linear ? cudaFilterModeLinear : cudaFilterModePoint;
    sampler.desc.mipmapLevelBias = 0.25f;
    sampler.desc.minMipmapLevelClamp = 0.5f;
    sampler.desc.maxMipmapLevelClamp = 3;
    cudaTextureObject_t texture = 0;
    check(cudaCreateTextureObject(&texture, &resource, &sampler.desc, nullptr) == cudaSuccess, "texture of levels");
    std::vector<At> at(100);
    for (At& a : at) a = {coordinate(1, true), coordinate(1, true), 0, 0};
    for (const float level : {-1.0f, 0.75f, 1.375f, 2.0f, 9.0f}) {
      const bool by_gradient = level > 0 && level < 9;
      const double clamped = std::fmin(std::fmax(level + 0.25, 0.5), 3.0);
      for (int way = 0; way < (by_gradient && !is_linear ? 2 : 1); ++way) {
        // A step that is 2^level texels long.
        const float2 step{way == 0 ? 0 : static_cast<float>(std::exp2(level) / extent.width), 0};
        const std::vector<unsigned> out = fetched(at, texture, Shape::two, -1, levels[0], true, level, step);
        for (std::size_t i = 0; i < at.size(); ++i)
          for (int c = 0; c < 2; ++c) {
            const auto of = [&](double n) { return sampler.sample(levels[std::size_t(n)], at[i], c, 2, 0); };
            const double first = std::floor(clamped), share = clamped - first;
            const double want = !is_linear   ? of(std::floor(clamped + 0.5))
                                : share == 0 ? of(first)
                                             : (1 - share) * of(first) + share * of(first + 1);
            check(agrees(levels[0], out[4 * i + c], want), "level " + std::to_string(level));
          }
      }
    }
    cudaDestroyTextureObject(texture);
  }
  cudaFreeMipmappedArray(array);
}

// Four bytes of some layers read as one word; bytes of a format that is read as fractions by itself.
void views() {
  const Extent extent{between(2, 20), between(2, 20), 5};
  const Image bytes = make_image(extent, cudaChannelFormatKindUnsigned, 1, 4, false);
  Resource resource;
  fill(resource, bytes, Shape::layered_two, cudaArrayLayered);
  Image words = bytes;
  words.bytes = 4;
  words.channels = 1;
  const cudaTextureDesc described{};
  cudaResourceViewDesc view{};
  view.format = cudaResViewFormatUnsignedInt1;
  view.width = std::size_t(extent.width);
  view.height = std::size_t(extent.height);
  view.firstLayer = 1;
  view.lastLayer = 3;
  cudaTextureObject_t texture = 0;
  check(cudaCreateTextureObject(&texture, &resource.desc, &described, &view) == cudaSuccess, "a view");
  std::vector<At> at(50);
  for (At& a : at) a = {float(between(0, extent.width - 1)), float(between(0, extent.height - 1)), 0, between(0, 4)};
  std::vector<unsigned> out = fetched(at, texture, Shape::layered_two, -1, words);
  for (std::size_t i = 0; i < at.size(); ++i)
    check(agrees(words, out[4 * i], words.value(int(at[i].x), int(at[i].y), 1 + std::min(at[i].layer, 2), 0)), "view");
  cudaResourceViewDesc same{};
  check(cudaGetTextureObjectResourceViewDesc(&same, texture) == cudaSuccess && same.lastLayer == 3, "the view itself");
  view.format = cudaResViewFormatUnsignedShort1;
  check(cudaCreateTextureObject(&texture, &resource.desc, &described, &view) == cudaErrorInvalidValue, "other bytes");
  view.format = cudaResViewFormatNone;
  view.lastLayer = 5;
  check(cudaCreateTextureObject(&texture, &resource.desc, &described, &view) == cudaErrorInvalidValue, "layers");
  cudaGetLastError();

  Image fractions = make_image({extent.width, extent.height, 1}, cudaChannelFormatKindUnsigned, 1, 2, true);
  fractions.format.f = cudaChannelFormatKindUnsignedNormalized8X2;
  Resource own;
  fill(own, fractions, Shape::two, 0);
  fractions.format.f = cudaChannelFormatKindUnsigned;
  check(cudaCreateTextureObject(&texture, &own.desc, &described, nullptr) == cudaSuccess, "a format of fractions");
  out = fetched(at, texture, Shape::two, -1, fractions);
  for (std::size_t i = 0; i < at.size(); ++i)
    for (int c = 0; c < 2; ++c)
      check(agrees(fractions, out[4 * i + c], fractions.value(int(at[i].x), int(at[i].y), 0, c)), "fractions");
}

void driver_objects() {
  const Image image = make_image({between(1, 30), between(1, 30), 1}, cudaChannelFormatKindUnsigned, 1, 4, true);
  const CUDA_ARRAY_DESCRIPTOR wanted{std::size_t(image.extent.width), std::size_t(image.extent.height),
                                     CU_AD_FORMAT_UNSIGNED_INT8, 4};
  CUarray array{};
  check(cuArrayCreate(&array, &wanted) == CUDA_SUCCESS, "cuArrayCreate");
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = image.data.data();
  copy.srcPitch = copy.WidthInBytes = std::size_t(image.extent.width) * 4;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.Height = std::size_t(image.extent.height);
  check(cuMemcpy2D(&copy) == CUDA_SUCCESS, "cuMemcpy2D to an array");
  std::vector<unsigned char> back(image.data.size());
  std::swap(copy.srcMemoryType, copy.dstMemoryType);
  copy.srcArray = array;
  copy.dstHost = back.data();
  copy.dstPitch = copy.WidthInBytes;
  check(cuMemcpy2D(&copy) == CUDA_SUCCESS && back == image.data, "cuMemcpy2D from an array");
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  CUDA_TEXTURE_DESC described{};
  described.filterMode = CU_TR_FILTER_MODE_LINEAR;
  described.flags = CU_TRSF_NORMALIZED_COORDINATES;
  Sampler own;
  own.desc.filterMode = cudaFilterModeLinear;
  own.desc.normalizedCoords = 1;
  CUtexObject texture = 0;
  check(cuTexObjectCreate(&texture, &resource, &described, nullptr) == CUDA_SUCCESS, "cuTexObjectCreate");
  std::vector<At> at(100);
  for (At& a : at) a = {coordinate(1, true), coordinate(1, true), 0, 0};
  const std::vector<unsigned> out = fetched(at, texture, Shape::two, -1, image);
  for (std::size_t i = 0; i < at.size(); ++i)
    for (int c = 0; c < 4; ++c)
      check(agrees(image, out[4 * i + c], own.sample(image, at[i], c, 2, 0)), "the driver's texture");
  CUDA_TEXTURE_DESC found{};
  check(cuTexObjectGetTextureDesc(&found, texture) == CUDA_SUCCESS && found.flags == described.flags, "description");
  CUsurfObject surface = 0;
  check(cuSurfObjectCreate(&surface, &resource) == CUDA_ERROR_INVALID_VALUE, "a surface of an array without the flag");
  described.flags |= CU_TRSF_READ_AS_INTEGER;
  check(cuTexObjectCreate(&texture, &resource, &described, nullptr) == CUDA_ERROR_INVALID_VALUE,
        "a filter of integers");
  check(cuTexObjectDestroy(texture) == CUDA_SUCCESS && cuArrayDestroy(array) == CUDA_SUCCESS, "destroy");
}

int main() {
  for (int round = 0; round < 20; ++round)
    for (int shape = 0; shape < 9; ++shape) one_texture(static_cast<Shape>(shape));
  for (int round = 0; round < 3; ++round) mipmaps();
  for (int round = 0; round < 5; ++round) driver_objects();
  for (int round = 0; round < 3; ++round) views();
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
