"""Settings with a power limit: the clock is a result, and picks are made over limits too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.choice.candidates import all_candidates
from analysis.choice.crossval import cross_validate
from analysis.choice.losses import highest_clocks
from analysis.choice.pick import picks
from analysis.energy.fit import fit
from analysis.measurements.observations import (
    FitError,
    Observations,
    by_clocks,
    clocks_run_at,
    measured_volts,
    observations,
)
from analysis.predict.power_limits import PowerLimits
from analysis.predict.site import coordinates, site_posterior
from analysis.quality.all_checks import check
from analysis.report.site_report import measurement_counts
from analysis.rooflines.roofline import roofline
from dvfs.dataset import Columns
from dvfs.setting import Setting, distinct_settings, number_columns
from sites.simulated.machine import constant_w, mean_w, run, under_limit
from tests.analysis.simulated_tk1 import TABLE_I, kernels, simulated_columns, simulated_tk1

LIMITS_W = (13.5, 25.0)


@pytest.fixture(scope="module")
def limited() -> Observations:
    return observations(simulated_columns("default", limits_w=LIMITS_W), "tk1")


def test_the_simulated_machine_runs_at_the_highest_clock_within_the_limit() -> None:
    site = simulated_tk1("off")
    clocks = np.linspace(72.0, 852.0, 3001)
    for counts in list(kernels().values())[::5]:
        watts = np.array([mean_w(site, {"": counts}, Setting(mhz, 924.0)) for mhz in clocks])
        for limit_w in (5.0, 8.0, 11.0, 100.0):
            within = np.flatnonzero(watts <= limit_w)
            expected = clocks[within[-1]] if len(within) else clocks[0]
            made = run(site, counts, Setting(852.0, 924.0, power_limit_w=limit_w), 3, "a")
            assert made.achieved.core_mhz == pytest.approx(expected, abs=0.3)
            assert made.achieved == under_limit(
                site, {"": counts}, Setting(852.0, 924.0, power_limit_w=limit_w)
            )
            if len(within):
                assert made.power_w.mean() <= limit_w * (1 + 1e-9)
    idle = constant_w(site, Setting(852.0, 924.0))
    assert idle == constant_w(site, Setting(852.0, 924.0, power_limit_w=5.0))


def test_times_and_powers_under_a_limit_are_those_of_the_clock_that_it_allows() -> None:
    rng = np.random.default_rng(0)
    clocks = [Setting(mhz, mem) for mem in (200.0, 900.0) for mhz in np.linspace(100, 800, 15)]
    settings = [
        Setting(core, mem, power_limit_w=limit)
        for core in (450.0, 800.0)
        for mem in (200.0, 900.0)
        for limit in (None, 0.5, 3.0, 9.0, 40.0)
    ]
    n = 50
    exponent, level = rng.uniform(0.5, 3.0, n), rng.uniform(0.5, 8.0, n)
    f = np.array([one.core_mhz for one in clocks])[:, None] / 800.0
    log_w = np.log(level * (0.3 + 0.7 * f**exponent))
    log_s = -rng.uniform(0.0, 1.0, n) * np.log(f)
    reached = np.log(0.9)
    of_time, of_power = PowerLimits(settings, clocks, reached).apply(log_s, log_w)
    for s, setting in enumerate(settings):
        line = [i for i, c in enumerate(clocks) if c.mem_mhz == setting.mem_mhz]
        core = np.array([clocks[i].core_mhz for i in line])
        fine = np.linspace(0.0, 1.0, 20001)
        at = np.interp(fine, np.linspace(0, 1, len(core)), core)
        for k in range(n):
            watts, times = (np.interp(at, core, of[line, k]) for of in (log_w, log_s))
            may = at <= setting.core_mhz + 1e-9
            if setting.power_limit_w is not None:
                may &= watts <= np.log(setting.power_limit_w) + reached
            i = np.flatnonzero(may)[-1] if may.any() else 0
            assert of_power[s, k] == pytest.approx(watts[i], abs=2e-3)
            assert of_time[s, k] == pytest.approx(times[i], abs=2e-3)


def test_a_row_counts_at_the_clock_that_it_ran_at() -> None:
    nan = np.nan
    asked = np.array([800.0, 800.0, 800.0, 800.0, 800.0, nan])
    achieved = np.array([799.0, 700.0, nan, 700.0, 799.0, nan])
    limit = np.array([nan, nan, nan, 50.0, 50.0, 50.0])
    ran_at = clocks_run_at(asked, achieved, limit)
    np.testing.assert_array_equal(ran_at, [800.0, 700.0, 800.0, 700.0, 800.0, nan])
    as_found = clocks_run_at(np.full(3, nan), np.array([1980.0, 1500.0, nan]), np.full(3, nan))
    np.testing.assert_array_equal(as_found, [1980.0, 1500.0, nan])
    steady = clocks_run_at(np.full(2, nan), np.array([1980.0, 1970.0]), np.full(2, nan))
    assert np.isnan(steady).all()


def test_energies_under_limits_that_are_left_out_are_within_3_percent(
    limited: Observations,
) -> None:
    held_down = limited.core_mhz != limited.mhz[limited.setting, 0]
    assert 0.04 < held_down.mean() < 0.5
    judged = cross_validate(limited, "leave-one-setting-out")
    assert judged.n_folds == len(TABLE_I)
    assert judged.picks_error_pct[held_down].mean() < 3.0
    assert (
        judged.choosers["picks"].mean_lost_pct < 0.5 * judged.choosers["best_single"].mean_lost_pct
    )


def test_the_energy_model_is_found_from_the_clocks_run_at(limited: Observations) -> None:
    """Under limits the coefficients are those of the simulated board, as without."""
    site = simulated_tk1("off")
    exact = observations(simulated_columns("off", limits_w=LIMITS_W), "tk1")
    found = fit(exact, "choi", "known", intervals=False)
    of = {term.name: value for term, value in zip(found.terms, found.value, strict=True)}
    for name, pj in site.simulated.energy_pj_per_v2.items():
        if f"c0_{name}" in of:
            assert of[f"c0_{name}"] == pytest.approx(pj, rel=0.02), name
    assert len(by_clocks(limited).settings) > len(TABLE_I)


def test_the_energy_model_is_found_where_the_voltage_of_each_row_was_measured() -> None:
    """At the clock that it ran at, which may be below all clocks that were asked for."""
    dataset = highest_alone(limits_w=(None, 5.0, 6.0, 8.0, 11.0))
    ran_at = dataset["core_mhz_achieved"]
    volts = np.interp(ran_at, *np.array(sorted(simulated_tk1("off").domains.core.volts.items())).T)
    origin = np.full(len(volts), "measured", object)
    measured = dataset.replaced({"core_v": volts, "voltage_origin": origin})
    assert_coefficients_of_the_board(observations(measured, "tk1"))


def test_the_energy_model_is_found_below_the_clocks_that_were_asked_for() -> None:
    """By the voltages of the site's legal settings."""
    dataset, site = highest_alone(limits_w=(None, 5.0, 6.0, 8.0, 11.0)), simulated_tk1("off")
    legal = {setting: site.volts(setting) for setting in site.settings}
    assert_coefficients_of_the_board(observations(dataset, "tk1", legal=legal))


