#!/usr/bin/env python3
"""An indexer's scores beside DeepGEMM's fp8_mqa_logits and paged form, where it can be imported, and beside limits.

Random normal data, e4m3 queries and keys; with --format mxfp4 random codes of e2m1 and scales about 1, and no peer (its kernels for them want Blackwell). Ragged: query i of m sees keys 0 to n - m + i. Paged: sequences of one length, random pages of 64
keys. A graph of at least 20 launches walks over copies of operands and scores that together are more than four times the L2; graphs take
turns; microseconds are the median graph over its launches. `relu` is head products of a cycle and multiprocessor at the greatest SM clock:
32 are what 8-bit tensor cores do with head_dim 128. The paged form stands beside a plain read of the cache's bytes. Some rows are compared
with fp32 before they are timed. Prints a Markdown table.

  python3 bench/peers/indexer.py --library build/bench/peers/libtessera_peer_shim.so [--reader libplain_read.so] [--form ragged,paged]
      [--format e4m3] [--pins "tile_q=2,consumers=3;"] [--outside unwritten] [--score-dtype f32] [--repeat 5] [--output FILE]
"""
import argparse
import ctypes
import pathlib
import subprocess
import sys

import torch

from fmha_decode import ROTATED_BYTES, graph_of, times_us
from named_launch import Kernel

E4M3 = torch.float8_e4m3fn
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
RAGGED = [(m, n, h) for m, n in ((2048, 8192), (2048, 65536), (8192, 8192), (8192, 65536)) for h in (64, 32)]
PAGED = [(256, n, next_n, h) for n in (4096, 8192, 65536) for next_n in (1, 2) for h in (64, 32)] + [(1, 131072, 1, 64), (64, 32768, 1, 64)]


def normal(*shape):
    out = torch.empty(*shape, device="cuda", dtype=E4M3)
    rows = out.view(shape[0], -1)
    for i in range(0, shape[0], 4096):
        rows[i:i + 4096] = torch.randn(rows[i:i + 4096].shape, device="cuda", dtype=torch.bfloat16).to(E4M3)
    return out


def codes_of(*shape):
    return torch.randint(0, 256, shape, device="cuda", dtype=torch.uint8)


def powers_of(*shape):
    return torch.randint(124, 131, (*shape, 4), device="cuda", dtype=torch.uint8)


