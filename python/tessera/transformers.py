"""Attention of Hugging Face's transformers by tessera's kernels.

    import tessera.transformers
    tessera.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(..., dtype=torch.bfloat16, attn_implementation="tessera")

Forward only: for generation and evaluation. Causal and bidirectional layers, grouped heads, sliding windows, softcap,
sinks, dynamic and static caches, packed sequences (cu_seq_lens_q and _k, or position_ids that restart), and padded
batches (packed to ragged ones, which waits for the GPU once a layer). 16-bit types. Masks of four dimensions, biases and
chunked or blockwise layers are refused. On the CPU the emulator computes it: for tests.
"""

from __future__ import annotations

import weakref

import torch
import transformers

from .attention import fmha
from .errors import UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from torch import Tensor


def register(name: str = "tessera") -> None:
    """Makes attn_implementation=name known to transformers (4.53 and later)."""
    transformers.AttentionInterface.register(name, attention)
    transformers.AttentionMaskInterface.register(name, attention_mask)


# Masks. transformers asks for one before the layers run; what it answers comes to `attention` as attention_mask.

_MASKS = ("causal_mask_function", "bidirectional_mask_function")
_OVERLAYS = ("sliding_window_overlay", "sliding_window_bidirectional_overlay", "packed_sequence_mask_function")
_COMBINED = ("and_masks", "remap_positions_for_packed_sequence")


def _parts(function: Callable[..., Any]) -> Iterator[str]:
    """Names of what transformers has combined into a mask function. Its overlays and combinations are closures."""
    name = getattr(function, "__qualname__", type(function).__qualname__).split(".")[0]
    yield name
    if name in _COMBINED:
        for cell in function.__closure__ or ():
            content = cell.cell_contents
            for part in content if isinstance(content, tuple) else (content,):
                if callable(part):
                    yield from _parts(part)


def attention_mask(**options: Any) -> Tensor | None:
    """What transformers' AttentionMaskInterface asks for, by name: batch_size, q_length, kv_length, ...

    Returns None where each key counts, as far as the layer is causal or has a window; int32 [batch], how many keys of
    each sequence count, for a cache that has room for more (a static one); else bool [batch, k], true where a token is
    none of padding. Raises UnsupportedError for masks that `attention` has no kernel for.
    """
    return _opaque_mask(**options) if torch.compiler.is_compiling() else _attention_mask(**options)


def _attention_mask(
    *,
    batch_size: int,
    kv_length: int,
    q_length: int | None = None,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    cache_position: Tensor | None = None,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | None = None,
    device: Any = None,
    **options: Any,
) -> Tensor | None:
    parts = [] if mask_function is None else list(_parts(mask_function))
    for part in parts:
        if part not in (*_MASKS, *_OVERLAYS, *_COMBINED):
            raise UnsupportedError(
                f"attention by tessera has no mask with '{part}': causal, bidirectional and sliding window masks are there; "
                "take attn_implementation='sdpa' for this model"
            )
    if attention_mask is not None and attention_mask.dim() == 1:  # made before: generate() asks first, then the model
        return attention_mask
    if cache_position is not None:  # transformers 4
        q_length, q_offset = cache_position.shape[0], cache_position[0]
    if attention_mask is not None:
        attention_mask = attention_mask[:, -kv_length:].bool()
    # With keys of another sequence (bidirectional, without a cache) lengths of queries say nothing.
    is_causal = mask_function is None or "causal_mask_function" in parts
    filled = kv_length if not is_causal or q_length is None else q_offset + q_length - kv_offset
    if attention_mask is not None:
        count = int(filled)
        if attention_mask.shape[1] < count:
            raise UnsupportedError(
                f"attention_mask has {attention_mask.shape[1]} tokens, the layer {count} keys: give it for those in the cache too"
            )
        if not bool(attention_mask[:, :count].all()):
            return attention_mask[:, :count]
    if isinstance(filled, int):
        if filled >= kv_length:
            return None
        return torch.full((batch_size,), filled, dtype=torch.int32, device=device)
    if cache_position is not None and int(filled) >= kv_length:  # a cache that grows
        return None
    return filled.to(device=device, dtype=torch.int32, copy=True).reshape(1).expand(batch_size).contiguous()


