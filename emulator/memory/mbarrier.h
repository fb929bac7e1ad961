// The mbarrier state machine, shared by the mbarrier instructions and by what completes on one.
#pragma once

#include <string>

#include "emulator/machine.h"

namespace tessera::emulator {

/// The 64 bits as the hardware keeps them (measured on H200): what arrive returns the upper half of.
std::uint64_t mbarrier_word(const Mbarrier& barrier);

/// Instruction::flags of a wait: no path from it looks at its answer (findings/ignored_waits.cpp).
inline constexpr std::uint16_t kWaitIsIgnored = 8;
/// The thread may go on after the answer "not yet" without asking again (findings/given_up_waits.cpp).
inline constexpr std::uint16_t kWaitMayBeGivenUp = 16;

/// complete_tx by an asynchronous operation. A problem becomes a failure on top of `place`.
void complete_bytes(Launch& launch, Cta& cta, std::uint32_t offset, std::int64_t bytes, const InstructionPlace& place);

/// One arrival by an asynchronous operation (tcgen05.commit). A problem becomes a failure on top of `place`.
void complete_arrival(Launch& launch, Cta& cta, std::uint32_t offset, const InstructionPlace& place);

}  // namespace tessera::emulator
