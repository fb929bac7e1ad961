// The instruction table: mbarrier and asynchronous copies.
#include "emulator/syntax/isa_table.h"

namespace tessera::emulator {
namespace {

constexpr Form kAsyncForms[] = {
    // mbarrier.
    {"mbarrier.init", "b64", "[shared|shared::cta]", "m s:b32", "sm_80", "mbarrier.init", bind::mbarrier_init},
    {"mbarrier.inval", "b64", "[shared|shared::cta]", "m", "sm_80", "mbarrier.inval", bind::mbarrier_inval},
    {"mbarrier.arrive", "b64",
     "[expect_tx] [noComplete] [release|relaxed] [cta|cluster] [shared|shared::cta|shared::cluster]", "d m s:b32?",
     "sm_80", "mbarrier.arrive", bind::mbarrier_arrive},
    {"mbarrier.arrive_drop", "b64",
     "[expect_tx] [noComplete] [release|relaxed] [cta|cluster] [shared|shared::cta|shared::cluster]", "d m s:b32?",
     "sm_80", "mbarrier.arrive_drop", bind::mbarrier_arrive},
    {"mbarrier.expect_tx", "b64", "[relaxed] [cta|cluster] [shared|shared::cta|shared::cluster]", "m s:b32", "sm_90",
     "mbarrier.expect_tx", bind::mbarrier_tx},
    {"mbarrier.complete_tx", "b64", "[relaxed] [cta|cluster] [shared|shared::cta|shared::cluster]", "m s:b32", "sm_90",
     "mbarrier.complete_tx", bind::mbarrier_tx},
    {"mbarrier.test_wait", "b64", "[acquire|relaxed] [cta|cluster] [shared|shared::cta]", "p m s:b64", "sm_80",
     "mbarrier.test_wait", bind::mbarrier_wait},
    {"mbarrier.test_wait", "b64", "parity [acquire|relaxed] [cta|cluster] [shared|shared::cta]", "p m s:b32", "sm_80",
     "mbarrier.test_wait", bind::mbarrier_wait},
    {"mbarrier.try_wait", "b64", "[acquire|relaxed] [cta|cluster] [shared|shared::cta]", "p m s:b64 s:b32?", "sm_90",
     "mbarrier.try_wait", bind::mbarrier_wait},
    {"mbarrier.try_wait", "b64", "parity [acquire|relaxed] [cta|cluster] [shared|shared::cta]", "p m s:b32 s:b32?",
     "sm_90", "mbarrier.try_wait", bind::mbarrier_wait},
    {"mbarrier.pending_count", "b64", "", "d:b32 s", "sm_80", "mbarrier.pending_count", bind::mbarrier_pending_count},

    // Asynchronous copies.
    {"cp.async", "", "ca|cg [shared|shared::cta] global [L2::64B|L2::128B|L2::256B]", "m m i q:b32?", "sm_80",
     "cp.async", bind::cp_async},
    {"cp.async", "", "ca|cg [shared|shared::cta] global L2::cache_hint [L2::64B|L2::128B|L2::256B]",
     "m m i q:b32? s:b64", "sm_80", "cp.async", bind::cp_async},
    {"cp.async.commit_group", "", "", "", "sm_80", "cp.async.commit_group", bind::cp_async_commit},
    {"cp.async.wait_group", "", "", "i", "sm_80", "cp.async.wait_group", bind::cp_async_wait},
    {"cp.async.wait_all", "", "", "", "sm_80", "cp.async.wait_all", bind::cp_async_wait},
    {"cp.async.mbarrier.arrive", "b64", "[noinc] [shared|shared::cta]", "m", "sm_80", "cp.async.mbarrier.arrive",
     bind::cp_async_mbarrier},
    {"cp.async.bulk", "", "shared::cta|shared::cluster global mbarrier::complete_tx::bytes [L2::cache_hint]",
     "m m s:b32 m s:b64?", "sm_90", "cp.async.bulk", bind::bulk_load},
    {"cp.async.bulk", "", "shared::cluster global mbarrier::complete_tx::bytes multicast::cluster [L2::cache_hint]",
     "m m s:b32 m s:b16 s:b64?", "sm_90", "cp.async.bulk", bind::bulk_load},
    {"cp.async.bulk", "", "shared::cluster shared::cta mbarrier::complete_tx::bytes", "m m s:b32 m", "sm_90",
     "cp.async.bulk", bind::bulk_to_cluster},
    {"cp.async.bulk", "", "global shared::cta bulk_group [L2::cache_hint]", "m m s:b32 s:b64?", "sm_90",
     "cp.async.bulk", bind::bulk_store},
    {"cp.async.bulk", "", "global shared::cta bulk_group cp_mask [L2::cache_hint]", "m m s:b32 s:b64? s:b16", "sm_100",
     "cp.async.bulk", bind::bulk_store},
    {"cp.reduce.async.bulk", "u32|s32|u64|s64|f32|f64|b32|b64",
     "global shared::cta bulk_group add|min|max|inc|dec|and|or|xor [L2::cache_hint]", "m m s:b32 s:b64?", "sm_90",
     "cp.reduce.async.bulk", bind::bulk_store},
    {"cp.reduce.async.bulk", "f16|bf16", "global shared::cta bulk_group add noftz [L2::cache_hint]", "m m s:b32 s:b64?",
     "sm_90", "cp.reduce.async.bulk", bind::bulk_store},
    {"cp.reduce.async.bulk", "f16|bf16", "global shared::cta bulk_group min|max [noftz] [L2::cache_hint]",
     "m m s:b32 s:b64?", "sm_90", "cp.reduce.async.bulk", bind::bulk_store},
    {"cp.reduce.async.bulk", "u32|s32|u64|b32",
     "shared::cluster shared::cta mbarrier::complete_tx::bytes add|min|max|inc|dec|and|or|xor", "m m s:b32 m", "sm_90",
     "cp.reduce.async.bulk", bind::bulk_to_cluster},
    {"cp.async.bulk.prefetch", "", "L2 global [L2::cache_hint]", "m s:b32 s:b64?", "sm_90", "cp.async.bulk.prefetch",
     bind::nothing},
    {"cp.async.bulk.commit_group", "", "", "", "sm_90", "cp.async.bulk.commit_group", bind::bulk_commit},
    {"cp.async.bulk.wait_group", "", "[read]", "i", "sm_90", "cp.async.bulk.wait_group", bind::bulk_wait},
    {"cp.async.bulk.tensor", "",
     "1d|2d|3d|4d|5d shared::cta|shared::cluster global [tile] mbarrier::complete_tx::bytes [L2::cache_hint]",
     "m M m s:b64?", "sm_90", "cp.async.bulk.tensor", bind::tensor_load},
    {"cp.async.bulk.tensor", "",
     "1d|2d|3d|4d|5d shared::cta|shared::cluster global [tile] mbarrier::complete_tx::bytes "
     "cta_group::1|cta_group::2 [L2::cache_hint]",
     "m M m s:b64?", "sm_100a|sm_100f|sm_103a|sm_103f|sm_110a|sm_110f", "cp.async.bulk.tensor", bind::tensor_load},
    {"cp.async.bulk.tensor", "",
     "1d|2d|3d|4d|5d shared::cluster global [tile] mbarrier::complete_tx::bytes multicast::cluster [L2::cache_hint]",
     "m M m s:b16 s:b64?", "sm_90", "cp.async.bulk.tensor", bind::tensor_load},
    {"cp.async.bulk.tensor", "",
     "1d|2d|3d|4d|5d shared::cluster global [tile] mbarrier::complete_tx::bytes multicast::cluster "
     "cta_group::1|cta_group::2 [L2::cache_hint]",
     "m M m s:b16 s:b64?", "sm_100a|sm_100f|sm_103a|sm_103f|sm_110a|sm_110f", "cp.async.bulk.tensor",
     bind::tensor_load},
    {"cp.async.bulk.tensor", "",
     "2d shared::cta|shared::cluster global tile::gather4 mbarrier::complete_tx::bytes [L2::cache_hint]",
     "m M m s:b64?", "sm_100", "cp.async.bulk.tensor", bind::tensor_load},
    {"cp.async.bulk.tensor", "",
     "2d shared::cta|shared::cluster global tile::gather4 mbarrier::complete_tx::bytes cta_group::1|cta_group::2 "
     "[L2::cache_hint]",
     "m M m s:b64?", "sm_100a|sm_100f|sm_103a|sm_103f|sm_110a|sm_110f", "cp.async.bulk.tensor", bind::tensor_load},
    {"cp.async.bulk.tensor", "",
     "2d shared::cluster global tile::gather4 mbarrier::complete_tx::bytes multicast::cluster "
     "[cta_group::1|cta_group::2] [L2::cache_hint]",
     "m M m s:b16 s:b64?", "sm_100a|sm_100f|sm_103a|sm_103f|sm_110a|sm_110f", "cp.async.bulk.tensor",
     bind::tensor_load},
    {"cp.async.bulk.tensor", "", "1d|2d|3d|4d|5d global shared::cta [tile] bulk_group [L2::cache_hint]", "M m s:b64?",
     "sm_90", "cp.async.bulk.tensor", bind::tensor_store},
    {"cp.async.bulk.tensor", "", "2d global shared::cta tile::scatter4 bulk_group [L2::cache_hint]", "M m s:b64?",
     "sm_100a|sm_100f|sm_103a|sm_103f|sm_110a|sm_110f", "cp.async.bulk.tensor", bind::tensor_store},
    {"cp.reduce.async.bulk.tensor", "",
     "1d|2d|3d|4d|5d global shared::cta add|min|max|inc|dec|and|or|xor [tile] bulk_group [L2::cache_hint]",
     "M m s:b64?", "sm_90", "cp.reduce.async.bulk.tensor", bind::tensor_store},
    {"cp.async.bulk.prefetch.tensor", "", "2d L2 global tile::gather4 [L2::cache_hint]", "M s:b64?",
     "sm_100a|sm_100f|sm_103a|sm_103f|sm_110a|sm_110f", "cp.async.bulk.prefetch.tensor", bind::nothing},
    {"cp.async.bulk.prefetch.tensor", "", "1d|2d|3d|4d|5d L2 global [tile] [L2::cache_hint]", "M s:b64?", "sm_90",
     "cp.async.bulk.prefetch.tensor", bind::nothing},
};

}  // namespace

std::span<const Form> async_forms() noexcept { return kAsyncForms; }

}  // namespace tessera::emulator
