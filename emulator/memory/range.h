// The lanes of one load, store or atomic in one piece of memory: checked once, as a range, and not lane by lane. What
// is not as plain as that (a fault, a hazard, memory of several spaces) is left to the handlers' loops over lanes,
// which also find out what is wrong.
#pragma once

#include <array>

#include "emulator/memory/access.h"

namespace tessera::emulator {

/// Where the active lanes' addresses lie. first.data is where the lowest one is; delta[lane] is the distance to it, of
/// a lane that is not active that of the first active one.
struct Range {
  Target first;
  alignas(64) std::array<std::uint32_t, kLanes> delta;
  std::uint32_t length = 0;  ///< to the highest address
  bool is_dense = false;     ///< all lanes are active, and lane i follows lane i - 1 without a gap
  bool is_one = false;       ///< all have one address
  bool is_known = false;     ///< all that lies between is readable, as GlobalMemory and Cta::shared_pages know

  Target of_lane(int lane) const {
    Target target = first;
    const std::uint32_t distance = delta[static_cast<std::size_t>(lane)];
    target.data += distance;
    target.shadow += distance;
    target.offset += distance;
    return target;
  }
};

/// Addresses as they were found; Base is a register of 32 or 64 bits.
struct Scan {
  std::uint64_t low;
  std::uint32_t length;  ///< to the highest
  std::uint32_t bits;    ///< the low ones of any address
  std::uint32_t gaps;    ///< 0: lane i follows lane i - 1
  bool is_wide;          ///< they lie further apart than a range may be
};
Scan scan_addresses(const Warp& w, const Operand& op, std::size_t bytes, Mask active, std::uint32_t* delta);

inline bool is_known_shared(const Cta& cta, std::uint32_t offset, std::size_t bytes) {
  const std::size_t last = (offset + bytes - 1) / Cta::kSharedPage;
  if (last - offset / Cta::kSharedPage > kLanes) return false;
  for (std::size_t page = offset / Cta::kSharedPage; page <= last; ++page)
    if (cta.shared_pages[page] != Cta::kSharedKnown) return false;
  return true;
}

bool find_local_range(const Warp& w, std::size_t bytes, Mask active, std::uint64_t base, const Scan& scan, Range& out);

/// False: go lane by lane.
template <Space kSpace>
inline bool find_range(const Warp& w, const Operand& op, std::size_t bytes, Mask active, Range& out) {
  static_assert(kSpace != Space::param);
  const Scan scan = scan_addresses(w, op, bytes, active, out.delta.data());
  if (scan.is_wide || (scan.bits & (bytes - 1)) != 0) return false;
  if constexpr (kSpace == Space::local) return find_local_range(w, bytes, active, 0, scan, out);
  if constexpr (kSpace == Space::generic) {
    if (scan.low - kLocalWindow < kWindowBytes && !w.race)
      return find_local_range(w, bytes, active, kLocalWindow, scan, out);
    if (scan.low < kGlobalBase && scan.low - kSharedWindow >= kWindowBytes) return false;
  }
  if (!locate<kSpace>(w, 0, scan.low, scan.length + bytes, out.first)) return false;
  out.is_dense = active == kAllLanes && scan.gaps == 0;
  out.is_one = scan.length == 0;
  out.length = scan.length;
  constexpr std::uint32_t kNear = 1u << 16;
  if constexpr (kSpace != Space::global)
    if (out.first.cta != nullptr) out.is_known = is_known_shared(*out.first.cta, out.first.offset, scan.length + bytes);
  if constexpr (kSpace == Space::global || kSpace == Space::generic)
    if (out.first.cta == nullptr)
      out.is_known = scan.length < kNear && w.launch->memory.is_known(scan.low, scan.length + bytes);
  return true;
}

bool look_at_range(const Warp& w, const Range& range, std::size_t bytes, Mask active, std::uint8_t bits);
void note_all_written(const Warp& w, const Range& range, std::size_t bytes, Mask active);

/// Every byte that the lanes touch has these shadow bits.
inline bool range_has(const Warp& w, const Range& range, std::size_t bytes, Mask active, std::uint8_t bits) {
  return range.is_known || look_at_range(w, range, bytes, active, bits);
}

/// note_written() of all lanes.
inline void note_range_written(const Warp& w, const Range& range, std::size_t bytes, Mask active) {
  if (range.is_known && range.first.cta == nullptr && !w.launch->written) return;
  note_all_written(w, range, bytes, active);
}

}  // namespace tessera::emulator
