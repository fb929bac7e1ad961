"""bench/time/candidates.py: how the order of a problem's kernels is judged."""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "time"))
from candidates import correlation, judge, told_correlation, told_ranks  # noqa: E402


class Orders(unittest.TestCase):
    def test_rounds_that_overlap_are_not_told_apart(self):
        self.assertEqual(told_ranks([[1, 2], [1.5, 3], [4, 5]]), [0.5, 0.5, 2])
        self.assertEqual(told_ranks([[4, 5], [1, 2], [2, 3]]), [2, 0.5, 0.5])  # one end in common

    def test_not_told_apart_does_not_pass_on(self):
        # The first overlaps the second, the second the third, and the first is faster than the third.
        self.assertEqual(told_ranks([[1, 3], [2, 5], [4, 6]]), [0.5, 1, 1.5])

    def test_single_rounds_that_all_differ_are_spearmans(self):
        times, said = [3.0, 1.0, 2.0, 9.0, 4.0], [2.0, 1.5, 2.5, 8.0, 1.0]
        self.assertAlmostEqual(told_correlation([[time] for time in times], said), correlation(times, said))

    def test_a_wrong_order_of_what_is_told_apart_counts(self):
        rounds = [[1, 1.1], [2, 2.1], [3, 3.1], [4, 4.1]]
        self.assertAlmostEqual(told_correlation(rounds, [1, 2, 3, 4]), 1)
        self.assertAlmostEqual(told_correlation(rounds, [4, 3, 2, 1]), -1)

    def test_nothing_told_apart_and_nothing_said(self):
        self.assertIsNone(told_correlation([[1, 2], [1, 2], [1.5, 3]], [1, 2, 3]))
        self.assertEqual(told_correlation([[1], [2], [3]], [7, 7, 7]), 0)

    def test_judge_prints_both(self):
        runs = [("a", [1.0, 1.1], 1.05), ("b", [1.05, 1.2], 1.0), ("c", [2.0, 2.1], 2.0), ("d", [3.0, 3.1], 3.0)]
        with tempfile.TemporaryDirectory() as folder:
            out, times = pathlib.Path(folder) / "out", pathlib.Path(folder) / "times"
            times.write_text(json.dumps({"problem": "quantize x", "runs": [
                {"pins": pins, "kernel": pins, "rounds": rounds, "time_us": rounds[0]} for pins, rounds, _ in runs]}) + "\n")
            out.write_text(json.dumps({"problem": "quantize x", "runs": [
                {"pins": pins, "kernel": pins, "limit": "", "predicted_us": said} for pins, _, said in runs]}) + "\n")
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                judge(types.SimpleNamespace(out=out, times=times, verbose=True))
        self.assertIn("| 0.800 | 0.949 |", said.getvalue())


if __name__ == "__main__":
    unittest.main()
