#!/usr/bin/env python3
"""An indexer's scores beside DeepGEMM's fp8_mqa_logits and paged form, where it can be imported, and beside limits.

Random normal data, e4m3 queries and keys; with --format mxfp4 random codes of e2m1 and scales about 1, and no peer (its kernels for them want Blackwell). Ragged: query i of m sees keys 0 to n - m + i, with --ranges parallel those of one of several
GPUs that share a context, two pieces of m / 2 queries. Paged: random pages of 64 keys; sequences of one length, with --lengths drawn of 0.7 to 1.3 times KEYS, and all queries but a sequence's last of lengths of their own. --peer-tests: the shapes, ranges and
lengths that DeepGEMM's tests time on this GPU (tests/test_attention.py), all of them. A graph of at least 20 launches (5 where one takes milliseconds) walks over copies of operands and scores that together are more than four times the L2; graphs take
turns; microseconds are the median graph over its launches. Launches of that kind reach the board's power limit where both the tensor cores and the memory are busy, and clocks fall: with --spaced 8 GB are written before each launch, as DeepGEMM's tests
do ("chill time"), kernels take turns launch by launch, and microseconds are the median launch. `relu` is head products of a cycle and multiprocessor at the greatest SM clock:
32 are what 8-bit tensor cores do with head_dim 128. The paged form stands beside a plain read of the cache's bytes. Some rows are compared
with fp32 before they are timed. Prints a Markdown table.

  python3 bench/peers/indexer.py --library build/bench/peers/libtessera_peer_shim.so [--reader libplain_read.so] [--form ragged,paged]
      [--lengths drawn] [--ranges parallel] [--peer-tests] [--spaced] [--format e4m3] [--pins "tile_q=2,consumers=3;"] [--outside unwritten] [--score-dtype f32] [--repeat 5] [--output FILE]
"""
import argparse
import ctypes
import itertools
import pathlib
import statistics
import subprocess
import sys
import time

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
    if right.numel() == 0:
        return 0.0
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


def ends_of(m, n, arguments):
    """Of each query the key behind its last. DeepGEMM's tests leave out the query's own key."""
    if arguments.ranges != "parallel":
        return torch.arange(n - m, n, device="cuda", dtype=torch.int32) + (0 if arguments.peer_tests else 1)
    half, ranks = m // 2, n // m
    own = ranks // 3
    return torch.cat([torch.arange(half, device="cuda", dtype=torch.int32) + piece * half for piece in (own, 2 * ranks - 1 - own)])


