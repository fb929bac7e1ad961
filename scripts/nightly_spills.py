"""The stage `spills` of scripts/nightly: drawn attention by mma.sync, nothing pinned, through the assembler.

Also alone: nightly_spills.py [COUNT [SEED [LOG]]], with TESSERA_BUILD for another folder than build. A line of LOG is a problem, and
what `warm` said of its kernel. A failure prints the command that repeats it."""
import concurrent.futures
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

ARCHES = ["sm_120a", "sm_121a"]
HEAD_DIMS = [(64, 64), (96, 96), (128, 128), (192, 128), (256, 256), (32, 32), (72, 72), (80, 80), (160, 160), (16, 16), (192, 192)]
PAGE_SIZES = [1, 8, 16, 32, 64, 128, 256]
LENGTHS = [1, 4, 16, 61, 256, 1000, 2048, 4096, 8192, 40000]


def draw(r, head_dims):
    """The flags of one problem. Not every one is legal: what no kernel is made for is refused, and counts as nothing."""
    def one_in(n):
        return r.randrange(n) == 0

    d, dv = head_dims
    f = {"arch": r.choice(ARCHES), "head-dim": d, "dtype": r.choice(["bf16", "bf16", "f16", "e4m3"])}
    if dv != d:
        f["head-dim-v"] = dv
    if d in (64, 128) and one_in(5):
        f["dtype"] = "nvfp4"
    f["mask"] = r.choice(["none", "causal"])
    if one_in(4):
        f["window"] = r.choice(["sliding", "sliding", "chunked"])
    f["kv-layout"] = r.choice(["dense", "paged", "paged", "ragged"])
    f["q-layout"] = r.choice(["dense", "ragged"])
    if f["dtype"] == "nvfp4" and f["kv-layout"] == "paged":
        f["kv-layout"] = "ragged"
    if f["kv-layout"] == "paged":
        f["page-size"] = r.choice(PAGE_SIZES)
        f["seqused"] = "k" if f["q-layout"] == "ragged" else r.choice(["k", "qk"])
    elif one_in(4):
        f["seqused"] = r.choice(["k", "qk"])
    if f["dtype"] in ("bf16", "f16") and one_in(4):
        f["kv-dtype"] = "e4m3"
    if f["dtype"] == "bf16" and f["kv-layout"] == "paged" and "kv-dtype" not in f and one_in(6):
        f["kv-format"] = r.choice(["nvfp4", "mxfp8"])
    if f["dtype"] in ("bf16", "f16", "e4m3") and f["kv-layout"] == "dense" and one_in(8):
        f["v-layout"] = "k"
    if f["dtype"] in ("bf16", "f16") and one_in(12):
        f = {k: v for k, v in f.items() if k not in ("page-size", "seqused", "kv-format", "v-layout", "window")}
        f.update({"kv-layout": "dense", "q-layout": "dense", "kv-pools": "sparse_window"})
    if one_in(4):
        f["softcap"] = "tanh"
    if one_in(4):
        f["alibi"] = "per_head"
    if one_in(4):
        f["sink"] = "per_head"
    if one_in(6) and f["mask"] == "none" and "window" not in f:
        f["tree-mask"] = "bits"
    if one_in(4):
        f["output"] = "unnormalized"
        f.pop("sink", None)
    if one_in(6):
        f["split-kv"] = r.choice(["dealt", "on"])
    if one_in(10):
        f["split-size"] = r.choice([128, 256, 512, 1024])
    if one_in(6):
        f["pack-gqa"] = r.choice([1, 2, 3, 4, 5, 8, 16])
    if not one_in(3):
        kv = r.choice([1, 2, 4, 8, 5])
        f.update({"batch": r.choice([1, 2, 4, 32]), "heads-kv": kv, "heads-q": kv * r.choice([1, 2, 3, 4, 6, 7, 8, 16]),
                  "seqlen-q": r.choice(LENGTHS), "seqlen-k": r.choice(LENGTHS)})
    return f


def compile_one(tessera, flags, cache):
    """(the entry of warm's report, "", whether the problem is one) or (None, why not, ...)."""
    command = [tessera, "warm", "fmha", *words(flags), "--json", "--quiet", "--jobs", "1", "--cache-dir", cache]
    done = subprocess.run(command, capture_output=True, text=True)
    entries = json.loads(done.stdout)["entries"] if done.returncode == 0 else []
    if entries:
        return entries[0], "", True
    return None, done.stderr.strip() or f"exit status {done.returncode}", done.returncode in (2, 3)


def words(flags):
    return [word for name, value in flags.items() for word in (f"--{name}", str(value))]


def run(build, jobs, count=400, seed=None, log=None):
    """Whether none of the kernels of `count` drawn problems has spills or notes."""
    seed = seed if seed is not None else random.SystemRandom().randrange(1 << 32)
    r = random.Random(seed)
    problems = [draw(r, HEAD_DIMS[i % len(HEAD_DIMS)]) for i in range(count)]
    begin = time.time()
    kernels, bad, broken, refused = {}, {}, [], 0
    with tempfile.TemporaryDirectory() as cache, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        answers = pool.map(lambda f: compile_one(str(build / "cli/tessera"), f, cache), problems)
        for flags, (entry, why, is_known) in zip(problems, answers):
            command = "tessera warm fmha " + " ".join(words(flags))
            if log:
                print(json.dumps({"flags": flags, "entry": entry, "why": why}), file=log, flush=True)
            if entry is None:
                refused += 1
                if not is_known:
                    broken.append((command, why))
                continue
            kernels[entry["entry"]] = entry
            if entry["spill_bytes"] or entry["notes"]:
                bad.setdefault(entry["entry"], (command, entry["spill_bytes"], entry["notes"]))
    for name, (command, spills, notes) in bad.items():
        print(f"spills: {name}: {spills} bytes, notes {notes}\n  {command}", file=sys.stderr)
    for command, why in broken:
        print(f"spills: {command}: {why}", file=sys.stderr)
    slowest = max(kernels.values(), key=lambda e: e["compile_ms"], default=None)
    print(f"spills: seed {seed}: {'pass' if not bad and not broken and kernels else 'FAIL'}, {count} problems, {refused} refused, "
          f"{len(kernels)} kernels, {len(bad)} with spills or notes, {time.time() - begin:.0f} s"
          + (f", the slowest to compile {slowest['compile_ms'] / 1000:.2f} s: {slowest['entry']}" if slowest else ""), flush=True)
    return not bad and not broken and bool(kernels)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    root = pathlib.Path(__file__).resolve().parent.parent
    sys.exit(0 if run(pathlib.Path(os.environ.get("TESSERA_BUILD", root / "build")), os.cpu_count() or 1,
                      *(int(argument) for argument in arguments[:2]),
                      **({"log": open(arguments[2], "w")} if len(arguments) > 2 else {})) else 1)
