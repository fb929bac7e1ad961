#!/usr/bin/env python3
"""The planner's choices for Blackwell GPUs, each beside the best of all candidates, as the time model predicts them.

choices.py list                                                   the drawn problems
choices.py predict TESSERA OUT.jsonl [--jobs N] [--seconds S]     what `tessera plan --time` says of each candidate of each problem
choices.py gather OUT.jsonl... > WHOLE.jsonl                      a line for each problem whose first candidates (FIRST) are there
choices.py table WHOLE.jsonl [--planner TESSERA] [--behind 0.06]  a row for each operator; problems that are further behind

Problems are drawn by a fixed seed: operators with a kernel for these targets, with types, layouts and sizes of models in use.
`predict` writes a line for each candidate, and goes on where OUT.jsonl and the files of --known end: to end it at any moment loses
nothing but what is under way. `--planner`: what another tessera chooses, beside what the one that predicted did; a kernel
that the latter had not among its candidates is told. A choice is behind by its predicted time over the best candidate's, less one."""

import argparse
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from concurrent.futures import ThreadPoolExecutor, as_completed

SEED = 20261130
LAYERS = [(7168, 16384), (4096, 7168), (7168, 2048), (24576, 1536), (4096, 4096), (14336, 4096), (4096, 14336), (6144, 4096),
          (2048, 7168), (1536, 7168), (8192, 8192), (3072, 7168)]
# Candidates of a problem, by the planner's order, that must have a time; the others come last. Of 25 problems by tcgen05 that had
# times of all the best was among the first 8; of 44 by mma.sync that had 11 to 71 one within 2.3 % of the best among the first 12.
FIRST = {"b200": 8, "b300": 8, "rtx5090": 12, "gb10": 12}
TARGETS = {"b200": "sm_100a", "b300": "sm_103a", "rtx5090": "sm_120a", "gb10": "sm_121a"}


def product(r, gpu, dtype, most_rows=4096, more=""):
    n, k = r.choice(LAYERS)
    m = r.choice([rows for rows in (1, 16, 32, 64, 128, 192, 256, 512, 1024, 2048, 4096) if rows <= most_rows])
    return f"gemm --dtype {dtype} {more} --m {m} --n {n} --k {k}"


def grouped(r, gpu, dtype):
    n, k = r.choice([(4096, 7168), (7168, 2048), (2048, 4096), (6144, 3072), (3072, 4096)])
    if r.random() < 0.5:
        return f"gemm --dtype {dtype} --grouping masked --m {r.choice([8, 32, 64, 128, 256])} --n {n} --k {k} --l {r.choice([8, 16, 32])}"
    return f"gemm --dtype {dtype} --grouping contiguous --m {r.choice([1024, 4096, 8192])} --n {n} --k {k} --l {r.choice([8, 16, 32])}"


def gemv(r, gpu, form):
    return f"gemv {form} --m {r.choice([1024, 2048, 4096, 7168, 8192])} --k {r.choice([2048, 4096, 7168, 8192, 16384])}"


def prefill(r, gpu, head_dim, more=""):
    s, heads_q = r.choice([512, 1024, 2048, 4096]), r.choice([8, 16, 32])
    return (f"fmha --head-dim {head_dim} {more} --mask {r.choice(['none', 'causal'])} --batch {r.choice([1, 2, 4])} --heads-q {heads_q} "
            f"--heads-kv {heads_q // r.choice([1, 1, 4])} --seqlen-q {s} --seqlen-k {s}")


def decode(r, gpu, head_dim, more=""):
    heads_q = r.choice([16, 32])
    return (f"fmha --head-dim {head_dim} --mask causal {more} --batch {r.choice([1, 4, 8, 16, 32])} --heads-q {heads_q} "
            f"--heads-kv {heads_q // r.choice([1, 4, 8])} --seqlen-q {r.choice([1, 1, 2])} --seqlen-k {r.choice([1024, 2048, 4096, 8192])}")


def latent(r, gpu, more=""):
    return (f"fmha --head-dim 576 --head-dim-v 512 --v-is-k on {more} --heads-kv 1 --heads-q {r.choice([16, 64, 128])} "
            f"--seqlen-q {r.choice([1, 2])} --seqlen-k {r.choice([2048, 4096, 8192])} --batch {r.choice([8, 16, 32])}")


