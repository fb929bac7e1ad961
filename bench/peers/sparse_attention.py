#!/usr/bin/env python3
"""Sparse attention of listed keys that are values too, from bf16 rows and from narrow caches, beside a plain read of what it gathers.

Random normal rows; the chains of `rows` write the caches. Every query lists --topk rows at random. 256 MB are written before each launch to
empty the L2; events; medians. Two queries' o are compared with float64 attention over the bf16 rows that were written: at most 5e-3 apart for rows, 4e-2
for e4m3 with its three bits of fraction, 0.12 for e2m1 with one. FLOPs are 2 heads queries topk (head_dim + 512). "of the read": the time in which as many bytes as are
gathered (once for each query) pass through plain_read.cu, over ours. FlashMLA (flash_mla) stands beside where it can be imported: its sparse decode of the same
caches of 656 and 584 bytes, and its sparse prefill of the same bf16 rows where one sequence has all queries; its o is compared with float64 likewise.

  python3 bench/peers/sparse_attention.py --library build/bench/peers/libtessera_peer_shim.so [--heads 128,64,16] [--cases 128x1,128x2,1x4096]
      [--caches rows,mla_656,mla_584,mla_384] [--topk 2048] [--rows 524288] [--repeat 15] [--output FILE]
"""
import argparse
import ctypes
import pathlib
import subprocess
import sys

import torch

from fmha_decode import plain_read_library, stream
from in_turns import medians_us
from named_launch import Kernel

PAGE = 64
try:
    import flash_mla
except ImportError:
    flash_mla = None

HEAD_DIMS = {"rows": (576, 512), "mla_656": (576,), "mla_584": (512,), "mla_384": (512,)}
MOST = {"rows": 5e-3, "mla_656": 4e-2, "mla_584": 4e-2, "mla_384": 0.12}
BYTES = {"mla_656": 656, "mla_584": 584, "mla_384": 384}


