// The race detector: accesses to shared and global memory that nothing orders.
//
// Two accesses to one byte race when at least one writes, not both are atomic (or volatile, relaxed, ...), and neither
// happens before the other. Happens-before is what the PTX memory model gives: program order of a lane; the meeting of
// lanes of a warp; arrivals and waits of CTA, cluster and memory barriers; release and acquire patterns; the start of
// an asynchronous operation by its thread, and its completion on an mbarrier or in a group that somebody waits for. It
// does not depend on who happened to be first in this run, so most races show under every schedule.
//
// Lanes. A warp has one clock, and a record says which lanes touched each of its words. Lanes that meet (bar.warp.sync,
// a CTA barrier) begin a new time: what lies before is done for all of them, what lies behind each has done alone. So
// two lanes of a warp are ordered when the earlier access is older than their last meeting: a number compared with a
// number. What a warp's lanes have seen is kept once for all of them (RaceView), and apart for those that waited or
// fenced alone, until they meet. Who releases without all lanes of its warp (one lane's arrival on an mbarrier) passes
// on what the warp had done at the last meeting, and in a lane's own agent what that lane did since.
//
// Other .sync instructions (shfl, vote, elect, mma, ldmatrix, ...) wait for lanes and order no memory among them. What
// they do tell is that nobody looks at an mbarrier any more: another clock of the warp, RaceWarp::waits.
//
// A release pattern is a releasing store or atomic, or a relaxed one behind a fence of its warp; an acquire pattern is
// an acquiring load or atomic, or a relaxed one with a fence behind it. One is observed by the other when that reads
// what it wrote, or what atomics made of that: a plain store begins anew. The pattern's own write is ordered with it.
//
// What is deliberately lenient, so that a report is a real one:
//  - what a warp as a whole starts (wgmma), or reads of Tensor Memory, has seen what any of its lanes has;
//  - one instruction's stores by several lanes to the same bytes are no race: mostly all store the same;
//  - what lanes of which each touched some bytes of one word did to it counts only where all of them are meant;
//  - of scopes, only a release or an acquire of .cta scope (also a fence or an atomic) between two CTAs is seen, and
//  only where the second then meets an ordinary store of before the first, or what a copy has written; what was read
//  before it, by whomever, counts as ordered. Waits on mbarriers and barriers acquire at any scope;
//  - a fence covers all that its warp has seen, also what a barrier after it passes on;
//  - each 16 bytes remember at most six accesses.
// Whether an order also holds between the generic and the asynchronous proxy is another check (missing-proxy-fence).
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>

#include "emulator/findings/race_states.h"
#include "emulator/findings/vector_clock.h"
#include "emulator/memory/access.h"

namespace tessera::emulator {

/// Two bits each: how an access and its order are.
struct AccessKind {
  bool is_write = false;
  bool is_atomic = false;  ///< atom, red, and strong loads and stores: they do not race with each other
  bool is_async = false;
  bool is_narrow = false;  ///< atomic at .cta scope
  bool is_flag = false;    ///< the write of a release pattern whose fence came before
};

inline constexpr std::uint32_t kLeftBehind = 1u << 19;  ///< a report about lanes that one of their warp leaves behind
inline constexpr std::uint32_t kPriorGrid = 1u << 20;   ///< a report about the n-th prior grid
inline constexpr std::uint32_t kUnderWay = 1u << 21;    ///< a report about a read that an arrival may have overtaken

/// What a barrier or a flag in memory passes on.
struct RaceOperation;

struct RaceSync {
  VectorClock pending;         ///< of the open phase
  VectorClock pending_fenced;  ///< what its arrivals had fenced
  VectorClock done;            ///< of the phases that are over
  VectorClock done_fenced;
  // What of it other CTAs may rely on, and what only the CTA that released at .cta scope may.
  VectorClock pending_wide;
  VectorClock done_wide;
  VectorClock done_narrow;
  const Cta* narrow_cta = nullptr;
  Agent agent = 0;  ///< mbarrier: copies that complete on it
  Agent initialiser = 0;
  int initialiser_lane = 0;
  std::uint32_t initialised = 0;  ///< the initialiser's clock
  std::uint32_t initialised_pc = 0;
  /// mbarrier: lanes whose wait was for the last phase that is over.
  struct Waiter {
    const Warp* warp = nullptr;
    std::uint32_t time = 0;  ///< RaceWarp::waits
    std::uint32_t pc = 0;
    Mask lanes = 0;
  };
  std::vector<Waiter> waiters{};

