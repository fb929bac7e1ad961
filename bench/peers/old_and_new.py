#!/usr/bin/env python3
"""Two builds of tessera in turns on one GPU, in one process, on the same tensors: what a change costs or gains.

Dense attention (head_dim 64, 128, 256, 96, 192, 192/128, 512, both masks, three lengths) and products (the sets of
gemm_vs_cublas.py). Method and launches as in those scripts. Prints a Markdown table, then geometric mean and worst of new over
old for each kind. Outputs are compared bit for bit; a difference is named in the table, not an error.

  python3 bench/peers/old_and_new.py --old OLD/libtessera_peer_shim.so --new build/bench/peers/libtessera_peer_shim.so
      [--kinds attention,gemm] [--repeat 20] [--output FILE]

Both libraries are in one process: compile with -fno-gnu-unique, or they share what C++ keeps once.
"""
import argparse
import ctypes
import math

import torch

import fmha_vs_cudnn
import gemm_vs_cublas
from in_turns import medians_us

ATTENTION = [(64, 64), (128, 128), (256, 256), (96, 96), (192, 192), (192, 128), (512, 512)]


def attention(libraries, repeat, flush):
    for head_dim, head_dim_v in ATTENTION:
        for causal in (False, True):
            for seqlen in (512, 1024, 4096, 16384):
                batch, heads = fmha_vs_cudnn.TOKENS // seqlen, fmha_vs_cudnn.HIDDEN // head_dim
                q, k, v = (torch.randn(batch, seqlen, heads, d, device="cuda", dtype=torch.bfloat16)
                           for d in (head_dim, head_dim, head_dim_v))
                selectors = f"head_dim={head_dim},head_dim_v={head_dim_v},dtype=bf16,mask={'causal' if causal else 'none'}"
                kernels, outputs = [], []
                for library in libraries:
                    outputs.append(torch.full_like(v, float("nan")))
                    kernels.append(fmha_vs_cudnn.Ours(library, selectors))
                    kernels[-1].bind(q, k, v, outputs[-1])
                label = f"{head_dim}/{head_dim_v} S {seqlen}{' causal' if causal else ''}"
                yield label, kernels, outputs


def products(libraries, repeat, flush):
    arguments = argparse.Namespace(sets="large,fp8,small")
    for name, dtype, accumulation, m, n, k in gemm_vs_cublas.cells(arguments):
        cell = gemm_vs_cublas.Cell(dtype, accumulation, m, n, k)
        kernels, outputs = [], []
        for library in libraries:
            outputs.append(torch.zeros_like(cell.d))
            kernels.append(gemm_vs_cublas.Ours(library, cell.selectors))
            kernels[-1].bind(cell.a, cell.b, outputs[-1])
        yield f"{dtype}{' ' + accumulation if dtype == 'e4m3' else ''} {m}x{n}x{k}", kernels, outputs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", required=True)
    parser.add_argument("--new", required=True)
    parser.add_argument("--kinds", default="attention,gemm")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    libraries = [ctypes.CDLL(arguments.old), ctypes.CDLL(arguments.new)]
    torch.cuda.init()
    torch.manual_seed(torch.seed())
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    lines = [f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {arguments.commit}", "",
             "| kind | shape | old us | new us | new over old | outputs |", "|---|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    ratios = {}
    for kind in arguments.kinds.split(","):
        for label, kernels, outputs in {"attention": attention, "gemm": products}[kind](libraries, arguments.repeat, flush):
            for _ in range(5):
                for kernel in kernels:
                    kernel.launch()
            torch.cuda.synchronize()
            same = torch.equal(*(output.view(torch.int16) for output in outputs))
            old, new = medians_us([kernel.launch for kernel in kernels], arguments.repeat, flush)
            ratios.setdefault(kind, []).append((new / old, label))
            lines.append(f"| {kind} | {label} | {old:.1f} | {new:.1f} | {new / old:.3f} | {'same' if same else 'DIFFER'} |")
            print(lines[-1], flush=True)
    lines.append("")
    for kind, values in ratios.items():
        mean = math.exp(sum(math.log(ratio) for ratio, _ in values) / len(values))
        lines.append(f"{kind}: {len(values)} cells, geometric mean of new over old {mean:.4f}, most {max(values)[0]:.3f} ({max(values)[1]}), "
                     f"least {min(values)[0]:.3f} ({min(values)[1]}).")
        print(lines[-1])
    if arguments.output:
        with open(arguments.output, "w") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
