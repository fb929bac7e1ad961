// Handles of the C interface that close themselves, and its errors as text.
#pragma once

#include <doctest/doctest.h>
#include <tessera.h>

#include <memory>
#include <string>
#include <vector>

namespace tessera::testing {

struct Closer {
  void operator()(tessera_jit* jit) const { tessera_jit_close(jit); }
  void operator()(tessera_kernel* kernel) const { tessera_kernel_close(kernel); }
  void operator()(tessera_device* device) const { tessera_device_close(device); }
  void operator()(char* text) const { tessera_text_free(text); }
};
using JitHandle = std::unique_ptr<tessera_jit, Closer>;
using KernelHandle = std::unique_ptr<tessera_kernel, Closer>;
using DeviceHandle = std::unique_ptr<tessera_device, Closer>;
using Text = std::unique_ptr<char, Closer>;

/// "usage: head_dim is given twice"; "ok"
inline std::string said(tessera_status status) {
  if (status == TESSERA_OK) return "ok";
  return std::string(tessera_status_name(status)) + ": " + tessera_error_message();
}

/// What `call` writes through its last parameter.
template <class Handle, class Call>
Handle made(const Call& call) {
  typename Handle::pointer out = nullptr;
  const tessera_status status = call(&out);
  INFO(said(status));
  REQUIRE(status == TESSERA_OK);
  REQUIRE(out != nullptr);
  return Handle(out);
}

/// A struct with every default.
template <class Struct>
Struct defaults() {
  Struct made{};
  made.struct_size = sizeof made;
  return made;
}

/// A jit that reads no environment but NVRTC's place, and keeps kernels in memory.
inline JitHandle open_jit(tessera_jit_options options = defaults<tessera_jit_options>()) {
  options.no_disk_cache = 1;
  if (options.compile_policy == TESSERA_POLICY_DEFAULT) options.compile_policy = TESSERA_POLICY_ALLOW;
  return made<JitHandle>([&](tessera_jit** out) { return tessera_jit_open(&options, out); });
}

inline KernelHandle kernel_of(const JitHandle& jit, const char* op, const std::vector<tessera_field>& fields) {
  return made<KernelHandle>(
      [&](tessera_kernel** out) { return tessera_jit_kernel(jit.get(), op, fields.data(), fields.size(), out); });
}

inline DeviceHandle open_device(const JitHandle& jit,
                                tessera_device_options options = defaults<tessera_device_options>()) {
  return made<DeviceHandle>([&](tessera_device** out) { return tessera_device_open(jit.get(), &options, out); });
}

inline std::size_t index_of(const KernelHandle& kernel, std::int32_t kind, const char* name) {
  std::size_t index = 0;
  INFO(name);
  REQUIRE(said(tessera_kernel_index(kernel.get(), kind, name, &index)) == "ok");
  return index;
}

}  // namespace tessera::testing
