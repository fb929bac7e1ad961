// Under a limit of address space (ulimit -v) the emulator reserves less, and says what is missing where that is too
// little. A process of its own has the limit.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emulator/memory/memory.h"
#include "tessera/emulator/device.h"
#include "tessera/error.h"

using namespace tessera;
using namespace tessera::emulator;

namespace {

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TESSERA_TEST_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(TESSERA_TEST_SANITIZED)
constexpr bool kCanLimit = false;  // the sanitizer's shadow is terabytes of address space
#else
constexpr bool kCanLimit = true;
#endif

std::uint64_t address_space() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

/// What `report` says in a process that may have so much more address space than it has.
std::string limited(std::uint64_t more, const std::function<std::string()>& report) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit limit{address_space() + more, address_space() + more};
    std::string text = "no limit";
    if (setrlimit(RLIMIT_AS, &limit) == 0) text = report();
    _exit(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t count = 0; (count = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(count));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  return text;
}

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

}  // namespace

TEST_CASE("a limit of address space makes the emulated device smaller, and leaves room beside it") {
  if (!kCanLimit) return;
  const std::string text = limited(4 * kGiB, [] {
    EmulatedDevice device;
    const auto bytes = static_cast<std::uint64_t>(device.info().memory_bytes);
    const DevicePointer memory = device.allocate(256 << 20);
    device.set_bytes(memory, 0xA5, 256 << 20);
    std::uint8_t last = 0;
    device.copy_to_host(&last, memory + (256 << 20) - 1, 1);
    const std::string beside(kGiB, 'x');  // throws where nothing is left
    try {
      device.allocate(8 * kGiB);
    } catch (const Error& error) {
      return fmt::format("{} {} {}: {}", bytes < 2 * kGiB, last, beside.size() == kGiB, error.what());
    }
    return std::string("8 GiB were given");
  });
  CHECK(text.starts_with("true 165 true: emulator: out of memory: 8589934592 bytes asked for, "));
  CHECK(text.find(" bytes (ulimit -v)") != std::string::npos);
}

TEST_CASE("a limit that leaves no room is named, with what is needed") {
  if (!kCanLimit) return;
  const std::string text = limited(64 << 20, [] {
    try {
      const GlobalMemory memory(64 * kGiB);
      return std::string("reserved");
    } catch (const Error& error) {
      return std::string(error.kind() == ErrorKind::device ? error.what() : "wrong kind");
    }
  });
  CHECK(text.starts_with(
      "emulator: global memory needs 134217728 bytes of address space at least, which this process does "
      "not get: address space is limited to "));
  CHECK(text.ends_with(" bytes (ulimit -v); raise the limit"));
}

TEST_CASE("without a limit the device has all that it asks for") {
  const GlobalMemory memory(4 * kGiB);
  CHECK(memory.capacity() == 4 * kGiB);
}

TEST_CASE("a device's memory goes with the device, whatever code of it is kept") {
  constexpr const char* kPtx =
      ".version 8.0\n.target sm_90a\n.address_size 64\n.global .b32 counter;\n"
      ".visible .entry nothing() { ret; }\n";
  const std::uint64_t before = address_space();
  std::vector<std::unique_ptr<LoadedImage>> kept;
  for (int i = 0; i < 3; ++i) {
    EmulatedDevice device;
    kept.push_back(device.load_ptx(kPtx, "nothing.ptx"));
    CHECK(address_space() >= before + 2 * static_cast<std::uint64_t>(device.info().memory_bytes));
  }
  CHECK(address_space() < before + kGiB);
}
