// GemmKernel: named arguments, put into the plan's order by a table made once per kernel.

#include "tessera/guest_device.h"
#include "tessera/internal/named_arguments.h"
#include "tessera/jit.h"

namespace tessera {

namespace {

using GemmSize = std::int64_t GemmArguments::*;
using GemmBuffer = DevicePointer GemmArguments::*;
using GemmScalar = double GemmArguments::*;

constexpr std::pair<std::string_view, GemmSize> kGemmSizes[] = {
    {"m", &GemmArguments::m},
    {"n", &GemmArguments::n},
    {"k", &GemmArguments::k},
    {"l", &GemmArguments::l},
    {"lda", &GemmArguments::lda},
    {"a_stride_l", &GemmArguments::a_stride_l},
    {"ldb", &GemmArguments::ldb},
    {"b_stride_l", &GemmArguments::b_stride_l},
    {"ldc", &GemmArguments::ldc},
    {"c_stride_l", &GemmArguments::c_stride_l},
    {"ldd", &GemmArguments::ldd},
    {"d_stride_l", &GemmArguments::d_stride_l},
    {"ldb2", &GemmArguments::ldb2},
    {"b2_stride_l", &GemmArguments::b2_stride_l},
    {"group_tiles", &GemmArguments::group_tiles},
    {"a_rows", &GemmArguments::a_rows},
    {"sfa_stride_m", &GemmArguments::sfa_stride_m},
    {"sfa_stride_k", &GemmArguments::sfa_stride_k},
    {"sfa_stride_l", &GemmArguments::sfa_stride_l},
    {"sfb_stride_n", &GemmArguments::sfb_stride_n},
    {"sfb_stride_k", &GemmArguments::sfb_stride_k},
    {"sfb_stride_l", &GemmArguments::sfb_stride_l},
    {"sfd_stride_m", &GemmArguments::sfd_stride_m},
    {"sfd_stride_n", &GemmArguments::sfd_stride_n},
    {"sfd_stride_l", &GemmArguments::sfd_stride_l},
};

constexpr std::pair<std::string_view, GemmBuffer> kGemmBuffers[] = {
    {"a", &GemmArguments::a},
    {"b", &GemmArguments::b},
    {"c", &GemmArguments::c},
    {"d", &GemmArguments::d},
    {"bias", &GemmArguments::bias},
    {"scale_a", &GemmArguments::scale_a},
    {"scale_b", &GemmArguments::scale_b},
    {"b2", &GemmArguments::b2},
    {"sfa", &GemmArguments::sfa},
    {"sfb", &GemmArguments::sfb},
    {"sfb2", &GemmArguments::sfb2},
    {"sfd", &GemmArguments::sfd},
    {"groups", &GemmArguments::groups},
    {"indices", &GemmArguments::indices},
    {"zeros", &GemmArguments::zeros},
    {"scale_b2", &GemmArguments::scale_b2},
    {"scale_d", &GemmArguments::scale_d},
};

constexpr std::pair<std::string_view, GemmScalar> kGemmScalars[] = {{"alpha", &GemmArguments::alpha},
                                                                    {"beta", &GemmArguments::beta}};

}  // namespace

struct GemmKernel::Slots : ArgumentSlots<GemmArguments> {
  explicit Slots(const LaunchPlan& plan) : ArgumentSlots(plan, {kGemmSizes, kGemmBuffers, kGemmScalars}) {}
};

GemmKernel::GemmKernel(std::shared_ptr<Kernel> kernel)
    : kernel_(std::move(kernel)), slots_(std::make_shared<const Slots>(kernel_->plan().launch)) {}

void GemmKernel::launch(Device& device, Stream stream, const GemmArguments& arguments) const {
  Slots::Ordered ordered;
  kernel_->launch(device, stream, slots_->order(arguments, ordered));
}

void GemmKernel::launch(Stream stream, const GemmArguments& arguments) const {
  launch(guest_device(), stream, arguments);
}

std::int64_t GemmKernel::workspace_bytes(Device& device, const GemmArguments& arguments) const {
  Slots::Ordered ordered;
  return kernel_->launcher(device).workspace_bytes(slots_->order(arguments, ordered));
}

std::int64_t GemmKernel::workspace_bytes(const GemmArguments& arguments) const {
  return workspace_bytes(guest_device(), arguments);
}

void GemmKernel::prepare() const { kernel_->prepare(guest_device()); }

}  // namespace tessera
