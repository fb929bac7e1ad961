// What a free gives back, and what it leaves: pages, addresses, the word that the memory was freed.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "emulator/memory/memory.h"

namespace tessera::emulator {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// Pages of these bytes of the process that take memory.
std::size_t resident_pages(const void* at, std::size_t bytes) {
  std::vector<unsigned char> pages((bytes + 4095) / 4096);
  REQUIRE(mincore(const_cast<void*>(at), bytes, pages.data()) == 0);
  return static_cast<std::size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
}

void write(GlobalMemory& memory, std::uint64_t address, std::uint64_t bytes, int value) {
  std::memset(memory.data(address), value, bytes);
  memory.mark_initialised(address, bytes);
}

TEST_CASE("small allocations that are freed leave no page behind, and their addresses come back") {
  GlobalMemory memory(64 * kMiB);
  std::uint64_t highest = 0;
  for (int i = 0; i < 20000; ++i) {
    std::uint64_t addresses[4];
    for (std::uint64_t& address : addresses) {
      address = memory.allocate(512 + static_cast<std::uint64_t>(i % 3));
      write(memory, address, 512, i);
      highest = std::max(highest, address);
    }
    for (const std::uint64_t address : addresses) CHECK(memory.free(address));
  }
  // Those in quarantine and those that lived at a time, with their gaps.
  CHECK(highest < kGlobalBase + (GlobalMemory::kQuarantine + 8) * 5120);
  CHECK(resident_pages(memory.data(kGlobalBase), 16 * kMiB) == 0);
  CHECK(resident_pages(memory.shadow(kGlobalBase), 16 * kMiB) == 0);
}

TEST_CASE("freed memory is told of as such while its address rests") {
  GlobalMemory memory(64 * kMiB);
  const std::uint64_t freed = memory.allocate(100), kept = memory.allocate(100);
  write(memory, freed, 100, 1);
  write(memory, kept, 100, 2);
  CHECK(memory.free(freed));
  CHECK(!memory.free(freed));
  std::set<std::uint64_t> seen;
  for (std::size_t i = 0; i + 1 < GlobalMemory::kQuarantine; ++i) {
    const std::uint64_t address = memory.allocate(100);
    seen.insert(address);
    CHECK(memory.free(address));
  }
  CHECK(seen.count(freed) == 0);
  CHECK(!memory.is_allocated(freed, 1));
  CHECK(memory.describe(freed + 7) == "byte 7 of an allocation of 100 bytes that was freed");
  CHECK(static_cast<int>(*memory.data(kept)) == 2);
  CHECK(memory.free(memory.allocate(100)));
  CHECK(memory.allocate(100) == freed);  // the oldest
  CHECK(!memory.is_known(freed, 100));
  CHECK(*memory.shadow(freed) == kAllocated);  // what was there is not taken for written
}

TEST_CASE("a full arena takes addresses out of their rest") {
  GlobalMemory memory(4 * kMiB);
  for (int i = 0; i < 10; ++i) CHECK(memory.free(memory.allocate(3 * kMiB)));
  CHECK_THROWS(static_cast<void>(memory.allocate(4 * kMiB)));
}

TEST_CASE("allocations of all sizes come and go: none meets another, and what lives keeps its bytes") {
  GlobalMemory memory(64 * kMiB);
  std::mt19937 random(7);
  struct Block {
    std::uint64_t address, bytes;
    int value;
  };
  std::vector<Block> blocks;
  const auto is_whole = [&](const Block& block) {
    const auto* const bytes = memory.data(block.address);
    const auto* const shadow = memory.shadow(block.address);
    return std::all_of(bytes, bytes + block.bytes, [&](std::byte b) { return b == std::byte(block.value); }) &&
           std::all_of(shadow, shadow + block.bytes, [](std::uint8_t s) { return s == kReadable; });
  };
  for (int step = 0; step < 30000; ++step) {
    if (blocks.size() < 40 && random() % 2 == 0) {
      const std::uint64_t bytes = random() % 8 == 0 ? random() % 100000 : random() % 6000;
      const std::uint64_t address = memory.allocate(bytes);
      blocks.push_back({address, bytes, step % 256});
      write(memory, address, bytes, step % 256);
      CHECK(!memory.is_allocated(address + bytes, 1));  // its gap
    } else if (!blocks.empty()) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      REQUIRE(is_whole(blocks.back()));
      REQUIRE(memory.free(blocks.back().address));
      blocks.pop_back();
    }
  }
  for (const Block& block : blocks) CHECK(is_whole(block));
}

}  // namespace
}  // namespace tessera::emulator
