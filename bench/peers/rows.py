#!/usr/bin/env python3
"""Row operators beside a copy of the same bytes, and beside what torch.compile makes of the same formula, and FlashInfer.

Random normal data. A graph of at least 20 launches walks over copies of the tensors that together are more than four times the L2 (of few
rows there are 256); graphs take turns; microseconds are the median graph over its launches. The copy moves half of the operator's bytes
from one place to another (Tensor.copy_), so that as many are read and written in all. Results are compared with the formula in float32.
FlashInfer stands beside where it is installed and has the operator; its caches are its own, written through its own lists of pages.
Prints a Markdown table; the bar from 32 MB on is 0.90 of the copy's speed, for 1 to 64 rows 1.5 times its time.

  python3 bench/peers/rows.py --library build/bench/peers/libtessera_peer_shim.so [--only swiglu] [--rows 1,64,4096,16384]
      [--case NAME] [--pins threads_of_row=128] [--no-peers] [--repeat 5] [--output FILE]
  python3 bench/peers/rows.py --dry-run       # lists cases, their chains and peers; needs neither a GPU nor PyTorch
"""
import argparse
import ctypes
import pathlib
import subprocess
import sys

try:
    import torch

    from fmha_decode import ROTATED_BYTES, graph_of, times_us
    from named_launch import Kernel
except ImportError:  # cases can be listed
    torch = None
try:
    import flashinfer
except ImportError:
    flashinfer = None

BF16, F8 = (torch.bfloat16, torch.float8_e4m3fn) if torch else (None, None)
MOST_COPIES = 256  # of few rows, which then lie in the L2, the copy's too


def normal(*shape):
    return torch.randn(*shape, device="cuda", dtype=BF16)


def empty(*shape, dtype=None):
    return torch.empty(*shape, device="cuda", dtype=dtype or BF16)


