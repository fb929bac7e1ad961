"""What `serving` measures, and the verdicts over it: cases, tables out of their logs, bars."""
import dataclasses
import json
import pathlib

PUBLISHED = json.loads(pathlib.Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
HEADS, PAGES = ("32/8", "64/8"), (16, 64)
LARGE_MB = 256  # of K and V: from here on memory alone is the limit


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    script: str  # below bench/peers; with a folder, below the root
    arguments: tuple
    seconds: int  # what it takes about
    peers: tuple = ()  # modules that it compares with


def cases(shim, old_shim):
    """In the order in which they run. {library}: the shim, {old}: the one to compare with."""
    ours = ("--library", shim)
    found = [Case(f"decode-{heads.replace('/', '-')}-page{page}", "serving_decode.py",
                  (*ours, "--heads", heads, "--page-size", str(page)), 70, ("flashinfer",))
             for heads in HEADS for page in PAGES]
    found += [Case(f"e4m3-{heads.replace('/', '-')}-page{page}", "fmha_decode.py",
                   (*ours, "--heads", heads, "--page-size", str(page), "--kv-dtype", "bf16,e4m3"), 70)
              for heads in HEADS for page in (0, *PAGES)]
    found += [Case(f"mla-{queries}", "mla_decode.py",
                   (*ours, "--heads", "128", "--seqlen-q", str(queries), "--page-size", "64",
                    "--cases", "128x4096,128x8192,128x16384,128x32768"), 60, ("flash_mla",)) for queries in (1, 2)]
    found += [Case("fp8-prefill", "fmha_fp8.py", ours, 60)]
    found += [Case(f"ragged-{heads.replace('/', '-')}", "fmha_ragged.py", (*ours, "--heads", heads, "--page-size", "64,16"), 90)
              for heads in ("16/16", "32/8")]
    found += [Case("step", "mixed_step.py", (*ours, "--kinds", "bf16,kv-e4m3,e4m3"), 100)]
    found += [Case("dense-512", "fmha_vs_cudnn.py", (*ours, "--seqlen", "512", "--hints", "--dtype", "bf16,f16"), 30)]
    if old_shim:
        found += [Case(f"old-{kind}", "old_and_new.py", ("--old", old_shim, "--new", shim, "--kinds", kind), 150)
                  for kind in ("attention", "gemm")]
    return found


def rows_of(log):
    """The rows of all Markdown tables in a text, each a dict by the heads of its columns."""
    found, heads, last = [], None, None
    for line in log.splitlines():
        if not line.startswith("|"):
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if all(cell and set(cell) <= set("-:") for cell in cells):
            heads = last
        elif heads and len(heads) == len(cells):
            found.append(dict(zip(heads, cells)))
        last = cells
    return found


def number(text):
    """A cell's number; None for "-", "nan" and words."""
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if value == value else None


@dataclasses.dataclass
class Verdict:
    bar: str
    measured: str
    status: str  # met, missed, not measured
    is_goal: bool = False


def judge(bar, values, bound, at_least=True, unit="", note="", is_goal=False):
    """The worst of [(value, where)] against a bound; "not measured" without any."""
    values = [(value, where) for value, where in values if value is not None]
    if not values:
        return Verdict(bar, note or "-", "not measured", is_goal)
    worst, where = min(values) if at_least else max(values)
    is_met = worst >= bound if at_least else worst <= bound
    count = sum(value >= bound if at_least else value <= bound for value, _ in values)
    measured = f"{worst:.3f}{unit} at {where}; {count} of {len(values)} meet it" + (f" ({note})" if note else "")
    return Verdict(bar, measured, "met" if is_met else "missed", is_goal)


def fastest(rows, keys, time):
    """Of rows that differ in kernels alone the one with the least time."""
    best = {}
    for row in rows:
        key = tuple(row.get(k) for k in keys)
        us = number(row.get(time))
        if us is not None and (key not in best or us < number(best[key][time])):
            best[key] = row
    return list(best.values())


def decode_bars(logs):
    rows = fastest([row for name, log in logs.items() if name.startswith("decode-") for row in rows_of(log)],
                   ("heads", "batch x keys", "page"), "us")
    at = lambda row: f"{row['heads']} {row['batch x keys']} pages of {row['page']}"
    large = [(number(row["of a plain read"]), at(row)) for row in rows if (number(row["K and V MB"]) or 0) >= LARGE_MB]
    bars = [judge("bf16 decode, K and V from 256 MB on: of a plain read at least 0.92", large, 0.92),
            judge("the same: at least 0.96", large, 0.96, is_goal=True)]

    def against_peer(text, names, bound):
        measured, published = [], []
        figures = PUBLISHED["decode_us"]
        for row in rows:
            if row["batch x keys"] not in names:
                continue
            us, peer = number(row["us"]), number(row["fastest peer us"])
            figure = figures["bf16"].get(row["batch x keys"]) if row["heads"] == figures["heads"] else None
            if peer:
                measured.append((us / peer, f"{at(row)} beside {row['peer']}"))
            elif figure:
                published.append((us / figure, f"{at(row)}, {figure} us"))
        note = "published figure" if published and not measured else "no peer" if rows and not measured else ""
        return judge(text, measured or published, bound, at_least=False, note=note)

    return bars + [against_peer("bf16 decode 8 x 1,024: at most 0.9 of the fastest peer's time", ("8x1024",), 0.9),
                   against_peer("bf16 decode of one sequence: no slower than the fastest peer",
                                ("1x1024", "1x32768", "1x131072"), 1.0),
                   against_peer("bf16 decode, 64 drawn lengths: at most 1 / 1.05 of the fastest peer's time", ("drawn64",), 1 / 1.05)]


def e4m3_bars(logs):
    rows = fastest([row for name, log in logs.items() if name.startswith("e4m3-") for row in rows_of(log)],
                   ("heads", "batch x keys", "page", "K and V"), "tessera us")
    at = lambda row: f"{row['heads']} {row['batch x keys']} {row['page']}"
    narrow = [row for row in rows if row["K and V"] == "e4m3"]
    wide = {at(row): number(row["tessera us"]) for row in rows if row["K and V"] == "bf16"}
    large = [(number(row["of a plain read"]), at(row)) for row in narrow if (number(row["K and V MB"]) or 0) >= LARGE_MB]
    beside = [(number(row["tessera us"]) / wide[at(row)], at(row)) for row in narrow if wide.get(at(row))]
    return [judge("e4m3 caches from 256 MB on: of a plain read at least 0.85", large, 0.85),
            judge("the same: at least 0.92", large, 0.92, is_goal=True),
            judge("e4m3 caches: at most the time of bf16 ones of the same lengths", beside, 1.0, at_least=False)]


def mla_bars(logs):
    rows = fastest([row for name, log in logs.items() if name.startswith("mla-") for row in rows_of(log)],
                   ("heads", "queries", "batch x keys", "page"), "tessera us")
    at = lambda row: f"{row['queries']} of {row['batch x keys']}"
    speeds, note = [(number(row["ratio"]), at(row)) for row in rows], ""
    if rows and not any(speed for speed, _ in speeds):
        figure, note = PUBLISHED["mla_tflops"]["two_queries"], "published figure, of two queries"
        speeds = [(number(row["TFLOPS"]) / figure, at(row)) for row in rows if row["queries"] == "2"]
    return [judge("MLA decode, 128 heads, batch 128: at least 0.95 of FlashMLA's speed", speeds, 0.95, note=note),
            judge("the same: at least 1.05", speeds, 1.05, note=note, is_goal=True)]


def prefill_bars(logs):
    fp8 = [row for row in rows_of(logs.get("fp8-prefill", "")) if row.get("head_dim") == "128" and row.get("S") == "16384"]
    fp8 = [max(of_mask, key=lambda row: number(row["tessera TFLOP/s"]) or 0)
           for mask in ("none", "causal") if (of_mask := [row for row in fp8 if row["mask"] == mask])]
    ratios, note = [(number(row.get("ratio")), row["mask"]) for row in fp8], ""
    if fp8 and not any(ratio for ratio, _ in ratios):
        note = "published figure"
        ratios = [((number(row["tessera TFLOP/s"]) or 0) / PUBLISHED["fp8_prefill_tflops"][row["mask"]], row["mask"]) for row in fp8]
    bars = [judge("fp8 prefill, head_dim 128, 16k, full and causal: at least the best peer's speed", ratios, 1.0, note=note),
            judge("the same: at least 1.05", ratios, 1.05, note=note, is_goal=True)]
    ragged = fastest([row for name, log in logs.items() if name.startswith("ragged-") for row in rows_of(log)],
                     ("heads", "sequences", "mask", "keys"), "ragged us")
    for keys, bound, text in (("packed", 1.03, "packed keys: at most 3 %"), ("pages of 64", 1.06, "pages of 64: at most 6 %"),
                              ("pages of 16", 1.12, "pages of 16: at most 12 %")):
        values = [(number(row["ragged / dense"]), f"{row['heads']} {row['sequences']} {row['mask']}") for row in ragged
                  if row["keys"] == keys and row["sequences"] != "mixed"]
        bars.append(judge(f"ragged prefill of 16k tokens, {text} slower than dense", values, bound, at_least=False))
    steps = [(number(row["one / two"]), row["step"]) for row in rows_of(logs.get("step", ""))]
    return bars + [judge("an engine's step in one launch: less time than prefills and decodes in two", steps, 1.0, at_least=False)]


def dense_bars(logs):
    bars = []
    for kind in ("attention", "gemm"):
        rows = rows_of(logs.get(f"old-{kind}", ""))
        ratios = [ratio for row in rows if (ratio := number(row["new over old"]))]
        mean = 1.0
        for ratio in ratios:
            mean *= ratio ** (1 / len(ratios))
        bars.append(judge(f"dense tables, {kind}: geometric mean of new over old at most 1.01",
                          [(mean, f"{len(ratios)} cells")] if ratios else [], 1.01, at_least=False))
    short = [(number(row["ratio"]), f"{row['dtype']} {row['head_dim']} {row['mask']}") for row in rows_of(logs.get("dense-512", ""))]
    return bars + [judge("S = 512 beside cuDNN: nowhere under 1.03", short, 1.03, is_goal=True)]


def verdicts(logs):
    """logs: what each case printed, by its name."""
    return decode_bars(logs) + e4m3_bars(logs) + mla_bars(logs) + prefill_bars(logs) + dense_bars(logs)


def table(found):
    lines = ["| bar | measured | |", "|---|---|---|"]
    lines += [f"| {'goal: ' if one.is_goal else ''}{one.bar} | {one.measured} | {one.status} |" for one in found]
    return "\n".join(lines) + "\n"
