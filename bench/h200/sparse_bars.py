"""What `sparse` measures, and the verdicts over it: cases, tables out of their logs, bars."""
import re

from serving_bars import PUBLISHED, Case, Verdict, judge, number, rows_of, table  # noqa: F401

COLUMNS = ("4096", "32768", "131072", "1048576")
LONG_US = 20  # of a row of 131,072
RECALL, COSINE = 0.9, 0.998
STEP = re.compile(r"^(?P<kind>.+?), (?P<format>e4m3|mxfp4) indexer: .*recall (?P<recall>[0-9.]+), cosine .* (?P<cosine>[0-9.]+)$")


def cases(shim):
    """In the order in which they run; seconds are estimates."""
    ours = ("--library", shim)
    tests = (*ours, "--peer-tests", "--spaced", "--repeat", "5")  # all that DeepGEMM's tests time, as they do
    found = [Case("indexer-ragged", "indexer.py", (*tests, "--form", "ragged"), 420, ("deep_gemm",)),
             Case("indexer-paged", "indexer.py", (*tests, "--form", "paged"), 150, ("deep_gemm",)),
             Case("indexer-fp4", "indexer.py", (*ours, "--format", "mxfp4", "--ragged", "2048x8192x64", "--paged", "256x8192x1x64"), 40)]
    found += [Case(f"topk-{n}", "topk.py", (*ours, "--n", n, "--m", "1,8,64,256", "--k", "512,2048"), 90, ("flashinfer",)) for n in COLUMNS]
    found += [Case(f"listed-{heads}", "sparse_attention.py", (*ours, "--heads", heads, "--cases", "128x1,128x2,1x4096"), 90, ("flash_mla",))
              for heads in ("128", "64", "16")]
    # Slots that a format leaves room for; blocks of listed keys have two, whatever they come from.
    found.append(Case("stages", "scaled_keys.py", (*ours, "--runs", "32/8:128:1:32x8192", "--pins", ";".join(f"stages={n}" for n in (2, 3, 4, 6))), 60))
    found += [Case("pages", "scaled_keys.py", (*ours, "--shapes", "20"), 90)]
    return found + [Case("step", "examples/python/sparse_attention.py", ("--gpu",), 60)]


def fastest(rows, peer):
    """Of each form the least time of ours, and the peer's."""
    ours, theirs = {}, {}
    for row in rows:
        times = theirs if row["kernel"] == peer else ours
        if us := number(row["us"]):
            times[row["form"]] = min(us, times.get(row["form"], us))
    return ours, theirs


def indexer_bars(logs):
    bars = []
    for name, text in (("indexer-ragged", "fp8_mqa_logits"), ("indexer-paged", "its paged form")):
        ours, theirs = fastest(rows_of(logs.get(name, "")), "DeepGEMM")
        ratios = [(theirs[form] / us, form) for form, us in ours.items() if form in theirs]
        bars.append(judge(f"indexer's scores: no slower than DeepGEMM's {text}", ratios, 1.0, note="" if ratios or not ours else "no peer"))
        bars.append(judge("the same: 1.1 times", ratios, 1.1, is_goal=True))
    return bars


def topk_bars(logs):
    rows = [row for name, log in logs.items() if name.startswith("topk-") for row in rows_of(log)]
    at = lambda row: f"{row['rows']} x {row['columns']}, k {row['k']}"
    ratios = {}
    for row in rows:  # three columns have this name: only by their place
        us, peers = number(row["tessera us"]), {"torch.topk": row["torch.topk us"], "FlashInfer": row["FlashInfer us"]}
        for peer, text in peers.items():
            if us and number(text):
                ratios.setdefault(peer, []).append((number(text) / us, at(row)))
    bars = [judge(f"top-k of every shape: faster than {peer}", ratios.get(peer, []), 1.0, note="" if ratios.get(peer) or not rows else "no peer")
            for peer in ("torch.topk", "FlashInfer")]
    long = [(number(row["tessera us"]), f"k {row['k']}") for row in rows if row["rows"] == "1" and row["columns"] == "131072"]
    return bars + [judge(f"top-k of one row of 131,072: below {LONG_US} us", long, LONG_US, at_least=False, unit=" us")]


