// Litmus tests: a few threads, a few accesses each, and what the loads and the final memory may be.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/device.h"

namespace tessera::litmus {

enum class Kind : std::uint8_t { load, store, exchange, fence };
enum class Meaning : std::uint8_t { weak, relaxed, acquire, release, acq_rel, sc };  ///< of PTX's .sem
enum class Reach : std::uint8_t { cta, cluster, gpu };                               ///< scopes, narrow to wide

struct Operation {
  Kind kind = Kind::load;
  int place = 0;  ///< 0 x, 1 y, 2 z
  int value = 0;  ///< what is stored
  Meaning meaning = Meaning::weak;
  Reach scope = Reach::gpu;

  bool reads() const { return kind == Kind::load || kind == Kind::exchange; }
  bool writes() const { return kind == Kind::store || kind == Kind::exchange; }
};

/// Where the threads are: each in a CTA of its own, each in a CTA of one cluster, each a warp of one CTA.
enum class Placement : std::uint8_t { apart, one_cluster, one_cta };
enum class Space : std::uint8_t { global, shared };  ///< shared: of the first CTA

struct Program {
  std::string name;
  std::vector<std::vector<Operation>> threads;
  Placement placement = Placement::apart;
  Space space = Space::global;

  int places() const;
};

/// The values of the loads, thread by thread, then of the places at the end.
using Outcome = std::vector<int>;
using Outcomes = std::set<Outcome>;

/// Every outcome that the model of the PTX manual allows.
Outcomes allowed_outcomes(const Program& program);

/// Outcomes of the emulator's weak schedule with these seeds; each run is 32 instances, a lane each.
Outcomes observed_outcomes(const Program& program, int first_seed, int last_seed);

/// Outcomes on a device, of so many launches, each 32 instances whose threads start together.
Outcomes measured_outcomes(Device& device, const Program& program, int launches);

/// Every test: shapes x orders x scopes x places. With it, whether the weak schedule shows all that is allowed of it.
std::vector<std::pair<Program, bool>> programs();

std::string text_of(const Outcome& outcome);

}  // namespace tessera::litmus
