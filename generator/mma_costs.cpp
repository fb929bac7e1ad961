#include "generator/mma_costs.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/targets.h"

namespace tessera {

std::vector<MmaDevice> mma_devices_of(Arch target) {
  if (has_family(target, MmaFamily::wgmma)) return {kHopperByMma};
  if (target.number == 121) return {kDgxSpark};
  if (target.suffix == 'f') return {kRtx5090, kRtxPro6000, kDgxSpark};
  return {kRtx5090, kRtxPro6000};
}

const MmaDevice& mma_device_of(Arch target) {
  return has_family(target, MmaFamily::wgmma) ? kHopperByMma : target.number == 121 ? kDgxSpark : kRtx5090;
}

CostSheet cost_sheet(const MmaDevice& device, double us, const UnitWork& work) {
  const double cycles_of_us = device.device.clock_ghz * 1000;
  const auto busy = [&](double cycles) { return cycles / device.device.sms / cycles_of_us; };
  CostSheet sheet{.device = device.name,
                  .us = us,
                  .units = {{"tensor cores", busy(work.tensor)},
                            {"exponentials", busy(work.exponentials)},
                            {"shared memory", busy(work.smem)},
                            {"instructions", busy(work.issue)},
                            {"the L2", busy(work.l2)},
                            {"memory", work.memory_bytes / device.memory_bytes / cycles_of_us}},
                  .limit = {}};
  sheet.limit = std::max_element(sheet.units.begin(), sheet.units.end(), [](const auto& a, const auto& b) {
                  return a.us < b.us;
                })->name;
  return sheet;
}

std::string modelled_text(const CostSheet& sheet, double tensor_share, std::string_view beside) {
  return fmt::format("{:.1f} us on {} ({}{}bound by {}, {:.0f} % of the tensor cores' rate)", sheet.us, sheet.device,
                     beside, beside.empty() ? "" : ", ", sheet.limit, 100 * tensor_share);
}

}  // namespace tessera
