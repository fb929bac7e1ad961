#include "tests/emulator/nvcc.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace tessera::emulator::testing {

std::string compile_with_nvcc(const std::string& source, const std::string& arch, const std::string& extra) {
  std::string nvcc = "nvcc";
  if (std::system("nvcc --version > /dev/null 2>&1") != 0) {
    nvcc = "/usr/local/cuda/bin/nvcc";
    if (!std::filesystem::exists(nvcc)) return {};
  }
  const std::string out =
      (std::filesystem::temp_directory_path() / ("tessera_" + std::to_string(getpid()) + ".ptx")).string();
  const std::string root = TESSERA_SOURCE_DIR;
  const std::string command = nvcc + " -ptx -std=c++20 -lineinfo -I" + root + "/templates " + extra +
                              " -gencode arch=compute_" + arch.substr(3) + ",code=" + arch + " -o " + out + " " + root +
                              "/" + source;
  if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
  std::ifstream file(out);
  std::ostringstream text;
  text << file.rdbuf();
  std::filesystem::remove(out);
  return text.str();
}

}  // namespace tessera::emulator::testing
