"""Attention as functions: dense, ragged and paged, decode too, and in four bits. Fields from the tensors, a kernel, a launch."""

from __future__ import annotations

from typing import NamedTuple

from . import arrays
from .errors import UsageError
from .operators import is_raw, kernel_of, power_of_two
from .remembered import remembers
from .values import pair, require_dimensions, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .jit import Jit
    from .kernel import Device

_FEW_QUERIES = 16  # with which hints are given, so that the kernel for decode is chosen


def _alter(
    chosen: dict[str, Any], values: dict[str, Any], causal: bool, window: tuple[int, int] | None, softcap: float | None, sink: Any, alibi: Any
) -> None:
    """What both attentions do to scores, as fields and as what a launch takes."""
    if causal:
        chosen["mask"] = "causal"
    if window is not None:
        chosen["window"] = "sliding"
        values["window_size_left"], values["window_size_right"] = pair("window", window)
    given = (("softcap", softcap, "softcap", "tanh"), ("sink", sink, "sink", "per_head"), ("alibi_slopes", alibi, "alibi", "per_head"))
    for name, value, field, word in given:
        if value is not None:
            chosen[field] = word
            values[name] = value


def _most_keys(max_seqlen_k: int | None, k: arrays.View, block_table: Any) -> int:
    """The bound of a sequence's keys, of ragged keys and of pages."""
    if max_seqlen_k is not None:
        return whole("max_seqlen_k", max_seqlen_k)
    if block_table is None:
        return k.shape[0]
    table = arrays.view("block_table", block_table)
    require_dimensions(table, "block_table", 2)
    return table.shape[-1] * k.shape[1]


@remembers
def fmha(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    softmax_scale: float | None = None,
    window: tuple[int, int] | None = None,
    softcap: float | None = None,
    sink: Any = None,
    alibi_slopes: Any = None,
    seqused_q: Any = None,
    seqused_k: Any = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    block_table: Any = None,
    max_seqlen_k: int | None = None,
    q_descale: Any = None,
    k_descale: Any = None,
    v_descale: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
    out: Any = None,
    return_lse: bool = False,
    lse: Any = None,
    dtype: str | None = None,
    device: Device = None,
    stream: int | None = None,
    workspace: Any = None,
    jit: Jit | None = None,
    **fields: Any,
) -> Any:
    """Attention forward: softmax(softmax_scale q k^T) v. Returns o, or (o, lse) with return_lse.

    There is no backward pass: gradients of PyTorch's tensors end here.

    Shapes: q [batch, seqlen_q, heads_q, head_dim], k [batch, seqlen_k, heads_kv, head_dim], v [batch, seqlen_k,
    heads_kv, head_dim_v], o [batch, seqlen_q, heads_q, head_dim_v], lse [batch, heads_q, seqlen_q] in fp32, natural
    logarithm. heads_q is a multiple of heads_kv. Any strides, but the last dimension is contiguous and the others
    are multiples of 16 bytes.

    causal: query i sees keys j <= i + seqlen_k - seqlen_q (bottom-right). window: (left, right) keys beside that; -1
    is no bound. softmax_scale: default 1/sqrt(head_dim). softcap: scores become softcap tanh(score / softcap). sink,
    alibi_slopes: fp32 [heads_q]. seqused_q, seqused_k: int32 [batch], valid lengths of padded sequences.

    Ragged queries: cu_seqlens_q int32 [batch + 1]; q and o are [tokens, heads_q, ..], lse [heads_q, tokens].
    Ragged keys: cu_seqlens_k int32 [batch + 1]; k and v are [tokens_k, heads_kv, ..]. Pages: block_table int32
    [batch, max_pages]; k and v are [pages, page_size, heads_kv, ..], with seqused_k as lengths. With either,
    max_seqlen_k bounds the keys of a sequence (default: what the table or the tokens allow).

    k_scale, v_scale: u8 [pages, heads_kv, page_size, scales of a key], beside pages of codes: k and v u8 with two e2m1 a
    byte and a ue4m3 for 16 columns (NVFP4), or e4m3 with a ue8m0 for 32 (MXFP8); k_descale and v_descale are factors of
    whole tensors then.

    q_descale, k_descale, v_descale: fp32 [batch, heads_kv], factors of e4m3 tensors. dtype: of q, k and v where the
    tensors hold its bits as unsigned numbers ("bf16", "f16", "e4m3"). fields: further ones (docs/operators.md), pins
    and hints too. With at most 16 queries a sequence, sizes are given as hints (batch and seqlen_k as powers of two),
    so that the kernel for decode is chosen; `hints=False` leaves them out.

    device: None for the GPU of the tensors, "emulator" or a tessera.Emulator for the CPU. stream: an address; None is
    the one that the tensors' library works on. out, lse: where to write. workspace: device memory for kernels that
    split keys; made where it is needed. Raises UsageError, UnsupportedError, CompileError, DeviceError, IoError.
    """
    of_q, of_k = arrays.view("q", q), arrays.view("k", k)
    uses_hints = fields.pop("hints", True)
    if len(of_q.shape) < 3 or len(of_k.shape) < 3:
        raise UsageError(f"q and k have {len(of_q.shape)} and {len(of_k.shape)} dimensions: see tessera.fmha")
    chosen: dict[str, Any] = {"head_dim": of_q.shape[-1], "dtype": dtype or of_q.dtype}
    of_v = None if v is None else arrays.view("v", v)
    if (k_scale is None) != (v_scale is None):
        given, missing = ("k_scale", "v_scale") if v_scale is None else ("v_scale", "k_scale")
        raise UsageError(f"{missing}: none given, but a {given}: codes of k and of v both have scales")
    if k_scale is not None:
        chosen["kv_format"] = "mxfp8" if of_k.shape[-1] == of_q.shape[-1] else "nvfp4"
    elif of_v is not None and of_v.shape[-1] != of_q.shape[-1]:
        chosen["head_dim_v"] = of_v.shape[-1]
    if k_scale is None and not is_raw(of_k.dtype) and of_k.dtype != chosen["dtype"]:
        chosen["kv_dtype"] = of_k.dtype
    values: dict[str, Any] = {}
    _alter(chosen, values, causal, window, softcap, sink, alibi_slopes)
    for name, value, field, word in (
        ("cu_seqlens_q", cu_seqlens_q, "q_layout", "ragged"),
        ("cu_seqlens_k", cu_seqlens_k, "kv_layout", "ragged"),
        ("block_table", block_table, "kv_layout", "paged"),
    ):
        if value is not None:
            chosen[field] = word
            values[name] = value
    if block_table is not None:
        chosen["page_size"] = of_k.shape[1]
    if seqused_q is not None:
        chosen["seqused"] = "qk"
    elif seqused_k is not None and block_table is None:
        chosen["seqused"] = "k"
    if block_table is not None or cu_seqlens_k is not None:
        values["seqlen_k"] = _most_keys(max_seqlen_k, of_k, block_table)
    elif max_seqlen_k is not None:
        raise UsageError("max_seqlen_k goes with cu_seqlens_k or block_table: otherwise k's shape says it")
    if uses_hints:
        chosen |= _decode_hints(of_q, of_k, values, cu_seqlens_q, cu_seqlens_k, block_table)
    chosen |= fields
    kernel = kernel_of("fmha", of_q, device, jit, chosen)
    outputs = kernel(
        device=device,
        stream=stream,
        workspace=workspace,
        q=of_q,
        k=of_k,
        v=of_v,
        o=out,
        lse=lse if lse is not None else (True if return_lse else None),
        softmax_scale=softmax_scale,
        seqused_q=seqused_q,
        seqused_k=seqused_k,
        q_descale=q_descale,
        k_descale=k_descale,
        v_descale=v_descale,
        k_scale=k_scale,
        v_scale=v_scale,
        **values,
    )
    return (outputs["o"], outputs["lse"]) if return_lse else outputs["o"]


