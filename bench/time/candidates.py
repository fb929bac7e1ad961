#!/usr/bin/env python3
"""Problems with several kernels each, for the order that predictions give them.

candidates.py draw TESSERA SEED COUNT [--jobs N] [--but FILE.jsonl ...] > LIST.jsonl  problems drawn by a seed, none of those files', and pins
                                                            of their kernels
candidates.py predict TESSERA GPU LIST.jsonl OUT.jsonl      what the model says (goes on where OUT.jsonl ends)
candidates.py judge OUT.jsonl TIMES.jsonl                   both, held against each other
candidates.py noise TIMES.jsonl                             the order of one round of timings against that of another

The order of a problem's kernels is judged twice. `by medians` every kernel has a place of its own. `as told apart` two kernels of
which neither is faster in every round of the recording have no order that was measured: a kernel's rank is the number of kernels that
are faster in every round, and half of those that are not told apart from it. Problems in which no two are told apart have no order and
are left out. From the eleventh draw on the verdict is this one's; it was set before that draw was made.

TIMES.jsonl is what bench_candidates printed of LIST.jsonl on that GPU, and can stand for the list. A line of LIST.jsonl is a problem:
{"problem": "gemm --m 512 ...", "pins": ["", "--tile-m 128 ...", ...]}; no pins are the planner's choice."""

import argparse
import json
import random
import statistics
import subprocess
import sys

from concurrent.futures import ThreadPoolExecutor, as_completed

M = [64, 128, 192, 256, 384, 512, 768, 1024, 1280, 1536, 2048, 2560, 3072, 4096]
N = [1024, 1536, 2048, 2560, 3072, 4096, 5120, 6144]
K = [512, 768, 1024, 1536, 2048, 3072, 4096, 5120, 7168]
EXTRA = ["", "", "", "", "", "", "--bias column", "--c matrix", "--activation silu", "--bias column --activation gelu",
         "--d-dtype f32", "--b-layout mn", "--gate dual"]


def product(r: random.Random) -> tuple[str, list]:
    dtype = r.choice(["bf16", "bf16", "f16", "e4m3"])
    extra = r.choice(EXTRA)
    if dtype == "e4m3" and extra == "--b-layout mn":
        extra = ""
    return f"gemm --dtype {dtype} {extra} --m {r.choice(M)} --n {r.choice(N)} --k {r.choice(K)}", product_pins(r)


def product_pins(r: random.Random) -> list:
    def one() -> str:
        pins = f"--tile-m {r.choice([64, 128, 128, 256])} --tile-n {r.choice([64, 96, 128, 128, 160, 192, 256])}"
        if r.random() < 0.4:
            pins += r.choice([" --cluster-m 1 --cluster-n 1", " --cluster-m 2 --cluster-n 1", " --cluster-m 1 --cluster-n 2"])
        if r.random() < 0.25:
            pins += f" --split-k {r.choice([2, 4])}"
        if r.random() < 0.2:
            pins += f" --stages {r.choice([3, 4])}"
        if r.random() < 0.2:
            pins += f" --kernel-schedule {r.choice(['cooperative', 'ping_pong'])}"
        return pins
    return [one() for _ in range(40)]


def scaled(r: random.Random) -> tuple[str, list]:
    pins = [f"--tile-m {m} --tile-n {n}{more}" for m in (64, 128, 256) for n in (64, 96, 128, 160, 192)
            for more in ("", " --stages 3", " --cluster-m 2 --cluster-n 1")]
    r.shuffle(pins)
    return (f"gemm --dtype e4m3 --a-scale-block 1x128 --b-scale-block 128x128 --m {r.choice(M[4:])} --n {r.choice(N)} "
            f"--k {r.choice(K[2:])}"), pins


def weights(r: random.Random) -> tuple[str, list]:
    kind = r.choice(["int4 --b-group 128", "mxfp4"])
    pins = [f"--tile-m {m} --tile-n {n}{more}" for m in (64, 128, 256) for n in (16, 32, 64, 96, 128)
            for more in ("", " --split-k 2", " --stages 3")]
    r.shuffle(pins)
    return f"gemm --dtype bf16 --b-dtype {kind} --m {r.choice(M[:9])} --n {r.choice(N[2:])} --k {r.choice([2048, 4096, 5120])}", pins


def attention(r: random.Random) -> tuple[str, list]:
    d = r.choice([64, 64, 96, 128, 128, 128, 160, 192, 256])
    mask = r.choice(["none", "causal"])
    s = r.choice([1024, 1536, 2048, 3072, 4096])
    hq, g, b = r.choice([8, 16]), r.choice([1, 1, 4]), r.choice([1, 2, 4])
    pins = [f"--tile-m {m} --tile-n {n} --stages {t}" for m in (64, 128, 192) for n in (32, 48, 64, 80, 96, 112, 128, 160, 176)
            for t in (2, 3)]
    r.shuffle(pins)
    dtype = r.choice(["bf16", "bf16", "f16"])
    return (f"fmha --dtype {dtype} --head-dim {d} --mask {mask} --batch {b} --heads-q {hq} "
            f"--heads-kv {hq // g} --seqlen-q {s} --seqlen-k {s}"), pins


