#!/usr/bin/env python3
"""Predicts all that the time model is judged by again, by one model.

again.py predict TESSERA OUT.jsonl [--jobs N] [--sets NAME,...] [--programs FOLDER] [--points FOLDER]
again.py judge OUT.jsonl [--bars]                            a row for each set, and whether each bar is met
again.py list TESSERA                                        recorded kernels as problems and pins, for bench_candidates

Sets: kernels of ours timed on an H200 (times-1, times-2, blind, draw2, draw2-candidates, candidates-3 to 6), programs of others
(fast_cu, others, others-2, others-3; --programs has them, as others/build.sh builds them), points published of Blackwell GPUs
(blackwell; --points has what `blackwell.py --work` compiled). `predict` goes on where OUT.jsonl ends, longest first by the
seconds of an earlier one (--before). Each row has the commit of the model; rows of another one are refused. A recorded kernel
that is not the planner's choice any more is pinned by what its name says; products over c, with factors of blocks and with 4-bit
weights, whose code had changed by then, were timed again (times-again.jsonl, at dfcd612d)."""

import argparse
import itertools
import json
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

from concurrent.futures import ThreadPoolExecutor, as_completed

import blackwell
import candidates

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LINES = ["times-1", "times-2", "blind", "draw2", "draw2-candidates"]
PROBLEMS = ["candidates-3", "candidates-4", "candidates-5", "candidates-6"]
PROGRAMS = {"fast_cu": "fast_cu.jsonl", "others": "times-others.jsonl", "others-2": "times-others-2.jsonl",
            "others-3": "times-others-3.jsonl"}
SETS = [*LINES, *PROBLEMS, *PROGRAMS, "blackwell"]


def times_of(name: str) -> list:
    file = PROGRAMS.get(name) or f"{name if name.startswith('times') else 'times-' + name}.jsonl"
    return [json.loads(text) for text in open(HERE / "h200" / file)]


def timed_again() -> dict:
    """Times of kernels whose code had changed since their set was timed."""
    return {(one["problem"], run["kernel"]): run["time_us"] for one in times_of("again") for run in one["runs"] if run.get("time_us")}


def single_lines(line: str) -> list[str]:
    """A line whose flags have lists, as `tessera run` multiplies them out."""
    words = line.split()
    return [" ".join(one) for one in itertools.product(*(word.split(",") if i else [word] for i, word in enumerate(words)))]


def pins_of(kernel: str) -> str:
    """What a product's or attention's name says of its tile."""
    found = re.search(r"_(\d+)x(\d+)(t?)(pp)?_s(\d+)_c(\d+)x(\d+)x(\d+)", kernel)
    if found:
        m, n, swapped, turns, stages, cluster_m, cluster_n, split = found.groups()
        return (f"--tile-m {m} --tile-n {n} --stages {stages} --cluster-m {cluster_m} --cluster-n {cluster_n} --split-k {split} "
                f"--swap-ab {'on' if swapped else 'off'} --kernel-schedule {'ping_pong' if turns else 'cooperative'}")
    found = re.search(r"_(\d+)x(\d+)_s(\d+)_sw", kernel)
    return "--tile-m {} --tile-n {} --stages {}".format(*found.groups()) if found else ""


def recorded_runs(tessera: str, name: str, jobs: int) -> list[dict]:
    """A set's kernels of `tessera run`, each with a line that has it now."""
    found = []
    with ThreadPoolExecutor(jobs) as pool:
        for recorded in times_of(name):
            runs = recorded["runs"]
            runs = runs.get("runs", [runs]) if isinstance(runs, dict) else []
            lines = single_lines(recorded["line"])
            named = dict(zip(pool.map(lambda line: candidates.kernel_of(tessera, line), lines), lines))
            for run in runs:
                if not run.get("pass") or not run.get("time_us"):
                    continue
                kernel, line, pins = run["kernel"], named.get(run["kernel"]), ""
                if line is None and len(lines) == 1:
                    line, pins = lines[0], pins_of(kernel)
                    if candidates.kernel_of(tessera, f"{line} {pins}") != kernel:
                        line = None
                if line is None:
                    print(f"# {name}: {recorded['line']}: {kernel} is none of today's kernels", file=sys.stderr)
                    continue
                found.append({"problem": line, "pins": pins, "kernel": kernel, "time_us": run["time_us"], "of": recorded["line"]})
    return found


