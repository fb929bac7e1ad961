#include "runtime/nvrtc_instances.h"

#include <fmt/format.h>

#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace tessera {

namespace {

/// NVRTC 13.0 does; where it does not after all, a piece fails (refuses_option). Others are asked by an empty program,
/// in 10 to 25 ms.
bool knows_option(const NvrtcLibrary& nvrtc) {
  if (nvrtc.identity.major_version == 13 && nvrtc.identity.minor_version == 0) return true;
  return compiles_empty_program(nvrtc, kOptionsOfKept);
}

}  // namespace

SharedNvrtc::Lease::Lease(SharedNvrtc& shared) : shared_(shared) {
  {
    const std::lock_guard lock(shared_.mutex_);
    const std::array<int, 2>& under_way = shared_.under_way_;
    index_ = shared_.copy_ && under_way[1] < under_way[0] ? 1 : 0;
    if (index_ == 1 || shared_.was_copied_ || under_way[0] < kManyPrograms) {
      ++shared_.under_way_[index_];
      return;
    }
    shared_.was_copied_ = true;
  }
  std::optional<NvrtcLibrary> copy;
  try {
    copy = open_copy(shared_.library_);
  } catch (const std::exception&) {  // it is no more than faster
  }
  const std::lock_guard lock(shared_.mutex_);
  shared_.copy_ = std::move(copy);
  if (shared_.copy_) index_ = 1;
  ++shared_.under_way_[index_];
}

SharedNvrtc::Lease::~Lease() {
  const std::lock_guard lock(shared_.mutex_);
  --shared_.under_way_[index_];
}

NvrtcInstances::NvrtcInstances(NvrtcLibrary first) : first_(std::move(first)) {
  try {
    second_id_ = alternate_id(first_.library(), problem_);
  } catch (const std::exception& error) {
    problem_ = error.what();
  }
}

SharedNvrtc* NvrtcInstances::for_kept_values() {
  std::call_once(for_kept_values_once_, [&] {
    if (second_id_.empty()) return;
    try {
      std::optional<NvrtcLibrary> second = open_alternate(first_.library(), problem_);
      if (second && knows_option(*second)) {
        for_kept_values_.emplace(std::move(*second));
      } else if (second) {
        refuses_option_ = true;
      }
    } catch (const std::exception& error) {  // pieces are compiled by the first one, and say so
      problem_ = error.what();
    }
  });
  return for_kept_values_ && !refuses_option_ ? &*for_kept_values_ : nullptr;
}

bool NvrtcInstances::refuses_option() {
  if (!for_kept_values_ || refuses_option_) return refuses_option_;
  if (compiles_empty_program(for_kept_values_->library(), {})) {
    if (!compiles_empty_program(for_kept_values_->library(), kOptionsOfKept)) refuses_option_ = true;
  }
  return refuses_option_;
}

std::string NvrtcInstances::why_none() const {
  return refuses_option_ ? fmt::format("{} refuses it", for_kept_values_ ? "libnvrtc.alt.so" : "NVRTC") : problem_;
}

NvrtcInstances& nvrtc_instances(const NvrtcOptions& options) {
  // Of one state, which the loader has found by name or number of the file; by name, too: what lies beside may differ.
  using Key = std::pair<decltype(NvrtcApi::compile_program), std::string>;
  static std::mutex mutex;
  static auto& all = *new std::map<Key, std::unique_ptr<NvrtcInstances>>;  // threads may compile while statics end
  NvrtcLibrary first = open_nvrtc(options);
  const std::lock_guard lock(mutex);
  std::unique_ptr<NvrtcInstances>& found = all[{first.api.compile_program, first.file.string()}];
  if (found == nullptr) found = std::make_unique<NvrtcInstances>(std::move(first));
  return *found;
}

}  // namespace tessera
