// What the hosts of outside kernels share: random inputs, upload, bf16.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

struct __nv_bfloat16;

inline float value_of(std::uint16_t code) {
  const std::uint32_t bits = std::uint32_t{code} << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline std::uint16_t code_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// Some kernels read past the last row and throw it away: room behind the matrix.
template <class T>
T* upload(const std::vector<T>& matrix) {
  constexpr std::size_t kBehind = 65536;
  void* pointer = nullptr;
  cudaMalloc(&pointer, matrix.size() * sizeof(T) + kBehind);
  cudaMemset(pointer, 0xFF, matrix.size() * sizeof(T) + kBehind);
  cudaMemcpy(pointer, matrix.data(), matrix.size() * sizeof(T), cudaMemcpyHostToDevice);
  return static_cast<T*>(pointer);
}
template <class T>
void download(std::vector<T>& matrix, const T* pointer) {
  cudaMemcpy(matrix.data(), pointer, matrix.size() * sizeof(T), cudaMemcpyDeviceToHost);
}
inline const __nv_bfloat16* as_bf16(const std::uint16_t* pointer) {
  return reinterpret_cast<const __nv_bfloat16*>(pointer);
}
inline __nv_bfloat16* as_bf16(std::uint16_t* pointer) { return reinterpret_cast<__nv_bfloat16*>(pointer); }
inline std::mt19937& generator() {
  static std::mt19937 random{std::random_device{}()};
  return random;
}
inline std::vector<std::uint16_t> random_bf16(std::size_t count) {
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> values(count);
  for (std::uint16_t& x : values) x = code_of(normal(generator()));
  return values;
}
inline int argument(int argc, char** argv, int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; }
