"""Products, block-scaled formats, row operators and routers as functions: fields from the tensors, a kernel, a launch.

A kernel is found once for each set of fields; later calls take it from a dict. For the least time between launches
bind once (`tessera.Kernel(...).bind(...)`) and launch that.
"""

from __future__ import annotations

from . import arrays
from .emulator import Emulator
from .errors import UsageError
from .jit import Jit, default_jit, require_jit
from .kernel import Kernel
from .remembered import remembers
from .values import require_dimensions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .kernel import Device


def kernel_of(op: str, first: arrays.View, device: Device, jit: Jit | None, fields: dict[str, Any]) -> Kernel:
    """Of an operator, for a tensor on its device; from a dict where the same was asked for before."""
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


def is_raw(dtype: str) -> bool:
    """Whether a tensor holds the bits of some type as unsigned numbers."""
    return dtype in ("u8", "u16")


def power_of_two(value: int) -> int:
    """The least that is no less: sizes as hints, so that few kernels serve many."""
    return 1 << max(value - 1, 0).bit_length()


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
    if not is_raw(of_b.dtype) and of_b.dtype != chosen["dtype"]:
        chosen["b_dtype"] = of_b.dtype
    if out is not None and out_dtype is None and not is_raw(of_out := arrays.view("out", out).dtype):
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
    kernel = kernel_of("gemm", of_a, device, jit, chosen)
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
    "nvfp4", "mxfp4", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp8_e4m3", "mxfp8_e5m2". values: [.., rows, k / 2] for 4-bit formats (two in
    a byte, the lower k in the low four bits), [.., rows, k * 3 / 4] for 6-bit ones (a stream of bits, the lowest first), else
    [.., rows, k]. scales: one for each block, [.., rows, k / block] with scale_form "plain"; "tile"
    as the matrix instructions of sm_100 read them (docs/operators.md). global_scale: nvfp4's fp32 factor, one element
    on the device; None: 1.

    device, stream and errors: as of tessera.fmha.
    """
    of_x = arrays.view("x", x)
    chosen: dict[str, Any] = {"dtype": dtype or of_x.dtype, "format": format, "scale_form": scale_form}
    if global_scale is not None:
        chosen["global_scale"] = "given"
    chosen |= fields
    kernel = kernel_of("quantize", of_x, device, jit, chosen)
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
    bits = 8 if str(format).startswith("mxfp8") else 6 if str(format).startswith("mxfp6") else 4
    kernel = kernel_of("dequantize", of_values, device, jit, chosen)
    return kernel(
        device=device,
        stream=stream,
        values=of_values,
        scales=scales,
        y=out,
        global_scale=global_scale,
        k=of_values.shape[-1] * 8 // bits,
    )["y"]


def _chain_columns(chain: str, width: int, x2_width: int) -> int:
    """Columns of a row after the chain's source, from those of x (of values in formats: bytes) and of x2."""
    part = next((part for part in chain.split("+") if not part.startswith(("gather", "heads"))), "")
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
    kernel = kernel_of("rows", of_x, device, jit, chosen)
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
    kernel = kernel_of("moe_route", of_logits, device, jit, chosen)
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
    guesses: Any = None,
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

    guesses [m] fp32: of each row a number that k elements or somewhat more are not below, such as the k-th of the step before less a
    margin. The result is the same, sooner where the guess is right; "kth" [m] fp32 is then the k-th value (-inf: there are fewer).

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
        "guesses": "off" if guesses is None else "on",
        "m": power_of_two(of_scores.shape[0]),
        "n": power_of_two(of_scores.shape[1]),
    }
    given = {
        "lengths": lengths,
        "row_starts": row_starts,
        "block_table": block_table,
        "page_size": page_size,
        "row_sequences": row_sequences,
        "offsets": offsets,
        "guesses": guesses,
    }
    arguments |= {name: value for name, value in given.items() if value is not None}
    kernel = kernel_of("topk", of_scores, device, jit, chosen)
    return dict(kernel(device=device, stream=stream, scores=of_scores, **arguments))