  void finish() {
    waiters.clear();
    done.join(pending);
    done_fenced.join(pending_fenced);
    done_wide.join(pending_wide);
  }
  /// An asynchronous operation completes on the barrier: it releases at cluster scope.
  void complete(const RaceOperation& operation);
};

/// What lanes of a warp have seen. Of the warp's own accesses `seen` holds those before the last meeting: what a lane
/// did since is known by the record's lane.
struct RaceView {
  Mask lanes = 0;
  VectorClock seen;
  VectorClock fenced;   ///< what the last fence covered: relaxed stores and arrivals pass it on
  VectorClock relaxed;  ///< what relaxed loads have met: the next fence takes it
  VectorClock wide;     ///< of `seen`, what came by releases that reach this CTA
  VectorClock fenced_wide;
  VectorClock relaxed_wide;
  // How far into its own history each of the lanes is.
  std::uint32_t own_fenced = 0;  ///< accesses up to this clock have a fence behind them
  std::uint32_t own_fenced_wide = 0;
  std::uint32_t own_copies = 0;  ///< groups of cp.async that it has waited for
  bool has_fenced = false;

  void join(const RaceView& other);
  bool is_like(const RaceView& other) const;  ///< but for the lanes
};

struct RaceWarp {
  Agent agent = 0;
  std::uint32_t clock = 2;      // 1: what every lane has seen of its own warp, that it has started
  bool is_dirty = false;        ///< something was done at this clock
  std::vector<RaceView> views;  ///< one where all lanes have met; each lane that has not exited is in one
  Agent copy_agent = 0;         ///< cp.async
  // Relaxed stores and atomics behind a fence are an agent of their own: who observes one is ordered after it, and
  // after what the fence covers, but not after what lies between the two.
  Agent flag_agent = 0;
  std::uint32_t flags = 0;
  // Waits on mbarriers as an agent: who has seen a time of it knows that the lanes are past their waits of until then.
  Agent wait_agent = 0;
  std::uint32_t waits = 1;
  bool has_waited = false;  ///< at this time
  // Lanes that observe the same write in one instruction go the same way.
  struct Split {
    const RaceSync* flag = nullptr;
    std::size_t from = 0;
    std::size_t to = 0;
    std::uint32_t pc = 0;
  };
  Split last_split;

  void next_time() {
    ++clock;
    ++waits;
    is_dirty = true;
  }
  RaceView& view(int lane) {
    if (views.size() == 1) return views.front();
    for (RaceView& v : views)
      if ((v.lanes >> lane & 1) != 0) return v;
    return views.front();
  }
  const RaceView& view(int lane) const { return const_cast<RaceWarp*>(this)->view(lane); }
  /// One of its lanes has.
  bool has_seen(Agent of, std::uint32_t until) const {
    return std::any_of(views.begin(), views.end(), [&](const RaceView& v) { return until <= v.seen.at(of); });
  }
  /// Views that know the same become one.
  void join_alike();
  /// Calls f for views that together are exactly these lanes.
  template <class F>
  void for_views(Mask lanes, F f) {
    last_split.flag = nullptr;
    const std::size_t count = views.size();
    for (std::size_t i = 0; i < count; ++i) {
      const Mask here = views[i].lanes & lanes;
      if (here == 0) continue;
      if (here == views[i].lanes) {
        f(views[i]);
        continue;
      }
      views.push_back(views[i]);
      views[i].lanes &= ~here;
      views.back().lanes = here;
      f(views.back());
    }
  }
};

struct RaceCta {
  RaceCta(std::shared_ptr<RaceStates> states, std::uint32_t shared_bytes)
      : cells(std::move(states), shared_bytes / 16 + 1) {}
  RaceCells cells;  ///< of shared memory
  std::vector<Agent> warps;
  struct Remote {
    Agent agent = 0;
    int lane = 0;
    std::uint32_t clock = 0;
    InstructionPlace place;
    std::uint64_t address = 0;
  };
  std::vector<Remote> remote;  ///< last accesses by lanes of other CTAs of the cluster
  VectorClock exited;          ///< what its warps had seen when they left
  struct TensorUse {
    TmemRegion region;
    Agent agent = 0;
    std::uint32_t clock = 0;
    std::uint32_t pc = 0;
  };
  std::vector<TensorUse> tensor_uses;  ///< the last product of each thread on a region
};

/// An asynchronous operation: what its issuer had seen, and under which agents it reads and writes.
struct RaceOperation {
  std::uint64_t number = 0;
  VectorClock seen;
  VectorClock wide;  ///< of `seen`, what came by releases that reach the issuer's CTA
  Agent issuer = 0;
  std::uint32_t issued = 0;
  Agent read_agent = 0;
  std::uint32_t read_clock = 0;
  Agent write_agent = 0;
  std::uint32_t write_clock = 0;
  Agent issuer_copies = 0;  ///< and how many of its groups the issuer had waited for
  std::uint32_t own_copies = 0;
  std::uint32_t pc = 0;
  Mask lanes = 1;           ///< of the issuer
  bool is_generic = false;  ///< cp.async: no proxy of its own
};

/// A strong access: ld, st, atom, red with an order of their own.
struct MemoryOrder {
  bool acquires = false;
  bool releases = false;
  bool is_narrow = false;  ///< .cta scope
  bool reads = false;      ///< both: an atomic
  bool writes = false;
};

inline void RaceSync::complete(const RaceOperation& operation) {
  pending.join(operation.seen);
  pending_wide.join(operation.wide);
}

class RaceDetector {
 public:
  explicit RaceDetector(Launch& launch)
      : launch_(launch),
        are_clusters_single_(launch.shape.cluster[0] * launch.shape.cluster[1] * launch.shape.cluster[2] == 1) {}

