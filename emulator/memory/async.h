// Operations that complete on their own time: TMA, cp.async, wgmma. PTX ISA, "Asynchronous operations".
//
// An instruction that starts one puts an AsyncOperation into the queue; the schedule decides when complete() runs and
// thereby when its reads and writes happen and its barrier or group hears of it. Operations of one chain (the wgmmas of
// a warpgroup) complete in order, all others in any. Thousands may be under way (cp.async of 4 bytes a thread), so only
// the first of each chain is looked at, by its time.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tessera/emulator/findings.h"

namespace tessera::emulator {

class Cta;
class Launch;
struct Instruction;

/// What an operation is to the time model (time/clock.h).
struct AsyncWork {
  enum class Kind : std::uint8_t {
    other,
    wgmma,
    tensor,
    commit,
    load,
    store_read,
    store_write,
    lane_copies,
    remote_store
  };
  Kind kind = Kind::other;
  std::uint64_t bytes = 0;   ///< of global memory, or between CTAs
  std::uint64_t global = 0;  ///< where they lie; 0: in shared memory
  const Cta* cta = nullptr;  ///< whose shared memory is read or written; null: that of the warp that pushes it
  const Instruction* in = nullptr;
  int m = 0, n = 0, cta_group = 1;  ///< of a tcgen05.mma; 0: another tcgen05 operation
  bool a_in_tmem = false;
  /// Of a tensor load: lines of 128 bytes that its rows touch, and rows that begin between sectors of 32 bytes.
  std::uint32_t row_lines = 0, split_rows = 0, row_bytes = 0;
  std::uint64_t first_byte = 0;     ///< where its box begins; 0: at `global`
  std::array<const Cta*, 16> to{};  ///< a copy for several CTAs: those whose shared memory gets the bytes
  std::uint32_t num_to = 0;         ///< 0: it is for one
};

class AsyncOperation {
 public:
  virtual AsyncWork work() const { return {}; }
  /// Of copies by lanes: what each reads of global memory.
  virtual std::vector<std::pair<std::uint64_t, std::uint32_t>> pieces_read() const { return {}; }
  virtual ~AsyncOperation() = default;
  virtual void complete(Launch& launch) = 0;
  /// False while something that it waits for (beside its chain) has not happened.
  virtual bool is_ready() const { return true; }
  /// It only tells a barrier of this CTA that something has happened.
  virtual bool only_tells(const Cta&) const { return false; }
  std::uint64_t ready_at = 0;   ///< time from which it may complete
  const void* chain = nullptr;  ///< operations of one chain complete in order
};

class AsyncQueue {
 public:
  /// Takes the operation; completes it at once when the schedule is eager.
  void push(std::unique_ptr<AsyncOperation> operation, Launch& launch);
  /// Completes what is due.
  void poll(Launch& launch);
  /// Completes one operation whatever its time; false when there is none.
  bool complete_one(Launch& launch);
  /// What has happened before the CTA's end has been told before it.
  void tell_before_exit(const Cta& cta, Launch& launch);
  bool empty() const noexcept { return size_ == 0; }
  std::size_t size() const noexcept { return size_; }
  /// Before that time poll() completes nothing.
  std::uint64_t next_ready() const noexcept {
    return !due_.empty() ? 0 : waiting_.empty() ? ~std::uint64_t{0} : waiting_.begin()->first;
  }

 private:
  using Number = std::uint64_t;  // in the order of push()
  AsyncOperation* find(Number number) const { return operations_[number - first_].get(); }
  bool is_first_of_chain(Number number) const;
  bool can_complete(Number number) const;
  void complete(Number number, Launch& launch);

