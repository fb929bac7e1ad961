// What the time model found, for people and for programs (docs/time.md).
#pragma once

#include <string>
#include <vector>

#include "base/launch_json.h"
#include "tessera/emulator/time.h"

namespace tessera::emulator {

/// {"gpu", "time_us", "cycles", "kernels": [...]} of the kernels of one launch.
OrderedJson time_json(const std::vector<LaunchTime>& kernels);
std::string time_text(const std::vector<LaunchTime>& kernels);
/// Microseconds of them all, one after the other on one stream.
double total_microseconds(const std::vector<LaunchTime>& kernels);

}  // namespace tessera::emulator
