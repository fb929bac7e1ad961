// The instruction table: ldmatrix, stmatrix, mma.sync, wgmma.
#include "emulator/isa_table.h"

#define TESSERA_SM120_TARGETS "sm_120a|sm_121a|sm_120f|sm_121f"
#define TESSERA_F8F6F4 "e4m3|e5m2|e2m1|e2m3|e3m2"

namespace tessera::emulator {
namespace {

constexpr Form kForms[] = {
    // Matrices.
    {"ldmatrix", "b16", "sync aligned m8n8 x1|x2|x4 [trans] [shared|shared::cta]", "v m", "sm_75", "ldmatrix",
     bind::ldmatrix},
    {"ldmatrix", "b8", "sync aligned m16n16 x1|x2 trans [shared|shared::cta]", "v m", TESSERA_NARROW_TARGETS,
     "ldmatrix", bind::ldmatrix},
    {"ldmatrix", "", "sync aligned m8n16 x1|x2|x4 b8x16 b6x16_p32|b4x16_p64 [shared|shared::cta]", "v:b32 m",
     TESSERA_NARROW_TARGETS, "ldmatrix", bind::ldmatrix},
    {"ldmatrix", "", "sync aligned m16n16 x1|x2 trans b8x16 b6x16_p32|b4x16_p64 [shared|shared::cta]", "v:b32 m",
     TESSERA_NARROW_TARGETS, "ldmatrix", bind::ldmatrix},
    {"stmatrix", "b16", "sync aligned m8n8 x1|x2|x4 [trans] [shared|shared::cta]", "m u", "sm_90", "stmatrix",
     bind::stmatrix},
    {"stmatrix", "b8", "sync aligned m16n8 x1|x2|x4 trans [shared|shared::cta]", "m u", TESSERA_NARROW_TARGETS,
     "stmatrix", bind::stmatrix},
    {"mma.sync", "f32|f16 f16 f16 f32|f16", "aligned m16n8k8|m16n8k16 row col", "L S S S", "sm_80", "mma.sync",
     bind::mma_float},
    {"mma.sync", "f32 bf16 bf16 f32", "aligned m16n8k8|m16n8k16 row col", "L S S S", "sm_80", "mma.sync",
     bind::mma_float},
    {"mma.sync", "f32 tf32 tf32 f32", "aligned m16n8k4|m16n8k8 row col", "L S S S", "sm_80", "mma.sync",
     bind::mma_float},
    {"mma.sync", "f64 f64 f64 f64", "aligned m8n8k4 row col [rn|rz|rm|rp]", "v u u u", "sm_80", "mma.sync",
     bind::mma_f64},
    {"mma.sync", "f64 f64 f64 f64", "aligned m16n8k4|m16n8k8|m16n8k16 row col [rn|rz|rm|rp]", "v u u u", "sm_90",
     "mma.sync", bind::mma_f64},
    {"mma.sync", "f32|f16 e4m3|e5m2 e4m3|e5m2 f32|f16", "aligned m16n8k16|m16n8k32 row col", "L S S S", "sm_89",
     "mma.sync", bind::mma_float},
    {"mma.sync", "f32|f16 e4m3|e5m2 e4m3|e5m2 f32|f16", "aligned m16n8k16|m16n8k32 row col kind::f8f6f4", "L S S S",
     TESSERA_NARROW_TARGETS, "mma.sync", bind::mma_float},
    {"mma.sync", "f32|f16 " TESSERA_F8F6F4 " " TESSERA_F8F6F4 " f32|f16", "aligned m16n8k32 row col kind::f8f6f4",
     "L S S S", TESSERA_SM120_TARGETS, "mma.sync", bind::mma_float},
    {"mma.sync", "f32 " TESSERA_F8F6F4 " " TESSERA_F8F6F4 " f32 ue8m0",
     "aligned m16n8k32 row col kind::mxf8f6f4 block_scale [scale_vec::1X]", "L S S S u:b32 u:b16 u:b32 u:b16",
     TESSERA_SM120_TARGETS, "mma.sync", bind::mma_float},
    {"mma.sync", "f32 e2m1 e2m1 f32 ue8m0", "aligned m16n8k64 row col kind::mxf4 block_scale [scale_vec::2X]",
     "L S S S u:b32 u:b16 u:b32 u:b16", TESSERA_SM120_TARGETS, "mma.sync", bind::mma_fp4},
    {"mma.sync", "f32 e2m1 e2m1 f32 ue8m0",
     "aligned m16n8k64 row col kind::mxf4nvf4 block_scale scale_vec::2X|scale_vec::4X",
     "L S S S u:b32 u:b16 u:b32 u:b16", TESSERA_SM120_TARGETS, "mma.sync", bind::mma_fp4},
    {"mma.sync", "f32 e2m1 e2m1 f32 ue4m3", "aligned m16n8k64 row col kind::mxf4nvf4 block_scale scale_vec::4X",
     "L S S S u:b32 u:b16 u:b32 u:b16", TESSERA_SM120_TARGETS, "mma.sync", bind::mma_fp4},
    {"mma.sync", "s32 s8|u8 s8|u8 s32", "aligned m8n8k16|m16n8k16|m16n8k32 row col [satfinite]", "L S S S", "sm_80",
     "mma.sync", bind::mma_integer},
    {"mma.sync", "s32 s4|u4 s4|u4 s32", "aligned m8n8k32|m16n8k32|m16n8k64 row col [satfinite]", "L S S S", "sm_80",
     "mma.sync", bind::mma_integer},
    {"mma.sync", "s32 b1 b1 s32", "aligned m8n8k128|m16n8k128|m16n8k256 row col and|xor popc", "L S S S", "sm_80",
     "mma.sync", bind::mma_bits},
    {"mma.sync", "f32|f16 f16 f16 f32|f16", "aligned m8n8k4 row|col [row|col]", "", "sm_70", "mma.sync", nullptr,
     "not supported: m8n8k4 of f16 multiplies four small matrices for the quarter-warps of sm_70"},
    {"mma.sp", "*", "*", "", "sm_80", "mma.sp", nullptr,
     "semantics unknown: sparse operands, whose metadata layout no text source gives"},
    {"mma.sp::ordered_metadata", "*", "*", "", "sm_80", "mma.sp", nullptr,
     "semantics unknown: sparse operands, whose metadata layout no text source gives"},
    {"wmma", "*", "*", "", "sm_70", "wmma", nullptr,
     "not supported: wmma fragments, which the target lays out; use ldmatrix and mma.sync"},
    {"wgmma.mma_async.sp", "*", "*", "", "sm_90a", "wgmma.mma_async", nullptr,
     "semantics unknown: sparse operands, whose metadata layout no text source gives"},
    {"wgmma.fence", "", "sync aligned", "", "sm_90a", "wgmma.fence", bind::wgmma_fence},
    {"wgmma.commit_group", "", "sync aligned", "", "sm_90a", "wgmma.commit_group", bind::wgmma_commit},
    {"wgmma.wait_group", "", "sync aligned", "i", "sm_90a", "wgmma.wait_group", bind::wgmma_wait},
    {"wgmma.mma_async", "f32|f16 f16 f16", "sync aligned m64n#k16", "L w s:b64 c i i i i?", "sm_90a", "wgmma.mma_async",
     bind::wgmma},
    {"wgmma.mma_async", "f32 bf16 bf16", "sync aligned m64n#k16", "L w s:b64 c i i i i?", "sm_90a", "wgmma.mma_async",
     bind::wgmma},
    {"wgmma.mma_async", "f32 tf32 tf32", "sync aligned m64n#k8", "L w s:b64 c i i i? i?", "sm_90a", "wgmma.mma_async",
     bind::wgmma},
    {"wgmma.mma_async", "f32|f16 e4m3|e5m2 e4m3|e5m2", "sync aligned m64n#k32", "L w s:b64 c i i i? i?", "sm_90a",
     "wgmma.mma_async", bind::wgmma},
    {"wgmma.mma_async", "s32 s8|u8 s8|u8", "sync aligned m64n#k32 [satfinite]", "L w s:b64 c", "sm_90a",
     "wgmma.mma_async", bind::wgmma_integer},
    {"wgmma.mma_async", "s32 b1 b1", "sync aligned m64n#k256 and popc", "L w s:b64 c", "sm_90a", "wgmma.mma_async",
     bind::wgmma_integer},
};

}  // namespace

std::span<const Form> matrix_forms() noexcept { return kForms; }

}  // namespace tessera::emulator