def _decode_hints(
    q: arrays.View, k: arrays.View, values: dict[str, Any], cu_seqlens_q: Any, cu_seqlens_k: Any, block_table: Any
) -> dict[str, int]:
    if cu_seqlens_q is not None or len(q.shape) != 4 or q.shape[1] > _FEW_QUERIES:
        return {}
    seqlen_k = values.get("seqlen_k", k.shape[1])
    return {
        "batch": power_of_two(q.shape[0]),
        "heads_q": q.shape[2],
        "heads_kv": k.shape[-2],
        "seqlen_q": q.shape[1],
        "seqlen_k": power_of_two(seqlen_k),
    }


class Nvfp4Operands(NamedTuple):
    """q, k and v of attention in NVFP4, as tessera.attention_quantize makes them and tessera.fmha_nvfp4 takes them."""

    q_units: Any  #: bytes in the order that the kernel's lanes take them: docs/layouts.md
    k_units: Any
    v_units: Any
    q_mean: Any  #: fp32, of each block of 128 queries; k_mean: of each sequence's keys
    k_mean: Any
    delta_s: Any  #: fp32, what restores scores; row_shift: what restores logarithms of sums
    row_shift: Any
    sizes: dict[str, int]  #: batch, seqlen_q, seqlen_k, and tokens_k of ragged keys
    fields: dict[str, Any]  #: head_dim, and how rows of sequences lie
    places: dict[str, Any]  #: cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k: those that were given


