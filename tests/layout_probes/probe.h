// A probe: a kernel in PTX by hand, so that no compiler arranges anything, whose data name their own places. It runs in
// the emulator, or with --gpu on the GPU here, which takes what its architecture has.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/device.h"

namespace tessera::probes {

bool is_on_gpu();
/// The device here executes code for this architecture: the emulator any, a GPU its own and older portable ones.
bool runs(const std::string& arch);

struct Probe {
  std::string body;  ///< d0, d1: addresses of input and output; r0: the thread; r159: `smem`, aligned to 1,024
  std::uint32_t threads = 32;
  std::string arch = "sm_90a";
  int smem_bytes = 2048;
  /// A tensor map of the input, whose address it gets; d2 is the map's.
  std::function<TensorMapObject(Device&, DevicePointer)> make_map{};
};

/// The output, poisoned before. Registers: p, r<160> .b32, f<160> .f32, d<32> .b64, e<32> .f64, h<4> .b16. A finding of
/// the emulator fails the test.
std::vector<std::uint32_t> run(const Probe& probe, const std::vector<std::uint32_t>& input, std::size_t outputs);
std::vector<std::uint32_t> run(const std::string& body, std::uint32_t threads, const std::vector<std::uint32_t>& input,
                               std::size_t outputs, const std::string& arch = "sm_90a");

/// One thread copies a tile of `bytes` to the start of shared memory by `copy`, which credits r10's mbarrier with
/// `credit` bytes (default: all of them); the words are the output.
std::vector<std::uint32_t> load_tile(Probe probe, const std::string& copy, int bytes,
                                     const std::vector<std::uint32_t>& tensor, int credit = -1);

/// "r4, r5, r6": `count` registers of a bank from the first on.
std::string registers(char bank, int first, int count);

}  // namespace tessera::probes
