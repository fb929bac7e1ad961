// Plan -> JSON: plan.json, the contract with every host.
#pragma once

#include "base/launch_json.h"
#include "tessera/plan.h"

namespace tessera {

/// {"version", "op", "arch", "kernel", "config", "mma_kind", "operands", "smem", "smem_bytes", "tmem", "tmem_columns",
/// "entry_registers", "max_registers", "roles", "launch"}; keys in a fixed order, those of Tensor Memory only where the
/// kernel has some, "slots" and "phases" of a region only where it has several or any. `reason` and `rejected` come in
/// before "launch" when asked for; else they are left out, so that the stored contract depends on the kernel alone and
/// not on hints and lists of candidates.
OrderedJson to_json(const Plan& plan, bool with_rejected);

}  // namespace tessera