def attention_quantize(
    q: Any,
    k: Any,
    v: Any,
    *,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    seqused_q: Any = None,
    seqused_k: Any = None,
    block_table: Any = None,
    max_seqlen_k: int | None = None,
    dtype: str | None = None,
    device: Device = None,
    stream: int | None = None,
    workspace: Any = None,
    jit: Jit | None = None,
    **fields: Any,
) -> Nvfp4Operands:
    """q, k and v in bf16 or f16 to NVFP4, for tessera.fmha_nvfp4: k without its mean over a sequence, q without that of
    each 128 queries, and what restores scores of both in fp32.

    Shapes, lengths and pages: as of tessera.fmha, head_dim 64 or 128. Keys in pages become dense ones.

    device, stream, workspace and errors: as of tessera.fmha; the emulator's target is sm_120a.
    """
    of_q, of_k, of_v = arrays.view("q", q), arrays.view("k", k), arrays.view("v", v)
    require_dimensions(of_q, "q", 3)
    require_dimensions(of_k, "k", 3)
    chosen: dict[str, Any] = {"head_dim": of_q.shape[-1], "dtype": dtype or of_q.dtype}
    places: dict[str, Any] = {}
    sizes: dict[str, int] = {}
    if cu_seqlens_q is not None:
        chosen["q_layout"] = "ragged"
        places["cu_seqlens_q"] = cu_seqlens_q
    if cu_seqlens_k is not None:
        chosen["kv_layout"] = "ragged"
        places["cu_seqlens_k"] = cu_seqlens_k
        sizes = {"tokens_k": of_k.shape[0], "seqlen_k": _most_keys(max_seqlen_k, of_k, None)}
    elif block_table is not None:
        chosen |= {"kv_layout": "paged", "page_size": of_k.shape[1]}
        sizes = {"seqlen_k": _most_keys(max_seqlen_k, of_k, block_table)}
    else:
        if max_seqlen_k is not None:
            raise UsageError("max_seqlen_k goes with cu_seqlens_k or block_table: otherwise k's shape says it")
        sizes = {"seqlen_k": of_k.shape[1]}
    if seqused_q is not None and seqused_k is None:
        raise UsageError("seqused_q goes with seqused_k: give the lengths of both")
    if seqused_k is not None:
        chosen["seqused"] = "k" if seqused_q is None else "qk"
        places["seqused_k"] = seqused_k
    if seqused_q is not None:
        places["seqused_q"] = seqused_q
    given = places if block_table is None else places | {"block_table": block_table}
    chosen |= _nvfp4_target(device) | fields
    kernel = kernel_of("attention_quantize", of_q, device, jit, chosen)
    made = kernel(device=device, stream=stream, workspace=workspace, q=of_q, k=of_k, v=of_v, **given, **sizes)
    sizes |= {"seqlen_q": of_q.shape[-3], "heads_q": of_q.shape[-2], "heads_kv": of_k.shape[-2]}
    sizes["batch"] = of_q.shape[0] if cu_seqlens_q is None else arrays.view("cu_seqlens_q", cu_seqlens_q).shape[0] - 1
    # Pages are no more: their keys lie dense now.
    lie = {name: chosen[name] for name in ("head_dim", "q_layout", "kv_layout", "seqused") if name in chosen}
    if block_table is not None:
        lie |= {"kv_layout": "dense", "seqused": chosen.get("seqused", "k")}
    names = ("q_units", "k_units", "v_units", "q_mean", "k_mean", "delta_s", "row_shift")
    return Nvfp4Operands(*(made[name] for name in names), sizes, lie, places)


def _nvfp4_target(device: Device) -> dict[str, str]:
    return {"arch": "sm_120a"} if isinstance(device, str) else {}


def fmha_nvfp4(
    operands: Nvfp4Operands,
    *,
    causal: bool = False,
    softmax_scale: float | None = None,
    window: tuple[int, int] | None = None,
    softcap: float | None = None,
    sink: Any = None,
    alibi_slopes: Any = None,
    out: Any = None,
    return_lse: bool = False,
    lse: Any = None,
    device: Device = None,
    stream: int | None = None,
    workspace: Any = None,
    jit: Jit | None = None,
    **fields: Any,
) -> Any:
    """Attention of what tessera.attention_quantize made, on sm_120 and sm_121: o, or (o, lse) with return_lse.

    Both products are of four bits. What that costs in accuracy: bench/results/nvfp4-accuracy.md. o is bf16, or f16 with
    o_dtype="f16". Other arguments, shapes of o and lse, device, stream, workspace and errors: as of tessera.fmha.
    """
    of_q = arrays.view("q_units", operands.q_units)
    chosen: dict[str, Any] = {"dtype": "nvfp4"} | operands.fields
    values: dict[str, Any] = dict(operands.sizes) | operands.places
    _alter(chosen, values, causal, window, softcap, sink, alibi_slopes)
    hints = ("batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k")
    if fields.pop("hints", True) and "q_layout" not in chosen and values["seqlen_q"] <= _FEW_QUERIES:
        rounded = ("batch", "seqlen_k")
        chosen |= {name: power_of_two(values[name]) if name in rounded else values[name] for name in hints}
    chosen |= _nvfp4_target(device) | fields
    kernel = kernel_of("fmha", of_q, device, jit, chosen)
    outputs = kernel(
        device=device,
        stream=stream,
        workspace=workspace,
        q=of_q,
        k=operands.k_units,
        v=operands.v_units,
        delta_s=operands.delta_s,
        row_shift=operands.row_shift,
        o=out,
        lse=lse if lse is not None else (True if return_lse else None),
        softmax_scale=softmax_scale,
        **values,
    )
    return (outputs["o"], outputs["lse"]) if return_lse else outputs["o"]
