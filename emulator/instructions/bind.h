// The binders that the instruction table names, by the file that defines them. A binder looks at types and modifiers
// and answers the handler; no test is left to make when the instruction runs.
#pragma once

#include "emulator/syntax/isa.h"

namespace tessera::emulator::bind {

// exec_integer.cpp
Handler add_int(const Decoded& d);
Handler sub_int(const Decoded& d);
Handler mul_int(const Decoded& d);
Handler mad_int(const Decoded& d);
Handler mul24(const Decoded& d);
Handler mad24(const Decoded& d);
Handler sad(const Decoded& d);
Handler div_int(const Decoded& d);
Handler rem(const Decoded& d);
Handler abs_int(const Decoded& d);
Handler neg_int(const Decoded& d);
Handler min_int(const Decoded& d);
Handler max_int(const Decoded& d);
Handler dp4a(const Decoded& d);
Handler vabsdiff(const Decoded& d);
Handler carry_add(const Decoded& d);
Handler carry_mad(const Decoded& d);

// exec_bits.cpp
Handler logic(const Decoded& d);
Handler not_(const Decoded& d);
Handler cnot(const Decoded& d);
Handler lop3(const Decoded& d);
Handler shl(const Decoded& d);
Handler shr(const Decoded& d);
Handler shf(const Decoded& d);
Handler popc(const Decoded& d);
Handler clz(const Decoded& d);
Handler brev(const Decoded& d);
Handler bfind(const Decoded& d);
Handler bfe(const Decoded& d);
Handler bfi(const Decoded& d);
Handler bmsk(const Decoded& d);
Handler prmt(const Decoded& d);

// exec_float.cpp
Handler add_float(const Decoded& d);
Handler sub_float(const Decoded& d);
Handler mul_float(const Decoded& d);
Handler fma(const Decoded& d);
Handler div_float(const Decoded& d);
Handler neg_float(const Decoded& d);
Handler abs_float(const Decoded& d);
Handler min_float(const Decoded& d);
Handler max_float(const Decoded& d);
Handler rcp(const Decoded& d);
Handler sqrt(const Decoded& d);
Handler approx(const Decoded& d);
Handler copysign(const Decoded& d);
Handler testp(const Decoded& d);

// exec_half.cpp
Handler add_half(const Decoded& d);
Handler sub_half(const Decoded& d);
Handler mul_half(const Decoded& d);
Handler fma_half(const Decoded& d);
Handler neg_half(const Decoded& d);
Handler abs_half(const Decoded& d);
Handler min_half(const Decoded& d);
Handler max_half(const Decoded& d);
Handler approx_half(const Decoded& d);

// exec_mixed.cpp
Handler float_pair(const Decoded& d);
Handler float_mixed(const Decoded& d);

// exec_pack.cpp
Handler dp2a(const Decoded& d);
Handler szext(const Decoded& d);
Handler fns(const Decoded& d);
Handler cvt_pack(const Decoded& d);
Handler lop3_predicate(const Decoded& d);

// exec_compare.cpp
Handler setp(const Decoded& d);
Handler set(const Decoded& d);
Handler selp(const Decoded& d);
Handler slct(const Decoded& d);

// exec_convert.cpp
Handler cvt(const Decoded& d);
Handler cvt_packed(const Decoded& d);

// exec_move.cpp
Handler mov(const Decoded& d);
Handler cvta(const Decoded& d);
Handler isspacep(const Decoded& d);
Handler mapa(const Decoded& d);
Handler getctarank(const Decoded& d);

// exec_memory.cpp
Handler ld(const Decoded& d);
Handler st(const Decoded& d);
Handler nothing(const Decoded& d);

// exec_atomic.cpp
Handler atom(const Decoded& d);
Handler red(const Decoded& d);

// exec_control.cpp
Handler bra(const Decoded& d);
Handler brx(const Decoded& d);
Handler exit(const Decoded& d);
Handler trap(const Decoded& d);
Handler nanosleep(const Decoded& d);

// exec_call.cpp
Handler call_builtin(const Decoded& d);

// exec_function.cpp
Handler call(const Decoded& d);
Handler return_from_function(const Decoded& d);
Handler alloca_(const Decoded& d);
Handler stacksave(const Decoded& d);
Handler stackrestore(const Decoded& d);

// exec_warp.cpp
Handler shfl(const Decoded& d);
Handler vote(const Decoded& d);
Handler match(const Decoded& d);
Handler redux(const Decoded& d);
Handler activemask(const Decoded& d);
Handler elect(const Decoded& d);
Handler warp_sync(const Decoded& d);

// exec_barrier.cpp
Handler barrier(const Decoded& d);
Handler cluster_barrier(const Decoded& d);
Handler fence(const Decoded& d);
Handler grid_control(const Decoded& d);
Handler fence_proxy_async(const Decoded& d);
Handler setmaxnreg(const Decoded& d);

// exec_texture.cpp, exec_surface.cpp
Handler tex(const Decoded& d);
Handler tld4(const Decoded& d);
Handler texture_query(const Decoded& d);
Handler istypep(const Decoded& d);
Handler suld(const Decoded& d);
Handler sust(const Decoded& d);

// exec_mbarrier.cpp
Handler mbarrier_init(const Decoded& d);
Handler mbarrier_inval(const Decoded& d);
Handler mbarrier_arrive(const Decoded& d);
Handler mbarrier_tx(const Decoded& d);
Handler mbarrier_wait(const Decoded& d);
Handler mbarrier_pending_count(const Decoded& d);

// exec_copy.cpp
Handler cp_async(const Decoded& d);
Handler cp_async_commit(const Decoded& d);
Handler cp_async_wait(const Decoded& d);
Handler cp_async_mbarrier(const Decoded& d);

// exec_bulk.cpp
Handler bulk_commit(const Decoded& d);
Handler bulk_wait(const Decoded& d);
Handler bulk_load(const Decoded& d);
Handler bulk_store(const Decoded& d);
Handler bulk_to_cluster(const Decoded& d);
Handler st_async(const Decoded& d);

// exec_async_store.cpp
Handler st_async(const Decoded& d);
Handler st_bulk(const Decoded& d);

// exec_tensormap.cpp
Handler tensormap_replace(const Decoded& d);
Handler tensormap_copy(const Decoded& d);
Handler tensormap_fence(const Decoded& d);

// exec_tensor.cpp
Handler tensor_load(const Decoded& d);
Handler tensor_store(const Decoded& d);

// exec_matrix.cpp
Handler ldmatrix(const Decoded& d);
Handler stmatrix(const Decoded& d);
Handler movmatrix(const Decoded& d);

// exec_mma.cpp, exec_mma_integer.cpp, exec_mma_sparse.cpp
Handler mma_float(const Decoded& d);
Handler mma_fp4(const Decoded& d);
Handler mma_f64(const Decoded& d);
Handler mma_integer(const Decoded& d);
Handler mma_bits(const Decoded& d);
Handler mma_sparse(const Decoded& d);

// exec_wmma.cpp, exec_wmma_mma.cpp
Handler wmma_load_a(const Decoded& d);
Handler wmma_load_b(const Decoded& d);
Handler wmma_load_c(const Decoded& d);
Handler wmma_store(const Decoded& d);
Handler wmma_float(const Decoded& d);
Handler wmma_f64(const Decoded& d);
Handler wmma_integer(const Decoded& d);
Handler wmma_bits(const Decoded& d);

// exec_tmem.cpp, exec_tmem_move.cpp
Handler tcgen05_alloc(const Decoded& d);
Handler tcgen05_dealloc(const Decoded& d);
Handler tcgen05_relinquish(const Decoded& d);
Handler tcgen05_wait(const Decoded& d);
Handler tcgen05_fence(const Decoded& d);
Handler tcgen05_ld(const Decoded& d);
Handler tcgen05_ld_red(const Decoded& d);
Handler tcgen05_st(const Decoded& d);

// exec_tensor_commit.cpp, exec_tensor_mma.cpp, exec_tensor_copy.cpp
Handler tcgen05_commit(const Decoded& d);
Handler tcgen05_mma(const Decoded& d);
Handler tcgen05_cp(const Decoded& d);

// exec_launch_control.cpp
Handler try_cancel(const Decoded& d);
Handler query_cancel(const Decoded& d);

// exec_wgmma.cpp
Handler wgmma(const Decoded& d);
Handler wgmma_integer(const Decoded& d);
Handler wgmma_fence(const Decoded& d);
Handler wgmma_commit(const Decoded& d);
Handler wgmma_wait(const Decoded& d);

}  // namespace tessera::emulator::bind
