// The instruction table: wmma. The order of the shape, the layouts and .rnd in an opcode differs between authors;
// .aligned is implied before PTX 6.3.
#include "emulator/syntax/isa_table.h"

#define TESSERA_WMMA_WIDE "m16n16k16|m8n32k16|m32n8k16"
#define TESSERA_WMMA_SPACES "[global|shared|shared::cta]"
#define TESSERA_WMMA_ACCESS(shapes) "sync [aligned] row|col " shapes " " TESSERA_WMMA_SPACES
#define TESSERA_WMMA_PRODUCT(shapes) "sync [aligned] row|col row|col " shapes

namespace tessera::emulator {
namespace {

constexpr const char* kLoad = "v:b32 m s:u32?";
constexpr const char* kStore = "m u:b32 s:u32?";
constexpr const char* kProduct = "v:b32 u:b32 u:b32 u:b32";

constexpr Form kWmmaForms[] = {
    {"wmma.load.a", "f16", TESSERA_WMMA_ACCESS(TESSERA_WMMA_WIDE), kLoad, "sm_70", "wmma.load", bind::wmma_load_a},
    {"wmma.load.a", "s8|u8", TESSERA_WMMA_ACCESS(TESSERA_WMMA_WIDE), kLoad, "sm_72", "wmma.load", bind::wmma_load_a},
    {"wmma.load.a", "bf16", TESSERA_WMMA_ACCESS(TESSERA_WMMA_WIDE), kLoad, "sm_80", "wmma.load", bind::wmma_load_a},
    {"wmma.load.a", "tf32", TESSERA_WMMA_ACCESS("m16n16k8"), kLoad, "sm_80", "wmma.load", bind::wmma_load_a},
    {"wmma.load.a", "f64", TESSERA_WMMA_ACCESS("m8n8k4"), "v m s:u32?", "sm_80", "wmma.load", bind::wmma_load_a},
    {"wmma.load.a", "s4|u4", "sync [aligned] row m8n8k32 " TESSERA_WMMA_SPACES, kLoad, "sm_75", "wmma.load",
     bind::wmma_load_a},
    {"wmma.load.a", "b1", "sync [aligned] row m8n8k128 " TESSERA_WMMA_SPACES, kLoad, "sm_75", "wmma.load",
     bind::wmma_load_a},
    {"wmma.load.b", "f16", TESSERA_WMMA_ACCESS(TESSERA_WMMA_WIDE), kLoad, "sm_70", "wmma.load", bind::wmma_load_b},
    {"wmma.load.b", "s8|u8", TESSERA_WMMA_ACCESS(TESSERA_WMMA_WIDE), kLoad, "sm_72", "wmma.load", bind::wmma_load_b},
    {"wmma.load.b", "bf16", TESSERA_WMMA_ACCESS(TESSERA_WMMA_WIDE), kLoad, "sm_80", "wmma.load", bind::wmma_load_b},
    {"wmma.load.b", "tf32", TESSERA_WMMA_ACCESS("m16n16k8"), kLoad, "sm_80", "wmma.load", bind::wmma_load_b},
    {"wmma.load.b", "f64", TESSERA_WMMA_ACCESS("m8n8k4"), "v m s:u32?", "sm_80", "wmma.load", bind::wmma_load_b},
    {"wmma.load.b", "s4|u4", "sync [aligned] col m8n8k32 " TESSERA_WMMA_SPACES, kLoad, "sm_75", "wmma.load",
     bind::wmma_load_b},
    {"wmma.load.b", "b1", "sync [aligned] col m8n8k128 " TESSERA_WMMA_SPACES, kLoad, "sm_75", "wmma.load",
     bind::wmma_load_b},
    {"wmma.load.c", "f16|f32", TESSERA_WMMA_ACCESS(TESSERA_WMMA_WIDE), kLoad, "sm_70", "wmma.load", bind::wmma_load_c},
    {"wmma.load.c", "s32", TESSERA_WMMA_ACCESS(TESSERA_WMMA_WIDE), kLoad, "sm_72", "wmma.load", bind::wmma_load_c},
    {"wmma.load.c", "f32", TESSERA_WMMA_ACCESS("m16n16k8"), kLoad, "sm_80", "wmma.load", bind::wmma_load_c},
    {"wmma.load.c", "f64", TESSERA_WMMA_ACCESS("m8n8k4"), "v m s:u32?", "sm_80", "wmma.load", bind::wmma_load_c},
    {"wmma.load.c", "s32", TESSERA_WMMA_ACCESS("m8n8k32|m8n8k128"), kLoad, "sm_75", "wmma.load", bind::wmma_load_c},
    {"wmma.store.d", "f16|f32", TESSERA_WMMA_ACCESS(TESSERA_WMMA_WIDE), kStore, "sm_70", "wmma.store",
     bind::wmma_store},
    {"wmma.store.d", "s32", TESSERA_WMMA_ACCESS(TESSERA_WMMA_WIDE), kStore, "sm_72", "wmma.store", bind::wmma_store},
    {"wmma.store.d", "f32", TESSERA_WMMA_ACCESS("m16n16k8"), kStore, "sm_80", "wmma.store", bind::wmma_store},
    {"wmma.store.d", "f64", TESSERA_WMMA_ACCESS("m8n8k4"), "m u s:u32?", "sm_80", "wmma.store", bind::wmma_store},
    {"wmma.store.d", "s32", TESSERA_WMMA_ACCESS("m8n8k32|m8n8k128"), kStore, "sm_75", "wmma.store", bind::wmma_store},
    {"wmma.mma", "f32|f16 f32|f16", TESSERA_WMMA_PRODUCT(TESSERA_WMMA_WIDE), kProduct, "sm_70", "wmma.mma",
     bind::wmma_float},
    {"wmma.mma", "f32 bf16 bf16 f32", TESSERA_WMMA_PRODUCT(TESSERA_WMMA_WIDE), kProduct, "sm_80", "wmma.mma",
     bind::wmma_float},
    {"wmma.mma", "f32 tf32 tf32 f32", TESSERA_WMMA_PRODUCT("m16n16k8"), kProduct, "sm_80", "wmma.mma",
     bind::wmma_float},
    {"wmma.mma", "f64 f64 f64 f64", TESSERA_WMMA_PRODUCT("m8n8k4") " [rn|rz|rm|rp]", "v u u u", "sm_80", "wmma.mma",
     bind::wmma_f64},
    {"wmma.mma", "s32 s8 s8 s32", TESSERA_WMMA_PRODUCT(TESSERA_WMMA_WIDE) " [satfinite]", kProduct, "sm_72", "wmma.mma",
     bind::wmma_integer},
    {"wmma.mma", "s32 u8 u8 s32", TESSERA_WMMA_PRODUCT(TESSERA_WMMA_WIDE) " [satfinite]", kProduct, "sm_72", "wmma.mma",
     bind::wmma_integer},
    {"wmma.mma", "s32 s4 s4 s32", "sync [aligned] row col m8n8k32 [satfinite]", kProduct, "sm_75", "wmma.mma",
     bind::wmma_integer},
    {"wmma.mma", "s32 u4 u4 s32", "sync [aligned] row col m8n8k32 [satfinite]", kProduct, "sm_75", "wmma.mma",
     bind::wmma_integer},
    {"wmma.mma", "s32 b1 b1 s32", "xor|and popc sync [aligned] row col m8n8k128", kProduct, "sm_75", "wmma.mma",
     bind::wmma_bits},
};

}  // namespace

std::span<const Form> wmma_forms() noexcept { return kWmmaForms; }

}  // namespace tessera::emulator