def tasks_of(args: argparse.Namespace, name: str, work: pathlib.Path) -> list[tuple[dict, list[str]]]:
    """What is to be predicted of a set: a row, and the command that predicts it."""
    product = [args.tessera, "run", "--arch", "sm_90a", "--device", "emulator", "--time", "h200", "--no-values", "--json", "--quiet"]
    program = [args.tessera, "emulate", "--no-values", "--json", "--cpu-threads", "1"]
    if name in LINES or name in PROBLEMS:
        runs = recorded_runs(args.tessera, name, args.jobs) if name in LINES else [
            {"problem": one["problem"], "of": one["problem"], **{key: run[key] for key in ("pins", "kernel", "time_us")}}
            for one in times_of(name) for run in one["runs"] if run.get("time_us")]
        again = timed_again()
        for run in runs:
            run["time_us"] = again.get((run["problem"], run["kernel"]), run["time_us"])
        return [({"key": f"{run['problem']} {run['pins']}".strip(), **run},
                 [*product[:2], *f"{run['problem']} {run['pins']}".split(), *product[2:]]) for run in runs]
    if name in PROGRAMS:
        if not args.programs:
            return []
        return [({"key": f"{run['program']} {run['line']}", "program": run["program"], "time_us": run["time_us"]},
                 [*program, "--gpu", "H200", "--time", "h200", "--", str(args.programs / run["program"]), "0", *run["line"].split()])
                for run in times_of(name) if (args.programs / run["program"]).exists() and not run["program"].endswith(".py")]
    found = []
    for row, kernel in blackwell.points() if args.points else []:
        binary = args.points / blackwell.program_of(kernel)
        gpu = blackwell.board_of(kernel, ROOT / "emulator/time/gpus", work)
        if binary.exists():
            found.append((row, [*program, "--time", gpu, "--", str(binary), *map(str, row["shape"])]))
    return found


def predicted(command: list[str], limit: int) -> dict:
    """What the command predicts, and the seconds of a core that it took."""
    with tempfile.TemporaryFile("w+") as out:
        begin = time.time()
        child = subprocess.Popen(["timeout", str(limit), *command], stdout=out, stderr=subprocess.DEVNULL)
        _, _, usage = os.wait4(child.pid, 0)
        out.seek(0)
        text = out.read()
    row = {"cpu_s": round(usage.ru_utime + usage.ru_stime, 1), "wall_s": round(time.time() - begin, 1)}
    try:
        said = json.loads(text)
        launches = said["predicted"] if isinstance(said["predicted"], list) else [said["predicted"]]
        if not launches:
            raise ValueError
        row["predicted_us"] = sum(launch["time_us"] for launch in launches)
        row["limit"] = "; ".join(kernel["limit"] for launch in launches for kernel in launch["kernels"])
        row["predicted_kernel"] = said.get("kernel", "")
    except (ValueError, KeyError):
        print(f"# no prediction: {shlex.join(command)}: {text[:300]}", file=sys.stderr)
    return row


def commit_of_model() -> str:
    of = ["git", "-C", str(ROOT), "log", "-1", "--format=%h", "--", "emulator"]
    return subprocess.run(of, capture_output=True, text=True, check=True).stdout.strip()


