#!/usr/bin/env python3
"""Matrix products beside cuBLAS (through PyTorch) on one GPU, in one process, on the same tensors.

Random normal data; before every timed launch 256 MB are written to empty the L2; CUDA events; the two kernels alternate;
medians (in_turns.py). Prints Markdown tables of TFLOP/s and ratios (their time over ours), then geometric means.

  python3 bench/peers/gemm_vs_cublas.py --library build/bench/peers/libtessera_peer_shim.so
          [--sets large,fp8,small,layers,shapes] [--seed 1] [--count 64] [--types bf16] [--shapes 384x6144x4096,...] [--repeat 20]
          [--over-c] [--output FILE] [--best [--nearest 24] [--times FILE] | --candidates FILE]

--sets layers: --count products of LAYERS with 1 to 2,048 rows, drawn with --seed, the first of the first of --types, and so on in turn;
shapes: those of --shapes, each of all --types. Types: bf16, f16, e4m3, e4m3-promoted.
--best: besides the planner's choice every candidate of it is timed, all a few times, then the fastest in turns; --nearest: only as many as
the model has first, the choice among them. --times appends a line for each candidate: types, sizes, pins, microseconds of it and of cuBLAS.

--over-c: d = a b^T + d, cuBLAS by torch.addmm on its own output; 16-bit types.

--candidates: instead, times the kernels that FILE's lines pin ("tile_m=128,tile_n=256,cluster_m=2,...") on every shape, a
line for each: set, sizes, pins, microseconds of ours and theirs.
"""
import argparse
import concurrent.futures
import ctypes
import math
import os
import random
import subprocess
import sys

import torch

from in_turns import medians_us

LARGE = [(4096, 4096, 4096), (8192, 8192, 8192)]
SMALL = [(m, n, k) for n, k in ((7168, 16384), (4096, 7168), (7168, 2048), (24576, 1536)) for m in
         (64, 128, 256, 512, 1024, 2048, 4096)]
# N and K of linear layers of Llama 3, DeepSeek V3, Qwen 2.5 and 3, and gpt-oss.
LAYERS = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672),
          (18432, 16384), (16384, 16384), (1536, 7168), (24576, 1536), (2112, 7168), (7168, 16384), (36864, 7168), (7168, 18432),
          (4096, 7168), (7168, 2048), (32768, 512), (10240, 5120), (5120, 8192), (51200, 5120), (5120, 25600), (4608, 3584),
          (3584, 3584), (37888, 3584), (3584, 18944), (59136, 8192), (8192, 29568), (5120, 2880), (2880, 4096), (5760, 2880),
          (2880, 2880), (4096, 12288), (9216, 4096), (24576, 4096), (12288, 4096), (2560, 9728), (19456, 2560)]
ROWS = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 576, 640, 768, 896, 1024, 1280, 1536,
        1792, 2048]
