// A matrix of 8 x 8 16-bit elements in the registers of a warp, transposed.
#pragma once

namespace tessera::ptx {

// PTX ISA "movmatrix", PTX 7.8, sm_75. Lane t gives columns 2 (t % 4) and the next of row t / 4, and gets rows
// 2 (t % 4) and the next of column t / 4. All lanes of the warp.
__device__ __forceinline__ unsigned movmatrix_trans(unsigned rows) {
  unsigned columns;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(columns) : "r"(rows));
  return columns;
}

}  // namespace tessera::ptx
