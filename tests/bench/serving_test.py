"""bench/h200/serving without a GPU: where a call goes on, and what verdicts canned tables get."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVING = ROOT / "bench" / "h200" / "serving"
sys.path.insert(0, str(SERVING.parent))
from serving_bars import cases, number, rows_of, verdicts  # noqa: E402

# Stands for python3: notes which script it was to run, and does what the folder's file of the script's name says.
RUNNER = """#!{python}
import os, pathlib, signal, sys
folder, script = pathlib.Path("{folder}"), pathlib.Path(sys.argv[1]).stem
with open(folder / "calls", "a") as calls:
    calls.write(script + " " + " ".join(sys.argv[2:]) + "\\n")
todo = folder / script
if todo.exists():
    exec(todo.read_text())
print("| a |")
"""


class Calls(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.library, self.runner = self.folder / "library.so", self.folder / "runner"
        self.library.write_text("one")
        self.runner.write_text(RUNNER.format(python=sys.executable, folder=self.folder))
        self.runner.chmod(0o755)

    def serving(self, *flags):
        return subprocess.run([SERVING, "--library", self.library, "--out", self.folder / "out", "--python", self.runner, *flags],
                              capture_output=True, text=True, check=False, cwd=ROOT)

    def calls(self):
        path = self.folder / "calls"
        return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []

    def test_goes_on_where_it_stopped(self):
        # 80 seconds are one case's, whose estimate is 70.
        first = self.serving("--only", "decode", "--seconds", "80")
        self.assertEqual(first.returncode, 3)
        self.assertIn("3 cases are left: call again", first.stdout)
        self.assertEqual(self.calls(), ["serving_decode"])
        self.serving("--only", "decode", "--seconds", "80")
        last = self.serving("--only", "decode")
        self.assertIn("all cases are done", last.stdout)
        lines = (self.folder / "calls").read_text().splitlines()
        self.assertEqual(len(lines), 4)
        self.assertEqual(len(set(lines)), 4)
        self.assertEqual(self.serving("--only", "decode").returncode, 0)
        self.assertEqual(len(self.calls()), 4)

    def test_goes_on_after_it_was_killed(self):
        (self.folder / "mla_decode").write_text("if '--seqlen-q 2' in ' '.join(sys.argv): os.kill(os.getppid(), signal.SIGKILL)")
        self.assertEqual(self.serving("--only", "mla").returncode, -9)
        self.assertTrue((self.folder / "out" / "mla-1.json").exists())
        self.assertFalse((self.folder / "out" / "mla-2.json").exists())
        (self.folder / "mla_decode").unlink()
        self.assertEqual(self.serving("--only", "mla").returncode, 0)
        self.assertEqual(self.calls(), ["mla_decode"] * 3)

    def test_gives_up_after_a_second_failure(self):
        (self.folder / "mixed_step").write_text("print('no such kernel'); sys.exit(1)")
        first, second, third = (self.serving("--only", "step") for _ in range(3))
        self.assertEqual((first.returncode, second.returncode, third.returncode), (3, 0, 0))
        self.assertIn("step: exit code 1: no such kernel", second.stdout)
        self.assertIn("step: exit code 1: no such kernel", (self.folder / "out" / "verdict.md").read_text())
        self.assertEqual(len(self.calls()), 2)

    def test_stops_a_case_in_time(self):
        (self.folder / "fmha_vs_cudnn").write_text("import time; print('| partly |', flush=True); time.sleep(60)")
        stopped = self.serving("--only", "dense-512", "--seconds", "17")
        self.assertEqual(stopped.returncode, 3)
        self.assertIn("dense-512: stopped after 2 s", stopped.stdout)
        self.assertIn("| partly |", (self.folder / "out" / "dense-512.log").read_text())

    def test_keeps_results_of_one_library(self):
        self.serving("--only", "mla")
        self.library.write_text("another")
        other = self.serving("--only", "mla")
        self.assertIn("has results of another library", other.stderr)
        self.assertEqual(len(self.calls()), 2)

    def test_lists_cases_and_runs_none(self):
        listed = self.serving("--dry-run")
        self.assertEqual(listed.returncode, 0)
        self.assertRegex(listed.stdout, r"mla-1 +60 s  left  +python3 bench/peers/mla_decode.py --library .*library.so --heads 128")
        self.assertIn("cases, about ", listed.stdout)
        self.assertEqual(self.calls(), [])
        self.serving("--only", "mla")
        self.assertRegex(self.serving("--dry-run").stdout, "mla-1 +60 s  done ")
        self.assertEqual(self.serving("--only", "nothing").returncode, 2)
        self.assertEqual(self.serving("--verdict", "--only", "mla").returncode, 0)


def markdown(heads, *rows):
    return "\n".join(["noise", heads, "|" + "---|" * (heads.count("|") - 1), *rows, "done"]) + "\n"


DECODE = "| heads | batch x keys | page | K and V MB | us | TB/s | of a plain read | fastest peer us | peer / us | peer | verdict | kernel |"
E4M3 = ("| heads | batch x keys | queries | K and V | page | K and V MB | tessera us | TB/s | of a plain read | fastest of PyTorch us | ratio | "
        "backend | kernel |")
MLA = "| heads | queries | batch x keys | page | tessera us | TFLOPS | TB/s | of a plain read | FlashMLA us | ratio | kernel |"
RAGGED = "| heads | sequences | mask | keys | dense us | ragged us | ragged / dense | bar | kernel | dense kernel |"
DENSE = "| dtype | head_dim | S | mask | tessera TFLOP/s | peer TFLOP/s | ratio | peer | kernel |"


def status_of(logs, beginning):
    return [(one.status, one.measured) for one in verdicts(logs) if one.bar.startswith(beginning)]


class Verdicts(unittest.TestCase):
    def test_tables_are_read_out_of_logs(self):
        rows = rows_of(markdown("| a | b |", "| 1 | x |", "| 2 |", "| 3 | - |") + markdown("| c |", "| nan |"))
        self.assertEqual(rows, [{"a": "1", "b": "x"}, {"a": "3", "b": "-"}, {"c": "nan"}])
        self.assertEqual([number(text) for text in ("1.5", "-", "nan", None, "x")], [1.5, None, None, None, None])

    def test_nothing_is_met_without_a_measurement(self):
        self.assertEqual({one.status for one in verdicts({})}, {"not measured"})
        self.assertGreater(len(verdicts({})), 15)

    def test_decode(self):
        def log(us, read, peer):
            return {"decode-32-8-page16": markdown(
                DECODE, f"| 32/8 | 8x8192 | 16 | 268 | 70 | 3.8 | {read} | 71 | 1.0 | fa2 | | slow |",
                f"| 32/8 | 8x1024 | 16 | 34 | {us} | 2.0 | 0.5 | {peer} | 1.0 | xqa | | one |",
                f"| 32/8 | 8x1024 | 16 | 34 | {2 * us} | 2.0 | 0.5 | {peer} | 1.0 | xqa | | another |")}
        self.assertEqual(status_of(log(9, 0.921, 10), "bf16 decode, K and V")[0],
                         ("met", "0.921 at 32/8 8x8192 pages of 16; 1 of 1 meet it"))
        self.assertEqual(status_of(log(9, 0.919, 10), "bf16 decode, K and V")[0][0], "missed")
        self.assertEqual(status_of(log(9, 0.92, 10), "bf16 decode 8 x")[0][0], "met")  # of the faster kernel
        self.assertEqual(status_of(log(9.1, 0.92, 10), "bf16 decode 8 x")[0][0], "missed")
        self.assertEqual(status_of(log(9, 0.92, 10), "bf16 decode of one")[0][0], "not measured")
        published = status_of(log(14, 0.92, "-"), "bf16 decode 8 x")[0]
        self.assertEqual(published[0], "met")
        self.assertIn("16.3 us; 1 of 1 meet it (published figure)", published[1])

    def test_e4m3(self):
        def log(wide, narrow):
            return {"e4m3-64-8-page0": markdown(E4M3, f"| 64/8 | 8x32768 | 1 | bf16 | dense | 1074 | {wide} | 4 | 0.95 | 9 | 1 | F | k |",
                                                f"| 64/8 | 8x32768 | 1 | e4m3 | dense | 537 | {narrow} | 4 | 0.86 | 9 | 1 | F | k |")}
        self.assertEqual([status for status, _ in status_of(log(250, 140), "e4m3")], ["met", "met"])
        self.assertEqual([status for status, _ in status_of(log(139, 140), "e4m3")], ["met", "missed"])

    def test_latent(self):
        measured = {"mla-2": markdown(MLA, "| 128 | 2 | 128x4096 | 64 | 500 | 586 | 1.2 | 0.27 | 484 | 0.972 | k |",
                                      "| 128 | 2 | 128x8192 | 64 | 500 | 586 | 1.2 | 0.27 | 484 | 0.94 | k |")}
        self.assertEqual(status_of(measured, "MLA")[0], ("missed", "0.940 at 2 of 128x8192; 1 of 2 meet it"))
        alone = {"mla-2": markdown(MLA, "| 128 | 2 | 128x4096 | 64 | 500 | 640 | 1.2 | 0.27 | nan | nan | k |")}
        self.assertEqual(status_of(alone, "MLA")[0], ("met", "0.970 at 2 of 128x4096; 1 of 1 meet it (published figure, of two queries)"))

    def test_prefill(self):
        logs = {"ragged-32-8": markdown(RAGGED, "| 32/8 | 1x16384 | none | packed | 100 | 102 | 1.020 | | k | d |",
                                        "| 32/8 | 1x16384 | none | pages of 64 | 100 | 107 | 1.070 | | k | d |",
                                        "| 32/8 | mixed | none | pages of 16 | 100 | 150 | 1.500 | | k | d |"),
                "fp8-prefill": markdown(DENSE, "| e4m3 | 128 | 16384 | causal | 900 | 880 | 1.023 | x | slower |",
                                        "| e4m3 | 128 | 16384 | causal | 930 | 880 | 1.057 | x | k |",
                                        "| e4m3 | 128 | 1024 | none | 930 | 980 | 0.9 | x | k |"),
                "step": markdown("| step | one launch us | two launches us | one / two | kernel | kernels of two |",
                                 "| 64+1x512@2048 | 100 | 99 | 1.010 | k | l |")}
        self.assertEqual([status for status, _ in status_of(logs, "ragged prefill")], ["met", "missed", "not measured"])
        self.assertEqual(status_of(logs, "fp8 prefill")[0], ("met", "1.057 at causal; 1 of 1 meet it"))
        self.assertEqual(status_of(logs, "an engine's step")[0][0], "missed")

    def test_dense(self):
        def log(*ratios):
            return {"old-gemm": markdown("| kind | shape | old us | new us | new over old | outputs |",
                                         *(f"| gemm | {i} | 10 | 10 | {ratio} | same |" for i, ratio in enumerate(ratios)))}
        self.assertEqual(status_of(log(0.9, 1.1), "dense tables, gemm")[0][0], "met")
        self.assertEqual(status_of(log(1.0, 1.03), "dense tables, gemm")[0][0], "missed")
        short = {"dense-512": markdown(DENSE, "| bf16 | 64 | 512 | none | 400 | 400 | 1.0 | CUDNN | k |")}
        goal = [one for one in verdicts(short) if one.bar.startswith("S = 512")][0]
        self.assertEqual((goal.status, goal.is_goal), ("missed", True))

    def test_a_missed_bar_is_the_exit_code(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder)
            for case in cases("library", None):
                (out / f"{case.name}.json").write_text(json.dumps({"tries": 1, "done": True, "reason": "", "seconds": 1}))
            run = lambda: subprocess.run([SERVING, "--out", out, "--verdict"], capture_output=True, text=True, check=False, cwd=ROOT,
                                         env={**os.environ, "TESSERA_BUILD": "build"})
            (out / "dense-512.log").write_text(markdown(DENSE, "| bf16 | 64 | 512 | none | 400 | 400 | 1.0 | CUDNN | k |"))
            self.assertEqual(run().returncode, 0)  # a goal
            (out / "step.log").write_text(markdown("| step | one launch us | two launches us | one / two | kernel | kernels of two |",
                                                   "| 64+1x512@2048 | 100 | 99 | 1.010 | k | l |"))
            missed = run()
            self.assertEqual(missed.returncode, 1)
            self.assertIn("| an engine's step in one launch: less time than prefills and decodes in two | 1.010 at 64+1x512@2048; "
                          "0 of 1 meet it | missed |", missed.stdout)


if __name__ == "__main__":
    unittest.main()
