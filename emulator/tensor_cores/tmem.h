// Tensor Memory of a CTA: 128 lanes by 512 columns of 32-bit words, its allocator, and who touched what when.
//
// PTX ISA, "Tensor Memory", "Tensor Memory Allocation and Management Instructions". Document only: no Blackwell was at
// hand. An address is lane << 16 | column; of the lane 7 bits count (kernels run by their authors set bit 7 on the
// second CTA of a pair). Allocations are blocks of a power-of-two number of columns, 32 at least, placed at the lowest
// free multiple of their size.
//
// Next to the words stand what checks need: one shadow byte per word (initialised or not), and per quarter of 32 lanes
// and column the clock of the last tcgen05.st and of the last operation of the tensor core. Operations that were issued
// and have not completed are listed with the region that they read and write.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera::emulator {

struct Instruction;

inline constexpr int kTmemLanes = 128;
inline constexpr int kTmemColumns = 512;
inline constexpr int kTmemUnit = 32;  ///< columns of the smallest allocation
inline constexpr int kTmemQuarters = 4;

constexpr int tmem_lane(std::uint32_t address) { return static_cast<int>(address >> 16 & 127); }
constexpr int tmem_column(std::uint32_t address) { return static_cast<int>(address & 0xFFFF); }

/// Columns [first, end) of the quarters in `quarters` (bit q: lanes 32 q to 32 q + 31).
struct TmemRegion {
  int first = 0;
  int end = 0;
  unsigned quarters = 0;

  bool overlaps(const TmemRegion& other) const {
    return (quarters & other.quarters) != 0 && first < other.end && other.first < end;
  }
  bool empty() const { return first >= end || quarters == 0; }
};

/// What an operation in flight does to Tensor Memory.
struct TmemUse {
  const void* operation = nullptr;
  const Instruction* in = nullptr;
  TmemRegion region;
  bool writes = false;
};

/// One quarter of a column: when it was last touched, on the launch's tmem_clock; 0: never.
struct TmemStamp {
  std::uint64_t stored_at = 0;    ///< tcgen05.st
  std::uint64_t operated_at = 0;  ///< an mma or cp that wrote it has completed
  std::int32_t stored_by = -1;    ///< warp
  std::int32_t operated_by = -1;  ///< warp that issued it; -1 also for the peer CTA's
  std::uint32_t race_agent = 0;   ///< race detector: the operation, 0 without one
  std::uint32_t race_clock = 0;
  std::int32_t loaded_by = -1;  ///< the last warp whose tcgen05.ld read it since the operation
  std::uint64_t loaded_at = 0;
};

class TensorMemory {
 public:
  TensorMemory();
  /// As a new CTA finds it. Contents are kept: nothing that is not allocated can be read.
  void reset();

  std::uint32_t* row(int lane) { return words_.data() + static_cast<std::ptrdiff_t>(lane) * kTmemColumns; }
  std::uint8_t* shadow_row(int lane) { return shadow_.data() + static_cast<std::ptrdiff_t>(lane) * kTmemColumns; }
  TmemStamp& stamp(int quarter, int column) {
    return stamps_[static_cast<std::size_t>(quarter * kTmemColumns + column)];
  }

  /// The first column of a new block, or -1 when no room is left. The block's words are poisoned (all ones) and
  /// uninitialised.
  int allocate(int columns);
  /// Columns of the block that starts here; 0 when none does.
  int block_at(int column) const {
    return column >= 0 && column < kTmemColumns && column % kTmemUnit == 0
               ? sizes_[static_cast<std::size_t>(column / kTmemUnit)]
               : 0;
  }
  void release(int column);
  bool has_room(int columns) const { return find_room(columns) >= 0; }
  int allocated_columns() const;
  /// Every column of [first, end) belongs to a block.
  bool is_allocated(int first, int end) const;
  /// "columns 0 to 127, 256 to 287"
  std::string describe_blocks() const;

  /// Marks words [column, column + count) of a lane as written.
  void mark_written(int lane, int column, int count);
  /// The first column of the range whose word nobody has written, or -1.
  int first_unwritten(int lane, int column, int count) const;

  bool permit_given_up = false;       ///< after tcgen05.relinquish_alloc_permit
  int cta_group = 0;                  ///< 1 or 2, of the first tcgen05 instruction; 0: none yet
  std::uint64_t pair_operations = 0;  ///< alloc, dealloc, relinquish of cta_group::2 that this CTA has come to
  const Instruction* last_alloc = nullptr;
  int last_alloc_warp = -1;
  std::vector<TmemUse> in_flight;

  /// An operation in flight that touches the region (or, with writes_only, writes it); nullptr: none.
  const TmemUse* find_use(const TmemRegion& region, bool writes_only) const;
  void end_use(const void* operation);

 private:
  int find_room(int columns) const;

  std::vector<std::uint32_t> words_;
  std::vector<std::uint8_t> shadow_;
  std::vector<TmemStamp> stamps_;
  std::array<int, kTmemColumns / kTmemUnit> sizes_{};  // block's columns, at its first unit
  std::array<bool, kTmemColumns / kTmemUnit> taken_{};
};

/// Asynchronous tensor operations of one thread: they complete in the order of issue, and a commit waits for its count.
struct TensorProgress {
  std::uint64_t issued = 0;
  std::uint64_t completed = 0;
  std::uint32_t race_agent = 0;  ///< race detector: who reads shared memory for this thread
};

/// What a warp has to remember of its tcgen05 instructions.
struct WarpTensor {
  struct Transfer {
    const Instruction* in = nullptr;
    TmemRegion region;
  };
  std::vector<Transfer> loads;    ///< tcgen05.ld since the last wait::ld
  std::vector<bool> load_places;  ///< registers that these loads fill, by register offset / 64
  std::vector<Transfer> stores;   ///< tcgen05.st since the last wait::st
  Transfer last_transfer;         ///< race detector: the last tcgen05.ld or .st, and the warp's clock then
  std::uint32_t transferred_at = 0;
  std::uint64_t arrivals_at_transfer = 0;  ///< at the cluster barrier, before it
  std::uint64_t fence_after = 0;           ///< tmem_clock at the last fence::after_thread_sync
  std::uint64_t pair_operation = 0;        ///< number of the collective operation that it waits in; 0: none
  std::vector<std::shared_ptr<TensorProgress>> progress;  ///< by lane; empty before the first progress_of()

  /// Notes a fence::before_thread_sync, or what implies one. The newest ones are kept.
  void fence_before(std::uint64_t now) {
    constexpr std::size_t kKept = 256;
    if (fences_before.size() == 2 * kKept) fences_before.erase(fences_before.begin(), fences_before.begin() + kKept);
    fences_before.push_back(now);
  }
  /// The first such fence after a time; 0: none.
  std::uint64_t first_fence_before(std::uint64_t time) const {
    const auto found = std::upper_bound(fences_before.begin(), fences_before.end(), time);
    return found == fences_before.end() ? 0 : *found;
  }
  std::vector<std::uint64_t> fences_before;  ///< tmem_clock, ascending

  TensorProgress& progress_of(int lane) {
    if (progress.empty()) progress.resize(32);
    auto& made = progress[static_cast<std::size_t>(lane)];
    if (!made) made = std::make_shared<TensorProgress>();
    return *made;
  }
};

}  // namespace tessera::emulator
