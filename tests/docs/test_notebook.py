"""The example notebook runs from its first cell to its last, on the demo's store."""

from __future__ import annotations

import json

from tests.docs.pages import ROOT
from tests.docs.workplace import Workplace

NOTEBOOK = ROOT / "examples" / "from-store-to-plot.ipynb"


def test_the_notebook_runs_and_draws(workplace: Workplace) -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells)
    code = "\n\n".join("".join(cell["source"]) for cell in cells)
    code += "\nprint(len(picks), len(plt.get_fignums()), fit._repr_html_()[:1])\n"
    (workplace.folder / "notebook.py").write_text(code, encoding="utf-8")
    assert workplace.run("python notebook.py").split()[-3:] == ["116", "2", "<"]
