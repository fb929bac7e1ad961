// Device code of a program and its kernels. Code is loaded when a kernel or a variable of it is first asked for, as the
// driver does by default: a program with a module that the emulator does not know runs as far as it does not need it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
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

  /// Throws Error{unsupported} without PTX for the device, with the flag that adds it; Error{compile}, Error{device}.
  Kernel& kernel(const std::string& name);
  /// Address 0: the module has none of this name.
  emulator::DeviceVariable variable(const std::string& name);
  const std::string& ptx();
  std::vector<std::string> kernel_names();
  LoadedImage& image();

 private:
  FatBinary binary_;
  std::vector<FatBinary> objects_;
  const std::string* ptx_ = nullptr;
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
  /// Of a host function or, of cudaGetKernel's handles, itself. Null: of none. Throws what Module::kernel does.
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
