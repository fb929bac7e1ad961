// A planned kernel with its inputs, run in the emulator with the race detector: the kernel's own PTX, or any other in
// its place.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "emulator/machine.h"
#include "tessera/compiler.h"
#include "tessera/plan.h"
#include "tests/mutations/mutate.h"

namespace tessera::mutations {

/// What one run said.
struct Verdict {
  std::vector<std::string> names;     ///< of findings, the first one first
  std::vector<std::string> messages;  ///< likewise
  std::vector<std::byte> output;
  bool is_refused = false;  ///< when it was loaded or launched
};

class Subject {
 public:
  /// words: "fmha head_dim=64 mask=causal"; sizes by name, the others take their defaults.
  Subject(const std::string& words, std::map<std::string, std::int64_t> sizes, Compiler& compiler);

  const std::string& ptx() const { return image_.ptx; }
  const Plan& plan() const { return plan_; }
  Family family() const;
  /// is_strict: registers that nobody wrote are looked for.
  Verdict run(const std::string& ptx, emulator::Schedule schedule = emulator::Schedule::fair, std::uint64_t seed = 1,
              bool is_strict = false) const;

 private:
  Plan plan_;
  Image image_;
  std::map<std::string, std::int64_t> given_;
};

}  // namespace tessera::mutations
