"""Kernels measured at few settings, from the command line: who picks, and what few cost."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from campaign.command_line import main
from campaign.results import open_store
from tests.analysis.synthetic import grid_observations


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    """Nine kernels at eight settings; kernel-2 at one of them alone."""
    folder = tmp_path_factory.mktemp("few")
    data = grid_observations(4, kernels=9, noise=0.02)
    data = data.take((data.kernel != "kernel-2") | (data.setting == 0))
    columns = {"kernel": data.kernel, "core_mhz": data.core_mhz, "mem_mhz": data.mem_mhz}
    columns |= {"core_v": data.core_v, "mem_v": data.mem_v}
    columns |= {"time_s": data.time_s, "energy_j": data.energy_j}
    columns |= {f"n_{name}": values for name, values in data.counts.items()}
    pd.DataFrame(columns).to_csv(folder / "table.csv", index=False)
    path = folder / "store"
    assert main(["import", str(folder / "table.csv"), "--site", "few", "--store", str(path)]) == 0
    assert main(["fit", str(path), "--model", "choi", "--voltage", "known"]) == 0
    return path


def test_predict_says_who_picked_for_kernels_with_few_settings(store, capsys):
    capsys.readouterr()
    assert main(["predict", str(store)]) == 0
    out = " ".join("".join(capsys.readouterr()).split())
    assert "measured at few settings: 1 of the kernels (kernel-2). Tried on kernels" in out
    assert main(["predict", str(store), "--json"]) == 0
    rows = {row["kernel"]: row for row in json.loads(capsys.readouterr().out)}
    few = rows.pop("kernel-2")
    by_single = few["best_single_lost_pct"] < few["model_lost_pct"]
    assert few["chosen_by"] == ("best_single" if by_single else "model")
    assert f"lose {few['model_lost_pct']:.2f} %" in out
    assert all(row["chosen_by"] == "model" for row in rows.values())
    assert all(row["model_lost_pct"] is None for row in rows.values())


def test_crossval_with_few_measurements(store, capsys):
    options = ["--model", "choi", "--voltage", "known"]
    capsys.readouterr()
    assert main(["crossval", str(store), "--scheme", "few:all", "--new", "1", *options]) == 0
    out = " ".join("".join(capsys.readouterr()).split())
    assert "at 8 settings drawn at random, the kernels judged at 1 of these; 3 draws" in out
    assert main(["crossval", str(store), "--scheme", "few:3", *options, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["scheme"], shown["new"], shown["draws"]) == ("few:3", None, 3)
    assert shown["decision"]["cases"] == 8 * 3  # kernel-2 was not measured everywhere
    made = open_store(store).crossval_few("few", 3, model="choi", voltage="known")
    table = made.to_pandas()
    assert len(table) == 24
    for chooser in ("model", "best_measured", "best_single", "race_to_halt", "random"):
        lost = shown["decision"][chooser]
        assert lost["mean_lost_pct"] == pytest.approx(table[chooser].mean())
        assert lost["max_lost_pct"] == pytest.approx(table[chooser].max())
        assert lost["exact"] == np.sum(table[chooser] == 0.0)
    assert "few:3" in made._repr_html_()
