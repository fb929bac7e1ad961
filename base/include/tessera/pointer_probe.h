// What a device can tell of an address, for launches that are to be refused before they fault. A Device may offer it
// beside its other functions.
#pragma once

#include <string>

#include "tessera/device.h"

namespace tessera {

class PointerProbe {
 public:
  virtual ~PointerProbe() = default;
  /// Why kernels of this device cannot use the byte there: "the driver knows no memory there: ...". Empty where they
  /// can, and where nobody can tell.
  virtual std::string why_unusable(DevicePointer pointer) = 0;
};

}  // namespace tessera
