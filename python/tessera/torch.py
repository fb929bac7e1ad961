"""tessera in PyTorch: operators that `torch.compile` knows, and a stand-in for scaled_dot_product_attention.

    import tessera.torch
    o = torch.ops.tessera.fmha(q, k, v, True)                            # [batch, seqlen, heads, head_dim]
    torch.ops.tessera.append_kv(k, v, k_cache, v_cache, slots)           # [tokens, heads, head_dim] to [pages, page_size, ..]
    o = torch.ops.tessera.fmha_paged(q, k_cache, v_cache, block_table, seqused_k)
    y = tessera.torch.scaled_dot_product_attention(q, k, v, is_causal=True)    # PyTorch's shapes and meaning

The operators have schemas, and implementations for CUDA and Meta tensors. They have no derivatives: with tensors that
require gradients they raise UnsupportedError, unless torch.no_grad() or torch.inference_mode() is on. They are tested on
CPU tensors in the emulator and on an H200.
"""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

from . import _core, arrays, attention, operators
from .errors import UnsupportedError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

Tensor, Parameter = torch.Tensor, torch.nn.Parameter
_HEAD_DIMS = (*((dim, dim) for dim in (16, 32, 64, 72, 80, 96, 128, 160, 192, 256, 512)), (192, 128))
_16_BIT = (torch.bfloat16, torch.float16)
_E4M3, _E5M2 = (getattr(torch, name, None) for name in ("float8_e4m3fn", "float8_e5m2"))  # not in PyTorch 1.13

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
# What scaled_dot_product_attention is inside a graph of torch.compile: this kernel or PyTorch's, chosen when it runs.
_library.define("sdpa(Tensor query, Tensor key, Tensor value, bool is_causal=False, float? scale=None) -> Tensor")


def _device(tensor: Tensor) -> str | None:
    return None if tensor.is_cuda else "emulator"


def _fmha(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, softmax_scale: float | None = None) -> Tensor:
    return attention.fmha(q, k, v, causal=causal, softmax_scale=softmax_scale, device=_device(q))


def _fmha_lse(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, softmax_scale: float | None = None
) -> tuple[Tensor, Tensor]:
    return attention.fmha(q, k, v, causal=causal, softmax_scale=softmax_scale, return_lse=True, device=_device(q))


def _gemm(a: Tensor, b: Tensor, bias: Tensor | None = None, activation: str | None = None) -> Tensor:
    return operators.gemm(a, b, bias=bias, activation=activation, device=_device(a))


def _fmha_out(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, causal: bool = False, softmax_scale: float | None = None
) -> None:
    attention.fmha(q, k, v, causal=causal, softmax_scale=softmax_scale, out=out, device=_device(q))


