"""A simulated board whose voltages rise with its power: an error that a cross-validation finds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from campaign.results import open_store
from campaign.verbs.demo import write_warm_board
from dvfs.setting import Setting
from sites.simulated import machine
from sites.site_reading import find_site, read_site
from tests.commands import prints, refuses
from tests.docs.pages import ROOT
from tests.docs.test_extending import EIGHT_KERNELS
from tests.simulated_runs import simulate

PCT_PER_W = 2.5


def test_the_voltages_rise_with_the_power() -> None:
    site = read_site(find_site("jetson-tk1", Path()))
    assert site.simulated is not None
    counts, setting = {"dp": 1e9, "dram": 1e8}, Setting(852, 924)
    powers = {}
    for pct in (0.0, PCT_PER_W):
        quiet = {"noise": "off", "warming_pct_per_w": pct}
        own = site.model_copy(update={"simulated": site.simulated.model_copy(update=quiet)})
        run = machine.run(own, counts, setting, 10, "a seed")
        powers[pct] = float(run.power_w[0])
        one_s = run.duration_s / 10
    # Table I's pJ at V^2, and leakage at V, of the site file.
    dynamic_w = (1e9 * 131.1e-12 * 1.03**2 + 1e8 * 369.5e-12 * 1.01**2) / one_s
    constant_w = 2.86 * 1.03 + 3.81 * 1.01
    assert powers[0.0] == pytest.approx(dynamic_w + constant_w)
    gain = 1.0 + PCT_PER_W / 100.0 * (dynamic_w + constant_w)
    assert powers[PCT_PER_W] == pytest.approx(dynamic_w * gain**2 + constant_w * gain)


def test_the_cross_validation_finds_it(tmp_path: Path) -> None:
    """On the demo's campaign with fewer kernels."""
    errors = {}
    plain = (ROOT / "campaign" / "verbs" / "demo_campaign.toml").read_text(encoding="utf-8")
    for name in ("plain", "warm"):
        folder = tmp_path / name
        folder.mkdir()
        file = folder / "campaign.toml"
        if name == "warm":
            write_warm_board(folder, PCT_PER_W)
        text = file.read_text(encoding="utf-8") if file.exists() else plain
        file.write_text(text[: text.index("[[kernels]]")] + EIGHT_KERNELS, encoding="utf-8")
        simulate(file, folder / "store")
        said = prints("demo", folder)
        found = re.search(r"error of \d+ energies by the physics fit out of fold: ([\d.]+)", said)
        assert found is not None
        errors[name] = float(found[1])
        assert "(simulated)" in said
    assert errors["warm"] > 1.3 * errors["plain"]
    assert open_store(tmp_path / "warm" / "store").sites == ["jetson-tk1-warm"]


@pytest.mark.parametrize(
    ("words", "says"),
    [(["--warming", "-1"], "0 or more"), (["--warming", "1", "--fmm"], "one of them")],
)
def test_what_is_asked_wrongly_is_named(words: list[str], says: str, tmp_path: Path) -> None:
    assert says in refuses("demo", tmp_path / "d", *words)


def test_a_demo_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "campaign.toml").write_text("name = 'x'", encoding="utf-8")
    assert "has a demo" in refuses("demo", tmp_path, "--warming", "1")
    assert (tmp_path / "campaign.toml").read_text(encoding="utf-8") == "name = 'x'"
