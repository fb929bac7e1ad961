"""What `products` measures, and the verdicts over it: cases, tables out of their logs, bars."""
import math
import re

from serving_bars import Case, Verdict, fastest, judge, number, rows_of, table  # noqa: F401

FEW_ROWS = 128  # up to here memory, and 8 us of start and end, are the limit
WIDE, LARGEST = (7168, 16384), (4096, 7168, 16384)  # (n, k); (m, n, k)
WEIGHTS_NK = ("10240x8192,8192x8192,57344x8192,8192x28672", "7168x16384,36864x7168,7168x18432,201088x2880")
WEIGHTS_MASKED = "8x1,8x8,8x16,8x32,8x64,32x8,32x16,32x32,32x64"  # groups x rows
SEEDS = (20261128, 20261129)  # of products that are drawn
NEAREST = 24  # candidates that are timed; the best of 29 drawn products was among the 20 that the model has first
TYPES = "bf16,f16,e4m3,e4m3-promoted"  # of those whose candidates are all timed
LEAST = 0.97
ALONE = "alone, times it"  # of graphs that run by themselves: at the power limit the time of an energy


def cases(shim, has_deep_gemm):
    """In the order in which they run."""
    ours = ("--library", shim)
    alone = () if has_deep_gemm else ("--no-peers",)
    peers = ("deep_gemm",)
    drawn = lambda seed, count: (*ours, "--sets", "layers", "--seed", str(seed), "--count", str(count), "--repeat", "10")
    found = [Case("blocks", "scaled_gemm.py", (*ours, *alone), 55, peers)]
    found += [Case("contiguous", "grouped_gemm.py", (*ours, "--masked", "", *alone), 48, peers)]
    found += [Case("masked", "grouped_gemm.py", (*ours, "--contiguous", "", *alone), 50, peers)]
    found += [Case(f"weights-few-{i}", "weights_4_bit.py", (*ours, "--nk", nk, "--m", "1,16,32,64"), 40) for i, nk in enumerate(WEIGHTS_NK)]
    found += [Case("weights-all", "weights_4_bit.py",
                   (*ours, "--format", "mxfp4,nvfp4,int4,int4z", "--nk", "8192x8192,7168x16384", "--m", "1,16,64,4096"), 50)]
    found += [Case("groups-of-weights", "grouped_weights.py", (*ours, "--nk", "5760x2880,4096x7168", "--masked", WEIGHTS_MASKED), 40)]
    found += [Case(f"drawn-{seed}", "gemm_vs_cublas.py", drawn(seed, 42), 30) for seed in SEEDS]
    return found + [Case(f"choice-{seed}", "gemm_vs_cublas.py", (*drawn(seed, 16), "--types", TYPES, "--best", "--nearest", str(NEAREST)), 60)
                    for seed in SEEDS]


def shape(text):
    """The numbers of "contiguous 4 x 8192 x 4096 x 7168" or "8 x 4096 x 7168"."""
    return tuple(map(int, re.findall(r"\d+", text)))


def all_rows(logs, begin, keys, time="tessera us"):
    """The fastest row of each shape, of all cases whose names begin so."""
    return fastest([row for name, log in logs.items() if name.startswith(begin) for row in rows_of(log)], keys, time)


def mean_of(values):
    """[(geometric mean, how many)], or nothing."""
    values = [value for value, _ in values if value]
    return [(math.exp(sum(map(math.log, values)) / len(values)), f"{len(values)} products")] if values else []


def block_bars(logs):
    rows = [(shape(row["m x n x k"]), row) for row in all_rows(logs, "blocks", ("m x n x k",))]
    column = lambda name, keep: [(number(row.get(name)), row["m x n x k"]) for sizes, row in rows if keep(*sizes) and number(row.get(name))]
    theirs = lambda keep: column("times it", keep) if any("DeepGEMM us" in row and number(row["DeepGEMM us"]) for _, row in rows) else []
    is_wide = lambda m, n, k: (n, k) == WIDE and m <= FEW_ROWS
    return [
        judge("e4m3 with factors of blocks: 1.05 times DeepGEMM in the geometric mean", mean_of(theirs(lambda *_: True)), 1.05),
        judge("the same: no product under 0.97", theirs(lambda *_: True), LEAST),
        judge("the same, 4,096 x 7,168 x 16,384: no slower than DeepGEMM", theirs(lambda *sizes: sizes == LARGEST), 1.0),
        judge("the same: 1.03 times", theirs(lambda *sizes: sizes == LARGEST), 1.03, is_goal=True),
        judge("the same, alone: no slower than DeepGEMM", column(ALONE, lambda *sizes: sizes == LARGEST), 1.0, is_goal=True),
        judge("the same, up to 128 x 7,168 x 16,384: of a plain read at least 0.80", column("of the read's speed", is_wide), 0.80),
        judge("the same, other products of up to 128 rows: 1.15 times DeepGEMM",
              theirs(lambda m, n, k: m <= FEW_ROWS and not is_wide(m, n, k)), 1.15),
    ]


