#!/usr/bin/env python3
"""What the B200's description predicts of the planner's own choices, beside published figures or a unit's limit.

  cells.py build/cli/tessera [--only PART] [--jobs N]       # prints a table in Markdown

Cells: products of bf16, e4m3, NVFP4 and MXFP8 at 4,096^3, 8,192^3 and the 28 shapes of four layers; attention of head_dim 64, 128
and 256, 16 heads, 16,384 queries and keys, full and causal. A published figure is the best that was found for the same problem
(docs/time.md says by whom). Where there is none, the limit is that of a unit alone at the predicted clock: the tensor cores of all
multiprocessors, or the memory; beside either the launch that a prediction has in it. Busy: the units that are so for two fifths of
the time and more, at most three. Ends: where each multiprocessor has one tile at most, what the same kernel takes with one step of K
to a CTA: launch, first bytes and a tile's way out, which no unit's rate shortens. --only: cells whose words contain PART.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

from concurrent.futures import ThreadPoolExecutor

LAYERS = [(7168, 16384), (4096, 7168), (7168, 2048), (24576, 1536)]
ROWS = [64, 128, 256, 512, 1024, 2048, 4096]
# bits of a and b with their scales, FLOP a cycle of one multiprocessor
TYPES = {"bf16": (16, 8192), "e4m3": (8, 16384), "nvfp4": (4.5, 32768), "mxfp8_e4m3": (8.25, 16384), "mxfp4": (4.25, 32768)}
PUBLISHED = {  # TFLOPS
    ("bf16", 4096, 4096, 4096): 1773,
    ("bf16", 8192, 8192, 8192): 1610,
    ("nvfp4", 8192, 8192, 8192): 6349,
    ("mxfp8_e4m3", 8192, 8192, 8192): 2378,
    ("mxfp4", 8192, 8192, 8192): 5702,
    ("mxfp4", 128, 24576, 1536): 980,
    ("mxfp4", 512, 7168, 2048): 1439,
    ("mxfp4", 1024, 7168, 2048): 2056,
    ("mxfp4", 4096, 4096, 7168): 5332,
    (64, "none"): 1215,
    (64, "causal"): 1164,
    (128, "none"): 1749,
    (128, "causal"): 1613,
}
ARGUMENTS = ["--arch", "sm_100a", "--device", "emulator", "--time", "b200", "--no-values"]


def predict(tessera, words):
    run = subprocess.run([tessera, "run", *words, *ARGUMENTS, "--json"], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{' '.join(words)}: {run.stderr.strip()}")
    return json.loads(run.stdout)["predicted"]["kernels"][0]


def number(gpu, *path):
    for name in path:
        gpu = gpu[name]
    return gpu["value"]


def cells():
    for dtype in TYPES:
        if dtype == "mxfp4":  # what has a published figure
            yield from ((dtype, key[1:]) for key in PUBLISHED if key[0] == dtype)
            continue
        for size in (4096, 8192):
            yield dtype, (size, size, size)
        for n, k in LAYERS:
            for m in ROWS:
                yield dtype, (m, n, k)
    for head_dim in (64, 128, 256):
        for mask in ("none", "causal"):
            yield head_dim, mask


def name_of(what, sizes):
    if isinstance(what, str):
        return f"{what}, {' x '.join(map(str, sizes))}"
    return f"attention, head_dim {what}, {'full' if sizes == 'none' else sizes}"


def ends(tessera, what, m, n, kernel):
    """Microseconds of the same kernel where K is a step of 128 bytes for each part; None where a CTA has several tiles."""
    found = re.search(r"_(\d+)x(\d+)_s(\d+)_a(\d)(?:_c(\d)x(\d))?(?:_k(\d))?$", kernel["entry"])
    tile_m, tile_n, stages, accumulators, cluster_m, cluster_n, split = (number or "1" for number in found.groups())
    if -(-m // int(tile_m)) * -(-n // int(tile_n)) * int(split) > kernel["clusters"] * int(cluster_m) * int(cluster_n) * int(split):
        return None
    step = 1024 // int(TYPES[what][0])  # scales left out
    pins = {"tile-m": tile_m, "tile-n": tile_n, "stages": stages, "accumulators": accumulators, "cluster-m": cluster_m,
            "cluster-n": cluster_n, "split-k": split, "m": m, "n": n, "k": step * int(split)}
    return predict(tessera, ["gemm", "--dtype", what, *(word for name, value in pins.items() for word in (f"--{name}", str(value)))])["time_us"]


def row(tessera, gpu, what, sizes):
    launch, memory = number(gpu, "launch", "empty_us"), number(gpu, "hbm", "terabytes_per_second") * 1e12
    if isinstance(what, str):
        m, n, k = sizes
        words = ["gemm", "--dtype", what, "--m", str(m), "--n", str(n), "--k", str(k)]
        flop, key = 2 * m * n * k, (what, m, n, k)
    else:
        words = ["fmha", "--head-dim", str(what), "--mask", sizes, "--batch", "1", "--heads-q", "16", "--heads-kv", "16",
                 "--seqlen-q", "16384", "--seqlen-k", "16384"]
        flop, key = 4 * 16384**2 * what * 16 * (1 if sizes == "none" else 0.5), (what, sizes)
    kernel = predict(tessera, words)
    us = kernel["time_us"]
    reached = flop / us / 1e6
    if key in PUBLISHED:
        against, part = f"{PUBLISHED[key]:,} published", reached / PUBLISHED[key]
    else:
        rate = TYPES[what][1] if isinstance(what, str) else 8192
        tensor = flop / (rate * number(gpu, "sm", "count") * kernel["clock_mhz"] * 1e6) * 1e6
        read = 0.0
        if isinstance(what, str):
            read = ((m + n) * k * TYPES[what][0] / 8 + m * n * 2) / memory * 1e6
        best = launch + max(tensor, read)
        against, part = f"{best:.1f} us: {'tensor cores' if tensor >= read else 'memory'}", best / us
    out = ends(tessera, what, m, n, kernel) if isinstance(what, str) else None
    busy = sorted(((part_of, unit) for unit, part_of in kernel["units"].items() if part_of >= 0.395), reverse=True)[:3]
    return (f"| {name_of(what, sizes)} | {kernel['entry'].split('_to_')[-1]} | {us:.1f} | {reached:,.0f} | {against} | {100 * part:.0f} % | "
            f"{f'{out:.1f}' if out else '-'} | {', '.join(f'{unit} {100 * part_of:.0f} %' for part_of, unit in busy) or kernel['limit']} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    gpu = json.loads((pathlib.Path(__file__).parents[2] / "emulator/time/gpus/b200.json").read_text())
    print("| problem | kernel | us | TFLOPS | against | part | ends us | busy |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    asked = [cell for cell in cells() if options.only in name_of(*cell)]
    with ThreadPoolExecutor(options.jobs) as pool:
        for line in pool.map(lambda cell: row(options.tessera, gpu, *cell), asked):
            print(line, flush=True)


if __name__ == "__main__":
    main()