  void start_cluster(Cluster& cluster);
  void start_cta(Cta& cta);
  void exit_warp(Warp& warp);
  /// These lanes have waited for each other, and what they did before is done for all of them.
  void meet(Warp& warp, Mask lanes);
  /// These lanes have waited for each other; memory is not ordered.
  void converge(Warp& warp, Mask lanes);

  /// Whether the running store writes, so far, what is there already: warps that store one value by one instruction, as
  /// compilers make them do for what is the same in all, do not race.
  bool stores_same = false;

  // Accesses of the running instruction.
  /// All bytes by each of the lanes.
  void access(const Warp& warp, const Instruction& in, Mask lanes, const Target& target, std::size_t bytes,
              AccessKind kind);
  /// Bytes of one 16-byte granule, as a mask; cta: null for global memory. `lane`: one of those that touch it.
  void access_granule(const Warp& warp, const Instruction& in, int lane, Cta* cta, std::uint64_t granule,
                      std::uint16_t bytes, const WordLanes& lanes, std::uint8_t split, bool is_write);
  /// As many bytes by every lane of a warp that is together, lane i's `delta[i]` behind the first.
  void access_lanes(const Warp& warp, const Instruction& in, const Target& first, const std::uint32_t* delta,
                    std::size_t bytes, bool is_write);
  /// What a release pattern wrote, an acquire pattern takes.
  void strong_access(Warp& warp, const Instruction& in, int lane, const Target& target, std::size_t bytes,
                     MemoryOrder order);
  void fence(Warp& warp, Mask lanes, bool is_narrow = false);
  /// fence.proxy.async of global memory: what the lanes have seen may be read by asynchronous operations.
  void proxy_fence(Warp& warp, Mask lanes);
  /// Of shared memory: of a whole warp it ends what the lanes have read.
  void shared_proxy_fence(Warp& warp, Mask lanes);

  // Programmatic dependent launches (prior_grids.h).
  void wait_for_prior(Warp& warp, Mask lanes);
  void launch_dependents(const Warp& warp, Mask lanes);
  /// What this grid did to global memory.
  std::shared_ptr<const GridFootprint> footprint() const;

