#include "generator/products/mma_kinds.h"

#include <fmt/format.h>

#include "generator/facts.h"
#include "generator/operator_words.h"
#include "generator/words.h"
#include "tessera/error.h"
#include "tessera/targets.h"

namespace tessera {

MmaKind mma_sync_kind(const gemm_mma::Config& c) {
  if (c.facts.a_type == OperandType::nvfp4) return MmaKind::mma_mxf4nvf4;
  if (gemm_mma::is_scaled(c)) return gemm_mma::element_bits(c) == 4 ? MmaKind::mma_mxf4 : MmaKind::mma_mxf8f6f4;
  if (gemm_mma::element_bits(c) == 16) return MmaKind::mma_f16;
  return gemm_mma::is_integer(c) ? MmaKind::mma_i8 : MmaKind::mma_f8;
}

MmaKind mma_sync_kind(const Gemm& p) { return mma_sync_kind(gemm_mma::Config{.facts = product_facts(p)}); }

std::optional<MmaKind> own_mma_kind(const Gemm& p) {
  const bool is_16_bit = !p.format && (p.dtype == DType::bf16 || p.dtype == DType::f16);
  if (has_family(p.arch, MmaFamily::wgmma)) return is_16_bit ? std::optional(MmaKind::wgmma_f16) : std::nullopt;
  if (has_family(p.arch, MmaFamily::tcgen05)) {
    if (is_16_bit) return MmaKind::tcgen05_f16;
    if (!p.format && (p.dtype == DType::e4m3 || p.dtype == DType::e5m2)) return MmaKind::tcgen05_f8f6f4;
    return std::nullopt;
  }
  return mma_sync_kind(p);
}

void require_mma_sync_kind(const Gemm& p) {
  if (!p.mma_kind) return;
  if (!has_family(p.arch, MmaFamily::tcgen05) && names_mma_sync(*p.mma_kind, mma_sync_kind(p), p.arch)) return;
  const std::optional<MmaKind> own = own_mma_kind(p);
  throw Error(ErrorKind::unsupported,
              fmt::format("gemm has no kernel for mma_kind {} with dtype {} on {}: {}", to_word(*p.mma_kind),
                          p.format ? to_word(*p.format) : to_word(p.dtype), p.arch.to_string(),
                          own ? fmt::format("take {}", to_word(*own)) : "leave mma_kind auto"));
}

}  // namespace tessera
