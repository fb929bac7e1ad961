// Jit: plan, emit, compile, cache, load, launch. The table of contents of tessera.
//
//   plan     make_bare_plan(problem)            which kernel, and the launch as data               generator/
//   emit     emit(plan)                         the sources, whole                                 generator/
//   compile  compiler().compile(bundle)         PTX, cubin and the assembler's report              runtime/nvrtc
//   cache    cache().find_or_build(request)     memory, user folder, system folders, then compile  runtime/cache
//   load     Kernel::prepare(device)            code and parameter layout in one context           tessera/kernel.cpp
//   launch   Launcher::launch(stream, ...)      sizes -> grids, maps, parameters -> driver         runtime/launcher
//
// A kernel that this Jit already holds is found by its Problem alone, under a shared lock, before any of that happens.

#include "tessera/jit.h"

#include <fmt/format.h>

#include "base/default_arithmetic.h"
#include "tessera/internal/jit_state.h"

namespace tessera {

Jit::Jit(JitOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Jit::~Jit() = default;

Cache& Jit::cache() { return state_->cache; }
const JitOptions& Jit::options() const noexcept { return state_->options; }
Compiler* Jit::compiler() { return state_->compiler_or_null(); }
void Jit::set_compiler(std::shared_ptr<Compiler> compiler) { state_->set_compiler(std::move(compiler)); }

SourceBundle Jit::bundle(const Plan& plan) const {
  const DefaultArithmetic arithmetic;
  return state_->bundle(plan);
}
std::string Jit::source(const Plan& plan) const {
  const DefaultArithmetic arithmetic;
  return state_->source(plan);
}
EntryKeys Jit::keys(const Plan& plan) {
  const DefaultArithmetic arithmetic;
  return state_->request(plan, state_->bundle(plan)).keys;
}

JitStats Jit::stats() const {
  return {.cache = state_->cache.stats(), .kernel_hits = state_->kernel_hits.load(std::memory_order_relaxed)};
}

FmhaKernel Jit::kernel(const Fmha& problem) {
  return state_->named(&State::fmha_kernels, problem, [&] { return FmhaKernel(kernel(Problem(problem))); });
}

GemmKernel Jit::kernel(const Gemm& problem) {
  return state_->named(&State::gemm_kernels, problem, [&] { return GemmKernel(kernel(Problem(problem))); });
}

std::shared_ptr<Kernel> Jit::kernel(const Problem& problem) {
  if (auto held = state_->held(problem)) return held;
  return kernel(make_bare_plan(problem));
}

std::shared_ptr<Kernel> Jit::kernel(Plan plan) {
  if (auto held = state_->held(plan.problem)) return held;
  const DefaultArithmetic arithmetic;
  auto entry = state_->find_or_compile(plan, state_->bundle(plan));
  return state_->hold(std::move(plan), std::move(entry));
}

}  // namespace tessera
