#!/usr/bin/env python3
"""Holds the time model's predictions against measured times: judge.py TESSERA GPU TIMES.jsonl [--only WORD] [--json FILE]

TIMES.jsonl is what measure.sh wrote on that GPU. Each of its lines is predicted by `tessera run ... --device emulator
--time GPU --no-values`; kernels meet by their names. The clock that
nvidia-smi told during a measurement is not used: it says 1,980 MHz where a kernel's own counters show 1,733."""

import argparse
import json
import statistics
import subprocess
import time


def predict(tessera: str, gpu: str, line: str) -> dict:
    command = [tessera, "run", *line.split(), "--arch", "sm_90a", "--device", "emulator", "--time", gpu, "--no-values",
               "--json", "--quiet"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    except subprocess.TimeoutExpired:
        print(f"# {line}: no prediction within 600 s")
        return {}
    if not done.stdout.strip():
        print(f"# {line}: {done.stderr.strip()[:300]}")
        return {}
    result = json.loads(done.stdout)
    return {run["kernel"]: run["predicted"] for run in result.get("runs", [result]) if "predicted" in run}


def ranks(values: list[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda i: values[i])
    result = [0.0] * len(values)
    for rank, i in enumerate(order):
        result[i] = float(rank)
    return result


def correlation(a: list[float], b: list[float]) -> float:
    x, y = ranks(a), ranks(b)
    n = len(x)
    return 1 - 6 * sum((p - q) ** 2 for p, q in zip(x, y)) / (n * (n * n - 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tessera")
    parser.add_argument("gpu")
    parser.add_argument("times")
    parser.add_argument("--only", default="", help="lines that hold this word")
    parser.add_argument("--json", default="", help="write every kernel's figures here")
    args = parser.parse_args()
    rows, errors, correlations, losses = [], [], [], []
    begin = time.time()
    for text in open(args.times):
        measured = json.loads(text)
        line = measured["line"]
        if args.only not in line or not isinstance(measured["runs"], dict):
            continue
        runs = [run for run in measured["runs"].get("runs", [measured["runs"]]) if run.get("pass") and run.get("time_us")]
        predictions = predict(args.tessera, args.gpu, line)
        pairs = []
        print(f"# {line}")
        for run in runs:
            if run["kernel"] not in predictions:
                print(f"  not predicted: {run['kernel']}")
                continue
            predicted = predictions[run["kernel"]]
            us = predicted["time_us"]
            error = us / run["time_us"] - 1
            pairs.append((run["time_us"], us))
            errors.append(abs(error))
            limits = "; ".join(k["limit"] for k in predicted["kernels"])
            rows.append({"line": line, "kernel": run["kernel"], "measured_us": run["time_us"], "predicted_us": us,
                         "error": error, "limit": limits})
            print(f"  {run['time_us']:9.1f} us measured {us:9.1f} predicted {100 * error:+6.1f} %  "
                  f"{run['kernel'].removeprefix('tessera_')}  [{limits}]")
        if "--tile-" in line and len(pairs) >= 4:  # candidates of one problem
            correlations.append(correlation([m for m, _ in pairs], [p for _, p in pairs]))
            chosen = min(pairs, key=lambda pair: pair[1])[0]
            losses.append(chosen / min(m for m, _ in pairs))
            print(f"  rank correlation {correlations[-1]:.2f}; the choice is {100 * (losses[-1] - 1):.1f} % behind the best")
    if not errors:
        raise SystemExit("nothing to judge")
    print(f"\n{len(errors)} kernels: median error {100 * statistics.median(errors):.1f} %, "
          f"{100 * sum(e <= 0.2 for e in errors) / len(errors):.0f} % within 20 %, "
          f"{100 * sum(e <= 0.1 for e in errors) / len(errors):.0f} % within 10 %, worst {100 * max(errors):.0f} %"
          f" ({time.time() - begin:.0f} s)")
    if correlations:
        print(f"{len(correlations)} problems with candidates: rank correlation {statistics.mean(correlations):.2f} in the mean, "
              f"{min(correlations):.2f} at least; the choice is {100 * (statistics.geometric_mean(losses) - 1):.1f} % behind "
              f"the best in the geometric mean")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=1)


main()
