#include "emulator/two_threads.h"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <memory>
#include <system_error>
#include <thread>

#include "base/quiet_thread.h"
#include "emulator/findings/schedule_clues.h"
#include "emulator/syntax/isa.h"
#include "tessera/error.h"

namespace tessera::emulator {
namespace {

/// Set in the shadow of every live byte before the halves run; whatever writes a byte clears it.
constexpr std::uint8_t kUntouched = 4;

std::uint64_t clusters_of(const LaunchShape& shape) {
  std::uint64_t count = 1;
  for (std::size_t i = 0; i < 3; ++i) count *= shape.grid[i] / shape.cluster[i];
  return count;
}

/// The instruction lets CTAs of different clusters speak to each other, or to the host.
bool is_shared(const Instruction& in) {
  const std::string_view opcode = in.opcode;
  const auto has = [&](std::string_view word) { return opcode.find(word) != std::string_view::npos; };
  const auto starts = [&](std::string_view word) { return opcode.substr(0, word.size()) == word; };
  if (starts("clusterlaunchcontrol") || starts("call") || starts("multimem")) return true;
  if (starts("cp.reduce") && has(".global")) return true;
  if (has(".shared")) return false;
  if (starts("atom.") || starts("red.")) return true;
  return (starts("ld.") || starts("st.")) &&
         (has(".volatile") || has(".relaxed") || has(".acquire") || has(".release") || has(".mmio"));
}

struct Block {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::vector<std::byte> data;  // before the launch
  std::vector<std::uint8_t> shadow;
};

void mark_untouched(GlobalMemory& memory, const Block& block) {
  std::uint8_t* const shadow = memory.shadow(block.address);
  for (std::uint64_t i = 0; i < block.bytes; ++i) shadow[i] |= kUntouched;
}

void put_back(GlobalMemory& memory, const Block& block) {
  std::memcpy(memory.data(block.address), block.data.data(), block.bytes);
  std::memcpy(memory.shadow(block.address), block.shadow.data(), block.bytes);
}

/// What the second half wrote goes into the memory of the first. The address of a byte that both wrote; 0: none.
std::uint64_t merge(GlobalMemory& memory, const GlobalMemory& other, const Block& block) {
  std::uint8_t* const shadow = memory.shadow(block.address);
  const std::uint8_t* const other_shadow = other.shadow(block.address);
  std::byte* const data = memory.data(block.address);
  const std::byte* const other_data = other.data(block.address);
  for (std::uint64_t i = 0; i < block.bytes; ++i) {
    if ((other_shadow[i] & kUntouched) == 0) {
      if ((shadow[i] & kUntouched) == 0) return block.address + i;
      data[i] = other_data[i];
      shadow[i] = other_shadow[i];
    }
    shadow[i] = static_cast<std::uint8_t>(shadow[i] & ~kUntouched);
  }
  return 0;
}

void add(LaunchStatistics& sum, const LaunchStatistics& part) {
  sum.warp_instructions += part.warp_instructions;
  sum.async_operations += part.async_operations;
  sum.async_bytes.add(part.async_bytes);
  sum.seconds = std::max(sum.seconds, part.seconds);
}

}  // namespace

std::string why_one_thread(const Entry& entry, const LaunchShape& shape, const LaunchOptions& options) {
  if (options.detects_races) return "the race detector looks at all clusters together";
  if (options.schedule == Schedule::weak) return "the weak schedule looks at the memory of all clusters";
  if (options.observer != nullptr) return "statistics and traces are of all clusters together";
  if (clusters_of(shape) < 2) return "there is one cluster";
  for (const Instruction& in : entry.code)
    if (is_shared(in)) return fmt::format("clusters may speak to each other (PTX line {}: {})", in.line, in.opcode);
  return {};
}

TwoThreadResult run_on_two_threads(const Program& program, const Entry& entry, GlobalMemory& memory,
                                   const LaunchShape& shape, const LaunchOptions& options,
                                   const std::vector<std::byte>& parameters) {
  TwoThreadResult result;
  std::unique_ptr<GlobalMemory> second_memory;
  try {
    second_memory = std::make_unique<GlobalMemory>(memory.capacity(), memory.capacity());
  } catch (const Error&) {
    result.reason = fmt::format("there is no address space for a second copy of {} bytes", memory.capacity());
    return result;
  }
  GlobalMemory& copy = *second_memory;
  std::vector<Block> blocks;
  for (const auto& [address, bytes] : memory.live()) {
    Block& block = blocks.emplace_back();
    block.address = address;
    block.bytes = bytes;
    block.data.assign(memory.data(address), memory.data(address) + bytes);
    block.shadow.assign(memory.shadow(address), memory.shadow(address) + bytes);
    put_back(copy, block);
    mark_untouched(memory, block);
    mark_untouched(copy, block);
  }
  copy.describe_as(memory);
  LaunchOptions half = options;
  half.num_sms = std::max(1, options.num_sms / 2);
  Launch first(program, entry, memory, shape, half, parameters);
  ++half.seed;
  Launch second(program, entry, copy, shape, half, parameters);
  first.num_clusters = second.next_cluster = clusters_of(shape) / 2;
  second.num_clusters = clusters_of(shape);
  std::exception_ptr problem;
  std::thread other;
  try {
    other = quiet_thread<std::thread>([&] {
      try {
        second.run();
      } catch (...) {
        problem = std::current_exception();
      }
    });
  } catch (const std::system_error& error) {
    for (const Block& block : blocks) put_back(memory, block);
    result.reason = fmt::format("no second thread can be started: {}", error.what());
    return result;
  }
  try {
    first.run();
  } catch (...) {
    other.join();
    throw;
  }
  other.join();
  if (problem) std::rethrow_exception(problem);

  for (const Block& block : blocks) {
    const std::uint64_t both = merge(memory, copy, block);
    if (both == 0) continue;
    for (const Block& all : blocks) put_back(memory, all);
    result.reason = fmt::format("both halves of the grid wrote address 0x{:x}", both);
    return result;
  }
  result.is_done = true;
  add(result.statistics, first.statistics);
  add(result.statistics, second.statistics);
  result.findings = first.findings.all();
  const auto& more = second.findings.all();
  result.findings.insert(result.findings.end(), more.begin(), more.end());
  result.clues = first.clues->all();
  for (ScheduleClue& clue : second.clues->all()) result.clues.push_back(std::move(clue));
  return result;
}

}  // namespace tessera::emulator