def decode(r: random.Random) -> tuple[str, list]:
    pins = [f"--tile-m {m} --tile-n {n}{more}" for m in (16, 64) for n in (32, 64, 128)
            for more in (" --split-kv off", " --split-kv on --num-splits 2", " --split-kv on --num-splits 8",
                         " --split-kv on --num-splits 16", " --stages 3")]
    r.shuffle(pins)
    # The first eight draws had all 36 problems of 4, 8, 16 and 32 by 1,024, 2,048 and 4,096.
    b, s, g = r.choice([2, 4, 8, 12, 16, 24, 32]), r.choice([1024, 1280, 1536, 2048, 2560, 3072, 4096]), r.choice([1, 4, 8])
    return f"fmha --head-dim 128 --batch {b} --heads-q 32 --heads-kv {32 // g} --seqlen-q 1 --seqlen-k {s}", pins


def gemv(r: random.Random) -> tuple[str, list]:
    pins = [f"--warp-rows {a} --k-warps {b}" for a in (1, 2, 4) for b in (1, 2, 4, 8)]
    r.shuffle(pins)
    return (f"gemv --format {r.choice(['nvfp4', 'nvfp4', 'mxfp4', 'mxfp8_e4m3'])} --m {r.choice([1024, 2048, 4096, 8192])} "
            f"--k {r.choice([2048, 4096, 7168, 8192])}"), pins


def rows(r: random.Random) -> tuple[str, list]:
    pins = [f"--threads-of-row {t} --rows-of-cta {c}" for t in (32, 64, 128, 256, 512, 1024) for c in (1, 2, 4, 8)]
    r.shuffle(pins)
    # Of the first seven draws' 16 problems (1,024, 2,048, 4,096, 7,168 by 256, 1,024, 4,096, 8,192) two were left.
    columns, number = [1024, 1536, 2048, 3072, 4096, 5120, 6144, 7168], [256, 512, 1024, 2048, 4096, 8192]
    return f"rows --columns {r.choice(columns)} --rows {r.choice(number)}", pins


def merge(r: random.Random) -> tuple[str, list]:
    pins = [f"--threads {t} --at-once {a}" for t in (32, 64, 128, 256, 512) for a in (1, 2, 4, 8)]
    r.shuffle(pins)
    return (f"merge --head-dim-v 128 --parts {r.choice([4, 8])} --batch {r.choice([8, 16])} --heads-q 32 "
            f"--seqlen-q {r.choice([4, 8, 32])}"), pins


def quantize(r: random.Random) -> tuple[str, list]:
    pins = [f"--threads {t}" for t in (64, 128, 192, 256, 384, 512, 1024)]
    return f"quantize --format {r.choice(['mxfp8_e4m3', 'nvfp4', 'mxfp4'])} --rows {r.choice([1024, 2048, 4096])} --k {r.choice([4096, 7168])}", pins


KINDS = [(product, 52), (scaled, 8), (weights, 6), (attention, 20), (decode, 5), (gemv, 4), (rows, 3), (merge, 1), (quantize, 1)]


