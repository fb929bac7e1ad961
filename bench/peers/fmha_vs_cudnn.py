#!/usr/bin/env python3
"""Attention forward beside cuDNN (through PyTorch) on one GPU, in one process, on the same tensors.

Where cuDNN has no kernel (head_dim beyond 256), or with --any-peer, the peer is the fastest backend that PyTorch has for the problem.
--pins measures further tiles of ours: "tile_m=128,tile_n=64,stages=2;tile_m=192,...".

Random normal data; before every timed launch 256 MB are written to empty the L2; CUDA events; the two kernels alternate; medians.
Prints a Markdown table of TFLOP/s (causal counted as half) and the ratio, then the geometric mean.

  python3 bench/peers/fmha_vs_cudnn.py --library build/bench/peers/libtessera_peer_shim.so [--dtype bf16,f16]
      [--head-dim 64,128,192/128] [--repeat 20] [--output FILE]
"""
import argparse
import ctypes
import math
import statistics
import subprocess
import sys
import warnings

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from in_turns import medians_us, timed

TOKENS, HIDDEN = 16384, 2048


class Ours:
    def __init__(self, library, selectors):
        self.library = library
        library.tessera_bench_fmha_open.restype = ctypes.c_char_p
        library.tessera_bench_fmha_launch.restype = ctypes.c_char_p
        self.handle, name = ctypes.c_void_p(), ctypes.c_char_p()
        self.check(library.tessera_bench_fmha_open(selectors.encode(), ctypes.byref(self.handle), ctypes.byref(name)))
        self.name = name.value.decode()

    def check(self, error):
        if error is not None:
            sys.exit("tessera: " + error.decode())

    def bind(self, q, k, v, o):
        """q, k, v, o: [batch, seqlen, heads, head_dim], dense."""
        self.pointers = (ctypes.c_uint64 * 13)(q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr())
        self.sizes = (ctypes.c_int64 * 6)(q.shape[0], q.shape[2], k.shape[2], q.shape[1], k.shape[1], 0)

    def launch(self):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.check(self.library.tessera_bench_fmha_launch(self.handle, stream, self.pointers, self.sizes))


def fastest_backend(peer, candidates, flush):
    """Of the backends that have a kernel for the problem."""
    best = (math.inf, None)
    for backend in candidates:
        try:
            with warnings.catch_warnings(), sdpa_kernel(backend):
                warnings.simplefilter("ignore")
                peer()
                pairs = [timed(peer, flush) for _ in range(3)]
                torch.cuda.synchronize()
        except (RuntimeError, torch.OutOfMemoryError):
            continue
        best = min(best, (statistics.median(s.elapsed_time(e) for s, e in pairs), backend), key=lambda b: b[0])
    return best[1]


def cell(library, dtype, head_dims, seqlen, causal, any_peer, flash, hints, pins, repeat, flush):
    torch_dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    head_dim, head_dim_v = head_dims
    batch, heads = TOKENS // seqlen, HIDDEN // head_dim
    q, k, v = (torch.randn(batch, seqlen, heads, d, device="cuda", dtype=torch_dtype) for d in (head_dim, head_dim, head_dim_v))
    o = torch.full_like(v, float("nan"))
    selectors = f"head_dim={head_dim},head_dim_v={head_dim_v},dtype={dtype},mask={'causal' if causal else 'none'}"
    if hints:
        selectors += f",seqlen_q={seqlen},seqlen_k={seqlen}"
    ours = Ours(library, ",".join([selectors] + ([pins] if pins else [])))
    ours.bind(q, k, v, o)
    qt, kt, vt = (t.transpose(1, 2) for t in (q, k, v))
    peer = lambda: torch.nn.functional.scaled_dot_product_attention(qt, kt, vt, is_causal=causal)
    backend = SDPBackend.CUDNN_ATTENTION
    if flash:
        backend = SDPBackend.FLASH_ATTENTION
    elif any_peer or head_dim > 256:
        backend = fastest_backend(peer, [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION,
                                         SDPBackend.MATH], flush)
    with sdpa_kernel(backend):
        for _ in range(5):
            expected = peer()
            ours.launch()
        torch.cuda.synchronize()
        difference = (o.float() - expected.transpose(1, 2).float()).norm() / expected.float().norm()
        if not difference < 2e-2:
            sys.exit(f"results differ by {difference:.3e} at head_dim {head_dims}, S {seqlen}, causal {causal}")
        mine, theirs = medians_us([ours.launch, peer], repeat, flush)
    flops = 2 * batch * heads * seqlen * seqlen * (head_dim + head_dim_v) * (0.5 if causal else 1.0)
    return ours.name, backend.name, flops / mine * 1e-6, flops / theirs * 1e-6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--head-dim", default="64,128,256")
    parser.add_argument("--any-peer", action="store_true")
    parser.add_argument("--flash", action="store_true", help="PyTorch's flash backend, which is FlashAttention-2, in place of cuDNN")
    parser.add_argument("--hints", action="store_true", help="tell the planner the lengths")
    parser.add_argument("--pins", default="")
    parser.add_argument("--mask", default="none,causal")
    parser.add_argument("--seqlen", default="1024,4096,16384")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    library = ctypes.CDLL(arguments.library)
    torch.cuda.init()
    torch.manual_seed(torch.seed())
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    clocks = subprocess.run(["nvidia-smi", "--query-gpu=clocks.sm,clocks.mem,driver_version", "--format=csv,noheader"],
                            capture_output=True, text=True).stdout.strip()
    lines = [f"{torch.cuda.get_device_name()}, {clocks} (SM, memory clock as found, driver), PyTorch {torch.__version__}, "
             f"cuDNN {torch.backends.cudnn.version()}, commit {arguments.commit}", "",
             f"Command: `python3 {' '.join(sys.argv)}`", "",
             "| dtype | head_dim | S | mask | tessera TFLOP/s | peer TFLOP/s | ratio | peer | kernel |", "|---|---|---|---|---|---|---|---|---|"]
    ratios = []
    for dtype in arguments.dtype.split(","):
        for text in arguments.head_dim.split(","):
            head_dims = [int(part) for part in (text.split("/") * 2)[:2]]
            for mask in arguments.mask.split(","):
                for seqlen in map(int, arguments.seqlen.split(",")):
                    for pins in arguments.pins.split(";"):
                        name, peer, mine, theirs = cell(library, dtype, head_dims, seqlen, mask == "causal", arguments.any_peer,
                                                        arguments.flash, arguments.hints, pins, arguments.repeat, flush)
                        ratios.append(mine / theirs)
                        lines.append(f"| {dtype} | {text} | {seqlen} | {mask} | {mine:.0f} | {theirs:.0f} | {mine / theirs:.3f} | "
                                     f"{peer.split('_')[0]} | {name} |")
                        print(lines[-1], flush=True)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    lines += ["", f"Geometric mean of the ratios: {mean:.3f}, least {min(ratios):.3f}."]
    print("\n".join(lines))
    if arguments.output:
        with open(arguments.output, "w") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
