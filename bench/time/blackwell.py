#!/usr/bin/env python3
"""Holds predictions against times that others published of Blackwell GPUs: blackwell.py TESSERA SOURCES [flags]

SOURCES has checkouts of the public repositories that the points name (learn-cuda, ThunderKittens); nothing of them is
kept here. Each kernel is compiled to PTX as it stands, with a main() of this script, and runs by
`tessera emulate --time GPU --no-values -- PROGRAM`. The published numbers are those of the repositories' own tables.

A fixed draw (SHA-256 of a point's name) splits the points in two halves: by the first ("correct") the descriptions may
be corrected, the second ("judge") judges. Points that were added later ("later") are in neither: nothing was corrected
by them."""

import argparse
import hashlib
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time

LEARN, KITTENS = "learn-cuda", "ThunderKittens"


# Boards whose clock under load is not their description's, in MHz: a cap, or a cloud's share of it. Which published
# figure it is was decided by the half that corrects (`--description-clocks` leaves the descriptions as they are).
BOARDS = {"learn-cuda 02e, B200": 1280}  # SemiAnalysisAI/microbench-blackwell@9a068d8: 10.45 TFLOPS a multiprocessor


def board_of(kernel, folder, work):
    """The description that a kernel's ladder is predicted with."""
    clock = BOARDS.get(kernel.ladder)
    if clock is None:
        return str(folder / f"{kernel.gpu}.json")
    description = json.loads((folder / f"{kernel.gpu}.json").read_text())
    description["sm"]["clock_loaded_mhz"]["value"] = clock
    path = work / f"{kernel.gpu}_{clock}.json"
    path.write_text(json.dumps(description, indent=1))
    return str(path)


class Kernel:
    """A published kernel: a source file, how it is called, and its ladder, in which each step was faster or not."""

    def __init__(self, ladder, gpu, repository, source, call, arch, points, note=""):
        self.ladder, self.gpu, self.repository, self.source = ladder, gpu, repository, source
        self.call, self.arch, self.points, self.note = call, arch, points, note


def learn_sm100():
    table = {"v0": [(4096, 409.06)], "v1a": [(4096, 255.73)], "v1b": [(4096, 254.37)], "v2a": [(4096, 699.39)],
             "v2b": [(4096, 721.02)], "v3": [(4096, 914.42)], "v4": [(4096, 1053.61)], "v5": [(4096, 1169.65)],
             "v6": [(4096, 1273.32)], "v7a": [(2048, 930.34), (4096, 1293.38), (8192, 1283.26)],
             "v7b": [(2048, 930.19), (4096, 1316.16), (8192, 1238.74)],
             "v7c": [(2048, 955.32), (4096, 1326.11), (8192, 1246.06)]}
    for step, points in table.items():
        yield Kernel("learn-cuda 02e, B200", "b200", LEARN, f"02e_matmul_sm100/matmul_{step[:2]}.cu",
                     f"matmul_{step}", "100a", [((size, size, size), tflops) for size, tflops in points])


def learn_sm120():
    sizes = (2048, 4096, 8192)
    table = {("v0", "bf16"): (158.24, 164.01, 192.29), ("v1", "bf16"): (164.27, 171.24, 200.29),
             ("v2", "bf16"): (164.41, 173.07, 201.03), ("v0", "int8"): (401.87, 425.00, 448.42),
             ("v1", "int8"): (440.57, 463.30, 485.84), ("v2", "int8"): (439.72, 464.89, 485.83)}
    for (step, kind), values in table.items():
        yield Kernel(f"learn-cuda 02c {kind}, RTX 5090 at 400 W", "rtx5090", LEARN, f"02c_matmul_sm120/matmul_{step}.cu",
                     f"matmul_{step}_{kind}", "120a", [((n, n, n), value) for n, value in zip(sizes, values)])


def learn_attention():
    for step, tflops in {"v1": 142.87, "v2": 181.11, "v3": 189.84, "v4": 194.33, "v5": 197.74}.items():
        yield Kernel("learn-cuda 07, RTX 5090 at 400 W", "rtx5090", LEARN, f"07_attention/attention_{step}.cu",
                     f"attention_{step}", "120a", [((8, 4096, 8192), tflops)])


def learn_sm80():
    """Added later: kernels by cp.async, ldmatrix and mma.sync."""
    table = {"v1": [(4096, 140.66)], "v2": [(4096, 152.91)], "v3": [(4096, 160.47)], "v4": [(4096, 177.42)],
             "v5": [(4096, 177.60)], "v6": [(2048, 155.02), (4096, 177.66), (8192, 165.28)],
             "v6b": [(2048, 152.33), (4096, 177.40), (8192, 178.37)]}
    files = {"v2": "v1", "v3": "v1", "v4": "v1", "v6b": "v6"}
    for step, points in table.items():
        yield Kernel("learn-cuda 02b, RTX 5090 at 400 W", "rtx5090", LEARN,
                     f"02b_matmul_sm80/matmul_{files.get(step, step)}.cu", f"matmul_{step}", "120a",
                     [((size, size, size), tflops) for size, tflops in points])


