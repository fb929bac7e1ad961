#!/usr/bin/env python3
"""An engine's step, prefills and single queries over one paged cache, in one launch and in two, one after the other.

Sequences with one query have lengths drawn log-uniformly from 100 to 32,768; each prefill is a chunk of queries behind a history of its
own. One launch: ragged queries over pages. Two: single queries with the kernel that the planner has for them, then the chunks, dense or ragged,
whichever is faster. Random normal data, pages in random order, lengths on the device. Outputs are compared with each other. Before every
timed launch 256 MB are written to empty the L2; CUDA events; the two take turns; medians. Prints a Markdown table.

  python3 bench/peers/mixed_step.py --library build/bench/peers/libtessera_peer_shim.so [--heads 32/8,64/8] [--page-size 16,64]
      [--kinds bf16,kv-e4m3,e4m3] [--steps 64+2x1024@4096] [--pins split_kv=dealt] [--output FILE]

A step of 64+2x1024@4096: 64 single queries, and 2 chunks of 1,024 queries behind 4,096 keys each. --pins: of the kernel of one launch.
--kinds: bf16; kv-e4m3, 16-bit queries over caches of e4m3; e4m3, queries too. 8 bits have descales for each sequence and key head.
"""
import argparse
import ctypes
import itertools
import pathlib
import re
import subprocess
import sys

import torch

from fmha_decode import drawn_lengths
from fmha_ragged import cumulated
from in_turns import medians_us
from named_launch import Kernel

STEPS = "64+1x512@2048,64+2x1024@4096,16+4x2048@0,128+1x128@8192"
COLUMNS = 128


class Step:
    """Tensors of a step: single queries first, then the chunks."""

    def __init__(self, text, heads_q, heads_kv, page_size, kind="bf16"):
        singles, chunks, queries, history = map(int, re.fullmatch(r"(\d+)\+(\d+)x(\d+)@(\d+)", text).groups())
        self.singles, self.chunks, self.queries, self.page_size, self.kind = singles, chunks, queries, page_size, kind
        self.heads = dict(heads_q=heads_q, heads_kv=heads_kv)
        self.lengths = drawn_lengths(singles) + [history + queries] * chunks
        counts = [-(-n // page_size) for n in self.lengths]
        order, start = torch.randperm(sum(counts), device="cuda").to(torch.int32), 0
        self.pages = sum(counts)
        self.table = torch.full((len(counts), max(counts)), -1, dtype=torch.int32, device="cuda")
        for row, count in enumerate(counts):
            self.table[row, :count] = order[start:start + count]
            start += count
        make = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
        self.k, self.v = (make(self.pages, page_size, heads_kv, COLUMNS) for _ in range(2))
        self.descales = {}
        self.q = make(singles + chunks * queries, heads_q, COLUMNS)
        self.o = torch.empty_like(self.q)
        for name in {"bf16": "", "kv-e4m3": "kv", "e4m3": "qkv"}[kind]:
            setattr(self, name, getattr(self, name).to(torch.float8_e4m3fn))
            self.descales[f"{name}_descale"] = torch.rand(len(self.lengths), heads_kv, device="cuda") + 0.5
        self.used = torch.tensor(self.lengths, dtype=torch.int32, device="cuda")

    def launch(self, library, rows, first, count, queries, o, is_ragged, pins):
        """Of `rows` sequences from `first` on, whose queries begin at `count`; all have `queries`, or lengths of their own (a list)."""
        places = sum(queries) if is_ragged else queries[0]
        sizes = dict(batch=rows, seqlen_q=places, seqlen_k=self.table.shape[1] * self.page_size, **self.heads)
        selectors = f"head_dim={COLUMNS},mask=causal,kv_layout=paged,page_size={self.page_size}"
        selectors += ",q_layout=ragged" if is_ragged else ""
        selectors += {"bf16": "", "kv-e4m3": ",kv_dtype=e4m3", "e4m3": ",dtype=e4m3"}[self.kind]
        selectors += "".join(f",{name}={value}" for name, value in sizes.items()) + ("," + pins if pins else "")
        kernel = Kernel(library, "fmha", selectors)
        buffers = dict(q=self.q[count:], k=self.k, v=self.v, o=o[count:], seqused_k=self.used[first:], block_table=self.table[first:])
        buffers |= {name: t[first:] for name, t in self.descales.items()}
        if is_ragged:
            buffers["cu_seqlens_q"] = cumulated(queries)
        return kernel.bind(pages=self.pages, max_pages=self.table.shape[1], **sizes, **buffers), kernel.name


def row_of(library, text, heads, page_size, kind, pins, repeat, flush):
    step = Step(text, *map(int, heads.split("/")), page_size, kind)
    one, two = (torch.full_like(step.o, float("nan")) for _ in range(2))
    rows = step.singles + step.chunks
    whole, name = step.launch(library, rows, 0, 0, [1] * step.singles + [step.queries] * step.chunks, one, True, pins)
    decode, decode_name = step.launch(library, step.singles, 0, 0, [1], two, False, "")
    chunk = [step.queries] * step.chunks
    prefills = [step.launch(library, step.chunks, step.singles, step.singles, chunk, two, is_ragged, "") for is_ragged in (False, True)]
    whole()
    for prefill, prefill_name in prefills:
        two.fill_(float("nan"))
        decode()
        prefill()
        torch.cuda.synchronize()
        difference = ((one.float() - two.float()).norm() / two.float().norm()).item()
        if not difference < (5e-2 if kind == "e4m3" else 5e-3):  # probabilities are e4m3, too
            sys.exit(f"results differ by {difference:.3e}: {text}, {name}, {decode_name} and {prefill_name}")

    def pair(prefill):
        def both():
            decode()
            prefill()
        return both

    us = medians_us([whole, *(pair(prefill) for prefill, _ in prefills)], repeat, flush)
    fastest = min(range(2), key=lambda i: us[1 + i])
    return (f"| {heads} {kind} pages of {page_size}: {text} | {us[0]:.1f} | {us[1 + fastest]:.1f} | {us[0] / us[1 + fastest]:.3f} | {name} | "
            f"{decode_name}, {prefills[fastest][1]} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--heads", default="32/8,64/8")
    parser.add_argument("--page-size", default="16,64")
    parser.add_argument("--kinds", default="bf16")
    parser.add_argument("--steps", default=STEPS)
    parser.add_argument("--pins", default="", help="of the kernel of one launch; several, separated by semicolons")
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    library = ctypes.CDLL(arguments.library)
    clocks = subprocess.run(["nvidia-smi", "--query-gpu=name,clocks.max.sm,clocks.max.mem,driver_version", "--format=csv,noheader"],
                            capture_output=True, text=True, check=False).stdout.strip()
    lines = [f"{clocks}, commit {arguments.commit}", "", f"Command: `python3 {' '.join(sys.argv)}`", "",
             "| step | one launch us | two launches us | one / two | kernel | kernels of two |", "|---|---|---|---|---|---|"]
    print("\n".join(lines))
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    cells = itertools.product(arguments.heads.split(","), map(int, arguments.page_size.split(",")), arguments.kinds.split(","),
                              arguments.steps.split(","), arguments.pins.split(";"))
    for heads, page_size, kind, text, pins in cells:
        try:
            lines.append(row_of(library, text, heads, page_size, kind, pins, arguments.repeat, flush))
        except RuntimeError as error:
            print(f"{heads} {page_size} {kind} {text} {pins}: {error}")
            continue
        print(lines[-1], flush=True)
        torch.cuda.empty_cache()
    if arguments.output:
        pathlib.Path(arguments.output).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