def highest_alone(limits_w: tuple[float | None, ...]) -> Columns:
    """Core clocks of 756 MHz and more, at all memory clocks, under limits."""
    dataset = simulated_columns("off", limits_w=limits_w)
    high = dataset["core_mhz"] >= 756.0
    dataset = Columns({name: values[high] for name, values in dataset.items()})
    assert (dataset["core_mhz_achieved"] < 400.0).any()
    return dataset


def assert_coefficients_of_the_board(data: Observations) -> None:
    found = fit(data, "choi", "known", intervals=False)
    of = {term.name: value for term, value in zip(found.terms, found.value, strict=True)}
    constants = simulated_tk1("off").simulated
    for name, pj in constants.energy_pj_per_v2.items():
        assert of.get(f"c0_{name}", pj) == pytest.approx(pj, rel=0.01), name
    assert of["c1_core"] == pytest.approx(constants.leakage_core_w_per_v, rel=0.01)


def test_voltages_are_estimated_at_the_clocks_run_at() -> None:
    """Not at those asked for, which a limit of 8 W lets a quarter of the rows not reach."""
    exact = observations(simulated_columns("off", limits_w=(8.0, 25.0)), "tk1")
    found = fit(exact, "choi", "floor", intervals=False)
    assert found.n_settings > 2 * len(TABLE_I)
    error = np.abs(found.energy_j(exact) / exact.energy_j - 1.0)
    assert error.mean() < 0.01


