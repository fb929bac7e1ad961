#!/usr/bin/env python3
"""Grouped e4m3 products with fp32 factors of blocks (a 1 x 128, b 128 x 128) beside DeepGEMM and a plain read of what they touch.

Contiguous cases G x M: G groups of M rows, one behind the other. Masked cases G x M: G matrices of --capacity rows, of which M count. Random
normal data, random factors. A graph of at least 20 launches walks over copies of a and b that together are more than four times the L2;
graphs take turns; microseconds are the median graph over its launches, and of contiguous groups those of a graph that runs alone for 0.35 s
too ("alone": the GPU is at its power limit). a's factors lie column by column, as DeepGEMM wants them. The plain
read (plain_read.cu, built here by nvcc) reads a's rows and every group's b once by the same method. Some rows of the first and the last
group are compared with float64. Prints a Markdown table, then geometric means over DeepGEMM.

  python3 bench/peers/grouped_gemm.py --library build/bench/peers/libtessera_peer_shim.so [--contiguous 4x8192,8x4096] [--masked 8x1,...]
      [--nk 4096x7168,...] [--capacity 128] [--pins "tile_m=128,tile_n=128;..."] [--no-peers] [--repeat 5] [--output FILE]
"""
import ctypes
import math
import sys

import torch

from beside_read import Table, alone, compile_all, copies_of, geometric_mean, kernels, parser_of, plain_reads, settle, with_pins, wrong_by
from fmha_decode import graph_of, plain_read_library, times_us

CONTIGUOUS, MASKED = "4x8192,8x4096", "8x1,8x8,8x32,8x64,32x1,32x8,32x64"
NK = "4096x7168,7168x2048,6144x7168,7168x3072"


