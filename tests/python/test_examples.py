"""Example programs that check themselves, in the emulator."""

import pathlib
import runpy
import sys

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "python"


@pytest.mark.parametrize("form", [[], ["--e4m3"]], ids=["bf16", "e4m3"])
def test_a_layer_of_experts(monkeypatch, form):
    program = FOLDER / "mixture_of_experts.py"
    monkeypatch.setattr(sys, "argv", [str(program), *form])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(program), run_name="__main__")
    assert ended.value.code == 0
