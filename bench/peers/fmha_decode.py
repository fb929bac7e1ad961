#!/usr/bin/env python3
"""Attention of a few queries over long caches beside a plain read of the same bytes, and beside PyTorch's fastest backend.

Dense caches [batch, keys, heads_kv, head_dim], random normal data. Case drawn64: 64 sequences whose lengths are drawn log-uniformly from
100 to 32,768 and read on the device (seqused_k); the plain read is then of as many bytes in one piece, and there is no peer. A graph of at least 20 launches walks over copies of K and V that
together are more than four times the L2; graphs take turns; microseconds are the median graph over its launches. The plain read
(plain_read.cu, built here by nvcc) reads K and V once by the same method. Prints a Markdown table.

  python3 bench/peers/fmha_decode.py --library build/bench/peers/libtessera_peer_shim.so [--heads 32/8,64/8]
      [--cases 1x1024,8x8192] [--kv-dtype bf16,e4m3] [--head-dim 128] [--seqlen-q 1] [--pins tile_n=64,stages=3] [--page-size 0,16,64] [--no-peers] [--output FILE]

--kv-dtype: e4m3 caches beside 16-bit ones, with descales for each sequence and head; PyTorch's backends then read the same numbers
in bf16.
--page-size: keys in pages of a pool, in random order, beside dense ones (0); the same keys, so that both can be compared.
"""
import argparse
import ctypes
import itertools
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

CASES = "1x1024,1x32768,1x131072,8x1024,8x8192,8x32768,32x8192,128x4096"
ROTATED_BYTES = 256 << 20
BACKENDS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]


def plain_read_library():
    """Built by nvcc; in the folder TESSERA_BENCH_BUILT, where it is set, once."""
    kept = os.environ.get("TESSERA_BENCH_BUILT")
    path = pathlib.Path(kept or tempfile.mkdtemp()) / "plain_read.so"
    if not path.exists():
        source, part = pathlib.Path(__file__).with_name("plain_read.cu"), path.with_suffix(".part")
        subprocess.run(["nvcc", "-O3", "-arch=sm_90", "-shared", "-Xcompiler", "-fPIC", "-o", str(part), str(source)], check=True)
        part.replace(path)
    return ctypes.CDLL(str(path))


class Ours:
    def __init__(self, library, selectors):
        self.library = library
        for name in ("open", "workspace", "launch", "paged_workspace", "paged_launch"):
            getattr(library, f"tessera_bench_fmha_{name}").restype = ctypes.c_char_p
        self.handle, name = ctypes.c_void_p(), ctypes.c_char_p()
        self.check(library.tessera_bench_fmha_open(selectors.encode(), ctypes.byref(self.handle), ctypes.byref(name)))
        self.name = name.value.decode()

    def check(self, error):
        if error is not None:
            raise RuntimeError(error.decode())

    def bind(self, q, k, v, o, lengths=None, descales=None):
        sizes = (ctypes.c_int64 * 6)(q.shape[0], q.shape[2], k.shape[2], q.shape[1], k.shape[1], 0)
        pointers = (ctypes.c_uint64 * 13)(q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr())
        pointers[10], pointers[11] = (t.data_ptr() for t in descales) if descales else (0, 0)
        pointers[8] = lengths.data_ptr() if lengths is not None else 0
        bytes_ = ctypes.c_int64()
        self.check(self.library.tessera_bench_fmha_workspace(self.handle, pointers, sizes, ctypes.byref(bytes_)))
        workspace = torch.empty(max(bytes_.value, 1), dtype=torch.uint8, device="cuda")
        sizes[5], pointers[7] = bytes_.value, workspace.data_ptr() if bytes_.value else 0

        def launch():
            self.check(self.library.tessera_bench_fmha_launch(self.handle, stream(), pointers, sizes))

        launch.keeps = (workspace, descales)
        return launch


class OursPaged(Ours):
    def bind_pages(self, q, pool_k, pool_v, o, lengths, table, descales=None):
        sizes = (ctypes.c_int64 * 8)(q.shape[0], q.shape[2], pool_k.shape[2], q.shape[1], table.shape[1] * pool_k.shape[1],
                                     pool_k.shape[0], table.shape[1], 0)
        pointers = (ctypes.c_uint64 * 9)(*(t.data_ptr() for t in (q, pool_k, pool_v, o, lengths, table)), 0)
        pointers[7], pointers[8] = (t.data_ptr() for t in descales) if descales else (0, 0)
        bytes_ = ctypes.c_int64()
        self.check(self.library.tessera_bench_fmha_paged_workspace(self.handle, pointers, sizes, ctypes.byref(bytes_)))
        workspace = torch.empty(max(bytes_.value, 1), dtype=torch.uint8, device="cuda")
        sizes[7], pointers[6] = bytes_.value, workspace.data_ptr() if bytes_.value else 0

        def launch():
            self.check(self.library.tessera_bench_fmha_paged_launch(self.handle, stream(), pointers, sizes))

        launch.keeps = (workspace, lengths, table, pool_k, pool_v, descales)
        return launch


