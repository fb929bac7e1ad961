// How a grid is launched, and what is counted in any case: values that users of the emulator set and read.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace tessera::emulator {

class Clock;
class Observer;
struct Parts;
class TextureTable;

/// How the scheduler treats asynchronous operations and warps.
enum class Schedule : std::uint8_t {
  fair,         ///< warps in turn, short slices; operations complete after a random short time
  eager,        ///< operations complete when they are issued
  lazy,         ///< operations complete only when nothing else can run
  adversarial,  ///< random warps, random slices, a warp starved at times; operations in random order and late;
                ///< waits on mbarriers end early at times
  split,        ///< as adversarial, and lanes of a warp go apart between the points where they meet
  weak          ///< as adversarial, and loads and stores are seen as late as the memory model lets
};
inline constexpr Schedule kAllSchedules[] = {Schedule::fair,        Schedule::eager, Schedule::lazy,
                                             Schedule::adversarial, Schedule::split, Schedule::weak};
const char* to_string(Schedule schedule) noexcept;

/// Of more threads than this there is no use: as many parts as a grid is cut into.
inline constexpr int kMostHostThreads = 256;

struct LaunchOptions {
  Schedule schedule = Schedule::fair;
  std::uint64_t seed = 1;
  std::uint64_t max_warp_instructions = std::uint64_t{1} << 40;
  double max_seconds = 0;                     ///< 0: no limit
  std::function<bool()> is_interrupted = {};  ///< as DeviceOptions has it
  int num_sms = 4;
  bool detects_races = false;
  std::function<void(std::string_view)> print = {};  ///< takes what vprintf prints; empty: standard output
  Observer* observer = nullptr;
  const TextureTable* textures = nullptr;  ///< the objects that handles name; null: none
  std::uint64_t grid_workspace = 0;   ///< what %envreg1 and %envreg2 hold: where the CTAs of a cooperative grid meet
  bool lacks_grid_workspace = false;  ///< the kernel asks for it, and not all of its CTAs run at once
  Parts* parts = nullptr;             ///< set by run_in_parts: the launch is one of a grid's parts, and which
  std::uint64_t part = 0;
  std::uint32_t registers = 0;  ///< of a thread, by machine code, for a clock; 0: not known
  Clock* clock = nullptr;       ///< who runs when is by time (time/clock.h); null: by the schedule
  bool skips_values = false;    ///< neither products of tensor cores nor bytes of asynchronous copies are made
};

struct LaunchShape {
  std::array<std::uint32_t, 3> grid{1, 1, 1};
  std::array<std::uint32_t, 3> block{1, 1, 1};
  std::array<std::uint32_t, 3> cluster{1, 1, 1};
  std::uint32_t dynamic_smem_bytes = 0;
};

/// What asynchronous operations moved.
struct AsyncBytes {
  std::uint64_t global_read = 0, global_written = 0, shared_read = 0, shared_written = 0;

  void add(const AsyncBytes& other) {
    global_read += other.global_read;
    global_written += other.global_written;
    shared_read += other.shared_read;
    shared_written += other.shared_written;
  }
};

struct LaunchStatistics {
  int threads = 1;             ///< of the host
  std::string why_one_thread;  ///< where more were asked for; empty too where the grid was too small for them
  std::uint64_t warp_instructions = 0;
  std::uint64_t async_operations = 0;
  AsyncBytes async_bytes;
  double seconds = 0;
};

}  // namespace tessera::emulator
