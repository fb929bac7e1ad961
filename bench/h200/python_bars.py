"""What `python` runs, and the verdicts over it: cases, figures out of their logs, bars."""
import re

from serving_bars import Case, Verdict, judge, number, table  # noqa: F401

TESTS = ("torch", "jax", "cupy", "transformers")  # test_prepared.py wants the driver's stand-in: .ci/run has it
CASES = [Case("calls", "python_calls.py", (), 90),
         *(Case(f"test-{name}", f"tests/python/test_{name}.py", (), 60) for name in TESTS),
         Case("transformers", "examples/python/transformers_generate.py", (), 60)]
# What is not measured without a module.
MODULES = {"torch": "calls and PyTorch's tests are not run", "jax": "JAX's tests are not run", "cupy": "CuPy's tests are not run",
           "transformers": "its tests and the model are not run", "triton": "its launch is not timed", "flashinfer": "its calls are not timed",
           "pytest": "no test is run"}
MOST_US = 3  # four tensors, over the C launch


def counts_of(log):
    """pytest's last line as {"passed": N, ...}."""
    lines = [line for line in log.splitlines() if re.search(r"\d+ (passed|failed|skipped|errors?)\b.* in [\d.]+s", line)]
    return {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|skipped|error)", lines[-1])} if lines else {}


def test_bar(name, log):
    bar = f"tests/python/test_{name}.py: no failure"
    counts = counts_of(log)
    measured = ", ".join(f"{count} {word}" for word, count in counts.items()) or "-"
    if counts.get("failed", 0) or counts.get("error", 0):
        return Verdict(bar, measured, "missed")
    return Verdict(bar, measured, "met" if counts.get("passed", 0) else "not measured")


def generated_bar(log):
    """The example's last line, "N tokens on cuda: the same"; on the CPU it says nothing about a GPU."""
    bar = "transformers: the tokens of the stock attention, ties aside"
    found = re.search(r"^(\d+ tokens) on cuda: (the same|NOT the same)$", log, re.MULTILINE)
    if not found:
        return Verdict(bar, "-", "not measured")
    return Verdict(bar, f"{found[1]}: {found[2]}", "met" if found[2] == "the same" else "missed")


def verdicts(logs):
    """logs: what each case printed, by its name."""
    over = re.search(r"four tensors over the C launch: (-?[\d.]+) us", logs.get("calls", ""))
    bars = [judge("four tensors in a prepared call, over the C launch: at most 3 us", [(number(over[1]) if over else None, "one query over 128 keys")], MOST_US,
                  at_least=False, unit=" us")]
    return [*bars, *(test_bar(name, logs.get(f"test-{name}", "")) for name in TESTS), generated_bar(logs.get("transformers", ""))]
