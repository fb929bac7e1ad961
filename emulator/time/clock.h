// The clock of a launch: when each warp issues its next instruction, and when asynchronous operations are over.
//
// A multiprocessor has sub-cores; each issues one instruction a cycle and has pipes that an instruction occupies for an
// interval. Shared memory, the tensor cores, the copy engine and the way to the L2 are units of the whole
// multiprocessor: queues that are free again at a time. The L2 and the memory behind it are shared by all
// multiprocessors: each gets its part of their rates, as a fluid. What a warp waits for is booked by the cause.
//
// The scheduler (timed_schedule.cpp) asks for the earliest time of a warp's next instruction, runs what is first, and
// tells. Operations ask when they are pushed (AsyncQueue::push).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/machine.h"
#include "emulator/time/cost.h"
#include "emulator/time/counters.h"

namespace tessera::emulator {

/// Why a warp could not go on earlier.
enum class Cause : std::uint8_t {
  issue,
  arithmetic,
  exponent,
  shared_memory,
  memory,
  tensor_core,
  copy_engine,
  mbarrier,
  barrier,
  cluster,
  other_cta,
  copies,
  other
};
inline constexpr std::size_t kCauses = 13;
const char* to_string(Cause cause);

/// A share of what all multiprocessors have together, and what is known of the grid's traffic.
struct Surroundings {
  double active_sms = 1;  ///< that work at the same time
  /// Of the bytes that are read from the allocation at this address: the part that the L2 does not hold.
  std::map<std::uint64_t, double> miss_of{};
  double miss = 1;  ///< of all others
  /// Allocations that several multiprocessors read at about the same time and the L2 does not have: who does not miss
  /// waits for the memory, too, as what it asks for is on its way.
  std::set<std::uint64_t> on_their_way{};
  /// Of CTAs that stay and take several tiles: what a multiprocessor reads of an allocation before it comes to what
  /// others have read for earlier tiles, which is in the L2; bytes, and which part of all that it reads there.
  struct Cold {
    double bytes = 0, part = 1;
  };
  std::map<std::uint64_t, Cold> cold_of{};
  /// Bytes a clock that a multiprocessor gets of what lies there.
  std::map<std::uint64_t, double> rate_of{};
  /// Bytes that the memory moves for one that misses: what is displaced, more than by what the kernel writes; its rate.
  double hbm_factor = 1, hbm_bytes_per_us = 0;
  double hbm_written = 0;            ///< of what the memory moves: the part that is written
  bool is_cold = true;               ///< code and tensor maps have not been used on the multiprocessor
  TileCounters* counters = nullptr;  ///< of clusters that run by themselves
  double l1_bytes = 0;               ///< of a multiprocessor, that CTAs leave of its shared memory
  /// Its clock over that of an idle GPU: the L2 and the memory have clocks of their own, which load does not lower.
  double clock_part = 1;
};

/// Loads behind different predicates that a warp has under way: a thread has seven predicate registers (CUDA Binary
/// Utilities), one of which takes the next comparison.
inline constexpr std::size_t kGuards = 6;

struct WarpClock {
  Warp* warp = nullptr;
  int sm = 0, sub_core = 0;
  double begin = 0, now = 0;  ///< now: nothing issues earlier
  double last_issue = 0;
  std::uint64_t instructions = 0;
  std::uint32_t order = 0;
  bool is_blocked = false, is_done = false;
  double blocked_at = 0;
  double block_end = 0;      ///< when the last movable instruction of the basic block starts
  double tensor_memory = 0;  ///< when its transfers of Tensor Memory are over
  Cause block_cause = Cause::arithmetic;
  double stored = 0;                      ///< when its stores of shared memory in the basic block have what they store
  Cause pending = Cause::issue;           ///< of the time from last_issue to now
  std::array<double, kGuards> guarded{};  ///< when the last loads behind predicates are over, the oldest at next_guard
  std::size_t next_guard = 0;
  std::vector<std::uint8_t> turns{};                       ///< of loops that are unrolled, of kUnrolled
  std::unordered_map<const Instruction*, double> words{};  ///< when the following turns' words of a load are there
  std::vector<double> ready{};                             ///< by place
  std::vector<Cause> cause{};
  std::array<double, kCauses> waits{};
};

/// The sectors of 32 bytes that plain loads have brought, by lines of 128 bytes, the oldest of which goes first.
struct L1 {
  struct Line {
    std::array<double, 4> ready{};  ///< of each sector; 0: is not there
  };
  std::unordered_map<std::uint64_t, Line> lines{};
  std::deque<std::uint64_t> order{};
  double busy_until = 0;
};

struct SmClock {
  struct SubCore {
    double issue = 0;
    std::array<double, kPipes> pipe{};
    int warps = 0;                ///< that are there
    std::deque<double> shared{};  ///< when shared memory begins with the last accesses, as many as its queue holds
  };
  std::vector<SubCore> sub_cores;
  double shared = 0, tensor = 0, tensor_done = 0, engine = 0, store = 0, path = 0, port = 0, hbm = 0, to_cluster = 0;
  std::deque<std::pair<double, double>> under_way{};  ///< reads of the memory: when they are over, what they take of it
  double under_way_takes = 0;
  double stores = 0;                             ///< when what lanes have stored has left the multiprocessor
  double hbm_writes = 0, drained = 0;            ///< cycles of what waits to be written; until when that was seen to
  double path_of_lanes = 0, hbm_of_lanes = 0;    ///< of path and hbm: when what lanes have asked for is over
  double tensor_copy = 0, tensor_copy_busy = 0;  ///< tcgen05.cp
  double operands = 0, tensor_began = 0;         ///< of the last wgmma: when they are there, when it began
  double shared_busy = 0, tensor_busy = 0, engine_busy = 0, path_busy = 0, port_busy = 0, hbm_busy = 0, l1_busy = 0;
  double tensor_8_bit = 0, to_cluster_busy = 0;  ///< tensor_8_bit: of tensor_busy
  L1 l1{};
  std::array<double, kPipes> pipe_busy{};
  double issue_busy = 0;
  bool has_read = false;
  std::map<std::uint64_t, double> read_of{};              ///< bytes, by allocation
  std::unordered_map<std::uint64_t, double> asked_for{};  ///< lines that were brought to the L2 ahead: when
  double translated = -1;                ///< when the first read's addresses are known; -1: nothing has been read
  double miss_left = 0;                  ///< parts of requests that have missed and were not served so
  std::vector<bool> code{};              ///< by line of 128 bytes: has been executed
  std::vector<std::uint64_t> tensors{};  ///< that copies have used
  int ctas = 0;
  double next_cta = 0;  ///< when one can start
  double first = -1, last = 0;
};

/// What the lanes of a warp touch of global memory: lines of 128 bytes, and which of their sectors.
struct TouchedLines {
  struct One {
    std::uint64_t line = 0;
    std::array<std::uint8_t, 4> bytes{};  ///< of each sector, up to 32
    std::uint32_t words = 0;              ///< of 4 bytes, each of a bank of its own
  };
  std::array<One, 4 * kLanes> all{};
  std::size_t count = 0;

