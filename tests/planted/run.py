#!/usr/bin/env python3
"""Faults in kernels of ours, and which of them the emulator tells: an independent judgement of it.

  run.py --check                        every fault's text stands in its template as often as it says; nothing runs
  run.py --baseline [--jobs N]          every command without a fault passes in both modes: no false alarm
  run.py [--full] [--jobs N]            plants each fault and runs its command; prints a table and the totals
  run.py --join RESULTS... [--page]     of runs that were made in shards; --page writes docs/planted-faults.md, where rows of
                                        faults that were not run stay as they are

The faults stand in CLASS.json here: `old` (lines) becomes `new` in a copy of the one template `file` (where the text stands
`of` times, at number `occurrence`), and commands.json has what `run` names. `expect` names the findings that an engineer should
be shown, one of them at least, or is ["wrong output"]; `equivalent` is the argument why PTX's rules forbid nothing that the
changed kernel does. Both were written before the first run, unless the argument says otherwise. Afterwards came `missed`, why
a fault is not caught, and `other_name`, why it has another name. `cause`: how the likely cause that `run` names must begin.

Modes: strict is `run --strict`, full is `run --strict --schedule all --races` (with --full). A fault is caught where the command
itself ends with 1. A time limit of this program (60 s) is not: a hang counts where the emulator names it. A fault that is not
found, does not compile or leaves the PTX as it was is an error: exit status 1. So is, with --full, one that is not caught and has
no `missed`. Results are kept in a file (--results), and what it has of the same fault is not run again.

  --only ID,...   --class NAME,...   --shard I/N   --tessera FILE   --results FILE   --retry
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TEMPLATES = ROOT / "templates"
CLASSES = ["lanes", "memory", "scopes", "order", "barriers", "waiting", "bounds", "layout", "arithmetic", "nvfp4"]
MODES = {"strict": ["--strict"], "full": ["--strict", "--schedule", "all", "--races"]}
PROSE = ["what", "equivalent", "missed", "other_name"]
SECONDS = 60
WRONG = "wrong output"


def load():
    """Commands by name, and the faults in the order of their classes."""
    commands = json.loads((HERE / "commands.json").read_text())
    faults = []
    for name in CLASSES:
        for fault in json.loads((HERE / f"{name}.json").read_text()):
            fault.update({key: "\n".join(fault[key]) for key in ("old", "new")})
            fault.update({key: " ".join(fault[key]) for key in PROSE if isinstance(fault.get(key), list)})
            faults.append({**fault, "class": name})
    return commands, faults


def planted(fault):
    """The template with the fault in it; None where its text does not stand there as often as it should."""
    text = (TEMPLATES / fault["file"]).read_text()
    if not fault["old"] or text.count(fault["old"]) != fault.get("of", 1):
        return None
    at = -1
    for _ in range(fault.get("occurrence", 1)):
        at = text.index(fault["old"], at + 1)
    return text[:at] + fault["new"] + text[at + len(fault["old"]):]


def problems_of_text(commands, faults):
    seen = set()
    for fault in faults:
        if fault["id"] in seen:
            yield f"{fault['id']}: more than once"
        seen.add(fault["id"])
        if fault["run"] not in commands:
            yield f"{fault['id']}: no command {fault['run']}"
        if not (TEMPLATES / fault["file"]).is_file() or planted(fault) is None:
            yield f"{fault['id']}: its text is not {fault.get('of', 1)} times in templates/{fault['file']}"
        if not fault["expect"] or fault["old"] == fault["new"]:
            yield f"{fault['id']}: says nothing"


def run_command(tessera, command, mode, cache, templates):
    """What one run says."""
    call = [tessera, "run", *shlex.split(command), "--device", "emulator", "--json", "--quiet", "--jobs", "1", "--cache-dir", cache]
    call += MODES[mode] + (["--templates", templates] if templates else [])
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TESSERA_")}
    begin = time.time()
    try:
        done = subprocess.run(call, capture_output=True, text=True, timeout=SECONDS, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return {"status": "time", "findings": [], "seconds": SECONDS}
    result = {"status": done.returncode, "findings": [], "seconds": round(time.time() - begin, 2)}
    try:
        said = json.loads(done.stdout)
        result["findings"] = list(dict.fromkeys(finding["name"] for finding in said["findings"]))
        result["wrong"] = bool(said["problems"])
        result["problem"] = str(said["problems"][0])[:200] if said["problems"] else ""
        result["causes"] = [str(text)[:200] for text in said["problems"] if "likely cause: " in str(text)]
    except (json.JSONDecodeError, KeyError):
        result["error"] = (done.stderr or done.stdout).strip()[:600]
    return result


def ptx_in(cache):
    """The kernels' PTX without what changes with a line's number."""
    texts = []
    for file in sorted(pathlib.Path(cache).rglob("kernel.ptx")):
        lines = file.read_text().split(".section")[0].split("\n")
        texts.append("\n".join(line for line in lines if not re.match(r"\s*(\.loc|\.file|//)", line)))
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:16] if texts else ""


def run_fault(tessera, command, fault, modes, plain):
    """Both modes in one fresh cache, so that the kernel is compiled once."""
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "templates" / fault["file"]
        file.parent.mkdir(parents=True)
        file.write_text(planted(fault))
        for mode in modes:
            result[mode] = run_command(tessera, command, mode, f"{folder}/cache", f"{folder}/templates")
        ptx = ptx_in(f"{folder}/cache")
    result["same_ptx"] = bool(ptx) and ptx == plain
    return result


def plain_ptx(tessera, command, results):
    """The unharmed kernel's PTX, by command."""
    known = results.setdefault("plain", {})
    if command not in known:
        with tempfile.TemporaryDirectory() as folder:
            run_command(tessera, command, "strict", folder, None)
            known[command] = ptx_in(folder)
    return known[command]