def kittens():
    table = {1: 6, 2: 6, 3: 11, 4: 26, 5: 55, 6: 293, 7: 731, 8: 1050, 9: 1285}
    for level, tflops in table.items():
        yield Kernel("ThunderKittens educational, B200", "b200", KITTENS,
                     f"kernels/gemm/educational_b200/level_{level:02}.cu", "matmul", "100a",
                     [((4096, 4096, 4096), tflops)])


PREAMBLE = r"""
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstdint>
template <class T> T* tensor(size_t count) { void* p = nullptr; cudaMalloc(&p, count * sizeof(T)); return static_cast<T*>(p); }
"""


def main_of(kernel):
    if kernel.repository == KITTENS:
        kind = "float" if "level_01" in kernel.source else "__nv_bfloat16"
        return f"""
int main(int, char** a) {{ const size_t n = atoi(a[1]);
  matmul(tensor<{kind}>(n * n), tensor<{kind}>(n * n), tensor<{kind}>(n * n), n);
  return cudaDeviceSynchronize(); }}
"""
    if "attention" in kernel.source:
        return f"""
int main(int, char** a) {{ const int heads = atoi(a[1]), q = atoi(a[2]), kv = atoi(a[3]), d = 128;
  {kernel.call}(tensor<__nv_bfloat16>(size_t(heads) * q * d), tensor<__nv_bfloat16>(size_t(heads) * kv * d),
    tensor<__nv_bfloat16>(size_t(heads) * kv * d), tensor<__nv_bfloat16>(size_t(heads) * q * d), heads, q, kv, d);
  return cudaDeviceSynchronize(); }}
"""
    types = ("int8_t", "int") if "int8" in kernel.call else ("__nv_bfloat16", "__nv_bfloat16")
    return f"""
int main(int, char** a) {{ const int m = atoi(a[1]), n = atoi(a[2]), k = atoi(a[3]);
  {kernel.call}(tensor<{types[0]}>(size_t(m) * k), tensor<{types[0]}>(size_t(n) * k), tensor<{types[1]}>(size_t(m) * n), m, n, k);
  return cudaDeviceSynchronize(); }}
"""


def program_of(kernel):
    return f"{pathlib.Path(kernel.source).stem}_{kernel.call}_{kernel.arch}"


def name_of(kernel, shape):
    return f"{kernel.ladder}: {pathlib.Path(kernel.source).stem} {kernel.call} {'x'.join(map(str, shape))}"


def operations(kernel, shape):
    if "attention" in kernel.source:
        heads, q, kv = shape
        return 4.0 * heads * q * kv * 128
    return 2.0 * shape[0] * shape[1] * shape[2]


