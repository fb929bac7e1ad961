#!/usr/bin/env python3
"""One query a sequence over keys in pages, beside a plain read of the same bytes and FlashInfer where it can be imported.

Pools [pages, page_size, heads_kv, head_dim], pages in random order, random normal data, lengths read on the device. A graph of at least 20
launches walks over copies of the pools that together are more than four times the L2; graphs take turns; microseconds are the median graph
over its launches. Case drawn64: 64 lengths drawn log-uniformly from 100 to 32,768. Every result is compared with float32 attention of a
sample of the sequences. Prints a Markdown table; the verdict is over the bars: from 256 MB of K and V on 92 % of a plain read; else, beside
FlashInfer's fastest, 8 x 1,024 keys 0.9 of its time, one sequence no slower, drawn64 1.05 times as fast.

  python3 bench/peers/serving_decode.py --library build/bench/peers/libtessera_peer_shim.so [--heads 32/8,64/8] [--cases 1x1024,drawn64]
      [--page-size 16,64] [--pins "split_kv=dealt;split_kv=on"] [--no-peers] [--output FILE]
"""
import argparse
import ctypes
import pathlib
import subprocess
import sys

import torch

import flashinfer_decode
from fmha_decode import drawn_lengths, graph_of, plain_read_library, stream, times_us
from named_launch import Kernel

CASES = "1x1024,1x32768,1x131072,8x1024,8x8192,8x32768,32x8192,128x4096,drawn64"
ROTATED_BYTES, COLUMNS = 256 << 20, 128


