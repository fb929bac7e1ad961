// Stands in for a header of PyTorch that kernels include for their bindings; nothing of it is called.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <tuple>

#define TORCH_CHECK(condition, ...)                                      \
  do {                                                                   \
    if (!(condition)) {                                                  \
      std::fprintf(stderr, "check failed: %s:%d\n", __FILE__, __LINE__); \
      std::exit(1);                                                      \
    }                                                                    \
  } while (0)
namespace at {
struct Tensor {
  std::int64_t size(int) const { return 0; }
  int options() const { return 0; }
  void* data_ptr() const { return nullptr; }
};
inline Tensor empty(std::initializer_list<int>, int) { return {}; }
}  // namespace at
struct StubLibrary {
  template <class... Anything>
  void def(Anything...) {}
};
#define TORCH_LIBRARY(name, argument) [[maybe_unused]] static void stub_library_##name(StubLibrary argument)
