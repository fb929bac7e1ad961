// Kinds of matrix instructions of products, by their operands and the target.
#pragma once

#include <optional>

#include "spec/gemm_mma.h"
#include "tessera/problem.h"

namespace tessera {

/// Of products by mma.sync.
MmaKind mma_sync_kind(const gemm_mma::Config& config);
MmaKind mma_sync_kind(const Gemm& problem);
/// The kind that a target has by itself, where there is a word for it.
std::optional<MmaKind> own_mma_kind(const Gemm& problem);
/// Refuses a pin of another kind than that of these products, or, where they need no other name, mma_f16.
void require_mma_sync_kind(const Gemm& problem);

}  // namespace tessera