def predict(args: argparse.Namespace) -> None:
    model = args.model or commit_of_model()
    rows = [json.loads(text) for text in open(args.out)] if args.out.exists() else []
    others = {row["model"] for row in rows} - {model}
    if others:
        raise SystemExit(f"{args.out} has predictions of the model of {', '.join(sorted(others))}, not of {model}")
    # The programs get descriptions by file where a board has a clock of its own; those stay as long as the runs.
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(args.jobs) as pool, open(args.out, "a") as out:
        before = {(row["set"], row["key"]): row["cpu_s"] for row in map(json.loads, open(args.before))} if args.before else {}
        done = {(row["set"], row["key"]) for row in rows if "predicted_us" in row}
        tasks = [({"set": name, **row}, command) for name in args.sets.split(",") for row, command in tasks_of(args, name, pathlib.Path(work))]
        todo = [task for task in tasks if (task[0]["set"], task[0]["key"]) not in done]
        todo.sort(key=lambda task: -before.get((task[0]["set"], task[0]["key"]), 0))
        todo = [task for task in todo if before.get((task[0]["set"], task[0]["key"]), 0) <= args.longest]
        begin = time.time()
        print(f"# model {model}: {len(tasks)} predictions, {len(todo)} to do", file=sys.stderr, flush=True)

        def one(task: tuple[dict, list[str]]) -> dict | None:
            if args.seconds and time.time() - begin > args.seconds:
                return None
            return {"model": model, **task[0], **predicted(task[1], args.limit)}

        for result in as_completed([pool.submit(one, task) for task in todo]):
            if result.result():
                out.write(json.dumps(result.result()) + "\n")
                out.flush()


def summary(name: str, rows: list[dict]) -> str:
    errors = [abs(row["error"]) for row in rows]
    return (f"| {name} | {len(rows)} | {100 * statistics.median(errors):.1f} % | {100 * sum(e <= 0.2 for e in errors) / len(errors):.0f} % | "
            f"{100 * sum(e <= 0.1 for e in errors) / len(errors):.0f} % | {100 * max(errors):.0f} % |")


def order(rows: list[dict]) -> tuple[int, float, float] | None:
    """Of problems with several kernels: how many, their rank correlation, and how far the choice is behind the best."""
    problems = {}
    for row in rows:
        problems.setdefault(row.get("of"), []).append(row)
    several = [of for problem, of in problems.items() if problem and len(of) >= 4]
    if not several:
        return None
    ranks = [candidates.correlation([row["time_us"] for row in of], [row["predicted_us"] for row in of]) for of in several]
    losses = [min(of, key=lambda row: row["predicted_us"])["time_us"] / min(row["time_us"] for row in of) for of in several]
    return len(several), statistics.mean(ranks), statistics.geometric_mean(losses) - 1


def order_in_row(rows: list[dict]) -> str:
    found = order(rows)
    return f" {found[0]} | {found[1]:.2f} | {100 * found[2]:.1f} % |" if found else " - | - | - |"


def bars(ours: list[dict], asked: int) -> list[tuple[str, bool, bool]]:
    """What is asked of predictions of our kernels on an H200, of `asked` that were begun: the bar, whether it is met, and whether it was
    when it was set here."""
    errors = [abs(row["error"]) for row in ours]
    _, rank, loss = order(ours) or (0, 0, 1)
    return [("90 % of those begun predicted as recorded", len(ours) >= 0.9 * asked, True), ("median error at most 8 %", statistics.median(errors) <= 0.08, True),
            ("90 % within 20 %", sum(e <= 0.2 for e in errors) >= 0.9 * len(errors), True),
            ("rank correlation at least 0.9", rank >= 0.9, False), ("the choice within 5 % of the best", loss <= 0.05, True)]