NEAR = 8  # candidates that are timed in turns
TORCH_DTYPE = {"bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn}


class Ours:
    def __init__(self, library, selectors):
        self.library = library
        for name in ("open", "launch"):
            getattr(library, f"tessera_bench_gemm_{name}").restype = ctypes.c_char_p
        library.tessera_bench_gemm_close.argtypes, library.tessera_bench_gemm_close.restype = [ctypes.c_void_p], None
        self.handle, name = ctypes.c_void_p(), ctypes.c_char_p()
        self.check(library.tessera_bench_gemm_open(selectors.encode(), ctypes.byref(self.handle), ctypes.byref(name)))
        self.name, self.selectors = name.value.decode(), selectors

    def close(self):
        """The kernel; what its Jit has compiled stays in the cache."""
        self.library.tessera_bench_gemm_close(self.handle)
        self.handle = None

    def check(self, error):
        if error is not None:
            raise RuntimeError(error.decode())

    def bind(self, a, b, d, over_c=False):
        self.pointers = (ctypes.c_uint64 * 6)(a.data_ptr(), b.data_ptr(), d.data_ptr() if over_c else 0, d.data_ptr(), 0, 0)
        self.sizes = (ctypes.c_int64 * 4)(a.shape[0], b.shape[0], a.shape[1], 1)

    def launch(self):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.check(self.library.tessera_bench_gemm_launch(self.handle, stream, self.pointers, self.sizes))


def selectors_of(dtype, accumulation, m, n, k, over_c=False):
    text = f"dtype={dtype},d_dtype={'bf16' if dtype == 'e4m3' else dtype},m={m},n={n},k={k}"
    return text + (f",accumulation={accumulation}" if dtype == "e4m3" else "") + (",c=matrix" if over_c else "")


class Cell:
    """One product, with cuBLAS as the peer."""

    def __init__(self, dtype, accumulation, m, n, k, over_c=False):
        self.dtype, self.accumulation, self.shape, self.over_c = dtype, accumulation, (m, n, k), over_c
        self.a, self.b = (torch.randn(rows, k, device="cuda").to(TORCH_DTYPE[dtype]) for rows in (m, n))
        self.d = torch.empty(m, n, device="cuda", dtype=TORCH_DTYPE[dtype] if dtype != "e4m3" else torch.bfloat16)
        self.out = torch.empty_like(self.d)
        self.one = torch.ones((), device="cuda")
        self.selectors = selectors_of(dtype, accumulation, m, n, k, over_c)

    def peer(self):
        if self.dtype == "e4m3":
            torch._scaled_mm(self.a, self.b.t(), self.one, self.one, out_dtype=torch.bfloat16,
                             use_fast_accum=self.accumulation == "fast", out=self.out)
        elif self.over_c:
            torch.addmm(self.out, self.a, self.b.t(), out=self.out)
        else:
            torch.mm(self.a, self.b.t(), out=self.out)

    def check(self, ours):
        if self.over_c:
            self.d.copy_(self.out.normal_())
        else:
            self.d.fill_(float("nan"))
        self.peer()
        ours.launch()
        torch.cuda.synchronize()
        difference = (self.d.float() - self.out.float()).norm() / self.out.float().norm()
        if not difference < (3e-2 if self.accumulation == "fast" and self.dtype == "e4m3" else 1e-2):
            raise RuntimeError(f"results differ by {difference:.3e}: {ours.name} at {self.shape}")

    def measure(self, kernels, repeat, flush):
        """Medians in microseconds: of each kernel, and of the peer."""
        for _ in range(3):
            self.peer()
            for kernel in kernels:
                kernel.launch()
        times = medians_us([*(kernel.launch for kernel in kernels), self.peer], repeat, flush)
        return times[:-1], times[-1]


def layers(seed, count):
    """Different products; one in five has a number of rows that is not in ROWS."""
    draw, shapes = random.Random(seed), []
    while len(shapes) < count:
        rows = draw.choice(ROWS) if draw.random() < 0.8 else draw.randint(1, 2048)
        shape = (rows, *draw.choice(LAYERS))
        if shape not in shapes:
            shapes.append(shape)
    return shapes


def cells(arguments):
    sets = arguments.sets.split(",")
    types = [(word.removesuffix("-promoted"), "promoted" if word.endswith("-promoted") else "fast") for word in arguments.types.split(",")]
    if "layers" in sets:
        yield from (("layers", *types[i % len(types)], *shape) for i, shape in enumerate(layers(arguments.seed, arguments.count)))
    if "shapes" in sets:
        shapes = [tuple(map(int, text.split("x"))) for text in arguments.shapes.split(",")]
        yield from (("shapes", *of, *shape) for shape in shapes for of in types)
    if "large" in sets:
        yield from (("large", "bf16", "fast", *shape) for shape in LARGE)
    if "fp8" in sets:
        yield from (("fp8", "e4m3", accumulation, *shape) for accumulation in ("fast", "promoted") for shape in LARGE)
    if "small" in sets:
        yield from (("small", "bf16", "fast", *shape) for shape in SMALL)


def types_of(dtype, accumulation):
    return dtype if dtype != "e4m3" else f"{dtype} {accumulation}"


def table(library, arguments, flush):
    lines = ["| set | types | M | N | K | tessera us | cuBLAS us | tessera TFLOP/s | cuBLAS TFLOP/s | ratio | kernel |",
             "|---|---|---|---|---|---|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    ratios = {}
    compile_all(library, [selectors_of(*of, arguments.over_c) for _, *of in cells(arguments)])
    for name, dtype, accumulation, m, n, k in cells(arguments):
        cell = Cell(dtype, accumulation, m, n, k, arguments.over_c)
        ours = Ours(library, cell.selectors)
        ours.bind(cell.a, cell.b, cell.d, cell.over_c)
        cell.check(ours)
        (mine,), theirs = cell.measure([ours], arguments.repeat, flush)
        ratios.setdefault(name, []).append(theirs / mine)
        rates = [2e-6 * m * n * k / us for us in (mine, theirs)]
        lines.append(f"| {name} | {types_of(dtype, accumulation)} | {m} | {n} | {k} | {mine:.1f} | {theirs:.1f} | {rates[0]:.0f} | {rates[1]:.0f} | "
                     f"{theirs / mine:.3f} | {ours.name} |")
        print(lines[-1], flush=True)
    lines.append("")
    for name, values in ratios.items():
        mean = math.exp(sum(map(math.log, values)) / len(values))
        lines.append(f"{name}: geometric mean of the ratios {mean:.3f}, least {min(values):.3f}.")
        print(lines[-1])
    return lines


def candidates(library, arguments, flush):
    lines = []
    pins = [line.strip() for line in open(arguments.candidates) if line.strip()]
    for name, dtype, accumulation, m, n, k in cells(arguments):
        cell = Cell(dtype, accumulation, m, n, k, arguments.over_c)
        kernels = []
        for pin in pins:
            try:
                ours = Ours(library, cell.selectors + "," + pin)
                ours.bind(cell.a, cell.b, cell.d, cell.over_c)
                cell.check(ours)
                kernels.append((pin, ours))
            except RuntimeError as error:
                print("left out:", pin, error, file=sys.stderr)
        mine, theirs = cell.measure([ours for _, ours in kernels], arguments.repeat, flush)
        for (pin, _), us in sorted(zip(kernels, mine), key=lambda pair: pair[1]):
            lines.append(f"{name} {dtype} {accumulation} {m} {n} {k} {pin} {us:.2f} {theirs:.2f}")
        print(f"{name} {dtype} {accumulation} {m}x{n}x{k}: peer {theirs:.1f} us; best " +
              "; ".join(line.split()[6] + " " + line.split()[7] for line in lines[-len(kernels):][:4]), flush=True)
    return lines


def candidates_of(library, selectors, nearest):
    """The planner's candidates, its choice first, then as the model has them."""
    pins = ctypes.c_char_p()
    library.tessera_bench_gemm_candidates.restype = ctypes.c_char_p
    error = library.tessera_bench_gemm_candidates(selectors.encode(), ctypes.byref(pins))
    if error is not None:
        raise RuntimeError(error.decode())
    return [selectors + "," + line for line in pins.value.decode().splitlines()[:nearest]]


def compile_all(library, texts):
    """Side by side, before anything is timed."""
    def compiled(text):
        torch.cuda.set_device(0)
        torch.cuda.current_stream().synchronize()  # a context for this thread
        Ours(library, text).close()

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compiled, dict.fromkeys(texts)))