def test_the_share_of_a_limit_that_is_drawn_is_found(limited: Observations) -> None:
    """A meter that sees 0.9 of what the limit holds down."""
    limit_w = number_columns(limited.settings)[limited.setting, 3]
    held_down = limited.core_mhz < limited.mhz[limited.setting, 0]
    energy_j = np.where(held_down, 0.9 * limit_w * limited.time_s, limited.energy_j)
    found = PowerLimits.of(limited.settings, replace(limited, energy_j=energy_j))
    assert found is not None
    assert np.exp(found.reached) == pytest.approx(0.9, rel=1e-9)


def test_one_setting_as_found_is_fitted_by_the_clocks_that_the_board_chose() -> None:
    """A GPU whose clock nobody set, and which its limit held down in some kernels."""
    dataset = simulated_columns("off", limits_w=(9.0,))
    top = (dataset["core_mhz"] == 852.0) & (dataset["mem_mhz"] == 924.0)
    found = {name: values[top] for name, values in dataset.items()}
    unset = dict.fromkeys(("core_mhz", "mem_mhz", "power_limit_w"), np.full(top.sum(), np.nan))
    dataset = Columns(found | unset)
    assert not [finding for finding in check(dataset, "tk1") if finding.severity == "refused"]
    data = observations(dataset, "tk1")
    assert data.settings == [Setting()]
    assert len(set(data.core_mhz.round().tolist())) > 5
    found = fit(data, "auto", "unit", intervals=False)
    error = np.abs(found.energy_j(data) / data.energy_j - 1.0)
    still = replace(data, core_mhz=np.full(len(data), np.nan))
    without_clocks = fit(still, "auto", "unit", intervals=False).energy_j(still)
    assert error.mean() < 0.85 * np.abs(without_clocks / still.energy_j - 1.0).mean()


def test_picks_of_a_sweep_over_limits_alone_are_the_least_measured_energies() -> None:
    data = observations(simulated_columns("off", limits_w=(6.0, 8.0, 11.0, 30.0)), "tk1")
    at_top = data.take(data.mhz[data.setting, 0] == 852.0)
    at_top = at_top.take(at_top.mhz[at_top.setting, 1] == 924.0)
    only = [Setting(power_limit_w=s.power_limit_w) for s in at_top.settings]
    values = np.array([one.values for one in only], float)[at_top.setting]
    settings, setting = distinct_settings(*values.T)
    nan = np.full(len(at_top), np.nan)
    swept = replace(at_top, core_mhz=nan, mem_mhz=nan, settings=settings, setting=setting)
    assert coordinates(settings, swept)[:, 0].tolist() == [6.0, 8.0, 11.0, 30.0]
    for made in picks(swept):
        mine = swept.labels == made.label
        least = swept.energy_j[mine].min()
        chosen = swept.energy_j[mine & (swept.setting == settings.index(made.setting))]
        # Without repeats a small difference between measured energies may be noise.
        assert chosen[0] <= least * 1.02, made.label


def test_measured_cells_under_a_limit_keep_their_measured_energies(limited: Observations) -> None:
    found = site_posterior(limited, measured_volts(limited))
    candidates = all_candidates(limited)
    assert set(found.settings) == set(limited.settings)
    for label, among in candidates.items():
        k = found.labels.index(label)
        under = [i for i, one in enumerate(among.settings) if one.power_limit_w == LIMITS_W[0]]
        known = among.measured[under]
        ratio = (found.energy_j[k][under] / among.measured_j[under])[known]
        np.testing.assert_allclose(ratio, 1.0, rtol=1e-6)


def test_limits_at_several_clocks_need_the_clocks_that_were_read() -> None:
    dataset = simulated_columns("off", limits_w=(8.0,))
    dataset["core_mhz_achieved"][:] = np.nan
    data = observations(dataset, "tk1")
    with pytest.raises(FitError, match="core_mhz_achieved"):
        site_posterior(data, measured_volts(data))


