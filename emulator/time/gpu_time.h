// A GPU in numbers: units with rate, latency and queue. Read from JSON (gpus/*.json), in which every number is an
// object {"value", "source", "certainty"}: a number without a source is refused.
//
// Cycles are those of the multiprocessor's clock. An instruction class has the pipe of its sub-core that it occupies,
// for how long (`interval`), and when its result can be used (`latency`).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/emulator/time.h"

namespace tessera::emulator {

enum class Pipe : std::uint8_t { none, fma, alu, mufu, memory, branch, tensor_memory, tensor };
inline constexpr std::size_t kPipes = 8;
const char* to_string(Pipe pipe);

struct ClassTime {
  Pipe pipe = Pipe::none;
  double interval = 0;      ///< cycles of its sub-core's pipe
  double latency = 0;       ///< cycles until its result can be used
  double slots = 1;         ///< machine instructions that the assembler makes of it, each of which takes the interval
  double beside = 0;        ///< its interval while a wgmma is at work, over that without; 0: as its pipe's
  bool holds_warp = false;  ///< its warp goes on when the pipe has taken it
};

/// Cycles from one wgmma to the next by N, for one type and place of A: measured points, straight lines between them.
struct IntervalTable {
  std::vector<std::pair<double, double>> points;
  double at(double n) const;
};

/// tcgen05.mma of one form: cycles from one to the next are the larger of what the tensor core takes and what the
/// operands take in shared memory; `latency` more until a wait for it is over.
struct TensorForm {
  double per_n = 0, operands = 0, operands_per_n = 0, latency = 0;
  double interval(double n) const { return std::max(per_n * n, operands + operands_per_n * n); }
};

/// mma.sync of one type: what all sub-cores of a multiprocessor do together in a cycle, and a result's latency.
struct MmaTime {
  double flop_per_clock = 0, latency = 0;
};

struct GpuTime {
  std::string name, arch;
  int sms = 0;
  double clock_mhz = 0, clock_loaded_mhz = 0;  ///< loaded: all tensor cores work on random numbers
  double clock_loaded_8_bit_mhz = 0;           ///< the same with 8-bit types
  /// By the part of the time that tensor cores work on random numbers, while shared memory is filled; in kernels of a
  /// tenth of a millisecond and of one. No points: a straight line from clock_mhz to clock_loaded_mhz.
  IntervalTable clock_by_tensor, clock_by_tensor_long;
  double clock_at(double tensor_busy, double part_of_8_bit, double microseconds) const;
  /// What mma.sync makes of the tensor cores' rate: a quarter where tcgen05 is there.
  double part_of_mma() const;
  /// Clusters of so many CTAs, one CTA a multiprocessor, that are there at once: each lies within a GPC, and GPCs have
  /// different numbers of multiprocessors. Sizes that are not here fill the GPU.
  std::map<int, double> clusters_of;
  double clusters_at_once(int ctas) const;
  int sub_cores = 4;
  /// Of warps of a sub-core that want the same at the same time the one that issued longest ago has it; else the first.
  bool warps_take_turns = false;
  int warps_per_sm = 0, registers_per_sm = 0, ctas_per_sm = 0;
  double smem_per_sm = 0, smem_per_cta_reserved = 0;
  double l2_bytes = 0;
  std::map<std::string, ClassTime> classes;

  double launch_us = 0;        ///< an empty kernel, from the event before it to the one behind it
  double first_access = 0;     ///< cycles that the first reads of a multiprocessor take more
  double plain_launch_us = 0;  ///< the same with the shared memory that a kernel has without asking for more
  double next_launch_us = 0;   ///< from one kernel of a stream to the next
  double displaced_part = 0;   ///< bytes of them that go for one that comes
  IntervalTable displaced;     ///< bytes of them that go when so many come; no points: by the part
  double displaced_by(double read) const;
  double dirty_bytes = 0;   ///< of the L2, that were written before the launch and must go first
  double cold_line = 0;     ///< cycles that 128 bytes of code take more when a multiprocessor first executes them
  double cta_interval = 0;  ///< cycles from the start of a CTA to that of the next one on its multiprocessor
  double cta_start = 0;     ///< cycles from a CTA's end to the start of the next on its multiprocessor

  double smem_bytes_per_clock = 0, smem_latency = 0;
  int smem_queue = 0;  ///< accesses of a sub-core that wait for shared memory before the next one does not issue; 0:
                       ///< not known, and a warp waits when shared memory is its latency behind

  /// The L1 shares its memory with shared memory. Of the lines that a warp's access touches, each of `l1_sets` sets
  /// gives one a cycle; a store takes cycles for each line, more where it writes 32 bytes in part.
  double l1_bytes = 0, l1_latency = 0;
  int l1_sets = 1;
  double l1_store_line = 0, l1_store_part = 0;
  /// Cycles that each wavefront but the first of a load keeps its sub-core's memory pipe; 0: not known, and the L1
  /// hands out what it has looked up.
  double l1_wavefront_of_warp = 0;
  /// Cycles of a copy by lanes of a warp at least: of its sub-core's memory pipe, of the L1.
  double l1_copy_of_warp = 0, l1_copy = 0;