def kernel_of(tessera: str, line: str) -> str:
    done = subprocess.run([tessera, "plan", *line.split(), "--arch", "sm_90a", "--json"], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        return ""
    plan = json.loads(done.stdout)
    return plan.get("kernel", "")


def drawn(tessera: str, seed: str, kind, but: set) -> dict:
    """A problem of this kind with four kernels or more. Of a kind with few problems all may be among those to leave out."""
    r = random.Random(seed)
    tries = 1000
    for _ in range(tries):
        problem, pins = kind(r)
        problem = " ".join(problem.split())
        if problem in but:
            continue
        wanted, found, seen = r.randint(4, 8), [], set()
        for pin in ["", *pins]:
            kernel = kernel_of(tessera, f"{problem} {pin}")
            key = kernel + (pin.split("--num-splits")[1] if "--num-splits" in pin else "")
            if kernel and key not in seen:
                seen.add(key)
                found.append(pin)
            if len(found) == wanted:
                break
        if len(found) >= 4:
            return {"problem": problem, "pins": found}
    raise SystemExit(f"candidates.py: {kind.__name__}: in {tries} tries no problem with four kernels that --but leaves; the last one: {problem}")


def draw(args: argparse.Namespace) -> None:
    """Each problem by a seed of its own, kinds in turn, so that the first part of the list is like the whole."""
    kinds = [kind for kind, times in KINDS for _ in range(times)]
    kinds = [kinds[i * len(kinds) // args.count] for i in range(args.count)]
    random.Random(args.seed).shuffle(kinds)
    but = {json.loads(text)["problem"] for name in args.but for text in open(name)}
    with ThreadPoolExecutor(args.jobs) as pool:
        for i, one in enumerate(pool.map(lambda i: drawn(args.tessera, f"{args.seed} {i}", kinds[i], but), range(args.count))):
            while one["problem"] in but:  # two that were drawn at the same time
                one = drawn(args.tessera, f"{args.seed} {i} {len(but)}", kinds[i], but)
            but.add(one["problem"])
            print(json.dumps(one), flush=True)


def predicted(tessera: str, gpu: str, line: str) -> dict:
    command = [tessera, "run", *line.split(), "--arch", "sm_90a", "--device", "emulator", "--time", gpu, "--no-values",
               "--json", "--quiet"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        run = json.loads(done.stdout)
        return {"kernel": run["kernel"], "predicted_us": run["predicted"]["time_us"],
                "limit": "; ".join(k["limit"] for k in run["predicted"]["kernels"])}
    except (subprocess.TimeoutExpired, ValueError, KeyError) as error:
        print(f"# {line}: no prediction ({type(error).__name__})", file=sys.stderr)
        return {}


def predict(args: argparse.Namespace) -> None:
    try:
        done = {json.loads(text)["problem"] for text in open(args.out)}
    except FileNotFoundError:
        done = set()
    def one(text: str) -> str:
        problem = json.loads(text)
        all_pins = problem.get("pins") or [run["pins"] for run in problem["runs"]]
        found = [{"pins": pins, **predicted(args.tessera, args.gpu, f"{problem['problem']} {pins}")} for pins in all_pins]
        return json.dumps({"problem": problem["problem"], "runs": found}) + "\n"

    todo = [text for text in open(args.list) if json.loads(text)["problem"] not in done]
    with open(args.out, "a") as out, ThreadPoolExecutor(args.jobs) as pool:
        for result in as_completed([pool.submit(one, text) for text in todo]):
            out.write(result.result())
            out.flush()


def correlation(a: list[float], b: list[float]) -> float:
    """Spearman's, without ties."""
    def ranks(values: list[float]) -> list[int]:
        order = sorted(range(len(values)), key=lambda i: values[i])
        result = [0] * len(values)
        for rank, i in enumerate(order):
            result[i] = rank
        return result
    n = len(a)
    return 1 - 6 * sum((p - q) ** 2 for p, q in zip(ranks(a), ranks(b))) / (n * (n * n - 1))


def told_ranks(rounds: list[list[float]]) -> list[float]:
    """Of kernels with these times, a list for each: see above."""
    def above(mine: list[float], other: list[float]) -> float:
        return 1.0 if max(other) < min(mine) else 0.0 if max(mine) < min(other) else 0.5
    return [sum(above(mine, other) for j, other in enumerate(rounds) if j != i) for i, mine in enumerate(rounds)]


def told_correlation(rounds: list[list[float]], said: list[float]) -> float | None:
    """Spearman's of what was measured and what is said; None: nothing is told apart."""
    a, b = told_ranks(rounds), told_ranks([[value] for value in said])
    if len(set(a)) == 1:
        return None
    return 0.0 if len(set(b)) == 1 else statistics.correlation(a, b)


def judge(args: argparse.Namespace) -> None:
    times, rounds = {}, {}
    for text in open(args.times):
        one = json.loads(text)
        times[one["problem"]] = {run["pins"]: run["time_us"] for run in one["runs"] if run.get("time_us")}
        rounds[one["problem"]] = {run["pins"]: run.get("rounds") or [run["time_us"]] for run in one["runs"] if run.get("time_us")}
    problems, errors, by_kind = [], [], {}
    for text in open(args.out):
        one = json.loads(text)
        pairs = [(run, times.get(one["problem"], {}).get(run["pins"])) for run in one["runs"] if "predicted_us" in run]
        pairs = [(run, time) for run, time in pairs if time]
        kind = kind_of(one["problem"])
        for run, time in pairs:
            error = run["predicted_us"] / time - 1
            errors.append((error, one["problem"], run, time))
            by_kind.setdefault(kind, []).append(error)
        if len(pairs) < 4:
            continue
        measured, said = [time for _, time in pairs], [run["predicted_us"] for run, _ in pairs]
        best = min(measured)
        planned = [time for run, time in pairs if run["pins"] == ""]
        told = told_correlation([rounds[one["problem"]][run["pins"]] for run, _ in pairs], said)
        problems.append({"problem": one["problem"], "kind": kind, "rank": correlation(measured, said), "told": told,
                         "spread": max(measured) / best,
                         "loss": measured[said.index(min(said))] / best, "planned": planned[0] / best if planned else None})
        if args.verbose:
            last = problems[-1]
            print(f"{last['rank']:5.2f} {'-' if told is None else format(told, '5.2f')} {100 * (last['loss'] - 1):5.1f} %  {one['problem']}")
            for run, time in sorted(pairs, key=lambda pair: pair[1]):
                print(f"      {time:8.1f} us {run['predicted_us']:8.1f} predicted {100 * (run['predicted_us'] / time - 1):+6.1f} %  "
                      f"{run['kernel'].removeprefix('tessera_')}  [{run['limit']}]  {run['pins']}")
    if not problems:
        raise SystemExit("nothing to judge")

    def line(name: str, values: list[float], of: list[dict]) -> None:
        e = [abs(value) for value in values]
        loss = [p["loss"] for p in of]
        told = [p["told"] for p in of if p["told"] is not None]
        by_told = f"{statistics.mean(told):.3f}" if told else "-"
        print(f"| {name} | {len(of)} | {len(e)} | {100 * statistics.median(e):.1f} % | {100 * sum(x <= 0.2 for x in e) / len(e):.0f} % | "
              f"{100 * max(e):.0f} % | {statistics.mean(p['rank'] for p in of):.3f} | {by_told} | {100 * (statistics.geometric_mean(loss) - 1):.1f} % | "
              f"{100 * (max(loss) - 1):.0f} % |")

    print("| problems of | problems | kernels | median error | within 20 % | worst | rank correlation by medians | as told apart | "
          "choice behind the best | worst |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for kind, values in by_kind.items():
        of = [p for p in problems if p["kind"] == kind]
        if of:
            line(kind, values, of)
    line("**all**", [e[0] for e in errors], problems)
    losses = sorted(p["loss"] for p in problems)
    print(f"\nchoice is the best in {sum(x == 1 for x in losses)} of {len(losses)}, within 5 % in {sum(x <= 1.05 for x in losses)}; "
          f"median rank correlation {statistics.median(p['rank'] for p in problems):.2f}, "
          f"of {sum(p['spread'] >= 1.2 for p in problems)} problems whose kernels spread by 20 % or more "
          f"{statistics.mean(p['rank'] for p in problems if p['spread'] >= 1.2):.2f} in the mean")
    none = sum(p["told"] is None for p in problems)
    if none:
        print(f"{none} problems have no two kernels that the recording tells apart")
    planned = [p["planned"] for p in problems if p["planned"]]
    if planned:
        print(f"the planner's choice without a clock is {100 * (statistics.geometric_mean(planned) - 1):.1f} % behind the best of them")


def noise(args: argparse.Namespace) -> None:
    """No prediction can agree with the times better than these agree with each other."""
    by_kind: dict = {}
    for text in open(args.times):
        one = json.loads(text)
        runs = [run["rounds"] for run in one["runs"] if len(run.get("rounds", [])) > 1]
        if len(runs) > 2:
            rounds = list(zip(*runs))
            of = [correlation(a, b) for i, a in enumerate(rounds) for b in rounds[i + 1:]]
            by_kind.setdefault(kind_of(one["problem"]), []).append(statistics.mean(of))
    print("| problems of | problems | rank correlation of two rounds |\n|---|---|---|")
    for kind, values in [*by_kind.items(), ("**all**", [value for of in by_kind.values() for value in of])]:
        print(f"| {kind} | {len(values)} | {statistics.mean(values):.2f} |")


def kind_of(problem: str) -> str:
    if problem.startswith("fmha"):
        return "attention, decode" if "--seqlen-q 1 " in problem else "attention"
    if problem.startswith("gemm"):
        return "products, weights of 4 bits" if "--b-dtype" in problem else "products, scales by blocks" if "scale-block" in problem else "products"
    return problem.split()[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("draw")
    one.add_argument("tessera")
    one.add_argument("seed", type=int)
    one.add_argument("count", type=int)
    one.add_argument("--jobs", type=int, default=1)
    one.add_argument("--but", nargs="*", default=[])
    one.set_defaults(do=draw)
    one = commands.add_parser("predict")
    for name in ("tessera", "gpu", "list", "out"):
        one.add_argument(name)
    one.add_argument("--jobs", type=int, default=1)
    one.set_defaults(do=predict)
    one = commands.add_parser("judge")
    one.add_argument("out")
    one.add_argument("times")
    one.add_argument("--verbose", action="store_true")
    one.set_defaults(do=judge)
    one = commands.add_parser("noise")
    one.add_argument("times")
    one.set_defaults(do=noise)
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()
