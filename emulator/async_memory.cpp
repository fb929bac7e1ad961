#include "emulator/async_memory.h"

#include <fmt/format.h>

namespace tessera::emulator {

void CopyOperation::report(Launch& launch, const char* name, bool is_failure, std::uint64_t address,
                           std::string message, std::string cause) const {
  EmulatorFinding finding = place_;
  finding.name = name;
  finding.is_failure = is_failure;
  finding.address = address;
  finding.has_address = true;
  finding.message = std::move(message);
  finding.cause = std::move(cause);
  launch.findings.add(std::move(finding));
}

bool CopyOperation::read_global(Launch& launch, std::uint64_t address, std::byte* to, std::size_t bytes) const {
  if (!launch.memory.contains(address, bytes) || !shadow_has(launch.memory.shadow(address), bytes, kAllocated)) {
    report(launch, "global-out-of-bounds", true, address,
           fmt::format("asynchronous read of {} bytes: {}", bytes, launch.memory.describe(address)),
           "the tensor map's or the copy's size or stride is larger than the buffer");
    return false;
  }
  if (!shadow_has(launch.memory.shadow(address), bytes, kReadable))
    report(launch, "global-uninitialised", false, address,
           fmt::format("asynchronous read of {} bytes that nobody has written", bytes), "");
  std::memcpy(to, launch.memory.data(address), bytes);
  return true;
}

bool CopyOperation::write_global(Launch& launch, std::uint64_t address, const std::byte* from,
                                 std::size_t bytes) const {
  if (!launch.memory.contains(address, bytes) || !shadow_has(launch.memory.shadow(address), bytes, kAllocated)) {
    report(launch, "global-out-of-bounds", true, address,
           fmt::format("asynchronous write of {} bytes: {}", bytes, launch.memory.describe(address)),
           "the tensor map's or the copy's size or stride is larger than the buffer");
    return false;
  }
  std::memcpy(launch.memory.data(address), from, bytes);
  launch.memory.mark_initialised(address, bytes);
  return true;
}

bool is_fenced(const Cta& cta, std::uint32_t offset, std::uint64_t reader_fence) {
  const std::uint64_t stamp = cta.written_at[offset / 16];
  if (stamp == 0) return true;
  const std::uint64_t clock = stamp >> 8;
  const auto writer = static_cast<std::size_t>((stamp & 0xFF) - 1);
  const std::uint64_t writer_fence = writer < cta.warps.size() ? cta.warps[writer].fence_time : 0;
  return writer_fence > clock || reader_fence > clock;
}

bool CopyOperation::read_shared(Launch& launch, Cta& cta, std::uint32_t offset, std::byte* to,
                                std::size_t bytes) const {
  if (offset >= cta.shared_bytes || bytes > cta.shared_bytes - offset) {
    report(launch, "smem-out-of-bounds", true, cta.shared_address(offset),
           fmt::format("asynchronous read of {} bytes at offset {}; the CTA has {}", bytes, offset, cta.shared_bytes),
           "a tile larger than the shared memory laid out for it");
    return false;
  }
  if (!shadow_has(cta.shared_shadow.data() + offset, bytes, kReadable))
    report(launch, "smem-uninitialised", false, cta.shared_address(offset),
           fmt::format("asynchronous read of {} bytes that nobody has written", bytes),
           "the tile was written only in part, or with another layout");
  for (std::uint32_t at = offset / 16 * 16; at < offset + bytes; at += 16) {
    if (is_fenced(cta, at, issuer_fence_)) continue;
    report(launch, "missing-proxy-fence", false, cta.shared_address(at),
           "an asynchronous read of shared memory that ordinary stores wrote, without fence.proxy.async between them",
           "the writing threads must execute fence.proxy.async before the barrier that lets the copy start");
    break;
  }
  std::memcpy(to, cta.shared.data() + offset, bytes);
  return true;
}

bool CopyOperation::write_shared(Launch& launch, Cta& cta, std::uint32_t offset, const std::byte* from,
                                 std::size_t bytes) const {
  if (offset >= cta.shared_bytes || bytes > cta.shared_bytes - offset) {
    report(launch, "smem-out-of-bounds", true, cta.shared_address(offset),
           fmt::format("asynchronous write of {} bytes at offset {}; the CTA has {}", bytes, offset, cta.shared_bytes),
           "a box larger than the shared memory laid out for it");
    return false;
  }
  std::memcpy(cta.shared.data() + offset, from, bytes);
  std::memset(cta.shared_shadow.data() + offset, kReadable, bytes);
  for (std::size_t granule = offset / 16; granule <= (offset + bytes - 1) / 16; ++granule) cta.written_at[granule] = 0;
  return true;
}

bool shared_target(Warp& w, const Instruction& in, Space space, int lane, std::uint64_t address, std::size_t bytes,
                   Target& out) {
  if (locate_any(space, w, lane, address, bytes, out) && out.cta != nullptr) return true;
  report_outside(w, in, space, lane, address, bytes, true);
  return false;
}

}  // namespace tessera::emulator
