#!/usr/bin/env python3
"""Row operators beside a copy of the same bytes, and beside what torch.compile makes of the same formula.

Random normal data. A graph of at least 20 launches walks over copies of the tensors that together are more than four times the L2 (of few
rows there are 256); graphs take turns; microseconds are the median graph over its launches. The copy moves half of the operator's bytes
from one place to another (Tensor.copy_), so that as many are read and written in all. Results are compared with the formula in float32.
Prints a Markdown table; the bar from 32 MB on is 0.90 of the copy's speed, for 1 to 64 rows 1.5 times its time.

  python3 bench/peers/rows.py --library build/bench/peers/libtessera_peer_shim.so [--only swiglu] [--rows 1,64,4096,16384]
      [--pins threads_of_row=128] [--no-peers] [--repeat 5] [--output FILE]
"""
import argparse
import ctypes
import pathlib
import subprocess
import sys

import torch

from fmha_decode import ROTATED_BYTES, graph_of, times_us
from named_launch import Kernel

BF16, F8 = torch.bfloat16, torch.float8_e4m3fn
MOST_COPIES = 256  # of few rows, which then lie in the L2, the copy's too


def normal(*shape):
    return torch.randn(*shape, device="cuda", dtype=BF16)


def empty(*shape, dtype=BF16):
    return torch.empty(*shape, device="cuda", dtype=dtype)


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
    """chain, columns; tensors(rows): one set by name; peer(set): the same formula for torch.compile, or None; judge(set): the
    largest share of wrong elements in a sample."""

    def __init__(self, name, chain, columns, tensors, formula, peer=True):
        self.name, self.chain, self.columns, self.tensors, self.formula, self.has_peer = name, chain, columns, tensors, formula, peer


D, I = 7168, 2048


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


def rope_formula(x, positions, **_):
    return {"y2": turned(x[:, 448:], positions, True).to(BF16)}


CASES = [
    Case("residual + RMSNorm", "residual(store)+rmsnorm+bf16", D, residual_norm, norm_formula),
    Case("residual + RMSNorm + e4m3 1x128", "residual(store)+rmsnorm+e4m3", D, residual_norm_e4m3, norm_e4m3_formula),
    Case("SwiGLU + NVFP4", "gate(silu)+nvfp4", I, swiglu_nvfp4, None, False),
    Case("SwiGLU + e4m3 1x128", "gate(silu)+e4m3", I, swiglu_e4m3, swiglu_e4m3_formula),
    Case("inverse RoPE + NVFP4", "rope(448..511,inverse)+nvfp4(0..447)+bf16(448..511)", 512, rope_nvfp4, rope_formula, False),
    Case("mHC post + pre + RMSNorm + MXFP8", "mhc_post+rmsnorm+mxfp8", D, mhc_layer, mhc_formula),
    Case("RMSNorm + RoPE + 584-byte cache", "rmsnorm+rope(448..511)+mla_584", 512, kv_584, None, False),
    Case("RoPE + append e4m3", "rope(halves)+e4m3(tensor,scatter)", 128, append_e4m3, None, False),
]
OUTPUTS = ("residual_out", "streams_out", "y", "y2", "y_scales", "y2_scales")


def wrong_share(ours, theirs):
    a, b = ours.double(), theirs.double()
    return ((a - b).abs() > 0.13 * b.abs() + 0.02).double().mean().item()


def cell(library, case, rows, pins, repeat, has_peers):
    one = case.tensors(rows)
    bytes_ = sum(t.numel() * t.element_size() for t in one.values())
    copies = min(max(1, -(-ROTATED_BYTES // bytes_)), MOST_COPIES)
    sets = [one] + [case.tensors(rows) for _ in range(copies - 1)]
    kernel = Kernel(library, "rows", f"columns={case.columns},chain={case.chain},rows={rows}" + ("," + pins if pins else ""))
    extra = {"placed_rows": rows} if "scatter" in case.chain else {"pages": -(-rows // 64), "page_size": 64} if "cache" in one else {}
    mine = [kernel.bind(rows=rows, **extra, **s) for s in sets]
    mine[0]()
    torch.cuda.synchronize()
    if case.formula is not None:
        for name, expected in case.formula(**{k: v for k, v in one.items() if k not in OUTPUTS}).items():
            share = wrong_share(one[name], expected)
            if share > 1e-4:
                sys.exit(f"{case.name}, {rows} rows: {share:.1e} of {name} differs")
    halves = [(torch.empty(bytes_ // 2, device="cuda", dtype=torch.uint8), torch.empty(bytes_ // 2, device="cuda", dtype=torch.uint8))
              for _ in range(copies)]
    graphs = [graph_of(mine), graph_of([lambda a=a, b=b: b.copy_(a) for a, b in halves])]
    if has_peers and case.has_peer:
        compiled = torch.compile(case.formula, dynamic=False)
        inputs = [{k: v for k, v in s.items() if k not in OUTPUTS} for s in sets]
        graphs.append(graph_of([lambda s=s: compiled(**s) for s in inputs]))
    us = times_us(graphs, repeat)
    return kernel.name, bytes_, us + [float("nan")] * (3 - len(us))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--rows", default="1,64,4096,16384")
    parser.add_argument("--pins", default="", help="several sets, separated by ;")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    library = ctypes.CDLL(arguments.library)
    clocks = subprocess.run(["nvidia-smi", "--query-gpu=name,clocks.max.sm,clocks.max.mem,driver_version", "--format=csv,noheader"],
                            capture_output=True, text=True, check=False).stdout.strip()
    lines = [f"{clocks}, PyTorch {torch.__version__}, commit {arguments.commit}", "", f"Command: `python3 {' '.join(sys.argv)}`", "",
             "| operator | rows | MB | tessera us | TB/s | copy us | of the copy's speed | torch.compile us | ratio | threads |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    print("\n".join(lines))
    for case in CASES:
        if arguments.only and arguments.only not in case.name:
            continue
        for rows in map(int, arguments.rows.split(",")):
            rows *= 16 if case.columns <= 512 and rows > 64 else 1
            for pins in arguments.pins.split(";"):
                try:
                    name, bytes_, (mine, copy, peer) = cell(library, case, rows, pins, arguments.repeat, not arguments.no_peers)
                except RuntimeError as error:
                    print(f"{case.name}, {rows} rows, {pins}: {error}")
                    continue
                lines.append(f"| {case.name} | {rows} | {bytes_ / 1e6:.1f} | {mine:.1f} | {bytes_ / mine * 1e-6:.2f} | {copy:.1f} | "
                             f"{copy / mine:.3f} | {peer:.1f} | {peer / mine:.2f} | {name.split('_')[-1]} |")
                print(lines[-1], flush=True)
            torch.cuda.empty_cache()
    if arguments.output:
        pathlib.Path(arguments.output).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
