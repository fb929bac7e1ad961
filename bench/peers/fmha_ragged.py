#!/usr/bin/env python3
"""Ragged prefill, over packed keys and over pages, beside the dense kernel of the same sequences.

16,384 tokens of equal sequences, so that a dense tensor holds the same numbers: q and o packed with cu_seqlens_q; keys packed with
cu_seqlens_k, or in pages in random order. Every result is compared with the dense kernel's. "mixed" has sequences of drawn lengths,
compared with one dense launch for each; its time stands beside the sum of theirs. Random normal data; before every timed launch
256 MB are written to empty the L2; CUDA events; kernels take turns; medians. The dense kernel is the planner's for the sizes.
Prints a Markdown table; the last column is the verdict over the bar: 3 % slower at most with packed keys, 6 % with pages of 64, 12 %
with pages of 16.

  python3 bench/peers/fmha_ragged.py --library build/bench/peers/libtessera_peer_shim.so [--heads 16/16,32/8] [--cases 1x16384,4x4096]
      [--page-size 16,64] [--head-dim 128] [--pins "tile_n=96;tile_m=192,tile_n=80"] [--output FILE]
"""
import argparse
import ctypes
import pathlib
import random
import subprocess
import sys

import torch

from in_turns import medians_us
from named_launch import Kernel

TOKENS = 16384
BARS = {0: 1.03, 64: 1.06, 16: 1.12}


def cumulated(lengths):
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + length)
    return torch.tensor(starts, dtype=torch.int32, device="cuda")


