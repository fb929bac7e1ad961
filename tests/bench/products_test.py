"""bench/h200/products without a GPU: its cases are those of bench/peers, and what verdicts canned tables get."""
import pathlib
import re
import sys
import unittest

from program import program

ROOT = pathlib.Path(__file__).resolve().parents[2]
PRODUCTS = ROOT / "bench" / "h200" / "products"
sys.path.insert(0, str(PRODUCTS.parent))
from products_bars import cases, verdicts  # noqa: E402

BLOCKS = """| m x n x k | tessera us | TFLOP/s | of the read's speed | DeepGEMM us | times it | cuBLAS us | times cuBLAS | alone us | DeepGEMM alone us | alone, times it | kernel |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""
GROUPS = """| groups x rows x n x k | tessera us | TFLOP/s | of the read's speed | DeepGEMM us | times it | alone us | DeepGEMM alone us | alone, times it | kernel | bar |
|---|---|---|---|---|---|---|---|---|---|---|
"""
WEIGHTS = """| m x n x k | format | tessera us | TFLOP/s | read us | of the read | 16-bit us | of the 16-bit rate | of the limit | kernel |
|---|---|---|---|---|---|---|---|---|---|
"""
MASKED_WEIGHTS = """| groups x rows x n x k | format | tessera us | read us | of the read | kernel |
|---|---|---|---|---|---|
"""
DRAWN = """| set | types | M | N | K | tessera us | cuBLAS us | tessera TFLOP/s | cuBLAS TFLOP/s | ratio | kernel |
|---|---|---|---|---|---|---|---|---|---|---|
"""
CHOICE = """| types | M | N | K | choice | us | best candidate | us | choice over best | cuBLAS us | cuBLAS over choice | over best |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""


class Bars(unittest.TestCase):
    def found(self, logs):
        return {one.bar: one.status for one in verdicts(logs)}

    def test_nothing_is_measured_without_logs(self):
        self.assertEqual({one.status for one in verdicts({})}, {"not measured"})

    def test_blocks_take_the_fastest_kernel_of_a_shape(self):
        rows = "| 4096 x 7168 x 16384 | 900.0 | 1 | 0.1 | 850.0 | 0.944 | nan | nan | 950.0 | 940.0 | 0.989 | a |\n| 4096 x 7168 x 16384 | 840.0 | 1 | 0.1 | 850.0 | 1.012 | nan | nan | 930.0 | 940.0 | 1.011 | b |\n"
        rows += "| 64 x 7168 x 16384 | 33.0 | 1 | 0.82 | 40.0 | 1.212 | nan | nan | nan | nan | nan | c |\n| 8 x 576 x 7168 | 8.0 | 1 | 0.3 | 8.8 | 1.100 | nan | nan | nan | nan | nan | d |\n"
        found = self.found({"blocks": BLOCKS + rows})
        self.assertEqual(found["the same, 4,096 x 7,168 x 16,384: no slower than DeepGEMM"], "met")
        self.assertEqual(found["the same: 1.03 times"], "missed")
        self.assertEqual(found["the same, alone: no slower than DeepGEMM"], "met")
        self.assertEqual(found["the same, up to 128 x 7,168 x 16,384: of a plain read at least 0.80"], "met")
        self.assertEqual(found["the same, other products of up to 128 rows: 1.15 times DeepGEMM"], "missed")
        alone = "| 64 x 7168 x 16384 | 33.0 | 1 | 0.82 | nan | nan | nan | nan | nan | nan | nan | c |\n"
        self.assertEqual(self.found({"blocks": BLOCKS + alone})["the same: no product under 0.97"], "not measured")

    def test_masked_groups_meet_the_lesser_bound(self):
        bar = "masked groups of up to 64 rows: 1.3 times DeepGEMM or 0.80 of a plain read (over that bound)"
        rows = "| masked 8 x 1 x 4096 x 7168 | 60.0 | 1 | 0.81 | 70.0 | 1.167 | nan | nan | nan | a | met |\n| masked 8 x 8 x 4096 x 7168 | 60.0 | 1 | 0.7 | 80.0 | 1.333 | nan | nan | nan | a | met |\n"
        self.assertEqual(self.found({"masked": GROUPS + rows})[bar], "met")
        rows += "| masked 8 x 32 x 4096 x 7168 | 60.0 | 1 | 0.79 | 77.0 | 1.283 | nan | nan | nan | a | missed |\n"
        self.assertEqual(self.found({"masked": GROUPS + rows})[bar], "missed")

    def test_contiguous_groups_in_turns_and_alone(self):
        rows = "| contiguous 4 x 8192 x 4096 x 7168 | 1540.0 | 1 | 0.1 | 1600.0 | 1.039 | 1700.0 | 1650.0 | 0.971 | a | met |\n"
        found = self.found({"contiguous": GROUPS + rows})
        self.assertEqual(found["contiguous groups: 1.03 times DeepGEMM"], "met")
        self.assertEqual(found["contiguous groups, alone: no slower than DeepGEMM"], "missed")

    def test_weights(self):
        rows = "| 16 x 8192 x 8192 | mxfp4 | 12.0 | 1 | 9.6 | 0.800 | 35.0 | 2.9 | nan | k |\n| 64 x 8192 x 8192 | mxfp4 | 20.0 | 1 | 9.6 | 0.480 | 36.0 | 1.8 | nan | k |\n"
        rows += "| 4096 x 8192 x 8192 | mxfp4 | 800.0 | 1 | 9.6 | 0.012 | 650.0 | 0.81 | 0.8 | k |\n"
        found = list(self.found({"weights-few-0": WEIGHTS + rows}).items())[10:14]
        self.assertEqual([status for _, status in found], ["met", "missed", "met", "missed"])

    def test_masked_groups_of_weights_meet_the_bound_by_their_fastest_kernel(self):
        bar = "masked groups of 4-bit weights, up to 64 rows: of a plain read at least 0.80"
        rows = "| 8 x 1 x 5760 x 2880 | mxfp4 | 22.0 | 17.7 | 0.805 | a |\n| 8 x 1 x 5760 x 2880 | mxfp4 | 24.0 | 17.7 | 0.738 | b |\n"
        self.assertEqual(self.found({"groups-of-weights": MASKED_WEIGHTS + rows})[bar], "met")
        rows += "| 8 x 32 x 5760 x 2880 | mxfp4 | 26.0 | 17.7 | 0.681 | a |\n"
        self.assertEqual(self.found({"groups-of-weights": MASKED_WEIGHTS + rows})[bar], "missed")

    def test_drawn_products_and_the_choice(self):
        drawn = "| layers | bf16 | 384 | 6144 | 4096 | 30.0 | 29.0 | 1 | 1 | 0.967 | k |\n| layers | bf16 | 8 | 6144 | 4096 | 20.0 | 24.0 | 1 | 1 | 1.200 | k |\n"
        chosen = "| bf16 | 8 | 6144 | 4096 | a | 20.0 | b | 19.8 | 1.010 | 24.0 | 1.2 | 1.21 |\n| e4m3 fast | 9 | 6144 | 4096 | a | 24.0 | b | 20.0 | 1.200 | 24.0 | 1.0 | 1.2 |\n"
        found = list(self.found({"drawn-1": DRAWN + drawn, "choice-1": CHOICE + chosen}).values())[15:]
        self.assertEqual(found, ["missed", "met", "missed", "missed"])


