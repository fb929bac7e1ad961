// 2^x of scores: most by the special-function unit, some by the polynomial of spec/exponential.h, where why and how
// exactly is derived.
#pragma once

#include "ptx/float_pairs.cuh"
#include "ptx/math.cuh"
#include "ptx/max.cuh"
#include "spec/exponential.h"

namespace tessera::fmha_tcgen05 {

__device__ __forceinline__ ptx::FloatPair same_floats(float x) { return ptx::pack_floats(x, x); }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1030
inline constexpr bool kSharesExponentials = false;
#else
inline constexpr bool kSharesExponentials = true;
#endif

// Of both numbers of a pair, in steps from 0 to 5 that other work stands between: in a row they would keep the
// special-function unit waiting for its next operand.
struct PolynomialExp2 {
  ptx::FloatPair x;
  ptx::FloatPair shifted, f, p;

  __device__ __forceinline__ void horner(float coefficient) { p = ptx::fma_f32x2(p, f, same_floats(coefficient)); }
  // 2^n: its exponent is in the low bits. 2^-127 is 0 here.
  __device__ __forceinline__ ptx::FloatPair power() const {
    float low, high;
    ptx::unpack_floats(shifted, low, high);
    return ptx::pack_floats(__int_as_float(__float_as_int(low) << 23), __int_as_float(__float_as_int(high) << 23));
  }
  template <int kStep>
  __device__ __forceinline__ void step() {
    if constexpr (kStep == 0) {
      float low, high;
      ptx::unpack_floats(x, low, high);
      x = ptx::pack_floats(ptx::max_nan(low, kExp2Lowest), ptx::max_nan(high, kExp2Lowest));
      shifted = ptx::add_f32x2(x, same_floats(kExp2Round));
    } else if constexpr (kStep == 1) {
      f = ptx::sub_f32x2(x, ptx::sub_f32x2(shifted, same_floats(kExp2Round)));
    } else if constexpr (kStep == 2) {
      p = same_floats(exp2_coefficient(5));
      horner(exp2_coefficient(4));
      horner(exp2_coefficient(3));
    } else if constexpr (kStep == 3) {
      horner(exp2_coefficient(2));
      horner(exp2_coefficient(1));
    } else if constexpr (kStep == 4) {
      horner(1.0f);
      shifted = power();
    } else {
      p = ptx::mul_f32x2(p, shifted);
    }
  }
  __device__ __forceinline__ void result(float& low, float& high) const { ptx::unpack_floats(p, low, high); }
};

// 2^x of kGroup scores, the last two by the polynomial. `beside(i)`, i from 0 to 5, is other work: the unit takes a new
// operand every eighth cycle of a sub-core, and what else a warp does fits between.
inline constexpr int kGroup = 8;
template <class Beside>
__device__ __forceinline__ void exp2_of_group(const ptx::FloatPair (&x)[kGroup / 2], float (&y)[kGroup],
                                              const Beside& beside) {
  PolynomialExp2 polynomial{x[3]};
#pragma unroll
  for (int i = 0; i < kGroup; i += 2) ptx::unpack_floats(x[i / 2], y[i], y[i + 1]);
  y[0] = ptx::ex2(y[0]);
  if constexpr (kSharesExponentials) polynomial.step<0>();
  beside(0);
  y[1] = ptx::ex2(y[1]);
  if constexpr (kSharesExponentials) polynomial.step<1>();
  beside(1);
  y[2] = ptx::ex2(y[2]);
  if constexpr (kSharesExponentials) polynomial.step<2>();
  beside(2);
  y[3] = ptx::ex2(y[3]);
  if constexpr (kSharesExponentials) polynomial.step<3>();
  beside(3);
  y[4] = ptx::ex2(y[4]);
  if constexpr (kSharesExponentials) polynomial.step<4>();
  beside(4);
  y[5] = ptx::ex2(y[5]);
  if constexpr (kSharesExponentials) polynomial.step<5>();
  beside(5);
  if constexpr (kSharesExponentials) {
    polynomial.result(y[6], y[7]);
  } else {
    y[6] = ptx::ex2(y[6]);
    y[7] = ptx::ex2(y[7]);
  }
}

}  // namespace tessera::fmha_tcgen05