def judge(args: argparse.Namespace) -> None:
    rows = [json.loads(text) for text in open(args.out)]
    known = [row for row in rows if "predicted_us" in row and row.get("predicted_kernel") in ("", row.get("kernel", ""))]
    for row in known:
        row["error"] = row["predicted_us"] / row["time_us"] - 1
        if row["set"] == "blackwell":  # of TFLOPS, as published
            row["error"] = row["time_us"] / row["predicted_us"] - 1
    print(f"model {', '.join(sorted({row['model'] for row in rows}))}: {len(known)} of {len(rows)} predicted as recorded, "
          f"{sum(row['cpu_s'] for row in rows):.0f} s of a core\n")
    print("| set | kernels | median error | within 20 % | within 10 % | worst | problems | rank correlation | choice behind |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in SETS[:-1]:
        of = [row for row in known if row["set"] == name]
        if of:
            print(summary(name, of) + order_in_row(of))
    for title, names in (("**ours, recorded before and drawn**", LINES), ("**ours, all**", LINES + PROBLEMS), ("**others**", list(PROGRAMS)),
                         ("**all on the H200**", LINES + PROBLEMS + list(PROGRAMS))):
        of = {row["key"]: row for row in known if row["set"] in names}
        if of:
            print(summary(title, list(of.values())) + order_in_row(list(of.values())))
    for row in sorted(known, key=lambda row: -abs(row["error"])):
        if abs(row["error"]) > args.over:
            print(f"{100 * row['error']:+6.1f} %  {row['time_us']:9.1f} us {row['predicted_us']:9.1f} predicted  {row['set']}: {row['key']}  [{row['limit']}]")
    points = [row for row in known if row["set"] == "blackwell"]
    for half in ("correct", "judge", "later"):
        blackwell.report([{**row, "predicted": row["published"] * (1 + row["error"])} for row in points if row["half"] == half], half)
    if args.bars:
        begun = {row["key"] for row in rows if row["set"] in LINES + PROBLEMS}
        found = bars(list({row["key"]: row for row in known if row["set"] in LINES + PROBLEMS}.values()), len(begun))
        print("\n" + "\n".join(f"{'met   ' if is_met else 'missed'} {bar}" for bar, is_met, _ in found))
        if any(was_met and not is_met for _, is_met, was_met in found):
            sys.exit("a bar that was met is missed")


def list_problems(args: argparse.Namespace) -> None:
    problems = {}
    for name in LINES:
        for run in recorded_runs(args.tessera, name, 4):
            words = run["problem"].split()
            plain = " ".join(word for i, word in enumerate(words) if not re.match(r"--(tile-[mn]|stages)$", words[i - 1 if i % 2 == 0 else i]))
            pins = " ".join(word for i, word in enumerate(words) if re.match(r"--(tile-[mn]|stages)$", words[i - 1 if i % 2 == 0 else i]))
            problems.setdefault(plain, {})[run["kernel"]] = f"{pins} {run['pins']}".strip()
    for problem, of in problems.items():
        print(json.dumps({"problem": problem, "pins": list(dict.fromkeys(of.values()))}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("predict")
    one.add_argument("tessera")
    one.add_argument("out", type=pathlib.Path)
    one.add_argument("--sets", default=",".join(SETS))
    one.add_argument("--jobs", type=int, default=1)
    one.add_argument("--programs", type=pathlib.Path)
    one.add_argument("--points", type=pathlib.Path)
    one.add_argument("--model", help="its commit, where there is no repository")
    one.add_argument("--limit", type=int, default=600, help="seconds of one prediction")
    one.add_argument("--seconds", type=int, default=0, help="begin none after these")
    one.add_argument("--before", help="an earlier OUT.jsonl: its longest first")
    one.add_argument("--longest", type=float, default=1e9, help="leave out what took more seconds there")
    one.set_defaults(do=predict)
    one = commands.add_parser("judge")
    one.add_argument("out", type=pathlib.Path)
    one.add_argument("--bars", action="store_true", help="fail where a bar is missed that was met")
    one.add_argument("--over", type=float, default=10, help="name kernels whose error is larger (0.2: 20 %%)")
    one.set_defaults(do=judge)
    one = commands.add_parser("list")
    one.add_argument("tessera")
    one.set_defaults(do=list_problems)
    args = parser.parse_args()
    args.do(args)


main()
