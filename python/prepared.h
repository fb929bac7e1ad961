// A launch whose tensors are given anew each time, by position, from libraries with DLPack's table.
#pragma once

#include <string>
#include <vector>

#include "exchange.h"
#include "launch_values.h"

class Prepared {
 public:
  /// A tensor as it was bound. Strides in elements; those of extents of at most 1 are not looked at.
  struct Slot {
    std::size_t buffer;
    std::uint8_t code, bits;
    std::vector<std::int64_t> shape, strides;
  };
  enum class Outcome {
    launched,    ///< or refused: the status says
    not_served,  ///< nothing was done: another type, shape or device than what was bound, or no context
  };

  /// kernel, ordinal: of the GPU. with_workspace: one tensor more is given, of at least the bytes that `values` say.
  Prepared(LaunchValues values, int ordinal, std::vector<Slot> slots, bool with_workspace)
      : values_(std::move(values)), ordinal_(ordinal), slots_(std::move(slots)), with_workspace_(with_workspace) {}

  /// tensors: one for each slot, then the workspace. stream: none for the one that their library works on.
  Outcome launch(const nanobind::tuple& tensors, std::optional<std::uintptr_t> stream, tessera_status& status);

 private:
  LaunchValues values_;
  int ordinal_;
  std::vector<Slot> slots_;
  bool with_workspace_;
};
