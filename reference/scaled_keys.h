// Keys and values that are codes with scales (kv_format), and the bf16 ones that attention takes them for: each the
// product of a code and its block's scale, which bf16 holds. A scale of ue4m3 that is NaN counts as 480.
#pragma once

#include "reference/tensor.h"
#include "tessera/spec/attention_types.h"

namespace tessera::reference {

/// Dense, [batch, keys, heads, ..]: codes of a key, of e2m1 two a byte, and its scales.
struct ScaledKeys {
  Tensor codes;
  Tensor scales;
};

/// The nearest ones of [batch, keys, heads, head_dim], under scales that their largest numbers ask for; `is_exact`:
/// under scales of 1, for small whole numbers.
ScaledKeys scaled_keys(KvFormat format, const Tensor& keys, bool is_exact = false);
/// bf16 [batch, keys, heads, head_dim].
Tensor widened_keys(KvFormat format, const ScaledKeys& keys);

}  // namespace tessera::reference