  void add(std::uint64_t address, std::uint32_t bytes);
  double sectors() const;
  /// Words of the bank that has most: so many cycles the L1 takes to hand them out.
  double wavefronts() const;
};

class Clock {
 public:
  Clock(const GpuTime& gpu, const Entry& entry, const GlobalMemory& memory, Surroundings surroundings, int num_sms);

  // --- of the scheduler
  void admit(Cluster& cluster, double time);
  void retire(const Cluster& cluster, double time);
  /// Takes the least time at which the warp's next instruction can issue, as far as operands and pipes tell.
  double earliest(WarpClock& warp, const Instruction& in);
  /// It issues at `time`; called before it runs.
  void issue(WarpClock& warp, const Instruction& in, Mask active, double time);
  /// Its branch was taken: the next instruction is not there at once, unless a predicate stands for the branch, and
  /// what is behind it issues without an effect, or a loop is unrolled.
  void jumped(WarpClock& warp, const Instruction& in);
  /// It was not taken, or was no branch.
  void passed(WarpClock& warp, const Instruction& in) const {
    const InstructionCost& cost = costs_.by_pc[static_cast<std::size_t>(&in - code_)];
    if (cost.is_back_edge) warp.turns[cost.loop] = 0;
  }
  void block(WarpClock& warp, double time);
  void wake(WarpClock& warp, Wait::Kind kind, double time);
  /// An operation is about to complete at this time.
  void completing(const AsyncOperation& operation, double time);
  void set_event(double time, bool is_operation) { time_ = time, in_operation_ = is_operation; }
  double admit_delay() const { return gpu_.cta_start; }
  bool warps_take_turns() const { return gpu_.warps_take_turns; }
  /// The counters, where the instruction may be an addition to one of them.
  TileCounters* counter_of(const Instruction& in) const {
    const bool may_be = costs_.by_pc[static_cast<std::size_t>(&in - code_)].is_counter;
    return may_be ? surroundings_.counters : nullptr;
  }
  bool is_mma(const Instruction& in) const {
    return costs_.by_pc[static_cast<std::size_t>(&in - code_)].kind == CostKind::mma;
  }

