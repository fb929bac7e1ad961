// The few driver functions that the fuzz needs, by dlopen, without CUDA headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/gpu_fuzz/tensor_map_arguments.h"

namespace tessera {

class TensorMapDriver {
 public:
  /// Loads libcuda and initialises it, without a context; error() says what failed.
  TensorMapDriver();
  TensorMapDriver(const TensorMapDriver&) = delete;
  TensorMapDriver& operator=(const TensorMapDriver&) = delete;

  const std::string& error() const { return error_; }
  const std::string& device_name() const { return device_name_; }
  int compute_major() const { return compute_major_; }
  int compute_minor() const { return compute_minor_; }
  int driver_version() const { return driver_version_; }

  /// Retains the primary context; each thread makes it current for itself.
  bool retain_context();
  bool make_current() const;

  /// CUresult of one encode into the 128 bytes at object, of any alignment.
  int encode(void* object, const RawMap& map) const {
    const auto given = [&](const auto* values, std::uint32_t null) {
      return (map.nulls & null) != 0 ? nullptr : values;
    };
    return encode_((map.nulls & kNullObject) != 0 ? nullptr : object, map.type, map.rank,
                   reinterpret_cast<void*>(map.address), given(map.dims, kNullDims), given(map.strides, kNullStrides),
                   given(map.box, kNullBox), given(map.element_strides, kNullElementStrides), map.interleave,
                   map.swizzle, map.l2_promotion, map.fill);
  }
  int replace_address(void* object, std::uint64_t address) const {
    return replace_address_(object, reinterpret_cast<void*>(address));
  }

 private:
  // cuda.h passes enumerators as int; every other type is the header's.
  using Encode = int (*)(void*, int, std::uint32_t, void*, const std::uint64_t*, const std::uint64_t*,
                         const std::uint32_t*, const std::uint32_t*, int, int, int, int);
  using ReplaceAddress = int (*)(void*, void*);

  template <class F>
  F symbol(const char* name);
  void initialise();

  void* library_ = nullptr;
  std::string error_;
  std::string device_name_;
  int compute_major_ = 0;
  int compute_minor_ = 0;
  int driver_version_ = 0;
  void* context_ = nullptr;
  Encode encode_ = nullptr;
  ReplaceAddress replace_address_ = nullptr;
};

}  // namespace tessera
