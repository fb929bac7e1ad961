#!/usr/bin/env python3
"""Holds predictions for programs of others against their times: others.py TESSERA GPU TIMES.jsonl PROGRAM [--json FILE]

TIMES.jsonl has a line {"line", "kernel", "time_us"} for each run of PROGRAM on that GPU (others/fast_cu.cu); "line" are
its arguments behind the first, which is 0 here: one launch, whose time the emulator's clock tells."""

import argparse
import json
import statistics
import subprocess


def predict(tessera: str, gpu: str, program: str, line: str) -> dict:
    command = [tessera, "emulate", "--gpu", gpu.upper(), "--time", gpu, "--no-values", "--json", "--", program, "0", *line.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    try:
        return json.loads(done.stdout)["predicted"][-1]
    except (ValueError, KeyError, IndexError):
        print(f"# {line}: {(done.stdout + done.stderr).strip()[-300:]}")
        return {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("tessera", "gpu", "times", "program"):
        parser.add_argument(name)
    parser.add_argument("--json", default="", help="write every kernel's figures here")
    args = parser.parse_args()
    rows = []
    for text in open(args.times):
        run = json.loads(text)
        found = predict(args.tessera, args.gpu, args.program, run["line"])
        if not found:
            continue
        error = found["time_us"] / run["time_us"] - 1
        rows.append({**run, "predicted_us": found["time_us"], "error": error, "limit": found.get("limit", "")})
        print(f"  {run['time_us']:9.1f} us measured {found['time_us']:9.1f} predicted {100 * error:+6.1f} %  "
              f"{run['kernel']}, {run['line'].split()[-1]}^3  [{found.get('limit', '')}]", flush=True)
    errors = [abs(row["error"]) for row in rows]
    if not errors:
        raise SystemExit("nothing to judge")
    print(f"\n{len(errors)} kernels: median error {100 * statistics.median(errors):.1f} %, "
          f"{100 * sum(e <= 0.2 for e in errors) / len(errors):.0f} % within 20 %, worst {100 * max(errors):.0f} %")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=1)


main()
