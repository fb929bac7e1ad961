// The instruction table: control flow, lanes of a warp, barriers, fences.
#include "emulator/syntax/isa_table.h"

namespace tessera::emulator {
namespace {

constexpr Form kControlForms[] = {
    // Control flow.
    {"bra", "", "[uni]", "l", "sm_70", "Control Flow: bra", bind::bra},
    {"brx.idx", "", "[uni]", "s:b32 t", "sm_70", "Control Flow: brx.idx", bind::brx},
    {"call", "", "[uni]", "", "sm_70", "Control Flow: call", bind::call},
    {"call", "", "vprintf|__assertfail|malloc|free", "", "sm_70", "Control Flow: call", bind::call_builtin},
    {"alloca", "u32|u64", "", "d s i?", "sm_70", "Stack Manipulation: alloca", bind::alloca_},
    {"stacksave", "u32|u64", "", "d", "sm_70", "Stack Manipulation: stacksave", bind::stacksave},
    {"stackrestore", "u32|u64", "", "s", "sm_70", "Stack Manipulation: stackrestore", bind::stackrestore},
    {"ret", "", "[uni]", "", "sm_70", "Control Flow: ret", bind::exit},
    {"exit", "", "", "", "sm_70", "Control Flow: exit", bind::exit},
    {"trap", "", "", "", "sm_70", "Miscellaneous: trap", bind::trap},
    {"nanosleep", "u32", "", "s", "sm_70", "Miscellaneous: nanosleep", bind::nanosleep},
    {"brkpt", "", "", "", "sm_70", "Miscellaneous: brkpt", bind::trap},
    {"pmevent", "", "[mask]", "i", "sm_70", "Miscellaneous: pmevent", bind::nothing},

    // Lanes of a warp. ptxas takes .sync on either side of what is done, and CUB writes vote.ballot.sync.
    {"shfl", "b32", "up|down|bfly|idx sync", "D s s s s", "sm_70", "Data Movement: shfl.sync", bind::shfl},
    {"vote", "pred", "all|any|uni sync", "p c s:b32", "sm_70", "Synchronization: vote.sync", bind::vote},
    {"vote", "b32", "ballot sync", "d c s", "sm_70", "Synchronization: vote.sync", bind::vote},
    {"match", "b32|b64", "any|all sync", "D:b32 s s:b32", "sm_70", "Synchronization: match.sync", bind::match},
    {"redux", "u32|s32", "add|min|max sync", "d s s:b32", "sm_80", "Synchronization: redux.sync", bind::redux},
    {"redux", "b32", "and|or|xor sync", "d s s:b32", "sm_80", "Synchronization: redux.sync", bind::redux},
    {"redux", "f32", "min|max sync [abs] [NaN]", "d s s:b32", "sm_100a|sm_103a|sm_100f", "Synchronization: redux.sync",
     bind::redux},
    {"activemask", "b32", "", "d", "sm_70", "Synchronization: activemask", bind::activemask},
    {"elect.sync", "", "", "D:b32 s:b32", "sm_90", "Synchronization: elect.sync", bind::elect},
    {"bar.warp.sync", "", "", "s:b32", "sm_70", "Synchronization: bar.warp.sync", bind::warp_sync},

    // Barriers and fences.
    {"bar", "", "[cta] sync", "s:b32 s:b32?", "sm_70", "Synchronization: bar", bind::barrier},
    {"bar", "", "[cta] arrive", "s:b32 s:b32", "sm_70", "Synchronization: bar", bind::barrier},
    {"bar", "u32", "[cta] red popc", "d s:b32 s:b32? c", "sm_70", "Synchronization: bar", bind::barrier},
    {"bar", "pred", "[cta] red and|or", "p s:b32 s:b32? c", "sm_70", "Synchronization: bar", bind::barrier},
    {"barrier", "", "[cta] sync [aligned]", "s:b32 s:b32?", "sm_70", "Synchronization: barrier", bind::barrier},
    {"barrier", "", "[cta] arrive [aligned]", "s:b32 s:b32", "sm_70", "Synchronization: barrier", bind::barrier},
    {"barrier", "u32", "[cta] red popc [aligned]", "d s:b32 s:b32? c", "sm_70", "Synchronization: barrier",
     bind::barrier},
    {"barrier", "pred", "[cta] red and|or [aligned]", "p s:b32 s:b32? c", "sm_70", "Synchronization: barrier",
     bind::barrier},
    {"barrier.cluster", "", "arrive [release|relaxed] [aligned]", "", "sm_90", "Synchronization: barrier.cluster",
     bind::cluster_barrier},
    {"barrier.cluster", "", "wait [acquire] [aligned]", "", "sm_90", "Synchronization: barrier.cluster",
     bind::cluster_barrier},
    {"membar", "", "cta|gl|sys", "", "sm_70", "Synchronization: membar", bind::fence},
    {"fence", "", "[sc|acq_rel|acquire|release] cta|cluster|gpu|sys", "", "sm_70", "Synchronization: fence",
     bind::fence},
    {"fence.mbarrier_init", "", "release cluster", "", "sm_90", "Synchronization: fence", bind::fence},
    {"fence.proxy.async", "", "[global|shared::cta|shared::cluster]", "", "sm_90", "Synchronization: fence",
     bind::fence_proxy_async},
    {"fence", "", "acquire|release sync_restrict::shared::cluster|sync_restrict::shared::cta cluster", "", "sm_90",
     "Synchronization: fence", bind::fence},
    {"fence.proxy.async::generic", "",
     "acquire|release sync_restrict::shared::cluster|sync_restrict::shared::cta cluster", "", "sm_90",
     "Synchronization: fence", bind::fence_proxy_async},
    {"fence.proxy.alias", "", "", "", "sm_70", "Synchronization: fence", bind::fence},
    {"fence.proxy.tensormap::generic", "", "release cta|cluster|gpu|sys", "", "sm_90", "Synchronization: fence",
     bind::tensormap_fence},
    {"fence.proxy.tensormap::generic", "", "acquire cta|cluster|gpu|sys", "m i", "sm_90", "Synchronization: fence",
     bind::tensormap_fence},

    // Registers and dependent launches.
    {"setmaxnreg", "u32", "inc|dec sync aligned", "i", "sm_90a|" TESSERA_NARROW_TARGETS, "Miscellaneous: setmaxnreg",
     bind::setmaxnreg},
    {"griddepcontrol", "", "wait|launch_dependents", "", "sm_90", "Synchronization: griddepcontrol",
     bind::grid_control},
};

}  // namespace

std::span<const Form> control_forms() noexcept { return kControlForms; }

}  // namespace tessera::emulator