  // Barriers. A barrier's RaceSync is made at its first use.
  void arrive(Warp& warp, Mask lanes, std::shared_ptr<RaceSync>& sync, bool is_release, bool is_narrow = false);
  /// is_relaxed: a fence behind it takes what it met.
  void acquire(Warp& warp, Mask lanes, const std::shared_ptr<RaceSync>& sync, bool is_relaxed = false);
  /// The running wait would acquire it, but nobody looks at its answer: nothing is ordered.
  void ignore_wait(const Warp& warp, const std::shared_ptr<RaceSync>& sync);
  void initialise(Warp& warp, int lane, Cta& owner, Mbarrier& barrier);
  /// These lanes wait no more: the phase of this parity is over.
  void note_wait(Warp& warp, Mask lanes, RaceSync& sync);
  /// A phase of the barrier ends: what it was told has come from lanes that speak for those which wait beside them.
  void end_phase(RaceSync& sync);
  /// The barrier's initialisation must happen before its use.
  void use(Warp& warp, const Instruction& in, int lane, Cta& owner, const Mbarrier& barrier);

  // Asynchronous operations.
  std::shared_ptr<RaceOperation> issue(const Warp& warp, const Instruction& in, Mask lanes);
  /// cp.async: what a lane's copy has seen is what the lane has; nothing is passed on. Lane and group: piece by piece.
  std::shared_ptr<RaceOperation> issue_copies(const Warp& warp, Mask lanes);
  void wait_copies(Warp& warp, Mask lanes, std::uint64_t over);
  /// The lanes' copies so far are done when the operation is.
  void follow_copies(RaceOperation& operation, const Warp& warp, Mask lanes, std::uint64_t group);
  /// The operation completes on this barrier's open phase.
  void complete_on(RaceOperation& operation, Cta& owner, Mbarrier& barrier);
  /// Whose result the reads of this wgmma serve.
  void remember(const RaceOperation& operation, std::shared_ptr<WgmmaResult> result);
  /// It belongs to the open group of this list.
  void join_group(RaceOperation& operation, const Warp& warp, GroupList& groups);
  /// Who reads shared memory for a warpgroup's wgmmas. Each warp has a part, and waits for no other's: stores of one
  /// warp over what another one's part reads need more than the own wait. Copies do not: handing a slot back by one
  /// warp's arrival is what known-right kernels do.
  Agent make_warpgroup(const Cta& cta, int first_warp);
  void wait_wgmma(Warp& warp, Agent warpgroup, std::uint32_t groups);
  /// A product of the tensor core that uses this region of Tensor Memory has been issued.
  void use_tensor_memory(Cta& cta, const TmemRegion& region, const RaceOperation& product);
  /// tcgen05.cp over regions whose products nobody has waited for: no order of PTX holds it back.
  void copy_to_tensor_memory(const Warp& warp, const Instruction& in, int lane, const Cta& cta,
                             const TmemRegion& region);
  void wait_group(Warp& warp, int lane, const GroupList& groups, std::uint64_t allowed, bool only_reading);
  void async_access(const RaceOperation& operation, const InstructionPlace& place, Cta* cta, std::uint64_t address,
                    std::size_t bytes, bool is_write, bool is_atomic = false);
  Agent make_agent(const Cta& cta, int warp, const char* what);
  /// The warp knows that what `other` as a whole did at this time is over: any of its lanes may have said so.
  bool is_transfer_over(const Warp& warp, const Warp& other, std::uint32_t clock) const;
  /// A thread of this launch stored into these bytes of global memory, as far as the records tell.
  bool was_stored(std::uint64_t address, std::size_t bytes) const;

