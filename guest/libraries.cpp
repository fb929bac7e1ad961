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

// The file's name of a path, where it is one of them; empty: it is none.
std::string_view known(std::string_view path) {
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