def rmsnorm(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


def blocks_e4m3(v):
    of_blocks = v.unflatten(-1, (-1, 128))
    scale = of_blocks.abs().amax(-1, keepdim=True).clamp(min=1e-4) / 448
    return (of_blocks / scale).to(F8).flatten(-2), scale.squeeze(-1)


def turned(x, positions, inverse):
    pairs = x.float().unflatten(-1, (-1, 2))
    half = pairs.shape[-2]
    frequency = 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angle = positions[:, None] * frequency
    cosine, sine = angle.cos(), angle.sin() * (-1 if inverse else 1)
    even, odd = pairs.unbind(-1)
    return torch.stack((even * cosine - odd * sine, odd * cosine + even * sine), -1).flatten(-2)


class Case:
    """chain, columns; tensors(rows): one set by name; formula(**inputs): expected results by name, or None; peer: whether torch.compile
    takes the formula; library(set): a launch of FlashInfer's that does the same work; heads: rows of a token."""

    def __init__(self, name, chain, columns, tensors, formula, peer=True, library=None, heads=1):
        self.name, self.chain, self.columns, self.tensors, self.formula, self.has_peer = name, chain, columns, tensors, formula, peer
        self.library, self.heads = library, heads

    def sizes(self, rows):
        """Those that the tensors do not say."""
        found = {"heads": self.heads} if self.heads > 1 else {}
        if "scatter" in self.chain:
            found["placed_rows"] = rows
        if "mla_" in self.chain or "append_kv" in self.chain:
            found |= {"pages": pages_of(rows // self.heads), "page_size": PAGE}
        return found


D, I, HEADS, PAGE = 7168, 2048, 8, 64


def pages_of(tokens):
    return -(-tokens // PAGE)


def norm_only(rows):
    return {"x": normal(rows, D), "weight": normal(D), "y": empty(rows, D)}


def swiglu(rows):
    return {"x": normal(rows, 2 * I), "y": empty(rows, I)}


def append_pages(rows, dtype):
    tokens = rows // HEADS
    caches = {name: empty(pages_of(tokens), PAGE, HEADS, 128, dtype=dtype) for name in ("y", "y2")}
    scales = {f"{name}_scale": torch.full((1,), 0.02, device="cuda") for name in caches} if dtype is F8 else {}
    return {"x": normal(tokens, HEADS, 128), "x2": normal(tokens, HEADS, 128), **caches, **scales,
            "positions": torch.arange(tokens, device="cuda", dtype=torch.int32), "slots": torch.arange(tokens, device="cuda", dtype=torch.int32)}


def rope_only(rows):
    return {"x": normal(rows, 128), "y": empty(rows, 128), "positions": torch.arange(rows // HEADS, device="cuda", dtype=torch.int32)}


def residual_norm(rows):
    return {"x": normal(rows, D), "residual": normal(rows, D), "weight": normal(D), "residual_out": empty(rows, D), "y": empty(rows, D)}


def residual_norm_e4m3(rows):
    return {"x": normal(rows, D), "residual": normal(rows, D), "weight": normal(D), "residual_out": empty(rows, D),
            "y": empty(rows, D, dtype=F8), "y_scales": empty(rows, D // 128, dtype=torch.float32)}


def swiglu_nvfp4(rows):
    return {"x": normal(rows, 2 * I), "y": empty(rows, I // 2, dtype=torch.uint8), "y_scales": empty(rows, I // 16, dtype=torch.uint8)}


def swiglu_e4m3(rows):
    return {"x": normal(rows, 2 * I), "y": empty(rows, I, dtype=F8), "y_scales": empty(rows, I // 128, dtype=torch.float32)}


def rope_nvfp4(rows):
    return {"x": normal(rows, 512), "positions": torch.randint(0, 1 << 17, (rows,), device="cuda", dtype=torch.int32),
            "y": empty(rows, 224, dtype=torch.uint8), "y_scales": empty(rows, 28, dtype=torch.uint8), "y2": empty(rows, 64)}


def append_e4m3(rows):
    return {"x": normal(rows, 128), "positions": torch.randint(0, 1 << 17, (rows,), device="cuda", dtype=torch.int32),
            "slots": torch.randperm(rows, device="cuda").to(torch.int32), "y": empty(rows, 128, dtype=F8),
            "y_scale": torch.full((1,), 0.02, device="cuda")}


def mhc_layer(rows):
    mixes = {name: torch.rand(rows, 24, device="cuda") for name in ("mix", "next_mix")}
    return {"x": normal(rows, D), "streams": normal(rows, 4 * D), "streams_out": empty(rows, 4 * D), "weight": normal(D), **mixes,
            "y": empty(rows, D, dtype=F8), "y_scales": empty(rows, D // 32, dtype=torch.uint8)}


def mhc_post_product(rows):
    return {"x": normal(rows, D), "streams": normal(rows, 4 * D), "streams_out": empty(rows, 4 * D), "mix": torch.rand(rows, 24, device="cuda"),
            "mix_weight": torch.randn(24, 4 * D, device="cuda"), "product": empty(D // 128, rows, 24, dtype=torch.float32),
            "sum_squares": empty(D // 128, rows, dtype=torch.float32)}


def mhc_pre_product(rows):
    parts = D // 128
    return {"x": normal(rows, 4 * D), "product": torch.randn(parts, rows, 24, device="cuda"), "sum_squares": torch.full((parts, rows), 512.0, device="cuda"),
            "mix_base": torch.randn(24, device="cuda"), "mix_scale": torch.randn(3, device="cuda"), "mix_out": empty(rows, 24, dtype=torch.float32),
            "weight": normal(D), "y": empty(rows, D, dtype=F8), "y_scales": empty(rows, D // 32, dtype=torch.uint8)}


def kv_584(rows):
    pages = -(-rows // 64)
    return {"x": normal(rows, 512), "weight": normal(512), "positions": torch.randint(0, 1 << 17, (rows,), device="cuda", dtype=torch.int32),
            "slots": torch.randperm(rows, device="cuda").to(torch.int32), "cache": empty(pages, 65 * 576, dtype=torch.uint8)}


def norm_formula(x, residual, weight, **_):
    s = x.float() + residual.float()
    return {"residual_out": s.to(BF16), "y": rmsnorm(s, weight.float()).to(BF16)}


def norm_e4m3_formula(x, residual, weight, **_):
    s = x.float() + residual.float()
    y, scales = blocks_e4m3(rmsnorm(s, weight.float()))
    return {"residual_out": s.to(BF16), "y": y, "y_scales": scales}


def swiglu_e4m3_formula(x, **_):
    gate, up = x.float().chunk(2, -1)
    y, scales = blocks_e4m3(torch.nn.functional.silu(gate) * up)
    return {"y": y, "y_scales": scales}


def mhc_formula(x, streams, mix, next_mix, weight, **_):
    old = streams.float().unflatten(-1, (4, -1))
    new = mix[:, 4:8, None] * x.float()[:, None] + mix[:, 8:].unflatten(-1, (4, 4)).transpose(1, 2) @ old
    row = rmsnorm((next_mix[:, :4, None] * new).sum(1), weight.float()).unflatten(-1, (-1, 32))
    exponent = (row.abs().amax(-1, keepdim=True) / 448).log2().ceil().clamp(min=-127)
    return {"streams_out": new.flatten(1).to(BF16), "y": (row * torch.exp2(-exponent)).to(F8).flatten(1)}


def mhc_post_product_formula(x, streams, mix, mix_weight, **_):
    old = streams.float().unflatten(-1, (4, -1))
    new = (mix[:, 4:8, None] * x.float()[:, None] + mix[:, 8:].unflatten(-1, (4, 4)).transpose(1, 2) @ old).to(BF16)
    parts = new.float().unflatten(-1, (-1, 128)).permute(2, 0, 1, 3).flatten(2)
    weights = mix_weight.unflatten(-1, (4, -1, 128)).permute(2, 0, 1, 3).flatten(2)
    return {"streams_out": new.flatten(1), "sum_squares": parts.square().sum(-1), "product": parts @ weights.transpose(1, 2)}


def rope_formula(x, positions, **_):
    return {"y2": turned(x[:, 448:], positions, True).to(BF16)}


def norm_only_formula(x, weight, **_):
    return {"y": rmsnorm(x.float(), weight.float()).to(BF16)}


def swiglu_formula(x, **_):
    gate, up = x.float().chunk(2, -1)
    return {"y": (torch.nn.functional.silu(gate) * up).to(BF16)}


def turned_halves(x, positions):
    """x: [tokens, heads, columns]."""
    half = x.shape[-1] // 2
    angle = positions[:, None, None] * 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


def rope_only_formula(x, positions, **_):
    return {"y": turned_halves(x.unflatten(0, (-1, HEADS)), positions).flatten(0, 1).to(BF16)}


def append_formula(x, x2, positions, **_):
    k = turned_halves(x, positions)
    in_pages = lambda t: torch.nn.functional.pad(t, (0, 0, 0, 0, 0, -t.shape[0] % PAGE)).unflatten(0, (-1, PAGE))
    return {"y": in_pages(k).to(BF16), "y2": in_pages(x2)}


# FlashInfer's launches on copies of a set's tensors; what they write is theirs.
def infer_add_norm(s):
    x, residual = s["x"].clone(), s["residual"].clone()
    return lambda: flashinfer.norm.fused_add_rmsnorm(x, residual, s["weight"])


def infer_add_norm_e4m3(s):
    call = getattr(flashinfer.norm, "fused_add_rmsnorm_fp8_block_quant", None)
    if call is None:
        return None
    x, residual = s["x"].clone(), s["residual"].clone()
    values, rows = torch.empty_like(s["y"]), -(-len(s["x"]) // 4) * 4
    scales, normed = empty(D // 128, rows, dtype=torch.float32), torch.empty_like(s["x"])  # it writes the norm in bf16 too
    return lambda: call(values, scales, normed, x, residual, s["weight"])


def infer_norm(s):
    out = torch.empty_like(s["y"])
    return lambda: flashinfer.norm.rmsnorm(s["x"], s["weight"], out=out)


def infer_swiglu(s):
    out = torch.empty_like(s["y"])
    return lambda: flashinfer.activation.silu_and_mul(s["x"], out)


def turns_of(tokens, columns):
    """FlashInfer's table of cosines and sines."""
    angle = torch.arange(tokens, device="cuda")[:, None] * 10000.0 ** (-torch.arange(columns // 2, device="cuda") / (columns // 2))
    return torch.cat((angle.cos(), angle.sin()), -1).float()


def infer_rope(s):
    """In place, by its table; it takes q and k: of the same heads the last is k."""
    tokens, columns = len(s["positions"]), s["x"].shape[-1]
    x, turns = s["x"].clone().view(tokens, -1), turns_of(tokens, columns)
    q, k = x[:, :-columns], x[:, -columns:]
    return lambda: flashinfer.rope.apply_rope_with_cos_sin_cache_inplace(s["positions"], q, k, columns, turns, True)


def infer_append(s):
    """RoPE in place and the append, two launches, over one sequence of all tokens."""
    tokens, columns = s["x"].shape[0], s["x"].shape[-1]
    k, q, caches = s["x"].clone().flatten(1), normal(tokens, columns), (torch.empty_like(s["y"]), torch.empty_like(s["y2"]))
    int32 = lambda values: torch.tensor(values, device="cuda", dtype=torch.int32)
    turns = turns_of(tokens, columns)
    batch, pages = torch.zeros(tokens, device="cuda", dtype=torch.int32), pages_of(tokens)
    indices, starts, last = int32(list(range(pages))), int32([0, pages]), int32([tokens - (pages - 1) * PAGE])

    def both():
        flashinfer.rope.apply_rope_with_cos_sin_cache_inplace(s["positions"], q, k, columns, turns, True)
        flashinfer.page.append_paged_kv_cache(k.view_as(s["x"]), s["x2"], batch, s["positions"], caches, indices, starts, last)

    return both


CASES = [
    Case("residual + RMSNorm", "residual(store)+rmsnorm+bf16", D, residual_norm, norm_formula, library=infer_add_norm),
    Case("residual + RMSNorm + e4m3 1x128", "residual(store)+rmsnorm+e4m3", D, residual_norm_e4m3, norm_e4m3_formula,
         library=infer_add_norm_e4m3),
    Case("SwiGLU + NVFP4", "gate(silu)+nvfp4", I, swiglu_nvfp4, None, False),
    Case("SwiGLU + e4m3 1x128", "gate(silu)+e4m3", I, swiglu_e4m3, swiglu_e4m3_formula),
    Case("inverse RoPE + NVFP4", "rope(448..511,inverse)+nvfp4(0..447)+bf16(448..511)", 512, rope_nvfp4, rope_formula, False),
    Case("mHC post + pre + RMSNorm + MXFP8", "mhc_post+rmsnorm+mxfp8", D, mhc_layer, mhc_formula),
    Case("RMSNorm + RoPE + 584-byte cache", "rmsnorm+rope(448..511)+mla_584", 512, kv_584, None, False),
    Case("RoPE + append e4m3", "rope(halves)+e4m3(tensor,scatter)", 128, append_e4m3, None, False),
    Case("RoPE + append of K and V to e4m3 pages", "append_kv(128,halves,e4m3)", 256, lambda rows: append_pages(rows, F8), None, False, heads=HEADS),
    Case("RoPE + append of K and V to pages", "append_kv(128,halves)", 256, lambda rows: append_pages(rows, BF16), append_formula, False,
         infer_append, HEADS),
    Case("mHC post + product", "mhc_post(product)", D, mhc_post_product, mhc_post_product_formula, False),
    Case("mHC mix + pre + RMSNorm + MXFP8", "mhc_pre(product)+rmsnorm+mxfp8", D, mhc_pre_product, None, False),
    Case("RMSNorm", "rmsnorm+bf16", D, norm_only, norm_only_formula, library=infer_norm),
    Case("SwiGLU", "gate(silu)+bf16", I, swiglu, swiglu_formula, library=infer_swiglu),
    Case("RoPE", "rope(halves)+bf16", 128, rope_only, rope_only_formula, library=infer_rope, heads=HEADS),
]
OUTPUTS = ("residual_out", "product", "sum_squares", "mix_out", "streams_out", "y", "y2", "y_scales", "y2_scales")


def live(pages, rows):
    """The tokens of pages that were written."""
    return pages.flatten(0, 1)[:rows // HEADS]


def wrong_share(ours, theirs):
    a, b = ours.double(), theirs.double()
    return ((a - b).abs() > 0.13 * b.abs() + 0.02).double().mean().item()


def cell(library, case, rows, pins, repeat, has_peers):
    one = case.tensors(rows)
    bytes_ = sum(t.numel() * t.element_size() for t in one.values())
    copies = min(max(1, -(-ROTATED_BYTES // bytes_)), MOST_COPIES)
    sets = [one] + [case.tensors(rows) for _ in range(copies - 1)]
    kernel = Kernel(library, "rows", f"columns={case.columns},chain={case.chain},rows={rows}" + ("," + pins if pins else ""))
    mine = [kernel.bind(rows=rows, **case.sizes(rows), **s) for s in sets]
    mine[0]()
    torch.cuda.synchronize()
    if case.formula is not None:
        for name, expected in case.formula(**{k: v for k, v in one.items() if k not in OUTPUTS}).items():
            share = wrong_share(*(live(t, rows) if "append_kv" in case.chain else t for t in (one[name], expected)))
            if share > 1e-4:
                sys.exit(f"{case.name}, {rows} rows: {share:.1e} of {name} differs")
    halves = [(torch.empty(bytes_ // 2, device="cuda", dtype=torch.uint8), torch.empty(bytes_ // 2, device="cuda", dtype=torch.uint8))
              for _ in range(copies)]
    graphs = [graph_of(mine), graph_of([lambda a=a, b=b: b.copy_(a) for a, b in halves])]
    if has_peers and case.has_peer:
        compiled = torch.compile(case.formula, dynamic=False)
        inputs = [{k: v for k, v in s.items() if k not in OUTPUTS} for s in sets]
        graphs.append(graph_of([lambda s=s: compiled(**s) for s in inputs]))
    else:
        graphs.append(None)
    theirs = [launch for s in sets if (launch := case.library(s))] if has_peers and flashinfer and case.library else []
    graphs.append(graph_of(theirs) if theirs else None)
    us = iter(times_us([graph for graph in graphs if graph], repeat))
    return kernel.name, bytes_, [next(us) if graph else float("nan") for graph in graphs]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--case", help="this operator alone, by its whole name")
    parser.add_argument("--only", default="")
    parser.add_argument("--rows", default="1,64,4096,16384")
    parser.add_argument("--pins", default="", help="several sets, separated by ;")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    chosen = [case for case in CASES if arguments.only in case.name and arguments.case in (None, case.name)]
    if not chosen:
        parser.error(f"no case is {arguments.case or arguments.only}")
    if arguments.dry_run:
        for case in chosen:
            peers = ["torch.compile"] * case.has_peer + ["FlashInfer"] * bool(case.library)
            print(f"{case.name}: columns {case.columns}, chain {case.chain}; beside {', '.join(['a copy', *peers])}")
        return
    if not arguments.library or torch is None:
        parser.error("--library and PyTorch are needed")
    library = ctypes.CDLL(arguments.library)
    clocks = subprocess.run(["nvidia-smi", "--query-gpu=name,clocks.max.sm,clocks.max.mem,driver_version", "--format=csv,noheader"],
                            capture_output=True, text=True, check=False).stdout.strip()
    lines = [f"{clocks}, PyTorch {torch.__version__}, commit {arguments.commit}", "", f"Command: `python3 {' '.join(sys.argv)}`", "",
             "| operator | rows | MB | tessera us | TB/s | copy us | of the copy's speed | torch.compile us | ratio | FlashInfer us | "
             "times FlashInfer | threads |", "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    print("\n".join(lines))
    for case in chosen:
        for rows in map(int, arguments.rows.split(",")):
            rows *= 16 if case.columns <= 512 and rows > 64 else case.heads
            for pins in arguments.pins.split(";"):
                try:
                    name, bytes_, (mine, copy, peer, infer) = cell(library, case, rows, pins, arguments.repeat, not arguments.no_peers)
                except RuntimeError as error:
                    print(f"{case.name}, {rows} rows, {pins}: {error}")
                    continue
                lines.append(f"| {case.name} | {rows} | {bytes_ / 1e6:.1f} | {mine:.1f} | {bytes_ / mine * 1e-6:.2f} | {copy:.1f} | "
                             f"{copy / mine:.3f} | {peer:.1f} | {peer / mine:.2f} | {infer:.1f} | {infer / mine:.2f} | {name.split('_')[-1]} |")
                print(lines[-1], flush=True)
            torch.cuda.empty_cache()
    if arguments.output:
        pathlib.Path(arguments.output).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
