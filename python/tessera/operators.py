"""Attention, products and block-scaled formats as functions: fields from the tensors, a kernel, a launch.

A kernel is found once for each set of fields; later calls take it from a dict. For the least time between launches
bind once (`tessera.Kernel(...).bind(...)`) and launch that.
"""

from __future__ import annotations

from typing import NamedTuple

from . import arrays
from .emulator import Emulator
from .errors import UsageError
from .jit import Jit, default_jit, require_jit
from .kernel import Kernel
from .remembered import remembers
from .values import pair, require_dimensions, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .kernel import Device

_FEW_QUERIES = 16


def _kernel(op: str, first: arrays.View, device: Device, jit: Jit | None, fields: dict[str, Any]) -> Kernel:
    if isinstance(device, Emulator):
        if jit is not None and jit is not device.jit:
            raise UsageError("jit and device: an Emulator has a Jit of its own, tessera.Emulator(jit=...)")
        jit = device.jit
        fields.setdefault("arch", device.arch)
    jit = default_jit() if jit is None else require_jit(jit)
    if "arch" not in fields and device != "emulator" and (target := arrays.target_of(first)) is not None:
        fields["arch"] = target
    for name, value in fields.items():
        if isinstance(value, (list, dict, set)):
            raise UsageError(f"{name} = {value!r}: must be one value")
    key = (op, *fields.items())
    kernel = jit._kernels.get(key)
    if kernel is None:
        kernel = jit._kernels[key] = Kernel(op, jit=jit, **fields)
    return kernel


def _is_raw(dtype: str) -> bool:
    return dtype in ("u8", "u16")


def _power_of_two(value: int) -> int:
    return 1 << max(value - 1, 0).bit_length()


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
    if of_v is not None and of_v.shape[-1] != of_q.shape[-1]:
        chosen["head_dim_v"] = of_v.shape[-1]
    if not _is_raw(of_k.dtype) and of_k.dtype != chosen["dtype"]:
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
    kernel = _kernel("fmha", of_q, device, jit, chosen)
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
        "batch": _power_of_two(q.shape[0]),
        "heads_q": q.shape[2],
        "heads_kv": k.shape[-2],
        "seqlen_q": q.shape[1],
        "seqlen_k": _power_of_two(seqlen_k),
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
    places: dict[str, Any]  #: cu_seqlens_q, cu_seqlens_k, seqused_k: those that were given