def in_pages(k, v, page_size):
    """Pools with the pages of k and v in random order, lengths and the table."""
    batch, keys, heads, columns = k.shape
    assert keys % page_size == 0
    max_pages = keys // page_size
    order = torch.randperm(batch * max_pages, device="cuda")
    pools = []
    for t in (k, v):
        bits = torch.int8 if t.dtype.itemsize == 1 else torch.int16  # indexing knows no 8-bit floats
        pool = torch.empty(batch * max_pages, page_size, heads, columns, device="cuda", dtype=bits)
        pool[order] = t.view(bits).view(batch * max_pages, page_size, heads, columns)
        pools.append(pool.view(t.dtype))
    lengths = torch.full((batch,), keys, device="cuda", dtype=torch.int32)
    return (*pools, lengths, order.view(batch, max_pages).to(torch.int32).contiguous())


def stream():
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def graph_of(functions, least=20):
    """At least so many launches, the functions in turn, which are kept since a graph keeps no tensor. What they need was made ready by one
    call each."""
    for function in functions:
        function()
    torch.cuda.synchronize()
    launches = -(-least // len(functions)) * len(functions)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(launches):
            functions[i % len(functions)]()
    graph.keeps = functions
    return graph, launches


def times_us(graphs, repeat):
    def once(graph):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        return start, end

    for graph, _ in graphs:
        graph.replay()
    rounds = [[once(graph) for graph, _ in graphs] for _ in range(repeat)]
    torch.cuda.synchronize()
    return [1000 * statistics.median(r[i][0].elapsed_time(r[i][1]) for r in rounds) / graphs[i][1] for i in range(len(graphs))]


def cell(library, reader, batch, keys, heads_q, heads_kv, head_dim, seqlen_q, pins, repeat, kv_dtype, page_size, has_peers):
    bytes_ = (2 if kv_dtype == "e4m3" else 4) * batch * keys * heads_kv * head_dim
    copies = max(1, -(-ROTATED_BYTES // bytes_))
    make = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
    caches = [(make(batch, keys, heads_kv, head_dim), make(batch, keys, heads_kv, head_dim)) for _ in range(copies)]
    descales, wide = None, caches
    if kv_dtype == "e4m3":
        caches = [tuple(t.to(torch.float8_e4m3fn) for t in cache) for cache in caches]
        descales = tuple(torch.rand(batch, heads_kv, device="cuda") + 0.5 for _ in range(2))
        wide = [tuple((t.float() * d[:, None, :, None]).to(torch.bfloat16) for t, d in zip(caches[0], descales))]
    q = make(batch, seqlen_q, heads_q, head_dim)
    o = torch.full_like(q, float("nan"))
    selectors = (f"head_dim={head_dim},mask=causal,batch={batch},heads_q={heads_q},heads_kv={heads_kv},seqlen_q={seqlen_q},"
                 f"seqlen_k={keys}") + ("" if kv_dtype == "bf16" else f",kv_dtype={kv_dtype}")
    pinned = ",".join([selectors] + ([pins] if pins else []))
    if page_size:
        ours = OursPaged(library, f"{pinned},kv_layout=paged,page_size={page_size}")
        mine = []
        for k, v in caches:
            pool_k, pool_v, lengths, table = in_pages(k, v, page_size)
            mine.append(ours.bind_pages(q, pool_k, pool_v, o, lengths, table, descales))
    else:
        ours = Ours(library, pinned)
        mine = [ours.bind(q, k, v, o, descales=descales) for k, v in caches]

    def reading(k, v):
        def read():
            for t in (k, v):
                reader.tessera_bench_plain_read(stream(), ctypes.c_void_p(t.data_ptr()), ctypes.c_longlong(bytes_ // 2))
        return read

    graphs, names = [graph_of(mine), graph_of([reading(k, v) for k, v in caches])], []
    mine[0]()
    got = o.float()
    for backend in BACKENDS:
        if seqlen_q > 1 or not has_peers:
            break  # PyTorch's causal mask is aligned at the start
        def theirs(k, v):
            return torch.nn.functional.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                                                                    enable_gqa=heads_q != heads_kv)
        try:
            with sdpa_kernel(backend):
                expected = theirs(*wide[0]).transpose(1, 2).float()
                graphs.append(graph_of([lambda k=k, v=v: theirs(k, v) for k, v in wide]))
            names.append(backend.name)
        except RuntimeError:
            continue
        difference = ((got - expected).norm() / expected.norm()).item()
        if not difference < 2e-2:
            sys.exit(f"results differ by {difference:.3e}: {batch} x {keys}, {heads_q}/{heads_kv}, {ours.name}")
    us = times_us(graphs, repeat)
    peers = sorted(zip(us[2:], names))
    return ours.name, bytes_, us[0], us[1], peers[0] if peers else (float("nan"), "none")


def drawn_lengths(count):
    draw = random.Random(2026)
    return [int(math.exp(draw.uniform(math.log(100), math.log(32768)))) for _ in range(count)]


def ragged_cell(library, reader, count, heads_q, heads_kv, head_dim, seqlen_q, pins, repeat):
    """Sequences of different lengths in a padded cache; a sample of them is compared with float32 attention of the same numbers."""
    drawn = drawn_lengths(count)
    keys = max(drawn)
    k, v = (torch.randn(count, keys, heads_kv, head_dim, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for i, length in enumerate(drawn):
        k[i, length:], v[i, length:] = float("nan"), float("nan")
    q = torch.randn(count, seqlen_q, heads_q, head_dim, device="cuda", dtype=torch.bfloat16)
    o = torch.full_like(q, float("nan"))
    lengths = torch.tensor(drawn, dtype=torch.int32, device="cuda")
    selectors = (f"head_dim={head_dim},mask=causal,seqused=k,batch={count},heads_q={heads_q},heads_kv={heads_kv},seqlen_q={seqlen_q},"
                 f"seqlen_k={keys}")
    ours = Ours(library, ",".join([selectors] + ([pins] if pins else [])))
    launch = ours.bind(q, k, v, o, lengths)
    bytes_ = 4 * sum(drawn) * heads_kv * head_dim
    flat = torch.empty(bytes_, dtype=torch.uint8, device="cuda")

    def read():
        reader.tessera_bench_plain_read(stream(), ctypes.c_void_p(flat.data_ptr()), ctypes.c_longlong(bytes_))

    graphs = [graph_of([launch]), graph_of([read])]
    launch()
    torch.cuda.synchronize()
    for i in range(0, count, 7):
        group = heads_q // heads_kv
        expected = torch.nn.functional.scaled_dot_product_attention(
            q[i:i + 1].float().transpose(1, 2), k[i:i + 1, :drawn[i]].float().repeat_interleave(group, 2).transpose(1, 2),
            v[i:i + 1, :drawn[i]].float().repeat_interleave(group, 2).transpose(1, 2)).transpose(1, 2)
        difference = ((o[i:i + 1].float() - expected).norm() / expected.norm()).item()
        if seqlen_q == 1 and not difference < 2e-2:
            sys.exit(f"results differ by {difference:.3e}: sequence {i} of {drawn[i]} keys, {ours.name}")
    us = times_us(graphs, repeat)
    return ours.name, bytes_, us[0], us[1], (float("nan"), "none")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--heads", default="32/8,64/8")
    parser.add_argument("--cases", default=CASES)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--kv-dtype", default="bf16", help="of K and V, several separated by commas: bf16, e4m3")
    parser.add_argument("--seqlen-q", type=int, default=1)
    parser.add_argument("--pins", default="", help="several, separated by semicolons")
    parser.add_argument("--page-size", default="0", help="keys of a page, several separated by commas; 0: dense")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    library, reader = ctypes.CDLL(arguments.library), plain_read_library()
    clocks = subprocess.run(["nvidia-smi", "--query-gpu=name,clocks.max.sm,clocks.max.mem,driver_version", "--format=csv,noheader"],
                            capture_output=True, text=True, check=False).stdout.strip()
    lines = [f"{clocks}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, commit {arguments.commit}", "",
             f"Command: `python3 {' '.join(sys.argv)}`", "",
             "| heads | batch x keys | queries | K and V | page | K and V MB | tessera us | TB/s | of a plain read | fastest of PyTorch us | ratio | backend | kernel |",
             "|---|---|---|---|---|---|---|---|---|---|---|---|---|"]
    print("\n".join(lines))
    for heads in arguments.heads.split(","):
        heads_q, heads_kv = map(int, heads.split("/"))
        for case in arguments.cases.split(","):
            batch, keys = (int(case.removeprefix("drawn")), 0) if case.startswith("drawn") else map(int, case.split("x"))
            for pins, kv_dtype, page_size in itertools.product(arguments.pins.split(";"), arguments.kv_dtype.split(","),
                                                               map(int, arguments.page_size.split(","))):
                shape = [heads_q, heads_kv, arguments.head_dim, arguments.seqlen_q, pins, arguments.repeat]
                try:
                    name, bytes_, mine, read, (theirs, backend) = (cell(library, reader, batch, keys, *shape, kv_dtype, page_size, not arguments.no_peers) if keys else
                                                                   ragged_cell(library, reader, batch, *shape))
                except RuntimeError as error:
                    print(f"{heads} {case} {pins}: {error}")
                    continue
                lines.append(f"| {heads} | {case} | {arguments.seqlen_q} | {kv_dtype if keys else 'bf16'} | {page_size or 'dense'} | {bytes_ / 1e6:.0f} | {mine:.1f} | {bytes_ / mine * 1e-6:.2f} | "
                             f"{read / mine:.3f} | {theirs:.1f} | {theirs / mine:.3f} | {backend} | {name} |")
                print(lines[-1], flush=True)
                torch.cuda.empty_cache()
    if arguments.output:
        pathlib.Path(arguments.output).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