def reference(q, k, v, table, lengths, row, page_size):
    """float32 attention of one sequence: [heads_q, columns]."""
    pages = table[row, :-(-lengths[row] // page_size)].long()
    keys, values = (t[pages].flatten(0, 1)[:lengths[row]].float() for t in (k, v))
    group = q.shape[1] // keys.shape[1]
    heads = q[row].float().view(keys.shape[1], group, COLUMNS)
    weights = torch.softmax(torch.einsum("hgd,lhd->hgl", heads, keys) * COLUMNS ** -0.5, -1)
    return torch.einsum("hgl,lhd->hgd", weights, values).reshape(-1, COLUMNS)


def verdict(case, bytes_, us, read, peer):
    bars = []
    if bytes_ >= 256e6:
        bars.append((f"{read / us:.3f} of 0.92 of a read", read / us >= 0.92))
    if peer is not None:
        bar = {"8x1024": 0.9, "drawn64": 1 / 1.05}.get(case, 1.0 if case.startswith("1x") else None)
        if bar is not None:
            bars.append((f"{us / peer:.3f} of {bar:.3f} of the peer's time", us / peer <= bar))
    return "; ".join(f"{text}: {'met' if met else 'missed'}" for text, met in bars) or "none"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--heads", default="32/8,64/8")
    parser.add_argument("--cases", default=CASES)
    parser.add_argument("--page-size", default="16,64")
    parser.add_argument("--pins", default="", help="several, separated by semicolons")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    library, reader = ctypes.CDLL(arguments.library), plain_read_library()
    clocks = subprocess.run(["nvidia-smi", "--query-gpu=name,clocks.max.sm,clocks.max.mem,driver_version", "--format=csv,noheader"],
                            capture_output=True, text=True, check=False).stdout.strip()
    version = getattr(flashinfer_decode.flashinfer, "__version__", "none")
    lines = [f"{clocks}, FlashInfer {version}, commit {arguments.commit}", "", f"Command: `python3 {' '.join(sys.argv)}`", "",
             "| heads | batch x keys | page | K and V MB | us | TB/s | of a plain read | fastest peer us | peer / us | peer | verdict | kernel |",
             "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    print("\n".join(lines))
    for heads in arguments.heads.split(","):
        heads_q, heads_kv = map(int, heads.split("/"))
        for case in arguments.cases.split(","):
            if case.startswith("drawn"):
                lengths = drawn_lengths(int(case.removeprefix("drawn")))
            else:
                batch, keys = map(int, case.split("x"))
                lengths = [keys] * batch
            for page_size in map(int, arguments.page_size.split(",")):
                count, most = sum(-(-n // page_size) for n in lengths), -(-max(lengths) // page_size)
                bytes_ = 4 * sum(lengths) * heads_kv * COLUMNS
                table, order, start = torch.zeros(len(lengths), most, dtype=torch.int32, device="cuda"), torch.randperm(count, device="cuda"), 0
                for row, length in enumerate(lengths):
                    n = -(-length // page_size)
                    table[row, :n] = order[start:start + n]
                    start += n
                make = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
                pools = [tuple(make(count, page_size, heads_kv, COLUMNS) for _ in range(2)) for _ in range(max(1, -(-ROTATED_BYTES // bytes_)))]
                q = make(len(lengths), heads_q, COLUMNS)
                used = torch.tensor(lengths, dtype=torch.int32, device="cuda")
                sample = sorted({0, len(lengths) // 2, len(lengths) - 1})
                expected = torch.stack([reference(q, *pools[0], table, lengths, row, page_size) for row in sample])

                def checked(name, launch, o):
                    o.fill_(float("nan"))
                    launch()
                    torch.cuda.synchronize()
                    difference = ((o.view(len(lengths), heads_q, COLUMNS)[sample].float() - expected).norm() / expected.norm()).item()
                    if not difference < 1e-2:
                        sys.exit(f"{name} differs by {difference:.3e}: {heads} {case} pages of {page_size}")

                mine = []  # with the launches: they keep what the graphs use
                for pins in arguments.pins.split(";"):
                    selectors = (f"head_dim={COLUMNS},mask=causal,kv_layout=paged,page_size={page_size},batch={len(lengths)},heads_q={heads_q},"
                                 f"heads_kv={heads_kv},seqlen_q=1,seqlen_k={most * page_size}")
                    try:
                        kernel = Kernel(library, "fmha", selectors + ("," + pins if pins else ""))
                        o = torch.empty_like(q)
                        launches = [kernel.bind(q=q, k=k, v=v, o=o, seqused_k=used, block_table=table, batch=len(lengths), heads_q=heads_q,
                                                heads_kv=heads_kv, seqlen_q=1, seqlen_k=most * page_size, pages=count, max_pages=most)
                                    for k, v in pools]
                    except RuntimeError as error:
                        print(f"{heads} {case} {page_size} {pins}: {error}")
                        continue
                    checked(kernel.name, launches[0], o)
                    mine.append((kernel.name, graph_of(launches), launches))
                peers = []
                if not arguments.no_peers:
                    try:
                        for name, launches, o in flashinfer_decode.peers(q, pools, lengths, table, page_size):
                            checked(name, launches[0], o)
                            peers.append((name, graph_of(launches), launches))
                    except Exception as error:  # a peer that fails is no reason to lose the table
                        print(f"{heads} {case} {page_size}: FlashInfer: {str(error)[:300]}")

                def read_of(pool):
                    def read():
                        for t in pool:
                            reader.tessera_bench_plain_read(stream(), ctypes.c_void_p(t.data_ptr()), ctypes.c_longlong(bytes_ // 2))
                    return read

                us = times_us([graph for _, graph, _ in mine] + [graph for _, graph, _ in peers] + [graph_of([read_of(pool) for pool in pools])], arguments.repeat)
                read = us[-1]
                peer_us, peer = min(zip(us[len(mine):-1], [name for name, *_ in peers]), default=(None, "none"))
                for (name, *_), time in zip(mine, us):
                    lines.append(f"| {heads} | {case} | {page_size} | {bytes_ / 1e6:.0f} | {time:.1f} | {bytes_ / time * 1e-6:.2f} | {read / time:.3f} | "
                                 f"{'-' if peer_us is None else f'{peer_us:.1f}'} | {'-' if peer_us is None else f'{peer_us / time:.3f}'} | {peer} | "
                                 f"{verdict(case, bytes_, time, read, peer_us)} | {name} |")
                    print(lines[-1], flush=True)
                del pools, mine, peers
                torch.cuda.empty_cache()
    if arguments.output:
        pathlib.Path(arguments.output).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
