#!/usr/bin/env python3
"""Runs programs that are there already, by `tessera emulate -- PROGRAM`, and writes a table of what came out.

  tests/external/table.py --folder DIR [--list FILE] [--build DIR] [--limit SECONDS] [--jobs N] [--only NAME] [--output PAGE]

Fetches and builds nothing. FILE (DIR/list.txt by default) has a program on each line, fields divided by `|`; an empty line and one
that begins with # count for nothing:

  name | author or collection | folder, below DIR | command | what its output must match | flags of `tessera emulate`

The command is the program as its author wrote it, with arguments that suit a CPU, and runs in its folder. The fifth field is a
regular expression of Python; empty: the exit code alone tells. A program is

  right    it ended with 0, its output matches, and no failure was found
  wrong    it ended otherwise, says that its results are wrong, or a failure was found in it
  refused  the emulator says that it does not run the code (exit code 3) or lacks a function of the API or a library's device code
  time     it was not done after the limit (600 s)

The exit status is 0 where every program is right. Python's own library is enough.
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# A word of a failure, but no count of none: "0 mismatches", "mismatches: 0".
WRONG = re.compile(
    r"(?<!\b0 )\b(FAIL(ED|URE)?|[Mm]ismatch(es)?|incorrect|ERROR)\b(?!\s*[:=]\s*0\b)"
    r"|(?<!\b0 )\b([Tt]ests?|[Cc]hecks?|[Vv]erification|[Vv]alidation|[Cc]omparison)\W[^\n]{0,20}(?<!\b0 )\bfail(ed|s)?\b"
    r"|\b[Ff]ailed (the )?(test|check|verification|validation)|\bdo(es)?( not|n't) match\b"
)
REFUSED = re.compile(r"is not provided|machine code only|do not strip it|no PTX", re.IGNORECASE)


def programs(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        fields = [field.strip() for field in re.split(r"(?<!\\)\|", line)]
        if len(fields) < 4:
            sys.exit(f"{path}:{number}: name | author | folder | command [| text [| flags]]")
        yield fields + [""] * (6 - len(fields))


def verdict(code, output, report, text):
    problems = " ".join(report.get("problems", [])) if report else ""
    if code == 3 or REFUSED.search(problems):
        return "refused"
    failures = [f["name"] for f in (report or {}).get("findings", []) if f.get("kind") == "failure" or f.get("is_failure")]
    is_matched = re.search(text.replace(r"\|", "|"), output) if text else not WRONG.search(output)
    return "right" if code == 0 and is_matched and not failures else "wrong"


def run(tessera, folder, program, limit):
    name, author, below, command, text, flags = program
    begin = time.time()
    with tempfile.TemporaryFile() as output:
        # With --json the report is alone on stdout, and the program's own output goes to stderr.
        call = [str(tessera), "emulate", "--json", *shlex.split(flags), "--", *shlex.split(command)]
        child = subprocess.Popen(call, cwd=folder / below, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=output)
        try:
            stdout, _ = child.communicate(timeout=limit)
            is_late = False
        except subprocess.TimeoutExpired:
            child.terminate()
            try:
                stdout, _ = child.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                child.kill()
                stdout, _ = child.communicate()
            is_late = True
        output.seek(0)
        printed = output.read().decode(errors="replace")
    try:
        report = json.loads(stdout)
    except ValueError:
        report = {}
    result = "time" if is_late else verdict(child.returncode, printed, report, text)
    findings = sorted({f["name"] for f in report.get("findings", [])})
    note = ", ".join(findings)
    if result in ("wrong", "refused"):
        lines = [line for line in report.get("problems", []) + printed.strip().splitlines() if line.strip()]
        note = "; ".join(filter(None, [note, (lines[0] if result == "refused" and lines else lines[-1] if lines else "")[:160]]))
    return {"name": name, "author": author, "command": command, "result": result, "code": child.returncode,
            "seconds": time.time() - begin, "note": note}


def page(rows, limit):
    counts = {word: sum(row["result"] == word for row in rows) for word in ("right", "wrong", "refused", "time")}
    lines = [f"{len(rows)} programs: " + ", ".join(f"{count} {word}" for word, count in counts.items()) + f"; limit {limit} s.", "",
             "| program | of | command | result | s | what was found or said |", "|---|---|---|---|---|---|"]
    for row in rows:
        note = row["note"].replace("|", "\\|")
        lines.append(f"| {row['name']} | {row['author']} | `{row['command']}` | {row['result']} | {row['seconds']:.1f} | {note} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--list", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--limit", type=float, default=600)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    tessera = options.build.resolve() / "cli" / "tessera"
    if not tessera.exists():
        sys.exit(f"{tessera} is not there: build the targets tessera and guest")
    chosen = [p for p in programs(options.list or options.folder / "list.txt") if options.only in (None, p[0])]
    if not chosen:
        sys.exit("no program")
    rows = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for row in pool.map(lambda p: run(tessera, options.folder.resolve(), p, options.limit), chosen):
            rows.append(row)
            print(f"{row['result']:8} {row['name']:32} {row['seconds']:7.1f} s  {row['note']}", flush=True)
    text = page(rows, options.limit)
    if options.output:
        options.output.write_text(text)
    print(text.splitlines()[0])
    return 0 if all(row["result"] == "right" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
