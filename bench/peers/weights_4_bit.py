#!/usr/bin/env python3
"""bf16 and f16 products with 4-bit weights beside a plain read of the packed weights and our product with weights of 16 bits.

Random activations, random codes and scales, packed by pack_weights. A graph of at least 20 launches walks over copies of the weights that
together are more than four times the L2; graphs take turns; microseconds are the median graph over its launches. The plain read
(plain_read.cu, built here by nvcc) reads the packed weights once by the same method. Each result of ours is compared with float64 on some
rows and columns, from weights that this program widens itself. Prints a Markdown table: "of the read" is the read's time over ours, "of
the 16-bit rate" the 16-bit product's time over ours, "of the limit" the longer of the read's time and that of the 16-bit product of 4,096
rows, scaled to the rows, over ours.

  python3 bench/peers/weights_4_bit.py --library build/bench/peers/libtessera_peer_shim.so [--format mxfp4,nvfp4,int4,int4z] [--m 1,16,64,4096]
      [--nk 8192x8192,...] [--dtype bf16, f16 or e4m3] [--plain] [--pins "tile_m=16,tile_n=128;..."] [--repeat 5] [--output FILE]
"""
import ctypes
import itertools
import math

import torch

from beside_read import Table, compile_all, copies_of, kernels, parser_of, plain_reads, with_pins, wrong_by
from fmha_decode import graph_of, plain_read_library, times_us
from named_launch import Kernel

# Llama-70B, DeepSeek-V3, gpt-oss.
NK = "10240x8192,8192x8192,57344x8192,8192x28672,7168x16384,36864x7168,7168x18432,201088x2880"
BLOCK_BYTES = {"mxfp4": 4352, "nvfp4": 4608, "int4": 4224, "int4z": 4352}  # int4: a scale for 128; int4z: and zero points
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