  // --- of the queue of asynchronous operations
  /// When an operation that is pushed now is over.
  std::uint64_t completion(const AsyncOperation& operation);

  std::vector<std::unique_ptr<WarpClock>>& warps() { return warps_; }
  WarpClock& of(const Warp& warp) { return *by_warp_.at(&warp); }
  bool knows(const Cta& cta) const { return sm_of_.contains(&cta); }
  double last() const { return last_; }
  /// What of the written bytes is not in the memory's queue yet when all has ended: the L2 takes them as lines go that
  /// were written before, and a kernel ends when it has them.
  double unwritten() const;

  // --- results
  void add_to(LaunchTime& result) const;
  /// Of the tensor cores' work: what 8-bit types are.
  double part_of_8_bit() const;
  /// The part of what tensor cores can do that they did, and of what the L2 gives that was asked for.
  double tensor_load() const;
  double l2_load() const;
  std::map<std::uint64_t, double> read_bytes{};  ///< by allocation
  /// Where the first copy, or load, of each multiprocessor from each allocation begins; by both.
  std::map<std::pair<int, std::uint64_t>, std::uint64_t> first_copies{};
  std::uint64_t stop_after = 0;    ///< instructions; 0: at the end
  std::uint64_t cluster_step = 1;  ///< from a cluster that runs to the next one
  double written_bytes = 0, read_total = 0, hbm_total = 0;

