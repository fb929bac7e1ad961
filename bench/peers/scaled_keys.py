#!/usr/bin/env python3
"""Attention over paged keys and values in bf16, e4m3, NVFP4 and MXFP8: checked against float64, and timed.

python3 bench/peers/scaled_keys.py --library build/bench/peers/libtessera_peer_shim.so [--runs 32/8:128:1:32x8192]
      [--page-size 64] [--formats bf16,e4m3,nvfp4,mxfp8] [--pins "mma_kind=wgmma.f16;"] [--shapes 40] [--repeat 7]

--runs: heads of q and k, head_dim, queries of a sequence, sequences x keys; several separated by commas.
--shapes: random small shapes that are compared with float64 first, with and without factors of whole tensors; of wgmma
also, bit for bit, with bf16 pages that hold code times scale. Times: a graph of 20 launches and more over rotating
caches of 256 MB together, beside a plain read of the same bytes; median of --repeat. Needs PyTorch and a GPU.
"""

import argparse
import ctypes
import itertools
import math
import random
import subprocess
import sys

import torch

from fmha_decode import ROTATED_BYTES, graph_of, plain_read_library, stream, times_us
from named_launch import Kernel

E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
BLOCK = {"nvfp4": 16, "mxfp8": 32}
BITS = {"bf16": 16, "e4m3": 8, "nvfp4": 4.5, "mxfp8": 8.25}


