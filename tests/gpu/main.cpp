// Exit code 77, with the reason, where there is no GPU: ctest reports that as skipped.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tessera/cuda_device.h"

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const std::string reason = tessera::cuda_unavailable_reason();
  if (!reason.empty() && !context.shouldExit()) {
    fmt::print("not run: {}\n", reason);
    return 77;
  }
  return context.run();
}