def listed(r, gpu, more):
    return f"fmha {more} --heads-kv 1 --heads-q {r.choice([64, 128])} --seqlen-q {r.choice([1, 2, 64])} --batch {r.choice([1, 8, 32])}"


def blocks(r, gpu, op, form):
    return f"{op} {form} --rows {r.choice([1, 64, 512, 2048, 4096])} --k {r.choice([2048, 4096, 7168])}"


def rows(r, gpu, chain):
    return f"rows {chain} --columns {r.choice([1024, 2048, 4096, 7168])} --rows {r.choice([1, 64, 256, 1024, 4096, 8192])}"


def merge(r, gpu, more=""):
    return (f"merge --head-dim-v {r.choice([64, 128, 256, 512])} --parts {r.choice([2, 4, 8, 16])} --batch {r.choice([1, 8, 16])} "
            f"--heads-q {r.choice([16, 32])} --seqlen-q {r.choice([1, 4, 32])}")


def topk(r, gpu, more=""):
    return f"topk --k {r.choice([64, 512, 2048])} --m {r.choice([1, 8, 64, 256])} --n {r.choice([8192, 32768, 131072])}"


def indexer(r, gpu, more):
    return f"indexer {more} --m {r.choice([64, 512, 2048])} --n {r.choice([4096, 8192, 32768])}"


def mhc(r, gpu, more=""):
    return f"mhc_product --m {r.choice([1, 64, 512, 4096])} --k {r.choice([4096, 16384, 28672])}"


