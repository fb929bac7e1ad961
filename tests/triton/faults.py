"""Mistakes in Triton kernels, one a run: what the emulator says becomes the exception."""

import sys

import torch
import triton
import triton.language as tl


@triton.jit
def add(x, y, o, n, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=(i < n) | (not MASKED)) + tl.load(y + i, mask=(i < n) | (not MASKED))
    tl.store(o + i, value, mask=i < n)


@triton.autotune([triton.Config({"BLOCK": size}) for size in (64, 128, 256)], key=["n"])
@triton.jit
def twice(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@triton.jit(debug=True)
def asserting(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.device_assert(tl.load(x + i) < 1000.0, "a large value")


@triton.jit
def racing(x, n):
    tl.store(x, tl.load(x + 1) + n)
    tl.store(x + 1, tl.load(x) + tl.program_id(0))


def out_of_bounds():
    x = torch.rand(1000)
    add[(4,)](x, torch.rand(900), torch.empty(1000), 1000, BLOCK=256, MASKED=True)


def no_mask():
    x = torch.rand(1000)
    add[(4,)](x, x, torch.empty(1000), 1000, BLOCK=256, MASKED=False)


def asserts():
    asserting[(1,)](torch.rand(128) + 1000.0, BLOCK=128)


def race():
    racing[(4,)](torch.zeros(2), 3)


def tuned():
    """No mistake: autotuning as the process's first launch, which doubles once to try and once to run."""
    x = torch.ones(1000, device="cuda")
    twice[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, 1000)
    assert (x == 4).all() and twice.best_config.kwargs == {"BLOCK": 64}, (x, twice.best_config)
    print("tuned")


if __name__ == "__main__":
    globals()[{"racing": "race"}.get(sys.argv[1], sys.argv[1])]()
