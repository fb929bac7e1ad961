// AttentionQuantizeKernel: named arguments, put into the plan's order by a table made once per kernel.
#include "tessera/attention_quantize.h"
#include "tessera/guest_device.h"
#include "tessera/internal/named_arguments.h"

namespace tessera {

namespace {

using Arguments = AttentionQuantizeArguments;

constexpr std::pair<std::string_view, std::int64_t Arguments::*> kSizes[] = {
    {"batch", &Arguments::batch},
    {"heads_q", &Arguments::heads_q},
    {"heads_kv", &Arguments::heads_kv},
    {"seqlen_q", &Arguments::seqlen_q},
    {"seqlen_k", &Arguments::seqlen_k},
    {"tokens_k", &Arguments::tokens_k},
    {"pages", &Arguments::pages},
    {"max_pages", &Arguments::max_pages},
    {"k_stride_page", &Arguments::k_stride_page},
    {"v_stride_page", &Arguments::v_stride_page},
    {"q_stride_batch", &Arguments::q_stride_batch},
    {"q_stride_seqlen", &Arguments::q_stride_seqlen},
    {"q_stride_head", &Arguments::q_stride_head},
    {"k_stride_batch", &Arguments::k_stride_batch},
    {"k_stride_seqlen", &Arguments::k_stride_seqlen},
    {"k_stride_head", &Arguments::k_stride_head},
    {"v_stride_batch", &Arguments::v_stride_batch},
    {"v_stride_seqlen", &Arguments::v_stride_seqlen},
    {"v_stride_head", &Arguments::v_stride_head},
};

constexpr std::pair<std::string_view, DevicePointer Arguments::*> kBuffers[] = {
    {"q", &Arguments::q},
    {"k", &Arguments::k},
    {"v", &Arguments::v},
    {"cu_seqlens_q", &Arguments::cu_seqlens_q},
    {"cu_seqlens_k", &Arguments::cu_seqlens_k},
    {"seqused_q", &Arguments::seqused_q},
    {"seqused_k", &Arguments::seqused_k},
    {"block_table", &Arguments::block_table},
    {"q_units", &Arguments::q_units},
    {"k_units", &Arguments::k_units},
    {"v_units", &Arguments::v_units},
    {"q_mean", &Arguments::q_mean},
    {"k_mean", &Arguments::k_mean},
    {"delta_s", &Arguments::delta_s},
    {"row_shift", &Arguments::row_shift},
};

}  // namespace

struct AttentionQuantizeKernel::Slots : ArgumentSlots<Arguments> {
  explicit Slots(const LaunchPlan& plan) : ArgumentSlots(plan, {kSizes, kBuffers, {}}) {}
};

AttentionQuantizeKernel::AttentionQuantizeKernel(std::shared_ptr<Kernel> kernel) : kernel_(std::move(kernel)) {
  kernel_->plan().problem.as<AttentionQuantize>();  // whose it must be
  slots_ = std::make_shared<const Slots>(kernel_->plan().launch);
}

void AttentionQuantizeKernel::launch(Device& device, Stream stream, const Arguments& arguments) const {
  Slots::Ordered ordered;
  kernel_->launch(device, stream, slots_->order(arguments, ordered));
}

void AttentionQuantizeKernel::launch(Stream stream, const Arguments& arguments) const {
  launch(guest_device(), stream, arguments);
}

std::int64_t AttentionQuantizeKernel::workspace_bytes(Device& device, const Arguments& arguments) const {
  Slots::Ordered ordered;
  return kernel_->launcher(device).workspace_bytes(slots_->order(arguments, ordered));
}

std::int64_t AttentionQuantizeKernel::workspace_bytes(const Arguments& arguments) const {
  return workspace_bytes(guest_device(), arguments);
}

void AttentionQuantizeKernel::prepare() const { kernel_->prepare(guest_device()); }

}  // namespace tessera
