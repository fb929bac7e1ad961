"""tessera in PyTorch: operators that `torch.compile` knows, and a stand-in for scaled_dot_product_attention.

    import tessera.torch
    o = torch.ops.tessera.fmha(q, k, v, True)                            # [batch, seqlen, heads, head_dim]
    torch.ops.tessera.append_kv(k, v, k_cache, v_cache, slots)           # [tokens, heads, head_dim] to [pages, page_size, ..]
    o = torch.ops.tessera.fmha_paged(q, k_cache, v_cache, block_table, seqused_k)
    y = tessera.torch.scaled_dot_product_attention(q, k, v, is_causal=True)    # PyTorch's shapes and meaning

The operators have schemas, and implementations for CUDA and Meta tensors; they have no backward pass. They are tested
on CPU tensors in the emulator and on an H200.
"""

from __future__ import annotations

import torch

from . import _core, arrays, operators
from .errors import UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from torch import Tensor

_HEAD_DIMS = {(dim, dim) for dim in (16, 32, 64, 72, 80, 96, 128, 160, 192, 256, 512)} | {(192, 128)}

_library = torch.library.Library("tessera", "DEF")
_library.define("fmha(Tensor q, Tensor k, Tensor v, bool causal=False, float? softmax_scale=None) -> Tensor")
_library.define(
    "fmha_lse(Tensor q, Tensor k, Tensor v, bool causal=False, float? softmax_scale=None) -> (Tensor, Tensor)"
)
_library.define("gemm(Tensor a, Tensor b, Tensor? bias=None, str? activation=None) -> Tensor")
_library.define(
    "fmha_out(Tensor q, Tensor k, Tensor v, Tensor(a!) out, bool causal=False, float? softmax_scale=None) -> ()"
)
_library.define(
    "fmha_paged(Tensor q, Tensor k_cache, Tensor v_cache, Tensor block_table, Tensor seqused_k, bool causal=True, "
    "float? softmax_scale=None) -> Tensor"
)
_library.define("append_kv(Tensor k, Tensor v, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor slots) -> ()")


def _device(tensor: Tensor) -> str | None:
    return None if tensor.is_cuda else "emulator"


def _fmha(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, softmax_scale: float | None = None) -> Tensor:
    return operators.fmha(q, k, v, causal=causal, softmax_scale=softmax_scale, device=_device(q))


def _fmha_lse(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, softmax_scale: float | None = None
) -> tuple[Tensor, Tensor]:
    return operators.fmha(q, k, v, causal=causal, softmax_scale=softmax_scale, return_lse=True, device=_device(q))


def _gemm(a: Tensor, b: Tensor, bias: Tensor | None = None, activation: str | None = None) -> Tensor:
    return operators.gemm(a, b, bias=bias, activation=activation, device=_device(a))


def _fmha_out(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, causal: bool = False, softmax_scale: float | None = None
) -> None:
    operators.fmha(q, k, v, causal=causal, softmax_scale=softmax_scale, out=out, device=_device(q))


def _fmha_paged(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seqused_k: Tensor,
    causal: bool = True,
    softmax_scale: float | None = None,
) -> Tensor:
    return operators.fmha(
        q,
        k_cache,
        v_cache,
        causal=causal,
        softmax_scale=softmax_scale,
        block_table=block_table,
        seqused_k=seqused_k,
        device=_device(q),
    )


def _append_kv(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    columns = k.shape[-1]
    chain = f"join({columns})+same(0..{columns - 1},paged)+same({columns}..{2 * columns - 1},paged)"
    arguments = {"x2": v, "y": k_cache, "y2": v_cache, "slots": slots, "rows": k.shape[0] * k.shape[1]}
    if k.is_cuda:
        operators.rows(k, chain, **arguments)
        return
    fields = {"dtype": arrays.view("k", k).dtype, "columns": 2 * columns, "chain": chain}
    kernel = operators._kernel("rows", arrays.view("k", k), "emulator", None, fields)
    launch = kernel.bind(device="emulator", x=k, **arguments)
    launch._kept = frozenset(("y", "y2"))
    launch.launch()


def _fmha_meta(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, softmax_scale: float | None = None) -> Tensor:
    return q.new_empty((*q.shape[:-1], v.shape[-1]))


def _fmha_lse_meta(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, softmax_scale: float | None = None
) -> tuple[Tensor, Tensor]:
    lse = q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32)
    return _fmha_meta(q, k, v), lse


