// Buffers that attention_quantize writes and attention with dtype nvfp4 reads: both launches describe them by these.
#pragma once

#include <string>

#include "tessera/launch.h"

namespace tessera {

/// "q_blocks", "key_blocks" as text over sizes: blocks of 128 of all sequences.
std::string nvfp4_query_blocks();
std::string nvfp4_key_blocks();

/// q, k or v in units: u8.
BufferSpec nvfp4_units(const char* name, BufferRole role, int head_dim);
/// f32 [heads_q, q_blocks, 128 * ceil(seqlen_k / 128)].
BufferSpec nvfp4_delta_s(BufferRole role);
/// f32 [batch, heads_q, seqlen_q].
BufferSpec nvfp4_row_shift(BufferRole role);

}  // namespace tessera