def table_of(lengths, page_size):
    """Pages of each sequence, in random order."""
    most = max(-(-length // page_size) for length in lengths)
    return torch.randperm(len(lengths) * most, device="cuda").to(torch.int32).view(len(lengths), most)


def pool_of(tensor, lengths, table, page_size):
    """The packed keys in their pages; everything else is NaN."""
    pool = torch.full((table.numel(), page_size, *tensor.shape[1:]), float("nan"), device="cuda", dtype=tensor.dtype)
    start = 0
    for pages, length in zip(table.tolist(), lengths):
        for i in range(0, length, page_size):
            part = tensor[start + i:start + min(i + page_size, length)]
            pool[pages[i // page_size], :part.shape[0]] = part
        start += length
    return pool


def dense_launches(library, selectors, q, k, v, lengths):
    """One launch for all sequences where they have equal lengths, else one for each; and where it writes."""
    o = torch.full_like(q, float("nan"))
    heads = dict(heads_q=q.shape[1], heads_kv=k.shape[1])
    if len(set(lengths)) == 1:
        kernel = Kernel(library, "fmha", f"{selectors},batch={len(lengths)},heads_q={q.shape[1]},heads_kv={k.shape[1]},"
                                         f"seqlen_q={lengths[0]},seqlen_k={lengths[0]}")
        return [kernel.bind(q=q, k=k, v=v, o=o, batch=len(lengths), seqlen_q=lengths[0], seqlen_k=lengths[0], **heads)], o, kernel.name
    launches, start = [], 0
    for length in lengths:
        kernel = Kernel(library, "fmha", f"{selectors},batch=1,heads_q={q.shape[1]},heads_kv={k.shape[1]},seqlen_q={length},seqlen_k={length}")
        part = slice(start, start + length)
        launches.append(kernel.bind(q=q[part], k=k[part], v=v[part], o=o[part], batch=1, seqlen_q=length, seqlen_k=length, **heads))
        start += length
    return launches, o, "one for each"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--heads", default="16/16,32/8")
    parser.add_argument("--cases", default="1x16384,4x4096,16x1024,mixed")
    parser.add_argument("--masks", default="none,causal")
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--page-size", default="64,16")
    parser.add_argument("--pins", default="", help="of the ragged kernels; several, separated by semicolons")
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    library = ctypes.CDLL(arguments.library)
    clocks = subprocess.run(["nvidia-smi", "--query-gpu=name,clocks.max.sm,clocks.max.mem,driver_version", "--format=csv,noheader"],
                            capture_output=True, text=True, check=False).stdout.strip()
    lines = [f"{clocks}, commit {arguments.commit}", "", f"Command: `python3 {' '.join(sys.argv)}`", "",
             "| heads | sequences | mask | keys | dense us | ragged us | ragged / dense | bar | kernel | dense kernel |", "|---|---|---|---|---|---|---|---|---|---|"]
    print("\n".join(lines))
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    for heads in arguments.heads.split(","):
        heads_q, heads_kv = map(int, heads.split("/"))
        for case in arguments.cases.split(","):
            if case == "mixed":
                draw, lengths = random.Random(7), []
                while sum(lengths) < TOKENS:
                    lengths.append(min(int(2 ** draw.uniform(4, 13)), TOKENS - sum(lengths)))
            else:
                count, length = map(int, case.split("x"))
                lengths = [length] * count
            for mask in arguments.masks.split(","):
                make = lambda n: torch.randn(sum(lengths), n, arguments.head_dim, device="cuda", dtype=torch.bfloat16)
                q, k, v = make(heads_q), make(heads_kv), make(heads_kv)
                selectors = f"head_dim={arguments.head_dim},mask={mask}"
                dense, expected, dense_name = dense_launches(library, selectors, q, k, v, lengths)
                for launch in dense:
                    launch()
                starts = cumulated(lengths)
                outputs, names, launches, kinds = [], [], [], []
                for pins in arguments.pins.split(";"):
                    for page_size in [0, *map(int, arguments.page_size.split(","))]:
                        hints = f",batch={len(lengths)},heads_q={heads_q},heads_kv={heads_kv},seqlen_q={sum(lengths)},seqlen_k={max(lengths)}"
                        layout = f",q_layout=ragged,kv_layout={'paged' if page_size else 'ragged'}" + (f",page_size={page_size}" if page_size else "")
                        o = torch.full_like(q, float("nan"))
                        common = dict(q=q, o=o, cu_seqlens_q=starts, batch=len(lengths), heads_q=heads_q, heads_kv=heads_kv, seqlen_q=sum(lengths),
                                      seqlen_k=max(lengths))
                        try:
                            kernel = Kernel(library, "fmha", selectors + layout + hints + ("," + pins if pins else ""))
                        except RuntimeError as error:
                            print(f"{case} {mask} {page_size} {pins}: {error}")
                            continue
                        if page_size:
                            table = table_of(lengths, page_size)
                            pool_k, pool_v = (pool_of(tensor, lengths, table, page_size) for tensor in (k, v))
                            used = torch.tensor(lengths, dtype=torch.int32, device="cuda")
                            launch = kernel.bind(k=pool_k, v=pool_v, block_table=table, seqused_k=used, pages=pool_k.shape[0],
                                                 max_pages=table.shape[1], **common)
                        else:
                            launch = kernel.bind(k=k, v=v, cu_seqlens_k=starts, tokens_k=sum(lengths), **common)
                        launch()
                        torch.cuda.synchronize()
                        difference = ((o.float() - expected.float()).norm() / expected.float().norm()).item()
                        if not difference < 5e-3:
                            sys.exit(f"results differ by {difference:.3e}: {case} {mask} pages of {page_size}, {kernel.name}")
                        outputs.append(o)
                        names.append(kernel.name)
                        launches.append(launch)
                        kinds.append(page_size)
                def all_dense():
                    for launch in dense:
                        launch()
                us = medians_us([all_dense, *launches], arguments.repeat, flush)
                for kind, name, time in zip(kinds, names, us[1:]):
                    bar = BARS.get(kind)
                    verdict = "none" if bar is None else f"{bar} {'met' if time / us[0] <= bar else 'missed'}"
                    lines.append(f"| {heads} | {case} | {mask} | {f'pages of {kind}' if kind else 'packed'} | {us[0]:.1f} | {time:.1f} | {time / us[0]:.3f} | "
                                 f"{verdict} | {name} | {dense_name} |")
                    print(lines[-1], flush=True)
                torch.cuda.empty_cache()
    if arguments.output:
        pathlib.Path(arguments.output).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