 private:
  using LaneAgents = std::array<Agent, kLanes>;
  struct AgentInfo {
    std::array<std::uint32_t, 3> cta{};
    int warp = -1;
    const char* what = nullptr;           ///< nullptr: the warp itself
    std::shared_ptr<LaneAgents> lanes{};  ///< of lanes that told what they did; 0: it has not
    std::array<Agent, 4> parts{};         ///< of a warpgroup's wgmmas: its warps' parts
  };
  struct Accessor {
    const VectorClock* seen;
    const VectorClock* wide;
    const InstructionPlace* place;  ///< null: made from warp and in
    const Warp* warp;
    const Instruction* in;
    bool needs_proxy_fence = false;  ///< an operation of the async proxy on global memory
    bool is_generic = true;          ///< no proxy of its own
    // A lane's accesses up to here come before this one in program order; also its copies and its flags.
    Agent own = 0;
    std::uint32_t own_until = 0;
    Agent copies = 0;
    std::uint32_t copies_until = 0;
    Agent flags = 0;
  };
  static Accessor accessor_of(const Warp& warp, const RaceView& view, const Instruction& in);
  bool is_own(const RaceRecord& before, const Accessor& accessor) const;
  std::uint16_t unread_parts(const RaceRecord& before, const RaceRecord& now, const Accessor& accessor) const;
  std::uint16_t unordered(const RaceRecord& before, const RaceRecord& now, const VectorClock& seen,
                          const Accessor* accessor) const;
  bool is_word_ordered(const RaceRecord& before, const RaceRecord& now, int word, const VectorClock& seen,
                       bool is_own) const;
  static bool covers_lanes(const RaceRecord& outer, const RaceRecord& inner);
  static void merge(RaceRecord& into, const RaceRecord& now);
  Agent lane_agent(Agent agent, int lane);
  void tell_done(const RaceWarp& state, const Warp& warp, Mask lanes, VectorClock& to);
  void tell_waits(const RaceWarp& state, const Warp& warp, Mask lanes, VectorClock& to);
  void pass_waits(RaceWarp& state, const Warp& warp, Mask lanes);
  void tell_fenced(const RaceWarp& state, const Warp& warp, Mask lanes, VectorClock& to, bool is_wide);
  void tell_own(const RaceWarp& state, const Warp& warp, Mask lanes, Agent agent, std::uint32_t RaceView::*own,
                VectorClock& to);
  void check_proxy(const RaceRecord& before, const RaceRecord& now, const Accessor& accessor, std::uint64_t address);
  const Instruction* overtaking_arrival(const RaceRecord& before, const VectorClock& seen) const;
  void check_under_way(const RaceRecord& before, const RaceRecord& now, const Accessor& accessor,
                       std::uint64_t address);
  void touch_step(RaceStates::Id& place, const RaceRecord& now, const Accessor& accessor, std::uint64_t address,
                  bool is_shared, RaceSteps& steps);
  /// steps: of an asynchronous operation, or null.
  void touch_range(RaceCells& cells, std::uint64_t address, std::size_t bytes, RaceRecord record,
                   const Accessor& accessor, std::uint64_t shown_address, bool is_shared, RaceSteps* steps);
  void touch_global(std::uint64_t address, std::size_t bytes, const RaceRecord& record, const Accessor& accessor,
                    RaceSteps* steps);
  RaceCells& page_cells(std::uint64_t address);
  RaceSteps& steps_of(const RaceOperation& operation, const RaceRecord& record, const Cta* cta);
  std::uint64_t flag_key(const Target& target) const;
  void observe(RaceWarp& state, const Warp& warp, int lane, const RaceSync& flag, MemoryOrder order);
  void publish_flag(RaceWarp& state, const Warp& warp, int lane, RaceSync& flag, MemoryOrder order);
  void acquire_prior(RaceWarp& state, int lane, std::uint64_t address, std::size_t bytes);
  void check_prior(const RaceRecord& now, const Accessor& accessor, std::uint64_t address);
  bool is_lockstep(const RaceRecord& before, const RaceRecord& now) const;
  bool is_spent(const RaceRecord& before, const RaceRecord& now, const Accessor& accessor, std::uint64_t address,
                bool is_shared);
  bool touch_plainly(RaceCell& cell, const RaceRecord& now, const VectorClock& seen) const;
  void touch(RaceCell& cell, const RaceRecord& now, const Accessor& accessor, std::uint64_t address, bool is_shared);
  /// Whether a record of another warp or time is of no use any more.
  bool is_done_with(const RaceCell& cell, unsigned index, const RaceRecord& now, const Accessor& accessor,
                    std::uint64_t address, bool is_shared);
  void report(const RaceRecord& before, const RaceRecord& now, const Accessor& accessor, std::uint64_t address,
              int byte, bool is_shared);
  const Instruction* ignored_wait(const RaceRecord& before, const RaceRecord& now, const Accessor& accessor) const;
  const char* missing_warp_sync(const RaceRecord& before, const RaceRecord& now, const Accessor& accessor) const;
  void check_peer(Cta& target, const Accessor& accessor, Agent agent, std::uint32_t clock, std::uint64_t address,
                  int lane);
  bool is_scope_too_narrow(const RaceRecord& before, const RaceRecord& now, const Accessor& accessor) const;
  void report_scope(const RaceRecord& before, const RaceRecord& now, const Accessor& accessor, std::uint64_t address,
                    int byte);
  void report_exit(const InstructionPlace& place, std::uint64_t address);
  static InstructionPlace place_of(const Accessor& accessor, int lane);
  EmulatorFinding finding_of(const Accessor& accessor, const char* name, int lane, std::uint64_t address) const;
  std::string describe(const RaceRecord& record, int byte) const;
  int lane_at(const RaceRecord& record, int byte) const;
  WgmmaResult* result_of(const RaceRecord& record);
  const AgentInfo& info(Agent agent) const { return agents_[agent >> kAgentBits][agent & (kMaxAgents - 1)]; }
  /// What this lane of the agent's warp did at that time has been seen.
  bool has_seen(const VectorClock& seen, Agent agent, int lane, std::uint32_t clock) const;
  bool is_one_warp(Agent a, Agent b) const { return info(a).warp == info(b).warp && !is_other_cta(a, b); }
  static VectorClock clock_of(const Cta& cta);
  [[gnu::always_inline]] bool is_other_cta(Agent a, Agent b) const {
    if ((a ^ b) >> kAgentBits != 0) return true;  // of another cluster
    return !are_clusters_single_ && info(a).cta != info(b).cta;
  }

