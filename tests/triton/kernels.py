"""Kernels of Triton with random inputs, each against float64: kernels.py [NAME]... [SEED]; prints "all right" at the end.

Outputs hold NaN before. A tolerance is relative to 1 + |expected|, and is the rounding of the output's type with that of
the sums before it.
"""

import sys

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

ARCH = triton.runtime.driver.active.get_current_target().arch
DEVICE = triton.runtime.driver.active.get_active_torch_device()
HALF, BFLOAT = 2.0**-10, 2.0**-7


def nan(*shape, dtype=torch.float32):
    return torch.full(shape, float("nan"), dtype=dtype, device=DEVICE)


def compare(found, expected, tolerance):
    error = ((found.double() - expected).abs() / (1 + expected.abs())).max().item()
    assert error <= tolerance, f"largest error {error}, allowed {tolerance}"  # NaN is no less


@triton.jit
def softmax_kernel(x, o, stride, rows, n, BLOCK: tl.constexpr):
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=2):
        i = tl.arange(0, BLOCK)
        value = tl.load(x + row * stride + i, mask=i < n, other=-float("inf"))
        power = tl.exp(value - tl.max(value, axis=0))
        tl.store(o + row * n + i, power / tl.sum(power, axis=0), mask=i < n)


def softmax():
    x = torch.randn(37, 320)[:, :300]  # a view: rows 320 apart
    o = nan(37, 300)
    softmax_kernel[(4,)](x, o, x.stride(0), 37, 300, BLOCK=512)
    compare(o, torch.softmax(x.double(), 1), 1e-6)


@triton.jit
def layer_norm_kernel(x, w, b, o, n, eps, BLOCK: tl.constexpr):
    x += tl.program_id(0) * n
    o += tl.program_id(0) * n
    total = tl.zeros([BLOCK], tl.float32)
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(x + i, mask=i < n, other=0.0).to(tl.float32)
    mean = tl.sum(total) / n
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        apart = tl.where(i < n, tl.load(x + i, mask=i < n, other=0.0).to(tl.float32) - mean, 0.0)
        squares += apart * apart
    scale = tl.rsqrt(tl.sum(squares) / n + eps)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        value = (tl.load(x + i, mask=i < n).to(tl.float32) - mean) * scale
        tl.store(o + i, value * tl.load(w + i, mask=i < n) + tl.load(b + i, mask=i < n), mask=i < n)


def layer_norm():
    x, w, b = torch.randn(9, 777).half(), torch.rand(777).half(), torch.rand(777).half()
    o = nan(9, 777, dtype=torch.float16)
    layer_norm_kernel[(9,)](x, w, b, o, 777, 1e-5, BLOCK=256)
    compare(o, torch.nn.functional.layer_norm(x.double(), (777,), w.double(), b.double(), 1e-5), HALF)


