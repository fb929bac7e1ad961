// How many CTAs of a kernel a multiprocessor holds.
#include <algorithm>
#include <cmath>

#include "emulator/time/registers.h"
#include "emulator/time/whole.h"

namespace tessera::emulator {

double cta_shared_bytes(const Entry& entry, const LaunchShape& shape) {
  return shape.dynamic_smem_bytes == 0 ? entry.static_smem_bytes
                                       : entry.dynamic_smem_offset + static_cast<double>(shape.dynamic_smem_bytes);
}

int ctas_per_sm(const GpuTime& gpu, const Entry& entry, const LaunchShape& shape, std::uint32_t known) {
  const auto threads = static_cast<double>(std::uint64_t{shape.block[0]} * shape.block[1] * shape.block[2]);
  const double warps = std::max(1.0, (threads + kLanes - 1) / kLanes);
  double count = gpu.ctas_per_sm;
  count = std::min(count,
                   static_cast<double>(gpu.warps_per_sm) / std::max(1.0, static_cast<double>(static_cast<int>(warps))));
  const double shared = cta_shared_bytes(entry, shape) + gpu.smem_per_cta_reserved;
  count = std::min(count, gpu.smem_per_sm / shared);
  // As many as are alive, in eights, and at most what the kernel's bounds leave a thread.
  double most = entry.max_registers != 0 ? entry.max_registers : 255;
  if (entry.max_threads != 0)
    most = std::min(most, gpu.registers_per_sm / (entry.max_threads * std::max(1.0, 1.0 * entry.min_ctas_per_sm)));
  const double alive = known != 0 ? known : registers_alive(entry);
  const double registers =
      std::max(16.0, std::min(std::ceil(alive / 8) * 8, static_cast<double>(static_cast<int>(most) / 8 * 8)));
  count = std::min(count, gpu.registers_per_sm / (registers * static_cast<double>(static_cast<int>(warps)) * kLanes));
  return std::max(1, static_cast<int>(count));
}

}  // namespace tessera::emulator
