// The state of a running grid: Launch > Cluster > Cta > Warp. PTX ISA, "PTX Machine Model".
//
// A warp is one running group of lanes with a pc, and parked groups: lanes that branched elsewhere or wait. The group
// with the lowest pc runs, so groups meet again where their paths join; a group that waits, spins or has used up its
// slice lets the others go first (Volta's guarantee of progress for every lane). A handler that must wait fills
// Warp::wait and answers Step::blocked; it is called again, with Warp::wake telling why, when the wait is over.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/findings/moved_value.h"
#include "emulator/findings/prior_grids.h"
#include "emulator/findings/written_lines.h"
#include "emulator/memory/async.h"
#include "emulator/memory/map_fence.h"
#include "emulator/memory/memory.h"
#include "emulator/random.h"
#include "emulator/syntax/program.h"
#include "emulator/tensor_cores/tmem.h"
#include "tessera/emulator/findings.h"
#include "tessera/emulator/options.h"

namespace tessera::emulator {

class Cta;
class Cluster;
class Launch;
class CallStack;
class RaceDetector;
class ScheduleClues;
class WeakMemory;
struct RaceCta;
struct RaceSync;
struct RaceWarp;
struct RegisterMarks;

/// What a group of lanes waits for.
struct Wait {
  enum class Kind : std::uint8_t {
    none,
    cta_barrier,      ///< index, generation
    cluster_barrier,  ///< generation
    mbarrier,         ///< address (own CTA's offset), generation: the phase that must be over
    converge,         ///< the other lanes of `mask` at this instruction
    warp_barrier,     ///< the other lanes of `mask` at any bar.warp.sync with that mask
    bulk_groups,      ///< generation: how many groups may be left; index 1: sources only
    copy_groups,      ///< cp.async
    wgmma_groups,
    wgmma_issue,   ///< the warpgroup's other warps
    tensor_space,  ///< index: columns of Tensor Memory
    tensor_pair,   ///< generation: the peer CTA's alloc or dealloc of this number
    registers,     ///< generation: setmaxnreg.inc needs so many
    dependency     ///< never over by itself; message in the deadlock report
  };
  Kind kind = Kind::none;
  std::uint32_t index = 0;
  std::uint64_t generation = 0;
  Mask mask = 0;
};

enum class Wake : std::uint8_t { none, ready, timeout };

struct Group {
  std::uint32_t pc = 0;
  Mask mask = 0;
  Wait wait;
  bool yielded = false;
  Wake wake = Wake::none;
};

/// When each warp of a CTA last told of itself (Launch::progress), as far as CTA barriers have carried it.
struct Heard {
  std::vector<std::uint64_t> at{};  ///< by warp; shorter: nothing of the others
  void raise(int warp, std::uint64_t time);
  void join(const Heard& other);
  std::uint64_t of(std::size_t warp) const { return warp < at.size() ? at[warp] : 0; }
};

/// A CTA barrier (bar.sync 0...15). PTX ISA, "barrier".
struct CtaBarrier {
  std::uint32_t expected = 0;  ///< threads; 0: no arrival yet
  std::uint32_t arrived = 0;
  bool counts_all = false;  ///< without a thread count: every thread that has not exited
  std::uint64_t generation = 0;
  std::uint32_t popc = 0;  ///< barrier.red, of the open generation
  bool all = true;
  bool any = false;
  std::uint32_t last_popc = 0;  ///< of the generation that ended last
  bool last_all = true;
  bool last_any = false;
  Heard pending{}, heard{};          ///< what those that arrive have heard; of the generation that ended last
  std::shared_ptr<RaceSync> race{};  ///< what its arrivals have seen; null without a race detector
};

/// PTX ISA, "mbarrier": the state machine as measured on H200.
struct Mbarrier {
  std::uint32_t offset = 0;  ///< in the CTA's shared memory, from the first byte
  bool is_live = false;
  bool is_invalidated = false;  ///< by mbarrier.inval, and not initialised since
  std::int64_t pending = 0;
  std::int64_t expected = 0;
  std::int64_t tx = 0;  ///< bytes announced minus bytes arrived
  std::uint64_t phase = 0;
  std::uint64_t initialised_at = 0;  ///< Launch::fence_clock
  int initialiser = 0;               ///< warp
  std::string overwritten_by{};      ///< what stored into its bytes; it is not live then
  std::shared_ptr<RaceSync> race{};
};

/// The phase of an mbarrier that a warp should wait for next, as far as its waits show.
struct PhaseSeen {
  const Cta* cta = nullptr;
  std::uint32_t offset = 0;
  std::uint64_t next = 0;
  std::uint64_t at = 0;  ///< Launch::progress then
};

/// Who executes what: the words of a finding are made when there is one.
struct InstructionPlace {
  const Launch* launch = nullptr;
  const Instruction* in = nullptr;
  std::array<std::uint32_t, 3> cta{};
  int warp = -1;
  int lane = -1;