class Weights:
    """Codes and scales of [n, k], and how this program widens some rows of them."""

    def __init__(self, format_, torch_type, n, k):
        self.format, self.n, self.k = format_, n, k
        self.values = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, device="cuda")
        self.group = 16 if format_ == "nvfp4" else 32 if format_ == "mxfp4" else 128
        if format_.startswith("int4"):
            self.scales = (torch.rand(n, k // self.group, device="cuda") + 0.5).to(torch_type)
            self.zeros = torch.randint(0, 16, (n, k // self.group), dtype=torch.uint8, device="cuda")
            return
        low, high = (0x20, 0x48) if format_ == "nvfp4" else (118, 130)
        self.scales = torch.randint(low, high, (n, k // self.group), dtype=torch.uint8, device="cuda")

    def pack(self, kernel, bytes_):
        packed = torch.full((-(-self.n // 64), -(-self.k // 128), bytes_), 0xFF, dtype=torch.uint8, device="cuda")
        more = {"zeros": self.zeros} if self.format == "int4z" else {}
        kernel.bind(n=self.n, k=self.k, values=self.values, scales=self.scales, packed=packed, **more)()
        return packed

    def exact(self, rows):
        table = torch.tensor(E2M1 + [-x for x in E2M1], dtype=torch.float64, device="cuda")
        bytes_ = self.values[rows].long()
        codes = torch.stack((bytes_ & 15, bytes_ >> 4), -1).reshape(len(rows), self.k)
        scales = self.scales[rows]
        if self.format.startswith("int4"):
            zeros = self.zeros[rows].repeat_interleave(128, 1) if self.format == "int4z" else 8
            codes = codes if self.format == "int4z" else codes ^ 8
            return ((codes - zeros).float() * scales.float().repeat_interleave(128, 1)).to(scales.dtype).double()
        codes = table[codes]
        scales = scales.view(torch.float8_e4m3fn).float().double() if self.format == "nvfp4" else torch.exp2(scales.double() - 127)
        return codes * scales.repeat_interleave(self.group, 1)


def wrong_on_edges(d, a, weights):
    rows = torch.cat((torch.arange(min(32, d.shape[0])), torch.arange(max(0, d.shape[0] - 32), d.shape[0]))).cuda()
    columns = torch.cat((torch.arange(min(256, d.shape[1])), torch.arange(max(0, d.shape[1] - 256), d.shape[1]))).cuda()
    exact = a[rows].double() @ weights.exact(columns).T
    return wrong_by(d[rows][:, columns], exact)


def width_of(dtype):
    """What weights are widened to, and d's type: e4m3 activations are bf16 there."""
    return "f16" if dtype == "f16" else "bf16"


def pack_facts(format_, dtype):
    return f"format={format_.removesuffix('z')},dtype={width_of(dtype)}" + (",zero_points=given" if format_ == "int4z" else "")


def dense_facts(dtype, m, n, k):
    return f"dtype={width_of(dtype)},d_dtype={width_of(dtype)},m={m},n={n},k={k}"


def facts_of(format_, dtype, is_plain, m, n, k):
    zeros, form = ",zero_points=given" if format_ == "int4z" else "", ",scale_form=plain" if is_plain else ""
    return f"dtype={dtype},d_dtype={width_of(dtype)},b_dtype={format_.removesuffix('z')}{zeros}{form},m={m},n={n},k={k}"


def cell(library, reader, format_, dtype, m, n, k, pins, repeat, has_dense, is_plain):
    torch_type = getattr(torch, "float16" if dtype == "f16" else "bfloat16")  # of d too; e4m3 is widened to bf16
    block = BLOCK_BYTES[format_]
    packed_bytes = -(-n // 64) * -(-k // 128) * block
    weights = Weights(format_, torch_type, n, k)
    pack = Kernel(library, "pack_weights", pack_facts(format_, dtype))
    packed = [weights.pack(pack, block) for _ in range(copies_of(packed_bytes))]
    a = torch.randn(m, k, device="cuda", dtype=torch.float32).to(torch.float8_e4m3fn if dtype == "e4m3" else torch_type)
    given, a = a, a.to(torch_type)
    operands = [{"b": x} for x in packed]
    if is_plain:  # the same rows again and again: they are packed anew by each launch
        more = {"zeros": weights.zeros} if format_ == "int4z" else {}
        operands = [{"b": weights.values.clone(), "sfb": weights.scales, **more} for _ in packed]
    names, graphs, kept = [], [], []
    for kernel in kernels(library, "gemm", facts_of(format_, dtype, is_plain, m, n, k), pins):
        d = torch.full((m, n), math.nan, device="cuda", dtype=torch_type)
        launches = [kernel.bind(m=m, n=n, k=k, a=given, d=d, **x) for x in operands]
        kept.append(launches)  # a graph keeps no tensor
        launches[0]()
        torch.cuda.synchronize()
        error = wrong_on_edges(d, a, weights)
        if not error < (1e-3 if dtype == "f16" else 5e-3):
            print(f"WRONG by {error:.1e}: {format_} {m} x {n} x {k}, {kernel.name}", flush=True)
            continue
        first = d.clone()
        d.fill_(math.nan)
        launches[-1]()
        if not torch.equal(first, d):
            print(f"OTHER BITS: {format_} {m} x {n} x {k}, {kernel.name}", flush=True)
        names.append(kernel.name)
        graphs.append(graph_of(launches))
    graphs.append(graph_of(plain_reads(reader, packed)))
    if has_dense:
        d = torch.empty((m, n), device="cuda", dtype=torch_type)
        dense = [torch.randn(n, k, device="cuda", dtype=torch_type) for _ in range(copies_of(2 * n * k))]
        kernel = Kernel(library, "gemm", dense_facts(dtype, m, n, k))
        kept.append([kernel.bind(m=m, n=n, k=k, a=a, b=x, d=d) for x in dense])
        graphs.append(graph_of(kept[-1]))
    us = times_us(graphs, repeat)
    count = len(names)
    return names, us[:count], us[count], us[count + 1] if has_dense else math.nan


def main():
    parser = parser_of(__doc__, NK)
    parser.add_argument("--format", default="mxfp4")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--m", default="1,16,32,64,4096")
    parser.add_argument("--no-dense", action="store_true", help="without our 16-bit product")
    parser.add_argument("--plain", action="store_true", help="weights in rows, which each launch packs first")
    arguments = parser.parse_args()
    library, reader = ctypes.CDLL(arguments.library), plain_read_library()
    table = Table(arguments, ["m x n x k", "format", "tessera us", "TFLOP/s", "read us", "of the read", "16-bit us", "of the 16-bit rate",
                              "of the limit", "kernel"])
    shapes, formats = [tuple(map(int, nk.split("x"))) for nk in arguments.nk.split(",")], arguments.format.split(",")
    of_kernels = [("pack_weights", pack_facts(format_, arguments.dtype)) for format_ in formats]
    for n, k in shapes:
        for m in map(int, arguments.m.split(",")):
            of_kernels += [("gemm", text) for format_ in formats
                           for text in with_pins(facts_of(format_, arguments.dtype, arguments.plain, m, n, k), arguments.pins)]
            if not arguments.no_dense:
                of_kernels.append(("gemm", dense_facts(arguments.dtype, m, n, k)))
    compile_all(library, of_kernels)
    # Few rows first: behind products of thousands of rows the clock stays low for a while.
    rows = [int(m) for m in arguments.m.split(",")]
    few, many = [m for m in rows if m <= 32], [m for m in rows if m > 32]
    for some, (n, k), format_ in itertools.product((few, many), shapes, formats):
        peak = math.nan  # microseconds of a row in our 16-bit product of many
        for m in sorted(some, reverse=True):
            names, ours, read, dense = cell(library, reader, format_, arguments.dtype, m, n, k, arguments.pins,
                                            arguments.repeat, not arguments.no_dense, arguments.plain)
            if m >= 4096:
                peak = dense / m
            limit = max(read, m * peak)
            for name, us in sorted(zip(names, ours), key=lambda x: x[1]):
                table.row(f"{m} x {n} x {k}", format_, f"{us:.1f}", f"{2 * m * n * k / us * 1e-6:.0f}", f"{read:.1f}", f"{read / us:.3f}",
                          f"{dense:.1f}", f"{dense / us:.3f}", f"{limit / us:.3f}", name.split(format_.removesuffix("z"))[-1])
            torch.cuda.empty_cache()
    table.save()


if __name__ == "__main__":
    main()
