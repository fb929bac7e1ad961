// What the models of the time count on: the multiprocessors that most devices of an architecture have, and the clock
// that their rates are for. What runs is right on any number of them; only the order of candidates depends on these.
#pragma once

namespace tessera {

struct ModelDevice {
  double sms = 0;
  double clock_ghz = 0;  ///< under load
};

inline constexpr ModelDevice kHopper{132, 1.7};
/// Clusters of up to eight CTAs, each a multiprocessor, that run at the same time on 132 of them. A cluster's share a
/// GPC of 16 or 18, so some are left over: what an H200's driver says of each size; of eight, one less was seen.
constexpr int hopper_clusters_at_once(int size) {
  constexpr int kAtOnce[] = {132, 132, 66, 39, 30, 22, 17, 15, 14};
  return kAtOnce[size < 1 ? 1 : size > 8 ? 8 : size];
}
inline constexpr ModelDevice kBlackwell{148, 1.85};  // by published figures: never measured
/// What all of its multiprocessors load in a cycle: 13.3 TB/s of the L2 at 1.75 GHz, 7.2 TB/s of memory.
inline constexpr double kBlackwellL2Bytes = 7600, kBlackwellMemoryBytes = 3892;
/// Those whose tensor cores take operands from registers: rates of one multiprocessor, in each cycle of that clock.
struct MmaDevice {
  const char* name;
  ModelDevice device;
  double products = 0;      ///< of 16-bit operands with fp32 sums
  double l2_bytes = 0;      ///< of one multiprocessor
  double memory_bytes = 0;  ///< of all
  double fp8 = 2;           ///< the rate of 8-bit products beside that
  double int8 = 2;
  double mx8 = 2, four_bit = 4;  ///< of products with scales of blocks
  /// What steps, slots and parts of k take follows predictions of the time model (docs/time.md); else measurements.
  bool is_predicted = true;
};
inline constexpr double kMmaExponentialsPerCycle = 16, kMmaIssuePerCycle = 128;  ///< of one multiprocessor: lanes
inline constexpr double kMmaSmemBytesPerCycle = 128;
// By published figures, for Hopper as far as it differs: never measured. An RTX 5090 has half the rate where sums are
// fp32: 235 TFLOP/s at this clock. The L2's figure is that of an RTX PRO 6000, 8.7 TB/s for 188 multiprocessors, which
// reaches 417 TFLOP/s; products of 8 bits with scales have four times the GeForce's rate of fp32 sums and twice the
// others', of 4 bits twice that: 1.9 PFLOP/s of an RTX 5090 at this clock. A DGX Spark's tensor cores some 100, its
// memory 273 GB/s.
inline constexpr MmaDevice kRtx5090{"RTX 5090", {170, 2.7}, 256, 18, 664, 2, 4, 4, 8};
inline constexpr MmaDevice kRtxPro6000{"RTX PRO 6000", {188, 2.15}, 512, 21, 833};
inline constexpr MmaDevice kDgxSpark{"DGX Spark", {48, 2.05}, 512, 18, 133};
inline constexpr MmaDevice kHopperByMma{"H100", kHopper, 1024, 64, 2235, 0.5, 2, 1, 1, false};

}  // namespace tessera
