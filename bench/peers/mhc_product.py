#!/usr/bin/env python3
"""mHC's product and sums of squares beside DeepGEMM's tf32_hc_prenorm_gemm and a copy of the same bytes.

Random normal data. A graph of at least 20 launches walks over copies of a that together are more than four times the L2; graphs take turns;
microseconds are the median graph over its launches. Both run whole and in the same numbers of parts, which the reader has to add up. The
copy moves half of a's bytes. Errors are against float64, as a share of the sum of magnitudes. Prints a Markdown table, and for each shape
the time of DeepGEMM's fastest over that of our fastest.

  python3 bench/peers/mhc_product.py --library build/bench/peers/libtessera_peer_shim.so [--m 1,137,4096] [--k 28672]
      [--splits 1,4,16] [--pins warps_m=4,warps_k=1] [--no-peers] [--repeat 5] [--output FILE]
"""
import argparse
import ctypes
import itertools
import pathlib
import subprocess
import sys

import torch

from fmha_decode import ROTATED_BYTES, graph_of, times_us
from named_launch import Kernel

N = 24


def error_of(d, a, b):
    rows = min(a.shape[0], 64)
    exact, size = a[:rows].double() @ b.double().T, a[:rows].double().abs() @ b.double().abs().T
    return ((d[:rows].double() - exact).abs() / size).max().item()


def cell(library, m, k, splits, pins, repeat, deep_gemm):
    copies = min(max(1, -(-ROTATED_BYTES // (2 * m * k))), 256)
    many = [torch.randn(m, k, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
    b = torch.randn(N, k, device="cuda")
    d, squares = torch.empty(splits, m, N, device="cuda"), torch.empty(splits, m, device="cuda")
    kernel = Kernel(library, "mhc_product", f"m={m},k={k},splits={splits}" + ("," + pins if pins else ""))
    launches = [kernel.bind(m=m, k=k, a=a, b=b, d=d, sum_squares=squares) for a in many]
    launches[0]()
    torch.cuda.synchronize()
    error = error_of(d.sum(0), many[0], b)
    share = (squares.double().sum(0) / many[0].double().square().sum(-1) - 1).abs().max().item()
    if not (error < 1e-4 and share < 1e-4):
        sys.exit(f"wrong by {error:.1e} and {share:.1e}: {m} x {k}, {kernel.name}")
    halves = [(torch.empty(m * k // 2, device="cuda", dtype=torch.bfloat16), a.view(-1)[:m * k // 2]) for a in many]
    graphs = [graph_of(launches), graph_of([lambda to=to, a=a: to.copy_(a) for to, a in halves])]
    theirs = float("nan")
    if deep_gemm is not None:
        of_parts = splits if splits > 1 else None
        d, squares = (torch.empty((splits,) * (splits > 1) + shape, device="cuda") for shape in ((m, N), (m,)))
        deep_gemm.tf32_hc_prenorm_gemm(many[0], b, d, squares, num_splits=of_parts)
        theirs = error_of(d if splits == 1 else d.sum(0), many[0], b)
        graphs.append(graph_of([lambda a=a: deep_gemm.tf32_hc_prenorm_gemm(a, b, d, squares, num_splits=of_parts) for a in many]))
    us = times_us(graphs, repeat)
    return kernel.name, error, theirs, us + [float("nan")] * (3 - len(us))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--m", default="1,13,137,1024,4096,8192")
    parser.add_argument("--k", default="28672,7680,7168")
    parser.add_argument("--splits", default="1,4,16")
    parser.add_argument("--pins", default="", help="several sets, separated by ;")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    library = ctypes.CDLL(arguments.library)
    deep_gemm = None
    if not arguments.no_peers:
        import deep_gemm
    clocks = subprocess.run(["nvidia-smi", "--query-gpu=name,clocks.max.sm,clocks.max.mem,driver_version", "--format=csv,noheader"],
                            capture_output=True, text=True, check=False).stdout.strip()
    lines = [f"{clocks}, PyTorch {torch.__version__}, commit {arguments.commit}", "", f"Command: `python3 {' '.join(sys.argv)}`", "",
             "| m x k, parts | tessera us | TB/s | of the copy's speed | DeepGEMM us | time of DeepGEMM over ours | errors | kernel |",
             "|---|---|---|---|---|---|---|---|"]
    print("\n".join(lines))
    best = []
    for k in map(int, arguments.k.split(",")):
        for m in map(int, arguments.m.split(",")):
            ours, others = [], []
            for splits, pins in itertools.product(map(int, arguments.splits.split(",")), arguments.pins.split(";")):
                name, error, theirs, (mine, copy, other) = cell(library, m, k, splits, pins, arguments.repeat, deep_gemm)
                ours.append(mine)
                others.append(other)
                lines.append(f"| {m} x {k}, {splits} | {mine:.1f} | {(2 * m * k + 4 * N * k) / mine * 1e-6:.2f} | {copy / mine:.3f} | {other:.1f} | "
                             f"{other / mine:.3f} | {error:.1e} / {theirs:.1e} | {name.split('n24_')[-1]} |")
                print(lines[-1], flush=True)
                torch.cuda.empty_cache()
            best.append(f"| {m} x {k} | {min(ours):.1f} | {min(others):.1f} | {min(others) / min(ours):.3f} |")
    lines += ["", "| m x k | tessera's fastest us | DeepGEMM's us | time of DeepGEMM over ours |", "|---|---|---|---|"] + best
    print("\n".join(lines[-len(best) - 3:]))
    if arguments.output:
        pathlib.Path(arguments.output).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
