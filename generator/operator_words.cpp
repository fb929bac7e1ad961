#include "generator/operator_words.h"

#include <algorithm>

namespace tessera {

std::string_view swizzle_name(Swizzle swizzle) noexcept {
  switch (swizzle) {
    case Swizzle::none:
      return "swnone";
    case Swizzle::b32:
      return "sw32";
    case Swizzle::b64:
      return "sw64";
    case Swizzle::b128:
      return "sw128";
  }
  return "?";
}

std::string arch_name(std::string_view arch) {
  std::string name(arch);
  name.erase(std::remove(name.begin(), name.end(), '_'), name.end());
  return name;
}

TensorMapType tensor_map_type(DType dtype) noexcept {
  switch (dtype) {
    case DType::f16:
      return TensorMapType::f16;
    case DType::bf16:
      return TensorMapType::bf16;
    case DType::f32:
      return TensorMapType::f32;
    case DType::tf32:
      return TensorMapType::tf32;
    case DType::f64:
      return TensorMapType::f64;
    case DType::e4m3:
    case DType::e5m2:
    case DType::u8:
    case DType::s8:
      return TensorMapType::u8;
    case DType::u16:
      return TensorMapType::u16;
    case DType::u32:
      return TensorMapType::u32;
    case DType::s32:
      return TensorMapType::s32;
    case DType::u64:
      return TensorMapType::u64;
    case DType::s64:
      return TensorMapType::s64;
  }
  return TensorMapType::u8;
}

TensorMapSwizzle tensor_map_swizzle(Swizzle swizzle) noexcept {
  switch (swizzle) {
    case Swizzle::none:
      return TensorMapSwizzle::none;
    case Swizzle::b32:
      return TensorMapSwizzle::b32;
    case Swizzle::b64:
      return TensorMapSwizzle::b64;
    case Swizzle::b128:
      return TensorMapSwizzle::b128;
  }
  return TensorMapSwizzle::none;
}

}  // namespace tessera
