// FmhaKernel: named arguments, put into the plan's order by a table made once per kernel.

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tessera/error.h"
#include "tessera/guest_device.h"
#include "tessera/internal/named_arguments.h"
#include "tessera/internal/softcap.h"
#include "tessera/jit.h"

namespace tessera {

namespace {

using FmhaSize = std::int64_t FmhaArguments::*;
using FmhaBuffer = DevicePointer FmhaArguments::*;
using FmhaScalar = double FmhaArguments::*;

constexpr std::pair<std::string_view, FmhaSize> kFmhaSizes[] = {
    {"batch", &FmhaArguments::batch},
    {"heads_q", &FmhaArguments::heads_q},
    {"heads_kv", &FmhaArguments::heads_kv},
    {"seqlen_q", &FmhaArguments::seqlen_q},
    {"seqlen_k", &FmhaArguments::seqlen_k},
    {"num_splits", &FmhaArguments::num_splits},
    {"topk", &FmhaArguments::topk},
    {"seqlen_swa", &FmhaArguments::seqlen_swa},
    {"swa_rows", &FmhaArguments::swa_rows},
    {"pages", &FmhaArguments::pages},
    {"max_pages", &FmhaArguments::max_pages},
    {"tokens_k", &FmhaArguments::tokens_k},
    {"q_descale_stride_batch", &FmhaArguments::q_descale_stride_batch},
    {"q_descale_stride_head", &FmhaArguments::q_descale_stride_head},
    {"k_descale_stride_batch", &FmhaArguments::k_descale_stride_batch},
    {"k_descale_stride_head", &FmhaArguments::k_descale_stride_head},
    {"v_descale_stride_batch", &FmhaArguments::v_descale_stride_batch},
    {"v_descale_stride_head", &FmhaArguments::v_descale_stride_head},
    {"k_scale_stride_page", &FmhaArguments::k_scale_stride_page},
    {"k_scale_stride_head", &FmhaArguments::k_scale_stride_head},
    {"v_scale_stride_page", &FmhaArguments::v_scale_stride_page},
    {"v_scale_stride_head", &FmhaArguments::v_scale_stride_head},
    {"swa_k_stride_batch", &FmhaArguments::swa_k_stride_batch},
    {"swa_k_stride_seqlen", &FmhaArguments::swa_k_stride_seqlen},
    {"swa_k_stride_head", &FmhaArguments::swa_k_stride_head},
    {"swa_k_stride_page", &FmhaArguments::swa_k_stride_page},
    {"swa_v_stride_batch", &FmhaArguments::swa_v_stride_batch},
    {"swa_v_stride_seqlen", &FmhaArguments::swa_v_stride_seqlen},
    {"swa_v_stride_head", &FmhaArguments::swa_v_stride_head},
    {"window_size_left", &FmhaArguments::window_size_left},
    {"window_size_right", &FmhaArguments::window_size_right},
    {"attention_chunk", &FmhaArguments::attention_chunk},
    {"tree_words", &FmhaArguments::tree_words},
    {"q_stride_batch", &FmhaArguments::q_stride_batch},
    {"q_stride_seqlen", &FmhaArguments::q_stride_seqlen},
    {"q_stride_head", &FmhaArguments::q_stride_head},
    {"k_stride_batch", &FmhaArguments::k_stride_batch},
    {"k_stride_seqlen", &FmhaArguments::k_stride_seqlen},
    {"k_stride_head", &FmhaArguments::k_stride_head},
    {"k_stride_page", &FmhaArguments::k_stride_page},
    {"v_stride_page", &FmhaArguments::v_stride_page},
    {"v_stride_batch", &FmhaArguments::v_stride_batch},
    {"v_stride_seqlen", &FmhaArguments::v_stride_seqlen},
    {"v_stride_head", &FmhaArguments::v_stride_head},
    {"v_stride_dim", &FmhaArguments::v_stride_dim},
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
    {"seqused_q", &FmhaArguments::seqused_q},
    {"seqused_k", &FmhaArguments::seqused_k},
    {"cu_seqlens_q", &FmhaArguments::cu_seqlens_q},
    {"swa_k", &FmhaArguments::swa_k},
    {"swa_v", &FmhaArguments::swa_v},
    {"block_table", &FmhaArguments::block_table},
    {"cu_seqlens_k", &FmhaArguments::cu_seqlens_k},
    {"indices", &FmhaArguments::indices},
    {"swa_lens", &FmhaArguments::swa_lens},
    {"topk_lens", &FmhaArguments::topk_lens},
    {"swa_indices", &FmhaArguments::swa_indices},
    {"sink", &FmhaArguments::sink},
    {"alibi_slopes", &FmhaArguments::alibi_slopes},
    {"tree_mask", &FmhaArguments::tree_mask},
    {"q_descale", &FmhaArguments::q_descale},
    {"k_descale", &FmhaArguments::k_descale},
    {"v_descale", &FmhaArguments::v_descale},
    {"k_scale", &FmhaArguments::k_scale},
    {"v_scale", &FmhaArguments::v_scale},
    {"delta_s", &FmhaArguments::delta_s},
    {"row_shift", &FmhaArguments::row_shift},
};

constexpr std::pair<std::string_view, FmhaScalar> kFmhaScalars[] = {{"softmax_scale", &FmhaArguments::softmax_scale},
                                                                    {"softcap", &FmhaArguments::softcap}};

bool has_buffer(const LaunchPlan& plan, std::string_view name) {
  return std::any_of(plan.buffers.begin(), plan.buffers.end(),
                     [&](const BufferSpec& buffer) { return buffer.name == name; });
}

/// Ignored they would be a window's first keys in place of those that are listed.
void refuse_second_list() {
  throw Error(
      ErrorKind::usage,
      "swa_indices: this kernel takes keys of a window; a second list needs kv_pools sparse_window with v_is_k");
}

/// Ignored it would be a factor that is missing.
void refuse_v_descale() {
  throw Error(ErrorKind::usage,
              "v_descale with v_is_k: values are columns of k, and k_descale is the factor of both: leave it null");
}

}  // namespace

int softcap_index(const LaunchPlan& plan) noexcept {
  for (std::size_t i = 0; i < plan.scalars.size(); ++i)
    if (plan.scalars[i].name == "softcap") return static_cast<int>(i);
  return -1;
}

void check_softcap(double cap) {
  const bool is_positive = cap >= static_cast<double>(std::numeric_limits<float>::denorm_min());
  if (!is_positive || cap > static_cast<double>(std::numeric_limits<float>::max()))
    throw Error(ErrorKind::usage, fmt::format("softcap = {}: must be a positive number that fp32 holds", cap));
}

struct FmhaKernel::Slots : ArgumentSlots<FmhaArguments> {
  explicit Slots(const LaunchPlan& plan)
      : ArgumentSlots(plan, {kFmhaSizes, kFmhaBuffers, kFmhaScalars}),
        caps_scores(softcap_index(plan) >= 0),
        has_second_list(has_buffer(plan, "swa_indices")),
        has_only_k_descale(has_buffer(plan, "k_descale") && !has_buffer(plan, "v_descale")) {}
  bool caps_scores;
  bool has_second_list;
  bool has_only_k_descale;  ///< values are a part of keys
};

FmhaKernel::FmhaKernel(std::shared_ptr<Kernel> kernel)
    : kernel_(std::move(kernel)), slots_(std::make_shared<const Slots>(kernel_->plan().launch)) {}

void FmhaKernel::launch(Device& device, Stream stream, const FmhaArguments& arguments) const {
  if (slots_->caps_scores) check_softcap(arguments.softcap);
  if (!slots_->has_second_list && arguments.swa_indices != 0) refuse_second_list();
  if (slots_->has_only_k_descale && arguments.v_descale != 0) refuse_v_descale();
  Slots::Ordered ordered;
  kernel_->launch(device, stream, slots_->order(arguments, ordered));
}

void FmhaKernel::launch(Stream stream, const FmhaArguments& arguments) const {
  launch(guest_device(), stream, arguments);
}

std::int64_t FmhaKernel::workspace_bytes(Device& device, const FmhaArguments& arguments) const {
  Slots::Ordered ordered;
  return kernel_->launcher(device).workspace_bytes(slots_->order(arguments, ordered));
}

std::int64_t FmhaKernel::workspace_bytes(const FmhaArguments& arguments) const {
  return workspace_bytes(guest_device(), arguments);
}

void FmhaKernel::prepare() const { kernel_->prepare(guest_device()); }

}  // namespace tessera
