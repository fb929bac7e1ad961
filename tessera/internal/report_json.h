// What a warm-up has to say of a kernel, as JSON: the command's and the C interface's reports have the same.
#pragma once

#include "base/launch_json.h"
#include "tessera/jit.h"

namespace tessera {

/// {key, op, arch, entry, compile_ms, registers, spill_bytes, smem_bytes, notes, hit, stored}, and "error" where it
/// failed.
OrderedJson warmed_kernel_json(const WarmedKernel& kernel);

}  // namespace tessera
