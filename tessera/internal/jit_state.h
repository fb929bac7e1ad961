// What a Jit owns. Three levels of sharing: kernels by Problem (the hot path), kernels by entry key (Problems that
// differ in hints only share code), entries in the cache.
#pragma once

#include <atomic>
#include <future>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "tessera/compiler.h"
#include "tessera/jit.h"

namespace tessera {

/// Kernels with named arguments, by their operator's Problem.
template <class OperatorProblem, class NamedKernel>
class NamedKernels {
 public:
  std::optional<NamedKernel> find(const OperatorProblem& problem) const {
    const auto it = kernels_.find(problem);
    return it == kernels_.end() ? std::nullopt : std::optional<NamedKernel>(it->second);
  }
  NamedKernel add(const OperatorProblem& problem, const NamedKernel& kernel) {
    return kernels_.emplace(problem, kernel).first->second;
  }

 private:
  struct Hash {
    std::size_t operator()(const OperatorProblem& problem) const noexcept {
      return hash_of_facts(operator_type<OperatorProblem>(), &problem);
    }
  };
  std::unordered_map<OperatorProblem, NamedKernel, Hash> kernels_;
};

struct Jit::State {
  explicit State(JitOptions given);
  ~State();

  SourceBundle bundle(const Plan& plan) const;
  std::string source(const Plan& plan) const { return emit_single_file(plan, template_overrides); }
  CacheRequest request(const Plan& plan, const SourceBundle& bundle);
  Compiler* compiler_or_null();
  void set_compiler(std::shared_ptr<Compiler> given);

  std::shared_ptr<Kernel> held(const Problem& problem);
  std::shared_ptr<Kernel> hold(Plan plan, std::shared_ptr<const CacheEntry> entry);
  /// The kernel with named arguments: the one that is held, or what make() gives.
  template <class NamedKernel, class OperatorProblem, class Make>
  NamedKernel named(NamedKernels<OperatorProblem, NamedKernel> State::*kernels, const OperatorProblem& problem,
                    const Make& make) {
    {
      const std::shared_lock lock(kernels_mutex_);
      if (auto held = (this->*kernels).find(problem)) {
        kernel_hits.fetch_add(1, std::memory_order_relaxed);
        return *held;
      }
    }
    const NamedKernel made(make());
    const std::unique_lock lock(kernels_mutex_);
    return (this->*kernels).add(problem, made);
  }

  /// By the compile policy, within the time limit.
  std::shared_ptr<const CacheEntry> find_or_compile(const Plan& plan, const SourceBundle& bundle);
  /// The cache's entry, built where it has none: compiled, with events. Those of the end come when nobody waits for the
  /// compile any more, so that their function may ask for the kernel. Throws Error{io} where there is no compiler.
  /// `warning`: an event of its own before, if not empty. did_build: whether it was compiled here.
  std::shared_ptr<const CacheEntry> find_or_build(const CacheRequest& request, const SourceBundle& bundle,
                                                  const std::string& warning = {}, bool* did_build = nullptr);
  void emit_event(const JitEvent& event) const;
  /// An event for what the remote tier served.
  std::shared_ptr<const CacheEntry> said(const CacheRequest& request, std::shared_ptr<const CacheEntry> entry) const;

  JitOptions options;
  std::vector<SourceFile> template_overrides;
  Cache cache;
  std::atomic<std::int64_t> kernel_hits{0};
  NamedKernels<Fmha, FmhaKernel> fmha_kernels;  // under the lock of named()
  NamedKernels<Gemm, GemmKernel> gemm_kernels;

 private:
  std::shared_ptr<const CacheEntry> find_or_compile_within_limit(const CacheRequest& request,
                                                                 const SourceBundle& bundle,
                                                                 const std::string& warning);
  /// end: the event of the end, still to be told; nothing where the compile did not begin.
  Image compile(const CacheRequest& request, const SourceBundle& bundle, const std::string& warning,
                std::optional<JitEvent>& end);
  /// The kernel, and beside it the merge that belongs to it, which is an entry of its own.
  Image compile_with_merge(const CacheRequest& request, const SourceBundle& bundle, Compiler& compiler);

  std::once_flag compiler_once_;
  std::shared_ptr<Compiler> compiler_;
  std::string no_compiler_reason_;

  std::shared_mutex kernels_mutex_;
  std::unordered_map<Problem, std::shared_ptr<Kernel>, ProblemHash> kernels_;
  std::unordered_map<std::string, std::weak_ptr<Kernel>> kernels_by_key_;

  /// A compile that its waiters may give up on; it goes on, and later requests for the same kernel wait for it again.
  struct Background {
    std::shared_future<std::shared_ptr<const CacheEntry>> result;
    std::jthread thread;
  };
  std::mutex background_mutex_;
  std::unordered_map<std::string, Background> background_;  ///< by source key; last, so that its threads end first
};

/// The command that would have put this Problem's kernel into the cache: "tessera warm fmha --arch sm_90a --head-dim
/// 128".
std::string warm_command(const Problem& problem);

}  // namespace tessera
