// A CUDA program of the user on the emulator: the process is started with the library of guest/ in place of the CUDA
// runtime and driver, once for each schedule, and what it reported is read when it has ended.
#pragma once

#include <string>
#include <vector>

#include "cli/emulation.h"
#include "cli/host.h"

namespace tessera::cli {

/// What the flags say besides those of every emulation.
struct ProgramFlags {
  std::string arch, gpu;
  std::int64_t seed = 1;
  bool shows_launches = false;
  bool tears_vectors = false;
};

struct ProgramReport {
  int exit_code = 0;  ///< the gravest of the runs
  std::int64_t hazards = 0, failures = 0;
  bool is_refused = false;  ///< code of the program that the emulator does not run
  std::string gpu;          ///< empty: the program asked for none
  OrderedJson findings = OrderedJson::array();
  std::vector<std::string> problems;
  OrderedJson schedules = OrderedJson::array();
  OrderedJson predicted = OrderedJson::array();  ///< with --time, of each launch
};

/// Runs the program. Throws Error{unsupported} where guest/ was not built, Error{usage} for no such program.
ProgramReport run_program(const Call& call, const std::vector<std::string>& program, const ProgramFlags& flags,
                          const EmulatorFlags& emulation);

/// Where the libraries lie that a program is started with; empty: nowhere.
std::string guest_folder();

}  // namespace tessera::cli
