// replay TARGET FOLDER: runs a fuzz target over every file of a folder, in the order of their names: the corpus as a
// unit test.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/target.h"

int main(int argc, char** argv) {
  const auto& targets = tessera::fuzz::targets();
  const auto target = argc == 3 ? targets.find(argv[1]) : targets.end();
  if (target == targets.end() || !std::filesystem::is_directory(argv[2])) {
    std::fprintf(stderr, "usage: replay TARGET FOLDER\n");
    return 2;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[2])) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    std::ifstream stream(file, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
    std::fprintf(stderr, "%s\n", file.c_str());
    target->second(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  }
  if (files.empty()) std::fprintf(stderr, "%s: no files\n", argv[2]);
  return files.empty() ? 1 : 0;
}
