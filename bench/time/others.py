#!/usr/bin/env python3
"""Holds predictions for programs of others against their times.

others.py predict TESSERA GPU FOLDER OUT.jsonl     every run of others/programs.txt whose program is in FOLDER (others/build.sh)
others.py measure FOLDER OUT.jsonl [--repeat N]    the same on the GPU here
others.py judge PREDICTED.jsonl TIMES.jsonl

A program's first argument is the number of timed launches: with 0 it launches once, and the emulator's clock tells how
long that takes. Kernels of one launch (a second one that adds parts) count together."""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

from concurrent.futures import ThreadPoolExecutor, as_completed


def runs(folder: str) -> list[tuple[str, str]]:
    """Programs that are there, each with the arguments of its runs."""
    found = []
    for line in (pathlib.Path(__file__).parent / "others" / "programs.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, _, arguments = (field.strip() for field in line.split("|"))
            if (pathlib.Path(folder) / name).exists():
                found += [(name, one.strip()) for one in arguments.split(";")]
    return found


def predict(args: argparse.Namespace) -> None:
    try:
        done = {(row["program"], row["line"]) for row in map(json.loads, open(args.out))}
    except FileNotFoundError:
        done = set()

    gpu = json.load(open(args.gpu))["name"] if "/" in args.gpu else args.gpu.upper()  # a description, or its name

    def one(name: str, line: str) -> str:
        command = [args.tessera, "emulate", "--gpu", gpu, "--time", args.gpu, "--no-values", "--json", "--",
                   str(pathlib.Path(args.folder) / name), "0", *line.split()]
        text = ""
        try:
            result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=args.limit)
            text = result.stdout + result.stderr
            found = json.loads(result.stdout)["predicted"]
            limits = "; ".join(kernel["limit"] for launch in found for kernel in launch["kernels"])
        except (subprocess.TimeoutExpired, ValueError, KeyError):
            found = []
        if not found:
            print(f"# {name} {line}: no prediction: {' '.join(text.split())[:600]}", file=sys.stderr, flush=True)
            return ""
        return json.dumps({"program": name, "line": line, "predicted_us": sum(launch["time_us"] for launch in found),
                           "launches": len(found), "limit": limits}) + "\n"

    todo = [run for run in runs(args.folder) if run not in done]
    with open(args.out, "a") as out, ThreadPoolExecutor(args.jobs) as pool:
        for result in as_completed([pool.submit(one, *run) for run in todo]):
            out.write(result.result())
            out.flush()


def measure(args: argparse.Namespace) -> None:
    commands = [(name, line) for name, line in runs(args.folder) if not name.endswith(".py")]
    for name in sorted({name for name, _ in runs(args.folder) if name.endswith(".py")}):  # one process: its start takes seconds
        commands.append((name, " / ".join(line for one, line in runs(args.folder) if one == name)))
    with open(args.out, "w") as out:
        for name, line in commands:
            try:
                result = subprocess.run([str(pathlib.Path(args.folder).resolve() / name), str(args.repeat), *line.split()],
                                        capture_output=True, text=True, check=False, timeout=60)
                rows = [json.loads(text) for text in result.stdout.splitlines() if text.startswith('{"program"')]
            except (subprocess.TimeoutExpired, ValueError):
                rows = []
            if not rows:
                print(f"# {name} {line}: no time", file=sys.stderr, flush=True)
            for row in rows:
                out.write(json.dumps(row) + "\n")
                out.flush()


def judge(args: argparse.Namespace) -> None:
    predicted = {(row["program"], row["line"]): row for row in map(json.loads, open(args.predicted))}
    errors = []
    print("| program | arguments | measured us | predicted us | error | limit |\n|---|---|---|---|---|---|")
    for row in map(json.loads, open(args.times)):
        found = predicted.get((row["program"], row["line"]))
        if not found:
            continue
        error = found["predicted_us"] / row["time_us"] - 1
        errors.append(abs(error))
        print(f"| {row['program']} | {row['line']} | {row['time_us']:.1f} | {found['predicted_us']:.1f} | {100 * error:+.1f} % | {found['limit']} |")
    if not errors:
        raise SystemExit("nothing to judge")
    print(f"\n{len(errors)} runs: median error {100 * statistics.median(errors):.1f} %, "
          f"{100 * sum(e <= 0.2 for e in errors) / len(errors):.0f} % within 20 %, "
          f"{100 * sum(e <= 0.1 for e in errors) / len(errors):.0f} % within 10 %, worst {100 * max(errors):.0f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("predict")
    for name in ("tessera", "gpu", "folder", "out"):
        one.add_argument(name)
    one.add_argument("--limit", type=int, default=300, help="seconds of a prediction")
    one.add_argument("--jobs", type=int, default=1)
    one.set_defaults(do=predict)
    one = commands.add_parser("measure")
    one.add_argument("folder")
    one.add_argument("out")
    one.add_argument("--repeat", type=int, default=20)
    one.set_defaults(do=measure)
    one = commands.add_parser("judge")
    one.add_argument("predicted")
    one.add_argument("times")
    one.set_defaults(do=judge)
    args = parser.parse_args()
    args.do(args)


main()
