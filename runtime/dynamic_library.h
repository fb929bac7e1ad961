// A shared library opened at run time, so that programs start where it is absent.
//
// It is never closed: drivers and compilers leave threads and exit handlers behind, which must not outlive their code.
#pragma once

#include <filesystem>
#include <string>

struct link_map;

namespace tessera {

class DynamicLibrary {
 public:
  DynamicLibrary() = default;
  /// A path, or a bare name for the loader to find. A failure leaves it closed and the reason in `why`.
  static DynamicLibrary open(const std::string& name, std::string* why = nullptr);

  explicit operator bool() const noexcept { return handle_ != nullptr; }
  /// The loader's record of it; null when it is closed.
  const link_map* loaded() const noexcept;
  /// The file that was opened, links resolved.
  std::filesystem::path file() const;
  /// Null when the library lacks the symbol.
  void* symbol(const char* name) const noexcept;

  template <class Function>
  bool bind(Function*& function, const char* name) const noexcept {
    function = reinterpret_cast<Function*>(symbol(name));
    return function != nullptr;
  }

 private:
  void* handle_ = nullptr;
};

}  // namespace tessera
