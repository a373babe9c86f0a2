"""Limits that no kernel keeps, and profiles that do not suit the fit: what is said, and what would
do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analysis.choice.candidates import all_candidates
from campaign.results import open_store
from campaign.store.compaction import compact
from campaign.store.layout import open_store as open_layout
from campaign.verbs.command_line import main
from tests.analysis.test_report import store_of
from tests.commands import answers, prints, run
from tests.stores import store_of_table

SITE = "board"
CLOCKS = (400.0, 800.0, 1200.0, 1600.0)
PROFILE = 'kernel = "app"\ncore_mhz = 800\nmem_mhz = 900\ntime_s = 0.02\n[counts]\nsp = 2e9\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of four kernels at four settings, with a fit."""
    path = tmp_path_factory.mktemp("picks") / "store"
    store_of(path, SITE, True, CLOCKS)
    compact(open_layout(path))
    open_store(path).fit(SITE)
    return path


def refused(*words: str) -> str:
    """What a refused predict says, in one message without a traceback."""
    done = run("predict", *words)
    assert (done.code, done.out) == (2, "")
    return done.err.strip()


@pytest.mark.parametrize("slowdown", [None, 0.1])
def test_a_limit_on_power_that_no_kernel_keeps_is_answered_once(folder, capsys, slowdown):
    store = open_store(folder)
    least_w = []
    for among in all_candidates(store.observations(SITE)).values():
        most_s = among.time_s.min() * (1.1 if slowdown else 1e9)
        least_w.append((among.energy_j / among.time_s)[among.time_s <= most_s].min())
    words = [str(folder), *(["--max-slowdown", str(slowdown)] if slowdown else [])]
    message = refused(*words, "--max-power-w", f"{min(least_w) * 0.9:g}")
    slow = " at most 10 % slower than the fastest" if slowdown else ""
    said = re.fullmatch(
        r"campaign: --max-power-w: found [\d.]+, and no kernel has a setting"
        + slow
        + r" with so little mean power; the least is ([\d.]+) W at \d+/900 MHz, of \w+.*; give at "
        r"least that, or leave the limit out",
        message,
    )
    assert said, message
    assert float(said[1]) == pytest.approx(min(least_w), rel=1e-3)
    assert main(["predict", *words, "--max-power-w", said[1]]) == 0
    left_out = len(least_w) - sum(one <= float(said[1]) for one in least_w)
    printed = capsys.readouterr().out
    assert printed.count("no pick: ") == left_out
    assert "fastest setting, also where that is above the limit" in " ".join(printed.split())
    if left_out:
        assert "has a mean power of at most" in printed


def test_one_setting_for_all_is_compared_only_within_the_limits(folder):
    store = open_store(folder)
    free = store.predict(SITE).predictions[0].pick
    single = free.best_single
    among_all = all_candidates(store.observations(SITE)).values()
    cases = [(among, among.settings.index(single)) for among in among_all]
    power_w = [among.energy_j[at] / among.time_s[at] for among, at in cases]
    limit_w = float(min(power_w)) * 0.999
    chosen = store.predict(SITE, max_power_w=limit_w).predictions
    assert chosen
    assert all(one.pick.gain_over_best_single_pct != one.pick.gain_over_best_single_pct
               for one in chosen)  # fmt: skip
    printed = " ".join(prints("predict", folder, "--max-power-w", repr(limit_w)).split())
    assert (
        f"one setting for all: {single.core_mhz:g}/{single.mem_mhz:g} MHz, the best on average "
        f"without limits, is outside the limits for {len(chosen)} of {len(chosen)} kernels"
        in printed
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "sp = ",
            "SP = ",
            "p.toml:6: counts.SP: the kernels of board count no 'SP'; did you mean 'sp'? Known: ",
        ),
        ("sp = 2e9", 'sp = "x"', "p.toml:6: counts.sp: found 'x'; must be a number, without"),
        ("sp = 2e9", "sp = -1", "p.toml:6: counts.sp: found -1; must be greater than or equal"),
        ("sp = 2e9\n", "", "p.toml:5: counts: found {}; must have at least 1 entry"),
        ("0.02", "0", "p.toml:4: time_s: found 0; must be greater than 0"),
        (
            "= 800",
            "= 800000",
            "p.toml:2: core_mhz: found 800000 with mem_mhz 900, which is not a setting of board; "
            "give the clocks of the run: the nearest setting is 1600/900 MHz; known: 400/900 MHz, "
            "800/900 MHz, 1200/900 MHz, 1600/900 MHz",
        ),
        (
            "= 900",
            "= 901",
            "p.toml:3: mem_mhz: found 901 with core_mhz 800, which is not a setting of board; "
            "give the clocks of the run: the nearest setting is 800/900 MHz",
        ),
        (
            "core_mhz = 800\n",
            "",
            "p.toml: core_mhz: missing; give the clocks of the run: the nearest setting is ",
        ),
    ],
)
def test_what_is_wrong_in_a_profile_is_named_with_its_line(
    folder: Path, tmp_path: Path, old: str, new: str, said: str
) -> None:
    path = tmp_path / "p.toml"
    assert PROFILE.count(old) == 1
    path.write_text(PROFILE.replace(old, new))
    message = refused(str(folder), "--profile", str(path))
    assert said in message
    assert len(message.splitlines()) == 1


def table_of(folder: Path, clocks: str, settings: list[str]) -> str:
    """A store of three kernels at settings, whose energy is least between the ends."""
    rows = [
        f"s,{kernel},{setting},{1.0 / (i + 2)},{20 + k * (i - 2 + k) ** 2}"
        for k, kernel in enumerate("abc")
        for i, setting in enumerate(settings)
    ]
    store = str(store_of_table(folder, [f"site,kernel,{clocks},time_s,energy_j", *rows]))
    assert main(["fit", store, "--accept-unproven"]) == 0
    return store


@pytest.mark.parametrize(
    ("clocks", "settings"),
    [
        ("core_mhz", ["800", "1200", "1600", "2000", "2400"]),
        ("core_mhz,mem_mhz", ["800,900", "1200,900", "1600,900", "800,1800", "1200,1800"]),
    ],
)
def test_all_settings_are_those_measured_where_all_are_measured(tmp_path, clocks, settings):
    store = table_of(tmp_path, clocks, settings)
    shown = []
    for more in ([], ["--all-settings"]):
        shown.append(answers("predict", store, "--accept-unproven", *more))
    assert shown[0] == shown[1]
    assert all(pick["slurm_cannot_set"] == "" for pick in shown[0])
