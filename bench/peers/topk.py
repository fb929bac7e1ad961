#!/usr/bin/env python3
"""topk beside torch.topk and FlashInfer's top_k.

A graph of at least 20 launches walks over copies of the scores that together are more than four times the L2 (256 MB; of few rows there
are at most 256 copies); graphs take turns; microseconds are the median graph over its launches. Every case is first compared with
torch.topk: the values that the indices name, to the bit, and that indices rise. torch.topk is called with sorted=False; FlashInfer as
it is by default (in no order, not repeatable), and deterministic with ties to the smaller index, which is what ours does always.
FlashInfer stands beside where it is installed, or where --flashinfer names a library of its kernels with fi_topk() (see bind()). The
plain read is the sum of the same bytes by torch. Prints a Markdown table.

  python3 bench/peers/topk.py --library build/bench/peers/libtessera_peer_shim.so [--m 1,8,64,256] [--n 4096,32768,131072,1048576]
      [--k 512,2048] [--dtype f32] [--inputs normal] [--pins "threads=512,ctas=2;threads=1024,ctas=8"] [--all-pins] [--no-peers]
      [--flashinfer LIBRARY] [--repeat 5] [--seconds S] [--output FILE]

--inputs: normal, equal, few (five values), rising, falling, infinite (all -inf but one in 64); several are separated by commas.
--all-pins: every number of threads and of CTAs beside the planner's choice; the fastest, and how the choice compares.
--seconds: no case is begun after that.
"""
import argparse
import ctypes
import pathlib
import subprocess
import sys
import time

import torch

from fmha_decode import ROTATED_BYTES, graph_of, times_us
from named_launch import Kernel

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
PINS = [f"threads={threads},ctas={ctas}" for threads in (512, 1024) for ctas in (1, 2, 4, 8, 16)]
MOST_COPIES = 256  # of few rows, which then lie in the L2, for everybody
NONE = float("nan")


def scores_of(kind, m, n, dtype):
    if kind == "normal":
        return torch.randn(m, n, device="cuda", dtype=dtype)
    if kind == "equal":
        return torch.full((m, n), 0.5, device="cuda", dtype=dtype)
    if kind == "few":
        return torch.randint(-2, 3, (m, n), device="cuda").to(dtype)
    if kind == "infinite":
        x = torch.randn(m, n, device="cuda", dtype=dtype)
        return x.masked_fill_(torch.rand(m, n, device="cuda") > 1 / 64, float("-inf"))
    rising = torch.randn(m, n, device="cuda", dtype=torch.float32).sort(-1).values
    return (rising if kind == "rising" else rising.flip(-1)).to(dtype).contiguous()


def require_right(name, x, indices, k):
    """The values that indices name are those of torch.topk; indices rise, and none comes twice."""
    taken = min(k, x.shape[1])
    indices = indices[:, :taken].long()
    found = x.gather(1, indices).sort(-1, descending=True).values
    wanted = torch.topk(x, taken, dim=-1).values
    if not torch.equal(found, wanted) or not bool((indices[:, 1:] > indices[:, :-1]).all()):
        sys.exit(f"wrong: {name}, {tuple(x.shape)}, k {k}")


