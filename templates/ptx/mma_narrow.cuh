// Products of a warp from registers whose A has 8 bits: widened to f16 on the way, exactly. One statement each, so that
// the compiler has one to order, and not one for each word that is widened.
#pragma once

namespace tessera::ptx {

// PTX ISA "cvt" (.rn.f16x2.e4m3x2), PTX 8.1, sm_89, and "mma", PTX 7.0: as mma_m16n8k16 in f16, whose A are e4m3, four
// to a word, the lowest byte first. `upper` has four columns of row t / 4: those of a0, then those of a2. `lower` has
// the same of the row 8 further, a1 and a3.
__device__ __forceinline__ void mma_m16n8k16_e4m3(float* d, unsigned upper, unsigned lower, unsigned b0, unsigned b1) {
  asm volatile(
      "{\n\t.reg .b16 l, h;\n\t.reg .b32 a<4>;\n\t"
      "mov.b32 {l, h}, %4;\n\tcvt.rn.f16x2.e4m3x2 a0, l;\n\tcvt.rn.f16x2.e4m3x2 a2, h;\n\t"
      "mov.b32 {l, h}, %5;\n\tcvt.rn.f16x2.e4m3x2 a1, l;\n\tcvt.rn.f16x2.e4m3x2 a3, h;\n\t"
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {a0, a1, a2, a3}, {%6, %7}, "
      "{%0, %1, %2, %3};\n\t}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(upper), "r"(lower), "r"(b0), "r"(b1));
}

// The same of words that ldmatrix turned as pairs of bytes: a word's bytes 0 and 2 are of row t / 4, bytes 1 and 3 of
// the row 8 further. `left` has the columns of a0 and a1, `right` those of a2 and a3.
__device__ __forceinline__ void mma_m16n8k16_turned_e4m3(float* d, unsigned left, unsigned right, unsigned b0,
                                                         unsigned b1) {
  asm volatile(
      "{\n\t.reg .b16 l, h;\n\t.reg .b32 a<4>, x;\n\t"
      "prmt.b32 x, %4, 0, 0x3120;\n\tmov.b32 {l, h}, x;\n\t"
      "cvt.rn.f16x2.e4m3x2 a0, l;\n\tcvt.rn.f16x2.e4m3x2 a1, h;\n\t"
      "prmt.b32 x, %5, 0, 0x3120;\n\tmov.b32 {l, h}, x;\n\t"
      "cvt.rn.f16x2.e4m3x2 a2, l;\n\tcvt.rn.f16x2.e4m3x2 a3, h;\n\t"
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {a0, a1, a2, a3}, {%6, %7}, "
      "{%0, %1, %2, %3};\n\t}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(left), "r"(right), "r"(b0), "r"(b1));
}

}  // namespace tessera::ptx
