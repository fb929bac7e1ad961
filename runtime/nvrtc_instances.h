// NVRTC several times side by side, each with a state of its own.
//
// One reads the sources of one program at a time, whatever thread asks (0.1 to 0.15 s of an attention kernel's 0.6 on
// an H200's host), and what `-Xnvvm` says of a program it keeps for all that it compiles later. So programs that have
// the same options as ever go to the first one, pieces that keep their values (SourcePiece) to a second one, another
// file, which has their option from its first program on: what comes out depends on no program that was compiled
// before. Where many programs are under way in one of both, a copy of it in memory shares them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/nvrtc_library.h"

namespace tessera {

/// NVVM computes nothing again to save registers. Keys say that pieces have them, not what they are: others are another
/// text in make_keys.
inline constexpr std::array<std::string_view, 2> kOptionsOfKept{"-Xnvvm", "-disable-nvvm-remat"};

/// Programs under way from which on a copy shares them: a kernel alone has three in the first at most (two pieces and a
/// merge). Opening it takes a tenth of a second, and as much memory as the file has.
inline constexpr int kManyPrograms = 3;

/// An NVRTC, and its copy once that is wanted. Both must have compiled alike.
class SharedNvrtc {
 public:
  explicit SharedNvrtc(NvrtcLibrary library) : library_(std::move(library)) {}

  const NvrtcLibrary& library() const { return library_; }

  /// The one with fewer programs under way, until the lease ends.
  class Lease {
   public:
    explicit Lease(SharedNvrtc& shared);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    const NvrtcLibrary& library() const { return index_ == 0 ? shared_.library_ : *shared_.copy_; }

   private:
    SharedNvrtc& shared_;
    std::size_t index_ = 0;
  };

 private:
  NvrtcLibrary library_;
  std::mutex mutex_;
  std::array<int, 2> under_way_{};
  bool was_copied_ = false;  // or it was tried, or is under way
  std::optional<NvrtcLibrary> copy_;
};

class NvrtcInstances {
 public:
  explicit NvrtcInstances(NvrtcLibrary first);

  SharedNvrtc& first() { return first_; }

  /// Build id of the one of pieces that keep their values, as its file has it; empty where there is none.
  const std::string& second_id() const { return second_id_; }

  /// That one; null where there is none, or it does not know the option. Opened when it is first wanted (12 to 20 ms).
  SharedNvrtc* for_kept_values();
  /// Behind a failed piece: whether the option is at fault. Then there is none from here on.
  bool refuses_option();
  /// Why there is none; to be read after either of both.
  std::string why_none() const;

 private:
  SharedNvrtc first_;
  std::string second_id_, problem_;
  std::atomic<bool> refuses_option_ = false;
  std::once_flag for_kept_values_once_;
  std::optional<SharedNvrtc> for_kept_values_;
};

/// Those of the library that open_nvrtc opens, which all compilers of a process share and which stay to its end: the
/// loader keeps a file's state as long, so there is one copy of each file in memory at most, however many Jits come.
NvrtcInstances& nvrtc_instances(const NvrtcOptions& options);

}  // namespace tessera
