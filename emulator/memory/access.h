// From an address in a state space to bytes of the host, with every check that the hardware makes and some that it does
// not. PTX ISA, "State Spaces", "Generic Addressing".
#pragma once

#include "emulator/instructions/lanes.h"
#include "emulator/syntax/isa.h"

namespace tessera::emulator {

enum class Space : std::uint8_t { generic, global, shared_cta, shared_cluster, local, param };

/// Where an access lands. shadow is null where nothing is tracked (parameters).
struct Target {
  std::byte* data = nullptr;
  std::uint8_t* shadow = nullptr;
  Cta* cta = nullptr;        ///< shared memory's owner
  std::uint32_t offset = 0;  ///< in shared memory
};

/// The space words of an instruction; generic without one.
Space space_of(const Decoded& d);

/// A generic address where the instruction names .shared: its low word is the shared address, which is what an H200
/// takes (tried with st.shared and mbarrier.init.shared). A hazard; false where it is no address of the shared window.
bool drop_shared_window(const Warp& w, std::uint64_t& address);

/// Finds shared memory by a .shared::cluster address (28 bits). False: there is none.
inline bool locate_shared(const Warp& w, std::uint64_t address, std::size_t bytes, bool own_only, Target& out) {
  if (address >> 32 != 0 && !drop_shared_window(w, address)) return false;
  const auto rank = static_cast<std::uint32_t>(address >> kRankShift);
  Cta* cta = w.cta;
  if (rank != cta->rank) {
    // An own address without its rank bits still names the own CTA.
    if (own_only) {
      if (rank != 0) return false;
    } else {
      if (rank >= cta->cluster->ctas.size()) return false;
      cta = cta->cluster->ctas[rank].get();
      if (cta->live_warps == 0) [[unlikely]]
        return false;  // its memory may be another's by now
    }
  }
  const auto offset = static_cast<std::uint32_t>(address & ((1u << kRankShift) - 1)) - kSharedBase;
  if (offset >= cta->shared_bytes || bytes > cta->shared_bytes - offset) return false;
  out = {cta->shared.data() + offset, cta->shared_shadow.data() + offset, cta, offset};
  return true;
}

inline bool locate_global(const Warp& w, std::uint64_t address, std::size_t bytes, Target& out) {
  const GlobalMemory& memory = w.launch->memory;
  if (!memory.contains(address, bytes)) return false;
  out = {memory.data(address), memory.shadow(address), nullptr, 0};
  return true;
}

bool locate_local(const Warp& w, int lane, std::uint64_t address, std::size_t bytes, Target& out);
bool locate_parameter(const Warp& w, std::uint64_t address, std::size_t bytes, Target& out);
bool locate_generic(const Warp& w, int lane, std::uint64_t address, std::size_t bytes, Target& out);

template <Space kSpace>
inline bool locate(const Warp& w, int lane, std::uint64_t address, std::size_t bytes, Target& out) {
  if constexpr (kSpace == Space::global) return locate_global(w, address, bytes, out);
  if constexpr (kSpace == Space::shared_cta) return locate_shared(w, address, bytes, true, out);
  if constexpr (kSpace == Space::shared_cluster) return locate_shared(w, address, bytes, false, out);
  if constexpr (kSpace == Space::local) return locate_local(w, lane, address, bytes, out);
  if constexpr (kSpace == Space::param) return locate_parameter(w, address, bytes, out);
  return locate_generic(w, lane, address, bytes, out);
}
bool locate_any(Space space, const Warp& w, int lane, std::uint64_t address, std::size_t bytes, Target& out);

/// All bytes have all of these shadow bits.
inline bool shadow_has(const std::uint8_t* shadow, std::size_t bytes, std::uint8_t bits) {
  if (bytes == 4) {
    std::uint32_t s = 0;
    std::memcpy(&s, shadow, 4);
    const std::uint32_t want = bits * 0x01010101u;
    return (s & want) == want;
  }
  if (bytes == 16) {
    std::uint64_t s[2];
    std::memcpy(s, shadow, 16);
    const std::uint64_t want = bits * 0x0101010101010101u;
    return (s[0] & s[1] & want) == want;
  }
  for (std::size_t i = 0; i < bytes; ++i)
    if ((shadow[i] & bits) != bits) return false;
  return true;
}

/// The lane's address: base register plus displacement.
inline std::uint64_t lane_address(const Warp& w, const Operand& op, int lane) {
  const std::uint64_t base =
      op.bytes == 4 ? w.reg<std::uint32_t>(op.offset)[lane] : w.reg<std::uint64_t>(op.offset)[lane];
  const std::uint64_t sum = base + static_cast<std::uint64_t>(op.value);
  return op.bytes == 4 ? sum & 0xFFFFFFFF : sum;
}

inline constexpr const char* kExitedCause =
    "a cluster barrier at the end of the kernel is missing: all CTAs must stay until peers are done";

/// Reports why locate() said no, or why the bytes may not be touched.
Step report_outside(Warp& w, const Instruction& in, Space space, int lane, std::uint64_t address, std::size_t bytes,
                    bool is_write);
Step report_misaligned(Warp& w, const Instruction& in, int lane, std::uint64_t address, std::size_t bytes);
void report_uninitialised(Warp& w, const Instruction& in, const Target& target, int lane, std::uint64_t address,
                          std::size_t bytes);

/// Cta::written_at: when, and by which warp of the cluster.
inline std::uint64_t written_stamp(const Warp& w) {
  return w.launch->fence_clock << 16 | std::uint64_t{w.cta->rank} << 8 | static_cast<std::uint64_t>(w.index + 1);
}

/// Bytes of live mbarriers are overwritten: whoever uses these again is told by whom.
void note_overwritten(const Warp& w, Cta& cta, std::uint32_t offset, std::size_t bytes);

/// After a generic-proxy write. is_known: the shadow says already that the bytes are readable.
inline void note_written(const Warp& w, const Target& target, std::size_t bytes, bool is_known = false) {
  if (target.shadow == nullptr) return;
  if (!is_known) std::memset(target.shadow, kReadable, bytes);
  if (target.cta == nullptr) {
    if (w.launch->written) [[unlikely]]
      if (const std::uint64_t address = w.launch->memory.address_of(target.data); address != 0)
        w.launch->written->note(address, bytes, WrittenLines::writer(w.pc));
    return;
  }
  if (target.cta->may_hold_mbarrier(target.offset, bytes)) note_overwritten(w, *target.cta, target.offset, bytes);
  const std::uint64_t stamp = written_stamp(w);
  for (std::size_t granule = target.offset / 16; granule <= (target.offset + bytes - 1) / 16; ++granule) {
    target.cta->written_at[granule] = stamp;
    target.cta->tile_swizzle[granule] = 0;
  }
}

}  // namespace tessera::emulator
