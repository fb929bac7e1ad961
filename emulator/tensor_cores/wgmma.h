// One wgmma of a warpgroup while its four warps issue it and until it completes.
#pragma once

#include <array>
#include <cstdint>

#include "emulator/findings/race.h"
#include "emulator/machine.h"
#include "emulator/memory/async.h"

namespace tessera::emulator {

/// Codes of integer operands where floating ones have a math::Format: they start after it.
enum class WgmmaInteger : std::uint8_t { s8 = 12, u8 = 13, b1 = 14 };

struct WgmmaOperation : AsyncOperation {
  const Instruction* in = nullptr;
  std::array<Warp*, 4> warps{};
  std::array<std::shared_ptr<AsyncGroup>, 4> groups;
  int joined = 0;
  std::uint64_t a_descriptor = 0;
  std::uint64_t b_descriptor = 0;
  bool accumulate = false;
  /// What each warp had seen when it issued its part. A warp reads its own 16 rows of A and all of B.
  std::array<std::shared_ptr<RaceOperation>, 4> race;
  std::shared_ptr<RaceOperation> race_of_all;  ///< what all four had seen
  std::shared_ptr<WgmmaResult> result = std::make_shared<WgmmaResult>();
  AsyncWork work() const override {
    return {AsyncWork::Kind::wgmma, 0, 0, warps[0] != nullptr ? warps[0]->cta : nullptr, in};
  }
  void complete(Launch& launch) override;
};

/// Somebody uses the result: its hazards are reported.
void use_result(Launch& launch, WgmmaResult& first);
/// After a change of Warp::async.unread: which registers to look at.
void watch_unread(Warp& warp);

}  // namespace tessera::emulator
