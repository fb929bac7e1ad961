#!/usr/bin/env python3
"""Products with a gate in the epilogue beside the same product without one.

n is the columns of gate and up together: without a gate d has n columns, with one n / 2. "interleaved": one b, gate and up in turn by
eight; "dual": b and b2; "bias": interleaved with a bias. Random normal data; e4m3s: e4m3 with fp32 factors for blocks (a 1 x 128, b
128 x 128). A graph of at least 20 launches walks over copies of b that together are more than four times the L2; graphs take turns;
microseconds are the median graph over its launches. Each result is compared with float64 on some rows. Prints a Markdown table.

  python3 bench/peers/gated_gemm.py --library build/bench/peers/libtessera_peer_shim.so [--dtype bf16,e4m3,e4m3s] [--m 16,4096]
      [--nk 36864x7168,...] [--kinds plain,interleaved,bias,dual] [--pins "tile_m=128,..."] [--repeat 5] [--output FILE]
"""
import ctypes

import torch

from beside_read import Table, copies_of, kernels, parser_of, wrong_by
from fmha_decode import graph_of, times_us

NK = "36864x7168,5760x2880"
FACTS = {"plain": "", "interleaved": ",gate=interleaved,interleave=8", "bias": ",gate=interleaved,interleave=8,bias=column",
         "dual": ",gate=dual"}


def blocks(x):
    return -(-x // 128)


class Operands:
    def __init__(self, dtype, n, k, m):
        narrow = (lambda x: x.bfloat16()) if dtype == "bf16" else (lambda x: x.to(torch.float8_e4m3fn))
        self.has_blocks, self.k = dtype == "e4m3s", k
        self.a, self.b = (narrow(torch.randn(rows, k, device="cuda")) for rows in (m, n))
        self.bias = torch.randn(n, device="cuda").bfloat16()
        self.pitch = -(-m // 4) * 4
        self.sfa = torch.rand(blocks(k), self.pitch, device="cuda") + 0.5
        self.sfb = torch.rand(blocks(n), blocks(k), device="cuda") + 0.5

    def bind(self, kernel, kind, d):
        m, n = self.a.shape[0], self.b.shape[0]
        values = dict(m=m, n=n // 2 if kind == "dual" else n, k=self.k, a=self.a, b=self.b, d=d)
        if kind == "dual":
            values["b"], values["b2"] = self.b[:n // 2], self.b[n // 2:]
        if kind == "bias":
            values["bias"] = self.bias
        if self.has_blocks:
            values.update(sfa=self.sfa, sfa_stride_m=1, sfa_stride_k=self.pitch, sfb=self.sfb)
        return kernel.bind(**values)

    def sums(self, rows):
        a, b = self.a[:rows].float().double(), self.b.float().double()
        if self.has_blocks:
            a = a * self.sfa[:, :rows].T.double().repeat_interleave(128, 1)[:, :self.k]
            b = b * self.sfb.double().repeat_interleave(128, 0).repeat_interleave(128, 1)[:b.shape[0], :self.k]
        return a @ b.T

    def exact(self, kind, sums):
        if kind == "plain":
            return sums
        if kind == "bias":
            sums = sums + self.bias.double()
        if kind == "dual":
            gate, up = sums.chunk(2, 1)
        else:
            turns = sums.view(sums.shape[0], -1, 2, 8)
            gate, up = (turns[:, :, i].flatten(1) for i in range(2))
        return torch.nn.functional.silu(gate) * up


def cell(library, dtype, m, n, k, kinds, pins, repeat):
    rows = min(m, 32)
    many = [Operands(dtype, n, k, m) for _ in range(copies_of(n * k * (2 if dtype == "bf16" else 1), 16))]
    facts = f"dtype={dtype[:4]},d_dtype=bf16,m={m},k={k}" + (",a_scale_block=1x128,b_scale_block=128x128" if dtype == "e4m3s" else "")
    sums = many[0].sums(rows)
    names, graphs, outputs = [], [], []  # the graphs write to the outputs: they live as long
    for kind in kinds:
        if kind == "dual" and dtype == "e4m3s":
            continue
        d = torch.full((m, n if kind == "plain" else n // 2), float("nan"), device="cuda", dtype=torch.bfloat16)
        outputs.append(d)
        for kernel in kernels(library, "gemm", f"{facts},n={n // 2 if kind == 'dual' else n}{FACTS[kind]}", pins):
            launches = [x.bind(kernel, kind, d) for x in many]
            launches[0]()
            torch.cuda.synchronize()
            error = wrong_by(d[:rows], many[0].exact(kind, sums))
            if not error < 5e-3:
                print(f"WRONG by {error:.1e}: {kind} {dtype} {m} x {n} x {k}, {kernel.name}", flush=True)
                continue
            names.append((kind, kernel.name))
            graphs.append(graph_of(launches))
    return names, times_us(graphs, repeat)


def main():
    parser = parser_of(__doc__, NK)
    parser.add_argument("--dtype", default="bf16,e4m3,e4m3s")
    parser.add_argument("--m", default="16,4096")
    parser.add_argument("--kinds", default="plain,interleaved,bias,dual")
    arguments = parser.parse_args()
    library = ctypes.CDLL(arguments.library)
    table = Table(arguments, ["m x n x k", "type", "kind", "us", "TFLOP/s", "time over that without", "kernel"])
    for nk in arguments.nk.split(","):
        n, k = map(int, nk.split("x"))
        for dtype in arguments.dtype.split(","):
            for m in map(int, arguments.m.split(",")):
                names, us = cell(library, dtype, m, n, k, arguments.kinds.split(","), arguments.pins, arguments.repeat)
                for (kind, name), mine in zip(names, us):
                    table.row(f"{m} x {n} x {k}", dtype, kind, f"{mine:.1f}", f"{2 * m * n * k / mine * 1e-6:.0f}", f"{mine / us[0]:.3f}",
                              name.split("sm90a_")[-1])
                torch.cuda.empty_cache()
    table.save()


if __name__ == "__main__":
    main()