def compiled(kernel, sources, work, nvcc):
    """The program, built once; None and why where it does not compile."""
    root = sources / kernel.repository
    program = work / program_of(kernel)
    if program.exists():
        return program, ""
    shim = work / "shim/torch"
    shim.mkdir(parents=True, exist_ok=True)
    (shim / "library.h").write_text("#pragma once\n#include <cstdlib>\n#define TORCH_CHECK(ok, ...) do { if (!(ok)) exit(9); } while (0)\n")
    # ThunderKittens' levels end with their own main(): theirs is left out.
    text = PREAMBLE + f'#define run_benchmark run_theirs\n#include "{root / kernel.source}"\n' + main_of(kernel)
    if kernel.repository == KITTENS:
        original = re.sub(r'#include "launch.*"', "", (root / kernel.source).read_text()).replace("int main(", "int main_of_theirs(")
        copy = work / f"{pathlib.Path(kernel.source).stem}_kittens.cuh"
        copy.write_text(original)
        text = PREAMBLE + f'#include "{copy}"\n' + main_of(kernel)
    source = work / f"{program.name}.cu"
    source.write_text(text)
    command = [nvcc, "-std=c++20", "-O3", "--expt-relaxed-constexpr", "--expt-extended-lambda", "-cudart", "shared",
               "-gencode", f"arch=compute_{kernel.arch},code=compute_{kernel.arch}", f"-I{work / 'shim'}",
               f"-I{(root / kernel.source).parent}", f"-I{root / 'include'}", f"-I{root / 'prototype'}",
               "-DKITTENS_BLACKWELL", "-DKITTENS_SM100", "-w", str(source), "-o", str(program), "-lcuda"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (program, "") if done.returncode == 0 else (None, done.stderr.strip()[-300:])


def predicted(tessera, gpu, program, shape, limit):
    command = [tessera, "emulate", "--time", gpu, "--no-values", "--json", "--max-seconds", str(limit), "--", str(program),
               *map(str, shape)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit + 60)
    except subprocess.TimeoutExpired:
        return None, f"no prediction within {limit} s"
    try:
        result = json.loads(done.stdout)
    except ValueError:
        return None, done.stderr.strip()[-300:]
    launches = result.get("predicted", [])
    if result.get("exit_code") != 0 or not launches:
        problems = result.get("problems") or [finding["message"] for finding in result.get("findings", [])]
        return None, f"exit code {result.get('exit_code')}: {'; '.join(problems)[:300]}"
    return launches, ""


def halves(names):
    drawn = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    return {name: "correct" if i < len(drawn) // 2 else "judge" for i, name in enumerate(drawn)}


def points():
    """All points as (row, kernel)."""
    kernels = [*learn_sm100(), *learn_sm120(), *learn_attention(), *kittens()]
    half_of = halves([name_of(kernel, shape) for kernel in kernels for shape, _ in kernel.points])
    for kernel in [*kernels, *learn_sm80()]:
        for shape, published in kernel.points:
            name = name_of(kernel, shape)
            yield {"key": name, "half": half_of.get(name, "later"), "ladder": kernel.ladder, "shape": shape,
                   "published": published, "time_us": operations(kernel, shape) / published * 1e-6}, kernel


def report(rows, title):
    known = [row for row in rows if row["error"] is not None]
    if not known:
        return
    errors = [abs(row["error"]) for row in known]
    print(f"\n{title}: {len(known)} points: median error {100 * statistics.median(errors):.1f} %, "
          f"{100 * sum(e <= 0.2 for e in errors) / len(errors):.0f} % within 20 %, worst {100 * max(errors):.0f} %")
    right = pairs = 0
    for i, a in enumerate(known):
        for b in known[:i]:
            # Nearer than 2 % apart the published numbers themselves have no order.
            if a["ladder"] != b["ladder"] or a["shape"] != b["shape"] or abs(a["published"] / b["published"] - 1) < 0.02:
                continue
            pairs += 1
            right += (a["published"] > b["published"]) == (a["predicted"] > b["predicted"])
    if pairs:
        print(f"  order within ladders: {right} of {pairs} pairs right ({100 * right / pairs:.0f} %)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("sources", type=pathlib.Path)
    parser.add_argument("--half", choices=["correct", "judge", "later", "all"], default="all")
    parser.add_argument("--only", default="", help="points whose name holds this word")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("blackwell-points"), help="programs and their text")
    parser.add_argument("--descriptions", type=pathlib.Path, help="a folder of them, in place of the command's own")
    parser.add_argument("--description-clocks", action="store_true", help="the descriptions' clocks, no board's")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--limit", type=int, default=300, help="seconds for one launch")
    parser.add_argument("--json", type=pathlib.Path, help="write every point here")
    parser.add_argument("--list", action="store_true", help="name the points and their halves, and stop")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    work, sources = args.work.resolve(), args.sources.resolve()
    rows = []
    kernels = [*learn_sm100(), *learn_sm120(), *learn_attention(), *kittens()]
    half_of = halves([name_of(kernel, shape) for kernel in kernels for shape, _ in kernel.points])
    for kernel in [*kernels, *learn_sm80()]:
        for shape, published in kernel.points:
            name = name_of(kernel, shape)
            half = half_of.get(name, "later")
            if args.half not in (half, "all") or args.only not in name:
                continue
            if args.list:
                print(half, name, published)
                continue
            begin = time.time()
            program, why = compiled(kernel, sources, work, args.nvcc)
            launches = None
            folder = args.descriptions or pathlib.Path(__file__).parents[2] / "emulator/time/gpus"
            gpu = str(folder.resolve() / f"{kernel.gpu}.json") if args.description_clocks else board_of(kernel, folder.resolve(), work)
            if program is not None:
                launches, why = predicted(args.tessera, gpu, program, shape, args.limit)
            row = {"name": name, "half": half, "ladder": kernel.ladder, "shape": shape, "published": published,
                   "predicted": None, "error": None, "why": why}
            if launches:
                us = sum(launch["time_us"] for launch in launches)
                row["predicted"] = operations(kernel, shape) / us * 1e-6
                row["error"] = row["predicted"] / published - 1
                row["limit"] = "; ".join(k["limit"] for launch in launches for k in launch["kernels"])
            rows.append(row)
            seconds = time.time() - begin
            if row["error"] is None:
                print(f"{half:8} {published:8.1f} published        - predicted          {name}  [{why}] {seconds:.0f} s")
            else:
                print(f"{half:8} {published:8.1f} published {row['predicted']:8.1f} predicted {100 * row['error']:+7.1f} % "
                      f"{name}  [{row['limit']}] {seconds:.0f} s")
            sys.stdout.flush()
    for half in ("correct", "judge", "later"):
        report([row for row in rows if row["half"] == half], half)
    report([row for row in rows if row["half"] != "later"], "both halves")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
