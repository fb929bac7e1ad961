#include "tessera/internal/report_json.h"

#include <nlohmann/json.hpp>

namespace tessera {

OrderedJson warmed_kernel_json(const WarmedKernel& kernel) {
  OrderedJson entry = {{"key", kernel.keys.entry.empty() ? kernel.keys.source : kernel.keys.entry},
                       {"op", kernel.op},
                       {"arch", kernel.arch},
                       {"entry", kernel.kernel},
                       {"compile_ms", kernel.compile_ms},
                       {"registers", kernel.registers},
                       {"spill_bytes", kernel.spill_bytes},
                       {"smem_bytes", kernel.smem_bytes},
                       {"notes", kernel.notes},
                       {"hit", kernel.was_hit},
                       {"stored", kernel.is_stored}};
  if (!kernel.error.empty()) entry["error"] = kernel.error;
  return entry;
}

}  // namespace tessera