def bind(path):
    """int fi_topk(const float* scores, int* indices, float* values, unsigned m, unsigned k, unsigned n, void* zeroed_megabyte,
    int is_deterministic, int ties (0 any, 1 smaller), stream): FlashInfer's TopKDispatch."""
    library = ctypes.CDLL(path)
    library.fi_topk.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_uint] * 3 + [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    states = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")

    def top_k(x, k, deterministic, indices, values):
        m, n = x.shape
        error = library.fi_topk(x.data_ptr(), indices.data_ptr(), values.data_ptr(), m, k, n, states.data_ptr(), int(deterministic),
                                int(deterministic), torch.cuda.current_stream().cuda_stream)
        if error:
            raise RuntimeError(f"FlashInfer: CUDA error {error}")

    return top_k


def installed():
    try:
        import flashinfer
    except ImportError:
        return None

    def top_k(x, k, deterministic, indices, values):
        flashinfer.top_k(x, k, deterministic=deterministic, tie_break=int(deterministic))

    return top_k


def graph_of_infer(infer, sets, k, deterministic, indices, values):
    try:
        return graph_of([lambda x=x: infer(x, k, deterministic, indices, values) for x in sets])
    except (RuntimeError, AssertionError) as error:
        print(f"FlashInfer, {tuple(sets[0].shape)}, k {k}: {str(error)[:200]}", file=sys.stderr)
        return None


def cell(arguments, library, infer, kind, m, n, k, pins):
    dtype = TYPES[arguments.dtype]
    copies = min(max(1, -(-ROTATED_BYTES // (m * n * dtype.itemsize))), MOST_COPIES)
    first = scores_of(kind, m, n, dtype)
    sets = [first] + [first.roll(i, 0) if m > 1 else first.clone() for i in range(1, copies)]
    kernels, graphs, kept = [], [], []  # a capture gives memory back that nobody holds
    for pin in pins:
        try:
            kernel = Kernel(library, "topk", f"dtype={arguments.dtype},k={k},m={m},n={n}" + ("," + pin if pin else ""))
            outputs = [torch.full((m, k), -7, device="cuda", dtype=torch.int32) for _ in sets]
            launches = [kernel.bind(m=m, n=n, scores=x, indices=out) for x, out in zip(sets, outputs)]
            launches[0]()
            torch.cuda.synchronize()
        except RuntimeError as error:
            print(f"{pin}: {str(error)[:200]}", file=sys.stderr)
            continue
        require_right(kernel.name, first, outputs[0], k)
        kernels.append(kernel.name)
        kept.append(launches)
        graphs.append(graph_of(launches))
    ours = len(graphs)
    if not arguments.no_peers:
        graphs.append(graph_of([lambda x=x: x.sum() for x in sets]))
        graphs.append(graph_of([lambda x=x: torch.topk(x, min(k, n), dim=-1, sorted=False) for x in sets]))
        indices = torch.empty(m, k, device="cuda", dtype=torch.int32)
        values = torch.empty(m, k, device="cuda", dtype=dtype)
        for deterministic in (False, True):
            is_there = infer is not None and dtype == torch.float32
            graphs.append(graph_of_infer(infer, sets, k, deterministic, indices, values) if is_there else None)
    else:
        graphs += [None] * 4
    us = iter(times_us([graph for graph in graphs if graph], arguments.repeat))
    us = [next(us) if graph else NONE for graph in graphs]
    return list(zip(us[:ours], kernels)), us[ours:]


def short(kernel):
    return "_".join(kernel.split("_")[-2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--m", default="1,8,64,256")
    parser.add_argument("--n", default="4096,32768,131072,1048576")
    parser.add_argument("--k", default="512,2048")
    parser.add_argument("--dtype", default="f32", choices=TYPES)
    parser.add_argument("--inputs", default="normal")
    parser.add_argument("--pins", default="", help="several sets, separated by ;")
    parser.add_argument("--all-pins", action="store_true")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--flashinfer")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    begin = time.monotonic()
    library = ctypes.CDLL(arguments.library)
    infer = None if arguments.no_peers else bind(arguments.flashinfer) if arguments.flashinfer else installed()
    clocks = subprocess.run(["nvidia-smi", "--query-gpu=name,clocks.max.sm,clocks.max.mem,driver_version", "--format=csv,noheader"],
                            capture_output=True, text=True, check=False).stdout.strip()
    lines = [f"{clocks}, PyTorch {torch.__version__}, commit {arguments.commit}", "", f"Command: `python3 {' '.join(sys.argv)}`", "",
             "| inputs | rows | columns | k | tessera us | TB/s | sum us | torch.topk us | ratio | FlashInfer us | ratio | "
             "FlashInfer, deterministic us | ratio | kernel |", "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"]
    print("\n".join(lines))
    pins = [""] + (PINS if arguments.all_pins else [pin for pin in arguments.pins.split(";") if pin])
    for kind in arguments.inputs.split(","):
        for n in map(int, arguments.n.split(",")):
            for m in map(int, arguments.m.split(",")):
                for k in map(int, arguments.k.split(",")):
                    if time.monotonic() - begin > arguments.seconds:
                        print(f"{kind}, {m} x {n}, k {k}: not begun")
                        continue
                    ours, (plain, peer, fast, same) = cell(arguments, library, infer, kind, m, n, k, pins)
                    if not ours:
                        continue
                    mine, name = ours[0]
                    rate = m * n * TYPES[arguments.dtype].itemsize / mine * 1e-6
                    more = f" (others: {', '.join(f'{short(other)} {us:.1f}' for us, other in sorted(ours[1:]))})" if len(ours) > 1 else ""
                    lines.append(f"| {kind} | {m} | {n} | {k} | {mine:.1f} | {rate:.2f} | {plain:.1f} | {peer:.1f} | {peer / mine:.2f} | {fast:.1f} | "
                                 f"{fast / mine:.2f} | {same:.1f} | {same / mine:.2f} | {short(name)}{more} |")
                    print(lines[-1], flush=True)
                    torch.cuda.empty_cache()
    if arguments.output:
        pathlib.Path(arguments.output).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
