"""What `rows` measures, and the verdicts over it: cases, tables out of their logs, bars."""
from serving_bars import Case, Verdict, judge, number, rows_of, table  # noqa: F401

# The eight chains that have bars, by the names of bench/peers/rows.py.
EIGHT = {
    "chain-residual-norm": "residual + RMSNorm",
    "chain-residual-norm-e4m3": "residual + RMSNorm + e4m3 1x128",
    "chain-swiglu-nvfp4": "SwiGLU + NVFP4",
    "chain-swiglu-e4m3": "SwiGLU + e4m3 1x128",
    "chain-rope-nvfp4": "inverse RoPE + NVFP4",
    "chain-mhc": "mHC post + pre + RMSNorm + MXFP8",
    "chain-cache-584": "RMSNorm + RoPE + 584-byte cache",
    "chain-append-e4m3": "RoPE + append of K and V to e4m3 pages",
}
# From what a layer made to the next one's input.
TWO = {"mhc-post": "mHC post + product", "mhc-pre": "mHC mix + pre + RMSNorm + MXFP8"}
# Others, which libraries have.
BESIDE = {"peer-append": "RoPE + append of K and V to pages", "peer-norm": "RMSNorm", "peer-swiglu": "SwiGLU", "peer-rope": "RoPE"}
# Those that torch.compile takes: most of their time is its.
COMPILED = ("chain-residual-norm", "chain-residual-norm-e4m3", "chain-swiglu-e4m3", "chain-mhc", "peer-norm", "peer-swiglu", "peer-rope")
PRODUCTS = ("28672", "16384", "7680", "7168")
LARGE_MB, FEW_ROWS, HEADS = 32, 64, 8


def cases(shim, has_deep_gemm):
    """In the order in which they run."""
    ours = ("--library", shim)
    found = [Case(name, "rows.py", (*ours, "--case", operator, "--rows", "1,16,64,4096,16384"), 30 if name in COMPILED else 10, ("flashinfer",))
             for name, operator in (EIGHT | TWO | BESIDE).items()]
    alone = () if has_deep_gemm else ("--no-peers",)
    return found + [Case(f"product-{k}", "mhc_product.py", (*ours, "--k", k, *alone), 30, ("deep_gemm",)) for k in PRODUCTS]


def is_few(row):
    """1 to 64 rows, or tokens where a row is a head."""
    return (number(row["rows"]) or 0) <= FEW_ROWS * (HEADS if "append of K and V" in row["operator"] or row["operator"] == "RoPE" else 1)


def chain_bars(logs):
    rows = {name: rows_of(logs.get(name, "")) for name in EIGHT | TWO | BESIDE}
    at = lambda row: f"{row['operator']}, {row['rows']} rows"
    bars = []
    for name, operator in (EIGHT | TWO).items():
        large = [(number(row["of the copy's speed"]), f"{row['rows']} rows") for row in rows[name]
                 if (number(row["MB"]) or 0) >= LARGE_MB]
        bars.append(judge(f"{operator}, from {LARGE_MB} MB on: at least 0.90 of a copy's speed", large, 0.90, is_goal=name in TWO))
        few = [(number(row["tessera us"]) / number(row["copy us"]), f"{row['rows']} rows") for row in rows[name]
               if is_few(row) and number(row["tessera us"]) and number(row["copy us"])]
        bars.append(judge(f"{operator}, 1 to {FEW_ROWS} rows: at most 1.5 times a copy's time", few, 1.5, at_least=False, is_goal=name in TWO))
    every = [row for of_case in rows.values() for row in of_case]
    for peer, column in (("torch.compile", "ratio"), ("FlashInfer", "times FlashInfer")):
        ratios = [(number(row.get(column)), at(row)) for row in every]
        bars.append(judge(f"row operators: no slower than {peer}", ratios, 1.0))
    return bars


def product_bars(logs):
    """The second table's: of a shape the fastest of ours, whole or in parts, beside the fastest of theirs."""
    best = [(number(row["time of DeepGEMM over ours"]), row["m x k"]) for k in PRODUCTS for row in rows_of(logs.get(f"product-{k}", ""))
            if "DeepGEMM's us" in row]
    return [judge("mHC's product: no slower than DeepGEMM's tf32_hc_prenorm_gemm", best, 1.0)]


def verdicts(logs):
    """logs: what each case printed, by its name."""
    return chain_bars(logs) + product_bars(logs)