  EmulatorFinding finding(const char* name) const;
};

class Warp {
 public:
  std::byte* registers = nullptr;
  Cta* cta = nullptr;
  Launch* launch = nullptr;
  const Instruction* code = nullptr;
  std::uint32_t pc = 0;
  Mask mask = 0;               ///< of the running group
  Mask alive = 0;              ///< lanes that have not exited
  Mask started = 0;            ///< lanes that exist
  std::uint32_t merge_pc = 0;  ///< the lowest pc of a parked group that could run
  Wake wake = Wake::none;      ///< why a blocked instruction is executed again
  Wait wait;                   ///< left by a handler that answers blocked
  std::vector<Group> parked;
  int index = 0;  ///< in the CTA
  std::uint64_t executed = 0;
  std::uint64_t fence_time = 0;       ///< Launch::fence_clock after the last fence.proxy.async
  std::uint64_t init_fence_time = 0;  ///< after the last fence or release of cluster scope, or fence.proxy.async
  std::uint64_t cluster_generation = 0;
  Mask cluster_arrived = 0;            ///< lanes that have arrived at the cluster barrier in that generation
  std::uint64_t cluster_arrivals = 0;  ///< generations of it that the warp has arrived for
  std::uint64_t cluster_waited = 0;    ///< generations that the whole warp has waited for
  Mask carry = 0;                      ///< CC.CF, lane by lane
  bool watches_registers = false;      ///< check_registers() has something to look for
  bool has_late_loads = false;         ///< Schedule::weak: loads that are not performed yet
  bool wgmma_fenced = false;           ///< wgmma.fence since the last wait
  std::uint32_t max_registers = 0;     ///< of a thread, after setmaxnreg; 0: as compiled
  WarpAsync async;
  WarpTensor tensor;
  std::vector<PhaseSeen> phases_seen;  ///< of the mbarriers that this warp waits on
  int untrue_answers = 0;              ///< so many of the next waits say "not yet" (-1: the next one does not)
  Heard heard;
  std::shared_ptr<RaceWarp> race;        ///< null without a race detector
  std::shared_ptr<RegisterMarks> marks;  ///< findings/unwritten_registers.h; null where nobody follows them
  std::vector<UndecidedValue> undecided;
  std::shared_ptr<CallStack> calls;  ///< made by the first call of a function that is not expanded

  template <class T>
  T* reg(std::uint32_t offset) const {
    return reinterpret_cast<T*>(registers + offset);
  }
  Mask& predicate(std::uint32_t offset) const { return *reinterpret_cast<Mask*>(registers + offset); }
  Mask read_predicate(const Operand& op) const {
    const Mask value = predicate(op.offset);
    return op.is_negated ? ~value : value;
  }

