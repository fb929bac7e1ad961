// Writes docs/ptx-support.md: emulator_support_page TESTS_PTX_FOLDER > docs/ptx-support.md
#include <cstdio>

#include "emulator/syntax/support_page.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: emulator_support_page TESTS_PTX_FOLDER\n", stderr);
    return 2;
  }
  const std::string page = tessera::emulator::support_page(argv[1]);
  return std::fwrite(page.data(), 1, page.size(), stdout) == page.size() ? 0 : 5;
}