def _fmha_paged(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seqused_k: Tensor,
    causal: bool = True,
    softmax_scale: float | None = None,
) -> Tensor:
    return attention.fmha(
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
    kernel = operators.kernel_of("rows", arrays.view("k", k), "emulator", None, fields)
    launch = kernel.bind(device="emulator", x=k, **arguments)
    launch._kept = frozenset(("y", "y2"))
    launch.launch()


def _sdpa(query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False, scale: float | None = None) -> Tensor:
    uses_groups = query.shape[1] != key.shape[1]
    if _serves(query, key, value, is_causal, uses_groups):
        try:
            return _by_tessera(query, key, value, is_causal, scale)
        except UnsupportedError:
            pass
    o = _by_pytorch(query, key, value, None, 0.0, is_causal, scale, uses_groups, {})
    return o.transpose(1, 2).contiguous().transpose(1, 2)  # the strides that the graph expects


# Shapes and types without values. What no kernel takes is refused as the launch would: the same class of error.


def _refuse(name: str, found: Tensor, expected: str) -> None:
    raise UsageError(f"{name}: shape {list(found.shape)} given, {expected} expected")


def _expect_type(name: str, found: Tensor, expected: torch.dtype) -> None:
    if found.dtype != expected:
        raise UsageError(f"{name}: elements of type {found.dtype} given, {expected} expected")


def _fmha_types(q: Tensor, k: Tensor, v: Tensor) -> torch.dtype:
    """The type of o."""
    if q.dtype not in _16_BIT and (_E4M3 is None or q.dtype != _E4M3):
        raise UnsupportedError(f"fmha has no kernel for dtype {q.dtype}: there are kernels for bf16, f16 and e4m3")
    if k.dtype != q.dtype and (_E4M3 is None or k.dtype != _E4M3):
        raise UnsupportedError(f"fmha has no kernel for k of {k.dtype} beside q of {q.dtype}: take {q.dtype} or e4m3")
    _expect_type("v", v, k.dtype)
    return q.dtype if q.dtype in _16_BIT else torch.bfloat16


def _expect_heads(q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 4:
            raise UsageError(f"{name}: {tensor.dim()} dimensions given, 4 expected")
    if k.shape[3] != q.shape[3]:
        _refuse("k", k, f"head_dim {q.shape[3]} of q")
    if v.shape[:3] != k.shape[:3]:
        _refuse("v", v, f"{list(k.shape[:3])} of k and a head_dim")
    if not any(q.shape[3] == dim and v.shape[3] == dim_v for dim, dim_v in _HEAD_DIMS):
        raise UnsupportedError(f"fmha has no kernel for head_dim {q.shape[3]}/{v.shape[3]}")
    if k.shape[2] == 0 or q.shape[2] % k.shape[2] != 0:
        raise UsageError(f"fmha: heads_q = {q.shape[2]}: must be a multiple of heads_kv = {k.shape[2]}")


def _fmha_meta(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, softmax_scale: float | None = None) -> Tensor:
    _expect_heads(q, k, v)
    if k.shape[0] != q.shape[0]:
        raise UsageError(f"batch is {q.shape[0]} by q and {k.shape[0]} by k")
    return q.new_empty((*q.shape[:-1], v.shape[-1]), dtype=_fmha_types(q, k, v))


def _fmha_lse_meta(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, softmax_scale: float | None = None
) -> tuple[Tensor, Tensor]:
    o = _fmha_meta(q, k, v)
    return o, q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32)


def _fmha_out_meta(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, causal: bool = False, softmax_scale: float | None = None
) -> None:
    o = _fmha_meta(q, k, v)
    _expect_type("o", out, o.dtype)
    if out.shape != o.shape:
        _refuse("o", out, str(list(o.shape)))


def _fmha_paged_meta(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seqused_k: Tensor,
    causal: bool = True,
    softmax_scale: float | None = None,
) -> Tensor:
    _expect_heads(q, k_cache, v_cache)
    for name, tensor, dims in (("block_table", block_table, 2), ("seqused_k", seqused_k, 1)):
        _expect_type(name, tensor, torch.int32)
        if tensor.dim() != dims:
            raise UsageError(f"{name}: {tensor.dim()} dimensions given, {dims} expected")
        if tensor.shape[0] != q.shape[0]:
            raise UsageError(f"batch is {q.shape[0]} by q and {tensor.shape[0]} by {name}")
    return q.new_empty((*q.shape[:-1], v_cache.shape[-1]), dtype=_fmha_types(q, k_cache, v_cache))


def _append_kv_meta(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    for name, tensor, dims in (("k", k, 3), ("v", v, 3), ("k_cache", k_cache, 4), ("v_cache", v_cache, 4)):
        if tensor.dim() != dims:
            raise UsageError(f"{name}: {tensor.dim()} dimensions given, {dims} expected")
        _expect_type(name, tensor, k.dtype)
    if v.shape != k.shape:
        _refuse("v", v, f"{list(k.shape)} of k")
    if k_cache.shape[2:] != k.shape[1:]:
        _refuse("k_cache", k_cache, f"pages, page_size and {list(k.shape[1:])} of k")
    if v_cache.shape != k_cache.shape:
        _refuse("v_cache", v_cache, f"{list(k_cache.shape)} of k_cache")
    _expect_type("slots", slots, torch.int32)
    if slots.dim() != 1 or slots.shape[0] != k.shape[0]:
        _refuse("slots", slots, f"[{k.shape[0]}]")


def _gemm_meta(a: Tensor, b: Tensor, bias: Tensor | None = None, activation: str | None = None) -> Tensor:
    if a.dim() not in (2, 3) or b.dim() != a.dim():
        raise UsageError(f"a and b have {a.dim()} and {b.dim()} dimensions: 2, or 3, are expected of both")
    if b.shape[-1] != a.shape[-1]:
        raise UsageError(f"k is {a.shape[-1]} by a and {b.shape[-1]} by b")
    if b.shape[:-2] != a.shape[:-2]:
        raise UsageError(f"l is {a.shape[0]} by a and {b.shape[0]} by b")
    is_16_bit = a.dtype in _16_BIT
    fp8 = [dtype for dtype in (_E4M3, _E5M2) if dtype is not None]
    if not (a.dtype == b.dtype if is_16_bit else a.dtype in fp8 and b.dtype in fp8):
        raise UnsupportedError(f"gemm {a.dtype} x {b.dtype}: both must be bf16, both f16, or each e4m3 or e5m2")
    d = a.new_empty((*a.shape[:-1], b.shape[-2]), dtype=a.dtype if is_16_bit else torch.bfloat16)
    if bias is not None:
        _expect_type("bias", bias, d.dtype)
        if bias.dim() != 1 or bias.shape[0] != b.shape[-2]:
            _refuse("bias", bias, f"[{b.shape[-2]}]")
    if activation not in (None, "none", "relu", "gelu", "gelu_tanh", "silu"):
        raise UsageError(f"activation = {activation}: must be one of none, relu, gelu, gelu_tanh, silu")
    return d


def _sdpa_meta(query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False, scale: float | None = None) -> Tensor:
    batch, heads, length, _ = query.shape
    return query.new_empty((batch, length, heads, value.shape[3])).transpose(1, 2)


_FUNCTIONS = {
    "fmha": (_fmha, _fmha_meta),
    "fmha_lse": (_fmha_lse, _fmha_lse_meta),
    "fmha_out": (_fmha_out, _fmha_out_meta),
    "fmha_paged": (_fmha_paged, _fmha_paged_meta),
    "append_kv": (_append_kv, _append_kv_meta),
    "gemm": (_gemm, _gemm_meta),
    "sdpa": (_sdpa, _sdpa_meta),
}

# What PyTorch keeps to itself; where a version has it not, neither has it what is asked for.
_functorch_level = getattr(getattr(torch._C, "_functorch", None), "maybe_current_level", lambda: None)
_dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_is_tracing = torch._C._is_tracing
_is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
_is_any_autocast = getattr(
    torch._C, "_is_any_autocast_enabled", lambda: torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled()
)


def _without_gradients(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """An operator under autograd: refuses tensors that require gradients, as nothing would be trained, else `function`.

    Tensors of PyTorch's own type go to the implementation at once, which saves a second walk through the dispatcher.
    """
    operator = getattr(torch.ops.tessera, name).default

    def call(*args: Any, **options: Any) -> Any:
        # One loop over what most calls are: plain tensors of a GPU, no gradients, nothing between the call and its values.
        is_plain = not options and _dispatch_modes() == 0 and _functorch_level() is None and forward_ad._current_level < 0
        has_gradients = torch.is_grad_enabled()
        for value in args:
            kind = type(value)
            if kind is Tensor or kind is Parameter:
                is_plain &= (value.is_cuda or (_emulates and value.is_cpu)) and not (has_gradients and value.requires_grad)
            elif isinstance(value, Tensor):
                is_plain = False
        return function(*args) if is_plain else carefully(*args, **options)

    def carefully(*args: Any, **options: Any) -> Any:
        tensors = [value for value in (*args, *options.values()) if isinstance(value, Tensor)]
        is_wanted = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        if forward_ad._current_level >= 0:
            is_wanted |= any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)
        if is_wanted:
            raise UnsupportedError(
                f"torch.ops.tessera.{name} has no derivatives, and a tensor that it was given requires them: "
                "call it under torch.no_grad(), or with tensor.detach()"
            )
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*args, **options)

    return call


for _name, (_function, _shapes) in _FUNCTIONS.items():
    _library.impl(_name, _function, "CUDA")
    _library.impl(_name, _shapes, "Meta")
    _library.impl(_name, _without_gradients(_name, _function), "Autograd")

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


def _changes_types(query: Tensor) -> bool:
    """Of autocast, which is on somewhere: whether it computes attention in another type on this device."""
    device = query.device.type
    if hasattr(torch, "get_autocast_dtype"):
        return torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) != query.dtype
    if device == "cuda":
        return torch.is_autocast_enabled() and torch.get_autocast_gpu_dtype() != query.dtype
    return torch.is_autocast_cpu_enabled() and torch.get_autocast_cpu_dtype() != query.dtype