def group_bars(logs):
    ratio = "times it"
    place = "groups x rows x n x k"
    rows = all_rows(logs, "contiguous", (place,))
    contiguous = [(number(row[ratio]), row[place]) for row in rows]
    alone = [(number(row.get(ALONE)), row[place]) for row in rows]
    # 1.3 times DeepGEMM or 0.80 of the read, whichever is less: the greater of both over its bound.
    masked = [(max(number(row[ratio]) / 1.3, number(row["of the read's speed"]) / 0.8), row[place]) for row in all_rows(logs, "masked", (place,))
              if number(row[ratio]) is not None]
    return [
        judge("contiguous groups: 1.03 times DeepGEMM", contiguous, 1.03),
        judge("contiguous groups, alone: no slower than DeepGEMM", alone, 1.0, is_goal=True),
        judge("masked groups of up to 64 rows: 1.3 times DeepGEMM or 0.80 of a plain read (over that bound)", masked, 1.0),
    ]


def weight_bars(logs):
    place = ("m x n x k", "format")
    rows = [(shape(row["m x n x k"])[0], row) for row in all_rows(logs, "weights-", place)]
    at = lambda row: f"{row['m x n x k']} {row['format']}"
    column = lambda name, keep: [(number(row[name]), at(row)) for m, row in rows if keep(m)]
    place = "groups x rows x n x k"
    masked = [(number(row["of the read"]), f"{row[place]} {row['format']}") for row in all_rows(logs, "groups-of-weights", (place, "format"))]
    lesser = [(max(number(row["of the read"]) or 0, number(row["of the 16-bit rate"]) or 0), at(row)) for m, row in rows if m == 64]
    return [
        judge("4-bit weights, up to 32 rows: of a plain read at least 0.75", column("of the read", lambda m: m <= 32), 0.75),
        judge("the same: at least 0.85", column("of the read", lambda m: m <= 32), 0.85, is_goal=True),
        judge("4-bit weights, 64 rows: 0.80 of the read's or of the 16-bit product's rate, whichever is less", lesser, 0.80),
        judge("4-bit weights, 4,096 rows: 0.85 of the 16-bit product's rate", column("of the 16-bit rate", lambda m: m >= 4096), 0.85),
        judge("masked groups of 4-bit weights, up to 64 rows: of a plain read at least 0.80", masked, 0.80),
    ]


def drawn_bars(logs):
    drawn = [row for name, log in logs.items() if name.startswith("drawn-") for row in rows_of(log)]
    chosen = [row for name, log in logs.items() if name.startswith("choice-") for row in rows_of(log)]
    at = lambda row: f"{row['M']} x {row['N']} x {row['K']}"
    ratios = [(number(row["ratio"]), at(row)) for row in drawn]
    over = [(number(row["choice over best"]), f"{row['types']} {at(row)}") for row in chosen]
    far = [(sum(value > 1.15 for value, _ in over) / len(over), f"{len(over)} products")] if over else []
    return [
        judge("bf16 products that are drawn: none under 0.97 of cuBLAS", ratios, LEAST, is_goal=True),
        judge("bf16 products that are drawn: no slower than cuBLAS in the geometric mean", mean_of(ratios), 1.0),
        judge("the choice over the best candidate, in the geometric mean: at most 1.03", mean_of(over), 1.03, at_least=False),
        judge("the share of choices above 1.15 times the best: at most 0.05", far, 0.05, at_least=False),
    ]


def verdicts(logs):
    """logs: what each case printed, by its name."""
    return block_bars(logs) + group_bars(logs) + weight_bars(logs) + drawn_bars(logs)
