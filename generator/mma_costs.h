// Cost sheets of kernels by mma.sync: the devices that a target's code runs on, and how long each unit is busy there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "generator/model_device.h"
#include "tessera/plan.h"

namespace tessera {

/// Multiprocessor cycles that a launch takes of each unit, all multiprocessors together; bytes of memory.
struct UnitWork {
  double tensor = 0, exponentials = 0, smem = 0, issue = 0, l2 = 0;
  double memory_bytes = 0;
};

/// Those with rates: RTX 5090 and RTX PRO 6000, DGX Spark, all three for a family's code, an H100 for mma.sync by pin.
std::vector<MmaDevice> mma_devices_of(Arch target);

/// The device that choices for a target go by: the first of these.
const MmaDevice& mma_device_of(Arch target);

/// us: of the launch. Its limit is the unit that takes longest; the rest of the time nothing covers.
CostSheet cost_sheet(const MmaDevice& device, double us, const UnitWork& work);

/// "1207.2 us on RTX 5090 (bound by tensor cores, 97 % of the tensor cores' rate)". tensor_share: of the rate that the
/// operands' instruction has there; beside: "7 rounds", or nothing.
std::string modelled_text(const CostSheet& sheet, double tensor_share, std::string_view beside = {});

}  // namespace tessera
