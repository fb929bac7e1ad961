// What asynchronous copies share: bytes moved by the async proxy, with the checks that go with it.
//
// An operation is issued by a warp and completes later; it keeps its place, because the warp may be elsewhere by
// then.
#pragma once

#include "emulator/findings/race.h"
#include "emulator/math/swizzle.h"
#include "emulator/memory/access.h"
#include "emulator/memory/mbarrier.h"

namespace tessera::emulator {

class CopyOperation : public AsyncOperation {
 public:
  CopyOperation(const Warp& warp, const Instruction& in, int lane)
      : place_(warp.place(in, lane)), issuer_fence_(warp.fence_time) {
    if (warp.race) race_ = warp.launch->race->issue(warp, in, lane < 0 ? kAllLanes : Mask{1} << lane);
  }
  /// Its share of the race detector is the caller's.
  CopyOperation(const Warp& warp, const Instruction& in) : place_(warp.place(in, 0)) {}
  /// A store belongs to its thread's open group.
  void join_group(const Warp& warp, GroupList& groups) {
    if (race_) warp.launch->race->join_group(*race_, warp, groups);
  }

 protected:
  /// Adds a finding at the instruction that issued the operation.
  void report(Launch& launch, const char* name, bool is_failure, std::uint64_t address, std::string message,
              std::string cause) const;
  /// Global bytes to the copy engine's buffer, or back. False after a report.
  bool read_global(Launch& launch, std::uint64_t address, std::byte* to, std::size_t bytes) const;
  bool write_global(Launch& launch, std::uint64_t address, const std::byte* from, std::size_t bytes) const;
  /// Shared bytes of a CTA at an offset from its first byte.
  bool read_shared(Launch& launch, Cta& cta, std::uint32_t offset, std::byte* to, std::size_t bytes) const;
  bool write_shared(Launch& launch, Cta& cta, std::uint32_t offset, const std::byte* from, std::size_t bytes) const;

  /// A row of a tensor copy, whole sixteens, from global to shared memory (an absolute address, before the XOR), if
  /// there is nothing to say or to follow about any of it. False: nothing was copied. stride: to the next row, in
  /// bytes.
  bool copy_plain_row(Launch& launch, std::uint64_t global, Cta& cta, std::uint32_t shared, math::Swizzle swizzle,
                      std::size_t bytes, std::size_t stride) const;

  /// The CTA is a peer that has exited: false.
  bool report_exited(Launch& launch, const Cta& cta, std::uint32_t offset, const char* what) const;

  /// What follows completes on this barrier: called before its accesses.
  void aim(Launch& launch, Cta& cta, std::uint32_t barrier);

  InstructionPlace place_;
  std::shared_ptr<RaceOperation> race_;
  bool is_atomic_ = false;   ///< a reduction
  bool is_generic_ = false;  ///< cp.async: no proxy of its own
  std::uint8_t tile_ = 0;    ///< Cta::tile_swizzle of what is written to shared memory
  std::uint64_t issuer_fence_ = 0;
};

/// Whether a generic write to this granule was followed by a fence.proxy.async, of the writer or (later) of the reader.
bool is_fenced(const Cta& cta, std::uint32_t offset, std::uint64_t reader_fence);

/// Whether a copy may complete on another CTA's barrier: its initialisation was followed by a fence.
void check_init_fence(Warp& w, const Instruction& in, int lane, Cta& cta, std::uint32_t offset);

/// An address operand that must name shared memory. False after a report; `out` in Step form is fault then.
bool shared_target(Warp& w, const Instruction& in, Space space, int lane, std::uint64_t address, std::size_t bytes,
                   Target& out);

}  // namespace tessera::emulator