# operator of the table, how many of its problems, how one is drawn
PRODUCTS = ["bf16", "f16", "e4m3", "nvfp4", "mxfp4", "mxfp8_e4m3"]
B200 = [
    *((f"gemm {dtype}", 10 if dtype != "f16" else 4, product, (dtype,)) for dtype in PRODUCTS),
    ("gemm mixed", 5, product, ("mxfp8_e4m3", 4096, "--b-dtype mxfp4")),
    ("gemm tf32", 3, product, ("tf32",)), ("gemm s8", 3, product, ("s8",)),
    ("gemm gate", 5, product, ("bf16", 4096, "--gate dual")), ("gemm gate nvfp4", 4, product, ("nvfp4", 4096, "--gate dual")),
    *((f"gemm grouped {dtype}", 4, grouped, (dtype,)) for dtype in ("bf16", "e4m3", "nvfp4")),
    *((f"gemv {name}", count, gemv, (form,)) for name, count, form in (
        ("nvfp4", 6, "--format nvfp4"), ("mxfp8", 6, "--format mxfp8_e4m3"), ("mxfp4", 4, "--format mxfp4"),
        ("nvfp4 tiles", 4, "--format nvfp4 --scale-form tile"))),
    *((f"attention {d}", 4, prefill, (d,)) for d in (64, 96, 128, 192, 256)),
    ("attention e4m3", 4, prefill, (128, "--dtype e4m3")),
    ("decode 64", 4, decode, (64,)), ("decode 128", 6, decode, (128,)), ("decode 256", 3, decode, (256,)),
    ("decode pages", 5, decode, (128, "--kv-layout paged --page-size 64")),
    ("decode e4m3 keys", 4, decode, (128, "--kv-dtype e4m3")),
    ("decode scaled keys", 3, decode, (128, "--kv-format nvfp4 --kv-layout paged --page-size 64")),
    ("decode scaled keys", 3, decode, (128, "--kv-format mxfp8 --kv-layout paged --page-size 64")),
    ("latent", 5, latent, ()), ("latent e4m3 keys", 3, latent, ("--kv-dtype e4m3",)),
    ("listed", 3, listed, ("--head-dim 512 --head-dim-v 512 --v-is-k on --kv-pools sparse_window",)),
    *((f"quantize {f}", 3, blocks, ("quantize", f"--format {f}")) for f in ("nvfp4", "mxfp8_e4m3", "mxfp4")),
    *((f"dequantize {f}", 3, blocks, ("dequantize", f"--format {f}")) for f in ("nvfp4", "mxfp8_e4m3")),
    ("rows norm", 6, rows, ("",)), ("rows gate", 3, rows, ("--chain gate(silu)",)),
    ("rows norm quantize", 4, rows, ("--chain residual(store)+rmsnorm+nvfp4",)),
    ("merge", 6, merge, ()), ("topk", 6, topk, ()), ("indexer", 4, indexer, ("",)), ("indexer mxfp4", 4, indexer, ("--format mxfp4",)),
    ("mhc_product", 4, mhc, ()),
]
RTX5090 = [
    *((f"gemm {dtype}", 5, product, (dtype, 1024)) for dtype in PRODUCTS),
    ("gemm mixed", 3, product, ("mxfp8_e4m3", 1024, "--b-dtype mxfp4")), ("gemm s8", 2, product, ("s8", 1024)),
    ("gemm gate", 3, product, ("bf16", 1024, "--gate dual")),
    *((f"gemm grouped {dtype}", 2, grouped, (dtype,)) for dtype in ("bf16", "nvfp4")),
    *((f"gemv {name}", count, gemv, (form,)) for name, count, form in (
        ("nvfp4", 6, "--format nvfp4"), ("mxfp8", 6, "--format mxfp8_e4m3"), ("mxfp4", 4, "--format mxfp4"),
        ("nvfp4 tiles", 4, "--format nvfp4 --scale-form tile"))),
    *((f"attention {d}", 2, prefill, (d,)) for d in (64, 96, 128, 192, 256)),
    ("attention nvfp4", 3, prefill, (128, "--dtype nvfp4")),
    ("decode 128", 4, decode, (128,)), ("decode 64", 2, decode, (64,)), ("decode pages", 3, decode, (128, "--kv-layout paged --page-size 64")),
    ("decode e4m3 keys", 3, decode, (128, "--kv-dtype e4m3")),
    ("listed", 3, listed, ("--head-dim 128 --kv-pools sparse_window",)),
    *((f"quantize {f}", 2, blocks, ("quantize", f"--format {f}")) for f in ("nvfp4", "mxfp8_e4m3")),
    ("dequantize nvfp4", 2, blocks, ("dequantize", "--format nvfp4")),
    ("rows norm", 5, rows, ("",)), ("rows norm quantize", 3, rows, ("--chain residual(store)+rmsnorm+nvfp4",)),
    ("merge", 4, merge, ()), ("topk", 4, topk, ()), ("indexer", 3, indexer, ("",)), ("indexer mxfp4", 2, indexer, ("--format mxfp4",)),
    ("mhc_product", 3, mhc, ()),
]
B300 = [("gemm nvfp4", 3, product, ("nvfp4",)), ("gemm bf16", 2, product, ("bf16",)), ("gemv nvfp4", 2, gemv, ("--format nvfp4",)),
        ("attention 128", 2, prefill, (128,)), ("decode 128", 2, decode, (128,))]
GB10 = [("gemm bf16", 2, product, ("bf16", 512)), ("gemm nvfp4", 3, product, ("nvfp4", 512)), ("gemv nvfp4", 3, gemv, ("--format nvfp4",)),
        ("gemv mxfp8", 2, gemv, ("--format mxfp8_e4m3",)), ("attention 128", 2, prefill, (128,)), ("decode 128", 2, decode, (128,))]


def problems():
    """Each kind has a generator of its own, so that a kind more moves no other one's problems."""
    for gpu, kinds in (("b200", B200), ("rtx5090", RTX5090), ("b300", B300), ("gb10", GB10)):
        seen = set()
        for kind, count, one, arguments in kinds:
            r, found = random.Random(f"{SEED} {gpu} {kind} {arguments}"), 0
            while found < count:
                words = " ".join(one(r, gpu, *arguments).split())
                if words not in seen:
                    seen.add(words)
                    yield {"gpu": gpu, "kind": kind, "problem": words, "turn": found}
                    found += 1


