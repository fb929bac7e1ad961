// What a multiprocessor has where these kernels run: Hopper, and Blackwell in data centres; of sm_120 and sm_121 their
// shared memory. The one place with these numbers.
#pragma once

namespace tessera {

inline constexpr int kSmemBytesOfSm = 233472;    // 228 KiB
inline constexpr int kSmemBytesOfSystem = 1024;  // that every CTA takes beside its own
// Most shared memory of a CTA, opted in: 232,448 bytes; and of each of two that shall be resident.
inline constexpr int kMaxSmemBytes = kSmemBytesOfSm - kSmemBytesOfSystem;
inline constexpr int kMaxSmemBytesOfTwo = kSmemBytesOfSm / 2 - kSmemBytesOfSystem;
inline constexpr int kMaxSmemBytesOfSm120 = 101376;  // the most of a CTA on sm_120 and sm_121: 99 KiB

inline constexpr int kTmemColumns = 512;  // of 32 bits, in 128 lanes
inline constexpr int kWarpgroupThreads = 128;

}  // namespace tessera