def stamp(fault, command):
    return hashlib.sha256("\n".join([fault["file"], planted(fault), command]).encode()).hexdigest()[:16]


def is_caught(run):
    return run is not None and run["status"] == 1


def error_of(result):
    """Why a fault's result says nothing about the emulator."""
    for mode in MODES:
        if mode in result and result[mode]["status"] not in (0, 1, "time"):
            return f"exit status {result[mode]['status']}: {result[mode].get('error', '')}"
    return "the PTX is what it was" if result.get("same_ptx") else ""


def surprise_of(fault, result):
    """What the fault's own notes do not say of its result."""
    if "full" not in result or error_of(result):
        return error_of(result)
    if "equivalent" in fault:
        return "taken for equivalent, but caught" if is_caught(result["full"]) else ""
    if "cause" in fault and not any(f"likely cause: {fault['cause']}" in text for text in result["full"].get("causes", [])):
        return f"its cause is not named, but: {result['full'].get('causes', [])}"
    if is_caught(result["full"]):
        return "`missed` says why it is not caught, but it is" if "missed" in fault else ""
    return "" if "missed" in fault else "not caught, and no `missed` says why"


def names_of(result):
    """What was found, by the fuller of the runs; the others' names behind."""
    names = []
    for mode in ("full", "strict"):
        names += [name for name in result.get(mode, {}).get("findings", []) if name not in names]
    return names


def is_named(fault, result):
    """Whether what was expected was said; None where that is no name, or where nothing was said."""
    if fault["expect"] == [WRONG] or not any(is_caught(result.get(mode)) for mode in MODES):
        return None
    if result.get("of_page"):
        return not result["is_other"]
    wrong = WRONG in fault["expect"] and any(result.get(mode, {}).get("wrong") for mode in MODES)
    return wrong or any(name in fault["expect"] for name in names_of(result))


def work(options, commands, faults):
    path = pathlib.Path(options.results)
    results = json.loads(path.read_text()) if path.is_file() else {}
    modes = list(MODES) if options.full else ["strict"]

    def todo(fault):
        old = results.get(fault["id"])
        return old is None or old["stamp"] != stamp(fault, commands[fault["run"]]) or any(m not in old for m in modes) or (
            options.retry and (error_of(old) or not is_caught(old.get("full", old["strict"]))))

    def one(fault):
        command = commands[fault["run"]]
        result = run_fault(options.tessera, command, fault, modes, plain_ptx(options.tessera, command, results))
        return fault, {"stamp": stamp(fault, command), **result}

    open_faults = [fault for fault in faults if todo(fault)]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for number, (fault, result) in enumerate(pool.map(one, open_faults), 1):
            results[fault["id"]] = result
            path.write_text(json.dumps(results, indent=1) + "\n")
            said = " ".join(f"{mode} {result[mode]['status']}" for mode in modes)
            print(f"{number}/{len(open_faults)} {fault['id']}: {said} {','.join(names_of(result))} {error_of(result)}", file=sys.stderr, flush=True)
    return results


def baseline(options, commands, faults):
    """Every command without a fault, in both modes."""
    failures = 0
    used = list(dict.fromkeys(fault["run"] for fault in faults))
    with tempfile.TemporaryDirectory() as cache, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        calls = [(name, mode) for name in used for mode in MODES]
        for (name, mode), said in zip(calls, pool.map(lambda c: run_command(options.tessera, commands[c[0]], c[1], cache, None), calls)):
            if said["status"] != 0 or said["findings"]:
                failures += 1
                print(f"false alarm: {name}, {mode}: {said}")
    print(f"{len(calls)} runs of {len(used)} commands without a fault, {failures} failed")
    return failures


def total(faults, results, mode, of):
    """How many of the faults that can be told a mode has caught."""
    told = [fault for fault in faults if of(fault) and "equivalent" not in fault and mode in results.get(fault["id"], {})]
    return sum(is_caught(results[fault["id"]][mode]) for fault in told), len(told)


def share(counted):
    return f"{counted[0]} of {counted[1]}" + (f" ({100 * counted[0] / counted[1]:.1f} %)" if counted[1] else "")