class Cases(unittest.TestCase):
    def test_arguments_are_those_of_the_programs(self):
        for case in cases("x", True):
            text = (ROOT / "bench" / "peers" / case.script).read_text()
            if "parser_of(" in text:
                text += (ROOT / "bench" / "peers" / "beside_read.py").read_text()
            for argument in case.arguments:
                if argument.startswith("--"):
                    self.assertIn(f'"{argument}"', text, case.name)

    def test_tables_have_the_heads_that_verdicts_read(self):
        for script, table in (("scaled_gemm.py", BLOCKS), ("grouped_gemm.py", GROUPS), ("weights_4_bit.py", WEIGHTS), ("grouped_weights.py", MASKED_WEIGHTS),
                              ("gemm_vs_cublas.py", DRAWN), ("gemm_vs_cublas.py", CHOICE)):
            heads = [head.strip() for head in table.splitlines()[0].strip("|").split("|")]
            text = re.sub(r"\s+", " ", (ROOT / "bench" / "peers" / script).read_text())
            forms = (", ".join(f'"{head}"' for head in heads), f"| {' | '.join(heads)} |")
            self.assertTrue(any(form in text for form in forms), script)
            read = [head for head in heads if head != "us"]  # of the choice and of the best
            self.assertEqual(len(read), len(set(read)), script)

    def test_lists_and_goes_on(self):
        with program(PRODUCTS) as products:
            self.assertIn(f"{len(cases('x', False))} cases", products.run("--dry-run")[0])
            words = ("--only", "drawn", "--seconds", "40")
            self.assertEqual(products.run(*words)[1], 3)
            self.assertEqual(products.run(*words)[1], 0)
            self.assertEqual(len(products.calls()), 2)


if __name__ == "__main__":
    unittest.main()