def ragged(library, deep_gemm, m, n, heads, head_dim, selectors, arguments):
    dtype = torch.float32 if arguments.score_dtype == "f32" else torch.bfloat16
    is_fp4 = arguments.format == "mxfp4"
    row = head_dim // 2 if is_fp4 else head_dim
    ks = torch.zeros(m, device="cuda", dtype=torch.int32)
    ke = ends_of(m, n, arguments)
    is_compressed = arguments.score_columns == "compressed"
    columns = -(-int(ke.max()) // 4) * 4 if is_compressed else n
    copies = copies_of(m * heads * row + n * row + m * columns * dtype.itemsize)
    sets = [dict(weights=torch.randn(m, heads, device="cuda"), ks=ks, ke=ke, scores=torch.empty(m, columns, device="cuda", dtype=dtype)) for _ in range(copies)]
    for one in sets:
        if is_fp4:
            one |= dict(q=codes_of(m, heads, row), q_scales=powers_of(m, heads), k=codes_of(n, row), k_scales=powers_of(n))
        else:
            one |= dict(q=normal(m, heads, head_dim), k=normal(n, head_dim), k_scales=torch.rand(n, device="cuda") + 0.5)
    results = []
    for chosen in selectors:
        kernel = kernel_of(library, f"heads={heads},head_dim={head_dim},format={arguments.format},outside={arguments.outside},"
                                    f"score_dtype={arguments.score_dtype},score_columns={arguments.score_columns},m={m},n={n}{chosen}")
        if kernel is None:
            continue
        launches = [kernel.bind(m=m, n=n, columns=columns, **one) for one in sets]
        launches[0]()
        torch.cuda.synchronize()
        one = sets[0]
        error = max(require(one["scores"][i, :ke[i]], ragged_row(one, i, ke[i]), kernel.name) for i in (0, m // 2 + 1, m - 1))
        results.append((kernel.name, error, launches))
    if deep_gemm is not None:
        results.append(("DeepGEMM", float("nan"), [
            lambda one=one: deep_gemm.fp8_fp4_mqa_logits((one["q"], None), (one["k"], one["k_scales"]), one["weights"], ks, ke,
                                                         clean_logits=arguments.outside == "minus_inf", max_seqlen_k=columns if is_compressed else 0, logits_dtype=dtype) for one in sets]))
    pairs = int((ke - ks).long().sum())
    return results, pairs, m * heads * row + n * (row + 4) + pairs * dtype.itemsize, None


def paged(library, deep_gemm, batch, n, next_n, heads, head_dim, selectors, arguments):
    dtype = torch.float32 if arguments.score_dtype == "f32" else torch.bfloat16
    is_fp4 = arguments.format == "mxfp4"
    row = head_dim // 2 if is_fp4 else head_dim
    page_bytes, is_drawn = 64 * (row + 4), arguments.lengths == "drawn"
    lengths = torch.full((batch,), n, device="cuda", dtype=torch.int32)
    each_len = lengths[:, None] - torch.arange(next_n - 1, -1, -1, device="cuda", dtype=torch.int32)[None]
    if is_drawn:
        lengths = torch.randint(int(0.7 * n), int(1.3 * n), (batch,), device="cuda", dtype=torch.int32)
        each_len = ((lengths[:, None] + 1) * torch.rand(batch, next_n, device="cuda")).int()
        each_len[:, -1] = lengths
    used = (lengths + 63) // 64
    each, pages = int(used.max()), int(used.sum())
    columns = each * 64 if is_drawn else n
    copies = copies_of(pages * page_bytes)
    places = torch.arange(each, device="cuda")[None] < used[:, None]
    sets = []
    for _ in range(copies):
        cache = torch.empty(pages, page_bytes, device="cuda", dtype=torch.uint8)
        cache[:, :64 * row] = codes_of(pages, 64 * row) if is_fp4 else normal(pages, 64 * row).view(torch.uint8)
        cache[:, 64 * row:] = powers_of(pages, 64).view(pages, -1) if is_fp4 else (torch.rand(pages, 64, device="cuda") + 0.5).view(torch.uint8)
        more = dict(q_scales=powers_of(batch, next_n, heads)) if is_fp4 else {}
        sets.append(more | dict(q=codes_of(batch, next_n, heads, row) if is_fp4 else normal(batch, next_n, heads, head_dim), weights=torch.randn(batch, next_n, heads, device="cuda"), cache=cache,
                         block_table=torch.zeros(batch, each, device="cuda", dtype=torch.int32).masked_scatter_(places, torch.randperm(pages, device="cuda").to(torch.int32)),
                         context_lens=each_len if is_drawn else lengths, scores=torch.empty(batch * next_n, columns, device="cuda", dtype=dtype)))
    results = []
    for chosen in selectors:
        kernel = kernel_of(library, f"kv_layout=paged,next_n={next_n},heads={heads},head_dim={head_dim},format={arguments.format},"
                                    f"context_lengths={'query' if is_drawn else 'sequence'},outside={arguments.outside},score_dtype={arguments.score_dtype},batch={batch}{chosen}")
        if kernel is None:
            continue
        launches = [kernel.bind(batch=batch, pages=pages, max_pages=each, columns=columns, **one) for one in sets]
        launches[0]()
        torch.cuda.synchronize()
        one, b = sets[0], batch - 1
        last = int(lengths[b])
        rows = one["cache"][one["block_table"][b, :int(used[b])].long()]
        k, scales, q = rows[:, :64 * row].contiguous(), rows[:, 64 * row:].contiguous(), one["q"][b, -1]
        if is_fp4:
            k, q, scales = widened(k.view(-1, row), scales.view(-1, 4)), widened(q, one["q_scales"][b, -1]), torch.ones(int(used[b]) * 64, device="cuda")
        else:
            k, scales = k.view(E4M3).view(-1, row), scales.view(torch.float32).view(-1)
        error = require(one["scores"][b * next_n + next_n - 1, :last], expected(q, k[:last], scales[:last], one["weights"][b, -1]), kernel.name)
        results.append((kernel.name, error, launches))
    if deep_gemm is not None:
        schedule = deep_gemm.get_paged_mqa_logits_metadata(each_len, 64, deep_gemm.get_num_sms())
        results.append(("DeepGEMM", float("nan"), [
            lambda one=one: deep_gemm.fp8_fp4_paged_mqa_logits((one["q"], None), one["cache"].view(pages, 64, 1, head_dim + 4), one["weights"].view(-1, heads), each_len,
                                                               one["block_table"], schedule, columns, clean_logits=False, logits_dtype=dtype) for one in sets]))
    keys = int(lengths.long().sum())
    pairs = next_n * keys - (0 if is_drawn else batch * next_n * (next_n - 1) // 2)
    return results, pairs, keys * (row + 4) + next_n * keys * dtype.itemsize, [(one["cache"], pages * page_bytes) for one in sets]


def spaced_us(launches, repeat):
    """Of each list of launches the median, 8 GB written before each; who comes first changes."""
    memory = torch.empty(8_000_000_000, device="cuda", dtype=torch.uint8)
    taken = [[] for _ in launches]
    for turn in range(repeat + 1):
        for i in [(turn + i) % len(launches) for i in range(len(launches))]:
            memory.zero_()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            launches[i][turn % len(launches[i])]()
            end.record()
            taken[i].append((start, end))
    torch.cuda.synchronize()
    return [1000 * statistics.median(start.elapsed_time(end) for start, end in of[1:]) for of in taken]


def peer_tests(form):
    """What tests/test_attention.py of DeepGEMM draws its cases from on sm_90: shape, and what differs from the defaults."""
    if "ragged" in form:
        for dtype, columns, m, n, heads, dim, ranges in itertools.product(("bf16", "f32"), ("keys", "compressed"), (2048, 8192), (8192, 65536), (32, 64), (32, 64, 128), ("parallel", "tail")):
            yield "ragged", (m, n, heads), dict(head_dim=dim, score_dtype=dtype, score_columns=columns, outside="minus_inf" if columns == "keys" else "unwritten", ranges=ranges)
    if "paged" in form:
        for dtype, (batch, n), next_n, heads in itertools.product(("bf16", "f32"), ((256, 8192), (256, 65536), (4096, 8192)), (1, 2), (32, 64)):
            yield "paged", (batch, n, next_n, heads), dict(head_dim=128, score_dtype=dtype, outside="unwritten", score_columns="keys", lengths="drawn")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--reader", help="bench/peers/plain_read.cu as a shared library")
    parser.add_argument("--form", default="ragged,paged")
    parser.add_argument("--ragged", help="MxNxHEADS, several separated by commas")
    parser.add_argument("--paged", help="BATCHxKEYSxNEXT_NxHEADS, several separated by commas")
    parser.add_argument("--lengths", default="equal", choices=("equal", "drawn"))
    parser.add_argument("--ranges", default="tail", choices=("tail", "parallel"))
    parser.add_argument("--score-columns", default="keys", choices=("keys", "compressed"))
    parser.add_argument("--peer-tests", action="store_true")
    parser.add_argument("--spaced", action="store_true")
    parser.add_argument("--seconds", type=float, default=1e9, help="no case begins later than so long after the start")
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
    cases = [("ragged", one, {}) for one in shapes(arguments.ragged, RAGGED)] * ("ragged" in arguments.form)
    cases += [("paged", one, {}) for one in shapes(arguments.paged, PAGED)] * ("paged" in arguments.form)
    if arguments.peer_tests:
        cases = list(peer_tests(arguments.form))
    selectors = ["," + one if one else "" for one in arguments.pins.split(";")]
    begin, worst = time.time(), {}
    for form, shape, of_case in cases:
        if time.time() - begin > arguments.seconds:
            lines.append(f"not reached: {form} {'x'.join(map(str, shape))} {of_case}")
            print(lines[-1], flush=True)
            continue
        vars(arguments).update(of_case)
        torch.manual_seed(7)
        heads = shape[-1]
        of_form = {"ragged": ragged, "paged": paged}[form]
        results, pairs, bytes_, reads = of_form(library, deep_gemm, *shape, arguments.head_dim, selectors, arguments)
        readers = []
        if reader is not None and reads is not None:
            stream = lambda: ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            read = lambda data, count: reader.tessera_bench_plain_read(stream(), ctypes.c_void_p(data.data_ptr()), ctypes.c_longlong(count))
            readers = [[lambda one=one: read(*one) for one in reads]]
        timed = [launches for _, _, launches in results] + readers
        if arguments.spaced:
            times = spaced_us(timed, arguments.repeat)
        else:
            graphs = [graph_of(launches, 5 if pairs * heads > 1 << 33 else 20) for launches in timed]
            times = times_us(graphs, arguments.repeat)
            del graphs
        for (name, error, _), us in zip(results, times):
            share = f"{times[-1] / us:.3f}" if len(times) > len(results) else ""
            relu = pairs * heads / (us * mhz * sms)
            words = " ".join([form, "x".join(map(str, shape)), *map(str, of_case.values())])
            lines.append(f"| {words} | {us:.1f} | {2e-6 * pairs * heads * arguments.head_dim / us:.0f} | {relu:.1f} | {bytes_ / us * 1e-6:.2f} | {share} | "
                         f"{error:.1e} | {name} |")
            print(lines[-1], flush=True)
        if deep_gemm is not None:
            peer = next(i for i, one in enumerate(results) if one[0] == "DeepGEMM")
            ratio = times[peer] / times[0]
            worst.setdefault(form, []).append((ratio, words))
            print(f"{words}: {ratio:.3f} times the peer's speed", flush=True)
        del results, reads, timed, readers
        torch.cuda.empty_cache()
    for form, ratios in worst.items():
        ratios.sort()
        lines.append(f"{form}: {len(ratios)} cases, {sum(one >= 1 for one, _ in ratios)} no slower than the peer, the least {ratios[0][0]:.3f} ({ratios[0][1]}), the middle one {ratios[len(ratios) // 2][0]:.3f}")
        print(lines[-1])
    if arguments.output:
        pathlib.Path(arguments.output).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