  /// Takes the reason of a repeated execution: Wake::none on the first one.
  Wake take_wake() {
    const Wake reason = wake;
    wake = Wake::none;
    return reason;
  }
  Step block(Wait what) {
    wait = what;
    return Step::blocked;
  }
  /// Only these lanes of the running group stay; the others go on at the next instruction.
  void keep(Mask active);
  /// All lanes of `wanted` that are alive execute this instruction together. False: they are not here yet, and the
  /// handler returns the Step in `out`.
  bool converged(Mask wanted, Mask active, Step& out);
  /// Of `wanted`, lanes that are alive and neither `here` nor waiting in a bar.warp.sync with this mask.
  Mask missing_at_barrier(Mask wanted, Mask here) const;
  /// Lets all groups go on that wait in a bar.warp.sync with this mask; those at the running instruction join it.
  void release_barrier(Mask wanted);
  void park_current(Wait what, bool yielded);
  /// Makes the next group run; false when none can.
  bool resume(bool allow_yielded);
  void reconverge();
  /// The running group goes apart: the lowest pc runs, the others are parked. Each has lanes; together they are `mask`.
  void split(std::vector<Group> groups);
  void update_merge_pc();
  /// Lanes leave; true when none of the running group is left.
  bool exit_lanes(Mask active);
  void update_watch() {
    watches_registers = has_late_loads || async.watches_unread || !async.in_flight.empty() || !tensor.loads.empty() ||
                        !undecided.empty();
  }
  /// While wgmmas or tcgen05.lds are in flight: false after a report when the instruction touches their registers.
  bool check_registers(const Instruction& in, Mask active);
  /// Those that these lanes must perform before the instruction.
  void perform_late_loads(const Instruction& in, Mask active);
  bool is_done() const { return alive == 0; }

  /// Reports a failure at the running instruction.
  Step fault(const Instruction& in, const char* name, std::string message, std::string cause = {}, int lane = -1);
  Step fault_at(const Instruction& in, const char* name, int lane, std::uint64_t address, std::string message,
                std::string cause = {});
  void hazard(const Instruction& in, const char* name, int lane, std::uint64_t address, std::string message,
              std::string cause = {});
  InstructionPlace place(const Instruction& in, int lane) const;
  EmulatorFinding finding(const Instruction& in, const char* name, int lane) const;
};

class Cta {
 public:
  Cta();
  ~Cta();
  Cluster* cluster = nullptr;
  Launch* launch = nullptr;
  std::array<std::uint32_t, 3> id{};
  std::uint32_t rank = 0;  ///< in the cluster
  std::uint32_t shared_bytes = 0;
  std::vector<std::byte> shared;
  std::vector<std::uint8_t> shared_shadow;
  /// Per kSharedPage bytes: kSharedKnown, all of them are readable; else how often the shadow said so of some.
  std::vector<std::uint8_t> shared_pages;
  static constexpr std::uint32_t kSharedPage = 256;
  static constexpr std::uint8_t kSharedKnown = 255;
  std::vector<std::uint64_t>
      written_at;  ///< per 16 bytes of the last generic write: fence_clock << 16 | CTA rank << 8 | warp + 1; 0: none
  std::vector<std::byte> local;  ///< thread by thread
  std::vector<std::uint8_t> local_shadow;
  std::vector<Warp> warps;
  std::array<CtaBarrier, 16> barriers{};
  std::vector<Mbarrier> mbarriers;
  std::uint32_t mbarriers_begin = 0;  ///< all of them lie between these offsets
  std::uint32_t mbarriers_end = 0;
  std::vector<WarpgroupAsync> warpgroups;
  std::unique_ptr<TensorMemory> tensor_memory;  ///< made by the first tcgen05 instruction; kept for the next CTA
  bool saw_no_cluster_left = false;             ///< a query said that try_cancel got none
  std::uint32_t num_threads = 0;
  std::uint32_t live_warps = 0;
  std::unique_ptr<std::byte[]> register_storage;
  std::int64_t free_registers = 0;         ///< given back by setmaxnreg.dec, not yet taken by inc
  std::vector<std::uint8_t> tile_swizzle;  ///< per 16 bytes: 1 + the swizzle of the tensor copy that wrote them; 0
  std::shared_ptr<RaceCta> race;           ///< null without a race detector

