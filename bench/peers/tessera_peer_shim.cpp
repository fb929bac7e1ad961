// A few C functions over the library, so that a Python program can launch our kernels beside a peer's on the same
// tensors and stream: tessera_bench_fmha_open, _workspace, _launch, _close, and the same for gemm;
// tessera_bench_gemm_candidates lists the planner's. Errors are returned as text, null when all is well.
#include <cstdint>
#include <memory>
#include <string>

#include "bench/peers/shim_problem.h"
#include "generator/tuning.h"
#include "tessera/jit.h"
#include "tessera/plan.h"

namespace {

using tessera::bench::guarded;
using tessera::bench::jit;
using tessera::bench::problem_of;

tessera::FmhaArguments arguments_of(const std::uint64_t* pointers, const std::int64_t* sizes) {
  return {.q = pointers[0],
          .k = pointers[1],
          .v = pointers[2],
          .o = pointers[3],
          .lse = pointers[4],
          .row_max = pointers[5],
          .row_sum = pointers[6],
          .seqused_q = pointers[9],
          .seqused_k = pointers[8],
          .k_descale = pointers[10],
          .v_descale = pointers[11],
          .q_descale = pointers[12],
          .batch = sizes[0],
          .heads_q = sizes[1],
          .heads_kv = sizes[2],
          .seqlen_q = sizes[3],
          .seqlen_k = sizes[4],
          .workspace = pointers[7],
          .workspace_bytes = sizes[5]};
}

tessera::FmhaArguments paged_arguments_of(const std::uint64_t* pointers, const std::int64_t* sizes) {
  return {.q = pointers[0],
          .k = pointers[1],
          .v = pointers[2],
          .o = pointers[3],
          .seqused_k = pointers[4],
          .block_table = pointers[5],
          .k_descale = pointers[7],
          .v_descale = pointers[8],
          .batch = sizes[0],
          .heads_q = sizes[1],
          .heads_kv = sizes[2],
          .seqlen_q = sizes[3],
          .seqlen_k = sizes[4],
          .pages = sizes[5],
          .max_pages = sizes[6],
          .workspace = pointers[6],
          .workspace_bytes = sizes[7]};
}

}  // namespace

extern "C" {

/// selectors: "head_dim=128,mask=causal,dtype=bf16". *kernel receives a handle for the other calls, *name the entry's
/// name.
const char* tessera_bench_fmha_open(const char* selectors, void** kernel, const char** name) {
  return guarded([&] {
    const tessera::Problem problem = problem_of("fmha", selectors);
    auto opened = std::make_unique<tessera::FmhaKernel>(jit().kernel(problem.as<tessera::Fmha>()));
    opened->prepare();
    *name = opened->kernel().plan().kernel.c_str();
    *kernel = opened.release();
  });
}

/// Dense [batch, seqlen, heads, head_dim] tensors; stream is a CUstream. pointers: q, k, v, o, lse, row_max, row_sum,
/// workspace, seqused_k, seqused_q, k_descale, v_descale, q_descale. sizes: batch, heads_q, heads_kv, seqlen_q,
/// seqlen_k, bytes of workspace.
const char* tessera_bench_fmha_launch(void* kernel, void* stream, const std::uint64_t* pointers,
                                      const std::int64_t* sizes) {
  return guarded([&] { static_cast<tessera::FmhaKernel*>(kernel)->launch(stream, arguments_of(pointers, sizes)); });
}

/// *bytes: of workspace that a launch needs.
const char* tessera_bench_fmha_workspace(void* kernel, const std::uint64_t* pointers, const std::int64_t* sizes,
                                         std::int64_t* bytes) {
  return guarded(
      [&] { *bytes = static_cast<tessera::FmhaKernel*>(kernel)->workspace_bytes(arguments_of(pointers, sizes)); });
}

/// Keys in pages: pools [pages, page_size, heads_kv, head_dim]. pointers: q, k, v, o, seqused_k, block_table,
/// workspace, k_descale, v_descale. sizes: batch, heads_q, heads_kv, seqlen_q, seqlen_k, pages, max_pages, bytes of
/// workspace.
const char* tessera_bench_fmha_paged_launch(void* kernel, void* stream, const std::uint64_t* pointers,
                                            const std::int64_t* sizes) {
  return guarded(
      [&] { static_cast<tessera::FmhaKernel*>(kernel)->launch(stream, paged_arguments_of(pointers, sizes)); });
}
const char* tessera_bench_fmha_paged_workspace(void* kernel, const std::uint64_t* pointers, const std::int64_t* sizes,
                                               std::int64_t* bytes) {
  return guarded([&] {
    *bytes = static_cast<tessera::FmhaKernel*>(kernel)->workspace_bytes(paged_arguments_of(pointers, sizes));
  });
}

void tessera_bench_fmha_close(void* kernel) { delete static_cast<tessera::FmhaKernel*>(kernel); }

const char* tessera_bench_gemm_open(const char* selectors, void** kernel, const char** name) {
  return guarded([&] {
    const tessera::Problem problem = problem_of("gemm", selectors);
    auto opened = std::make_unique<tessera::GemmKernel>(jit().kernel(problem.as<tessera::Gemm>()));
    opened->prepare();
    *name = opened->kernel().plan().kernel.c_str();
    *kernel = opened.release();
  });
}

/// Dense matrices; pointers: a, b, c, d, scale_a, scale_b. sizes: m, n, k, l.
const char* tessera_bench_gemm_launch(void* kernel, void* stream, const std::uint64_t* pointers,
                                      const std::int64_t* sizes) {
  return guarded([&] {
    static_cast<tessera::GemmKernel*>(kernel)->launch(stream, {.a = pointers[0],
                                                               .b = pointers[1],
                                                               .c = pointers[2],
                                                               .d = pointers[3],
                                                               .scale_a = pointers[4],
                                                               .scale_b = pointers[5],
                                                               .m = sizes[0],
                                                               .n = sizes[1],
                                                               .k = sizes[2],
                                                               .l = sizes[3]});
  });
}

/// *list: a line for each legal candidate, the planner's choice first: the pins that ask for it ("tile_m=64,...").
const char* tessera_bench_gemm_candidates(const char* selectors, const char** list) {
  return guarded([&] {
    thread_local std::string text;
    text.clear();
    for (const tessera::Problem& one : tessera::pinned_candidates(problem_of("gemm", selectors))) {
      std::string pins;
      for (const tessera::Selector& selector : tessera::selectors("gemm"))
        if (selector.kind == tessera::SelectorKind::pin && selector.text(one) != "auto")
          pins += (pins.empty() ? "" : ",") + std::string(selector.key) + "=" + selector.text(one);
      text += pins + "\n";
    }
    *list = text.c_str();
  });
}

void tessera_bench_gemm_close(void* kernel) { delete static_cast<tessera::GemmKernel*>(kernel); }
}