def _gemm_meta(a: Tensor, b: Tensor, bias: Tensor | None = None, activation: str | None = None) -> Tensor:
    is_16_bit = a.dtype in (torch.bfloat16, torch.float16)
    return a.new_empty((*a.shape[:-1], b.shape[-2]), dtype=a.dtype if is_16_bit else torch.bfloat16)


def _fmha_paged_meta(q: Tensor, k_cache: Tensor, v_cache: Tensor, *rest: Any) -> Tensor:
    return q.new_empty((*q.shape[:-1], v_cache.shape[-1]))


def _nothing_meta(*arguments: Any) -> None:
    return None


_FUNCTIONS = {
    "fmha": (_fmha, _fmha_meta),
    "fmha_lse": (_fmha_lse, _fmha_lse_meta),
    "fmha_out": (_fmha_out, _nothing_meta),
    "fmha_paged": (_fmha_paged, _fmha_paged_meta),
    "append_kv": (_append_kv, _nothing_meta),
    "gemm": (_gemm, _gemm_meta),
}
for _name, (_function, _shapes) in _FUNCTIONS.items():
    _library.impl(_name, _function, "CUDA")
    _library.impl(_name, _shapes, "Meta")

_emulates = False


def emulate_on_cpu() -> None:
    """From here on the operators take CPU tensors too, and run them in the emulator: for tests without a GPU."""
    global _emulates
    if _emulates:
        return
    _emulates = True
    for name, (function, _) in _FUNCTIONS.items():
        _library.impl(name, function, "CPU")


_known: dict[bytes, bool] = {}  # what _serves_shapes said, by types, shapes and strides
_MAX_KNOWN = 4096


def _serves(query: Tensor, key: Tensor, value: Tensor, is_causal: bool, enable_gqa: bool) -> bool:
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad):
        return False
    signature = _core.signature((query, key, value, is_causal, enable_gqa, _emulates), {})
    serves = None if signature is None else _known.get(signature)
    if serves is None:
        serves = _serves_shapes(query, key, value, is_causal, enable_gqa)
        if signature is not None:
            if len(_known) >= _MAX_KNOWN:
                _known.clear()
            _known[signature] = serves
    return serves and not (query.data_ptr() % 16 or key.data_ptr() % 16 or value.data_ptr() % 16)


def _serves_shapes(query: Tensor, key: Tensor, value: Tensor, is_causal: bool, enable_gqa: bool) -> bool:
    tensors = (query, key, value)
    if any(t.dim() != 4 or t.dtype != query.dtype or t.device != query.device for t in tensors):
        return False
    if query.dtype not in (torch.bfloat16, torch.float16):
        return False
    if (query.shape[-1], value.shape[-1]) not in _HEAD_DIMS or key.shape[-1] != query.shape[-1]:
        return False
    if is_causal and query.shape[2] != key.shape[2]:  # PyTorch aligns the diagonal top left, tessera bottom right
        return False
    heads, of_keys = query.shape[1], key.shape[1]
    if value.shape[1] != of_keys or (heads != of_keys and not (enable_gqa and of_keys > 0 and heads % of_keys == 0)):
        return False
    if any(t.shape[0] != query.shape[0] or t.numel() == 0 for t in tensors):
        return False
    # What a tensor map takes: a contiguous last dimension, other strides (and the address) multiples of 16 bytes.
    if any(t.stride(3) != 1 or any(s % 8 for s in t.stride()[:3]) for t in tensors):
        return False
    if not query.is_cuda:
        return _emulates
    return torch.cuda.get_device_capability(query.device) == (9, 0)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    **options: Any,
) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention by tessera's kernel where there is one, else by PyTorch.

    query [batch, heads, L, E], key [batch, heads_kv, S, E], value [batch, heads_kv, S, Ev]; returns [batch, heads, L, Ev].
    tessera computes it for 16-bit types on H100, H200 and their like, without attn_mask, dropout and gradients, and for
    is_causal where L = S (PyTorch aligns the diagonal top left, tessera bottom right). Everything else, and what
    tessera has no kernel for, goes to PyTorch unchanged.
    """
    if attn_mask is None and dropout_p == 0.0 and not options and _serves(query, key, value, is_causal, enable_gqa):
        q, k, v = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
        try:
            return _fmha(q, k, v, is_causal, scale).transpose(1, 2)
        except UnsupportedError:
            pass
    if enable_gqa:
        options["enable_gqa"] = True
    if scale is not None:
        options["scale"] = scale
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, **options)