  std::deque<std::unique_ptr<AsyncOperation>> operations_;  // from first_ on; null: completed
  Number first_ = 0;
  std::size_t size_ = 0;
  std::unordered_map<const void*, std::deque<Number>> chains_;
  // The first of every chain and all without one: by their times, and in order once their times have come.
  std::set<std::pair<std::uint64_t, Number>> waiting_;
  std::set<Number> due_;
};

/// A commit group: operations that have not read their sources, and that have not finished.
struct AsyncGroup {
  int reading = 0;
  int pending = 0;
};

/// The groups of one thread (or one warp, for wgmma).
struct GroupList {
  std::shared_ptr<AsyncGroup> open;
  std::vector<std::shared_ptr<AsyncGroup>> committed;
  std::uint64_t closed = 0;      ///< groups committed so far
  std::uint32_t read_agent = 0;  ///< race detector: who reads and who writes for this thread
  std::uint32_t written_agent = 0;

  AsyncGroup& current() {
    if (!open) open = std::make_shared<AsyncGroup>();
    return *open;
  }
  void commit() {
    current();
    committed.push_back(std::move(open));
    open.reset();
    ++closed;
  }
  /// At most `allowed` of the newest groups are unfinished (only_reading: have not read their sources). Forgets the
  /// finished ones at the front.
  bool at_most(std::size_t allowed, bool only_reading) {
    std::size_t done = 0;
    while (done < committed.size() && committed[done]->pending == 0) ++done;
    committed.erase(committed.begin(), committed.begin() + static_cast<std::ptrdiff_t>(done));
    for (std::size_t i = 0; i + allowed < committed.size(); ++i)
      if ((only_reading ? committed[i]->reading : committed[i]->pending) != 0) return false;
    return true;
  }
};

/// What becomes of a wgmma's result. Hazards of the memory that it read matter only if somebody uses the result: a
/// product whose accumulators the next one overwrites may read what it likes.
struct WgmmaResult {
  int warps_left = 4;    ///< of its warpgroup, that have not overwritten it
  bool is_used = false;  ///< read by other instructions
  std::vector<EmulatorFinding> findings;
  std::shared_ptr<WgmmaResult> sum;  ///< of the wgmma that added to it: what becomes of that one counts

  WgmmaResult& last() {
    WgmmaResult* result = this;
    while (result->sum) result = result->sum.get();
    return *result;
  }
};

/// The groups of a warp's lanes, made for the first that asks: most kernels have none, and every CTA starts new warps.
class LaneGroups {
 public:
  GroupList& operator[](std::size_t lane) {
    if (!lists_) lists_ = std::make_unique<std::array<GroupList, 32>>();
    return (*lists_)[lane];
  }

 private:
  std::unique_ptr<std::array<GroupList, 32>> lists_;
};

struct WarpAsync {
  LaneGroups bulk;  ///< cp.async.bulk
  LaneGroups copy;  ///< cp.async
  GroupList wgmma;
  /// Registers of wgmmas that are not waited for: the instruction, and which committed group it belongs to.
  struct InFlight {
    const Instruction* in = nullptr;
    std::uint64_t group = 0;
  };
  std::vector<InFlight> in_flight;
  std::vector<bool> in_flight_places;  ///< by register offset / 64
  /// Moves of a register in flight into another: made again when the wgmma is waited for. Compilers copy registers
  /// wherever they like, and the assembler gives both one place.
  struct Copy {
    const Instruction* in = nullptr;
    std::uint32_t active = 0;  ///< lanes
    std::uint64_t group = 0;
  };
  std::vector<Copy> copies;
  /// Results that nobody has read, and whether to look for who does: with a race detector, or hazards to tell.
  struct Unread {
    const Instruction* in = nullptr;
    std::shared_ptr<WgmmaResult> result;
  };
  std::vector<Unread> unread;
  std::vector<bool> unread_places;
  bool watches_unread = false;
  std::uint64_t wgmma_groups = 0;  ///< committed so far
  std::uint64_t wgmma_issued = 0;
};

struct WgmmaOperation;

/// The wgmmas that some of a warpgroup's four warps have issued and others not yet.
struct WarpgroupAsync {
  WarpgroupAsync();
  WarpgroupAsync(WarpgroupAsync&&) noexcept;
  ~WarpgroupAsync();
  std::deque<std::unique_ptr<WgmmaOperation>> forming;
  std::uint64_t first = 0;  ///< the number of forming.front()
  std::uint32_t race_agent = 0;
};

}  // namespace tessera::emulator
