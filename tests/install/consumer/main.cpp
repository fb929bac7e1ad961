#include <tessera/emulator/device.h>
#include <tessera/jit.h>

#include <cstdio>

#include "base/error.h"
#include "generator/plan.h"

int main() {
  const tessera::Plan plan = tessera::make_plan(tessera::Copy2d{});
  const tessera::emulator::EmulatedDevice device;
  std::printf("%s, %s, %s for %s on %d.%d\n", own_error(), own_plan(), plan.op.c_str(), plan.arch.to_string().c_str(),
              device.info().compute_major, device.info().compute_minor);
}
