"""What no fit can be true to is refused by fit and crossval, and kept by import."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import prints, refuses
from tests.stores import store_of_table


@pytest.fixture
def capped(tmp_path: Path) -> Path:
    """A store of one setting, measured under six limits of power."""
    rows = ["site,kernel,repeat,core_mhz,mem_mhz,time_s,energy_j,power_limit"]
    for kernel in "ab":
        for i in range(1, 7):
            time_s, cap_w = 1.0 + 0.1 * i, 300 - 30 * i
            rows.append(f"x,{kernel},{i},1400,900,{time_s},{cap_w * time_s},{cap_w}")
    (tmp_path / "map.toml").write_text('unknown = "label"\n')
    return store_of_table(tmp_path, rows, "--map", tmp_path / "map.toml")


@pytest.mark.parametrize("verb", ["fit", "crossval"])
def test_a_sweep_over_power_caps_is_refused_with_the_reason(capped, verb):
    said = refuses(verb, capped, "--site", "x")
    assert "power_limit was swept" in said
    assert "import it as power_limit_w" in said
    assert len(said.splitlines()) == 1


def test_what_is_refused_is_kept(capped, tmp_path):
    assert "12 measurements written" in prints("export", capped, "--csv", tmp_path / "out.csv")
