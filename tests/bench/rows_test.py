"""bench/h200/rows without a GPU: its cases are those of bench/peers, and what verdicts canned tables get."""
import pathlib
import subprocess
import sys
import unittest

from program import program

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROWS = ROOT / "bench" / "h200" / "rows"
sys.path.insert(0, str(ROWS.parent))
from rows_bars import BESIDE, EIGHT, TWO, cases, verdicts  # noqa: E402

HEAD = """| operator | rows | MB | tessera us | TB/s | copy us | of the copy's speed | torch.compile us | ratio | FlashInfer us | times FlashInfer | threads |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""
PRODUCT = """| m x k, parts | tessera us | DeepGEMM us | time of DeepGEMM over ours |
|---|---|---|---|
| 1 x 7168, 1 | 6.4 | 5.8 | 0.9 |

| m x k | tessera's fastest us | DeepGEMM's us | time of DeepGEMM over ours |
|---|---|---|---|
"""


def log(operator, *rows):
    """rows: (rows, MB, our us, the copy's us, torch.compile's us, FlashInfer's us)."""
    return HEAD + "".join(f"| {operator} | {n} | {mb} | {us} | 1.0 | {copy} | {copy / us:.3f} | {compiled} | {compiled / us:.2f} | {infer} | "
                          f"{infer / us:.2f} | t128 |\n" for n, mb, us, copy, compiled, infer in rows)


class Bars(unittest.TestCase):
    def found(self, logs):
        return {one.bar: one for one in verdicts(logs)}

    def test_nothing_is_measured_without_logs(self):
        self.assertEqual({one.status for one in verdicts({})}, {"not measured"})

    def test_large_few_and_peers(self):
        nan = float("nan")
        logs = {"chain-residual-norm": log("residual + RMSNorm", (1, 0.1, 3.0, 2.1, 4.0, 3.1), (4096, 234.9, 57.0, 80.0, 57.0, 60.0)),
                "chain-rope-nvfp4": log("inverse RoPE + NVFP4", (64, 0.2, 1.6, 1.0, nan, nan), (65536, 92.3, 29.3, 23.1, nan, nan)),
                "chain-append-e4m3": log("RoPE + append of K and V to e4m3 pages", (512, 1.0, 2.0, 1.8, nan, nan))}
        found = self.found(logs)
        status = lambda begin: {bar: one.status for bar, one in found.items() if bar.startswith(begin)}
        self.assertEqual(list(status("residual + RMSNorm,").values()), ["met", "met"])
        self.assertEqual(list(status("inverse RoPE").values()), ["missed", "missed"])
        self.assertEqual(list(status("RoPE + append").values()), ["not measured", "met"])
        self.assertEqual(status("row operators: no slower than torch"), {"row operators: no slower than torch.compile": "met"})
        self.assertIn("0.788 at 65536 rows; 0 of 1", found["inverse RoPE + NVFP4, from 32 MB on: at least 0.90 of a copy's speed"].measured)
        slower = log("RMSNorm", (4096, 117.0, 40.0, 40.0, 50.0, 39.0))
        found = self.found(logs | {"peer-norm": slower})
        self.assertEqual(found["row operators: no slower than FlashInfer"].status, "missed")

    def test_products_take_the_fastest_of_all_ways(self):
        rows = "| 1 x 7168 | 3.4 | 3.6 | 1.05 |\n"
        bar = "mHC's product: no slower than DeepGEMM's tf32_hc_prenorm_gemm"
        self.assertEqual(self.found({"product-7168": PRODUCT + rows})[bar].status, "met")
        rows += "| 13 x 7168 | 6.4 | 6.3 | 0.99 |\n| 4 x 7168 | 6.4 | nan | nan |\n"
        self.assertEqual(self.found({"product-7168": PRODUCT + rows})[bar].status, "missed")


class Cases(unittest.TestCase):
    def test_each_is_a_case_of_the_program(self):
        listed = subprocess.run([sys.executable, ROOT / "bench" / "peers" / "rows.py", "--dry-run"], capture_output=True, text=True, check=True).stdout
        names = [line.split(":")[0] for line in listed.splitlines()]
        for operator in (EIGHT | TWO | BESIDE).values():
            self.assertEqual(names.count(operator), 1, operator)

    def test_lists_and_goes_on(self):
        with program(ROWS) as rows:
            self.assertIn(f"{len(cases('x', True))} cases", rows.run("--dry-run")[0])
            words = ("--only", "chain-swiglu", "--seconds", "40")
            self.assertEqual(rows.run(*words)[1], 3)
            self.assertEqual(rows.run(*words)[1], 0)
            self.assertEqual(len(rows.calls()), 2)


if __name__ == "__main__":
    unittest.main()
