// Surfaces: written and read in every geometry, by elements of 1 to 16 bytes, in range and out of it in each of the
// three ways; what a kernel wrote, a texture and a copy see afterwards.
#include <cuda_runtime.h>

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
std::mt19937 random_bits(20260729);
int between(int first, int last) {
  return first + static_cast<int>(random_bits() % static_cast<unsigned>(last - first + 1));
}

enum class Shape { one, two, three, layered_one, layered_two, cube, layered_cube };
const char* const kShapes[] = {"1D", "2D", "3D", "1D layered", "2D layered", "cube", "layered cube"};
struct At {
  int x, y, z;  // x in elements
};

template <class T, cudaSurfaceBoundaryMode kMode>
__device__ T read_at(cudaSurfaceObject_t surface, Shape shape, At a) {
  const int x = a.x * static_cast<int>(sizeof(T));
  switch (shape) {
    case Shape::one:
      return surf1Dread<T>(surface, x, kMode);
    case Shape::two:
      return surf2Dread<T>(surface, x, a.y, kMode);
    case Shape::three:
      return surf3Dread<T>(surface, x, a.y, a.z, kMode);
    case Shape::layered_one:
      return surf1DLayeredread<T>(surface, x, a.z, kMode);
    case Shape::layered_two:
      return surf2DLayeredread<T>(surface, x, a.y, a.z, kMode);
    case Shape::cube:
      return surfCubemapread<T>(surface, x, a.y, a.z, kMode);
    case Shape::layered_cube:
      return surfCubemapLayeredread<T>(surface, x, a.y, a.z, kMode);
  }
  return T{};
}
template <class T, cudaSurfaceBoundaryMode kMode>
__device__ void write_at(T value, cudaSurfaceObject_t surface, Shape shape, At a) {
  const int x = a.x * static_cast<int>(sizeof(T));
  switch (shape) {
    case Shape::one:
      return surf1Dwrite(value, surface, x, kMode);
    case Shape::two:
      return surf2Dwrite(value, surface, x, a.y, kMode);
    case Shape::three:
      return surf3Dwrite(value, surface, x, a.y, a.z, kMode);
    case Shape::layered_one:
      return surf1DLayeredwrite(value, surface, x, a.z, kMode);
    case Shape::layered_two:
      return surf2DLayeredwrite(value, surface, x, a.y, a.z, kMode);
    case Shape::cube:
      return surfCubemapwrite(value, surface, x, a.y, a.z, kMode);
    case Shape::layered_cube:
      return surfCubemapLayeredwrite(value, surface, x, a.y, a.z, kMode);
  }
}
template <class T, cudaSurfaceBoundaryMode kMode>
__global__ void read_all(T* out, const At* at, int count, cudaSurfaceObject_t surface, Shape shape) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) out[i] = read_at<T, kMode>(surface, shape, at[i]);
}
// One thread: of two writes to one place the later one stays.
template <class T, cudaSurfaceBoundaryMode kMode>
__global__ void write_all(const T* in, const At* at, int count, cudaSurfaceObject_t surface, Shape shape) {
  for (int i = 0; i < count; ++i) write_at<T, kMode>(in[i], surface, shape, at[i]);
}

template <class T>
T* on_device(const std::vector<T>& values) {
  T* made = nullptr;
  cudaMalloc(&made, values.size() * sizeof(T));
  cudaMemcpy(made, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice);
  return made;
}

struct Contents {
  int width, height, depth;
  std::size_t texel;
  std::vector<unsigned char> bytes;
  std::size_t place(At a) const { return ((static_cast<std::size_t>(a.z) * height + a.y) * width + a.x) * texel; }
  bool holds(At a) const { return a.x >= 0 && a.x < width && a.y >= 0 && a.y < height && a.z >= 0 && a.z < depth; }
  At clamped(At a) const {
    const auto to = [](int i, int size) { return i < 0 ? 0 : i >= size ? size - 1 : i; };
    return {to(a.x, width), to(a.y, height), to(a.z, depth)};
  }
};