  std::map<std::string, IntervalTable> wgmma;  ///< by "bf16 SS"
  double wgmma_tail = 0;                       ///< from the end of its interval to the end of a wait for it
  double wgmma_issue = 0;                      ///< cycles of the issuing warp
  std::array<double, kPipes> beside_wgmma{};   ///< intervals of a pipe while a wgmma is at work, over those without

  std::map<std::string, TensorForm> tcgen05;  ///< by "cg1 m128 smem": CTAs, M, where A lies
  /// That form, or where it is not described the one of the next M that is, else the last one.
  const TensorForm& tcgen05_form(int ctas, int m, bool a_in_tmem) const;
  double tcgen05_copy = 0;  ///< cycles of a tcgen05.cp

  /// By the type of A, and of D where that is not f32: "f16", "f16 to f16", "e4m3", "s8", "mxf8f6f4", "mxf4".
  std::map<std::string, MmaTime> mma;

  double tma_issue = 0;           ///< cycles of the issuing warp
  double tma_prefetch_issue = 0;  ///< the same of a bulk copy to the L2 alone; 0: as of others
  double tma_bytes_per_clock = 0, tma_least = 0;
  double tma_row = 0;           ///< cycles of a line of 128 bytes that a row of a tensor load touches; 0: not known
  IntervalTable tma_split_row;  ///< more of a row that begins between sectors, by its bytes; none: not known
  double tma_first_use = 0;     ///< cycles that a tensor's first copy takes more
  double tma_latency_l2 = 0, tma_latency_hbm = 0;  ///< of a copy without bytes, from issue to the end of a wait
  double tma_store_bytes_per_clock = 0;
  double tma_store_read_latency = 0, tma_store_latency = 0;

  double l2_latency = 0, hbm_latency = 0;  ///< of ld.global, in the mean
  double l2_tail = 0, hbm_tail = 0;        ///< of them: what varies, taken as exponential
  double l2_bytes_per_clock_sm = 0, l2_bytes_per_clock = 0;
  /// That a multiprocessor's shared memory gets at most; where copies are multicast, of its own and of others' copies.
  double port_bytes_per_clock = 0, multicast_bytes_per_clock = 0;
  /// Bytes a clock of each multiprocessor when all read, by how many read the same bytes; no points: not known.
  IntervalTable l2_by_sharers;
  double l2_of_multicast = 0;  ///< that each gets at most where copies are multicast; 0: not known
  /// What multiprocessors of a GPC read at the same time, up to so many, the L2 reads once for them: bytes a clock of
  /// each that it reads, and that it hands out; by the cycles of a kernel the part of that which is left when they have
  /// drifted apart, in the mean. No points: not known, and l2_by_sharers has it.
  double l2_distinct = 0, l2_each = 0, l2_neighbours = 1;
  IntervalTable l2_in_step_after;
  double in_step_after(double cycles) const;
  std::uint64_t gpcs = 0;  ///< that CTAs are dealt to in turn; where points are known
  double l2_stored_bytes_per_clock =
      0;                     ///< of one multiprocessor's lanes; 0: not known, and its L1 alone is their limit
  double l2_lanes_wait = 0;  ///< the part of the copies before it that a load waits for, where the L2 is their limit
  double l2_parts_per_clock = 0;  ///< sectors written in part, of all multiprocessors together; 0: not known
  double hbm_bytes_per_us = 0, hbm_mixed_bytes_per_us = 0;  ///< of reads; of as many reads as writes
  /// Of what the memory takes for the reads that a multiprocessor has under way, the part that the next one waits:
  /// loads, loads where as much is written, copies.
  double hbm_behind = 0, hbm_behind_mixed = 0, tma_behind = 0;
  /// How sharply a grid turns from one that the memory binds into one that waits for itself: the exponent by which both
  /// times add up. 0: not known, and the larger one counts.
  double hbm_sharpness = 0;

  double mbarrier_hand_off = 0;  ///< from an arrival to the end of another warp's wait
  double barrier_base = 0, barrier_per_warp = 0;
  double cluster_barrier = 0, cluster_store = 0, cluster_load = 0;  ///< store, load: their latency
  double cluster_bytes_per_clock = 0;  ///< that a multiprocessor sends to another's shared memory
  double atomic_latency = 0;

  PredictionError judged;

  const ClassTime& class_of(const std::string& name) const;
};

/// Throws Error{usage}: `file` names it in messages.
GpuTime read_gpu_time(std::string_view json, const std::string& file);

/// A description that the library carries; text is empty where there is none of that name.
struct EmbeddedGpu {
  std::string_view name, text;
};
std::vector<EmbeddedGpu> embedded_gpus();

}  // namespace tessera::emulator