  std::uint32_t shared_address(std::uint32_t offset) const { return (rank << kRankShift) + kSharedBase + offset; }
  Mbarrier* find_mbarrier(std::uint32_t offset);
  /// Whether a write of these bytes lies among the mbarriers: a quick look.
  bool may_hold_mbarrier(std::uint32_t offset, std::size_t bytes) const {
    return offset < mbarriers_end && offset + bytes > mbarriers_begin;
  }
  void overwrite_mbarriers(std::uint32_t offset, std::size_t bytes, const std::string& by);
  Mbarrier& make_mbarrier(std::uint32_t offset);
  /// Ends a CTA barrier's generation when everybody is there.
  void check_barrier(CtaBarrier& barrier);
  void warp_exited();
};

class Cluster {
 public:
  std::vector<std::unique_ptr<Cta>> ctas;
  std::uint32_t arrived = 0;  ///< threads at the cluster barrier
  std::uint64_t generation = 0;
  std::uint32_t live_threads = 0;
  std::shared_ptr<RaceSync> race;
  /// Ends the generation when every thread that has not exited is there.
  void check_barrier();
};

/// Ends the phase when nothing is pending.
void settle(Mbarrier& barrier, Launch& launch);

/// Warps and operations take their turns at random.
inline bool is_random(Schedule schedule) {
  return schedule == Schedule::adversarial || schedule == Schedule::split || schedule == Schedule::weak;
}

/// One grid while it runs.
class Launch {
 public:
  Launch(const Program& program_, const Entry& entry_, GlobalMemory& memory_, const LaunchShape& shape_,
         const LaunchOptions& options_, std::vector<std::byte> parameters_);
  ~Launch();
  /// Runs to the end or to the first failure.
  void run();

  const Program& program;
  const Entry& entry;
  GlobalMemory& memory;
  LaunchShape shape;
  LaunchOptions options;
  std::vector<std::byte> parameters;
  FindingLog findings;
  LaunchStatistics statistics;
  Random random;
  std::uint32_t late_answers = 1u << 20;  ///< that waits which may be given up still get
  AsyncQueue async;
  std::unique_ptr<RaceDetector> race;  ///< null unless the options ask for it
  std::unique_ptr<WeakMemory> weak;    ///< null but for Schedule::weak
  std::unique_ptr<ScheduleClues> clues;
  std::uint64_t time = 0;      ///< instructions executed so far, all warps
  std::uint64_t counted = 0;   ///< of it, in what all parts of a grid have executed (parts.h)
  std::uint64_t progress = 1;  ///< counts what can end somebody's wait
  double start_seconds = 0;
  std::uint64_t local_bytes = 0;  ///< of one thread: what the entry declares, and its stack
  std::uint64_t fence_clock = 1;  ///< counts fence.proxy.async
  MapFences map_fences;
  std::unique_ptr<WrittenLines> written;  ///< null without ld.global.nc
  std::uint64_t tmem_clock = 0;           ///< counts what happens to Tensor Memory
  bool has_mbarriers = false;             ///< some were made: before, nobody asks who has heard of whom
  std::uint64_t next_cluster = 0;         ///< the first that neither started nor was handed out by try_cancel
  std::uint64_t num_clusters = 0;         ///< one behind the last; 0: all of the grid
  bool splits_warps = false;              ///< Schedule::split
  std::vector<PriorGrid> prior_grids;     ///< that may still run; none unless the race detector asks for it
  bool launches_dependents = false;       ///< some thread has executed griddepcontrol.launch_dependents
  bool waits_for_prior = false;           ///< griddepcontrol.wait
  /// The first CTA of a cluster by its number.
  std::array<std::uint32_t, 3> first_cta(std::uint64_t cluster) const;

 private:
  friend class Scheduler;
  std::vector<std::unique_ptr<Cluster>> resident_;
  std::vector<std::unique_ptr<Cta>> spare_;  ///< storage of finished CTAs, used again
};

}  // namespace tessera::emulator