def candidates(tessera, row):
    """Kernels with the flags that pin them, the planner's choice first, then by its model."""
    op, *words = row["problem"].split()
    command = [tessera, "tune", op, "--arch", TARGETS[row["gpu"]], *words, "--dry-run", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {one["kernel"]: " ".join(f"--{key.replace('_', '-')} {text}" for key, text in one["pins"].items())
            for one in json.loads(done.stdout)["problems"][0]["candidates"]}


def predicted(args, row, kernel, pins, seconds):
    """The candidate's line; None where its time was up before it was done."""
    op, *words = row["problem"].split()
    with tempfile.TemporaryFile("w+") as out:
        begin = time.time()
        child = subprocess.Popen([args.tessera, "plan", op, "--arch", TARGETS[row["gpu"]], *words, *pins.split(), "--time", row["gpu"], "--json",
                                  *(["--cache-dir", args.cache_dir] if args.cache_dir else [])], stdout=out, stderr=subprocess.STDOUT)
        timer = threading.Timer(min(seconds, args.limit), child.kill)
        timer.start()
        _, status, usage = os.wait4(child.pid, 0)
        timer.cancel()
        child.returncode = status
        out.seek(0)
        text = out.read()
    line = {"gpu": row["gpu"], "problem": row["problem"], "kernel": kernel, "model": args.model, "cpu_s": round(usage.ru_utime + usage.ru_stime, 1)}
    try:
        return {**line, "time_us": json.loads(text)["predicted"]["time_us"]}
    except (ValueError, KeyError):
        if status != 0 and time.time() - begin > seconds - 1:
            return None
        return {**line, "fault": text[-300:] if status == 0 else f"status {status}: {text[-300:]}"}


def key_of(row):
    return row["gpu"], row["problem"]


def read(paths):
    return [json.loads(text) for path in paths if pathlib.Path(path).exists() for text in open(path)]


def predict(args):
    known = read([args.out, *args.known])
    whole = {key_of(row) for row in known if "times_us" in row}
    there = {(*key_of(row), row["kernel"]) for row in known if "kernel" in row}
    todo = [row for row in problems() if key_of(row) not in whole and re.search(args.only, f"{row['gpu']} {row['kind']}")]
    # So that of every kind there are some wherever it ends; products and attention before what has few candidates, groups last (11 to 43 s each).
    todo.sort(key=lambda row: ("grouped" in row["kind"], row["turn"] + (FIRST[row["gpu"]] > 8), not re.match("gemm|attention", row["kind"])))
    if args.part:
        of = [int(number) for number in args.part.split("/")]
        todo = todo[of[0]::of[1]]
    begin = time.time()

    def left():
        return args.seconds - (time.time() - begin) if args.seconds else float("inf")

    def one(row, kernel, pins):
        return predicted(args, row, kernel, pins, left()) if left() > 1 else None

    with ThreadPoolExecutor(args.jobs) as pool, open(args.out, "a") as out:
        def write(line):
            out.write(json.dumps(line) + "\n")
            out.flush()

        listed, asked = {key_of(row): row["candidates"] for row in known if isinstance(row.get("candidates"), dict)}, []
        for row, of in zip(todo, pool.map(lambda row: listed.get(key_of(row)) or candidates(args.tessera, row), todo)):
            if key_of(row) not in listed:
                write({**row, "choice": next(iter(of)), "candidates": of})
            asked += [(i >= FIRST[row["gpu"]], row, kernel, pins) for i, (kernel, pins) in enumerate(of.items()) if (*key_of(row), kernel) not in there]
        asked.sort(key=lambda one: one[0])
        print(f"# {len(todo)} problems, {len(asked)} candidates to do", file=sys.stderr, flush=True)
        for result in as_completed([pool.submit(one, *of[1:]) for of in asked]):
            if result.result():
                write(result.result())


def gathered(rows):
    """Problems whose first candidates all have a time or a fault. `candidates`: of how many, where some have neither."""
    whole = {key_of(row): row for row in rows if "times_us" in row}
    begun = {key_of(row): row for row in rows if isinstance(row.get("candidates"), dict)}
    times, faults, models = {}, {}, {}
    for row in rows:
        if "kernel" in row:
            (times if "time_us" in row else faults).setdefault(key_of(row), {})[row["kernel"]] = row.get("time_us", row.get("fault"))
            models.setdefault(key_of(row), set()).add(row["model"])
    for key, row in begun.items():
        of, out, names = times.get(key, {}), faults.get(key, {}), list(row["candidates"])
        if row["choice"] in of and all(kernel in of or kernel in out for kernel in names[:FIRST[row["gpu"]]]):
            whole[key] = {**{name: row[name] for name in ("gpu", "kind", "problem", "turn", "choice")},
                          "times_us": {kernel: round(of[kernel], 3) for kernel in sorted((one for one in names if one in of), key=of.get)},
                          **({"left_out": out} if out else {}), **({"candidates": len(names)} if len(of) + len(out) < len(names) else {}),
                          "model": ", ".join(sorted(models[key]))}
    return whole


def gather(args):
    for row in gathered(read(args.files)).values():
        print(json.dumps(row))


def planned(tessera, row):
    op, *words = row["problem"].split()
    done = subprocess.run([tessera, "plan", op, "--arch", TARGETS[row["gpu"]], *words, "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["kernel"]


def percent(values):
    return f" {100 * (statistics.geometric_mean(values) - 1):.1f} % | {100 * (max(values) - 1):.1f} % |"


def table(args):
    known = [row for row in map(json.loads, open(args.out)) if "times_us" in row]
    if args.planner:
        with ThreadPoolExecutor(args.jobs) as pool:
            for row, kernel in zip(known, pool.map(lambda row: planned(args.planner, row), known)):
                row["now"] = kernel
    print("| GPU | operator | problems | candidates | choice behind the best | worst |" + (" now | worst | worse than before |" if args.planner else ""))
    print("|---|---|---|---|---|---|" + ("---|---|---|" if args.planner else ""))
    of, told = {}, []
    for row in known:
        times = row["times_us"]
        best = min(times, key=times.get)
        row["behind"] = times[row["choice"]] / times[best]
        last = row.get("now", row["choice"])
        if last not in times:
            told.append((9, f"no time of {last}: {row['gpu']} {row['problem']}"))
            continue
        row["last"] = times[last] / times[best]
        for kind in {row["kind"].split()[0], row["kind"], "all"}:
            of.setdefault((row["gpu"], kind), []).append(row)
        if row["last"] > 1 + args.behind or row["last"] > row["behind"]:
            old = f" (before {row['choice']} {times[row['choice']]:.1f})" if last != row["choice"] else ""
            told.append((row["last"], f"{100 * (row['last'] - 1):5.1f} % {row['gpu']} {row['problem']}: {last} {times[last]:.1f}{old}, "
                                      f"best {best} {times[best]:.1f}"))
    for (gpu, kind), ones in sorted(of.items()):
        line = f"| {gpu} | {kind} | {len(ones)} | {statistics.mean(len(one['times_us']) for one in ones):.0f} |" + percent([one["behind"] for one in ones])
        if args.planner:
            line += percent([one["last"] for one in ones]) + f" {sum(one['last'] > one['behind'] for one in ones)} |"
        print(line)
    print("\n".join(text for _, text in sorted(told, reverse=True)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("list").set_defaults(do=lambda _: print("\n".join(json.dumps(row) for row in problems())))
    one = commands.add_parser("predict")
    one.add_argument("tessera")
    one.add_argument("out", type=pathlib.Path)
    one.add_argument("--jobs", type=int, default=1)
    one.add_argument("--seconds", type=int, default=0, help="end after these")
    one.add_argument("--limit", type=int, default=600, help="seconds of one candidate")
    one.add_argument("--known", nargs="*", default=[], help="what needs not be predicted again")
    one.add_argument("--model", default="", help="the commit of the emulator that predicts")
    one.add_argument("--cache-dir")
    one.add_argument("--only", default="", help="a pattern that a GPU and an operator fit, as the table has them")
    one.add_argument("--part", help="I/N: every Nth problem from the Ith on")
    one.set_defaults(do=predict)
    one = commands.add_parser("gather")
    one.add_argument("files", nargs="+", type=pathlib.Path)
    one.set_defaults(do=gather)
    one = commands.add_parser("table")
    one.add_argument("out", type=pathlib.Path)
    one.add_argument("--planner")
    one.add_argument("--jobs", type=int, default=2)
    one.add_argument("--behind", type=float, default=0.06)
    one.set_defaults(do=table)
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()