def _is_plain(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Tensors of PyTorch's own type, and nothing that stands between a call and its values: no transform of torch.func,
    no forward derivatives, no mode, no torch.jit.trace, no autocast to another type, no negation to come."""
    return (
        type(query) is Tensor
        and type(key) is Tensor
        and type(value) is Tensor
        and forward_ad._current_level < 0
        and _functorch_level() is None
        and _dispatch_modes() == 0
        and not _is_tracing()
        and not (_is_any_autocast() and _changes_types(query))
        and not (query.is_neg() or key.is_neg() or value.is_neg())
    )


def _needs_gradients(query: Tensor, key: Tensor, value: Tensor) -> bool:
    return torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)


def _serves(query: Tensor, key: Tensor, value: Tensor, is_causal: bool, enable_gqa: bool) -> bool:
    signature = _core.signature((query, key, value, is_causal, enable_gqa, _emulates), {})
    serves = None if signature is None else _known.get(signature)
    if serves is None:
        serves = _serves_shapes(query, key, value, is_causal, enable_gqa)
        if signature is not None:
            if len(_known) >= _MAX_KNOWN:
                _known.clear()
            _known[signature] = serves
    return serves


def _serves_shapes(query: Tensor, key: Tensor, value: Tensor, is_causal: bool, enable_gqa: bool) -> bool:
    tensors = (query, key, value)
    if any(t.dim() != 4 or t.dtype != query.dtype or t.device != query.device for t in tensors):
        return False
    if query.dtype not in _16_BIT or key.shape[-1] != query.shape[-1]:
        return False
    if not any(query.shape[-1] == dim and value.shape[-1] == dim_v for dim, dim_v in _HEAD_DIMS):
        return False
    if is_causal and query.shape[2] != key.shape[2]:  # PyTorch aligns the diagonal top left, tessera bottom right
        return False
    heads, of_keys = query.shape[1], key.shape[1]
    if value.shape[1] != of_keys or (heads != of_keys and not (enable_gqa and of_keys > 0 and heads % of_keys == 0)):
        return False
    if any(t.shape[0] != query.shape[0] or t.numel() == 0 for t in tensors) or key.shape[2] != value.shape[2]:
        return False
    # What a tensor map takes: a contiguous last dimension, other strides (and the address) multiples of 16 bytes.
    if any(t.stride(3) != 1 or any(s % 8 for s in t.stride()[:3]) for t in tensors):
        return False
    if not query.is_cuda:
        return _emulates and query.device.type == "cpu"
    properties = torch.cuda.get_device_properties(query.device)  # which torch.compile knows, other than ..capability
    return (properties.major, properties.minor) == (9, 0)


_TRACED = ("Tensor", "FakeTensor", "FunctionalTensor")  # types of tensors in a graph that is being made


def _serves_in_graph(query: Tensor, key: Tensor, value: Tensor, is_causal: bool, enable_gqa: bool) -> bool:
    """What can be known of tensors without values; whether a kernel takes them is asked again when the graph runs."""
    if any(type(t).__name__ not in _TRACED for t in (query, key, value)) or _changes_types(query):
        return False
    return _serves_shapes(query, key, value, is_causal, enable_gqa)


def _is_scale(scale: Any) -> bool:
    """None, or a number that a kernel takes; others are for PyTorch to accept or to refuse."""
    return scale is None or (type(scale) in (float, int) and -3.4e38 < scale < 3.4e38)


def _aligned(tensor: Tensor) -> Tensor:
    """It, or a copy where a tensor map does not take its address: PyTorch 2.11's own attention gives wrong numbers there."""
    return tensor.clone() if tensor.data_ptr() % 16 else tensor


def _by_tessera(query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scale: float | None) -> Tensor:
    query, key, value = _aligned(query), _aligned(key), _aligned(value)
    return _fmha(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal, scale).transpose(1, 2)


def _by_pytorch(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    options: dict[str, Any],
) -> Tensor:
    if enable_gqa:
        options["enable_gqa"] = True
    if scale is not None:
        options["scale"] = scale
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, **options)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    **options: Any,
) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention by tessera's kernel where there is one, else by PyTorch.

    query [batch, heads, L, E], key [batch, heads_kv, S, E], value [batch, heads_kv, S, Ev]; returns [batch, heads, L, Ev].
    tessera computes it for 16-bit types on H100, H200 and their like, without attn_mask, dropout and gradients, and for
    is_causal where L = S (PyTorch aligns the diagonal top left, tessera bottom right). Everything else, and what
    tessera has no kernel for, goes to PyTorch unchanged: so do subclasses of Tensor, tensors without values, what
    torch.func transforms or torch.jit.trace records, forward derivatives, and autocast to another type. In a graph of
    torch.compile or torch.export it is the operator tessera::sdpa. A tensor whose address is no multiple of 16 bytes is
    copied first.
    """
    if attn_mask is None and dropout_p == 0.0 and not options and _is_scale(scale):
        if _is_compiling():
            if not _needs_gradients(query, key, value) and _serves_in_graph(query, key, value, is_causal, enable_gqa):
                return torch.ops.tessera.sdpa(query, key, value, is_causal, scale)
        elif _is_plain(query, key, value) and not _needs_gradients(query, key, value):
            if _serves(query, key, value, is_causal, enable_gqa):
                try:
                    return _by_tessera(query, key, value, is_causal, scale)
                except UnsupportedError:
                    pass
    return _by_pytorch(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, options)
