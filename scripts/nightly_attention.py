"""The stage `attention` of scripts/nightly: the whole product of attention on tcgen05, in parts side by side."""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARTS_OF_A_JOB = 4  # so that those who are done early take another


def run_part(program, part, parts, jobs, begin, seconds):
    """One part's line as a dictionary, and what went wrong."""
    variables = {"TESSERA_NIGHTLY": "1", "TESSERA_SHARD": f"{part}/{parts}"}
    if seconds:
        # Few parts need all that is theirs, so each may take up to twice its share of what time is left.
        turns = -(-(parts - part) // jobs)
        variables["TESSERA_SECONDS"] = f"{max((seconds - (time.time() - begin)) * 2 / (turns + 1), 1):.0f}"
    done = subprocess.run([program, "-tc=attention on tcgen05: the whole product*"], capture_output=True, text=True,
                          env={**os.environ, **variables})
    line = next((l for l in done.stdout.splitlines() if l.startswith("part {")), None)
    result = json.loads(line[5:]) if line else None
    return result, "" if done.returncode == 0 and result else (done.stdout + done.stderr)[:4000]


def run(build, commit, jobs, seconds):
    """Runs the parts side by side and writes the page; whether all is well."""
    parts = jobs * PARTS_OF_A_JOB
    begin = time.time()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(run_part, str(build / "tests/test_emulated"), part, parts, jobs, begin, seconds)
                   for part in range(parts)]
        answers = [future.result() for future in futures]
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
             "lengths, packed heads (3, 8, 128), split keys and pools of keys are drawn. First of all a cover of every pair of two choices.", "",
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
    (ROOT / "bench/results/attention-nightly.md").write_text("\n".join(lines) + "\n")
    return not errors and total("failed") == 0 and len(rows) == parts
