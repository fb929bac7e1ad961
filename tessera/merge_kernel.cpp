// MergeKernel: named arguments, put into the plan's order by a table made once per kernel.
#include "tessera/guest_device.h"
#include "tessera/internal/named_arguments.h"
#include "tessera/merge.h"

namespace tessera {

namespace {

constexpr std::pair<std::string_view, std::int64_t MergeArguments::*> kMergeSizes[] = {
    {"parts", &MergeArguments::parts},
    {"batch", &MergeArguments::batch},
    {"heads_q", &MergeArguments::heads_q},
    {"seqlen_q", &MergeArguments::seqlen_q},
    {"o_parts_stride_part", &MergeArguments::o_parts_stride_part},
    {"o_parts_stride_batch", &MergeArguments::o_parts_stride_batch},
    {"o_parts_stride_seqlen", &MergeArguments::o_parts_stride_seqlen},
    {"o_parts_stride_head", &MergeArguments::o_parts_stride_head},
    {"lse_parts_stride_part", &MergeArguments::lse_parts_stride_part},
    {"lse_parts_stride_batch", &MergeArguments::lse_parts_stride_batch},
    {"lse_parts_stride_head", &MergeArguments::lse_parts_stride_head},
    {"o_stride_batch", &MergeArguments::o_stride_batch},
    {"o_stride_seqlen", &MergeArguments::o_stride_seqlen},
    {"o_stride_head", &MergeArguments::o_stride_head},
};

constexpr std::pair<std::string_view, DevicePointer MergeArguments::*> kMergeBuffers[] = {
    {"o_parts", &MergeArguments::o_parts}, {"lse_parts", &MergeArguments::lse_parts}, {"o", &MergeArguments::o},
    {"lse", &MergeArguments::lse},         {"sink", &MergeArguments::sink},
};

}  // namespace

struct MergeKernel::Slots : ArgumentSlots<MergeArguments> {
  explicit Slots(const LaunchPlan& plan) : ArgumentSlots(plan, {kMergeSizes, kMergeBuffers, {}}) {}
};

MergeKernel::MergeKernel(std::shared_ptr<Kernel> kernel) : kernel_(std::move(kernel)) {
  kernel_->plan().problem.as<Merge>();  // whose it must be
  slots_ = std::make_shared<const Slots>(kernel_->plan().launch);
}

void MergeKernel::launch(Device& device, Stream stream, const MergeArguments& arguments) const {
  Slots::Ordered ordered;
  kernel_->launch(device, stream, slots_->order(arguments, ordered));
}

void MergeKernel::launch(Stream stream, const MergeArguments& arguments) const {
  launch(guest_device(), stream, arguments);
}

void MergeKernel::prepare() const { kernel_->prepare(guest_device()); }

}  // namespace tessera
