// The instruction table: textures and surfaces.
#include "emulator/syntax/isa_table.h"

namespace tessera::emulator {
namespace {

#define TESSERA_TEXTURES "1d|2d|3d|a1d|a2d|cube|acube"
#define TESSERA_SURFACES "1d|2d|3d|a1d|a2d"

constexpr std::string_view kOthers =
    "not supported: texture and surface references, f16x2 results, offsets, depth comparison and multisampled textures";

constexpr Form kTextureForms[] = {
    {"tex", "s32|u32|f32 s32|f32", "[base] " TESSERA_TEXTURES " v4", "V M", "sm_70", "Texture: tex", bind::tex},
    {"tex", "s32|u32|f32 s32|f32", "level " TESSERA_TEXTURES " v4", "V M s:b32", "sm_70", "Texture: tex", bind::tex},
    {"tex", "s32|u32|f32 f32", "grad " TESSERA_TEXTURES " v4", "V M u:b32 u:b32", "sm_70", "Texture: tex", bind::tex},
    {"tex", "*", "*", "", "sm_70", "Texture: tex", nullptr, kOthers},
    {"tld4", "s32|u32|f32 f32", "r|g|b|a 2d|a2d v4", "V M", "sm_70", "Texture: tld4", bind::tld4},
    {"tld4", "*", "*", "", "sm_70", "Texture: tld4", nullptr, kOthers},
    {"txq", "b32", "width|height|depth|array_size|num_mipmap_levels|normalized_coords", "d m", "sm_70", "Texture: txq",
     bind::texture_query},
    {"txq", "b32", "level width|height|depth", "d m s", "sm_70", "Texture: txq", bind::texture_query},
    {"txq", "*", "*", "", "sm_70", "Texture: txq", nullptr, kOthers},
    {"istypep", "", "texref|samplerref|surfref", "p s:b64", "sm_70", "Texture: istypep", bind::istypep},
    {"suld.b", "b8|b16|b32|b64", TESSERA_SURFACES " [ca|cg|cs|cv] [v2|v4] trap|clamp|zero", "vx M", "sm_70",
     "Surface: suld", bind::suld},
    {"suld", "*", "*", "", "sm_70", "Surface: suld", nullptr, kOthers},
    {"sust.b", "b8|b16|b32|b64", TESSERA_SURFACES " [wb|cg|cs|wt] [v2|v4] trap|clamp|zero", "M ux", "sm_70",
     "Surface: sust", bind::sust},
    {"sust", "*", "*", "", "sm_70", "Surface: sust", nullptr, "not supported: sust.p, which converts what it stores"},
    {"sured", "*", "*", "", "sm_70", "Surface: sured", nullptr, "not supported: reductions in surfaces"},
    {"suq", "b32", "width|height|depth|array_size", "d m", "sm_70", "Surface: suq", bind::texture_query},
    {"suq", "*", "*", "", "sm_70", "Surface: suq", nullptr, kOthers},
};

}  // namespace

std::span<const Form> texture_forms() noexcept { return kTextureForms; }

}  // namespace tessera::emulator
