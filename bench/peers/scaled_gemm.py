#!/usr/bin/env python3
"""e4m3 products with fp32 factors of blocks (a 1 x 128, b 128 x 128) beside DeepGEMM, cuBLAS (through PyTorch) and a plain read of b.

Random normal data, random factors. A graph of at least 20 launches walks over copies of a and b that together are more than four times
the L2; graphs take turns; microseconds are the median graph over its launches, and of 1,024 rows and more those of a graph that runs alone
for 0.35 s too ("alone": the GPU is at its power limit). a's factors lie column by column, as DeepGEMM wants them.
The plain read (plain_read.cu, built here by nvcc) reads a and b once by the same method. Each result of ours is compared with float64 on
some rows. Prints a Markdown table, then geometric means over the peers.

  python3 bench/peers/scaled_gemm.py --library build/bench/peers/libtessera_peer_shim.so [--m 1,8,64,128,4096] [--nk 7168x16384,...]
      [--pins "tile_m=128,tile_n=128;..."] [--no-peers] [--repeat 5] [--output FILE]
"""
import ctypes
import math
import sys

import torch

from beside_read import Table, alone, compile_all, copies_of, geometric_mean, kernels, parser_of, plain_reads, settle, with_pins, wrong_by
from fmha_decode import graph_of, plain_read_library, times_us

NK = "2112x7168,576x7168,24576x1536,32768x512,7168x16384,4096x7168,7168x2048"  # DeepGEMM's test shapes


MANY_ROWS = 1024  # from here on products run at the power limit


