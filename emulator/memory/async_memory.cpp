#include "emulator/memory/async_memory.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::emulator {

void CopyOperation::aim(Launch& launch, Cta& cta, std::uint32_t barrier) {
  if (!race_) return;
  if (Mbarrier* found = cta.find_mbarrier(barrier)) launch.race->complete_on(*race_, cta, *found);
}

void CopyOperation::report(Launch& launch, const char* name, bool is_failure, std::uint64_t address,
                           std::string message, std::string cause) const {
  EmulatorFinding finding = place_.finding(name);
  finding.is_failure = is_failure;
  finding.address = address;
  finding.has_address = true;
  finding.message = std::move(message);
  finding.cause = std::move(cause);
  launch.findings.add(std::move(finding));
}

namespace {

constexpr std::size_t kPiece = 16;  // what tensor copies move at a time: sizes that the compiler knows

bool is_readable_piece(const std::uint8_t* shadow) {
  constexpr std::uint64_t kAll = kReadable * 0x0101010101010101u;
  std::uint64_t halves[2];
  std::memcpy(halves, shadow, sizeof(halves));
  return (halves[0] & halves[1] & kAll) == kAll;
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == kPiece)
    std::memcpy(to, from, kPiece);
  else
    std::memcpy(to, from, bytes);
}

}  // namespace

bool CopyOperation::read_global(Launch& launch, std::uint64_t address, std::byte* to, std::size_t bytes) const {
  const bool is_inside = launch.memory.contains(address, bytes);
  const bool is_plain = is_inside && bytes == kPiece && is_readable_piece(launch.memory.shadow(address));
  if (!is_inside || (!is_plain && !shadow_has(launch.memory.shadow(address), bytes, kAllocated))) {
    report(launch, "global-out-of-bounds", true, address,
           fmt::format("asynchronous read of {} bytes: {}", bytes, launch.memory.describe(address)),
           "the tensor map's or the copy's size or stride is larger than the buffer");
    return false;
  }
  if (!is_plain && !shadow_has(launch.memory.shadow(address), bytes, kReadable))
    report(launch, "global-uninitialised", false, address,
           fmt::format("asynchronous read of {} bytes that nobody has written", bytes), "");
  if (race_) {
    race_->is_generic = is_generic_;
    launch.race->async_access(*race_, place_, nullptr, address, bytes, false, is_atomic_);
  }
  copy_bytes(to, launch.memory.data(address), bytes);
  launch.statistics.async_bytes.global_read += bytes;
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
  if (race_) launch.race->async_access(*race_, place_, nullptr, address, bytes, true, is_atomic_);
  std::memcpy(launch.memory.data(address), from, bytes);
  if (launch.written) launch.written->note(address, bytes, WrittenLines::kCopy);
  launch.statistics.async_bytes.global_written += bytes;
  launch.memory.mark_initialised(address, bytes);
  return true;
}

bool is_fenced(const Cta& cta, std::uint32_t offset, std::uint64_t reader_fence) {
  const std::uint64_t stamp = cta.written_at[offset / 16];
  if (stamp == 0) return true;
  const std::uint64_t clock = stamp >> 16;
  const auto writer = static_cast<std::size_t>((stamp & 0xFF) - 1);
  const Cta& writers_cta = *cta.cluster->ctas[stamp >> 8 & 0xFF];
  const std::uint64_t writer_fence = writer < writers_cta.warps.size() ? writers_cta.warps[writer].fence_time : 0;
  return writer_fence > clock || reader_fence > clock;
}

bool CopyOperation::report_exited(Launch& launch, const Cta& cta, std::uint32_t offset, const char* what) const {
  report(launch, "cluster-peer-exited", true, cta.shared_address(offset),
         fmt::format("asynchronous {}: the CTA of rank {} has exited, and its shared memory may be another's", what,
                     cta.rank),
         kExitedCause);
  return false;
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
  if (race_) launch.race->async_access(*race_, place_, &cta, offset, bytes, false);
  if (cta.live_warps == 0 && place_.cta != cta.id) return report_exited(launch, cta, offset, "read");
  if (cta.live_warps == 0)
    report(launch, "copy-outlives-cta", false, cta.shared_address(offset),
           "the copy reads the shared memory of a CTA that has exited",
           "cp.async.bulk.wait_group.read is missing before the kernel ends");
  std::memcpy(to, cta.shared.data() + offset, bytes);
  launch.statistics.async_bytes.shared_read += bytes;
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
  if (race_) {
    race_->is_generic = is_generic_;
    launch.race->async_access(*race_, place_, &cta, offset, bytes, true);
  }
  if (cta.live_warps == 0 && place_.cta != cta.id) return report_exited(launch, cta, offset, "write");
  if (cta.live_warps == 0)
    report(launch, "copy-outlives-cta", false, cta.shared_address(offset),
           "the copy writes the shared memory of a CTA that has exited",
           "a load that nobody waits for is in flight when the kernel ends");
  for (std::uint32_t at = offset / 16 * 16; at < offset + bytes; at += 16) {
    if (is_generic_ || is_fenced(cta, at, issuer_fence_)) continue;
    report(
        launch, "missing-proxy-fence", false, cta.shared_address(at),
        "an asynchronous write over shared memory that ordinary stores wrote, without fence.proxy.async between them",
        "the writing threads must execute fence.proxy.async before the barrier that lets the copy start");
    break;
  }
  if (cta.may_hold_mbarrier(offset, bytes))
    cta.overwrite_mbarriers(offset, bytes, fmt::format("the copy of PTX line {}", place_.in->line));
  copy_bytes(cta.shared.data() + offset, from, bytes);
  launch.statistics.async_bytes.shared_written += bytes;
  if (bytes == kPiece)
    std::memset(cta.shared_shadow.data() + offset, kReadable, kPiece);
  else
    std::memset(cta.shared_shadow.data() + offset, kReadable, bytes);
  for (std::size_t granule = offset / 16; granule <= (offset + bytes - 1) / 16; ++granule) {
    cta.written_at[granule] = 0;
    cta.tile_swizzle[granule] = tile_;
  }
  return true;
}