def best(library, arguments, flush):
    lines = ["| types | M | N | K | choice | us | best candidate | us | choice over best | cuBLAS us | cuBLAS over choice | over best |",
             "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    short = lambda ours: ours.name.replace("tessera_gemm_sm90a_", "")
    ratios = []
    problems = [(of, candidates_of(library, selectors_of(*of, arguments.over_c), arguments.nearest)) for _, *of in cells(arguments)]
    compile_all(library, [text for _, texts in problems for text in texts])
    for (dtype, accumulation, m, n, k), texts in problems:
        cell = Cell(dtype, accumulation, m, n, k, arguments.over_c)
        kernels = [Ours(library, text) for text in texts]
        for ours in kernels:
            ours.bind(cell.a, cell.b, cell.d, cell.over_c)
            cell.check(ours)
        first, theirs = cell.measure(kernels, 4, flush)
        if arguments.times:
            with open(arguments.times, "a") as file:
                for ours, us in zip(kernels, first):
                    file.write(f"{types_of(dtype, accumulation).replace(' ', '-')} {m} {n} {k} {ours.selectors} {us:.2f} {theirs:.2f}\n")
        near = sorted(range(1, len(kernels)), key=lambda i: first[i])[:NEAR]
        near = [kernels[0], *(kernels[i] for i in near)]
        mine, theirs = cell.measure(near, arguments.repeat, flush)
        least = min(range(len(near)), key=lambda i: mine[i])
        ratios.append((mine[0] / mine[least], theirs / mine[0], theirs / mine[least]))
        lines.append(f"| {types_of(dtype, accumulation)} | {m} | {n} | {k} | {short(near[0])} | {mine[0]:.1f} | {short(near[least]) if least else ''} | "
                     f"{mine[least]:.1f} | {ratios[-1][0]:.3f} | {theirs:.1f} | {ratios[-1][1]:.3f} | {ratios[-1][2]:.3f} |")
        print(lines[-1], flush=True)
    mean = [math.exp(sum(map(math.log, column)) / len(ratios)) for column in zip(*ratios)]
    lines += ["", f"{len(ratios)} products: choice over best {mean[0]:.3f}, worst {max(r[0] for r in ratios):.3f}, "
              f"{sum(r[0] > 1.03 for r in ratios)} above 1.03, {sum(r[0] > 1.15 for r in ratios)} above 1.15; cuBLAS over choice {mean[1]:.3f}, least "
              f"{min(r[1] for r in ratios):.3f}, {sum(r[1] < 0.97 for r in ratios)} below 0.97; over best {mean[2]:.3f}, least "
              f"{min(r[2] for r in ratios):.3f}, {sum(r[2] < 0.97 for r in ratios)} below 0.97."]
    print(lines[-1])
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--sets", default="large,fp8,small")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--candidates")
    parser.add_argument("--best", action="store_true")
    parser.add_argument("--nearest", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--types", default="bf16")
    parser.add_argument("--shapes", default="")
    parser.add_argument("--times")
    parser.add_argument("--over-c", action="store_true")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    if arguments.over_c and "e4m3" in arguments.types:
        parser.error("--over-c is for 16-bit types")
    library = ctypes.CDLL(arguments.library)
    torch.cuda.init()
    torch.manual_seed(torch.seed())
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    clocks = subprocess.run(["nvidia-smi", "--query-gpu=clocks.sm,clocks.mem,driver_version", "--format=csv,noheader"],
                            capture_output=True, text=True).stdout.strip()
    drawn = f" --seed {arguments.seed} --count {arguments.count}" if "layers" in arguments.sets else ""
    drawn += (f" --types {arguments.types}" if arguments.types != "bf16" else "") + (f" --shapes {arguments.shapes}" if arguments.shapes else "")
    head = [f"{torch.cuda.get_device_name()}, {clocks} (SM, memory clock as found, driver), PyTorch {torch.__version__}, "
            f"CUDA {torch.version.cuda}, commit {arguments.commit}", "",
            f"Command: `python3 bench/peers/gemm_vs_cublas.py --library {arguments.library} --sets {arguments.sets} "
            f"--repeat {arguments.repeat}{drawn}{' --over-c' if arguments.over_c else ''}{' --best' if arguments.best else ''}"
            f"{f' --nearest {arguments.nearest}' if arguments.nearest else ''}`", ""]
    print("\n".join(head))
    lines = (candidates if arguments.candidates else best if arguments.best else table)(library, arguments, flush)
    if arguments.output:
        with open(arguments.output, "w") as file:
            file.write("\n".join((head if not arguments.candidates else []) + lines) + "\n")


if __name__ == "__main__":
    main()