def attention_quantize(
    q: Any,
    k: Any,
    v: Any,
    *,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
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
    if seqused_k is not None:
        chosen["seqused"] = "k"
        places["seqused_k"] = seqused_k
    given = places if block_table is None else places | {"block_table": block_table}
    chosen |= _nvfp4_target(device) | fields
    kernel = _kernel("attention_quantize", of_q, device, jit, chosen)
    made = kernel(device=device, stream=stream, workspace=workspace, q=of_q, k=of_k, v=of_v, **given, **sizes)
    sizes |= {"seqlen_q": of_q.shape[-3], "heads_q": of_q.shape[-2], "heads_kv": of_k.shape[-2]}
    sizes["batch"] = of_q.shape[0] if cu_seqlens_q is None else arrays.view("cu_seqlens_q", cu_seqlens_q).shape[0] - 1
    # Pages are no more: their keys lie dense now.
    lie = {name: chosen[name] for name in ("head_dim", "q_layout", "kv_layout", "seqused") if name in chosen}
    if block_table is not None:
        lie |= {"kv_layout": "dense", "seqused": "k"}
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
        chosen |= {name: _power_of_two(values[name]) if name in rounded else values[name] for name in hints}
    chosen |= _nvfp4_target(device) | fields
    kernel = _kernel("fmha", of_q, device, jit, chosen)
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


@remembers
def gemm(
    a: Any,
    b: Any,
    *,
    bias: Any = None,
    activation: str | None = None,
    c: Any = None,
    alpha: float | None = None,
    beta: float | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    out: Any = None,
    out_dtype: str | None = None,
    dtype: str | None = None,
    device: Device = None,
    stream: int | None = None,
    workspace: Any = None,
    jit: Jit | None = None,
    **fields: Any,
) -> Any:
    """Matrix product: activation(alpha a b^T + beta c + bias). Returns d.

    Shapes: a [m, k], b [n, k] (as weights of a linear layer), c and d [m, n], bias [n]; or each with l matrices in front,
    [l, m, k]. Sums are fp32. a_layout="mn" and b_layout="mn" take a [k, m] and b [k, n], of 16-bit types.

    activation: "relu", "gelu", "gelu_tanh", "silu". scale_a, scale_b: fp32, one element each, of e4m3 and e5m2
    operands. dtype: of a and b where the tensors hold its bits as unsigned numbers. out_dtype: "bf16", "f16" or "f32";
    default: that of a with 16 bits, else bf16. fields: further ones (docs/operators.md). For few rows give the sizes as
    hints too: `hints=True` takes those of the tensors, for a kernel chosen for them.

    device, stream, out, workspace and errors: as of tessera.fmha.
    """
    of_a, of_b = arrays.view("a", a), arrays.view("b", b)
    uses_hints = fields.pop("hints", False)
    if len(of_a.shape) not in (2, 3) or len(of_b.shape) != len(of_a.shape):
        raise UsageError(f"a and b have {len(of_a.shape)} and {len(of_b.shape)} dimensions: 2, or 3, are expected of both")
    chosen: dict[str, Any] = {"dtype": dtype or of_a.dtype}
    if not _is_raw(of_b.dtype) and of_b.dtype != chosen["dtype"]:
        chosen["b_dtype"] = of_b.dtype
    if out is not None and out_dtype is None and not _is_raw(of_out := arrays.view("out", out).dtype):
        out_dtype = of_out
    chosen["d_dtype"] = out_dtype or (chosen["dtype"] if chosen["dtype"] in ("bf16", "f16") else "bf16")
    if bias is not None:
        chosen["bias"] = "column"
    if activation is not None:
        chosen["activation"] = activation
    if c is not None:
        chosen["c"] = "matrix"
    chosen |= fields
    if uses_hints:
        is_a_k, is_b_k = chosen.get("a_layout", "k") == "k", chosen.get("b_layout", "k") == "k"
        chosen |= {
            "m": of_a.shape[-2 if is_a_k else -1],
            "n": of_b.shape[-2 if is_b_k else -1],
            "k": of_a.shape[-1 if is_a_k else -2],
        }
    kernel = _kernel("gemm", of_a, device, jit, chosen)
    return kernel(
        device=device,
        stream=stream,
        workspace=workspace,
        a=of_a,
        b=of_b,
        c=c,
        d=out,
        bias=bias,
        alpha=alpha,
        beta=beta,
        scale_a=scale_a,
        scale_b=scale_b,
    )["d"]


@remembers
def quantize(
    x: Any,
    format: str = "nvfp4",
    *,
    scale_form: str = "plain",
    global_scale: Any = None,
    values: Any = None,
    scales: Any = None,
    dtype: str | None = None,
    device: Device = None,
    stream: int | None = None,
    jit: Jit | None = None,
    **fields: Any,
) -> tuple[Any, Any]:
    """To a block-scaled format: (values, scales), both of bytes.

    x [rows, k] or [l, rows, k], fp32, fp16 or bf16; k is a multiple of the block (16 for nvfp4, else 32). format:
    "nvfp4", "mxfp4", "mxfp8_e4m3", "mxfp8_e5m2". values: [.., rows, k / 2] for 4-bit formats (two in a byte, the lower k in
    the low four bits), else [.., rows, k]. scales: one for each block, [.., rows, k / block] with scale_form "plain"; "tile"
    as the matrix instructions of sm_100 read them (docs/operators.md). global_scale: nvfp4's fp32 factor, one element
    on the device; None: 1.

    device, stream and errors: as of tessera.fmha.
    """
    of_x = arrays.view("x", x)
    chosen: dict[str, Any] = {"dtype": dtype or of_x.dtype, "format": format, "scale_form": scale_form}
    if global_scale is not None:
        chosen["global_scale"] = "given"
    chosen |= fields
    kernel = _kernel("quantize", of_x, device, jit, chosen)
    outputs = kernel(device=device, stream=stream, x=of_x, values=values, scales=scales, global_scale=global_scale)
    return outputs["values"], outputs["scales"]


@remembers
def dequantize(
    values: Any,
    scales: Any,
    format: str = "nvfp4",
    *,
    scale_form: str = "plain",
    global_scale: Any = None,
    out: Any = None,
    out_dtype: str = "bf16",
    device: Device = None,
    stream: int | None = None,
    jit: Jit | None = None,
    **fields: Any,
) -> Any:
    """From a block-scaled format: y [rows, k] or [l, rows, k], in out_dtype ("bf16", "f16", "f32").

    values, scales, format, scale_form, global_scale: as tessera.quantize returns and takes them. device, stream and
    errors: as of tessera.fmha.
    """
    of_values = arrays.view("values", values)
    require_dimensions(of_values, "values", 2)
    chosen: dict[str, Any] = {"dtype": out_dtype, "format": format, "scale_form": scale_form}
    if global_scale is not None:
        chosen["global_scale"] = "given"
    chosen |= fields
    elements = 1 if str(format).startswith("mxfp8") else 2
    kernel = _kernel("dequantize", of_values, device, jit, chosen)
    return kernel(
        device=device,
        stream=stream,
        values=of_values,
        scales=scales,
        y=out,
        global_scale=global_scale,
        k=of_values.shape[-1] * elements,
    )["y"]


def _chain_columns(chain: str, width: int, x2_width: int) -> int:
    """Columns of a row after the chain's source, from those of x (of values in formats: bytes) and of x2."""
    part = next((part for part in chain.split("+") if not part.startswith("gather")), "")
    source, options = part.split("(")[0], part.strip(")").split("(")[-1].split(",")
    if source in ("gate", "silu_mul", "swiglu", "gelu_mul", "gelu_tanh_mul"):
        return width // 2
    if source in ("join", "append_kv"):
        return width + x2_width
    if source == "compress":
        return width // 2 if "overlap" in options else width
    if source == "dequant":
        return width * 2 if "nvfp4" in options or "mxfp4" in options else width
    return width // 4 if source == "mhc_pre" else width


@remembers
def rows(
    x: Any,
    chain: str,
    *,
    columns: int | None = None,
    device: Device = None,
    stream: int | None = None,
    jit: Jit | None = None,
    dtype: str | None = None,
    fields: dict[str, Any] | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """A chain of parts over rows, one kernel and one pass over memory: every result by its name.

    x [rows, width], fp32, fp16 or bf16; what its columns are follows from the chain's source (docs/rows.md): of "gate" two halves,
    of "mhc_pre" four streams, of "dequant" bytes of values (dtype is bf16 then, unless it is given). chain:
    "residual(store)+rmsnorm+e4m3" say; what it reads is given by the names of the buffers, here residual= [rows, columns] and
    weight= [columns], what it writes is made, or given as well: residual_out, y [rows, columns] (e4m3) and y_scales
    [rows, columns / 128] (fp32). positions, slots and indices are int32. Sizes that no tensor tells (heads, pages, page_size,
    placed_rows) and the scalar eps are given by name too; fields: pins like {"threads_of_row": 128}.

    device, stream and errors: as of tessera.fmha; UsageError for a chain that is misspelled, with the place.
    """
    of_x = arrays.view("x", x)
    require_dimensions(of_x, "x", 2)
    if not isinstance(chain, str):
        raise UsageError(f"chain = {chain!r}: must be a text, like 'rmsnorm+e4m3'")
    if columns is None:
        x2 = arguments.get("x2")
        columns = _chain_columns(chain, of_x.shape[-1], 0 if x2 is None else arrays.view("x2", x2).shape[-1])
    if dtype is None:
        dtype = "bf16" if of_x.dtype in ("u8", "e4m3") else of_x.dtype
    chosen: dict[str, Any] = {"dtype": dtype, "columns": columns, "chain": chain} | (fields or {})
    kernel = _kernel("rows", of_x, device, jit, chosen)
    return dict(kernel(device=device, stream=stream, x=of_x, **arguments))


@remembers
def moe_route(
    logits: Any,
    *,
    top_k: int,
    scoring: str = "sigmoid",
    bias: Any = None,
    scale: float = 1.0,
    renormalize: bool = True,
    grouping: str = "contiguous",
    alignment: int = 1,
    expert_groups: int = 1,
    topk_groups: int = 1,
    device: Device = None,
    stream: int | None = None,
    jit: Jit | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """Each token's experts, their weights, and the lists of each expert's rows: every result by its name.

    logits [m, experts], fp32, fp16 or bf16. topk_experts and topk_weights are [m, top_k]; groups, counts, indices, row_weights and
    slots are the lists that docs/operators.md (moe_route) has, for grouping "contiguous" or "masked" (rows_of_group= there);
    "none": no lists. scoring: "softmax", "sigmoid" or "sqrt_softplus". bias [experts] fp32 counts for the choice alone. Results
    that are given by name are written there.

    device, stream and errors: as of tessera.fmha.
    """
    of_logits = arrays.view("logits", logits)
    require_dimensions(of_logits, "logits", 2)
    chosen: dict[str, Any] = {
        "dtype": of_logits.dtype,
        "experts": of_logits.shape[-1],
        "top_k": top_k,
        "scoring": scoring,
        "bias": "none" if bias is None else "column",
        "renormalize": "on" if renormalize else "off",
        "grouping": grouping,
        "alignment": alignment,
        "expert_groups": expert_groups,
        "topk_groups": topk_groups,
    }
    if bias is not None:
        arguments["bias"] = bias
    kernel = _kernel("moe_route", of_logits, device, jit, chosen)
    return dict(kernel(device=device, stream=stream, logits=of_logits, scale=scale, **arguments))


@remembers
def topk(
    scores: Any,
    k: int,
    *,
    lengths: Any = None,
    row_starts: Any = None,
    block_table: Any = None,
    page_size: int | None = None,
    row_sequences: Any = None,
    offsets: Any = None,
    largest_index: bool = False,
    order: str = "index",
    values: bool = False,
    device: Device = None,
    stream: int | None = None,
    jit: Jit | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """The k largest elements of each row of scores [m, n], exactly: "indices" int32 [m, k], with values=True "values" too.

    lengths [m] int32: columns of each row, with row_starts [m] from there on (indices count from it). Rows with fewer than k end in
    -1 and -inf. Indices ascend, or with order="value" the largest element stands first; of equal elements those with the smaller
    index are taken, with largest_index=True those with the larger; a NaN stands behind every number. block_table
    [sequences, max_pages] int32 with page_size: indices are places in the table's pages, by row_sequences [m] of each row's sequence
    (none: row i is sequence i). offsets [m] int32: added to a row's indices. fp32, fp16 or bf16.

    device, stream and errors: as of tessera.fmha.
    """
    of_scores = arrays.view("scores", scores)
    require_dimensions(of_scores, "scores", 2)
    chosen: dict[str, Any] = {
        "dtype": of_scores.dtype,
        "k": k,
        "ties": "larger" if largest_index else "smaller",
        "order": order,
        "range": "all" if lengths is None else "lengths" if row_starts is None else "starts",
        "index_form": "pages" if block_table is not None else "columns" if offsets is None else "offsets",
        "values": "on" if values else "off",
        "m": _power_of_two(of_scores.shape[0]),
        "n": _power_of_two(of_scores.shape[1]),
    }
    given = {
        "lengths": lengths,
        "row_starts": row_starts,
        "block_table": block_table,
        "page_size": page_size,
        "row_sequences": row_sequences,
        "offsets": offsets,
    }
    arguments |= {name: value for name, value in given.items() if value is not None}
    kernel = _kernel("topk", of_scores, device, jit, chosen)
    return dict(kernel(device=device, stream=stream, scores=of_scores, **arguments))
