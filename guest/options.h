// What `tessera emulate -- PROGRAM` tells the program's copy of this library: the environment, read here alone.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/emulator/options.h"

namespace tessera::guest {

struct Options {
  std::string gpu;   ///< "H200", a name of gpu_limits.h; empty: what the architecture suggests
  std::string arch;  ///< "sm_100a"; empty: the GPU's
  emulator::Schedule schedule = emulator::Schedule::fair;
  std::uint64_t seed = 1;
  int num_sms = 0;  ///< 0: as many as the GPU has
  int threads = 0;  ///< of the host; 0: as many as it has cores
  std::uint64_t max_warp_instructions = std::uint64_t{1} << 40;
  double max_seconds = 600;
  bool detects_races = false;
  bool is_strict = false;
  bool tears_vectors = false;  ///< the weak schedule, and vector accesses (DeviceOptions::tears_vectors)
  std::string time;            ///< a GPU, whose clock launches run on (docs/time.md)
  bool skips_values = false;
  bool shows_launches = false;  ///< a line on stderr for each
  bool hashes_copies = false;   ///< what is copied to the host, for runs that are compared
  std::string report;           ///< a file to append lines of JSON to; empty: a summary on stderr at exit

  /// Ends the process with 2 for a word that is none.
  static Options from_environment();
};

}  // namespace tessera::guest