  Launch& launch_;
  const bool are_clusters_single_;                 // each has one CTA
  std::vector<std::vector<AgentInfo>> agents_{1};  // [cluster][index]
  std::unordered_map<const Cluster*, std::uint32_t> clusters_;
  std::shared_ptr<RaceStates> states_ = std::make_shared<RaceStates>();
  std::vector<RaceSteps> steps_;  // by agent, as far as there are
  std::uint64_t operations_ = 0;
  std::uint64_t told_ = 0;  ///< also what waits for a wgmma's result to be used
  std::unordered_map<std::uint64_t, std::unique_ptr<RaceCells>> pages_;  // 4 KB of global memory each
  std::uint64_t last_page_number_ = ~std::uint64_t{0};
  RaceCells* last_page_ = nullptr;
  std::unordered_map<std::uint64_t, std::unique_ptr<RaceSync>> flags_;  // by flag_key() / 4
  /// wgmma's last results by agent and pc, each with its group.
  std::map<std::pair<Agent, std::uint32_t>, std::deque<std::pair<std::uint32_t, std::shared_ptr<WgmmaResult>>>>
      results_;
  struct IgnoredWait {
    std::shared_ptr<RaceSync> sync;
    std::uint32_t pc = 0;
  };
  std::unordered_map<Agent, std::vector<IgnoredWait>> ignored_waits_;  // by warp
  struct Arrival {
    std::uint32_t clock = 0;
    std::uint32_t pc = 0;
  };
  static constexpr std::uint32_t kFence = ~std::uint32_t{0};  // in place of an arrival: fence.proxy.async of all lanes
  void keep_arrival(const RaceWarp& state, std::size_t pc);
  std::unordered_map<Agent, std::deque<Arrival>> arrivals_;  // by warp: the last ones of Entry::reads_under_way
  VectorClock proxy_fenced_;                                 // stores that some fence.proxy.async has covered
  std::set<std::array<std::uint32_t, 3>> reported_;          // both places, what
};

/// The weak accesses of one instruction's lanes. Neighbouring lanes that touch one granule are followed as one access.
class LaneAccesses {
 public:
  LaneAccesses(const Warp& warp, const Instruction& in, bool is_write) : warp_(warp), in_(in), is_write_(is_write) {}
  ~LaneAccesses() { flush(); }
  LaneAccesses(const LaneAccesses&) = delete;
  LaneAccesses& operator=(const LaneAccesses&) = delete;
  void add(int lane, const Target& target, std::size_t bytes);

 private:
  void flush();
  bool is_together(int lane) const;  ///< it has seen what lane_ has

  const Warp& warp_;
  const Instruction& in_;
  bool is_write_;
  std::uint16_t bytes_ = 0;  // of the granule; 0: none
  std::uint16_t each_ = 0;   // touched by every lane
  int lane_ = 0;
  Cta* cta_ = nullptr;
  std::uint64_t granule_ = 0;
  WordLanes lanes_;
};

}  // namespace tessera::emulator
