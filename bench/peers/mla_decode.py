#!/usr/bin/env python3
"""Latent attention (keys of 576 columns, of which 512 are values too) of a few queries beside FlashMLA and a plain read of the keys.

Random normal data. A graph of at least 20 launches walks over copies of the keys that together are more than four times the L2; graphs
take turns; microseconds are the median graph over its launches. The plain read (plain_read.cu, built here by nvcc) reads the keys once by the
same method. FlashMLA, where it can be imported, has the same keys in pages of 64, in random order. A sample of rows is compared with float32
attention of the same numbers. FLOP: 2 * 1088 for each row and key that it sees. Prints a Markdown table.

  python3 bench/peers/mla_decode.py --library build/bench/peers/libtessera_peer_shim.so [--heads 128,64,16] [--seqlen-q 1,2]
      [--cases 128x4096,128x8192,128x32768] [--page-size 0,64] [--pins split_kv=off] [--output FILE]

--page-size: keys in pages of a pool, in random order, beside dense ones (0).
"""
import argparse
import ctypes
import itertools
import pathlib
import subprocess
import sys

import torch

from fmha_decode import ROTATED_BYTES, Ours, OursPaged, graph_of, plain_read_library, stream, times_us

COLUMNS, VALUES = 576, 512

try:
    import flash_mla
except ImportError:
    flash_mla = None


def expected_row(q, keys, limit):
    """q [heads, 576] over keys [n, 576], of which it sees `limit`."""
    k = keys[:limit].float()
    return torch.softmax(q.float() @ k.t() * COLUMNS ** -0.5, -1) @ k[:, :VALUES]


def paged(keys, page_size):
    batch, length, _, columns = keys.shape
    max_pages = length // page_size
    order = torch.randperm(batch * max_pages, device="cuda")
    pool = torch.empty(batch * max_pages, page_size, 1, columns, device="cuda", dtype=keys.dtype)
    pool[order] = keys.view(batch * max_pages, page_size, 1, columns)
    return pool, order.view(batch, max_pages).to(torch.int32).contiguous()


def theirs(q, caches, lengths, causal):
    """FlashMLA's launches, one for each cache, and its output."""
    results = []

    def launch(pool, table):
        metadata, _ = flash_mla.get_mla_metadata()

        def run():
            results[:] = flash_mla.flash_mla_with_kvcache(q, pool, table, lengths, VALUES, metadata, None, causal=causal)[:1]
        return run

    return [launch(*paged(k, 64)) for k in caches], results


def cell(library, reader, batch, keys, heads, seqlen_q, page_size, pins, repeat):
    bytes_ = 2 * batch * keys * COLUMNS
    copies = max(1, -(-ROTATED_BYTES // bytes_))
    caches = [torch.randn(batch, keys, 1, COLUMNS, device="cuda", dtype=torch.bfloat16).mul_(0.3) for _ in range(copies)]
    q = torch.randn(batch, seqlen_q, heads, COLUMNS, device="cuda", dtype=torch.bfloat16)
    o = torch.full((batch, seqlen_q, heads, VALUES), float("nan"), device="cuda", dtype=torch.bfloat16)
    lengths = torch.full((batch,), keys, device="cuda", dtype=torch.int32)
    causal = seqlen_q > 1
    selectors = (f"head_dim={COLUMNS},head_dim_v={VALUES},v_is_k=on,mask={'causal' if causal else 'none'},seqused=k,split_kv=dealt,"
                 f"heads_q={heads}")
    if page_size:
        selectors += f",kv_layout=paged,page_size={page_size}"
    selectors += "," + pins if pins else ""
    if page_size:
        ours, mine = OursPaged(library, selectors), []
        for k in caches:
            pool, table = paged(k, page_size)
            mine.append(ours.bind_pages(q, pool, pool, o, lengths, table))
    else:
        ours = Ours(library, selectors)
        mine = [ours.bind(q, k, k, o, lengths) for k in caches]
    mine[0]()
    torch.cuda.synchronize()
    for b, s in itertools.product(range(0, batch, max(batch // 5, 1)), range(seqlen_q)):
        expected = expected_row(q[b, s], caches[0][b, :, 0], keys - seqlen_q + 1 + s)
        difference = ((o[b, s].float() - expected).norm() / expected.norm()).item()
        if not difference < 1e-2:
            sys.exit(f"results differ by {difference:.3e}: sequence {b}, query {s}, {ours.name}")

    def reading(k):
        return lambda: reader.tessera_bench_plain_read(stream(), ctypes.c_void_p(k.data_ptr()), ctypes.c_longlong(bytes_))

    graphs = [graph_of(mine), graph_of([reading(k) for k in caches])]
    if flash_mla is not None:
        peers, results = theirs(q, caches, lengths, causal)
        graphs.append(graph_of(peers))
        peers[0]()
        difference = ((o.float() - results[0].float()).norm() / results[0].float().norm()).item()
        if not difference < 1e-2:
            sys.exit(f"results differ from FlashMLA's by {difference:.3e}: {ours.name}")
    us = times_us(graphs, repeat)
    return ours.name, bytes_, us[0], us[1], us[2] if len(us) > 2 else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--heads", default="128,64,16")
    parser.add_argument("--seqlen-q", default="1,2")
    parser.add_argument("--cases", default="128x4096,128x8192,128x32768")
    parser.add_argument("--page-size", default="0", help="keys of a page, several separated by commas; 0: dense")
    parser.add_argument("--pins", default="")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    library, reader = ctypes.CDLL(arguments.library), plain_read_library()
    clocks = subprocess.run(["nvidia-smi", "--query-gpu=name,clocks.max.sm,clocks.max.mem,driver_version", "--format=csv,noheader"],
                            capture_output=True, text=True, check=False).stdout.strip()
    lines = [f"{clocks}, PyTorch {torch.__version__}, commit {arguments.commit}", "", f"Command: `python3 {' '.join(sys.argv)}`", "",
             "| heads | queries | batch x keys | page | tessera us | TFLOPS | TB/s | of a plain read | FlashMLA us | ratio | kernel |",
             "|---|---|---|---|---|---|---|---|---|---|---|"]
    print("\n".join(lines))
    numbers = lambda text: [int(x) for x in text.split(",")]
    for heads, seqlen_q, case, page_size in itertools.product(numbers(arguments.heads), numbers(arguments.seqlen_q),
                                                              arguments.cases.split(","), numbers(arguments.page_size)):
        batch, keys = map(int, case.split("x"))
        try:
            name, bytes_, mine, read, peer = cell(library, reader, batch, keys, heads, seqlen_q, page_size, arguments.pins,
                                                  arguments.repeat)
        except RuntimeError as error:
            print(f"{heads} {seqlen_q} {case} {page_size}: {error}")
            continue
        flop = 2 * batch * heads * seqlen_q * keys * (COLUMNS + VALUES)
        lines.append(f"| {heads} | {seqlen_q} | {case} | {page_size or 'dense'} | {mine:.1f} | {flop / mine * 1e-6:.0f} | {bytes_ / mine * 1e-6:.2f} | "
                     f"{read / mine:.3f} | {peer:.1f} | {peer / mine:.3f} | {name} |")
        print(lines[-1], flush=True)
        torch.cuda.empty_cache()
    if arguments.output:
        pathlib.Path(arguments.output).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