def blocks(x):
    return -(-x // 128)


class Operands:
    def __init__(self, m, n, k):
        self.a, self.b = (torch.randn(rows, k, device="cuda").to(torch.float8_e4m3fn) for rows in (m, n))
        self.pitch = -(-m // 4) * 4
        self.sfa = torch.rand(blocks(k), self.pitch, device="cuda") + 0.5  # [k blocks, rows]
        self.sfb = torch.rand(blocks(n), blocks(k), device="cuda") + 0.5

    def exact(self, rows):
        a = self.a[:rows].double() * self.sfa[:, :rows].T.double().repeat_interleave(128, 1)[:, :self.a.shape[1]]
        b = self.b.double() * self.sfb.double().repeat_interleave(128, 0).repeat_interleave(128, 1)[:self.b.shape[0], :self.b.shape[1]]
        return a @ b.T


def cublas(x):
    """PyTorch's binding of cuBLAS's products with these factors, where there is one."""
    from torch.nn.functional import ScalingType, SwizzleType, scaled_mm
    sfa = x.sfa[:, :x.a.shape[0]].T if x.pitch == x.a.shape[0] else x.sfa.T[:x.a.shape[0]].T.contiguous().T
    return lambda: scaled_mm(x.a, x.b.t(), sfa, ScalingType.BlockWise1x128, x.sfb.t(), ScalingType.BlockWise128x128,
                             swizzle_a=SwizzleType.NO_SWIZZLE, swizzle_b=SwizzleType.NO_SWIZZLE, output_dtype=torch.bfloat16)


def facts_of(m, n, k):
    return f"dtype=e4m3,a_scale_block=1x128,b_scale_block=128x128,m={m},n={n},k={k}"


def cell(library, reader, m, n, k, pins, repeat, deep_gemm):
    many = [Operands(m, n, k) for _ in range(copies_of((m + n) * k, 64))]
    d, theirs = (torch.full((m, n), math.nan, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    names, graphs = [], []
    for kernel in kernels(library, "gemm", facts_of(m, n, k), pins):
        launches = [kernel.bind(m=m, n=n, k=k, a=x.a, b=x.b, d=d, sfa=x.sfa, sfb=x.sfb, sfa_stride_m=1, sfa_stride_k=x.pitch) for x in many]
        launches[0]()
        rows = min(m, 64)
        exact = many[0].exact(rows)
        error = wrong_by(d[:rows], exact)
        if not error < 5e-3:
            sys.exit(f"wrong by {error:.1e}: {m} x {n} x {k}, {kernel.name}")
        names.append(kernel.name)
        graphs.append(graph_of(launches))
    flat = [torch.empty((m + n) * k, device="cuda", dtype=torch.uint8) for _ in many]
    graphs.append(graph_of(plain_reads(reader, flat)))
    if deep_gemm is not None:
        run = lambda x: deep_gemm.fp8_gemm_nt((x.a, x.sfa.T[:m]), (x.b, x.sfb), theirs)
        run(many[0])
        error = wrong_by(theirs[:rows], exact)
        if not error < 5e-3:
            print(f"DeepGEMM is wrong by {error:.1e}", flush=True)
        graphs.append(graph_of([lambda x=x: run(x) for x in many]))
    else:
        graphs.append(None)
    try:
        launches = [cublas(x) for x in many]
        error = wrong_by(launches[0]()[:rows], exact)  # of another name: DeepGEMM's graph writes to `theirs`
        if not error < 5e-3:
            print(f"cuBLAS is wrong by {error:.1e}", flush=True)
        graphs.append(graph_of(launches))
    except (ImportError, RuntimeError, ValueError) as error:
        print(f"no cuBLAS: {str(error)[:300]}", flush=True)
        graphs.append(None)
    settle(graphs, m >= MANY_ROWS)
    us = iter(times_us([graph for graph in graphs if graph is not None], repeat))
    return names, [math.nan if graph is None else next(us) for graph in graphs], alone([*graphs[:len(names)], graphs[-2]], m >= MANY_ROWS)


def main():
    parser = parser_of(__doc__, NK)
    parser.add_argument("--m", default="1,8,64,128,4096")
    parser.add_argument("--no-peers", action="store_true")
    arguments = parser.parse_args()
    library, reader = ctypes.CDLL(arguments.library), plain_read_library()
    deep_gemm = None
    if not arguments.no_peers:
        import deep_gemm
    table = Table(arguments, ["m x n x k", "tessera us", "TFLOP/s", "of the read's speed", "DeepGEMM us", "times it", "cuBLAS us",
                              "times cuBLAS", "alone us", "DeepGEMM alone us", "alone, times it", "kernel"])
    ratios = {}
    shapes = [(m, *map(int, nk.split("x"))) for nk in arguments.nk.split(",") for m in map(int, arguments.m.split(","))]
    compile_all(library, [("gemm", text) for shape in shapes for text in with_pins(facts_of(*shape), arguments.pins)])
    for m, n, k in shapes:
        names, us, us_alone = cell(library, reader, m, n, k, arguments.pins, arguments.repeat, deep_gemm)
        *ours, read, deep, blas = us
        *ours_alone, deep_alone = us_alone
        for name, mine, mine_alone in zip(names, ours, ours_alone):
            table.row(f"{m} x {n} x {k}", f"{mine:.1f}", f"{2 * m * n * k / mine * 1e-6:.0f}", f"{read / mine:.3f}", f"{deep:.1f}",
                      f"{deep / mine:.3f}", f"{blas:.1f}", f"{blas / mine:.3f}",
                      f"{mine_alone:.1f}", f"{deep_alone:.1f}", f"{deep_alone / mine_alone:.3f}", name.split("to_bf16_")[-1])
        best = min(ours)
        for peer, time in (("DeepGEMM", deep), ("cuBLAS", blas)):
            if not math.isnan(time):
                ratios.setdefault(peer, []).append(time / best)
        torch.cuda.empty_cache()
    for peer, of_peer in ratios.items():
        table.line(f"\nGeometric mean of the times of {peer} over ours: {geometric_mean(of_peer):.3f}, least {min(of_peer):.3f} "
                   f"({len(of_peer)} products)")
    table.save()


if __name__ == "__main__":
    main()