 private:
  /// A latency with its tail, by turns so that their mean is what it should be.
  double with_tail(double latency, double tail);
  double request(SmClock& sm, double time, std::uint64_t address, double bytes, bool is_copy, bool by_lanes = false);
  /// What of a read comes from the memory, not from the L2: when it is there.
  double from_memory(SmClock& sm, double time, double bytes, bool is_copy);
  /// A bulk copy to the L2 alone.
  void ask_ahead(SmClock& sm, double time, std::uint64_t address, double bytes);
  /// What the addresses of the first reads of a multiprocessor take: the translations that they need are not there.
  double first_access(SmClock& sm) const;
  double deliver(const AsyncWork& work, SmClock& sm, double time);
  /// Cycles of the memory for so many bytes, of the multiprocessor's part of its rate.
  double memory_cycles(double bytes) const {
    return bytes * gpu_.clock_mhz * surroundings_.clock_part * surroundings_.active_sms /
           surroundings_.hbm_bytes_per_us;
  }
  /// What is written displaces as much in the L2, which goes to the memory beside what is read.
  void write(SmClock& sm, double time, double bytes);
  /// Where nothing is read the memory does what waits to be written.
  static void drain(SmClock& sm, double time);
  /// What the memory takes for a read: as long as there is something to write it does as much of that beside it.
  double time_of_read(SmClock& sm, double time, double bytes) const;
  std::uint64_t allocation_of(std::uint64_t address) const;
  double miss_of(std::uint64_t address, double bytes);
  /// Looks, once, whether loads that the assembler would make one of are aligned.
  void join_loads(WarpClock& warp, const Instruction& in, InstructionCost& cost, Mask active);
  /// Of an unrolled loop: no instruction in this turn.
  bool is_folded(const WarpClock& warp, const Instruction& in, const InstructionCost& cost) const;
  /// Looks whether a load's words lie side by side in following turns.
  void follow_words(WarpClock& warp, const Instruction& in, InstructionCost& cost, Mask active);
  double wavefronts(WarpClock& warp, const Instruction& in, InstructionCost& cost, Mask active);
  void touch_memory(WarpClock& warp, const Instruction& in, InstructionCost& cost, Mask active, double time,
                    double& ready, Cause& cause);
  bool reach_other_cta(WarpClock& warp, const Instruction& in, const AccessClass& access, Mask active,
                       std::uint64_t first, double time, double& ready, Cause& cause);
  Cause cause_of(const InstructionCost& cost) const;
  double tensor_operation(const AsyncWork& work, SmClock& sm);
  /// What a wgmma takes: of the tensor cores, and of shared memory for its operands.
  struct WgmmaTime {
    double interval = 0, operands = 0;
  };
  WgmmaTime wgmma_time(const Instruction& in) const;
  /// When it is over.
  double multiply(const WgmmaTime& wgmma, bool is_of_8_bit, SmClock& sm) const;
  static bool is_of_8_bit(const Instruction& in);
  /// Another CTA's shared memory: the way to it is a queue of the multiprocessor that sends.
  double send_to_cluster(SmClock& sm, double time, double bytes);
  double time_of_rows(const AsyncWork& work) const;
  /// What an access of more than a wavefront keeps the memory pipe of its sub-core longer.
  void hold_pipe(const WarpClock& warp, double time, double wavefronts, double least = 0);
  double load_through_l1(SmClock& sm, bool uses_l1, const TouchedLines& lines, double time, bool is_copied = false);

  struct Role {
    double warps = 0, instructions = 0, cycles = 0;
    std::array<double, kCauses> waits{};
  };

  const GpuTime& gpu_;
  const Instruction* code_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> allocations_;  ///< address, bytes; ascending
  Surroundings surroundings_;
  double branch_bubble_ = 0;
  EntryCosts costs_;
  std::vector<SmClock> sms_;
  std::vector<std::unique_ptr<WarpClock>> warps_;  ///< of resident CTAs
  std::unordered_map<const Warp*, WarpClock*> by_warp_;
  std::unordered_map<const Cta*, int> sm_of_;
  std::unordered_map<const Instruction*, WgmmaTime> wgmmas_;
  std::map<int, Role> roles_;  ///< by warp of the CTA
  double time_ = 0, last_ = 0;
  std::uint64_t latencies_ = 0;  ///< that had a tail
  bool in_operation_ = false;
  bool is_multicast_ = false;       ///< copies for several CTAs have been seen
  Cause completed_ = Cause::other;  ///< what the operation that completes now is
  const WarpClock* current_ = nullptr;
  /// The last bulk store: lanes of a warp that store the same bytes by the same instruction are one copy, which the
  /// hardware takes from uniform registers.
  struct Store {
    const WarpClock* warp = nullptr;
    const Instruction* in = nullptr;
    std::uint64_t first_byte = 0;
    double issued = -1, over = 0;
    bool operator==(const Store& other) const {
      return warp != nullptr && warp == other.warp && in == other.in && first_byte == other.first_byte &&
             issued == other.issued;
    }
  } last_store_;
  const Instruction* current_in_ = nullptr;
  int operation_sm_ = 0;
  std::uint32_t next_order_ = 0;
};

}  // namespace tessera::emulator
