#!/usr/bin/env python3
"""Attention forward over e4m3 q, k and v beside FlashAttention-3 and cuDNN on one GPU, in one process, on the same tensors.

16,384 tokens of 2,048 features; normal data rounded to e4m3, factors of 1. Peers are used where their packages are there: FlashAttention-3
as `flash_attn_interface` or `fa3_fwd_interface` (its output is bf16, as ours), cuDNN as `cudnn` (the frontend; on Hopper its output is
e4m3, half of what the others write). Before every timed launch 256 MB are written to empty the L2; CUDA events; the kernels take turns;
medians. Errors are relative ones, beside attention of the same numbers in bf16. --mean adds to v what makes sums of one sign.
--pins measures further tiles of ours: "tile_n=128;tile_n=160,promote_every=0".
Prints a Markdown table of TFLOP/s (causal counted as half) and the ratio to the fastest peer whose result has no NaN.

  python3 bench/peers/fmha_fp8.py --library build/bench/peers/libtessera_peer_shim.so [--head-dim 128] [--seqlen 16384] [--mask none,causal]
      [--pins ...] [--peers FA3,cuDNN] [--mean 0] [--repeat 20] [--output FILE]
"""
import argparse
import ctypes
import importlib
import math
import statistics
import subprocess
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from in_turns import medians_us

TOKENS, HIDDEN = 16384, 2048


class Ours:
    def __init__(self, library, selectors):
        self.library = library
        for name in ("open", "workspace", "launch"):
            getattr(library, f"tessera_bench_fmha_{name}").restype = ctypes.c_char_p
        self.handle, name = ctypes.c_void_p(), ctypes.c_char_p()
        self.check(library.tessera_bench_fmha_open(selectors.encode(), ctypes.byref(self.handle), ctypes.byref(name)))
        self.name = name.value.decode()

    def check(self, error):
        if error is not None:
            raise RuntimeError("tessera: " + error.decode())

    def bind(self, q, k, v, o):
        self.pointers = (ctypes.c_uint64 * 13)(q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr())
        self.sizes = (ctypes.c_int64 * 6)(q.shape[0], q.shape[2], k.shape[2], q.shape[1], k.shape[1], 0)
        needed = ctypes.c_int64()
        self.check(self.library.tessera_bench_fmha_workspace(self.handle, self.pointers, self.sizes, ctypes.byref(needed)))
        self.workspace = torch.empty(max(needed.value, 1), dtype=torch.uint8, device="cuda")
        self.sizes[5], self.pointers[7] = needed.value, self.workspace.data_ptr() if needed.value else 0

    def launch(self):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.check(self.library.tessera_bench_fmha_launch(self.handle, stream, self.pointers, self.sizes))


