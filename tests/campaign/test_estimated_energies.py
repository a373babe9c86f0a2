"""Energies that were estimated: what shows them without a fit says so."""

from __future__ import annotations

import pytest

from tests.commands import answers, prints
from tests.stores import store_of_table

HEAD = "site,kernel,params,core_mhz,repeat,time_s,energy_j,n_sp,n_dram"
SAID = "estimated, not measured"


@pytest.fixture
def stores(tmp_path):
    """Stores of the same table, its energies measured and estimated."""
    lines = [HEAD]
    for sp in (1e9, 4e9, 64e9):
        for repeat in (0, 1):
            time_s = max(sp / 1e11, 0.1) * (1 + repeat / 1000)
            energy_j = 50e-12 * sp + 0.2 + 30.0 * time_s
            lines.append(f'g,k,"{{""sp"": {sp:g}}}",1000,{repeat},{time_s},{energy_j},{sp},1e9')
    return (
        store_of_table(tmp_path / "measured", lines),
        store_of_table(tmp_path / "estimated", lines, "--set", "estimated=TDP"),
    )


@pytest.mark.parametrize(
    "verb", [["roofline", "--site", "g"], ["variants", "--site", "g", "--problem", "sp=4e9"]]
)
def test_a_verb_without_a_fit_says_that_energies_are_estimated(stores, verb):
    for store, is_estimated in zip(stores, (False, True), strict=True):
        assert (SAID in prints(verb[0], store, *verb[1:])) == is_estimated
        assert answers(verb[0], store, *verb[1:])["estimated_energies"] == is_estimated


def test_a_comparison_says_which_side_has_estimated_energies(stores):
    (site,) = answers("compare", *stores)["sites"]
    assert site["notes"][0] == f"after: the energies of 6 measurements are {SAID}"
    (site,) = answers("compare", stores[0], stores[0])["sites"]
    assert not any(SAID in note for note in site["notes"])
