// NVRTC behind the Compiler seam: the library and its builtins are found and opened at run time, so that every program
// starts without them.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "tessera/compiler.h"

namespace tessera {

/// 12.0 to 12.6 refuse cp.async.bulk.tensor to shared::cta ("State space incorrect"): every kernel here has it.
inline constexpr int kOldestNvrtcMajor = 12, kOldestNvrtcMinor = 8;

/// Enough for a thread to reach NVRTC: who waits for it lets another one begin.
inline constexpr std::chrono::milliseconds kCompileTurn{3};

struct NvrtcOptions {
  std::filesystem::path library;  ///< the libnvrtc.so to open; empty: the usual places (docs/cli.md)
  std::filesystem::path
      repro_folder;         ///< where a failing compile leaves its sources and the command; empty: the temporary folder
  bool makes_cubin = true;  ///< false: PTX alone, of the whole kernel, without the assembler's half of the time: for
                            ///< the emulator
};

/// Throws Error{compile} that lists the places searched when there is no NVRTC.
std::unique_ptr<Compiler> make_nvrtc_compiler(const NvrtcOptions& options = {});
/// The library that make_nvrtc_compiler would open; nothing when there is none.
std::optional<std::filesystem::path> find_nvrtc(const NvrtcOptions& options = {});

}  // namespace tessera
