"""Variants over the size of the problem (Anzt et al. 2015, figure 4), on the simulated K20X."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from campaign.results import open_store
from campaign.verbs.command_line import main
from tests.simulated_runs import simulate

CAMPAIGN = """
name = "scaling"
sites = [{ site = "tesla-k20x" }]
[settings]
choose = "pairs"
pairs = [[732, 2600]]
[protocol]
min_duration_s = 1.0
[[kernels]]
kernel = "cuda_dgemm"
params = { n = [256, 1024, 4096], dim_m = 16, dim_n = 16, m_a = 64, n_a = 4, m_b = 16, n_b = 16 }
[kernels.space]
blk_m = [64, 128]
blk_n = [64, 96]
blk_k = [16]
"""
SIZES = (256, 1024, 4096)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scaling")
    (folder / "c.toml").write_text(CAMPAIGN, encoding="utf-8")
    simulate(folder / "c.toml", folder / "s")
    return folder / "s"


def test_rates_and_efficiencies_are_those_of_the_measurements(store: Path, tmp_path: Path) -> None:
    assert main(["figures", str(store), "-o", str(tmp_path), "--format", "svg"]) == 0
    with (tmp_path / "scaling_cuda-dgemm.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    scalars = open_store(store).scalars
    assert len(rows) == scalars.sizes["measurement"] == 4 * len(SIZES)
    assert [int(row["n"]) for row in rows] == list(SIZES) * 4
    expected = {"rate_per_s": [], "efficiency_per_j": []}
    for time_s, energy_j, params in zip(
        scalars["time_s"].values, scalars["energy_j"].values, scalars["params"].values, strict=True
    ):
        n = next(size for size in SIZES if f'"n":{size}' in str(params).replace(" ", ""))
        expected["rate_per_s"].append(2.0 * n**3 / time_s)
        expected["efficiency_per_j"].append(2.0 * n**3 / energy_j)
    for name, values in expected.items():
        assert sorted(float(row[name]) for row in rows) == pytest.approx(sorted(values), rel=1e-6)
    fastest = max(rows, key=lambda row: float(row["rate_per_s"]) * (row["n"] == "4096"))
    assert rows[0]["variant"] == fastest["variant"]
    text = (tmp_path / "scaling_cuda-dgemm.svg").read_text(encoding="utf-8")
    assert "simulated" in text
