#include "tessera/guest_device.h"

#include <array>
#include <memory>
#include <mutex>

#include "tessera/cuda_device.h"
#include "tessera/error.h"

namespace tessera {

Device& guest_device() {
  constexpr int kMaxDevices = 64;
  static std::array<std::once_flag, kMaxDevices> once;
  static std::array<std::unique_ptr<Device>, kMaxDevices> devices;
  const int ordinal = cuda_current_device();
  if (ordinal < 0 || ordinal >= kMaxDevices) {
    const std::string reason = cuda_unavailable_reason();
    throw Error(ErrorKind::device, reason.empty() ? "no CUDA context is current on this thread: make one current "
                                                    "(cuCtxSetCurrent, cudaSetDevice) before launching"
                                                  : reason);
  }
  const auto index = static_cast<std::size_t>(ordinal);
  std::call_once(once[index], [&] { devices[index] = make_cuda_device(ordinal, false); });
  return *devices[index];
}

}  // namespace tessera
