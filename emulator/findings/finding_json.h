// A finding as JSON: what the command prints and what a program that runs on the emulator reports.
#pragma once

#include "base/launch_json.h"
#include "tessera/emulator/findings.h"

namespace tessera::emulator {

/// Every field that is known, by its name.
OrderedJson finding_json(const EmulatorFinding& finding);

}  // namespace tessera::emulator
