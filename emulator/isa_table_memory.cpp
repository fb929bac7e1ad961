// The instruction table: moves, conversions, loads, stores, atomics.
#include "emulator/isa_table.h"

namespace tessera::emulator {
namespace {

constexpr Form kForms[] = {
    // Moves and conversions.
    {"mov", "pred|b16|b32|b64|b128|" TESSERA_INTS "|f16|bf16|f16x2|bf16x2|f32|f64", "", "v u", "sm_70",
     "Data Movement: mov", bind::mov},
    {"prmt", "b32", "[f4e|b4e|rc8|ecl|ecr|rc16]", "d s s s", "sm_70", "Data Movement: prmt", bind::prmt},
    {"cvt", TESSERA_CVT_INTS " " TESSERA_CVT_INTS, "[sat]", "dx sx1", "sm_70", "Data Movement: cvt", bind::cvt},
    {"cvt", "f16|bf16|f32|f64 " TESSERA_CVT_INTS, "rn|rz|rm|rp", "d sx1", "sm_70", "Data Movement: cvt", bind::cvt},
    {"cvt", TESSERA_CVT_INTS " f16|bf16|f32|f64", "rni|rzi|rmi|rpi [ftz] [sat]", "dx s1", "sm_70", "Data Movement: cvt",
     bind::cvt},
    {"cvt", "f16|bf16|f32|f64 f16|bf16|f32|f64", "[rn|rz|rm|rp|rni|rzi|rmi|rpi] [ftz] [sat] [relu]", "d s1", "sm_70",
     "Data Movement: cvt", bind::cvt},
    {"cvt", "tf32 f32", "rna|rn|rz [relu]", "d:b32 s1", "sm_80", "Data Movement: cvt", bind::cvt},
    {"cvt", "f16x2|bf16x2 f32", "rn|rz [relu] [satfinite]", "d s1 s1", "sm_80", "Data Movement: cvt", bind::cvt_packed},
    {"cvt", "e4m3x2|e5m2x2 f32", "rn satfinite [relu]", "d s1 s1", "sm_89", "Data Movement: cvt", bind::cvt_packed},
    {"cvt", "e4m3x2|e5m2x2 f16x2", "rn satfinite [relu]", "d s1", "sm_89", "Data Movement: cvt", bind::cvt_packed},
    {"cvt", "f16x2 e4m3x2|e5m2x2", "rn [relu]", "d s1", "sm_89", "Data Movement: cvt", bind::cvt_packed},
    {"cvt", "e2m1x2|e2m3x2|e3m2x2 f32", "rn satfinite [relu]", "d s1 s1", TESSERA_NARROW_TARGETS, "Data Movement: cvt",
     bind::cvt_packed},
    {"cvt", "f16x2 e2m1x2|e2m3x2|e3m2x2", "rn [relu]", "d s1", TESSERA_NARROW_TARGETS, "Data Movement: cvt",
     bind::cvt_packed},
    {"cvt", "ue8m0x2 f32", "rz|rp [satfinite]", "d s1 s1", TESSERA_NARROW_TARGETS, "Data Movement: cvt",
     bind::cvt_packed},
    {"cvt", "ue8m0x2 bf16x2", "rz|rp [satfinite]", "d s1", TESSERA_NARROW_TARGETS, "Data Movement: cvt",
     bind::cvt_packed},
    {"cvt", "bf16x2 ue8m0x2", "rn", "d s1", TESSERA_NARROW_TARGETS, "Data Movement: cvt", bind::cvt_packed},
    {"cvta", "u64", "[to] global|const|local|shared|shared::cta|shared::cluster|param|param::entry", "d s", "sm_70",
     "Data Movement: cvta", bind::cvta},
    {"isspacep", "", "global|const|local|shared|shared::cta|shared::cluster|param|param::entry", "p s:b64", "sm_70",
     "Data Movement: isspacep", bind::isspacep},
    {"mapa", "u32|u64", "shared::cluster", "d s s:b32", "sm_90", "Data Movement: mapa", bind::mapa},
    {"mapa", "u64", "", "d s s:b32", "sm_90", "Data Movement: mapa", bind::mapa},
    {"getctarank", "u32|u64", "[shared::cluster]", "d:b32 s", "sm_90", "Data Movement: getctarank", bind::getctarank},

    // Loads and stores.
    {"ld", TESSERA_MEMORY_TYPES, TESSERA_LOAD_CACHE TESSERA_ORDER "[unified] [v2|v4|v8] " TESSERA_SPACES, "vx m s:b64?",
     "sm_70", "Data Movement: ld", bind::ld},
    {"ld", TESSERA_MEMORY_TYPES, "param|const|param::entry [v2|v4]", "vx m", "sm_70", "Data Movement: ld", bind::ld},
    {"ldu", TESSERA_MEMORY_TYPES, "[global] [v2|v4]", "vx m", "sm_70", "Data Movement: ldu", bind::ld},
    {"st", TESSERA_MEMORY_TYPES,
     "[wb|cg|cs|wt] [L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate] "
     "[L2::evict_normal|L2::evict_first|L2::evict_last] [L2::cache_hint] " TESSERA_ORDER "[v2|v4|v8] " TESSERA_SPACES,
     "m ux s:b64?", "sm_70", "Data Movement: st", bind::st},
    {"prefetch", "", "[global|local] L1|L2|L2::evict_last|L2::evict_normal", "m", "sm_70", "Data Movement: prefetch",
     bind::nothing},
    {"prefetchu", "", "L1", "m", "sm_70", "Data Movement: prefetchu", bind::nothing},
    {"applypriority", "", "[global] L2::evict_normal", "m i", "sm_80", "Data Movement: applypriority", bind::nothing},
    {"discard", "", "[global] L2", "m i", "sm_80", "Data Movement: discard", bind::nothing},
    {"prefetch.tensormap", "", "[param|param::entry|const|global]", "m", "sm_90", "Data Movement: prefetch",
     bind::nothing},
    {"createpolicy", "b64",
     "fractional L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged "
     "[L2::evict_first|L2::evict_unchanged]",
     "d s:f32?", "sm_80", "Data Movement: createpolicy", bind::nothing},

    // Atomics.
    {"atom", "u32|s32|u64|s64",
     "add|min|max " TESSERA_ORDER "[global|shared|shared::cta|shared::cluster] [L2::cache_hint]", "d m s s:b64?",
     "sm_70", "Synchronization: atom", bind::atom},
    {"atom", "b32|b64", "and|or|xor|exch " TESSERA_ORDER "[global|shared|shared::cta|shared::cluster] [L2::cache_hint]",
     "d m s s:b64?", "sm_70", "Synchronization: atom", bind::atom},
    {"atom", "b16|b32|b64|b128", "cas " TESSERA_ORDER "[global|shared|shared::cta|shared::cluster]", "d m s s", "sm_70",
     "Synchronization: atom", bind::atom},
    {"atom", "b128", "exch " TESSERA_ORDER "[global|shared|shared::cta|shared::cluster]", "d m s", "sm_90",
     "Synchronization: atom", bind::atom},
    {"atom", "u32", "inc|dec " TESSERA_ORDER "[global|shared|shared::cta|shared::cluster]", "d m s", "sm_70",
     "Synchronization: atom", bind::atom},
    {"atom", "f32|f64", "add " TESSERA_ORDER "[global|shared|shared::cta|shared::cluster] [L2::cache_hint]",
     "d m s s:b64?", "sm_70", "Synchronization: atom", bind::atom},
    {"atom", "f32", "add v2|v4 " TESSERA_ORDER "global [L2::cache_hint]", "v m u s:b64?", "sm_90",
     "Synchronization: atom", bind::atom},
    {"atom", "f16|bf16|f16x2|bf16x2",
     "add|min|max noftz [v2|v4|v8] " TESSERA_ORDER "[global|shared|shared::cta|shared::cluster]", "v m u", "sm_90",
     "Synchronization: atom", bind::atom},
    {"red", "u32|s32|u64|s64",
     "add|min|max " TESSERA_ORDER "[global|shared|shared::cta|shared::cluster] [L2::cache_hint]", "m s s:b64?", "sm_70",
     "Synchronization: red", bind::red},
    {"red", "b32|b64", "and|or|xor " TESSERA_ORDER "[global|shared|shared::cta|shared::cluster] [L2::cache_hint]",
     "m s s:b64?", "sm_70", "Synchronization: red", bind::red},
    {"red", "u32", "inc|dec " TESSERA_ORDER "[global|shared|shared::cta|shared::cluster]", "m s", "sm_70",
     "Synchronization: red", bind::red},
    {"red", "f32|f64", "add " TESSERA_ORDER "[global|shared|shared::cta|shared::cluster] [L2::cache_hint]",
     "m s s:b64?", "sm_70", "Synchronization: red", bind::red},
    {"red", "f32", "add v2|v4 " TESSERA_ORDER "global [L2::cache_hint]", "m u s:b64?", "sm_90", "Synchronization: red",
     bind::red},
    {"red", "f16|bf16|f16x2|bf16x2",
     "add|min|max noftz [v2|v4|v8] " TESSERA_ORDER "[global|shared|shared::cta|shared::cluster]", "m u", "sm_90",
     "Synchronization: red", bind::red},
};

}  // namespace

std::span<const Form> memory_forms() noexcept { return kForms; }

}  // namespace tessera::emulator
