#include "guest/libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <string_view>

#include "guest/session.h"

namespace tessera::guest {
namespace {

constexpr std::string_view kNames[] = {"libcublas",   "libcudnn",    "libcufft", "libcurand",     "libcusolver",
                                       "libcusparse", "libcutensor", "libnccl",  "libnpp",        "libnvjpeg",
                                       "libnvshmem",  "libnvinfer",  "libcudss", "libcustatevec", "libcuvs"};

std::string_view folder_of(std::string_view path) { return path.substr(0, path.rfind('/') + 1); }

// Where the stand-ins are, beside this library.
std::string_view own_folder() {
  static Dl_info self{};
  static const bool is_found = dladdr(reinterpret_cast<const void*>(&folder_of), &self) != 0;
  return is_found && self.dli_fname != nullptr ? folder_of(self.dli_fname) : std::string_view();
}

// The file's name of a path, where it is one of them; empty: it is none.
std::string_view known(std::string_view path) {
  if (!own_folder().empty() && folder_of(path) == own_folder()) return {};
  path.remove_prefix(path.rfind('/') + 1);  // npos + 1: 0
  const bool is_one =
      std::any_of(std::begin(kNames), std::end(kNames), [&](std::string_view name) { return path.starts_with(name); });
  return is_one ? path : std::string_view();
}

void tell(std::string_view name) {
  if (name.empty()) return;
  Session::instance().add_problem(
      fmt::format("{}: its device code is machine code only, which is not emulated: what it launches fails", name));
}

}  // namespace

bool is_machine_code_only(const char* path) { return path != nullptr && !known(path).empty(); }

void tell_library(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) != 0 && info.dli_fname != nullptr) tell(known(info.dli_fname));
}

void tell_loaded_libraries() {
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void*) {
        tell(known(info->dlpi_name));
        return 0;
      },
      nullptr);
}

}  // namespace tessera::guest