def widened(codes, scales):
    """e2m1 with ue8m0 for 32, in float64."""
    table = torch.tensor(E2M1 + [-x for x in E2M1], device="cuda", dtype=torch.float64)
    values = torch.stack([table[(codes & 15).long()], table[(codes >> 4).long()]], -1).flatten(-2)
    powers = torch.exp2(scales[..., :values.shape[-1] // 32].double() - 127)
    return values * powers.repeat_interleave(32, -1)


def expected(q, k, scales, weights):
    return torch.einsum("hn,h->n", torch.einsum("hd,nd->hn", q.double(), k.double()).relu(), weights.double()) * scales.double()


def require(found, right, what):
    error = ((found.double() - right).norm() / right.norm()).item()
    if not error < 6e-3:
        sys.exit(f"wrong by {error:.1e}: {what}")
    return error


def kernel_of(library, selectors):
    """None for pins that go with another shape."""
    try:
        return Kernel(library, "indexer", selectors)
    except RuntimeError as error:
        print(error, flush=True)


def copies_of(bytes_):
    return min(max(1, -(-ROTATED_BYTES // bytes_)), 32)


def ragged_row(one, i, end):
    if "q_scales" not in one:
        return expected(one["q"][i], one["k"][:end], one["k_scales"][:end], one["weights"][i])
    return expected(widened(one["q"][i], one["q_scales"][i]), widened(one["k"][:end], one["k_scales"][:end]), torch.ones(int(end), device="cuda"), one["weights"][i])


def ragged(library, deep_gemm, m, n, heads, head_dim, selectors, arguments):
    dtype = torch.float32 if arguments.score_dtype == "f32" else torch.bfloat16
    is_fp4 = arguments.format == "mxfp4"
    row = head_dim // 2 if is_fp4 else head_dim
    copies = copies_of(m * heads * row + n * row + m * n * dtype.itemsize)
    ks = torch.zeros(m, device="cuda", dtype=torch.int32)
    ke = torch.arange(n - m + 1, n + 1, device="cuda", dtype=torch.int32)
    sets = [dict(weights=torch.randn(m, heads, device="cuda"), ks=ks, ke=ke, scores=torch.empty(m, n, device="cuda", dtype=dtype)) for _ in range(copies)]
    for one in sets:
        if is_fp4:
            one |= dict(q=codes_of(m, heads, row), q_scales=powers_of(m, heads), k=codes_of(n, row), k_scales=powers_of(n))
        else:
            one |= dict(q=normal(m, heads, head_dim), k=normal(n, head_dim), k_scales=torch.rand(n, device="cuda") + 0.5)
    results = []
    for chosen in selectors:
        kernel = kernel_of(library, f"heads={heads},head_dim={head_dim},format={arguments.format},outside={arguments.outside},"
                                    f"score_dtype={arguments.score_dtype},m={m},n={n}{chosen}")
        if kernel is None:
            continue
        launches = [kernel.bind(m=m, n=n, **one) for one in sets]
        launches[0]()
        torch.cuda.synchronize()
        one = sets[0]
        error = max(require(one["scores"][i, :ke[i]], ragged_row(one, i, ke[i]), kernel.name) for i in (0, m // 2 + 1, m - 1))
        results.append((kernel.name, error, launches))
    if deep_gemm is not None:
        results.append(("DeepGEMM", float("nan"), [
            lambda one=one: deep_gemm.fp8_fp4_mqa_logits((one["q"], None), (one["k"], one["k_scales"]), one["weights"], ks, ke,
                                                         clean_logits=arguments.outside == "minus_inf", max_seqlen_k=0, logits_dtype=dtype) for one in sets]))
    pairs = int((ke - ks).long().sum())
    return results, pairs, m * heads * row + n * (row + 4) + pairs * dtype.itemsize, None


def paged(library, deep_gemm, batch, n, next_n, heads, head_dim, selectors, arguments):
    dtype = torch.float32 if arguments.score_dtype == "f32" else torch.bfloat16
    is_fp4 = arguments.format == "mxfp4"
    row = head_dim // 2 if is_fp4 else head_dim
    each, page_bytes = -(-n // 64), 64 * (row + 4)
    pages = batch * each
    copies = copies_of(pages * page_bytes)
    lengths = torch.full((batch,), n, device="cuda", dtype=torch.int32)
    sets = []
    for _ in range(copies):
        cache = torch.empty(pages, page_bytes, device="cuda", dtype=torch.uint8)
        cache[:, :64 * row] = codes_of(pages, 64 * row) if is_fp4 else normal(pages, 64 * row).view(torch.uint8)
        cache[:, 64 * row:] = powers_of(pages, 64).view(pages, -1) if is_fp4 else (torch.rand(pages, 64, device="cuda") + 0.5).view(torch.uint8)
        more = dict(q_scales=powers_of(batch, next_n, heads)) if is_fp4 else {}
        sets.append(more | dict(q=codes_of(batch, next_n, heads, row) if is_fp4 else normal(batch, next_n, heads, head_dim), weights=torch.randn(batch, next_n, heads, device="cuda"), cache=cache,
                         block_table=torch.randperm(pages, device="cuda").to(torch.int32).view(batch, each), context_lens=lengths,
                         scores=torch.empty(batch * next_n, n, device="cuda", dtype=dtype)))
    results = []
    for chosen in selectors:
        kernel = kernel_of(library, f"kv_layout=paged,next_n={next_n},heads={heads},head_dim={head_dim},format={arguments.format},"
                                    f"outside={arguments.outside},score_dtype={arguments.score_dtype},batch={batch}{chosen}")
        if kernel is None:
            continue
        launches = [kernel.bind(batch=batch, pages=pages, max_pages=each, columns=n, **one) for one in sets]
        launches[0]()
        torch.cuda.synchronize()
        one, b = sets[0], batch - 1
        rows = one["cache"][one["block_table"][b].long()]
        k, scales, q = rows[:, :64 * row].contiguous(), rows[:, 64 * row:].contiguous(), one["q"][b, -1]
        if is_fp4:
            k, q, scales = widened(k.view(-1, row), scales.view(-1, 4)), widened(q, one["q_scales"][b, -1]), torch.ones(each * 64, device="cuda")
        else:
            k, scales = k.view(E4M3).view(-1, row), scales.view(torch.float32).view(-1)
        error = require(one["scores"][b * next_n + next_n - 1], expected(q, k[:n], scales[:n], one["weights"][b, -1]), kernel.name)
        results.append((kernel.name, error, launches))
    if deep_gemm is not None:
        each_len = lengths[:, None] - torch.arange(next_n - 1, -1, -1, device="cuda", dtype=torch.int32)[None]
        schedule = deep_gemm.get_paged_mqa_logits_metadata(each_len, 64, deep_gemm.get_num_sms())
        results.append(("DeepGEMM", float("nan"), [
            lambda one=one: deep_gemm.fp8_fp4_paged_mqa_logits((one["q"], None), one["cache"].view(pages, 64, 1, head_dim + 4), one["weights"].view(-1, heads), each_len,
                                                               one["block_table"], schedule, n, clean_logits=False, logits_dtype=dtype) for one in sets]))
    pairs = batch * (next_n * n - next_n * (next_n - 1) // 2)
    return results, pairs, batch * n * (row + 4) + batch * next_n * n * dtype.itemsize, [(one["cache"], pages * page_bytes) for one in sets]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--reader", help="bench/peers/plain_read.cu as a shared library")
    parser.add_argument("--form", default="ragged,paged")
    parser.add_argument("--ragged", help="MxNxHEADS, several separated by commas")
    parser.add_argument("--paged", help="BATCHxKEYSxNEXT_NxHEADS, several separated by commas")
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--format", default="e4m3", choices=("e4m3", "mxfp4"))
    parser.add_argument("--score-dtype", default="f32")
    parser.add_argument("--outside", default="unwritten")
    parser.add_argument("--pins", default="", help="several sets, separated by ;")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    library = ctypes.CDLL(arguments.library)
    reader = ctypes.CDLL(arguments.reader) if arguments.reader else None
    try:
        import deep_gemm
    except ImportError:
        deep_gemm = None
    if arguments.format == "mxfp4":
        deep_gemm = None
    clocks = subprocess.run(["nvidia-smi", "--query-gpu=name,clocks.max.sm,driver_version", "--format=csv,noheader"], capture_output=True, text=True, check=False).stdout.strip()
    mhz = float(clocks.split(",")[1].split()[0])
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    lines = [f"{clocks}, PyTorch {torch.__version__}, commit {arguments.commit}" + ("" if deep_gemm else ", no DeepGEMM"), "", f"Command: `python3 {' '.join(sys.argv)}`", "",
             "| form | us | TFLOP/s | relu | TB/s | of a plain read | error | kernel |", "|---|---|---|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    shapes = lambda text, default: [tuple(map(int, one.split("x"))) for one in text.split(",")] if text else default
    cases = [("ragged", one) for one in shapes(arguments.ragged, RAGGED)] * ("ragged" in arguments.form)
    cases += [("paged", one) for one in shapes(arguments.paged, PAGED)] * ("paged" in arguments.form)
    selectors = ["," + one if one else "" for one in arguments.pins.split(";")]
    out = torch.empty(4, device="cuda", dtype=torch.uint8)
    for form, shape in cases:
        heads = shape[-1]
        of_form = {"ragged": ragged, "paged": paged}[form]
        results, pairs, bytes_, reads = of_form(library, deep_gemm, *shape, arguments.head_dim, selectors, arguments)
        graphs = [graph_of(launches) for _, _, launches in results]
        if reader is not None and reads is not None:
            stream = lambda: ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            read = lambda data, count: reader.tessera_bench_plain_read(stream(), ctypes.c_void_p(data.data_ptr()), ctypes.c_longlong(count), ctypes.c_void_p(out.data_ptr()))
            graphs.append(graph_of([lambda one=one: read(*one) for one in reads]))
        times = times_us(graphs, arguments.repeat)
        for (name, error, _), us in zip(results, times):
            share = f"{times[-1] / us:.3f}" if len(times) > len(results) else ""
            relu = pairs * heads / (us * mhz * sms)
            lines.append(f"| {form} {'x'.join(map(str, shape))} | {us:.1f} | {2e-6 * pairs * heads * arguments.head_dim / us:.0f} | {relu:.1f} | {bytes_ / us * 1e-6:.2f} | {share} | "
                         f"{error:.1e} | {name} |")
            print(lines[-1], flush=True)
        del results, graphs, reads
        torch.cuda.empty_cache()
    if arguments.output:
        pathlib.Path(arguments.output).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
