// The parts of the instruction table, by family, and the lists of words that several rows share. isa.h says how a row
// reads, operand_patterns.cpp how its operands do.
#pragma once

#include <span>

#include "emulator/instructions/bind.h"
#include "emulator/syntax/isa.h"

namespace tessera::emulator {

std::span<const Form> arithmetic_forms() noexcept;
std::span<const Form> memory_forms() noexcept;
std::span<const Form> texture_forms() noexcept;
std::span<const Form> control_forms() noexcept;
std::span<const Form> async_forms() noexcept;
std::span<const Form> matrix_forms() noexcept;
std::span<const Form> wmma_forms() noexcept;
std::span<const Form> tensor_forms() noexcept;

}  // namespace tessera::emulator

#define TESSERA_COMPARE "eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan [and|or|xor]"
#define TESSERA_LOAD_CACHE                                                                                       \
  "[ca|cg|cs|lu|cv] [nc] [L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate] " \
  "[L2::evict_normal|L2::evict_first|L2::evict_last] [L2::cache_hint] [L2::64B|L2::128B|L2::256B] "
#define TESSERA_ORDER "[mmio] [weak|volatile|relaxed|acquire|release|acq_rel] [cta|cluster|gpu|sys] "
#define TESSERA_SPACES "[global|shared|shared::cta|shared::cluster|local]"
#define TESSERA_INTS "u16|u32|u64|s16|s32|s64"
#define TESSERA_CVT_INTS "u8|u16|u32|u64|s8|s16|s32|s64"
#define TESSERA_MEMORY_TYPES "b8|b16|b32|b64|b128|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64"
/// Targets that have the narrow formats: 8-bit matrices of ldmatrix and stmatrix, cvt of fp4, fp6 and ue8m0.
#define TESSERA_NARROW_TARGETS "sm_100a|sm_103a|sm_110a|sm_120a|sm_121a|sm_100f|sm_103f|sm_110f|sm_120f|sm_121f"
