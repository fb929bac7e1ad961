#include "emulator/memory/host_pages.h"

#include <ucontext.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <string>

namespace tessera::emulator {
namespace {

std::uint64_t hexadecimal(std::string_view& text) noexcept {
  std::uint64_t value = 0;
  for (; !text.empty(); text.remove_prefix(1)) {
    const char c = text.front();
    if (c >= '0' && c <= '9')
      value = value * 16 + static_cast<std::uint64_t>(c - '0');
    else if (c >= 'a' && c <= 'f')
      value = value * 16 + static_cast<std::uint64_t>(c - 'a' + 10);
    else
      break;
  }
  return value;
}

constexpr std::size_t kStackBytes = std::size_t{64} << 10;
alignas(64) std::byte other_stack[kStackBytes];
ucontext_t here, there;
void (*work_there)(void*) = nullptr;
void* argument_there = nullptr;

void run_there() { work_there(argument_there); }

}  // namespace

bool read_mapping(std::string_view line, HostMapping& mapping) noexcept {
  const std::string_view whole = line;
  mapping.begin = hexadecimal(line);
  if (line.empty() || line.front() != '-') return false;
  line.remove_prefix(1);
  mapping.end = hexadecimal(line);
  if (line.size() < 5 || line.front() != ' ' || mapping.begin >= mapping.end) return false;
  mapping.is_readable = line[1] == 'r';
  mapping.is_writable = line[2] == 'w';
  mapping.is_executable = line[3] == 'x';
  mapping.is_shared = line[4] == 's';
  mapping.is_stack = whole.ends_with("[stack]");
  return true;
}

std::vector<HostMapping> mappings_of(std::uint64_t begin, std::uint64_t end) {
  std::vector<HostMapping> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    HostMapping one;
    if (!read_mapping(line, one) || one.end <= begin || one.begin >= end) continue;
    one.begin = std::max(one.begin, begin);
    one.end = std::min(one.end, end);
    found.push_back(one);
  }
  return found;
}

void on_other_stack(void (*work)(void*), void* argument) {
  work_there = work;
  argument_there = argument;
  getcontext(&there);
  there.uc_stack.ss_sp = other_stack;
  there.uc_stack.ss_size = kStackBytes;
  there.uc_link = &here;
  makecontext(&there, run_there, 0);
  swapcontext(&here, &there);
}

}  // namespace tessera::emulator
