#!/usr/bin/env python3
"""Matrix products beside cuBLAS (through PyTorch) on one GPU, in one process, on the same tensors.

Random normal data; before every timed launch 256 MB are written to empty the L2; CUDA events; the two kernels alternate;
medians (in_turns.py). Prints Markdown tables of TFLOP/s and ratios (their time over ours), then geometric means.

  python3 bench/peers/gemm_vs_cublas.py --library build/bench/peers/libtessera_peer_shim.so [--sets large,fp8,small]
          [--repeat 20] [--output FILE] [--candidates FILE]

--candidates: instead, times the kernels that FILE's lines pin ("tile_m=128,tile_n=256,cluster_m=2,...") on every shape, a
line for each: set, sizes, pins, microseconds of ours and theirs.
"""
import argparse
import ctypes
import math
import subprocess
import sys

import torch

from in_turns import medians_us

LARGE = [(4096, 4096, 4096), (8192, 8192, 8192)]
SMALL = [(m, n, k) for n, k in ((7168, 16384), (4096, 7168), (7168, 2048), (24576, 1536)) for m in
         (64, 128, 256, 512, 1024, 2048, 4096)]
TORCH_DTYPE = {"bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn}


class Ours:
    def __init__(self, library, selectors):
        self.library = library
        for name in ("open", "launch"):
            getattr(library, f"tessera_bench_gemm_{name}").restype = ctypes.c_char_p
        self.handle, name = ctypes.c_void_p(), ctypes.c_char_p()
        self.check(library.tessera_bench_gemm_open(selectors.encode(), ctypes.byref(self.handle), ctypes.byref(name)))
        self.name = name.value.decode()

    def check(self, error):
        if error is not None:
            raise RuntimeError(error.decode())

    def bind(self, a, b, d):
        self.pointers = (ctypes.c_uint64 * 6)(a.data_ptr(), b.data_ptr(), 0, d.data_ptr(), 0, 0)
        self.sizes = (ctypes.c_int64 * 4)(a.shape[0], b.shape[0], a.shape[1], 1)

    def launch(self):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.check(self.library.tessera_bench_gemm_launch(self.handle, stream, self.pointers, self.sizes))


class Cell:
    """One product, with cuBLAS as the peer."""

    def __init__(self, dtype, accumulation, m, n, k):
        self.dtype, self.accumulation, self.shape = dtype, accumulation, (m, n, k)
        self.a, self.b = (torch.randn(rows, k, device="cuda").to(TORCH_DTYPE[dtype]) for rows in (m, n))
        self.d = torch.empty(m, n, device="cuda", dtype=TORCH_DTYPE[dtype] if dtype != "e4m3" else torch.bfloat16)
        self.out = torch.empty_like(self.d)
        self.one = torch.ones((), device="cuda")
        self.selectors = f"dtype={dtype},m={m},n={n},k={k}"
        if dtype == "e4m3":
            self.selectors += f",accumulation={accumulation},d_dtype=bf16"

    def peer(self):
        if self.dtype == "e4m3":
            torch._scaled_mm(self.a, self.b.t(), self.one, self.one, out_dtype=torch.bfloat16,
                             use_fast_accum=self.accumulation == "fast", out=self.out)
        else:
            torch.mm(self.a, self.b.t(), out=self.out)

    def check(self, ours):
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


def cells(sets):
    if "large" in sets:
        yield from (("large", "bf16", "fast", *shape) for shape in LARGE)
    if "fp8" in sets:
        yield from (("fp8", "e4m3", accumulation, *shape) for accumulation in ("fast", "promoted") for shape in LARGE)
    if "small" in sets:
        yield from (("small", "bf16", "fast", *shape) for shape in SMALL)


def table(library, arguments, flush):
    lines = ["| set | types | M | N | K | tessera us | cuBLAS us | tessera TFLOP/s | cuBLAS TFLOP/s | ratio | kernel |",
             "|---|---|---|---|---|---|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    ratios = {}
    for name, dtype, accumulation, m, n, k in cells(arguments.sets.split(",")):
        cell = Cell(dtype, accumulation, m, n, k)
        ours = Ours(library, cell.selectors)
        ours.bind(cell.a, cell.b, cell.d)
        cell.check(ours)
        (mine,), theirs = cell.measure([ours], arguments.repeat, flush)
        ratios.setdefault(name, []).append(theirs / mine)
        rates = [2e-6 * m * n * k / us for us in (mine, theirs)]
        types = dtype if dtype != "e4m3" else f"{dtype} {accumulation}"
        lines.append(f"| {name} | {types} | {m} | {n} | {k} | {mine:.1f} | {theirs:.1f} | {rates[0]:.0f} | {rates[1]:.0f} | "
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
    for name, dtype, accumulation, m, n, k in cells(arguments.sets.split(",")):
        cell = Cell(dtype, accumulation, m, n, k)
        kernels = []
        for pin in pins:
            try:
                ours = Ours(library, cell.selectors + "," + pin)
                ours.bind(cell.a, cell.b, cell.d)
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--sets", default="large,fp8,small")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--candidates")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    library = ctypes.CDLL(arguments.library)
    torch.cuda.init()
    torch.manual_seed(torch.seed())
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    clocks = subprocess.run(["nvidia-smi", "--query-gpu=clocks.sm,clocks.mem,driver_version", "--format=csv,noheader"],
                            capture_output=True, text=True).stdout.strip()
    head = [f"{torch.cuda.get_device_name()}, {clocks} (SM, memory clock as found, driver), PyTorch {torch.__version__}, "
            f"CUDA {torch.version.cuda}, commit {arguments.commit}", "",
            f"Command: `python3 bench/peers/gemm_vs_cublas.py --library {arguments.library} --sets {arguments.sets} "
            f"--repeat {arguments.repeat}`", ""]
    print("\n".join(head))
    lines = (candidates if arguments.candidates else table)(library, arguments, flush)
    if arguments.output:
        with open(arguments.output, "w") as file:
            file.write("\n".join((head if not arguments.candidates else []) + lines) + "\n")


if __name__ == "__main__":
    main()
