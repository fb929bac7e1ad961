// What a launch did, counted: instructions, bytes by space, bank conflicts, matrix work, waits.
//
// Shared memory has 32 banks of 4 bytes. A request of 4 bytes a lane or fewer is served at once unless lanes want
// different words of one bank; 8 bytes a lane are served in two halves, 16 bytes (and the rows of ldmatrix) in four
// quarters. The wavefronts beyond these are conflicts. Global requests are counted in 32-byte sectors.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/instructions/access_class.h"
#include "emulator/machine.h"
#include "emulator/observers/observer.h"

namespace tessera::emulator {

struct AccessCounts {
  std::uint64_t instructions = 0;
  std::uint64_t read_bytes = 0, write_bytes = 0;
  std::uint64_t wavefronts = 0;  ///< shared memory
  std::uint64_t conflicts = 0;   ///< wavefronts beyond the fewest possible
  std::uint64_t sectors = 0;     ///< global memory
};

struct MatrixCounts {
  std::uint64_t instructions = 0;
  std::uint64_t multiply_adds = 0;
};

/// Waits of one kind at one barrier; times in warp instructions of the whole launch.
struct WaitCounts {
  std::uint64_t waits = 0;
  std::uint64_t total = 0;
  std::uint64_t longest = 0;
};

class StatisticsObserver final : public Observer {
 public:
  std::uint64_t warp_instructions = 0;
  std::uint64_t thread_instructions = 0;
  std::map<std::string, std::uint64_t> instructions;  ///< by opcode group
  std::map<std::string, AccessCounts> accesses;       ///< by access class
  std::map<std::string, MatrixCounts> matrix;         ///< by opcode
  std::map<std::string, WaitCounts> waits;            ///< by barrier
  std::uint64_t async_operations = 0;
  AsyncBytes async_bytes;

  void started(const Launch& launch) override;
  void before(Warp& warp, const Instruction& in, Mask active, std::uint64_t time) override;
  void after(Warp& warp, const Instruction& in, Mask active, Step step, std::uint64_t time) override;
  void finished(const Launch& launch) override;

 private:
  struct Counter {
    bool is_classified = false;
    AccessClass access;
    std::uint64_t executions = 0;
    std::uint64_t lanes = 0;
    bool is_tensor_mma = false;
    std::uint64_t multiply_adds = 0;  ///< of tcgen05.mma
    AccessCounts counts;
  };
  struct OpenWait {
    std::string barrier;
    std::uint64_t since = 0;
  };
  void count_access(const Warp& warp, const Instruction& in, Counter& counter, Mask active);

  const Instruction* code_ = nullptr;
  AccessCounts uncounted_;         ///< of the running instruction, should it come again
  std::vector<Counter> counters_;  ///< by instruction
  std::unordered_map<std::uint64_t, OpenWait> open_;
};

}  // namespace tessera::emulator