def written(library, rows, cache):
    """The cache of these rows, as our own chain writes it."""
    tokens, columns = rows.shape
    kernel = Kernel(library, "rows", f"columns={columns},chain={cache}")
    of_page = -(-PAGE * BYTES[cache] // 576) * 576 if cache == "mla_584" else PAGE * BYTES[cache]
    pages = torch.zeros(tokens // PAGE, of_page, dtype=torch.uint8, device="cuda")
    slots = torch.arange(tokens, dtype=torch.int32, device="cuda")
    kernel.bind(rows=tokens, pages=tokens // PAGE, page_size=PAGE, x=rows, slots=slots, cache=pages)()
    torch.cuda.synchronize()
    return pages


def error_of(o, q, rows, indices):
    """Of the first and the last query."""
    worst = 0.0
    for b, i in ((0, 0), (q.shape[0] - 1, q.shape[1] - 1)):
        keys = rows[indices[b, i].long()].double()
        weights = torch.softmax(q[b, i].double() @ keys.T / q.shape[-1] ** 0.5, -1)
        exact = weights @ keys[:, :512]
        worst = max(worst, ((o[b, i].double() - exact).norm() / exact.norm()).item())
    return worst


def theirs(cache, q, rows, keys, indices):
    """FlashMLA's launch, which gives o; None for what it has no kernel for."""
    batch, queries, heads, head_dim = q.shape
    scale = head_dim ** -0.5
    if flash_mla is None or heads < 64:
        return None
    if cache in ("mla_656", "mla_584"):
        metadata, _ = flash_mla.get_mla_metadata()
        pool = keys[:, :PAGE * BYTES[cache]].view(torch.float8_e4m3fn).unflatten(1, (PAGE, 1, BYTES[cache]))
        return lambda: flash_mla.flash_mla_with_kvcache(q, pool, None, None, 512, metadata, None, scale, is_fp8_kvcache=True, indices=indices)[0]
    if cache == "rows" and batch == 1:
        flat = indices.view(queries, 1, -1)
        return lambda: flash_mla.flash_mla_sparse_fwd(q[0], rows.view(-1, 1, head_dim), flat, scale)[0][None]
    return None


def cell(library, reader, cache, head_dim, heads, batch, queries, topk, rows, keys, flush, repeat, pins):
    q = torch.randn(batch, queries, heads, head_dim, device="cuda").bfloat16()
    indices = torch.randint(0, rows.shape[0], (batch, queries, topk), device="cuda", dtype=torch.int32)
    o = torch.full((batch, queries, heads, 512), float("nan"), device="cuda", dtype=torch.bfloat16)
    facts = f"head_dim={head_dim},head_dim_v=512,v_is_k=on,kv_pools=sparse_window,kv_cache={cache},heads_q={heads},batch={batch},seqlen_q={queries},topk={topk}"
    kernel = Kernel(library, "fmha", facts + ("," + pins if pins else ""))
    nothing = torch.zeros(batch, dtype=torch.int32, device="cuda")
    launch = kernel.bind(batch=batch, heads_q=heads, heads_kv=1, seqlen_q=queries, seqlen_k=rows.shape[0], topk=topk, seqlen_swa=0, q=q, k=keys, o=o,
                         indices=indices, swa_k=keys, swa_lens=nothing)
    launch()
    torch.cuda.synchronize()
    error = error_of(o, q, rows, indices)
    if not error < MOST[cache]:
        sys.exit(f"wrong by {error:.1e}: {kernel.name}, {batch} x {queries}")
    peer = theirs(cache, q, rows, keys, indices)
    if peer is not None and not error_of(peer(), q, rows, indices) < MOST[cache]:
        sys.exit(f"FlashMLA is called wrongly: {cache}, {batch} x {queries}")
    gathered = min(batch * queries * topk * (BYTES[cache] if cache in BYTES else 2 * head_dim), 8 << 30)
    flat = torch.empty(gathered, device="cuda", dtype=torch.uint8)
    read = lambda: reader.tessera_bench_plain_read(stream(), ctypes.c_void_p(flat.data_ptr()), ctypes.c_longlong(gathered))
    ours, plain, *others = medians_us([launch, read] + ([peer] if peer else []), repeat, flush)
    return kernel.name, ours, plain, others[0] if others else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--heads", default="128,64,16")
    parser.add_argument("--cases", default="128x1,128x2,1x4096", help="sequences x queries")
    parser.add_argument("--caches", default="rows,mla_656,mla_584,mla_384")
    parser.add_argument("--topk", type=int, default=2048)
    parser.add_argument("--rows", type=int, default=524288)
    parser.add_argument("--pins", default="")
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    library, reader = ctypes.CDLL(arguments.library), plain_read_library()
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    clocks = subprocess.run(["nvidia-smi", "--query-gpu=name,clocks.max.sm,clocks.max.mem,driver_version", "--format=csv,noheader"],
                            capture_output=True, text=True, check=False).stdout.strip()
    lines = [f"{clocks}, PyTorch {torch.__version__}, commit {arguments.commit}", "", f"Command: `python3 {' '.join(sys.argv)}`", "",
             "| keys | head_dim | heads | queries | us | TFLOP/s | of the read | FlashMLA us | times FlashMLA | kernel |", "|---|---|---|---|---|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    for cache in arguments.caches.split(","):
        for head_dim in HEAD_DIMS[cache]:
            rows = torch.randn(arguments.rows, head_dim, device="cuda").bfloat16()
            keys = rows if cache == "rows" else written(library, rows, cache)
            for heads in map(int, arguments.heads.split(",")):
                for case in arguments.cases.split(","):
                    batch, queries = map(int, case.split("x"))
                    name, us, plain, peer = cell(library, reader, cache, head_dim, heads, batch, queries, arguments.topk, rows, keys, flush,
                                           arguments.repeat if batch * queries < 1024 else 5, arguments.pins)
                    rate = 2e-6 * heads * batch * queries * arguments.topk * (head_dim + 512) / us
                    lines.append(f"| {cache} | {head_dim} | {heads} | {batch} x {queries} | {us:.1f} | {rate:.0f} | {plain / us:.3f} | {peer:.1f} | {peer / us:.3f} | "
                                 f"{name.split('latent_sm90a_')[-1]} |")
                    print(lines[-1], flush=True)
            del rows, keys
            torch.cuda.empty_cache()
    if arguments.output:
        pathlib.Path(arguments.output).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