def blocks(x):
    return -(-x // 128)


class Operands:
    """a [matrices, rows, k]: of contiguous groups one matrix."""

    def __init__(self, groups, matrices, rows, n, k):
        self.a = torch.empty(matrices, rows, k, device="cuda", dtype=torch.float8_e4m3fn)
        self.b = torch.empty(groups, n, k, device="cuda", dtype=torch.float8_e4m3fn)
        for operand in (self.a, self.b):
            for matrix in operand:
                matrix.copy_(torch.randn(matrix.shape, device="cuda"))
        self.sfa = torch.rand(matrices, blocks(k), rows, device="cuda") + 0.5
        self.sfb = torch.rand(groups, blocks(n), blocks(k), device="cuda") + 0.5

    def exact(self, matrix, first, rows, group):
        a = self.a[matrix, first:first + rows].double()
        a *= self.sfa[matrix, :, first:first + rows].T.double().repeat_interleave(128, 1)[:, :a.shape[1]]
        b = self.b[group].double()
        b *= self.sfb[group].double().repeat_interleave(128, 0).repeat_interleave(128, 1)[:b.shape[0], :b.shape[1]]
        return a @ b.T


def require_right(who, d, x, places, is_ours):
    for matrix, first, rows, group in places:
        exact = x.exact(matrix, first, rows, group)
        error = wrong_by(d[matrix, first:first + rows], exact)
        if error < 5e-3:
            continue
        if is_ours:
            sys.exit(f"wrong by {error:.1e} in group {group}: {who}")
        print(f"{who} is wrong by {error:.1e} in group {group}", flush=True)


def facts_of(is_masked, groups, m, n, k):
    grouping, rows = ("masked", m) if is_masked else ("contiguous", groups * m)
    return f"dtype=e4m3,a_scale_block=1x128,b_scale_block=128x128,grouping={grouping},m={rows},n={n},k={k},l={groups}"


def cell(library, reader, is_masked, groups, m, n, k, capacity, pins, repeat, deep_gemm):
    matrices, rows = (groups, capacity) if is_masked else (1, groups * m)
    read_bytes = groups * (m + n) * k
    many = [Operands(groups, matrices, rows, n, k) for _ in range(copies_of(read_bytes, 64))]
    some = min(m, 32)
    places = [(g if is_masked else 0, 0 if is_masked else g * m + m - some, some, g) for g in {0, groups - 1}]
    numbers = [m] * groups if is_masked else [g * m for g in range(groups + 1)]
    of_groups = torch.tensor(numbers, device="cuda", dtype=torch.int32)
    d, theirs = (torch.full((matrices, rows, n), math.nan, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    names, graphs = [], []
    for kernel in kernels(library, "gemm", facts_of(is_masked, groups, m, n, k), pins):
        launches = [kernel.bind(m=rows, n=n, k=k, l=groups, a=x.a, b=x.b, d=d, sfa=x.sfa, sfb=x.sfb, groups=of_groups, sfa_stride_m=1,
                                sfa_stride_k=rows) for x in many]
        d.fill_(math.nan)
        launches[0]()
        require_right(kernel.name, d, many[0], places, True)
        names.append(kernel.name)
        graphs.append(graph_of(launches))
    flat = [torch.empty(read_bytes, device="cuda", dtype=torch.uint8) for _ in many]
    graphs.append(graph_of(plain_reads(reader, flat)))
    if deep_gemm is not None:
        if is_masked:
            run = lambda x: deep_gemm.m_grouped_fp8_gemm_nt_masked((x.a, x.sfa.transpose(1, 2)), (x.b, x.sfb), theirs, of_groups, m)
        else:
            layout = torch.arange(groups, device="cuda", dtype=torch.int32).repeat_interleave(m)
            run = lambda x: deep_gemm.m_grouped_fp8_gemm_nt_contiguous((x.a[0], x.sfa[0].T), (x.b, x.sfb), theirs[0], layout)
        run(many[0])
        require_right("DeepGEMM", theirs, many[0], places, False)
        graphs.append(graph_of([lambda x=x: run(x) for x in many]))
    else:
        graphs.append(None)
    settle(graphs, not is_masked)
    us = iter(times_us([graph for graph in graphs if graph is not None], repeat))
    return names, [math.nan if graph is None else next(us) for graph in graphs], alone([*graphs[:len(names)], graphs[-1]], not is_masked)


def verdict(is_masked, best, read, deep):
    """The bars: contiguous 1.03 times DeepGEMM; masked 1.3 times it, or 0.80 of the read, whichever is less."""
    if math.isnan(deep):
        return "not compared"
    if not is_masked:
        return "met" if deep / best >= 1.03 else "missed"
    return "met" if deep / best >= 1.3 or read / best >= 0.8 else "missed"


def main():
    parser = parser_of(__doc__, NK)
    parser.add_argument("--contiguous", default=CONTIGUOUS)
    parser.add_argument("--masked", default=MASKED)
    parser.add_argument("--capacity", type=int, default=128, help="rows of a masked group's matrix")
    parser.add_argument("--no-peers", action="store_true")
    arguments = parser.parse_args()
    library, reader = ctypes.CDLL(arguments.library), plain_read_library()
    deep_gemm = None
    if not arguments.no_peers:
        import deep_gemm
    table = Table(arguments, ["groups x rows x n x k", "tessera us", "TFLOP/s", "of the read's speed", "DeepGEMM us", "times it",
                              "alone us", "DeepGEMM alone us", "alone, times it", "kernel", "bar"])
    ratios = {}
    shapes = [(is_masked, *map(int, case.split("x")), *map(int, nk.split("x")))
              for is_masked, cases in ((False, arguments.contiguous), (True, arguments.masked))
              for case in filter(None, cases.split(",")) for nk in arguments.nk.split(",")]
    compile_all(library, [("gemm", text) for shape in shapes for text in with_pins(facts_of(*shape), arguments.pins)])
    for is_masked, groups, m, n, k in shapes:
        names, us, us_alone = cell(library, reader, is_masked, groups, m, n, k, arguments.capacity, arguments.pins, arguments.repeat,
                         deep_gemm)
        *ours, read, deep = us
        *ours_alone, deep_alone = us_alone
        bar = verdict(is_masked, min(ours), read, deep)
        kind = "masked" if is_masked else "contiguous"
        for name, mine, mine_alone in zip(names, ours, ours_alone):
            table.row(f"{kind} {groups} x {m} x {n} x {k}", f"{mine:.1f}", f"{2 * groups * m * n * k / mine * 1e-6:.0f}",
                      f"{read / mine:.3f}", f"{deep:.1f}", f"{deep / mine:.3f}", f"{mine_alone:.1f}", f"{deep_alone:.1f}",
                      f"{deep_alone / mine_alone:.3f}", name.split("to_bf16_")[-1], bar)
        if not math.isnan(deep):
            ratios.setdefault(kind, []).append(deep / min(ours))
        torch.cuda.empty_cache()
    for kind, of_kind in ratios.items():
        table.line(f"\n{kind}: geometric mean of DeepGEMM's times over ours {geometric_mean(of_kind):.3f}, least {min(of_kind):.3f} "
                   f"({len(of_kind)} products)")
    table.save()


if __name__ == "__main__":
    main()
