// The GPU of the context that is current on the calling thread, as a guest sees it: no context is created, retained or
// switched.
#pragma once

#include "tessera/device.h"

namespace tessera {

/// Throws Error{device} when there is no driver or no current context. The device lives as long as the process.
Device& guest_device();

}  // namespace tessera
