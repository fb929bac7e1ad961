"""The stage `attention` of scripts/nightly: the whole product of attention on tcgen05, in parts side by side."""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "bench/results/attention-nightly.md"
PARTS = 300  # one kernel's twenty seeds in most of them: what is longest is over in a minute or two
PARTS_OF_A_JOB = 4  # at least, so that those who are done early take another


def longest_first(page, parts):
    """The parts in the order of what they took by the page of the last time; first of all those that it does not know."""
    took = {}
    for row in re.finditer(r"^\| (\d+)/(\d+) \| (\d+) of (\d+) \|.*\| (\d+) \|$", page, re.MULTILINE):
        part, count, cases, every, seconds = map(int, row.groups())
        if count == parts and cases > 0:
            took[part] = seconds * every / cases
    return sorted(range(parts), key=lambda part: -took.get(part, float("inf")))


def run_part(program, part, parts, turns, begin, seconds):
    """One part's line as a dictionary, and what went wrong. `turns`: how many more a job has to take, this one too."""
    variables = {"TESSERA_NIGHTLY": "1", "TESSERA_SHARD": f"{part}/{parts}"}
    if seconds:
        # Few parts need all that is theirs, so each may take up to twice its share of what time is left.
        variables["TESSERA_SECONDS"] = f"{max((seconds - (time.time() - begin)) * 2 / (turns + 1), 1):.0f}"
    done = subprocess.run([program, "-tc=attention on tcgen05: the whole product*"], capture_output=True, text=True,
                          env={**os.environ, **variables})
    line = next((l for l in done.stdout.splitlines() if l.startswith("part {")), None)
    result = json.loads(line[5:]) if line else None
    return result, "" if done.returncode == 0 and result else (done.stdout + done.stderr)[:4000]


def run(build, commit, jobs, seconds):
    """Runs the parts side by side and writes the page; whether all is well."""
    parts = max(jobs * PARTS_OF_A_JOB, PARTS)
    order = longest_first(PAGE.read_text() if PAGE.exists() else "", parts)
    begin = time.time()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = {part: pool.submit(run_part, str(build / "tests/test_emulated"), part, parts, -(-(parts - place) // jobs),
                                     begin, seconds) for place, part in enumerate(order)}
        answers = [futures[part].result() for part in range(parts)]
    wall = time.time() - begin
    rows = [row for row, _ in answers if row]
    errors = [error for _, error in answers if error]
    if not rows:
        print(errors[0] if errors else "no part answered", file=sys.stderr)
        return False

    def total(key):
        return sum(row[key] for row in rows)

    cases, every, cpu = total("cases"), total("of"), total("seconds")
    print(f"attention: {cases} of {every} cases, {total('runs')} runs, {total('failed')} failed, {wall:.0f} s", flush=True)
    lines = ["# Attention on tcgen05: the whole product, in the emulator", "",
             f"Written by `scripts/nightly attention --jobs {jobs}{f' --seconds {seconds}' if seconds else ''}` at commit {commit}. "
             "No Blackwell hardware has run any of these kernels.", "",
             "A case is one kernel on one ragged shape with inputs of its own, under the schedules fair, eager, lazy and adversarial, with the race",
             "detector, outputs poisoned: a finding, a row outside of its bound against float64, a cosine below 0.999995, or other bits under",
             "another schedule fail it. The product: head_dim 16, 32, 64, 96, 128, 192/128, 192, 256, 512, and pairs of CTAs at 128, 256 and 512; both",
             "masks, four swizzles, P in Tensor Memory or shared memory, bf16 and fp16, as far as they go together, with twenty seeds; every seed draws",
             "lengths, heads and the schedule's own numbers. Beside each case another kernel of the same five, whose output, layout of V, window, used",
             "lengths, packed heads (3, 8, 20, 96, 128, 131), split keys and pools of keys are drawn. First of all a cover of every pair of two choices.", "",
             *(["Cases that are missing are the last seeds of parts whose share of the time was over.", ""] if cases < every else []),
             "| what | |", "|---|---|",
             f"| cases | {cases:,} of {every:,} ({100 * cases / every:.1f} %) |",
             f"| kernels compiled | {total('kernels'):,}; those of the cover assembled too, {total('spilling'):,} of them with spills |",
             f"| launches | {total('runs'):,} |",
             f"| cases that failed | {total('failed'):,}{f', {len(errors)} parts in trouble' if errors else ''} |",
             f"| largest relative error, as a part of what independent roundings explain | {max(r['error_share'] for r in rows):.3f} |",
             f"| least cosine | {min(r['cosine'] for r in rows):.8f} |",
             f"| time | {wall:.0f} s, {cpu:,.0f} s over all parts: {cpu / max(cases, 1):.2f} s a case, of which launches "
             f"{total('run_seconds') / max(cases, 1):.2f}, float64 {total('reference_seconds') / max(cases, 1):.2f}, the rest compiling |", "",
             "| part | cases | kernels | launches | failed | error | cosine | seconds |", "|---|---|---|---|---|---|---|---|"]
    lines += [f"| {r['part']}/{r['parts']} | {r['cases']} of {r['of']} | {r['kernels']} | {r['runs']} | {r['failed']} | {r['error_share']:.3f} | "
              f"{r['cosine']:.8f} | {r['seconds']:.0f} |" for r in rows]
    for error in errors[:3]:
        lines += ["", "```", error.strip(), "```"]
    PAGE.write_text("\n".join(lines) + "\n")
    return not errors and total("failed") == 0 and len(rows) == parts