@triton.autotune(
    configs=[
        triton.Config({"M": 64, "N": 64, "K": 32}, num_warps=4, num_stages=3),
        triton.Config({"M": 128, "N": 128, "K": 64}, num_warps=8, num_stages=3),
    ],
    key=["m", "n", "k"],
)
@triton.jit
def matmul_kernel(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        i = start + tl.arange(0, K)
        tile_a = tl.load(a + rows[:, None] * k + i, mask=(rows[:, None] < m) & (i < k), other=0.0)
        tile_b = tl.load(b + i[:, None] * n + columns, mask=(i[:, None] < k) & (columns < n), other=0.0)
        total = tl.dot(tile_a, tile_b, total)
    tl.store(c + rows[:, None] * n + columns, total.to(c.dtype.element_ty), mask=(rows[:, None] < m) & (columns < n))


def matmul():
    a, b, c = torch.randn(200, 136).half(), torch.randn(136, 160).half(), nan(200, 160, dtype=torch.float16)
    matmul_kernel[lambda meta: (triton.cdiv(200, meta["M"]), triton.cdiv(160, meta["N"]))](a, b, c, 200, 160, 136)
    compare(c, a.double() @ b.double(), HALF)


@triton.jit
def matmul_tma_kernel(a, b, c, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        total = tl.dot(a.load([row, start]), b.load([column, start]).T, total)
    c.store([row, column], total.to(c.dtype))


def matmul_tma(dtype=torch.bfloat16, ctas=1):
    """Descriptors made on the host; 200 x 136 is no multiple of the tile."""
    a, b = torch.randn(200, 192).to(dtype), torch.randn(136, 192).to(dtype)
    c = nan(200, 136, dtype=torch.bfloat16)
    tiles = [TensorDescriptor.from_tensor(t, shape) for t, shape in ((a, [128, 64]), (b, [64, 64]), (c, [128, 64]))]
    matmul_tma_kernel[(2, 3)](*tiles, 192, M=128, N=64, K=64, num_ctas=ctas)
    # An H100 adds products of fp8 with 14 bits, of which 192 make another rounding like the output's.
    compare(c, a.double() @ b.double().T, BFLOAT * (2 if dtype.itemsize == 1 and ARCH == 90 else 1))


def matmul_tma_fp8():
    matmul_tma(torch.float8_e4m3fn)


def matmul_tma_pair():
    if tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9):  # 3.4 and 3.6 make none that is right
        matmul_tma(ctas=2)


@triton.jit
def persistent_kernel(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, WARPS: tl.constexpr):
    a = tl.make_tensor_descriptor(a, [m, k], [k, 1], [M, K])
    b = tl.make_tensor_descriptor(b, [n, k], [k, 1], [N, K])
    c = tl.make_tensor_descriptor(c, [m, n], [n, 1], [M, N])
    down = tl.cdiv(m, M)
    for tile in tl.range(tl.program_id(0), down * tl.cdiv(n, N), tl.num_programs(0), flatten=True, warp_specialize=WARPS):
        row, column = tile % down * M, tile // down * N
        total = tl.zeros((M, N), tl.float32)
        for start in range(0, tl.cdiv(k, K)):
            total = tl.dot(a.load([row, start * K]), b.load([column, start * K]).T, total)
        c.store([row, column], total.to(tl.float16))


def persistent(specialize=False):
    """Descriptors made on the device, in scratch memory of the caller's."""
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    a, b, c = torch.randn(300, 160).half(), torch.randn(200, 160).half(), nan(300, 200, dtype=torch.float16)
    persistent_kernel[(2,)](a, b, c, 300, 200, 160, M=128, N=64, K=64, WARPS=specialize)
    compare(c, a.double() @ b.double().T, HALF)


def persistent_specialized():
    if ARCH < 120:
        persistent(True)


@triton.jit
def attention_kernel(q, k, v, o, n, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, WARPS: tl.constexpr):
    first = tl.program_id(0) * M
    base = tl.program_id(1) * n
    rows = first + tl.arange(0, M)
    query = q.load([base + first, 0])
    largest = tl.full([M], -float("inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    sums = tl.zeros([M, D], tl.float32)
    for start in tl.range(0, first + M, N, warp_specialize=WARPS):
        score = tl.dot(query, k.load([base + start, 0]).T) * scale
        score = tl.where(rows[:, None] >= start + tl.arange(0, N), score, -1e6)
        now = tl.maximum(largest, tl.max(score, 1))
        power = tl.math.exp2(score - now[:, None])
        fade = tl.math.exp2(largest - now)
        total = total * fade + tl.sum(power, 1)
        sums = tl.dot(power.to(tl.float16), v.load([base + start, 0]), sums * fade[:, None])
        largest = now
    o.store([base + first, 0], (sums / total[:, None]).to(tl.float16))


def attention(specialize=False):
    heads, length, d = 2, 256, 64
    q, k, v = (torch.randn(heads, length, d).half() for _ in range(3))
    o = nan(heads, length, d, dtype=torch.float16)
    tiles = [TensorDescriptor(t, [heads * length, d], [d, 1], [rows, d]) for t, rows in ((q, 128), (k, 64), (v, 64), (o, 128))]
    scale = 0.125 * 1.4426950408889634
    attention_kernel[(2, heads)](*tiles, length, scale, M=128, N=64, D=d, WARPS=specialize, num_stages=2)
    score = q.double() @ k.double().transpose(1, 2) * 0.125
    score = score.masked_fill(torch.ones(length, length).tril() == 0, -float("inf"))
    compare(o, torch.softmax(score, -1) @ v.double(), 2 * HALF)


def attention_specialized():
    if ARCH == 100:  # Triton's own limit
        attention(True)


@triton.jit
def grouped_kernel(tables, sizes, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    group = tl.program_id(0)
    m = tl.load(sizes + group)
    a = tl.load(tables + 3 * group).to(tl.pointer_type(tl.float16))
    b = tl.load(tables + 3 * group + 1).to(tl.pointer_type(tl.float16))
    c = tl.load(tables + 3 * group + 2).to(tl.pointer_type(tl.float32))
    columns, i = tl.arange(0, N), tl.arange(0, K)
    for start in range(0, m, M):
        rows = start + tl.arange(0, M)
        tile = tl.load(a + rows[:, None] * k + i, mask=rows[:, None] < m, other=0.0)
        product = tl.dot(tile, tl.load(b + i[:, None] * n + columns))
        tl.store(c + rows[:, None] * n + columns, product, mask=rows[:, None] < m)


def grouped():
    """A tensor of addresses, as a grouped product takes it."""
    sizes = [100, 33, 128]
    groups = [(torch.randn(m, 32).half(), torch.randn(32, 64).half(), nan(m, 64)) for m in sizes]
    tables = torch.tensor([tensor.data_ptr() for group in groups for tensor in group], device=DEVICE)
    kept = tables.clone()
    grouped_kernel[(3,)](tables, torch.tensor(sizes, dtype=torch.int32), 64, 32, M=64, N=64, K=32)
    assert torch.equal(tables, kept)
    for a, b, c in groups:
        compare(c, a.double() @ b.double(), 1e-5)


# fmt: off
@triton.jit
def scaled_kernel(
    a, b, c, scale_a, scale_b, n, k,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, V: tl.constexpr, F: tl.constexpr, P: tl.constexpr,
):
    rows, columns = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        i, j = start // P + tl.arange(0, K // P), start // V + tl.arange(0, K // V)
        tile_a, tile_b = tl.load(a + rows[:, None] * (k // P) + i), tl.load(b + columns[:, None] * (k // P) + i)
        by_a, by_b = tl.load(scale_a + rows[:, None] * (k // V) + j), tl.load(scale_b + columns[:, None] * (k // V) + j)
        total = tl.dot_scaled(tile_a, by_a, F, tile_b.T, by_b, F, total)
    tl.store(c + rows[:, None] * n + columns, total)
# fmt: on


def values_of_fp4(packed):
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)
    return torch.stack([table[(packed & 15).long()], table[(packed >> 4).long()]], -1).flatten(1)


def block_scaled(kind="mxfp8"):
    m, n, k, block = 256, 128, 256, 16 if kind == "nvfp4" else 32
    if kind == "mxfp8":
        a, b = (torch.randn(rows, k).to(torch.float8_e4m3fn) for rows in (m, n))
        values, form, packed = [a.double(), b.double()], "e4m3", 1
    else:
        a, b = (torch.randint(0, 256, (rows, k // 2), dtype=torch.uint8) for rows in (m, n))
        values, form, packed = [values_of_fp4(a), values_of_fp4(b)], "e2m1", 2
    if kind == "nvfp4":
        scales = [(torch.rand(rows, k // block) + 0.5).to(torch.float8_e4m3fn) for rows in (m, n)]
        factors = [scale.double() for scale in scales]
    else:
        scales = [torch.randint(124, 130, (rows, k // block), dtype=torch.uint8) for rows in (m, n)]
        factors = [2.0 ** (scale.double() - 127) for scale in scales]
    c = nan(m, n)
    sizes = {"M": 128, "N": 128, "K": 128, "V": block, "F": form, "P": packed}
    scaled_kernel[(2, 1)](a, b, c, *scales, n, k, **sizes, num_stages=2)
    x, y = (value * factor.repeat_interleave(block, 1) for value, factor in zip(values, factors))
    compare(c, x @ y.T, 1e-4)


def block_scaled_mxfp4():
    block_scaled("mxfp4")


def block_scaled_nvfp4():
    if ARCH >= 100:
        block_scaled("nvfp4")


@triton.jit
def others_kernel(x, o, count, n, seed, half: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n, other=float("inf"))
    tl.atomic_add(count, tl.sum(((value > half) & (i < n)).to(tl.int32)))
    tl.store(o + i, tl.sort(value), mask=i < n)
    tl.store(o + n + i, tl.cumsum(tl.where(i < n, value, 0.0), 0), mask=i < n)
    tl.store(o + 2 * n + i, tl.rand(seed, i), mask=i < n)


def others():
    """Sort, scan, atomics, random numbers."""
    x, o, count = torch.randn(200), nan(600), torch.zeros(1, dtype=torch.int32)
    others_kernel[(1,)](x, o, count, 200, 7, 0.25, BLOCK=256)
    compare(o[:400], torch.cat([x.double().sort()[0], x.double().cumsum(0)]), 1e-5)
    assert count.item() == (x > 0.25).sum().item()
    assert 0 <= o[400:].min() < 0.2 and 0.8 < o[400:].max() < 1 and len(o[400:].unique()) > 190


ALL = [
    softmax, layer_norm, matmul, matmul_tma, matmul_tma_fp8, matmul_tma_pair, persistent, persistent_specialized, attention,
    attention_specialized, grouped, block_scaled, block_scaled_mxfp4, block_scaled_nvfp4, others,
]  # fmt: skip

if __name__ == "__main__":
    names = [word for word in sys.argv[1:] if not word.isdigit()]
    seed = next((int(word) for word in sys.argv[1:] if word.isdigit()), torch.seed() % 2**31)
    torch.manual_seed(seed)
    print("seed", seed)
    wrong = []
    for case in ALL:
        if names and case.__name__ not in names:
            continue
        try:
            case()
            print(case.__name__, flush=True)
        except Exception as error:
            wrong.append(case.__name__)
            print(f"{case.__name__}: {type(error).__name__}: {error}", flush=True)
    print("wrong: " + ", ".join(wrong) if wrong else "all right")
    sys.exit(bool(wrong))