cudaMemcpy3DParms copy_of(cudaArray_t array, Contents& contents, bool to_array) {
  cudaMemcpy3DParms copy{};
  const cudaPitchedPtr memory =
      make_cudaPitchedPtr(contents.bytes.data(), contents.width * contents.texel, contents.width, contents.height);
  if (to_array) {
    copy.srcPtr = memory;
    copy.dstArray = array;
  } else {
    copy.dstPtr = memory;
    copy.srcArray = array;
  }
  copy.extent = {std::size_t(contents.width), std::size_t(contents.height), std::size_t(contents.depth)};
  copy.kind = to_array ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
  return copy;
}

template <class T, cudaSurfaceBoundaryMode kMode>
void one_mode(cudaArray_t array, cudaSurfaceObject_t surface, Shape shape, Contents& own, const std::string& name) {
  constexpr int kCount = 100;
  std::vector<At> at(kCount);
  const bool has_rows = shape != Shape::one && shape != Shape::layered_one;
  const bool has_slices = shape != Shape::one && shape != Shape::two;
  for (At& a : at) {
    const int out = kMode == cudaBoundaryModeTrap ? 0 : 3;
    a = {between(-out, own.width - 1 + out), has_rows ? between(-out, own.height - 1 + out) : 0,
         has_slices ? between(-out, own.depth - 1 + out) : 0};
  }
  std::vector<T> values(kCount), got(kCount);
  for (T& value : values)
    for (std::size_t i = 0; i < sizeof(T); ++i) reinterpret_cast<unsigned char*>(&value)[i] = random_bits() & 255;
  std::memset(got.data(), 0xA5, got.size() * sizeof(T));
  At* const places = on_device(at);
  T* const in = on_device(values);
  T* const out = on_device(got);
  read_all<T, kMode><<<4, 32>>>(out, places, kCount, surface, shape);
  check(cudaMemcpy(got.data(), out, kCount * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess, "read " + name);
  for (int i = 0; i < kCount; ++i) {
    T want{};
    if (own.holds(at[i]) || kMode == cudaBoundaryModeClamp)
      std::memcpy(&want, own.bytes.data() + own.place(own.clamped(at[i])), sizeof(T));
    check(std::memcmp(&got[i], &want, sizeof(T)) == 0, "read " + name + " at " + std::to_string(at[i].x) + " " +
                                                           std::to_string(at[i].y) + " " + std::to_string(at[i].z));
  }
  write_all<T, kMode><<<1, 1>>>(in, places, kCount, surface, shape);
  for (int i = 0; i < kCount; ++i)
    if (own.holds(at[i]) || kMode == cudaBoundaryModeClamp)
      std::memcpy(own.bytes.data() + own.place(own.clamped(at[i])), &values[i], sizeof(T));
  Contents after = own;
  std::memset(after.bytes.data(), 0x5A, after.bytes.size());
  const cudaMemcpy3DParms copy = copy_of(array, after, false);
  check(cudaMemcpy3D(&copy) == cudaSuccess && after.bytes == own.bytes, "written " + name);
  cudaFree(places);
  cudaFree(in);
  cudaFree(out);
}

template <class T>
void one_surface(Shape shape) {
  const bool is_cube = shape == Shape::cube || shape == Shape::layered_cube;
  const bool is_layered = shape == Shape::layered_one || shape == Shape::layered_two || shape == Shape::layered_cube;
  const bool has_rows = shape != Shape::one && shape != Shape::layered_one;
  const bool has_slices = shape != Shape::one && shape != Shape::two;
  Contents own{between(1, 20), has_rows ? between(1, 12) : 1, has_slices ? between(1, 6) : 1, sizeof(T), {}};
  if (is_cube) own.height = own.width;
  if (is_cube) own.depth = 6 * (is_layered ? between(1, 2) : 1);
  own.bytes.resize(static_cast<std::size_t>(own.width) * own.height * own.depth * sizeof(T));
  for (unsigned char& byte : own.bytes) byte = random_bits() & 255;
  // As many channels as the size asks for, of at most 4 bytes.
  const int channels = sizeof(T) == 16 ? 4 : sizeof(T) == 8 ? 2 : 1, bits = static_cast<int>(8 * sizeof(T)) / channels;
  const cudaChannelFormatDesc format{bits, channels > 1 ? bits : 0, channels > 2 ? bits : 0, channels > 2 ? bits : 0,
                                     cudaChannelFormatKindUnsigned};
  const unsigned flags =
      cudaArraySurfaceLoadStore | (is_layered ? cudaArrayLayered : 0) | (is_cube ? cudaArrayCubemap : 0);
  const std::string name = std::string(kShapes[int(shape)]) + " of " + std::to_string(sizeof(T)) + " bytes";
  cudaArray_t array{};
  check(cudaMalloc3DArray(
            &array, &format,
            {std::size_t(own.width), has_rows ? std::size_t(own.height) : 0, has_slices ? std::size_t(own.depth) : 0},
            flags) == cudaSuccess,
        "array " + name);
  const cudaMemcpy3DParms copy = copy_of(array, own, true);
  check(cudaMemcpy3D(&copy) == cudaSuccess, "copy " + name);
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaSurfaceObject_t surface = 0;
  check(cudaCreateSurfaceObject(&surface, &resource) == cudaSuccess, "create " + name);
  one_mode<T, cudaBoundaryModeTrap>(array, surface, shape, own, name + ", trap");
  one_mode<T, cudaBoundaryModeClamp>(array, surface, shape, own, name + ", clamp");
  one_mode<T, cudaBoundaryModeZero>(array, surface, shape, own, name + ", zero");
  check(cudaDestroySurfaceObject(surface) == cudaSuccess && cudaFreeArray(array) == cudaSuccess, "destroy " + name);
}

// Copies that leave an array, and surfaces of arrays that were not made for them, are refused.
void mistakes() {
  const cudaChannelFormatDesc format{32, 0, 0, 0, cudaChannelFormatKindFloat};
  cudaArray_t array{};
  cudaMallocArray(&array, &format, 8, 4);
  float values[64] = {};
  check(cudaMemcpy2DToArray(array, 0, 0, values, 36, 36, 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue,
        "too wide");
  check(cudaMemcpy2DToArray(array, 4, 1, values, 32, 32, 3, cudaMemcpyHostToDevice) == cudaErrorInvalidValue,
        "shifted");
  check(cudaMemcpy2DToArray(array, 0, 1, values, 32, 32, 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue,
        "too high");
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaSurfaceObject_t surface = 0;
  check(cudaCreateSurfaceObject(&surface, &resource) == cudaErrorInvalidValue, "a surface without the array's flag");
  cudaFreeArray(array);
  cudaGetLastError();
}

// Rows, bytes one after the other over the ends of rows, and from array to array.
void copies() {
  constexpr int kWidth = 7, kHeight = 5;
  const cudaChannelFormatDesc format{16, 0, 0, 0, cudaChannelFormatKindSigned};
  cudaArray_t one{}, two{};
  cudaMallocArray(&one, &format, kWidth, kHeight);
  cudaMallocArray(&two, &format, kWidth, kHeight);
  std::vector<short> first(kWidth * kHeight), second(kWidth * kHeight), back(kWidth * kHeight);
  for (short& value : first) value = static_cast<short>(random_bits());
  for (short& value : second) value = static_cast<short>(random_bits());
  const std::size_t row = kWidth * 2, all = row * kHeight;
  check(cudaMemcpyToArray(one, 0, 0, first.data(), all, cudaMemcpyHostToDevice) == cudaSuccess, "to an array");
  check(cudaMemcpy2DToArray(two, 0, 0, second.data(), row, row, kHeight, cudaMemcpyHostToDevice) == cudaSuccess,
        "rows");
  check(cudaMemcpyFromArray(back.data(), one, 4, 1, 2 * row, cudaMemcpyDeviceToHost) == cudaSuccess, "from the middle");
  check(std::memcmp(back.data(), first.data() + kWidth + 2, 2 * row) == 0, "over the ends of rows");
  check(cudaMemcpyFromArray(back.data(), one, 4, 4, row, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue,
        "behind the end");
  check(cudaMemcpy2DArrayToArray(two, 2, 1, one, 4, 2, 8, 3) == cudaSuccess, "from array to array");
  for (int y = 0; y < 3; ++y) std::memcpy(&second[(y + 1) * kWidth + 1], &first[(y + 2) * kWidth + 2], 8);
  check(cudaMemcpyArrayToArray(two, 0, 4, one, 10, 0, 10) == cudaSuccess, "bytes from array to array");
  std::memcpy(&second[4 * kWidth], &first[5], 10);
  check(cudaMemcpy2DFromArray(back.data(), row, two, 0, 0, row, kHeight, cudaMemcpyDeviceToHost) == cudaSuccess &&
            back == second,
        "what arrived");
  cudaFreeArray(one);
  cudaFreeArray(two);
  cudaGetLastError();
}

// What no array or texture is like.
void wrong_descriptions() {
  cudaArray_t array{};
  const auto made = [&](cudaChannelFormatDesc format, cudaExtent extent, unsigned flags) {
    const cudaError_t error = cudaMalloc3DArray(&array, &format, extent, flags);
    if (error == cudaSuccess) cudaFreeArray(array);
    return error;
  };
  const cudaChannelFormatDesc f32{32, 0, 0, 0, cudaChannelFormatKindFloat};
  check(made({8, 0, 0, 0, cudaChannelFormatKindFloat}, {4, 4, 0}, 0) == cudaErrorInvalidChannelDescriptor, "f8");
  check(made({8, 8, 8, 0, cudaChannelFormatKindUnsigned}, {4, 4, 0}, 0) == cudaErrorInvalidChannelDescriptor, "three");
  check(made({8, 16, 0, 0, cudaChannelFormatKindUnsigned}, {4, 4, 0}, 0) == cudaErrorInvalidChannelDescriptor, "mixed");
  check(made(f32, {131073, 4, 0}, 0) == cudaErrorInvalidValue && made(f32, {4, 65537, 0}, 0) == cudaErrorInvalidValue,
        "too large");
  check(made(f32, {8, 4, 6}, cudaArrayCubemap) == cudaErrorInvalidValue, "a cube map that is none");
  check(made(f32, {4, 4, 2049}, cudaArrayLayered) == cudaErrorInvalidValue, "too many layers");
  check(made(f32, {4, 0, 4}, 0) == cudaErrorInvalidValue, "slices without rows");
  cudaResourceDesc resource{};
  cudaTextureDesc texture{};
  cudaTextureObject_t object = 0;
  char* memory = nullptr;
  cudaMalloc(&memory, 1 << 16);
  resource.resType = cudaResourceTypePitch2D;
  resource.res.pitch2D.devPtr = memory;
  resource.res.pitch2D.desc = f32;
  resource.res.pitch2D.width = resource.res.pitch2D.height = 10;
  const auto pitched = [&](std::size_t pitch, std::size_t offset) {
    resource.res.pitch2D.pitchInBytes = pitch;
    resource.res.pitch2D.devPtr = memory + offset;
    return cudaCreateTextureObject(&object, &resource, &texture, nullptr);
  };
  check(pitched(40, 0) == cudaErrorInvalidValue, "a pitch that is no multiple of 32");
  check(pitched(32, 0) == cudaErrorInvalidValue, "a pitch less than a row");
  check(pitched(64, 32) == cudaErrorInvalidValue, "an address that is no multiple of 512");
  check(pitched(64, 0) == cudaSuccess && cudaDestroyTextureObject(object) == cudaSuccess, "a pitch");
  texture.filterMode = cudaFilterModeLinear;
  resource.res.pitch2D.desc.f = cudaChannelFormatKindSigned;
  check(pitched(64, 0) == cudaErrorInvalidFilterSetting, "a linear filter of integers");
  const cudaError_t again = cudaDestroyTextureObject(object);
  check(again == cudaErrorInvalidValue, "destroyed twice");
  cudaFree(memory);
  cudaGetLastError();
}

int main() {
  for (int round = 0; round < 3; ++round)
    for (int shape = 0; shape < 7; ++shape) {
      one_surface<unsigned char>(static_cast<Shape>(shape));
      one_surface<short>(static_cast<Shape>(shape));
      one_surface<unsigned>(static_cast<Shape>(shape));
      one_surface<uint2>(static_cast<Shape>(shape));
      one_surface<float4>(static_cast<Shape>(shape));
    }
  copies();
  mistakes();
  wrong_descriptions();
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