def flash_attention(q, k, v, causal):
    for name in ("flash_attn_interface", "fa3_fwd_interface"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        ones = torch.ones(q.shape[0], k.shape[2], device="cuda")
        out = {}

        def launch():
            result = module.flash_attn_func(q, k, v, causal=causal, q_descale=ones, k_descale=ones, v_descale=ones)
            out["o"] = result[0] if isinstance(result, tuple) else result

        return launch, lambda: out["o"].float()
    raise ImportError("no FlashAttention-3")


def cudnn_attention(q, k, v, causal):
    import cudnn

    handle = cudnn.create_handle()
    cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
    e4m3, fp32 = cudnn.data_type.FP8_E4M3, cudnn.data_type.FLOAT
    graph = cudnn.pygraph(io_data_type=e4m3, intermediate_data_type=fp32, compute_data_type=fp32, handle=handle)
    bhsd = [t.transpose(1, 2) for t in (q, k, v)]
    tensors = [graph.tensor(name=name, dim=list(t.shape), stride=list(t.stride()), data_type=e4m3)
               for name, t in zip(("q", "k", "v"), bhsd)]
    factors = [graph.tensor(name=name, dim=[1] * 4, stride=[1] * 4, data_type=fp32)
               for name in ("descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o")]
    mode = {"generate_stats": False}
    if "generate_stats" not in (graph.sdpa_fp8.__doc__ or "generate_stats"):
        mode = {"is_inference": True}
    o, _, amax_s, amax_o = graph.sdpa_fp8(*tensors, *factors, attn_scale=1 / math.sqrt(q.shape[-1]), use_causal_mask=causal, **mode)
    # Scores' scale and output's: probabilities are at most 1, outputs of normal values below 4.
    numbers = [torch.full((1, 1, 1, 1), x, device="cuda") for x in (1, 1, 1, 1 / 256, 256, 64)]
    result = torch.empty(q.shape[0], q.shape[1], q.shape[2], v.shape[3], device="cuda", dtype=torch.float8_e4m3fn)
    view = result.transpose(1, 2)
    o.set_output(True).set_dim(list(view.shape)).set_stride(list(view.stride())).set_data_type(e4m3)
    amax = [torch.empty(1, 1, 1, 1, device="cuda") for _ in range(2)]
    for tensor in (amax_s, amax_o):
        tensor.set_output(True).set_dim([1] * 4).set_stride([1] * 4).set_data_type(fp32)
    graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    workspace = torch.empty(max(graph.get_workspace_size(), 1), device="cuda", dtype=torch.uint8)
    pack = dict(zip([*tensors, *factors, o, amax_s, amax_o], [*bhsd, *numbers, view, *amax]))
    return lambda: graph.execute(pack, workspace, handle=handle), lambda: result.float() / 64


PEERS = {"FA3": flash_attention, "cuDNN": cudnn_attention}


def rel(x, reference):
    return ((x - reference).norm() / reference.norm()).item()


def cell(library, head_dims, seqlen, causal, mean, pins, wanted, repeat, flush):
    """A row for each of the pins."""
    head_dim, head_dim_v = head_dims
    batch, heads = TOKENS // seqlen, HIDDEN // head_dim
    wide = [torch.randn(batch, seqlen, heads, d, device="cuda") for d in (head_dim, head_dim, head_dim_v)]
    wide[2] += mean
    q, k, v = (t.to(torch.float8_e4m3fn) for t in wide)
    del wide
    qt, kt, vt = (t.bfloat16().transpose(1, 2) for t in (q, k, v))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        reference = torch.nn.functional.scaled_dot_product_attention(qt, kt, vt, is_causal=causal).transpose(1, 2).float()
    del qt, kt, vt
    flops = 2 * batch * heads * seqlen * seqlen * (head_dim + head_dim_v) * (0.5 if causal else 1.0)
    peers, ours, errors = {}, [], {}
    for name in wanted:
        try:
            launch, result = PEERS[name](q, k, v, causal)
            launch()
            torch.cuda.synchronize()
            errors[name], peers[name] = rel(result(), reference), launch
        except Exception as error:  # a peer that is not there, or has no kernel for this, is no reason to stop
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr, flush=True)
    for pin in pins:
        selectors = f"head_dim={head_dim},head_dim_v={head_dim_v},dtype=e4m3,mask={'causal' if causal else 'none'}"
        try:
            mine = Ours(library, ",".join([selectors] + ([pin] if pin else [])))
        except RuntimeError as error:
            print(error, file=sys.stderr, flush=True)
            continue
        o = torch.full((batch, seqlen, heads, head_dim_v), float("nan"), device="cuda", dtype=torch.bfloat16)
        mine.bind(q, k, v, o)
        for _ in range(3):
            mine.launch()
        torch.cuda.synchronize()
        mine.error = rel(o.float(), reference)
        if not mine.error < 0.2:
            print(f"{mine.name}: results differ by {mine.error:.3e}", file=sys.stderr, flush=True)
        mine.keeps = o
        ours.append(mine)
    times = medians_us([mine.launch for mine in ours] + list(peers.values()), repeat, flush)
    speeds = [flops / us * 1e-6 for us in times]
    of_peers = dict(zip(peers, speeds[len(ours):]))
    right = {name: speed for name, speed in of_peers.items() if math.isfinite(errors[name])}
    best = max(right, key=right.get) if right else None
    rows = []
    for mine, speed in zip(ours, speeds):
        ratio = f"{speed / of_peers[best]:.3f}" if best else "-"
        each = " | ".join(f"{of_peers[name]:.0f} | {errors[name]:.4f}" if name in of_peers else "- | -" for name in PEERS)
        rows.append(f"| e4m3 | {head_dim}{'' if head_dim == head_dim_v else f'/{head_dim_v}'} | {seqlen} | "
                    f"{'causal' if causal else 'none'} | {speed:.0f} | {of_peers[best] if best else 0:.0f} | {ratio} | {best} | {mine.name} | "
                    f"{mine.error:.4f} | {each} |")
        print(rows[-1], flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--head-dim", default="128")
    parser.add_argument("--mask", default="none,causal")
    parser.add_argument("--seqlen", default="16384")
    parser.add_argument("--mean", type=float, default=0)
    parser.add_argument("--pins", default="")
    parser.add_argument("--peers", default=",".join(PEERS))
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
             "| dtype | head_dim | S | mask | tessera TFLOP/s | peer TFLOP/s | ratio | peer | kernel | error | "
             + " | ".join(f"{name} TFLOP/s | {name} error" for name in PEERS) + " |", "|" + "---|" * (10 + 2 * len(PEERS))]
    print("\n".join(lines), flush=True)
    for text in arguments.head_dim.split(","):
        head_dims = [int(part) for part in (text.split("/") * 2)[:2]]
        for mask in arguments.mask.split(","):
            for seqlen in map(int, arguments.seqlen.split(",")):
                lines += cell(library, head_dims, seqlen, mask == "causal", arguments.mean, arguments.pins.split(";"),
                              [name for name in arguments.peers.split(",") if name], arguments.repeat, flush)
    if arguments.output:
        with open(arguments.output, "w") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
