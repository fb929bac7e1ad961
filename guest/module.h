// Device code of a program and its kernels. Code is loaded when a kernel or a variable of it is first asked for, as the
// driver does by default: a program with a module that the emulator does not know runs as far as it does not need it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "guest/fat_binary.h"
#include "guest/session.h"

namespace tessera::guest {

class Module;

/// What a CUfunction, a CUkernel and a cudaKernel_t stand for.
struct Kernel {
  Module* module = nullptr;
  std::string name;
  EntryHandle entry;
  emulator::KernelFacts facts;
  std::vector<ParameterLayout> parameters;
  std::size_t max_dynamic_smem = 0;  ///< of cudaFuncSetAttribute
  bool has_large_clusters = false;   ///< of cudaFuncAttributeNonPortableClusterSizeAllowed

  std::size_t parameter_bytes() const {
    return parameters.empty() ? 0 : parameters.back().offset + parameters.back().bytes;
  }
};

class Module {
 public:
  /// `objects`: what it was linked of, where there are several.
  explicit Module(FatBinary binary, std::vector<FatBinary> objects = {})
      : binary_(std::move(binary)), objects_(std::move(objects)) {}
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Throws Error{unsupported} without PTX for the device, with the flag that adds it; Error{compile}, Error{device}.
  Kernel& kernel(const std::string& name);
  /// Address 0: the module has none of this name.
  emulator::DeviceVariable variable(const std::string& name);
  const std::string& ptx();
  std::vector<std::string> kernel_names();
  /// The fat binary that it comes from: its machine code tells how many registers threads have, where times are asked
  /// for. It is read when a kernel is first asked for.
  void set_code(const void* fat_binary) { code_ = fat_binary; }
  void learn_registers();
  /// Kernels may launch others (device_runtime.h).
  bool has_device_runtime() const { return has_device_runtime_; }
  LoadedImage& image();

 private:
  std::string with_device_runtime(std::vector<std::string_view> modules);

  FatBinary binary_;
  const void* code_ = nullptr;
  std::map<std::string, std::uint32_t> registers_;  ///< by kernel, of machine code
  std::vector<FatBinary> objects_;
  const std::string* ptx_ = nullptr;
  std::string with_runtime_;
  bool has_device_runtime_ = false;
  std::unique_ptr<LoadedImage> image_;
  std::map<std::string, std::unique_ptr<Kernel>> kernels_;
};

/// The runtime's table: host functions and variables stand for those of modules. It has a lock of its own: libraries
/// register theirs under the dynamic linker's, whatever another thread computes.
class Registry {
 public:
  static Registry& instance();

  /// `objects`: the fat binaries that this one was linked of. Their PTX is linked (link.h).
  Module* add(const void* fat_binary, const std::vector<const void*>& objects);
  void remove(Module* module);
  void add_kernel(const void* host, Module* module, const char* name);
  void add_variable(const void* host, Module* module, const char* name);
  /// `pointer` is what the host's code reads the variable's address from.
  void add_managed(void** pointer, Module* module, const char* name);
  /// Fills in the pointers of managed variables: before the first work of the program that could read one.
  void place_managed();

  bool has_kernel(const void* host) const;
  /// Of a host function; a handle of either API is itself one. Null: of none. Throws what Module::kernel does.
  Kernel* kernel(const void* host);
  emulator::DeviceVariable variable(const void* host);

 private:
  struct Name {
    Module* module = nullptr;
    std::string name;
  };
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Module>> modules_;
  std::map<const void*, Name> kernels_, variables_;
  std::map<void**, Name> managed_;
};

}  // namespace tessera::guest