def drawn(format_, *shape):
    """Random codes and scales [.., columns], and the bf16 numbers that they are."""
    block = BLOCK[format_]
    scales_shape = (*shape[:-1], shape[-1] // block)
    if format_ == "nvfp4":
        codes = torch.randint(0, 256, (*shape[:-1], shape[-1] // 2), device="cuda", dtype=torch.uint8)
        table = torch.tensor(E2M1 + [-x for x in E2M1], device="cuda", dtype=torch.float32)
        values = torch.stack([table[(codes & 15).long()], table[(codes >> 4).long()]], -1).flatten(-2)
        # Subnormal scales, too, and any sign bit.
        scales = torch.randint(0, 0x38, scales_shape, device="cuda", dtype=torch.uint8)
        wide_scales = scales.view(torch.float8_e4m3fn).float()
        scales |= torch.randint(0, 2, scales_shape, device="cuda", dtype=torch.uint8) << 7
    else:
        values = (torch.randn(*shape, device="cuda") * 16).clamp(-448, 448).to(torch.float8_e4m3fn)
        codes = values.view(torch.uint8)
        values = values.float()
        scales = torch.randint(118, 125, scales_shape, device="cuda", dtype=torch.uint8)
        wide_scales = torch.exp2(scales.float() - 127)
    wide = (values * wide_scales.repeat_interleave(block, -1)).to(torch.bfloat16)
    assert torch.equal(wide.float(), values * wide_scales.repeat_interleave(block, -1))
    return codes, scales, wide


class Cache:
    """K and V of sequences in pages of one pool each; what belongs to no key is 0xFF."""

    def __init__(self, format_, lengths, page_size, heads, columns, is_head_major=False):
        self.format, self.page_size, self.lengths = format_, page_size, lengths
        counts = [-(-length // page_size) for length in lengths]
        self.max_pages, self.pages = max(max(counts), 1), sum(counts) + 3
        order = torch.randperm(self.pages, device="cuda")
        self.table = torch.full((len(lengths), self.max_pages), 2_000_000_000, device="cuda", dtype=torch.int32)
        at = 0
        for i, count in enumerate(counts):
            self.table[i, :count] = order[at:at + count].to(torch.int32)
            at += count
        self.buffers, self.wide, self.sizes = {}, {}, {}
        shape = (self.pages, page_size, heads, columns)
        for name in ("k", "v"):
            if format_ in BLOCK:
                codes, scales, wide = drawn(format_, *shape)
                scales = scales.permute(0, 2, 1, 3).contiguous()  # [pages, heads, page_size, ..]
            else:
                wide = torch.randn(*shape, device="cuda").to(torch.bfloat16)
                if format_ == "e4m3":
                    wide = wide.to(torch.float8_e4m3fn).to(torch.bfloat16)
                codes = wide.to(torch.float8_e4m3fn).view(torch.uint8) if format_ == "e4m3" else wide
                scales = None
            keys = torch.arange(page_size, device="cuda")
            for i, length in enumerate(lengths):  # what lies behind the last key is nobody's
                if length % page_size:
                    page = int(self.table[i, length // page_size])
                    codes.view(torch.uint8)[page, keys >= length % page_size] = 0xFF
                    if scales is not None:
                        scales[page][:, keys >= length % page_size] = 0xFF
            if is_head_major:
                codes = codes.permute(0, 2, 1, 3).contiguous()
                self.sizes |= {f"{name}_stride_head": codes.stride(1), f"{name}_stride_seqlen": codes.stride(2)}
            self.buffers[name] = codes
            if scales is not None:
                self.buffers[f"{name}_scale"] = scales
            self.wide[name] = wide

    def dense(self, name, i):
        pages = self.wide[name][self.table[i, :max(-(-self.lengths[i] // self.page_size), 0)].long()]
        return pages.flatten(0, 1)[:self.lengths[i]]

    def as_bf16(self):
        other = object.__new__(Cache)
        other.__dict__ = dict(self.__dict__) | {"format": "bf16", "buffers": dict(self.wide), "sizes": {}}
        return other

    def bytes_of(self):
        return int(sum(t.numel() * t.element_size() for t in self.buffers.values()))


def selectors(format_, head_dim, page_size, sizes, pins):
    text = f"head_dim={head_dim},mask=causal,kv_layout=paged,page_size={page_size}," + ",".join(f"{k}={v}" for k, v in sizes.items())
    text += {"bf16": "", "e4m3": ",kv_dtype=e4m3"}.get(format_, f",kv_format={format_}")
    return text + ("," + pins if pins else "")


def bound(kernel, cache, q, o, heads_kv, descales):
    lengths = torch.tensor(cache.lengths, device="cuda", dtype=torch.int32)
    values = dict(batch=q.shape[0], heads_q=q.shape[2], heads_kv=heads_kv, seqlen_q=q.shape[1], pages=cache.pages,
                  max_pages=cache.max_pages, seqlen_k=cache.max_pages * cache.page_size, q=q, o=o, seqused_k=lengths,
                  block_table=cache.table, **cache.buffers, **cache.sizes)
    if descales and cache.format != "bf16":
        values |= dict(k_descale=descales[0], v_descale=descales[1])
    return kernel.bind(**values)


def error_of(cache, q, o, descales):
    """Relative error against float64, of all sequences together."""
    wrong = norm = 0.0
    group = q.shape[2] // cache.wide["k"].shape[2]
    for i, length in enumerate(cache.lengths):
        k, v = (cache.dense(name, i).double().repeat_interleave(group, 1) for name in ("k", "v"))
        if descales:
            k = k * descales[0][i].double().repeat_interleave(group)[None, :, None]
            v = v * descales[1][i].double().repeat_interleave(group)[None, :, None]
        s = torch.einsum("qhd,khd->hqk", q[i].double(), k) / math.sqrt(q.shape[3])
        places = torch.arange(length, device="cuda")[None] - length + q.shape[1]
        s = s.masked_fill(places > torch.arange(q.shape[1], device="cuda")[:, None], -math.inf)
        expected = torch.einsum("hqk,khd->qhd", torch.softmax(s, -1).nan_to_num(0), v)
        got = o[i].double()
        if not torch.isfinite(got).all():
            return math.inf
        wrong += float((got - expected).pow(2).sum())
        norm += float(expected.pow(2).sum())
    return math.sqrt(wrong / max(norm, 1e-300))


def check_shapes(library, count):
    draw, worst, equal, failures = random.Random(7), 0.0, 0, []
    for turn in range(count):
        format_ = ("nvfp4", "mxfp8")[turn % 2]
        head_dim = draw.choice([64, 128, 256])
        page_size = draw.choice([8, 16, 32, 64, 128])
        heads_kv, group = draw.choice([1, 2, 3]), draw.choice([1, 2, 4, 8])
        lengths = [draw.choice([0, 1, page_size, draw.randint(1, 3000)]) for _ in range(draw.randint(1, 5))]
        queries = draw.choice([1, 1, 2, 4, 70, 200])
        sizes = dict(batch=len(lengths), heads_q=heads_kv * group, heads_kv=heads_kv, seqlen_q=queries, seqlen_k=max(max(lengths), 1))
        is_wgmma = turn % 4 >= 2
        pins = "mma_kind=wgmma.f16" if is_wgmma else "mma_kind=mma.f16"
        if is_wgmma:
            pins += f",tile_m=64,tile_n={48 if head_dim == 256 else 64},stages=1,split_kv=off,pack_gqa={group}"
        cache = Cache(format_, lengths, page_size, heads_kv, head_dim, turn % 3 == 0)
        kernel = Kernel(library, "fmha", selectors(format_, head_dim, page_size, sizes, pins))
        q = torch.randn(len(lengths), queries, heads_kv * group, head_dim, device="cuda").to(torch.bfloat16)
        descales = None
        if turn % 5 == 0:
            descales = [torch.rand(len(lengths), heads_kv, device="cuda") + 0.5 for _ in range(2)]
        o = torch.full_like(q, float("nan"))
        bound(kernel, cache, q, o, heads_kv, descales)()
        torch.cuda.synchronize()
        error = error_of(cache, q, o, descales)
        worst = max(worst, error)
        if not error < 6e-3:
            failures.append(f"{kernel.name}: relative error {error:.3e}: {format_} {head_dim} pages of {page_size}, heads {heads_kv}x{group}, "
                     f"{queries} queries, keys {lengths}")
        if is_wgmma and not descales:
            wide = cache.as_bf16()
            other = torch.full_like(q, float("nan"))
            plain = Kernel(library, "fmha", selectors("bf16", head_dim, page_size, sizes, pins))
            bound(plain, wide, q, other, heads_kv, None)()
            torch.cuda.synchronize()
            if not torch.equal(o.view(torch.int16), other.view(torch.int16)):
                failures.append(f"{kernel.name}: other bits than {plain.name}")
            else:
                equal += 1
    print(f"{count} random shapes: worst relative error {worst:.2e}; {equal} of wgmma have the bits of bf16 pages", flush=True)
    for failure in failures:
        print(f"FAILED: {failure}", flush=True)
    return not failures


def cell(library, reader, format_, batch, keys, heads_q, heads_kv, head_dim, queries, page_size, pins, repeat):
    sizes = dict(batch=batch, heads_q=heads_q, heads_kv=heads_kv, seqlen_q=queries, seqlen_k=keys)
    kernel = Kernel(library, "fmha", selectors(format_, head_dim, page_size, sizes, pins))
    bytes_ = 2 * batch * keys * heads_kv * head_dim * BITS[format_] / 8
    copies = max(1, math.ceil(ROTATED_BYTES / bytes_))
    caches = [Cache(format_, [keys] * batch, page_size, heads_kv, head_dim) for _ in range(copies)]
    for cache in caches[1:]:
        cache.wide = None
    q = torch.randn(batch, queries, heads_q, head_dim, device="cuda").to(torch.bfloat16)
    o = torch.full_like(q, float("nan"))
    mine = [bound(kernel, cache, q, o, heads_kv, None) for cache in caches]
    mine[0]()
    torch.cuda.synchronize()
    few = object.__new__(Cache)
    few.__dict__ = dict(caches[0].__dict__) | {"lengths": caches[0].lengths[:1]}
    error = error_of(few, q[:1], o[:1], None)
    if not error < 6e-3:
        raise RuntimeError(f"{kernel.name}: relative error {error:.3e}")
    caches[0].wide = None

    def reading(cache):
        def read():
            for t in cache.buffers.values():
                reader.tessera_bench_plain_read(stream(), ctypes.c_void_p(t.data_ptr()), ctypes.c_longlong(t.numel() * t.element_size()))
        return read

    us = times_us([graph_of(mine), graph_of([reading(cache) for cache in caches])], repeat)
    return kernel.name, bytes_, *us


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--runs", default="32/8:128:1:8x8192,32/8:128:1:32x8192,32/8:128:1:128x4096")
    parser.add_argument("--page-size", type=int, default=64)
    parser.add_argument("--formats", default="bf16,e4m3,nvfp4,mxfp8")
    parser.add_argument("--pins", default="", help="several, separated by semicolons")
    parser.add_argument("--shapes", type=int, default=0)
    parser.add_argument("--repeat", type=int, default=7)
    arguments = parser.parse_args()
    library, reader = ctypes.CDLL(arguments.library), plain_read_library()
    torch.manual_seed(2026)
    torch.empty(1, device="cuda")  # the context that kernels are loaded into
    print(subprocess.run(["nvidia-smi", "--query-gpu=name,clocks.max.mem,driver_version", "--format=csv,noheader"], capture_output=True,
                         text=True, check=False).stdout.strip())
    is_right = check_shapes(library, arguments.shapes) if arguments.shapes else True
    print("| heads | head_dim | batch x keys | queries | K and V | MB | tessera us | TB/s | of a plain read | of bf16's time | kernel |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for run, pins in itertools.product(arguments.runs.split(","), arguments.pins.split(";")):
        heads, head_dim, queries, case = run.split(":")
        batch, keys = map(int, case.split("x"))
        of_bf16 = math.nan
        for format_ in arguments.formats.split(","):
            try:
                name, bytes_, mine, read = cell(library, reader, format_, batch, keys, *map(int, heads.split("/")), int(head_dim),
                                                int(queries), arguments.page_size, pins, arguments.repeat)
            except RuntimeError as error:
                print(f"{run} {format_} {pins}: {error}")
                continue
            of_bf16 = mine if format_ == "bf16" else of_bf16
            print(f"| {heads} | {head_dim} | {case} | {queries} | {format_} | {bytes_ / 1e6:.0f} | {mine:.1f} | {bytes_ / mine * 1e-6:.2f} | "
                  f"{read / mine:.3f} | {mine / of_bf16:.3f} | {name} |", flush=True)
    if not is_right:
        sys.exit(1)


if __name__ == "__main__":
    main()
