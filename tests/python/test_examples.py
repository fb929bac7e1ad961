"""Example programs that check themselves, in the emulator."""

import pathlib
import runpy
import sys

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "python"


@pytest.mark.parametrize(
    "words",
    [["mixture_of_experts.py"], ["mixture_of_experts.py", "--e4m3"], ["mixture_of_experts.py", "--mxfp4"], ["sparse_attention.py"]],
    ids=["experts", "experts in e4m3", "experts in mxfp4", "sparse attention"],
)
def test_an_example(monkeypatch, words):
    program = FOLDER / words[0]
    monkeypatch.setattr(sys, "argv", [str(program), *words[1:]])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(program), run_name="__main__")
    assert ended.value.code == 0
