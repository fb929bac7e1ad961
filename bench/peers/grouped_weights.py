#!/usr/bin/env python3
"""bf16 products of masked groups with 4-bit weights beside a plain read of all groups' packed weights.

A case G x M: G matrices of --capacity rows, of which M count. Random activations, codes and scales, packed by pack_weights. A graph of
at least 20 launches walks over copies of the weights that together are more than four times the L2; graphs take turns; microseconds are the
median graph over its launches. The plain read (plain_read.cu, built here by nvcc) reads the packed weights once by the same method. The
first and the last group are compared with float64 on some columns, from weights that this program widens itself; rows behind a group's
last must stay as they were. Prints a Markdown table.

  python3 bench/peers/grouped_weights.py --library build/bench/peers/libtessera_peer_shim.so [--masked 8x1,8x16,...] [--nk 5760x2880,...]
      [--format mxfp4,nvfp4,int4] [--capacity 128] [--pins "tile_m=8,tile_n=128,mma_kind=mma.f16;..."] [--repeat 5] [--output FILE]
"""
import ctypes

import torch

from beside_read import Table, copies_of, kernels, parser_of, plain_reads, wrong_by
from fmha_decode import graph_of, plain_read_library, times_us
from named_launch import Kernel
from weights_4_bit import BLOCK_BYTES, Weights

MASKED = "8x1,8x8,8x16,8x32,8x64,32x1,32x8,32x16,32x64"
NK = "5760x2880,4096x7168,7168x2048"  # gpt-oss; experts of DeepSeek's size


def is_right(kernel, d, a, first_weights, groups, m):
    columns = torch.arange(min(256, d.shape[2]), device="cuda")
    for group, weights in first_weights.items():
        exact = a[group, :m].double() @ weights.exact(columns).T
        error = wrong_by(d[group, :m][:, columns], exact)
        if not error < 5e-3:
            print(f"WRONG by {error:.1e} in group {group} of {groups}: {kernel.name}", flush=True)
            return False
    if not torch.isnan(d[:, m:]).all():
        print(f"WRITTEN behind a group's last row: {kernel.name}", flush=True)
        return False
    return True


def cell(library, reader, format_, groups, m, n, k, capacity, pins, repeat):
    block = BLOCK_BYTES[format_]
    of_group = -(-n // 64) * -(-k // 128) * block
    a = torch.randn(groups, capacity, k, device="cuda", dtype=torch.float32).bfloat16()  # first: a kernel wants a context
    pack = Kernel(library, "pack_weights", f"format={format_},dtype=bf16")
    packed, first_weights = [], {}
    for copy in range(copies_of(groups * of_group)):
        all_groups = torch.empty(groups, of_group, dtype=torch.uint8, device="cuda")
        for group in range(groups):
            weights = Weights(format_, torch.bfloat16, n, k)
            all_groups[group] = weights.pack(pack, block).flatten()
            if copy == 0 and group in (0, groups - 1):
                first_weights[group] = weights
        packed.append(all_groups)
    rows = torch.full((groups,), m, device="cuda", dtype=torch.int32)
    d = torch.empty((groups, capacity, n), device="cuda", dtype=torch.bfloat16)
    names, graphs, kept = [], [], []
    for kernel in kernels(library, "gemm", f"b_dtype={format_},grouping=masked,m={m},n={n},k={k},l={groups}", pins):
        launches = [kernel.bind(m=capacity, n=n, k=k, l=groups, a=a, b=x, d=d, groups=rows) for x in packed]
        kept.append(launches)
        d.fill_(float("nan"))
        launches[0]()
        torch.cuda.synchronize()
        if not is_right(kernel, d, a, first_weights, groups, m):
            continue
        names.append(kernel.name)
        graphs.append(graph_of(launches))
    graphs.append(graph_of(plain_reads(reader, packed)))
    *ours, read_us = times_us(graphs, repeat)
    return names, ours, read_us


def main():
    parser = parser_of(__doc__, NK)
    parser.add_argument("--masked", default=MASKED)
    parser.add_argument("--format", default="mxfp4")
    parser.add_argument("--capacity", type=int, default=128, help="rows of a group's matrix")
    arguments = parser.parse_args()
    library, reader = ctypes.CDLL(arguments.library), plain_read_library()
    table = Table(arguments, ["groups x rows x n x k", "format", "tessera us", "read us", "of the read", "kernel"])
    for nk in arguments.nk.split(","):
        n, k = map(int, nk.split("x"))
        for format_ in arguments.format.split(","):
            for case in arguments.masked.split(","):
                groups, m = map(int, case.split("x"))
                names, ours, read = cell(library, reader, format_, groups, m, n, k, max(arguments.capacity, m), arguments.pins,
                                         arguments.repeat)
                for name, us in sorted(zip(names, ours), key=lambda x: x[1]):
                    table.row(f"{groups} x {m} x {n} x {k}", format_, f"{us:.1f}", f"{read:.1f}", f"{read / us:.3f}",
                              name.split(format_ + "_")[-1])
                torch.cuda.empty_cache()
    table.save()


if __name__ == "__main__":
    main()
