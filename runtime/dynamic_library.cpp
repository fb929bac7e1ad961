#include "runtime/dynamic_library.h"

#include <dlfcn.h>
#include <link.h>

namespace tessera {

DynamicLibrary DynamicLibrary::open(const std::string& name, std::string* why) {
  DynamicLibrary library;
  library.handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.handle_ == nullptr && why != nullptr) {
    const char* reason = dlerror();
    *why = reason != nullptr ? reason : name + ": cannot be opened";
  }
  return library;
}

const link_map* DynamicLibrary::loaded() const noexcept {
  link_map* map = nullptr;
  return handle_ != nullptr && dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 ? map : nullptr;
}

std::filesystem::path DynamicLibrary::file() const {
  const link_map* const map = loaded();
  if (map == nullptr) return {};
  std::error_code code;
  const std::filesystem::path real = std::filesystem::canonical(map->l_name, code);
  return code ? std::filesystem::path(map->l_name) : real;
}

void* DynamicLibrary::symbol(const char* name) const noexcept {
  return handle_ == nullptr ? nullptr : dlsym(handle_, name);
}

}  // namespace tessera