namespace {
// The next rows' bytes and what is known of them, on their way meanwhile: strides are longer than a CPU guesses.
constexpr std::size_t kLineOfCache = 64;
constexpr std::size_t kRowsAhead = 4;
void prefetch(std::uintptr_t address) { __builtin_prefetch(reinterpret_cast<const void*>(address)); }
}  // namespace

bool CopyOperation::copy_plain_row(Launch& launch, std::uint64_t global, Cta& cta, std::uint32_t shared,
                                   math::Swizzle swizzle, std::size_t bytes, std::size_t stride) const {
  if (race_ || cta.live_warps == 0 || !launch.memory.contains(global, bytes)) return false;
  // The XOR moves sixteens inside of 128 bytes.
  const std::uint32_t first = (shared & ~127u) - kSharedBase;
  const std::uint32_t end = ((shared + static_cast<std::uint32_t>(bytes) + 127) & ~127u) - kSharedBase;
  if (first > end || end > cta.shared_bytes || cta.may_hold_mbarrier(first, end - first)) return false;
  for (std::uint32_t granule = first / 16; granule < end / 16; ++granule)
    if (cta.written_at[granule] != 0) return false;
  const std::uint8_t* shadow = launch.memory.shadow(global);
  for (std::size_t i = 0; i < bytes; i += kPiece)
    if (!is_readable_piece(shadow + i)) return false;
  const std::byte* from = launch.memory.data(global);
  for (std::size_t i = 0; i < bytes; i += kLineOfCache) {
    prefetch(reinterpret_cast<std::uintptr_t>(from) + kRowsAhead * stride + i);
    prefetch(reinterpret_cast<std::uintptr_t>(shadow) + kRowsAhead * stride + i);
  }
  for (std::size_t i = 0; i < bytes; i += kPiece) {
    const std::uint32_t to = math::apply_swizzle(swizzle, shared + static_cast<std::uint32_t>(i)) - kSharedBase;
    std::memcpy(cta.shared.data() + to, from + i, kPiece);
    std::memset(cta.shared_shadow.data() + to, kReadable, kPiece);
    cta.tile_swizzle[to / 16] = tile_;
  }
  launch.statistics.async_bytes.global_read += bytes;
  launch.statistics.async_bytes.shared_written += bytes;
  return true;
}

void check_init_fence(Warp& w, const Instruction& in, int lane, Cta& cta, std::uint32_t offset) {
  // A CTA's own barrier needs none: fence.mbarrier_init is of cluster scope, libcu++'s memcpy_async and its documented
  // examples have only a barrier between, and ptxas makes the same machine code of both for sm_90a.
  if (&cta == w.cta) return;
  const Mbarrier* barrier = cta.find_mbarrier(offset);
  if (barrier == nullptr) return;
  const std::uint64_t fenced =
      std::max(w.fence_time, cta.warps[static_cast<std::size_t>(barrier->initialiser)].init_fence_time);
  if (fenced > barrier->initialised_at) return;
  w.hazard(in, "missing-mbarrier-init-fence", lane, cta.shared_address(offset),
           "it completes on another CTA's mbarrier, whose initialisation no fence has made visible to the cluster",
           "fence.mbarrier_init is missing after mbarrier.init: barrier.cluster.arrive.relaxed releases nothing");
}

bool shared_target(Warp& w, const Instruction& in, Space space, int lane, std::uint64_t address, std::size_t bytes,
                   Target& out) {
  if (locate_any(space, w, lane, address, bytes, out) && out.cta != nullptr) return true;
  report_outside(w, in, space, lane, address, bytes, true);
  return false;
}

}  // namespace tessera::emulator
