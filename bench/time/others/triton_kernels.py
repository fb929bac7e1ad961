#!/usr/bin/env python3
"""Kernels in Triton as its users write them, timed as `tessera run` times: triton_kernels.py REPEAT KERNEL SIZES.

matmul M N K TILE_M TILE_N TILE_K WARPS STAGES     bf16, K-major operands
attention BATCHES HEADS LENGTH HEAD CAUSAL         bf16, forward
softmax ROWS COLUMNS        layernorm ROWS COLUMNS        add THOUSANDS

Several kernels are divided by `/`. REPEAT 0 launches once and times nothing: for `tessera emulate --time h200 --no-values --
./triton_kernels.py 0 ...`; -1 compiles alone, into Triton's cache."""

import json
import os
import statistics
import sys

import torch
import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, m, n, k, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(m, TILE_M), tl.cdiv(n, TILE_N)
    group = pid // (GROUP * tiles_n)
    rows = min(tiles_m - group * GROUP, GROUP)
    pid_m = group * GROUP + (pid % (GROUP * tiles_n)) % rows
    pid_n = (pid % (GROUP * tiles_n)) // rows
    row = pid_m * TILE_M + tl.arange(0, TILE_M)
    column = pid_n * TILE_N + tl.arange(0, TILE_N)
    depth = tl.arange(0, TILE_K)
    a_at = a + row[:, None] * k + depth[None, :]
    b_at = b + column[None, :] * k + depth[:, None]
    sums = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for _ in range(0, k, TILE_K):
        sums = tl.dot(tl.load(a_at), tl.load(b_at), sums)
        a_at += TILE_K
        b_at += TILE_K
    tl.store(c + row[:, None] * n + column[None, :], sums.to(tl.bfloat16))


@triton.jit
def attention(q, k, v, o, scale, length, HEAD: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr):
    first = tl.program_id(0) * ROWS
    base = tl.program_id(1).to(tl.int64) * length * HEAD
    row, key, column = first + tl.arange(0, ROWS), tl.arange(0, KEYS), tl.arange(0, HEAD)
    queries = tl.load(q + base + row[:, None] * HEAD + column[None, :])
    most = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    sums = tl.zeros((ROWS, HEAD), dtype=tl.float32)
    end = first + ROWS if CAUSAL else length
    for at in range(0, end, KEYS):
        keys = tl.load(k + base + (at + key)[None, :] * HEAD + column[:, None])
        scores = tl.dot(queries, keys) * scale
        if CAUSAL:
            scores = tl.where(row[:, None] >= at + key[None, :], scores, -float("inf"))
        above = tl.maximum(most, tl.max(scores, 1))
        p = tl.exp2(scores - above[:, None])
        factor = tl.exp2(most - above)
        total = total * factor + tl.sum(p, 1)
        values = tl.load(v + base + (at + key)[:, None] * HEAD + column[None, :])
        sums = tl.dot(p.to(tl.bfloat16), values, sums * factor[:, None])
        most = above
    tl.store(o + base + row[:, None] * HEAD + column[None, :], (sums / total[:, None]).to(tl.bfloat16))


@triton.jit
def softmax(x, y, columns, SIZE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * columns + tl.arange(0, SIZE)
    inside = tl.arange(0, SIZE) < columns
    values = tl.load(x + at, mask=inside, other=-float("inf")).to(tl.float32)
    p = tl.exp(values - tl.max(values, 0))
    tl.store(y + at, (p / tl.sum(p, 0)).to(tl.bfloat16), mask=inside)


@triton.jit
def layernorm(x, y, weight, bias, columns, SIZE: tl.constexpr):
    column = tl.arange(0, SIZE)
    at = tl.program_id(0).to(tl.int64) * columns + column
    inside = column < columns
    values = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(values, 0) / columns
    centred = tl.where(inside, values - mean, 0.0)
    factor = 1 / tl.sqrt(tl.sum(centred * centred, 0) / columns + 1e-5)
    w = tl.load(weight + column, mask=inside).to(tl.float32)
    b = tl.load(bias + column, mask=inside).to(tl.float32)
    tl.store(y + at, (centred * factor * w + b).to(tl.bfloat16), mask=inside)


@triton.jit
def add(x, y, z, count, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = at < count
    tl.store(z + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


def numbers(*shape: int) -> torch.Tensor:
    if int(sys.argv[1]) <= 0:
        return torch.empty(*shape, dtype=torch.bfloat16, device="cuda")
    return torch.randn(*shape, dtype=torch.bfloat16, device="cuda")


def call(kernel, grid: tuple, *args, **options):
    if int(sys.argv[1]) < 0:
        return lambda: kernel.warmup(*args, grid=grid, **options)
    return lambda: kernel[grid](*args, **options)


def launch_of(name: str, s: list[int]):
    if name == "matmul":
        m, n, k, tile_m, tile_n, tile_k, warps, stages = s
        a, b, c = numbers(m, k), numbers(n, k), numbers(m, n)
        grid = (triton.cdiv(m, tile_m) * triton.cdiv(n, tile_n),)
        return call(matmul, grid, a, b, c, m, n, k, tile_m, tile_n, tile_k, 8, num_warps=warps, num_stages=stages)
    if name == "attention":
        b, h, length, head, causal = s
        q, k, v, o = (numbers(b * h, length, head) for _ in range(4))
        return call(attention, (length // 128, b * h), q, k, v, o, head**-0.5 * 1.44269504, length, head, 128, 64, causal != 0,
                    num_warps=8 if head > 64 else 4, num_stages=3)
    if name == "add":
        x, y, z = (numbers(s[0] * 1024) for _ in range(3))
        return call(add, (s[0],), x, y, z, s[0] * 1024, 1024)
    x, y, w, b = numbers(*s), numbers(*s), numbers(s[1]), numbers(s[1])
    size = triton.next_power_of_2(s[1])
    if name == "softmax":
        return call(softmax, (s[0],), x, y, s[1], size, num_warps=8)
    return call(layernorm, (s[0],), x, y, w, b, s[1], size, num_warps=8)


def run(repeat: int, name: str, sizes: list[int]) -> None:
    launch = launch_of(name, sizes)
    launch()
    if repeat <= 0:
        return
    torch.cuda.synchronize()
    other = torch.empty(120 << 20, dtype=torch.int8, device="cuda")
    times = []
    for i in range(3 + repeat):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for _ in range(4):
            other.fill_(i)  # long enough for the host to be ahead
        begin.record()
        launch()
        end.record()
        end.synchronize()
        if i >= 3:
            times.append(1000 * begin.elapsed_time(end))
    print(json.dumps({"program": os.path.basename(sys.argv[0]), "line": " ".join([name, *map(str, sizes)]), "kernel": f"Triton {name}",
                      "time_us": round(statistics.median(times), 2)}), flush=True)


def main() -> None:
    for text in " ".join(sys.argv[2:]).split("/"):
        name, *sizes = text.split()
        run(int(sys.argv[1]), name, [int(word) for word in sizes])


main()
