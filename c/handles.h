// What is behind the handles of tessera.h, and the two things that every function does: read structs of any age, and
// let no exception out.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_set>

#include "tessera.h"
#include "tessera/device.h"
#include "tessera/error.h"
#include "tessera/jit.h"

namespace tessera::c {

/// What a jit's handle, its kernels' and its devices' share: the last of them that is closed ends it. Code that was
/// loaded on a GPU goes with its kernel, before the GPU: launches of it may be running, and graphs hold it.
struct Shared {
  std::mutex mutex;
  std::map<int, std::shared_ptr<Device>> gpus;  // by ordinal, under the mutex
  Jit jit;

  explicit Shared(JitOptions options) : jit(std::move(options)) {}
};

/// Takes what is being thrown, for tessera_error_message() on this thread. Precondition: inside a catch.
tessera_status record_exception() noexcept;

/// Calls f, which may throw.
template <class F>
tessera_status guarded(const F& f) noexcept {
  try {
    f();
    return TESSERA_OK;
  } catch (...) {
    return record_exception();
  }
}

[[noreturn]] void refuse_null(const char* what);
/// Throws Error{usage}: "kernel is null".
inline void require(const void* pointer, const char* what) {
  if (pointer == nullptr) [[unlikely]]
    refuse_null(what);
}
/// The same of an array.
inline void require_array(const void* pointer, std::size_t count, const char* what) {
  if (count > 0) require(pointer, what);
}

/// Throws Error{usage} where the struct at `given` cannot be one of a caller's, or has members set that this library
/// does not know. size: what it says; known: what this library's has.
void check_struct(const void* given, std::size_t size, std::size_t known, const char* name);

/// A caller's struct as this library has it. Precondition: not null.
template <class Struct>
Struct sized(const Struct* given, const char* name) {
  check_struct(given, given->struct_size, sizeof(Struct), name);
  Struct full{};
  std::memcpy(&full, given, std::min(given->struct_size, sizeof(Struct)));
  full.struct_size = sizeof(Struct);
  return full;
}

/// A text that the caller frees.
char* new_text(const std::string& text);
inline std::string text_or_empty(const char* text) { return text == nullptr ? std::string() : std::string(text); }

/// An operator's Problem from words. Throws Error{usage}.
Problem problem_of(const char* op, const tessera_field* fields, std::size_t num_fields);

}  // namespace tessera::c

struct tessera_jit {
  std::shared_ptr<tessera::c::Shared> shared;
};

struct tessera_device {
  std::shared_ptr<tessera::c::Shared> shared;
  std::shared_ptr<tessera::Device> device{};  ///< a GPU is one of shared->gpus
  std::mutex mutex{};
  std::unordered_set<std::uint64_t> allocated{};  ///< under the mutex
};

struct tessera_kernel {
  std::shared_ptr<tessera::c::Shared> shared;
  std::shared_ptr<tessera::Kernel> kernel;
  int softcap = -1;  ///< index of this scalar, which has bounds; -1: none
  mutable std::once_flag plan_once{};
  mutable std::string plan{};
};
