"""Attention of Hugging Face's transformers by tessera's kernels.

    import tessera.transformers
    tessera.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(..., dtype=torch.bfloat16, attn_implementation="tessera")

Forward only: for generation and evaluation. Causal and bidirectional layers, grouped heads, sliding windows, softcap,
sinks, and padded batches (packed to ragged ones, which waits for the GPU once a layer). 16-bit types. On the CPU the
emulator computes it: for tests.
"""

from __future__ import annotations

import torch
import transformers
from transformers.masking_utils import flash_attention_mask

from . import operators
from .errors import UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from torch import Tensor


def register(name: str = "tessera") -> None:
    """Makes attn_implementation=name known to transformers (4.53 and later)."""
    transformers.AttentionInterface.register(name, attention)
    transformers.AttentionMaskInterface.register(name, flash_attention_mask)


def attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """What transformers calls: query [batch, heads, q, d], key and value [batch, heads_kv, k, d]; [batch, q, heads, d].

    attention_mask: None, or [batch, k], true where a token is none of padding. s_aux: [heads], sinks. Raises
    UnsupportedError for dropout, gradients and types that no kernel has.
    """
    if dropout > 0 or (torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)):
        raise UnsupportedError("attention by tessera has no dropout and no gradients: use torch.no_grad()")
    q, k, v = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    wanted: dict[str, Any] = {
        "causal": getattr(module, "is_causal", True) if is_causal is None else is_causal,
        "softmax_scale": scaling,
        "softcap": softcap,
        "device": None if query.is_cuda else "emulator",
    }
    if sliding_window is not None:  # the token itself and sliding_window - 1 before it
        wanted["window"] = (sliding_window - 1, -1)
    if s_aux is not None:
        wanted["sink"] = s_aux.float()
    if attention_mask is None:
        return operators.fmha(q, k, v, **wanted), None
    return _padded(q, k, v, attention_mask.bool(), wanted), None


def _packed(rows: Tensor, is_valid: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of valid tokens one after the other, and where each sequence begins."""
    lengths = is_valid.sum(1, dtype=torch.int32)
    starts = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return rows[is_valid], starts


def _padded(q: Tensor, k: Tensor, v: Tensor, is_valid: Tensor, wanted: dict[str, Any]) -> Tensor:
    batch, length = q.shape[:2]
    of_queries = is_valid[:, -length:] if is_valid.shape[1] >= length else is_valid
    packed_q, starts_q = _packed(q, of_queries)
    keys = is_valid[:, : k.shape[1]]
    packed_k, starts_k = _packed(k[:, : keys.shape[1]], keys)
    packed_v, _ = _packed(v[:, : keys.shape[1]], keys)
    if packed_q.shape[0] == 0:
        return q.new_zeros((batch, length, q.shape[2], v.shape[-1]))
    packed = operators.fmha(
        packed_q, packed_k, packed_v, cu_seqlens_q=starts_q, cu_seqlens_k=starts_k, max_seqlen_k=k.shape[1], **wanted
    )
    o = packed.new_zeros((batch, length, *packed.shape[1:]))
    o[of_queries] = packed
    return o
