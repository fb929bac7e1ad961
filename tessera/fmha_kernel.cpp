// FmhaKernel: named arguments, put into the plan's order by a table made once per kernel.

#include <fmt/format.h>

#include <array>

#include "base/assert.h"
#include "tessera/guest_device.h"
#include "tessera/jit.h"

namespace tessera {

/// Where each named argument of an attention launch goes in the plan's order; -1: this kernel has no such argument.
struct FmhaKernel::Slots {
  static constexpr std::size_t kMaxSizes = 32, kMaxBuffers = 16;
  std::array<std::int64_t FmhaArguments::*, kMaxSizes> sizes{};
  std::array<DevicePointer FmhaArguments::*, kMaxBuffers> buffers{};
  std::size_t num_sizes = 0, num_buffers = 0, num_scalars = 0;

  explicit Slots(const LaunchPlan& plan);
};

namespace {

using FmhaSize = std::int64_t FmhaArguments::*;
using FmhaBuffer = DevicePointer FmhaArguments::*;

constexpr std::pair<std::string_view, FmhaSize> kFmhaSizes[] = {
    {"batch", &FmhaArguments::batch},
    {"heads_q", &FmhaArguments::heads_q},
    {"heads_kv", &FmhaArguments::heads_kv},
    {"seqlen_q", &FmhaArguments::seqlen_q},
    {"seqlen_k", &FmhaArguments::seqlen_k},
    {"q_stride_batch", &FmhaArguments::q_stride_batch},
    {"q_stride_seqlen", &FmhaArguments::q_stride_seqlen},
    {"q_stride_head", &FmhaArguments::q_stride_head},
    {"k_stride_batch", &FmhaArguments::k_stride_batch},
    {"k_stride_seqlen", &FmhaArguments::k_stride_seqlen},
    {"k_stride_head", &FmhaArguments::k_stride_head},
    {"v_stride_batch", &FmhaArguments::v_stride_batch},
    {"v_stride_seqlen", &FmhaArguments::v_stride_seqlen},
    {"v_stride_head", &FmhaArguments::v_stride_head},
    {"o_stride_batch", &FmhaArguments::o_stride_batch},
    {"o_stride_seqlen", &FmhaArguments::o_stride_seqlen},
    {"o_stride_head", &FmhaArguments::o_stride_head},
};

constexpr std::pair<std::string_view, FmhaBuffer> kFmhaBuffers[] = {
    {"q", &FmhaArguments::q},
    {"k", &FmhaArguments::k},
    {"v", &FmhaArguments::v},
    {"o", &FmhaArguments::o},
    {"lse", &FmhaArguments::lse},
    {"row_max", &FmhaArguments::row_max},
    {"row_sum", &FmhaArguments::row_sum},
};

/// The member of that name, or null.
template <class Member, std::size_t N>
Member member_of(const std::pair<std::string_view, Member> (&table)[N], std::string_view name) {
  for (const auto& [text, member] : table) {
    if (text == name) return member;
  }
  return nullptr;
}

}  // namespace

FmhaKernel::Slots::Slots(const LaunchPlan& plan)
    : num_sizes(plan.sizes.size()), num_buffers(plan.buffers.size()), num_scalars(plan.scalars.size()) {
  TESSERA_ASSERT(num_sizes <= kMaxSizes && num_buffers <= kMaxBuffers && num_scalars <= 1,
                 fmt::format("{} sizes, {} buffers, {} scalars", num_sizes, num_buffers, num_scalars));
  for (std::size_t i = 0; i < num_sizes; ++i) sizes[i] = member_of(kFmhaSizes, plan.sizes[i].name);
  for (std::size_t i = 0; i < num_buffers; ++i) {
    buffers[i] = member_of(kFmhaBuffers, plan.buffers[i].name);
    TESSERA_ASSERT(buffers[i] != nullptr, plan.buffers[i].name);
  }
}

FmhaKernel::FmhaKernel(std::shared_ptr<Kernel> kernel)
    : kernel_(std::move(kernel)), slots_(std::make_shared<const Slots>(kernel_->plan().launch)) {}

namespace {

/// The arguments in the plan's order, on the stack.
struct OrderedArguments {
  std::array<std::int64_t, 32> sizes;
  std::array<DevicePointer, 16> buffers;
  double scalar;
};

template <class Slots>
LaunchArguments order(const Slots& slots, const FmhaArguments& arguments, OrderedArguments& ordered) {
  for (std::size_t i = 0; i < slots.num_sizes; ++i) {
    ordered.sizes[i] = slots.sizes[i] == nullptr ? kUseDefault : arguments.*slots.sizes[i];
  }
  for (std::size_t i = 0; i < slots.num_buffers; ++i) ordered.buffers[i] = arguments.*slots.buffers[i];
  ordered.scalar = arguments.softmax_scale;
  return {.sizes = {ordered.sizes.data(), slots.num_sizes},
          .scalars = {&ordered.scalar, slots.num_scalars},
          .buffers = {ordered.buffers.data(), slots.num_buffers},
          .workspace = arguments.workspace,
          .workspace_bytes = arguments.workspace_bytes};
}

}  // namespace

void FmhaKernel::launch(Device& device, Stream stream, const FmhaArguments& arguments) const {
  OrderedArguments ordered;
  kernel_->launch(device, stream, order(*slots_, arguments, ordered));
}

void FmhaKernel::launch(Stream stream, const FmhaArguments& arguments) const {
  launch(guest_device(), stream, arguments);
}

std::int64_t FmhaKernel::workspace_bytes(Device& device, const FmhaArguments& arguments) const {
  OrderedArguments ordered;
  return kernel_->launcher(device).workspace_bytes(order(*slots_, arguments, ordered));
}

void FmhaKernel::prepare() const { kernel_->prepare(guest_device()); }

}  // namespace tessera
