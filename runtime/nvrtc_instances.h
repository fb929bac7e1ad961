// Two NVRTC side by side. One reads the sources of one program at a time, whatever thread asks (0.1 to 0.15 s of an
// attention kernel's 0.6 on an H200's host), so pieces of a kernel, its merge, or kernels that a pool of threads
// compiles would wait for each other; a second one, another file with a state of its own, does not.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <optional>

#include "runtime/nvrtc_library.h"

namespace tessera {

class NvrtcInstances {
 public:
  explicit NvrtcInstances(const NvrtcOptions& options) : first_(open_nvrtc(options)) {}

  const NvrtcLibrary& first() const { return first_; }

  /// The one with fewer programs under way, until the lease ends: the first one where they are equal. The second one is
  /// opened when it is first wanted (12 to 20 ms).
  class Lease {
   public:
    explicit Lease(NvrtcInstances& instances);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    const NvrtcLibrary& library() const { return index_ == 0 ? instances_.first_ : *instances_.second_; }

   private:
    NvrtcInstances& instances_;
    std::size_t index_ = 0;
  };

 private:
  std::mutex mutex_;
  std::array<int, 2> under_way_{};
  NvrtcLibrary first_;
  std::once_flag second_once_;
  std::optional<NvrtcLibrary> second_;
};

}  // namespace tessera