# Attention.

_REFUSED = {
    "head_mask": "factors of heads",
    "layer_head_mask": "factors of heads",
    "position_bias": "a bias of positions",
    "relative_position_bias": "a bias of positions",
    "attention_bias": "a bias",
    "alibi": "a bias",
    "sinks": "sinks by this name (s_aux is known)",
    "indices": "a choice of keys",
    "block_indices": "a choice of keys",
    "block_table": "pages of continuous batching",
    "k_cache": "pages of continuous batching",
    "v_cache": "pages of continuous batching",
}
_OF_PLACES = ("position_ids", "cache_position", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")


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

    attention_mask: None; bool [batch, k], true where a token is none of padding; or int32 [batch], keys of each sequence that
    count. s_aux: [heads], sinks. sliding_window: a token sees itself and sliding_window - 1 others before it, in
    bidirectional layers as many after it. Of options: cu_seq_lens_q and cu_seq_lens_k [sequences + 1], where packed
    sequences begin in batch * q and batch * k tokens; position_ids [batch, q]: without a mask a new sequence begins
    where they do not ascend. Raises UnsupportedError for dropout, gradients, types that no kernel has, masks of four
    dimensions and biases.
    """
    call = _opaque_attention if torch.compiler.is_compiling() else _attention
    return call(
        module, query, key, value, attention_mask, scaling, dropout, is_causal, sliding_window, softcap, s_aux, options
    )


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float | None,
    dropout: float,
    is_causal: bool | None,
    sliding_window: int | None,
    softcap: float | None,
    s_aux: Tensor | None,
    options: dict[str, Any],
) -> tuple[Tensor, None]:
    if dropout > 0 or (torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)):
        raise UnsupportedError("attention by tessera has no dropout and no gradients: use torch.no_grad()")
    _refuse_options(options)
    q, k, v = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    wanted: dict[str, Any] = {
        "causal": causal,
        "softmax_scale": scaling,
        "softcap": softcap,
        "device": None if query.is_cuda else "emulator",
    }
    if sliding_window is not None:
        wanted["window"] = (sliding_window - 1, -1 if causal else sliding_window - 1)
    if s_aux is not None:
        wanted["sink"] = s_aux.float()
    starts_q, starts_k = options.get("cu_seq_lens_q"), options.get("cu_seq_lens_k")
    if starts_q is not None or starts_k is not None:
        if starts_q is None or starts_k is None or mask is not None:
            raise UnsupportedError("attention by tessera takes cu_seq_lens_q and cu_seq_lens_k together, and no attention_mask")
        return _ragged(q, k, v, starts_q, starts_k, options.get("max_length_k"), wanted), None
    if mask is not None and mask.dim() == 2:
        return _padded(q, k, v, mask.bool(), wanted), None
    if mask is not None and (mask.dim() != 1 or mask.dtype != torch.int32):
        raise UnsupportedError(
            f"attention by tessera has no mask of {mask.dim()} dimensions: pass attention_mask [batch, tokens], true where a "
            "token is none of padding, or take attn_implementation='sdpa'"
        )
    starts = _starts(options.get("position_ids"), q)
    if starts is not None:
        if mask is not None and int(mask[0]) == q.shape[1]:  # a static cache that held nothing
            k, v, mask = k[:, : q.shape[1]], v[:, : q.shape[1]], None
        if mask is not None or k.shape[1] != q.shape[1]:
            raise UnsupportedError("position_ids restart beside keys of a cache: pack sequences into a first call alone")
        return _ragged(q, k, v, starts, starts, None, wanted), None
    return fmha(q, k, v, seqused_k=mask, **wanted), None


_opaque_attention = torch.compiler.disable(_attention)  # in graphs of torch.compile a call between two graphs
_opaque_mask = torch.compiler.disable(_attention_mask)


def _refuse_options(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value is None or name in _OF_PLACES:
            continue
        of = _REFUSED.get(name)
        if of is None and isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim() > 0:
            of = "a tensor of this name"
        if of is not None:
            raise UnsupportedError(
                f"attention by tessera has no '{name}' ({of}): take attn_implementation='sdpa' or 'eager' for this model"
            )


_found: tuple[Any, int, tuple[int, ...], Tensor | None] | None = None  # position_ids, version, shape of q: _starts' answer


def _starts(position_ids: Tensor | None, q: Tensor) -> Tensor | None:
    """Where packed sequences begin among batch * q tokens, int32 [sequences + 1]; None where each row is one sequence.

    Reads values, which waits for the GPU: once for the layers of a step, as they are given the same tensor."""
    global _found
    found, length = _found, q.shape[1]
    if position_ids is None or length == 1 or position_ids.dim() not in (1, 2) or position_ids.shape[-1] != length:
        return None
    version = -1 if position_ids.is_inference() else position_ids._version
    if found is not None and version >= 0 and found[0]() is position_ids and found[1:3] == (version, q.shape[:2]):
        return found[3]
    rows = position_ids.reshape(-1, length).expand(q.shape[0], length)
    begins = torch.ones_like(rows, dtype=torch.bool)
    begins[:, 1:] = rows[:, 1:] <= rows[:, :-1]
    places = begins.reshape(-1).nonzero().reshape(-1)
    starts = None
    if places.shape[0] > q.shape[0]:
        end = places.new_tensor([q.shape[0] * length])
        starts = torch.cat((places, end)).to(device=q.device, dtype=torch.int32)
    _found = (weakref.ref(position_ids), version, q.shape[:2], starts)
    return starts


def _ragged(
    q: Tensor, k: Tensor, v: Tensor, starts_q: Tensor, starts_k: Tensor, max_length_k: Any, wanted: dict[str, Any]
) -> Tensor:
    flat = (t.reshape(-1, *t.shape[2:]) for t in (q, k, v))
    starts = {"cu_seqlens_q": starts_q.to(torch.int32), "cu_seqlens_k": starts_k.to(torch.int32)}
    o = fmha(*flat, **starts, max_seqlen_k=max_length_k if type(max_length_k) is int else None, **wanted)
    return o.reshape(*q.shape[:2], *o.shape[1:])


def _packed(rows: Tensor, is_valid: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of valid tokens one after the other, and where each sequence begins."""
    lengths = is_valid.sum(1, dtype=torch.int32)
    starts = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return rows[is_valid], starts


def _padded(q: Tensor, k: Tensor, v: Tensor, is_valid: Tensor, wanted: dict[str, Any]) -> Tensor:
    batch, length = q.shape[:2]
    if wanted["causal"] or "window" in wanted:  # which tokens the queries are counts
        if is_valid.shape[1] < length:
            raise UnsupportedError(f"attention_mask has {is_valid.shape[1]} tokens for {length} queries")
        of_queries = is_valid[:, -length:]
    else:
        of_queries = is_valid.new_ones((batch, length))
    packed_q, starts_q = _packed(q, of_queries)
    keys = is_valid[:, : k.shape[1]]
    packed_k, starts_k = _packed(k[:, : keys.shape[1]], keys)
    packed_v, _ = _packed(v[:, : keys.shape[1]], keys)
    if packed_q.shape[0] == 0:
        return q.new_zeros((batch, length, q.shape[2], v.shape[-1]))
    packed = fmha(
        packed_q, packed_k, packed_v, cu_seqlens_q=starts_q, cu_seqlens_k=starts_k, max_seqlen_k=k.shape[1], **wanted
    )
    o = packed.new_zeros((batch, length, *packed.shape[1:]))
    o[of_queries] = packed
    return o
