// Who runs next: warps in slices, asynchronous operations when the schedule lets them complete, CTAs as they fit.
#pragma once

#include "emulator/machine.h"

namespace tessera::emulator {

class Scheduler {
 public:
  explicit Scheduler(Launch& launch) : launch_(launch) {}
  /// Runs the grid to its end, a failure, a deadlock or the end of its budget.
  void run();

 private:
  enum class Result : std::uint8_t { ran, slept, blocked, done, fault };

  bool admit_cluster();
  std::unique_ptr<Cta> make_cta();
  void start_cta(Cta& cta, Cluster& cluster, std::uint32_t rank, std::array<std::uint32_t, 3> id);
  const std::vector<std::byte>& fresh_registers(const Warp& warp);
  void start_warp(Warp& warp, Cta& cta, int index);
  void retire_clusters();
  Result run_slice(Warp& warp, std::uint64_t slice);
  template <bool kIsObserved>
  Result execute(Warp& warp, std::uint64_t slice);
  void wake_groups(Warp& warp);
  bool is_over(const Warp& warp, const Group& group) const;
  bool time_out_waits();
  std::uint64_t next_slice();
  void split(Warp& warp);
  Warp& pick_warp(std::size_t turn);
  bool within_budget();
  bool is_interrupted();
  void name_running_group(EmulatorFinding& finding) const;
  void report_deadlock();
  /// run() by the launch's clock (time/timed_schedule.cpp).
  void run_timed();
  Result execute_timed(Warp& warp);

  Launch& launch_;
  std::vector<Warp*> warps_;  // of all resident CTAs
  std::size_t max_resident_ctas_ = 1;
  std::uint64_t last_progress_ = 0;
  int idle_rounds_ = 0;
  std::uint64_t slices_ = 0;
  double next_question_ = 0;  ///< when is_interrupted is asked again
  Warp* starved_ = nullptr;
  std::uint64_t starved_until_ = 0;
  std::vector<std::vector<std::byte>> fresh_registers_;
};

/// Of a clock that only goes forward.
double seconds_now();

/// The value of a special register for a thread.
std::uint64_t special_value(const Warp& warp, int lane, Special special);

/// For whom a special register has one value: all threads of the grid (of each lane), those of a warp, nobody else.
enum class SpecialReach : std::uint8_t { grid, warp, thread };
SpecialReach reach_of(Special special);
/// Writes all lanes' values of a special register to its place.
void set_special(const Warp& warp, const SpecialSlot& slot, std::byte* to);

/// "waits for phase 3 of the mbarrier at 0x...: 1 of 2 arrivals missing, 8192 bytes missing"
std::string describe_wait(const Warp& warp, const Group& group);

}  // namespace tessera::emulator
