// The rows of sm_100 and its family: Tensor Memory, tcgen05, launch control. isa.h says how a row reads.
#include "emulator/syntax/isa_table.h"

namespace tessera::emulator {
namespace {

#define TESSERA_TENSOR "sm_100a|sm_100f|sm_101a|sm_101f|sm_103a|sm_103f|sm_110a|sm_110f"
#define TESSERA_TENSOR_A "sm_100a|sm_101a|sm_103a|sm_110a"
#define TESSERA_TENSOR_I8 "sm_100a|sm_101a|sm_110a"
#define TESSERA_GROUP "cta_group::1|cta_group::2 "
#define TESSERA_A_COLLECTOR "[collector::a::fill|collector::a::use|collector::a::lastuse|collector::a::discard]"
#define TESSERA_B_COLLECTOR                                                                \
  "[collector::b0::fill|collector::b0::use|collector::b0::lastuse|collector::b0::discard|" \
  "collector::b1::fill|collector::b1::use|collector::b1::lastuse|collector::b1::discard|"  \
  "collector::b2::fill|collector::b2::use|collector::b2::lastuse|collector::b2::discard|"  \
  "collector::b3::fill|collector::b3::use|collector::b3::lastuse|collector::b3::discard]"

constexpr Form kTensorForms[] = {
    {"tcgen05.alloc", "b32", TESSERA_GROUP "sync aligned [shared::cta]", "m s", TESSERA_TENSOR,
     "Tensor Memory: tcgen05.alloc", bind::tcgen05_alloc},
    {"tcgen05.dealloc", "b32", TESSERA_GROUP "sync aligned", "s s", TESSERA_TENSOR, "Tensor Memory: tcgen05.dealloc",
     bind::tcgen05_dealloc},
    {"tcgen05.relinquish_alloc_permit", "", TESSERA_GROUP "sync aligned", "", TESSERA_TENSOR,
     "Tensor Memory: tcgen05.relinquish_alloc_permit", bind::tcgen05_relinquish},
    {"tcgen05.ld", "b32", "sync aligned 32x32b|16x64b|16x128b|16x256b|16x32bx2 x# [pack::16b]", "v m i?",
     TESSERA_TENSOR, "Tensor Memory: tcgen05.ld", bind::tcgen05_ld},
    {"tcgen05.ld.red", "f32|u32|s32", "sync aligned 32x32b x# min|max [abs] [NaN]", "v d m",
     "sm_101a|sm_101f|sm_103a|sm_103f|sm_110a|sm_110f", "Tensor Memory: tcgen05.ld.red", bind::tcgen05_ld_red},
    {"tcgen05.ld.red", "f32|u32|s32", "sync aligned 16x32bx2 x# min|max [abs] [NaN]", "",
     "sm_101a|sm_101f|sm_103a|sm_103f|sm_110a|sm_110f", "Tensor Memory: tcgen05.ld.red", nullptr,
     "semantics unknown: whether the value covers one half of the columns or both"},
    {"tcgen05.st", "b32", "sync aligned 32x32b|16x64b|16x128b|16x256b|16x32bx2 x# [unpack::16b]", "m i? u",
     TESSERA_TENSOR, "Tensor Memory: tcgen05.st", bind::tcgen05_st},
    {"tcgen05.wait::ld", "", "sync aligned", "", TESSERA_TENSOR, "Tensor Memory: tcgen05.wait", bind::tcgen05_wait},
    {"tcgen05.wait::st", "", "sync aligned", "", TESSERA_TENSOR, "Tensor Memory: tcgen05.wait", bind::tcgen05_wait},
    {"tcgen05.cp", "", TESSERA_GROUP "128x256b|4x256b|128x128b|64x128b|32x128b [warpx2::02_13|warpx2::01_23|warpx4]",
     "m s:b64", TESSERA_TENSOR, "Tensor Memory: tcgen05.cp", bind::tcgen05_cp},
    {"tcgen05.cp", "",
     TESSERA_GROUP
     "128x256b|4x256b|128x128b|64x128b|32x128b [warpx2::02_13|warpx2::01_23|warpx4] b8x16 b6x16_p32|b4x16_p64",
     "", TESSERA_TENSOR, "Tensor Memory: tcgen05.cp", nullptr,
     "semantics unknown: where a 4- or 6-bit value stands in its byte; only figures say it"},
    {"tcgen05.shift", "*", "*", "", TESSERA_TENSOR_A, "Tensor Memory: tcgen05.shift", nullptr,
     "semantics unknown: which way rows move and which one stays; the sources contradict each other"},

    {"tcgen05.fence::before_thread_sync", "", "", "", TESSERA_TENSOR, "Tensor core: tcgen05.fence",
     bind::tcgen05_fence},
    {"tcgen05.fence::after_thread_sync", "", "", "", TESSERA_TENSOR, "Tensor core: tcgen05.fence", bind::tcgen05_fence},
    {"tcgen05.commit", "b64", TESSERA_GROUP "mbarrier::arrive::one [shared::cluster]", "m", TESSERA_TENSOR,
     "Tensor core: tcgen05.commit", bind::tcgen05_commit},
    {"tcgen05.commit", "b64", TESSERA_GROUP "mbarrier::arrive::one [shared::cluster] multicast::cluster", "m s:b16",
     TESSERA_TENSOR, "Tensor core: tcgen05.commit", bind::tcgen05_commit},
    {"tcgen05.mma", "", TESSERA_GROUP "kind::f16|kind::tf32|kind::f8f6f4 " TESSERA_A_COLLECTOR,
     "m a s:b64 s:b32 S? c i?", TESSERA_TENSOR, "Tensor core: tcgen05.mma", bind::tcgen05_mma},
    {"tcgen05.mma", "", TESSERA_GROUP "kind::i8 " TESSERA_A_COLLECTOR, "m a s:b64 s:b32 S? c i?", TESSERA_TENSOR_I8,
     "Tensor core: tcgen05.mma", bind::tcgen05_mma},
    {"tcgen05.mma", "",
     TESSERA_GROUP "kind::mxf8f6f4|kind::mxf4|kind::mxf4nvf4 block_scale [block16|block32] " TESSERA_A_COLLECTOR,
     "m a s:b64 s:b32 m m c", TESSERA_TENSOR, "Tensor core: tcgen05.mma, block scaling", bind::tcgen05_mma},
    {"tcgen05.mma", "",
     TESSERA_GROUP "kind::mxf8f6f4|kind::mxf4|kind::mxf4nvf4 block_scale "
                   "scale_vec::1X|scale_vec::2X|scale_vec::4X " TESSERA_A_COLLECTOR,
     "m a s:b64 s:b32 m m c", TESSERA_TENSOR_A, "Tensor core: tcgen05.mma, block scaling", bind::tcgen05_mma},
    {"tcgen05.mma.ws", "", "cta_group::1 kind::f16|kind::tf32|kind::f8f6f4 " TESSERA_B_COLLECTOR,
     "m a s:b64 s:b32 c s:b64?", TESSERA_TENSOR, "Tensor core: tcgen05.mma.ws", bind::tcgen05_mma},
    {"tcgen05.mma.ws", "", "cta_group::1 kind::i8 " TESSERA_B_COLLECTOR, "m a s:b64 s:b32 c s:b64?", TESSERA_TENSOR_I8,
     "Tensor core: tcgen05.mma.ws", bind::tcgen05_mma},
    {"tcgen05.mma", "", TESSERA_GROUP "kind::f16|kind::tf32|kind::f8f6f4|kind::i8 ashift " TESSERA_A_COLLECTOR, "",
     TESSERA_TENSOR, "Tensor core: tcgen05.mma", nullptr, "semantics unknown: which row of A a shift replaces"},
    {"tcgen05.mma.sp", "*", "*", "", TESSERA_TENSOR, "Tensor core: tcgen05.mma.sp", nullptr,
     "semantics unknown: sparse operands, whose metadata layout no text source gives"},
    {"tcgen05.mma.ws.sp", "*", "*", "", TESSERA_TENSOR, "Tensor core: tcgen05.mma.ws.sp", nullptr,
     "semantics unknown: sparse operands, whose metadata layout no text source gives"},

    {"clusterlaunchcontrol.try_cancel", "b128", "async [shared::cta] mbarrier::complete_tx::bytes", "m m", "sm_100",
     "Launch control: clusterlaunchcontrol.try_cancel", bind::try_cancel},
    {"clusterlaunchcontrol.try_cancel", "b128",
     "async [shared::cta] mbarrier::complete_tx::bytes multicast::cluster::all", "m m",
     TESSERA_TENSOR "|sm_120a|sm_120f|sm_121a|sm_121f", "Launch control: clusterlaunchcontrol.try_cancel",
     bind::try_cancel},
    {"clusterlaunchcontrol.query_cancel.is_canceled", "pred b128", "", "p s:b128", "sm_100",
     "Launch control: clusterlaunchcontrol.query_cancel", bind::query_cancel},
    {"clusterlaunchcontrol.query_cancel.get_first_ctaid", "b32 b128", "v4", "v:b32 s:b128", "sm_100",
     "Launch control: clusterlaunchcontrol.query_cancel", bind::query_cancel},
    {"clusterlaunchcontrol.query_cancel.get_first_ctaid::x", "b32 b128", "", "d:b32 s:b128", "sm_100",
     "Launch control: clusterlaunchcontrol.query_cancel", bind::query_cancel},
    {"clusterlaunchcontrol.query_cancel.get_first_ctaid::y", "b32 b128", "", "d:b32 s:b128", "sm_100",
     "Launch control: clusterlaunchcontrol.query_cancel", bind::query_cancel},
    {"clusterlaunchcontrol.query_cancel.get_first_ctaid::z", "b32 b128", "", "d:b32 s:b128", "sm_100",
     "Launch control: clusterlaunchcontrol.query_cancel", bind::query_cancel},
};

}  // namespace

std::span<const Form> tensor_forms() noexcept { return kTensorForms; }

}  // namespace tessera::emulator