def listed_bars(logs):
    rows = [row for name, log in logs.items() if name.startswith("listed-") for row in rows_of(log)]

    def against_peer(text, chosen, figure, bound, is_goal=False):
        ratios = [(number(row["times FlashMLA"]), f"{row['keys']} {row['queries']}") for row in chosen if number(row["times FlashMLA"])]
        note = ""
        if chosen and not ratios:
            note = "published figure"
            ratios = [((number(row["TFLOP/s"]) or 0) / PUBLISHED["sparse_tflops"][figure], f"{row['keys']} {row['queries']}") for row in chosen]
        return judge(text, ratios, bound, note=note, is_goal=is_goal)

    decode = [row for row in rows if row["keys"] in ("mla_656", "mla_584") and (row["heads"], row["queries"]) == ("128", "128 x 2")]
    prefill = [row for row in rows if (row["keys"], row["head_dim"], row["heads"], row["queries"]) == ("rows", "576", "128", "1 x 4096")]
    bars = [against_peer("decode of listed e4m3 rows, 128 heads, 2 queries: at least 0.95 of FlashMLA's speed", decode, "decode", 0.95),
            against_peer("the same: 1.05", decode, "decode", 1.05, is_goal=True),
            against_peer("prefill of listed bf16 rows, 128 heads: at least 0.95 of FlashMLA's speed", prefill, "prefill", 0.95)]
    for heads, bound, text in (("16", 1.0, "faster than from e4m3 rows"), ("128", 1.1, "at most 1.10 of the time from e4m3 rows")):
        times = {(row["keys"], row["queries"]): number(row["us"]) for row in rows if row["heads"] == heads and row["head_dim"] == "512"}
        ratios = [(us / times["mla_584", queries], queries) for (keys, queries), us in times.items()
                  if keys == "mla_384" and us and times.get(("mla_584", queries)) and not queries.startswith("1 x")]
        bars.append(judge(f"decode of listed FP4 rows, {heads} heads: {text}", ratios, bound, at_least=False))
    return bars


def page_bars(logs):
    rows = rows_of(logs.get("pages", ""))
    at = lambda row: f"{row['K and V']} {row['batch x keys']}"
    e4m3 = {row["batch x keys"]: number(row["tessera us"]) for row in rows if row["K and V"] == "e4m3"}
    beside = [(number(row["tessera us"]) / e4m3[row["batch x keys"]], at(row)) for row in rows
              if row["K and V"] == "nvfp4" and e4m3.get(row["batch x keys"]) and number(row["tessera us"])]
    reads = [(number(row["of a plain read"]), at(row)) for row in rows if row["K and V"] in ("nvfp4", "mxfp8")]
    return [judge("decode over NVFP4 pages: less time than over e4m3 ones", beside, 1.0, at_least=False),
            judge("decode over NVFP4 and MXFP8 pages: 0.85 of a plain read", reads, 0.85)]


def step_bars(logs):
    found = [match for line in logs.get("step", "").splitlines() if (match := STEP.match(line.strip()))]
    at = lambda one: f"{one['format']}, {one['kind']}"
    return [judge(f"a step of sparse attention: recall of the e4m3 indexer at least {RECALL}",
                  [(number(one["recall"]), at(one)) for one in found if one["format"] == "e4m3"], RECALL),
            judge(f"a step of sparse attention: cosine of o with float64 at least {COSINE}",
                  [(number(one["cosine"]), at(one)) for one in found], COSINE)]


def verdicts(logs):
    """logs: what each case printed, by its name."""
    return indexer_bars(logs) + topk_bars(logs) + listed_bars(logs) + page_bars(logs) + step_bars(logs)
