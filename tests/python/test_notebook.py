"""The cells of the example notebook, run one after the other."""

import json
import pathlib

NOTEBOOK = pathlib.Path(__file__).parents[2] / "examples" / "python" / "layouts.ipynb"


def test_every_cell_runs():
    scope = {}
    shown = []
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            *lines, last = "".join(cell["source"]).rstrip().splitlines()
            exec("\n".join(lines), scope)
            shown.append(eval(last, scope))
    assert sum(hasattr(value, "_repr_svg_") for value in shown) == 6
    assert shown[-1] == ((1, 100, 2, 64), [])
