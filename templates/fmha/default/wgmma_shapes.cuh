// Generated: the registers of one kernel's consumers, and what is done with them. fmha/registers.cuh says how to use
// them.
#pragma once

#include "fmha/registers.cuh"

namespace tessera::fmha {

template <>
struct Registers<40, 64> {
  static __device__ __forceinline__ void declare() {
    asm volatile(".reg .b32 s<40>; .reg .b32 o<64>; .reg .b32 p<20>;");
  }
  static __device__ __forceinline__ void clear_probabilities() {
    asm volatile(
        "{ mov.b32 p0, 0; mov.b32 p1, 0; mov.b32 p2, 0; mov.b32 p3, 0; mov.b32 p4, 0; mov.b32 p5, 0; mov.b32 p6, 0; "
        "mov.b32 p7, 0; mov.b32 p8, 0; mov.b32 p9, 0; mov.b32 p10, 0; mov.b32 p11, 0; mov.b32 p12, 0; mov.b32 p13, 0; "
        "mov.b32 p14, 0; mov.b32 p15, 0; mov.b32 p16, 0; mov.b32 p17, 0; mov.b32 p18, 0; mov.b32 p19, 0; } "
        : );
  }
  static __device__ __forceinline__ void multiply_keys(unsigned q_low, unsigned k_low) {
    asm volatile(
        "{ .reg .pred t, u; .reg .b32 x, y, z; .reg .b64 a, b; mov.pred u, 1; mov.pred t, 0; mov.b32 y, 1073741888; "
        "mov.b32 z, 1073741888; add.s32 x, %0, 0; mov.b64 a, {x, y}; add.s32 x, %1, 0; mov.b64 b, {x, z}; "
        "wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, "
        "s13, s14, s15, s16, s17, s18, s19, s20, s21, s22, s23, s24, s25, s26, s27, s28, s29, s30, s31, s32, s33, s34, "
        "s35, s36, s37, s38, s39}, a, b, t, 1, 1, 0, 0; add.s32 x, %0, 2; mov.b64 a, {x, y}; add.s32 x, %1, 2; mov.b64 "
        "b, {x, z}; wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, "
        "s11, s12, s13, s14, s15, s16, s17, s18, s19, s20, s21, s22, s23, s24, s25, s26, s27, s28, s29, s30, s31, s32, "
        "s33, s34, s35, s36, s37, s38, s39}, a, b, u, 1, 1, 0, 0; add.s32 x, %0, 4; mov.b64 a, {x, y}; add.s32 x, %1, "
        "4; mov.b64 b, {x, z}; wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {s0, s1, s2, s3, s4, s5, s6, s7, "
        "s8, s9, s10, s11, s12, s13, s14, s15, s16, s17, s18, s19, s20, s21, s22, s23, s24, s25, s26, s27, s28, s29, "
        "s30, s31, s32, s33, s34, s35, s36, s37, s38, s39}, a, b, u, 1, 1, 0, 0; add.s32 x, %0, 6; mov.b64 a, {x, y}; "
        "add.s32 x, %1, 6; mov.b64 b, {x, z}; wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {s0, s1, s2, s3, "
        "s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15, s16, s17, s18, s19, s20, s21, s22, s23, s24, s25, s26, "
        "s27, s28, s29, s30, s31, s32, s33, s34, s35, s36, s37, s38, s39}, a, b, u, 1, 1, 0, 0; add.s32 x, %0, 512; "
        "mov.b64 a, {x, y}; add.s32 x, %1, 640; mov.b64 b, {x, z}; "
        "wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, "
        "s13, s14, s15, s16, s17, s18, s19, s20, s21, s22, s23, s24, s25, s26, s27, s28, s29, s30, s31, s32, s33, s34, "
        "s35, s36, s37, s38, s39}, a, b, u, 1, 1, 0, 0; add.s32 x, %0, 514; mov.b64 a, {x, y}; add.s32 x, %1, 642; "
        "mov.b64 b, {x, z}; wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {s0, s1, s2, s3, s4, s5, s6, s7, s8, "
        "s9, s10, s11, s12, s13, s14, s15, s16, s17, s18, s19, s20, s21, s22, s23, s24, s25, s26, s27, s28, s29, s30, "
        "s31, s32, s33, s34, s35, s36, s37, s38, s39}, a, b, u, 1, 1, 0, 0; add.s32 x, %0, 516; mov.b64 a, {x, y}; "
        "add.s32 x, %1, 644; mov.b64 b, {x, z}; wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {s0, s1, s2, s3, "
        "s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15, s16, s17, s18, s19, s20, s21, s22, s23, s24, s25, s26, "
        "s27, s28, s29, s30, s31, s32, s33, s34, s35, s36, s37, s38, s39}, a, b, u, 1, 1, 0, 0; add.s32 x, %0, 518; "
        "mov.b64 a, {x, y}; add.s32 x, %1, 646; mov.b64 b, {x, z}; "
        "wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, "
        "s13, s14, s15, s16, s17, s18, s19, s20, s21, s22, s23, s24, s25, s26, s27, s28, s29, s30, s31, s32, s33, s34, "
        "s35, s36, s37, s38, s39}, a, b, u, 1, 1, 0, 0; } "
        : : "r"(q_low), "r"(k_low) : "memory");
  }
  static __device__ __forceinline__ void multiply_values(unsigned v_low, int accumulate) {
    asm volatile(
        "{ .reg .pred t, u; .reg .b32 x, y; .reg .b64 b; mov.pred u, 1; setp.ne.b32 t, %1, 0; mov.b32 y, 1073741888; "
        "add.s32 x, %0, 0; mov.b64 b, {x, y}; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {o0, o1, o2, o3, "
        "o4, o5, o6, o7, o8, o9, o10, o11, o12, o13, o14, o15, o16, o17, o18, o19, o20, o21, o22, o23, o24, o25, o26, "
        "o27, o28, o29, o30, o31, o32, o33, o34, o35, o36, o37, o38, o39, o40, o41, o42, o43, o44, o45, o46, o47, o48, "
        "o49, o50, o51, o52, o53, o54, o55, o56, o57, o58, o59, o60, o61, o62, o63}, {p0, p1, p2, p3}, b, t, 1, 1, 1; "
        "add.s32 x, %0, 128; mov.b64 b, {x, y}; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {o0, o1, o2, o3, "
        "o4, o5, o6, o7, o8, o9, o10, o11, o12, o13, o14, o15, o16, o17, o18, o19, o20, o21, o22, o23, o24, o25, o26, "
        "o27, o28, o29, o30, o31, o32, o33, o34, o35, o36, o37, o38, o39, o40, o41, o42, o43, o44, o45, o46, o47, o48, "
        "o49, o50, o51, o52, o53, o54, o55, o56, o57, o58, o59, o60, o61, o62, o63}, {p4, p5, p6, p7}, b, u, 1, 1, 1; "
        "add.s32 x, %0, 256; mov.b64 b, {x, y}; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {o0, o1, o2, o3, "
        "o4, o5, o6, o7, o8, o9, o10, o11, o12, o13, o14, o15, o16, o17, o18, o19, o20, o21, o22, o23, o24, o25, o26, "
        "o27, o28, o29, o30, o31, o32, o33, o34, o35, o36, o37, o38, o39, o40, o41, o42, o43, o44, o45, o46, o47, o48, "
        "o49, o50, o51, o52, o53, o54, o55, o56, o57, o58, o59, o60, o61, o62, o63}, {p8, p9, p10, p11}, b, u, 1, 1, "
        "1; add.s32 x, %0, 384; mov.b64 b, {x, y}; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {o0, o1, o2, "
        "o3, o4, o5, o6, o7, o8, o9, o10, o11, o12, o13, o14, o15, o16, o17, o18, o19, o20, o21, o22, o23, o24, o25, "
        "o26, o27, o28, o29, o30, o31, o32, o33, o34, o35, o36, o37, o38, o39, o40, o41, o42, o43, o44, o45, o46, o47, "
        "o48, o49, o50, o51, o52, o53, o54, o55, o56, o57, o58, o59, o60, o61, o62, o63}, {p12, p13, p14, p15}, b, u, "
        "1, 1, 1; add.s32 x, %0, 512; mov.b64 b, {x, y}; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {o0, "
        "o1, o2, o3, o4, o5, o6, o7, o8, o9, o10, o11, o12, o13, o14, o15, o16, o17, o18, o19, o20, o21, o22, o23, "
        "o24, o25, o26, o27, o28, o29, o30, o31, o32, o33, o34, o35, o36, o37, o38, o39, o40, o41, o42, o43, o44, o45, "
        "o46, o47, o48, o49, o50, o51, o52, o53, o54, o55, o56, o57, o58, o59, o60, o61, o62, o63}, {p16, p17, p18, "
        "p19}, b, u, 1, 1, 1; } "
        : : "r"(v_low), "r"(accumulate) : "memory");
  }
  static __device__ __forceinline__ void read_scores(float (&scores)[40]) {
    asm volatile(
        "{ mov.b32 %0, s0; mov.b32 %1, s1; mov.b32 %2, s2; mov.b32 %3, s3; mov.b32 %4, s4; mov.b32 %5, s5; mov.b32 %6, "
        "s6; mov.b32 %7, s7; mov.b32 %8, s8; mov.b32 %9, s9; mov.b32 %10, s10; mov.b32 %11, s11; mov.b32 %12, s12; "
        "mov.b32 %13, s13; mov.b32 %14, s14; mov.b32 %15, s15; mov.b32 %16, s16; mov.b32 %17, s17; mov.b32 %18, s18; "
        "mov.b32 %19, s19; mov.b32 %20, s20; mov.b32 %21, s21; mov.b32 %22, s22; mov.b32 %23, s23; mov.b32 %24, s24; "
        "mov.b32 %25, s25; mov.b32 %26, s26; mov.b32 %27, s27; mov.b32 %28, s28; mov.b32 %29, s29; mov.b32 %30, s30; "
        "mov.b32 %31, s31; mov.b32 %32, s32; mov.b32 %33, s33; mov.b32 %34, s34; mov.b32 %35, s35; mov.b32 %36, s36; "
        "mov.b32 %37, s37; mov.b32 %38, s38; mov.b32 %39, s39; } "
        : "=f"(scores[0]), "=f"(scores[1]), "=f"(scores[2]), "=f"(scores[3]), "=f"(scores[4]), "=f"(scores[5]),
        "=f"(scores[6]), "=f"(scores[7]), "=f"(scores[8]), "=f"(scores[9]), "=f"(scores[10]), "=f"(scores[11]),
        "=f"(scores[12]), "=f"(scores[13]), "=f"(scores[14]), "=f"(scores[15]), "=f"(scores[16]), "=f"(scores[17]),
        "=f"(scores[18]), "=f"(scores[19]), "=f"(scores[20]), "=f"(scores[21]), "=f"(scores[22]), "=f"(scores[23]),
        "=f"(scores[24]), "=f"(scores[25]), "=f"(scores[26]), "=f"(scores[27]), "=f"(scores[28]), "=f"(scores[29]),
        "=f"(scores[30]), "=f"(scores[31]), "=f"(scores[32]), "=f"(scores[33]), "=f"(scores[34]), "=f"(scores[35]),
        "=f"(scores[36]), "=f"(scores[37]), "=f"(scores[38]), "=f"(scores[39]));
  }
  static __device__ __forceinline__ void write_scores(const float (&scores)[40]) {
    asm volatile(
        "{ mov.b32 s0, %0; mov.b32 s1, %1; mov.b32 s2, %2; mov.b32 s3, %3; mov.b32 s4, %4; mov.b32 s5, %5; mov.b32 s6, "
        "%6; mov.b32 s7, %7; mov.b32 s8, %8; mov.b32 s9, %9; mov.b32 s10, %10; mov.b32 s11, %11; mov.b32 s12, %12; "
        "mov.b32 s13, %13; mov.b32 s14, %14; mov.b32 s15, %15; mov.b32 s16, %16; mov.b32 s17, %17; mov.b32 s18, %18; "
        "mov.b32 s19, %19; mov.b32 s20, %20; mov.b32 s21, %21; mov.b32 s22, %22; mov.b32 s23, %23; mov.b32 s24, %24; "
        "mov.b32 s25, %25; mov.b32 s26, %26; mov.b32 s27, %27; mov.b32 s28, %28; mov.b32 s29, %29; mov.b32 s30, %30; "
        "mov.b32 s31, %31; mov.b32 s32, %32; mov.b32 s33, %33; mov.b32 s34, %34; mov.b32 s35, %35; mov.b32 s36, %36; "
        "mov.b32 s37, %37; mov.b32 s38, %38; mov.b32 s39, %39; } "
        : : "f"(scores[0]), "f"(scores[1]), "f"(scores[2]), "f"(scores[3]), "f"(scores[4]), "f"(scores[5]),
        "f"(scores[6]), "f"(scores[7]), "f"(scores[8]), "f"(scores[9]), "f"(scores[10]), "f"(scores[11]),
        "f"(scores[12]), "f"(scores[13]), "f"(scores[14]), "f"(scores[15]), "f"(scores[16]), "f"(scores[17]),
        "f"(scores[18]), "f"(scores[19]), "f"(scores[20]), "f"(scores[21]), "f"(scores[22]), "f"(scores[23]),
        "f"(scores[24]), "f"(scores[25]), "f"(scores[26]), "f"(scores[27]), "f"(scores[28]), "f"(scores[29]),
        "f"(scores[30]), "f"(scores[31]), "f"(scores[32]), "f"(scores[33]), "f"(scores[34]), "f"(scores[35]),
        "f"(scores[36]), "f"(scores[37]), "f"(scores[38]), "f"(scores[39]));
  }
  static __device__ __forceinline__ void read_output(float (&output)[64]) {
    asm volatile(
        "{ mov.b32 %0, o0; mov.b32 %1, o1; mov.b32 %2, o2; mov.b32 %3, o3; mov.b32 %4, o4; mov.b32 %5, o5; mov.b32 %6, "
        "o6; mov.b32 %7, o7; mov.b32 %8, o8; mov.b32 %9, o9; mov.b32 %10, o10; mov.b32 %11, o11; mov.b32 %12, o12; "
        "mov.b32 %13, o13; mov.b32 %14, o14; mov.b32 %15, o15; mov.b32 %16, o16; mov.b32 %17, o17; mov.b32 %18, o18; "
        "mov.b32 %19, o19; mov.b32 %20, o20; mov.b32 %21, o21; mov.b32 %22, o22; mov.b32 %23, o23; mov.b32 %24, o24; "
        "mov.b32 %25, o25; mov.b32 %26, o26; mov.b32 %27, o27; mov.b32 %28, o28; mov.b32 %29, o29; mov.b32 %30, o30; "
        "mov.b32 %31, o31; mov.b32 %32, o32; mov.b32 %33, o33; mov.b32 %34, o34; mov.b32 %35, o35; mov.b32 %36, o36; "
        "mov.b32 %37, o37; mov.b32 %38, o38; mov.b32 %39, o39; mov.b32 %40, o40; mov.b32 %41, o41; mov.b32 %42, o42; "
        "mov.b32 %43, o43; mov.b32 %44, o44; mov.b32 %45, o45; mov.b32 %46, o46; mov.b32 %47, o47; mov.b32 %48, o48; "
        "mov.b32 %49, o49; mov.b32 %50, o50; mov.b32 %51, o51; mov.b32 %52, o52; mov.b32 %53, o53; mov.b32 %54, o54; "
        "mov.b32 %55, o55; mov.b32 %56, o56; mov.b32 %57, o57; mov.b32 %58, o58; mov.b32 %59, o59; mov.b32 %60, o60; "
        "mov.b32 %61, o61; mov.b32 %62, o62; mov.b32 %63, o63; } "
        : "=f"(output[0]), "=f"(output[1]), "=f"(output[2]), "=f"(output[3]), "=f"(output[4]), "=f"(output[5]),
        "=f"(output[6]), "=f"(output[7]), "=f"(output[8]), "=f"(output[9]), "=f"(output[10]), "=f"(output[11]),
        "=f"(output[12]), "=f"(output[13]), "=f"(output[14]), "=f"(output[15]), "=f"(output[16]), "=f"(output[17]),
        "=f"(output[18]), "=f"(output[19]), "=f"(output[20]), "=f"(output[21]), "=f"(output[22]), "=f"(output[23]),
        "=f"(output[24]), "=f"(output[25]), "=f"(output[26]), "=f"(output[27]), "=f"(output[28]), "=f"(output[29]),
        "=f"(output[30]), "=f"(output[31]), "=f"(output[32]), "=f"(output[33]), "=f"(output[34]), "=f"(output[35]),
        "=f"(output[36]), "=f"(output[37]), "=f"(output[38]), "=f"(output[39]), "=f"(output[40]), "=f"(output[41]),
        "=f"(output[42]), "=f"(output[43]), "=f"(output[44]), "=f"(output[45]), "=f"(output[46]), "=f"(output[47]),
        "=f"(output[48]), "=f"(output[49]), "=f"(output[50]), "=f"(output[51]), "=f"(output[52]), "=f"(output[53]),
        "=f"(output[54]), "=f"(output[55]), "=f"(output[56]), "=f"(output[57]), "=f"(output[58]), "=f"(output[59]),
        "=f"(output[60]), "=f"(output[61]), "=f"(output[62]), "=f"(output[63]));
  }
  static __device__ __forceinline__ void mask(float factor, const int (&limits)[2], const int (&begins)[2]) {
    asm volatile(
        "{ .reg .pred t; .reg .f32 x, y; mov.b32 y, 0xff800000; setp.gt.s32 t, %1, 0; mul.f32 x, s0, %0; selp.b32 s0, "
        "x, y, t; setp.gt.s32 t, %1, 1; mul.f32 x, s1, %0; selp.b32 s1, x, y, t; setp.gt.s32 t, %2, 0; mul.f32 x, s2, "
        "%0; selp.b32 s2, x, y, t; setp.gt.s32 t, %2, 1; mul.f32 x, s3, %0; selp.b32 s3, x, y, t; setp.gt.s32 t, %1, "
        "8; mul.f32 x, s4, %0; selp.b32 s4, x, y, t; setp.gt.s32 t, %1, 9; mul.f32 x, s5, %0; selp.b32 s5, x, y, t; "
        "setp.gt.s32 t, %2, 8; mul.f32 x, s6, %0; selp.b32 s6, x, y, t; setp.gt.s32 t, %2, 9; mul.f32 x, s7, %0; "
        "selp.b32 s7, x, y, t; setp.gt.s32 t, %1, 16; mul.f32 x, s8, %0; selp.b32 s8, x, y, t; setp.gt.s32 t, %1, 17; "
        "mul.f32 x, s9, %0; selp.b32 s9, x, y, t; setp.gt.s32 t, %2, 16; mul.f32 x, s10, %0; selp.b32 s10, x, y, t; "
        "setp.gt.s32 t, %2, 17; mul.f32 x, s11, %0; selp.b32 s11, x, y, t; setp.gt.s32 t, %1, 24; mul.f32 x, s12, %0; "
        "selp.b32 s12, x, y, t; setp.gt.s32 t, %1, 25; mul.f32 x, s13, %0; selp.b32 s13, x, y, t; setp.gt.s32 t, %2, "
        "24; mul.f32 x, s14, %0; selp.b32 s14, x, y, t; setp.gt.s32 t, %2, 25; mul.f32 x, s15, %0; selp.b32 s15, x, y, "
        "t; setp.gt.s32 t, %1, 32; mul.f32 x, s16, %0; selp.b32 s16, x, y, t; setp.gt.s32 t, %1, 33; mul.f32 x, s17, "
        "%0; selp.b32 s17, x, y, t; setp.gt.s32 t, %2, 32; mul.f32 x, s18, %0; selp.b32 s18, x, y, t; setp.gt.s32 t, "
        "%2, 33; mul.f32 x, s19, %0; selp.b32 s19, x, y, t; setp.gt.s32 t, %1, 40; mul.f32 x, s20, %0; selp.b32 s20, "
        "x, y, t; setp.gt.s32 t, %1, 41; mul.f32 x, s21, %0; selp.b32 s21, x, y, t; setp.gt.s32 t, %2, 40; mul.f32 x, "
        "s22, %0; selp.b32 s22, x, y, t; setp.gt.s32 t, %2, 41; mul.f32 x, s23, %0; selp.b32 s23, x, y, t; setp.gt.s32 "
        "t, %1, 48; mul.f32 x, s24, %0; selp.b32 s24, x, y, t; setp.gt.s32 t, %1, 49; mul.f32 x, s25, %0; selp.b32 "
        "s25, x, y, t; setp.gt.s32 t, %2, 48; mul.f32 x, s26, %0; selp.b32 s26, x, y, t; setp.gt.s32 t, %2, 49; "
        "mul.f32 x, s27, %0; selp.b32 s27, x, y, t; setp.gt.s32 t, %1, 56; mul.f32 x, s28, %0; selp.b32 s28, x, y, t; "
        "setp.gt.s32 t, %1, 57; mul.f32 x, s29, %0; selp.b32 s29, x, y, t; setp.gt.s32 t, %2, 56; mul.f32 x, s30, %0; "
        "selp.b32 s30, x, y, t; setp.gt.s32 t, %2, 57; mul.f32 x, s31, %0; selp.b32 s31, x, y, t; setp.gt.s32 t, %1, "
        "64; mul.f32 x, s32, %0; selp.b32 s32, x, y, t; setp.gt.s32 t, %1, 65; mul.f32 x, s33, %0; selp.b32 s33, x, y, "
        "t; setp.gt.s32 t, %2, 64; mul.f32 x, s34, %0; selp.b32 s34, x, y, t; setp.gt.s32 t, %2, 65; mul.f32 x, s35, "
        "%0; selp.b32 s35, x, y, t; setp.gt.s32 t, %1, 72; mul.f32 x, s36, %0; selp.b32 s36, x, y, t; setp.gt.s32 t, "
        "%1, 73; mul.f32 x, s37, %0; selp.b32 s37, x, y, t; setp.gt.s32 t, %2, 72; mul.f32 x, s38, %0; selp.b32 s38, "
        "x, y, t; setp.gt.s32 t, %2, 73; mul.f32 x, s39, %0; selp.b32 s39, x, y, t; } "
        : : "f"(factor), "r"(limits[0]), "r"(limits[1]));
  }
  static __device__ __forceinline__ void find_maxima(float (&max)[2]) {
    asm volatile(
        "{ .reg .f32 x<4>; max.f32 x0, s0, s1; max.f32 x1, s2, s3; max.f32 x2, s4, s5; max.f32 x3, s6, s7; max.f32 x0, "
        "x0, s8; max.f32 x0, x0, s9; max.f32 x1, x1, s10; max.f32 x1, x1, s11; max.f32 x2, x2, s12; max.f32 x2, x2, "
        "s13; max.f32 x3, x3, s14; max.f32 x3, x3, s15; max.f32 x0, x0, s16; max.f32 x0, x0, s17; max.f32 x1, x1, s18; "
        "max.f32 x1, x1, s19; max.f32 x2, x2, s20; max.f32 x2, x2, s21; max.f32 x3, x3, s22; max.f32 x3, x3, s23; "
        "max.f32 x0, x0, s24; max.f32 x0, x0, s25; max.f32 x1, x1, s26; max.f32 x1, x1, s27; max.f32 x2, x2, s28; "
        "max.f32 x2, x2, s29; max.f32 x3, x3, s30; max.f32 x3, x3, s31; max.f32 x0, x0, s32; max.f32 x0, x0, s33; "
        "max.f32 x1, x1, s34; max.f32 x1, x1, s35; max.f32 x2, x2, s36; max.f32 x2, x2, s37; max.f32 x3, x3, s38; "
        "max.f32 x3, x3, s39; max.f32 %0, x0, x2; max.f32 %1, x1, x3; } "
        : "=f"(max[0]), "=f"(max[1]));
  }
  static __device__ __forceinline__ void rescale(const float (&factor)[2]) {
    asm volatile(
        "{ mul.f32 o0, o0, %0; mul.f32 o1, o1, %0; mul.f32 o2, o2, %1; mul.f32 o3, o3, %1; mul.f32 o4, o4, %0; mul.f32 "
        "o5, o5, %0; mul.f32 o6, o6, %1; mul.f32 o7, o7, %1; mul.f32 o8, o8, %0; mul.f32 o9, o9, %0; mul.f32 o10, o10, "
        "%1; mul.f32 o11, o11, %1; mul.f32 o12, o12, %0; mul.f32 o13, o13, %0; mul.f32 o14, o14, %1; mul.f32 o15, o15, "
        "%1; mul.f32 o16, o16, %0; mul.f32 o17, o17, %0; mul.f32 o18, o18, %1; mul.f32 o19, o19, %1; mul.f32 o20, o20, "
        "%0; mul.f32 o21, o21, %0; mul.f32 o22, o22, %1; mul.f32 o23, o23, %1; mul.f32 o24, o24, %0; mul.f32 o25, o25, "
        "%0; mul.f32 o26, o26, %1; mul.f32 o27, o27, %1; mul.f32 o28, o28, %0; mul.f32 o29, o29, %0; mul.f32 o30, o30, "
        "%1; mul.f32 o31, o31, %1; mul.f32 o32, o32, %0; mul.f32 o33, o33, %0; mul.f32 o34, o34, %1; mul.f32 o35, o35, "
        "%1; mul.f32 o36, o36, %0; mul.f32 o37, o37, %0; mul.f32 o38, o38, %1; mul.f32 o39, o39, %1; mul.f32 o40, o40, "
        "%0; mul.f32 o41, o41, %0; mul.f32 o42, o42, %1; mul.f32 o43, o43, %1; mul.f32 o44, o44, %0; mul.f32 o45, o45, "
        "%0; mul.f32 o46, o46, %1; mul.f32 o47, o47, %1; mul.f32 o48, o48, %0; mul.f32 o49, o49, %0; mul.f32 o50, o50, "
        "%1; mul.f32 o51, o51, %1; mul.f32 o52, o52, %0; mul.f32 o53, o53, %0; mul.f32 o54, o54, %1; mul.f32 o55, o55, "
        "%1; mul.f32 o56, o56, %0; mul.f32 o57, o57, %0; mul.f32 o58, o58, %1; mul.f32 o59, o59, %1; mul.f32 o60, o60, "
        "%0; mul.f32 o61, o61, %0; mul.f32 o62, o62, %1; mul.f32 o63, o63, %1; } "
        : : "f"(factor[0]), "f"(factor[1]));
  }
  static __device__ __forceinline__ void exponentiate(float multiplier, const float (&addend)[2], float (&sum)[2]) {
    asm volatile(
        "{ .reg .f32 x<4>; mov.f32 x0, %0; mov.f32 x1, %1; mov.f32 x2, 0f00000000; mov.f32 x3, 0f00000000; fma.rn.f32 "
        "s0, s0, %2, %3; ex2.approx.ftz.f32 s0, s0; add.f32 x0, x0, s0; fma.rn.f32 s1, s1, %2, %3; ex2.approx.ftz.f32 "
        "s1, s1; add.f32 x0, x0, s1; fma.rn.f32 s2, s2, %2, %4; ex2.approx.ftz.f32 s2, s2; add.f32 x1, x1, s2; "
        "fma.rn.f32 s3, s3, %2, %4; ex2.approx.ftz.f32 s3, s3; add.f32 x1, x1, s3; fma.rn.f32 s4, s4, %2, %3; "
        "ex2.approx.ftz.f32 s4, s4; add.f32 x2, x2, s4; fma.rn.f32 s5, s5, %2, %3; ex2.approx.ftz.f32 s5, s5; add.f32 "
        "x2, x2, s5; fma.rn.f32 s6, s6, %2, %4; ex2.approx.ftz.f32 s6, s6; add.f32 x3, x3, s6; fma.rn.f32 s7, s7, %2, "
        "%4; ex2.approx.ftz.f32 s7, s7; add.f32 x3, x3, s7; fma.rn.f32 s8, s8, %2, %3; ex2.approx.ftz.f32 s8, s8; "
        "add.f32 x0, x0, s8; fma.rn.f32 s9, s9, %2, %3; ex2.approx.ftz.f32 s9, s9; add.f32 x0, x0, s9; fma.rn.f32 s10, "
        "s10, %2, %4; ex2.approx.ftz.f32 s10, s10; add.f32 x1, x1, s10; fma.rn.f32 s11, s11, %2, %4; "
        "ex2.approx.ftz.f32 s11, s11; add.f32 x1, x1, s11; fma.rn.f32 s12, s12, %2, %3; ex2.approx.ftz.f32 s12, s12; "
        "add.f32 x2, x2, s12; fma.rn.f32 s13, s13, %2, %3; ex2.approx.ftz.f32 s13, s13; add.f32 x2, x2, s13; "
        "fma.rn.f32 s14, s14, %2, %4; ex2.approx.ftz.f32 s14, s14; add.f32 x3, x3, s14; fma.rn.f32 s15, s15, %2, %4; "
        "ex2.approx.ftz.f32 s15, s15; add.f32 x3, x3, s15; fma.rn.f32 s16, s16, %2, %3; ex2.approx.ftz.f32 s16, s16; "
        "add.f32 x0, x0, s16; fma.rn.f32 s17, s17, %2, %3; ex2.approx.ftz.f32 s17, s17; add.f32 x0, x0, s17; "
        "fma.rn.f32 s18, s18, %2, %4; ex2.approx.ftz.f32 s18, s18; add.f32 x1, x1, s18; fma.rn.f32 s19, s19, %2, %4; "
        "ex2.approx.ftz.f32 s19, s19; add.f32 x1, x1, s19; fma.rn.f32 s20, s20, %2, %3; ex2.approx.ftz.f32 s20, s20; "
        "add.f32 x2, x2, s20; fma.rn.f32 s21, s21, %2, %3; ex2.approx.ftz.f32 s21, s21; add.f32 x2, x2, s21; "
        "fma.rn.f32 s22, s22, %2, %4; ex2.approx.ftz.f32 s22, s22; add.f32 x3, x3, s22; fma.rn.f32 s23, s23, %2, %4; "
        "ex2.approx.ftz.f32 s23, s23; add.f32 x3, x3, s23; fma.rn.f32 s24, s24, %2, %3; ex2.approx.ftz.f32 s24, s24; "
        "add.f32 x0, x0, s24; fma.rn.f32 s25, s25, %2, %3; ex2.approx.ftz.f32 s25, s25; add.f32 x0, x0, s25; "
        "fma.rn.f32 s26, s26, %2, %4; ex2.approx.ftz.f32 s26, s26; add.f32 x1, x1, s26; fma.rn.f32 s27, s27, %2, %4; "
        "ex2.approx.ftz.f32 s27, s27; add.f32 x1, x1, s27; fma.rn.f32 s28, s28, %2, %3; ex2.approx.ftz.f32 s28, s28; "
        "add.f32 x2, x2, s28; fma.rn.f32 s29, s29, %2, %3; ex2.approx.ftz.f32 s29, s29; add.f32 x2, x2, s29; "
        "fma.rn.f32 s30, s30, %2, %4; ex2.approx.ftz.f32 s30, s30; add.f32 x3, x3, s30; fma.rn.f32 s31, s31, %2, %4; "
        "ex2.approx.ftz.f32 s31, s31; add.f32 x3, x3, s31; fma.rn.f32 s32, s32, %2, %3; ex2.approx.ftz.f32 s32, s32; "
        "add.f32 x0, x0, s32; fma.rn.f32 s33, s33, %2, %3; ex2.approx.ftz.f32 s33, s33; add.f32 x0, x0, s33; "
        "fma.rn.f32 s34, s34, %2, %4; ex2.approx.ftz.f32 s34, s34; add.f32 x1, x1, s34; fma.rn.f32 s35, s35, %2, %4; "
        "ex2.approx.ftz.f32 s35, s35; add.f32 x1, x1, s35; fma.rn.f32 s36, s36, %2, %3; ex2.approx.ftz.f32 s36, s36; "
        "add.f32 x2, x2, s36; fma.rn.f32 s37, s37, %2, %3; ex2.approx.ftz.f32 s37, s37; add.f32 x2, x2, s37; "
        "fma.rn.f32 s38, s38, %2, %4; ex2.approx.ftz.f32 s38, s38; add.f32 x3, x3, s38; fma.rn.f32 s39, s39, %2, %4; "
        "ex2.approx.ftz.f32 s39, s39; add.f32 x3, x3, s39; add.f32 %0, x0, x2; add.f32 %1, x1, x3; } "
        : "+f"(sum[0]), "+f"(sum[1]) : "f"(multiplier), "f"(addend[0]), "f"(addend[1]));
  }
  static __device__ __forceinline__ void pack() {
    asm volatile(
        "{ cvt.rn.bf16x2.f32 p0, s1, s0; cvt.rn.bf16x2.f32 p1, s3, s2; cvt.rn.bf16x2.f32 p2, s5, s4; cvt.rn.bf16x2.f32 "
        "p3, s7, s6; cvt.rn.bf16x2.f32 p4, s9, s8; cvt.rn.bf16x2.f32 p5, s11, s10; cvt.rn.bf16x2.f32 p6, s13, s12; "
        "cvt.rn.bf16x2.f32 p7, s15, s14; cvt.rn.bf16x2.f32 p8, s17, s16; cvt.rn.bf16x2.f32 p9, s19, s18; "
        "cvt.rn.bf16x2.f32 p10, s21, s20; cvt.rn.bf16x2.f32 p11, s23, s22; cvt.rn.bf16x2.f32 p12, s25, s24; "
        "cvt.rn.bf16x2.f32 p13, s27, s26; cvt.rn.bf16x2.f32 p14, s29, s28; cvt.rn.bf16x2.f32 p15, s31, s30; "
        "cvt.rn.bf16x2.f32 p16, s33, s32; cvt.rn.bf16x2.f32 p17, s35, s34; cvt.rn.bf16x2.f32 p18, s37, s36; "
        "cvt.rn.bf16x2.f32 p19, s39, s38; } "
        : );
  }
  static __device__ __forceinline__ void stage(unsigned address) {
    asm volatile(
        "{ .reg .b32 x<4>, y; cvt.rn.bf16x2.f32 x0, o1, o0; cvt.rn.bf16x2.f32 x1, o3, o2; cvt.rn.bf16x2.f32 x2, o5, "
        "o4; cvt.rn.bf16x2.f32 x3, o7, o6; xor.b32 y, %0, 0; stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [y+0], {x0, "
        "x1, x2, x3}; cvt.rn.bf16x2.f32 x0, o9, o8; cvt.rn.bf16x2.f32 x1, o11, o10; cvt.rn.bf16x2.f32 x2, o13, o12; "
        "cvt.rn.bf16x2.f32 x3, o15, o14; xor.b32 y, %0, 32; stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [y+0], {x0, "
        "x1, x2, x3}; cvt.rn.bf16x2.f32 x0, o17, o16; cvt.rn.bf16x2.f32 x1, o19, o18; cvt.rn.bf16x2.f32 x2, o21, o20; "
        "cvt.rn.bf16x2.f32 x3, o23, o22; xor.b32 y, %0, 64; stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [y+0], {x0, "
        "x1, x2, x3}; cvt.rn.bf16x2.f32 x0, o25, o24; cvt.rn.bf16x2.f32 x1, o27, o26; cvt.rn.bf16x2.f32 x2, o29, o28; "
        "cvt.rn.bf16x2.f32 x3, o31, o30; xor.b32 y, %0, 96; stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [y+0], {x0, "
        "x1, x2, x3}; cvt.rn.bf16x2.f32 x0, o33, o32; cvt.rn.bf16x2.f32 x1, o35, o34; cvt.rn.bf16x2.f32 x2, o37, o36; "
        "cvt.rn.bf16x2.f32 x3, o39, o38; xor.b32 y, %0, 0; stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [y+8192], "
        "{x0, x1, x2, x3}; cvt.rn.bf16x2.f32 x0, o41, o40; cvt.rn.bf16x2.f32 x1, o43, o42; cvt.rn.bf16x2.f32 x2, o45, "
        "o44; cvt.rn.bf16x2.f32 x3, o47, o46; xor.b32 y, %0, 32; stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 "
        "[y+8192], {x0, x1, x2, x3}; cvt.rn.bf16x2.f32 x0, o49, o48; cvt.rn.bf16x2.f32 x1, o51, o50; cvt.rn.bf16x2.f32 "
        "x2, o53, o52; cvt.rn.bf16x2.f32 x3, o55, o54; xor.b32 y, %0, 64; "
        "stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [y+8192], {x0, x1, x2, x3}; cvt.rn.bf16x2.f32 x0, o57, o56; "
        "cvt.rn.bf16x2.f32 x1, o59, o58; cvt.rn.bf16x2.f32 x2, o61, o60; cvt.rn.bf16x2.f32 x3, o63, o62; xor.b32 y, "
        "%0, 96; stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [y+8192], {x0, x1, x2, x3}; } "
        : : "r"(address) : "memory");
  }
};

}  // namespace tessera::fmha
