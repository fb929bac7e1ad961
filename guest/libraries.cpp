#include "guest/libraries.h"

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

}  // namespace

std::vector<std::string> libraries_of_machine_code() {
  std::vector<std::string> found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        std::string_view name = info->dlpi_name;
        name.remove_prefix(name.rfind('/') + 1);  // npos + 1: 0
        const bool is_one = std::any_of(std::begin(kNames), std::end(kNames),
                                        [&](std::string_view known) { return name.starts_with(known); });
        if (is_one) static_cast<std::vector<std::string>*>(data)->emplace_back(name);
        return 0;
      },
      &found);
  std::sort(found.begin(), found.end());
  return found;
}

void tell_libraries_of_machine_code() {
  for (const std::string& name : libraries_of_machine_code())
    Session::instance().add_problem(
        fmt::format("{}: its device code is machine code only, which is not emulated: what it launches fails", name));
}

}  // namespace tessera::guest
