#!/usr/bin/env python3
"""The first product of a layer of experts that quantises its result (d_scale_block), beside the product and a quantiser in two launches.

e4m3 operands with factors for 1 x 128 and 128 x 128, contiguous groups of equal size, rows gathered by a random list, gate and up in turn.
Three ways from x to e4m3 and factors of the gated result: one launch; a product with the gate, bf16, and rows' e4m3; a product, bf16, and
rows' gate(silu)+e4m3. Weights alone are more than the L2 holds. A graph has ten rounds of each way, graphs take turns; microseconds are the
median graph over its rounds. d and sfd of the first way are compared with quantize_blocks of the same product in fp32, byte by byte.
Prints a Markdown table.

  python3 bench/peers/quantised_output.py --library build/bench/peers/libtessera_peer_shim.so [--cases 8x64,8x1024,8x4096,32x256]
      [--nk 4096x7168] [--pins "tile_m=64;tile_m=128"] [--repeat 5] [--output FILE]
"""
import ctypes

import torch

from beside_read import Table, kernels, parser_of
from fmha_decode import graph_of, times_us
from named_launch import Kernel

CASES = "8x64,8x1024,8x4096,32x256"  # groups x rows of each
FACTS = "dtype=e4m3,a_scale_block=1x128,b_scale_block=128x128,grouping=contiguous,gather=rows"
GATE = ",gate=interleaved,interleave=8"


def e4m3(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(torch.float8_e4m3fn)


def cell(library, groups, rows, n, k, pins, repeat):
    m, tokens, inner = groups * rows, groups * rows // 2, n // 2
    a, b = e4m3(tokens, k), torch.cat([e4m3(1, n, k) for _ in range(groups)])
    shared = {"m": m, "n": n, "k": k, "l": groups, "a_rows": tokens, "a": a, "b": b,
              "sfa": torch.rand(tokens, -(-k // 128), device="cuda") + 0.5, "sfb": (torch.rand(groups, -(-n // 128), -(-k // 128), device="cuda") + 0.5) / k,
              "groups": torch.arange(groups + 1, device="cuda", dtype=torch.int32) * rows,
              "indices": torch.randint(0, tokens, (m,), device="cuda", dtype=torch.int32)}
    hints = f",m={m},n={n},k={k},l={groups}"
    d, sfd = torch.empty(m, inner, device="cuda", dtype=torch.uint8), torch.empty(m, -(-inner // 128), device="cuda")
    wide = torch.empty(m, inner, device="cuda")
    Kernel(library, "gemm", FACTS + GATE + ",d_dtype=f32" + hints).bind(d=wide, **shared)()
    values, factors = torch.empty_like(d), torch.empty_like(sfd)
    quantise = Kernel(library, "quantize_blocks", "dtype=f32,scale_block=1x128")
    quantise.bind(l=1, rows=m, k=inner, x=wide, values=values, factors=factors)()
    names, ways = [], []
    for kernel in kernels(library, "gemm", FACTS + GATE + ",d_dtype=e4m3,d_scale_block=1x128" + hints, pins):
        one = kernel.bind(d=d, sfd=sfd, **shared)
        d.fill_(255)
        sfd.fill_(float("nan"))
        one()
        torch.cuda.synchronize()
        other = int((d != values).sum()), int((sfd != factors).sum())
        print(f"{groups} x {rows}: {other[0]} of {d.numel()} bytes and {other[1]} of {sfd.numel()} factors are not quantize_blocks'", flush=True)
        names.append("one launch, " + kernel.name.split("_gated8_")[-1])
        ways.append(one)
    y, y_scales = torch.empty_like(d), torch.empty_like(sfd)
    for name, gate, chain in (("gate, then e4m3", GATE, "e4m3"), ("product, then gate(silu)+e4m3", "", "gate(silu)+e4m3")):
        between = torch.empty(m, inner if gate else n, device="cuda", dtype=torch.bfloat16)
        first = Kernel(library, "gemm", FACTS + gate + hints).bind(d=between, **shared)
        second = Kernel(library, "rows", f"columns={inner},chain={chain},rows={m}").bind(rows=m, x=between, y=y, y_scales=y_scales)
        names.append(name)
        ways.append(lambda first=first, second=second: (first(), second()))
    graphs = []
    for name, way in zip(names, ways):
        print(f"{groups} x {rows}: {name}", flush=True)  # which of them a fault is of
        graphs.append(graph_of([way], 10))
    return names, times_us(graphs, repeat)


def main():
    parser = parser_of(__doc__, "4096x7168")
    parser.add_argument("--cases", default=CASES)
    arguments = parser.parse_args()
    library = ctypes.CDLL(arguments.library)
    torch.zeros(1, device="cuda")  # a context
    table = Table(arguments, ["groups x rows x n x k", "way", "us", "of the first"])
    for nk in arguments.nk.split(","):
        n, k = map(int, nk.split("x"))
        for case in arguments.cases.split(","):
            groups, rows = map(int, case.split("x"))
            names, us = cell(library, groups, rows, n, k, arguments.pins, arguments.repeat)
            for name, time in zip(names, us):
                table.row(f"{groups} x {rows} x {n} x {k}", name, f"{time:.1f}", f"{time / us[0]:.3f}")
    table.save()


if __name__ == "__main__":
    main()
