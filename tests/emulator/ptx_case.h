// One-instruction tests: a file holds an instruction, its inputs and the bits it must give.
//
//   # what it shows
//   op   add.s32 d, a, b;          one line per instruction; several are run in order
//   reg  .pred p;                  further declarations
//   out  d b32                     results, in order: name and type
//   in   a s32                     inputs
//   target sm_90a                  when more than sm_90a's base is needed
//   smem 16384                     bytes of the shared array `scratch` (4096 when left out), aligned to 1024
//   cluster 2                      the rows are spread over this many CTAs of a cluster
//   case 1 2 -> 3                  one thread: inputs -> outputs; 0x.. bits, decimal integers, or 1.5f / 1.5d
//   fixed                          inputs are no free values (addresses, counts): no random ones beside the cases
//   hazard tmem-replicas-differ    a finding that the emulator must report; without it none
//   near 12                        f32 results: hardware and emulator may differ by so many 2^-23
//
// The same file makes a kernel for any device: thread i loads row i of the inputs and stores row i of the outputs. A
// CTA has as many threads as there are cases; CTA n works on the rows from n times that on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::emulator::testing {

struct PtxCase {
  struct Slot {
    std::string name;
    std::string type;
  };
  std::string path;
  std::string target = "sm_90a";
  std::uint32_t smem_bytes = 4096;
  std::uint32_t cluster = 1;
  bool is_fixed = false;
  std::string hazard;
  std::uint64_t near = 0;
  std::vector<std::string> instructions;
  std::vector<std::string> declarations;
  std::vector<Slot> outputs;
  std::vector<Slot> inputs;
  std::vector<std::vector<std::uint64_t>> rows;  ///< inputs, then outputs

  /// The kernel `test(in, out)`; every value takes 8 bytes in both buffers.
  std::string kernel() const;
};

/// Throws std::runtime_error with path and line on a malformed file.
PtxCase read_case(const std::string& path);

}  // namespace tessera::emulator::testing
