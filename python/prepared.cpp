#include "prepared.h"

#include <dlfcn.h>

namespace nb = nanobind;

namespace {

constexpr std::int32_t kCuda = 2;

using ContextDevice = int (*)(int* device);

/// The driver's cuCtxGetDevice, if a driver is loaded: by whom does not matter.
ContextDevice context_device() {
  static ContextDevice found = nullptr;
  if (found == nullptr)
    if (void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD); driver != nullptr)
      found = reinterpret_cast<ContextDevice>(dlsym(driver, "cuCtxGetDevice"));  // NOLINT
  return found;
}

bool is_current(int ordinal) {
  const ContextDevice ask = context_device();
  int device = -1;
  return ask != nullptr && ask(&device) == 0 && device == ordinal;
}

/// One dimension may be missing in front where its extent was 1.
bool is_as_bound(const nb::dlpack::dltensor& tensor, const Prepared::Slot& slot) {
  const auto bound = static_cast<int>(slot.shape.size());
  const int missing = bound - tensor.ndim;
  if (tensor.dtype.code != slot.code || tensor.dtype.bits != slot.bits || tensor.dtype.lanes != 1) return false;
  if (missing != 0 && !(missing == 1 && slot.shape[0] == 1)) return false;
  for (int i = 0; i < tensor.ndim; ++i) {
    const auto at = static_cast<std::size_t>(i + missing);
    if (tensor.shape[i] != slot.shape[at]) return false;
    if (tensor.shape[i] > 1 && tensor.strides[i] != slot.strides[at]) return false;
  }
  return true;
}

}  // namespace

Prepared::Outcome Prepared::launch(const nb::tuple& tensors, std::optional<std::uintptr_t> stream,
                                   tessera_status& status) {
  const std::size_t count = slots_.size() + (with_workspace_ ? 1U : 0U);
  if (tensors.size() != count) return Outcome::not_served;
  const exchange::Table* first = nullptr;
  for (std::size_t i = 0; i < count; ++i) {
    const nb::handle object = tensors[i];
    const exchange::Table* const table = exchange::table_of(Py_TYPE(object.ptr()));
    nb::dlpack::dltensor tensor;
    if (table == nullptr || !exchange::read(*table, object, tensor)) return Outcome::not_served;
    if (tensor.device.device_type != kCuda || tensor.device.device_id != ordinal_) return Outcome::not_served;
    const std::uint64_t address = reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.byte_offset;  // NOLINT
    if (first == nullptr) first = table;
    if (i == slots_.size()) {
      values_.workspace = address;
    } else {
      if (!is_as_bound(tensor, slots_[i])) return Outcome::not_served;
      values_.buffers[slots_[i].buffer] = address;
    }
  }
  void* on = nullptr;
  if (stream) {
    on = reinterpret_cast<void*>(*stream);  // NOLINT
  } else if (first == nullptr || first->current_stream(kCuda, ordinal_, &on) != 0) {
    PyErr_Clear();
    return Outcome::not_served;
  }
  if (!is_current(ordinal_)) return Outcome::not_served;
  const tessera_arguments arguments = values_.get();
  status = tessera_kernel_launch(values_.kernel.get(), nullptr, on, &arguments);
  return Outcome::launched;
}
