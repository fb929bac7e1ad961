#include "runtime/nvrtc_instances.h"

#include <exception>

namespace tessera {

NvrtcInstances::Lease::Lease(NvrtcInstances& instances) : instances_(instances) {
  const auto take = [&] {
    const std::lock_guard lock(instances_.mutex_);
    const bool has_fewer = instances_.under_way_[1] < instances_.under_way_[0];
    index_ = has_fewer ? 1 : 0;
    ++instances_.under_way_[index_];
    return has_fewer;
  };
  if (!take()) return;
  std::call_once(instances_.second_once_, [&] {
    try {
      instances_.second_ = open_alternate(instances_.first_);
    } catch (const std::exception&) {  // it is no more than faster
    }
  });
  if (instances_.second_) return;
  const std::lock_guard lock(instances_.mutex_);
  --instances_.under_way_[1];
  ++instances_.under_way_[index_ = 0];
}

NvrtcInstances::Lease::~Lease() {
  const std::lock_guard lock(instances_.mutex_);
  --instances_.under_way_[index_];
}

}  // namespace tessera
