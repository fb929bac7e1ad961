"""Cases that are programs of bench/peers, or tests: run one after the other, their output kept, gone on with where the last call stopped."""
import argparse
import hashlib
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_TRIES, SPARE = 2, 15  # seconds to stop a case and to write
ABSENT, STOPPED = "there is no", "stopped after"


class Results:
    """DIR/NAME.log: what a case printed; DIR/NAME.json: that it is done, or how often it failed."""

    def __init__(self, folder):
        self.folder = folder

    def state(self, case):
        path = self.folder / f"{case.name}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"tries": 0, "done": False}

    def is_left(self, case):
        state = self.state(case)
        return not state["done"] and state["tries"] < MOST_TRIES

    def log(self, case):
        path = self.folder / f"{case.name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def write(self, case, text, state):
        for name, content in ((f"{case.name}.log", text), (f"{case.name}.json", json.dumps(state) + "\n")):
            part = self.folder / f".{name}"
            part.write_text(content, encoding="utf-8")
            part.replace(self.folder / name)  # the log first: a case is done where both are there

    def claim(self, library):
        """Throws where the folder has results of another library."""
        self.folder.mkdir(parents=True, exist_ok=True)
        mark, now = self.folder / "library", hashlib.sha256(pathlib.Path(library).read_bytes()).hexdigest()
        if not mark.exists():
            mark.write_text(now + "\n", encoding="utf-8")
        elif mark.read_text(encoding="utf-8").strip() != now:
            raise SystemExit(f"{pathlib.Path(sys.argv[0]).name}: {self.folder} has results of another library than {library}: give another --out")


def place_of(case):
    """Below the root: a case without a folder lies in bench/peers."""
    return case.script if "/" in case.script else f"bench/peers/{case.script}"


def words_of(case, root=""):
    """What an interpreter is given: tests are pytest's."""
    return [*(("-m", "pytest", "-q", "-p", "no:cacheprovider") if place_of(case).startswith("tests/") else ()), f"{root}{place_of(case)}", *case.arguments]


def run(case, python, seconds, built):
    """Output and how it ended: "" or why it is not done. built: a folder for what cases build once."""
    if not (ROOT / place_of(case)).exists():
        return "", f"{ABSENT} {place_of(case)}"
    process = subprocess.Popen([python, *words_of(case, f"{ROOT}/")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               cwd=ROOT, start_new_session=True, env={**os.environ, "TESSERA_BENCH_BUILT": str(built)})
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        return text, f"{STOPPED} {seconds:.0f} s"
    if process.returncode != 0:
        return text, f"exit code {process.returncode}: {(text.strip().splitlines() or ['no output'])[-1][:200]}"
    return text, ""


def run_case(case, results, python, seconds, is_first):
    """A case that failed is tried once more. One that was stopped has had its chance only if all of a call's time was its own."""
    print(f"{case.name} ...", flush=True)
    begin = time.monotonic()
    text, reason = run(case, python, seconds, results.folder.resolve())
    state = {"tries": results.state(case)["tries"] + int(is_first or not reason.startswith(STOPPED)), "done": not reason, "reason": reason,
             "seconds": round(time.monotonic() - begin, 1)}
    if reason.startswith(ABSENT):
        state["tries"] = MOST_TRIES
    results.write(case, text, state)
    print(f"{case.name}: {reason or 'done'} in {state['seconds']} s", flush=True)


def list_cases(all_cases, results):
    left = 0
    for case in all_cases:
        state = results.state(case)
        word = "done" if state["done"] else "failed" if state["tries"] >= MOST_TRIES else "left"
        left += case.seconds if word == "left" else 0
        print(f"{case.name:24} {case.seconds:4} s  {word:6}  python3 {' '.join(words_of(case))}")
    print(f"{len(all_cases)} cases, about {left} s are left")


def parser_of(doc, folder):
    """What all such programs are told; folder: of the results, in the build."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    build = os.environ.get("TESSERA_BUILD", "build")
    parser.add_argument("--library", default=f"{build}/bench/peers/libtessera_peer_shim.so")
    parser.add_argument("--out", default=os.environ.get("TESSERA_BENCH_OUT", f"{build}/{folder}"))
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--only", default="", help="cases whose names begin so, separated by commas")
    parser.add_argument("--python", default=sys.executable, help="what runs the cases")
    parser.add_argument("--dry-run", action="store_true", help="list cases and what they take, run nothing")
    parser.add_argument("--verdict", action="store_true", help="the verdicts over what is there, run nothing")
    return parser


def say_absent(peers, consequence):
    """Of libraries, by the module that is imported, those that cannot be."""
    for module, name in peers.items():
        if importlib.util.find_spec(module) is None:
            print(f"{name} cannot be imported: {consequence}", flush=True)


def conclude_with(verdicts, table, published=()):
    """Prints the verdicts, writes them, and says whether a bar is missed. published: figures of which some may stand in them."""

    def conclude(all_cases, results):
        found = verdicts({case.name: results.log(case) for case in all_cases})
        text = table(found)
        for case in all_cases:
            if reason := results.state(case).get("reason"):
                text += f"\n{case.name}: {reason}\n"
        if published and any("published figure" in one.measured for one in found):
            text += "\nPublished figures:\n" + "".join(f"- {of['source']}\n" for of in published)
        print(text, end="")
        (results.folder / "verdict.md").write_text(text, encoding="utf-8")
        return any(one.status == "missed" and not one.is_goal for one in found)

    return conclude


def carry_out(parser, arguments, all_cases, begin, conclude):
    """Runs what is left and the time allows. begin(cases): said before; conclude(cases, results): whether a bar is missed."""
    start = time.monotonic()
    results = Results(pathlib.Path(arguments.out))
    chosen = [case for case in all_cases if case.name.startswith(tuple(arguments.only.split(",")))]
    if not chosen:
        parser.error(f"--only {arguments.only}: no case begins so")
    if arguments.dry_run:
        list_cases(chosen, results)
        return 0
    if not arguments.verdict:
        if not pathlib.Path(arguments.library).exists():
            parser.error(f"{arguments.library}: there is none; cmake --build build --target tessera_peer_shim")
        results.claim(arguments.library)
        begin(chosen)
    elif not results.folder.is_dir():
        parser.error(f"{results.folder}: there are no results")
    is_first = True
    for case in filter(results.is_left, chosen if not arguments.verdict else []):
        left = arguments.seconds - SPARE - (time.monotonic() - start)
        if left < (1 if is_first else case.seconds):
            break
        run_case(case, results, arguments.python, left, is_first)
        is_first = False
    is_missed = conclude(all_cases, results)
    count = sum(results.is_left(case) for case in chosen)
    print(f"{count} cases are left: call again" if count else "all cases are done")
    return 3 if count else int(is_missed)
