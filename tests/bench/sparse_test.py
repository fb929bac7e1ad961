"""bench/h200/sparse without a GPU: its cases are those of bench/peers, and what verdicts canned tables get."""
import pathlib
import sys
import unittest

from program import program

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPARSE = ROOT / "bench" / "h200" / "sparse"
sys.path.insert(0, str(SPARSE.parent))
from resumable import place_of  # noqa: E402
from sparse_bars import cases, verdicts  # noqa: E402

INDEXER = "| form | us | TFLOP/s | relu | TB/s | of a plain read | error | kernel |\n|---|---|---|---|---|---|---|---|\n"
TOPK = """| inputs | rows | columns | k | tessera us | TB/s | sum us | torch.topk us | ratio | FlashInfer us | ratio | FlashInfer, deterministic us | ratio | kernel |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
"""
LISTED = """| keys | head_dim | heads | queries | us | TFLOP/s | of the read | FlashMLA us | times FlashMLA | kernel |
|---|---|---|---|---|---|---|---|---|---|
"""
PAGES = """| heads | head_dim | batch x keys | queries | K and V | MB | tessera us | TB/s | of a plain read | of bf16's time | kernel |
|---|---|---|---|---|---|---|---|---|---|---|
"""


class Bars(unittest.TestCase):
    def found(self, logs):
        """A bar that is called "the same" goes under the one before it."""
        found, last = {}, ""
        for one in verdicts(logs):
            last = one.bar if not one.bar.startswith("the same") else last
            found[last if last == one.bar else f"{last} / {one.bar}"] = one
        return found

    def status(self, logs, begin):
        return [one.status for bar, one in self.found(logs).items() if bar.startswith(begin)]

    def test_nothing_is_measured_without_logs(self):
        self.assertEqual({one.status for one in verdicts({})}, {"not measured"})

    def test_indexer_takes_the_fastest_of_ours_beside_the_peer(self):
        rows = "| ragged 1x2x3 | 120.0 | 1 | 1 | 1 |  | 1e-4 | a |\n| ragged 1x2x3 | 100.0 | 1 | 1 | 1 |  | 1e-4 | b |\n"
        peer = "| ragged 1x2x3 | {} | 1 | 1 | 1 |  | nan | DeepGEMM |\n"
        begin = "indexer's scores: no slower than DeepGEMM's fp8"
        self.assertEqual(self.status({"indexer-ragged": INDEXER + rows + peer.format("105.0")}, begin), ["met", "missed"])
        self.assertEqual(self.status({"indexer-ragged": INDEXER + rows + peer.format("99.0")}, begin), ["missed", "missed"])
        self.assertEqual(self.status({"indexer-ragged": INDEXER + rows}, begin), ["not measured", "not measured"])
        self.assertEqual(self.status({"indexer-paged": INDEXER + rows + peer.format("111.0")}, "indexer's scores: no slower than DeepGEMM's its"), ["met", "met"])

    def test_topk_is_beside_both_and_a_long_row_has_a_bound(self):
        row = "| normal | 1 | 131072 | {} | {} | 0.1 | 8.0 | 58.0 | 6.5 | {} | 4.2 | 45.9 | 5.1 | k |\n"
        logs = {"topk-131072": TOPK + row.format(512, 8.9, 37.9) + row.format(2048, 20.5, 19.0)}
        self.assertEqual(self.status(logs, "top-k of every shape: faster than torch.topk"), ["met"])
        self.assertEqual(self.status(logs, "top-k of every shape: faster than FlashInfer"), ["missed"])
        self.assertEqual(self.status(logs, "top-k of one row of 131,072"), ["missed"])
        alone = {"topk-131072": TOPK + row.format(512, 8.9, "nan")}
        self.assertEqual(self.status(alone, "top-k of every shape: faster than FlashInfer"), ["not measured"])
        self.assertEqual(self.status(alone, "top-k of one row of 131,072"), ["met"])

    def test_listed_rows_beside_the_peer_or_a_published_figure(self):
        row = "| {} | {} | {} | {} | {} | {} | 0.5 | {} | {} | k |\n"
        decode = lambda rate, times: LISTED + row.format("mla_656", 576, 128, "128 x 2", 1200.0, rate, "nan", times)
        begin = "decode of listed e4m3 rows, 128 heads"
        self.assertEqual(self.status({"listed-128": decode(400, 1.06)}, begin), ["met", "met"])
        self.assertEqual(self.status({"listed-128": decode(400, 0.96)}, begin), ["met", "missed"])
        other = row.format("mla_584", 512, 128, "128 x 2", 1200.0, 400, "nan", 0.9)  # the other cache of e4m3 rows counts too
        self.assertEqual(self.status({"listed-128": decode(400, 1.06) + other}, begin), ["missed", "missed"])
        without = self.found({"listed-128": decode(406, "nan")})[begin + ", 2 queries: at least 0.95 of FlashMLA's speed"]
        self.assertEqual((without.status, "published figure" in without.measured), ("met", True))
        prefill = LISTED + row.format("rows", 576, 128, "1 x 4096", 9000.0, 437, "nan", "nan")
        self.assertEqual(self.status({"listed-128": prefill}, "prefill of listed bf16 rows"), ["missed"])

    def test_fp4_rows_are_beside_e4m3_rows_of_the_same_width(self):
        row = "| {} | 512 | {} | 128 x 1 | {} | 1 | 0.5 | nan | nan | k |\n"
        log = lambda heads, us: LISTED + row.format("mla_584", heads, 100.0) + row.format("mla_384", heads, us)
        self.assertEqual(self.status({"listed-16": log(16, 90.0)}, "decode of listed FP4 rows, 16"), ["met"])
        self.assertEqual(self.status({"listed-16": log(16, 101.0)}, "decode of listed FP4 rows, 16"), ["missed"])
        self.assertEqual(self.status({"listed-128": log(128, 109.0)}, "decode of listed FP4 rows, 128"), ["met"])
        self.assertEqual(self.status({"listed-128": log(128, 111.0)}, "decode of listed FP4 rows, 128"), ["missed"])

    def test_pages(self):
        row = "| 32/8 | 128 | 8x8192 | 1 | {} | 1 | {} | 1 | {} | 0.5 | k |\n"
        log = {"pages": PAGES + row.format("e4m3", 50.0, 0.8) + row.format("nvfp4", 45.0, 0.84) + row.format("mxfp8", 52.0, 0.9)}
        self.assertEqual(self.status(log, "decode over NVFP4 pages"), ["met"])
        self.assertEqual(self.status(log, "decode over NVFP4 and MXFP8 pages"), ["missed"])

    def test_the_step_of_the_example(self):
        line = "{}, {} indexer: 3 sequences, 64 entries of up to 300: recall {}, cosine of o with float64 {}\n"
        log = {"step": line.format("normal", "e4m3", 0.97, 0.9991) + line.format("heavy-tailed", "mxfp4", 0.81, 0.9979)}
        self.assertEqual(self.status(log, "a step of sparse attention: recall"), ["met"])
        self.assertEqual(self.status(log, "a step of sparse attention: cosine"), ["missed"])


class Cases(unittest.TestCase):
    def test_arguments_are_those_of_the_programs(self):
        for case in cases("x"):
            text = (ROOT / place_of(case)).read_text()
            for argument in case.arguments:
                if argument.startswith("--"):
                    self.assertIn(f'"{argument}"', text, case.name)

    def test_lists_and_goes_on(self):
        with program(SPARSE) as sparse:
            self.assertIn(f"{len(cases('x'))} cases", sparse.run("--dry-run")[0])
            self.assertEqual(sparse.run("--only", "listed", "--seconds", "110")[1], 0)
            self.assertEqual(len(sparse.calls()), 3)
            said, code = sparse.run("--only", "topk", "--seconds", "80")
            self.assertEqual(code, 3)
            self.assertIn("3 cases are left: call again", said)


if __name__ == "__main__":
    unittest.main()