def totals(commands, faults, results):
    """A table by class, and one line for each target."""
    def names(of):
        named = [is_named(fault, results[fault["id"]]) for fault in faults
                 if of(fault) and fault["id"] in results and "equivalent" not in fault]
        counted = [name for name in named if name is not None]
        return sum(counted), len(counted)

    yield "| class | faults | of them equivalent | caught by `--strict` | by all schedules and races | named as expected |"
    yield "|---|---|---|---|---|---|"
    groups = [(name, lambda fault, name=name: fault["class"] == name) for name in CLASSES]
    groups += [(arch, lambda fault, arch=arch: arch in commands[fault["run"]]) for arch in ("sm_90a", "sm_100a", "sm_120a")]
    for name, of in [*groups, ("**all**", lambda fault: True)]:
        mine = [fault for fault in faults if of(fault)]
        equal = sum("equivalent" in fault for fault in mine)
        yield (f"| {name} | {len(mine)} | {equal} | {share(total(faults, results, 'strict', of))} | "
               f"{share(total(faults, results, 'full', of))} | {share(names(of))} |")


def verdict(fault, result, mode):
    if mode not in result:
        return "-"
    status = result[mode]["status"]
    return {0: "no", 1: "yes", "time": "no (60 s)"}.get(status, f"error {status}")


def rows(faults, results):
    yield "| fault | file | what | `--strict` | all | what was said first | expected |"
    yield "|---|---|---|---|---|---|---|"
    for fault in faults:
        result = results.get(fault["id"], {})
        names = names_of(result)
        wrong = any(result.get(mode, {}).get("wrong") for mode in MODES)
        said = f"`{names[0]}`" if names else WRONG if wrong else "-"
        expect = ", ".join(name if name == WRONG else f"`{name}`" for name in fault["expect"][:2])
        note = " (equivalent)" if "equivalent" in fault else "" if is_named(fault, result) in (True, None) else " (other)"
        yield (f"| {fault['id']} | {fault['file']} | {fault['what']}{note} | {verdict(fault, result, 'strict')} | "
               f"{verdict(fault, result, 'full')} | {said} | {expect} |")


def report(commands, faults, results):
    for name in CLASSES:
        mine = [fault for fault in faults if fault["class"] == name]
        yield f"\n### {name}\n"
        yield from rows(mine, results)


def notes(faults, key):
    yield "| fault | why |"
    yield "|---|---|"
    for fault in faults:
        if key in fault:
            yield f"| {fault['id']} | {fault[key]} |"


def results_of_page(text, faults):
    """What the page says of faults: their rows stand until somebody runs them again."""
    status = {"yes": 1, "no": 0, "no (60 s)": "time"}
    results = {}
    by_id = {fault["id"]: fault for fault in faults}
    for line in text.split("\n"):
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) != 7 or cells[0] not in by_id or not cells[3] + cells[4]:
            continue
        result = {mode: {"status": status[cell], "findings": [], "wrong": cells[5] == WRONG}
                  for mode, cell in zip(MODES, cells[3:5]) if cell in status}
        for run in result.values():
            run["findings"] = [cells[5].strip("`")] if cells[5].startswith("`") else []
        if result:
            results[cells[0]] = {**result, "of_page": True, "is_other": cells[2].endswith(" (other)")}
    return results


def write_page(commands, faults, results):
    """Between the marks of docs/planted-faults.md."""
    page = ROOT / "docs" / "planted-faults.md"
    text = page.read_text()
    results = {**results_of_page(text, faults), **results}
    parts = [(key, notes(faults, key)) for key in ("missed", "other_name", "equivalent")]
    for mark, lines in [("totals", totals(commands, faults, results)), *parts, ("faults", report(commands, faults, results))]:
        begin, end = f"<!-- {mark}: written by tests/planted/run.py -->", f"<!-- {mark} end -->"
        head, rest = text.split(begin)
        text = head + begin + "\n" + "\n".join(lines) + "\n" + end + rest.split(end)[1]
    page.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("check", "baseline", "full", "retry", "page"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="")
    parser.add_argument("--class", dest="classes", default="")
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--tessera", default=str(ROOT / "build" / "cli" / "tessera"))
    parser.add_argument("--results", default="planted-results.json")
    parser.add_argument("--join", nargs="+", default=[])
    options = parser.parse_args()

    commands, faults = load()
    problems = list(problems_of_text(commands, faults))
    if problems:
        print("\n".join(problems))
        return 1
    if options.check:
        print(f"{len(faults)} faults, {len(commands)} commands: every text is in its template")
        return 0
    index, count = map(int, options.shard.split("/"))
    chosen = [fault for i, fault in enumerate(faults) if i % count == index
              and (not options.only or fault["id"] in options.only.split(","))
              and (not options.classes or fault["class"] in options.classes.split(","))]
    if options.baseline:
        return 1 if baseline(options, commands, chosen) else 0
    if options.join:
        results = {}
        for file in options.join:
            results.update(json.loads(pathlib.Path(file).read_text()))
    else:
        results = work(options, commands, chosen)
    if options.page:
        write_page(commands, faults, results)
    print("\n".join([*totals(commands, chosen, results), *report(commands, chosen, results)]))
    surprises = [f"{fault['id']}: {surprise_of(fault, results[fault['id']])}" for fault in chosen
                 if fault["id"] in results and surprise_of(fault, results[fault["id"]])]
    print("\n".join(["", *surprises]))
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
