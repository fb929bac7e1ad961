// A kernel's first line: a Config that its own rules refuse does not compile, and the compiler's message shows the rule
// and both numbers, as in IllegalConfig<(tessera::gemm::Rule)7, 24LL, 16LL>.
#pragma once

namespace tessera::common {

// Complete for a legal Config's verdict alone.
template <auto kRule, long long kFound, long long kBound>
struct IllegalConfig;
template <auto kRule>
requires(kRule == decltype(kRule)::ok) struct IllegalConfig<kRule, 0, 0> {
};

// kVerdict: why_invalid() of the Config.
template <auto kVerdict>
__device__ __forceinline__ void require_legal() {
  IllegalConfig<kVerdict.rule, kVerdict.found, kVerdict.bound>{};
}

}  // namespace tessera::common