def test_a_report_counts_settings_with_their_limits() -> None:
    dataset = simulated_columns("off", limits_w=(8.0, 25.0))
    every = np.ones(len(dataset["site"]), bool)
    further = {"meters": np.full(len(every), "", object), "iterations": np.ones(len(every), int)}
    assert measurement_counts(dataset.replaced(further), every, ()).settings == 2 * len(TABLE_I)


def test_the_highest_clocks_have_no_limit_or_the_highest() -> None:
    settings = [
        Setting(core, 924.0, power_limit_w=limit)
        for core, limit in ((852.0, 9.0), (852.0, 15.0), (72.0, 15.0))
    ]
    assert highest_clocks(settings) == 1
    assert highest_clocks([*settings, Setting(852.0, 924.0)]) == 3


def test_the_voltage_of_a_setting_is_that_of_its_clock_whatever_its_limit() -> None:
    free = measured_volts(observations(simulated_columns("off"), "tk1"))
    under = measured_volts(observations(simulated_columns("off", limits_w=(8.0, 25.0)), "tk1"))
    assert len(under) == 2 * len(free)
    for setting, volts in under.items():
        assert volts == pytest.approx(free[setting.two_clocks], rel=1e-9), setting


@pytest.mark.parametrize("limits_w", [(13.5, 25.0), (8.0, 25.0), (6.0, 8.0, 11.0)])
def test_a_clock_that_a_limit_holds_down_is_no_fault(limits_w: tuple[float, ...]) -> None:
    """The checks of clocks take the rows without a limit; the board's sensor shows some above."""
    findings = check(simulated_columns("default", limits_w=limits_w), "tk1")
    assert [(one.check, one.severity) for one in findings] == [("power limit", "note")]


@pytest.mark.parametrize("factor", [1e3, 1e-3])
def test_limits_in_another_unit_than_the_power_are_refused(factor: float) -> None:
    dataset = simulated_columns("default", limits_w=(8.0, 25.0))
    dataset = dataset.replaced({"power_limit_w": dataset["power_limit_w"] * factor})
    (found,) = (one for one in check(dataset, "tk1") if one.check == "power limit")
    assert (found.severity, len(found.rows)) == ("refused", len(dataset["site"]))


def test_rows_above_their_limit_are_named_and_kept() -> None:
    dataset = simulated_columns("default", limits_w=(8.0, 25.0))
    above = np.flatnonzero(dataset["power_limit_w"] == 8.0)[:7]
    dataset["energy_j"][above] = 1.2 * 8.0 * dataset["time_s"][above]
    findings = [one for one in check(dataset, "tk1") if one.check == "power limit"]
    assert len(findings) == 1
    assert set(above) <= set(findings[0].rows)
    assert findings[0].severity == "note"


def held_down() -> Columns:
    """The board, whose rows at 852 MHz have a limit, ran at 396 MHz and have its voltage."""
    dataset = simulated_columns("off", per_family=2)
    top = dataset["core_mhz"] == 852.0
    core_v = dataset["core_v"]
    at_396 = core_v[dataset["core_mhz"] == 396.0][0]
    return dataset.replaced(
        {
            "power_limit_w": np.where(top, 8.0, np.nan),
            "core_mhz_achieved": np.where(top, 396.0, dataset["core_mhz"]),
            "core_v": np.where(top, at_396, core_v),
            "voltage_origin": np.full(len(top), "measured", object),
        }
    )


def test_costs_and_balances_under_a_limit_are_of_the_clocks_run_at() -> None:
    data = observations(held_down(), "tk1")
    fitted = fit(data, "choi+clock", "known", intervals=False)
    names = [term.name for term in fitted.terms]
    fitted = replace(fitted, value=np.where(np.array(names) == "g_core", 0.002, fitted.value))
    s = data.settings.index(Setting(852.0, 924.0, power_limit_w=8.0))
    row = data.take(np.flatnonzero(data.setting == s)[:1])
    of_time = [term.pays_for == "time" for term in fitted.terms]
    watts = fitted.parts_j(row)[0, of_time].sum() / row.time_s[0]
    line = roofline(data, "dp", "dram", s, fitted)
    assert line.constant_w == pytest.approx(watts, rel=1e-9)


def test_voltages_of_lower_clocks_under_a_limit_do_not_fall() -> None:
    assert "voltages" not in [finding.check for finding in check(held_down(), "tk1")]
