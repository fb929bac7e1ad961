// Arguments with names, put into a plan's order by a table that is made once for each kernel.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "base/assert.h"
#include "tessera/launch.h"
#include "tessera/launcher.h"

namespace tessera {

/// The members of an operator's arguments by the names that its plans use.
template <class Arguments>
struct ArgumentNames {
  std::span<const std::pair<std::string_view, std::int64_t Arguments::*>> sizes;
  std::span<const std::pair<std::string_view, DevicePointer Arguments::*>> buffers;
  std::span<const std::pair<std::string_view, double Arguments::*>> scalars;
};

/// Where each named argument goes in one plan's order. Of sizes num_sms alone has none: the launcher fills it in.
template <class Arguments>
class ArgumentSlots {
 public:
  /// The arguments in the plan's order, on the stack of whoever launches. As many as any plan has.
  struct Ordered {
    std::array<std::int64_t, kMaxSizes> sizes;
    std::array<DevicePointer, kMaxBuffers> buffers;
    std::array<double, kMaxScalars> scalars;
  };

  ArgumentSlots(const LaunchPlan& plan, const ArgumentNames<Arguments>& names)
      : num_sizes_(plan.sizes.size()), num_buffers_(plan.buffers.size()), num_scalars_(plan.scalars.size()) {
    TESSERA_ASSERT(num_sizes_ <= kMaxSizes && num_buffers_ <= kMaxBuffers && num_scalars_ <= kMaxScalars,
                   fmt::format("{} sizes, {} buffers, {} scalars", num_sizes_, num_buffers_, num_scalars_));
    for (std::size_t i = 0; i < num_sizes_; ++i) {
      sizes_[i] = member_of(names.sizes, plan.sizes[i].name);
      TESSERA_ASSERT(sizes_[i] != nullptr || plan.sizes[i].name == "num_sms", plan.sizes[i].name);
    }
    for (std::size_t i = 0; i < num_buffers_; ++i) {
      buffers_[i] = member_of(names.buffers, plan.buffers[i].name);
      TESSERA_ASSERT(buffers_[i] != nullptr, plan.buffers[i].name);
    }
    for (std::size_t i = 0; i < num_scalars_; ++i) {
      scalars_[i] = member_of(names.scalars, plan.scalars[i].name);
      TESSERA_ASSERT(scalars_[i] != nullptr, plan.scalars[i].name);
    }
  }

  LaunchArguments order(const Arguments& arguments, Ordered& ordered) const {
    for (std::size_t i = 0; i < num_sizes_; ++i)
      ordered.sizes[i] = sizes_[i] == nullptr ? kUseDefault : arguments.*sizes_[i];
    for (std::size_t i = 0; i < num_buffers_; ++i) ordered.buffers[i] = arguments.*buffers_[i];
    for (std::size_t i = 0; i < num_scalars_; ++i) ordered.scalars[i] = arguments.*scalars_[i];
    return {.sizes = {ordered.sizes.data(), num_sizes_},
            .scalars = {ordered.scalars.data(), num_scalars_},
            .buffers = {ordered.buffers.data(), num_buffers_},
            .workspace = arguments.workspace,
            .workspace_bytes = arguments.workspace_bytes};
  }

 private:
  template <class Member>
  static Member member_of(std::span<const std::pair<std::string_view, Member>> table, std::string_view name) {
    for (const auto& [text, member] : table)
      if (text == name) return member;
    return nullptr;
  }

  std::array<std::int64_t Arguments::*, kMaxSizes> sizes_{};
  std::array<DevicePointer Arguments::*, kMaxBuffers> buffers_{};
  std::array<double Arguments::*, kMaxScalars> scalars_{};
  std::size_t num_sizes_ = 0, num_buffers_ = 0, num_scalars_ = 0;
};

}  // namespace tessera
