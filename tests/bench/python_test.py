"""bench/h200/python without a GPU: its cases are there, where it goes on, and what verdicts canned logs get."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

from program import program

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = ROOT / "bench" / "h200" / "python"
sys.path.insert(0, str(PYTHON.parent))
from python_bars import CASES, TESTS, verdicts  # noqa: E402
from resumable import place_of  # noqa: E402

CALLS, TORCH, MODEL = "four tensors in a prepared call, over the C launch: at most 3 us", "tests/python/test_torch.py: no failure", "transformers: the tokens of the stock attention, ties aside"


def statuses(logs):
    return {one.bar: one.status for one in verdicts(logs)}


class Bars(unittest.TestCase):
    def test_nothing_is_measured_without_logs(self):
        self.assertEqual(set(statuses({}).values()), {"not measured"})
        self.assertEqual(len(statuses({})), 2 + len(TESTS))

    def test_calls(self):
        for us, status in (("0.26", "met"), ("-0.04", "met"), ("3.01", "missed")):
            self.assertEqual(statuses({"calls": f"four tensors over the C launch: {us} us: WORD (3 us)\n"})[CALLS], status)

    def test_tests(self):
        for last, status in (("13 passed, 1 skipped in 22.13s", "met"), ("1 failed, 12 passed in 9.00s", "missed"), ("3 skipped in 0.01s", "not measured"),
                             ("2 passed, 1 error in 4.00s", "missed"), ("ImportError: 3 passed by", "not measured")):
            self.assertEqual(statuses({"test-torch": f"....\n{last}\n"})[TORCH], status, last)

    def test_model(self):
        for line, status in (("192 tokens on cuda: the same", "met"), ("192 tokens on cuda: NOT the same", "missed"), ("12 tokens on cpu: the same", "not measured")):
            self.assertEqual(statuses({"transformers": f"1 2 3 ... 64 of 64 tokens the same\n{line}\n"})[MODEL], status, line)


class Cases(unittest.TestCase):
    def test_each_is_there(self):
        for case in CASES:
            self.assertTrue((ROOT / place_of(case)).exists(), case)

    def test_lists_and_goes_on(self):
        with program(PYTHON) as python:
            listed = python.run("--dry-run")[0]
            self.assertIn("python3 -m pytest -q -p no:cacheprovider tests/python/test_torch.py", listed)
            self.assertIn("python3 bench/peers/python_calls.py", listed)
            self.assertEqual(python.run("--seconds", "20")[1], 3)
            self.assertEqual(python.run()[1], 0)
            self.assertEqual(len(python.calls()), len(CASES))

    def test_a_python_without_the_package_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            runner = pathlib.Path(folder) / "runner"
            runner.write_text("#!/bin/sh\nexit 1\n")
            runner.chmod(0o755)
            found = subprocess.run([PYTHON, "--out", pathlib.Path(folder) / "results", "--python", runner], capture_output=True, text=True, check=False)
            self.assertEqual(found.returncode, 2)
            self.assertIn("cannot import tessera", found.stderr)


if __name__ == "__main__":
    unittest.main()
