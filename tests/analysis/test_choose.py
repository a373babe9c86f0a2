"""The form that is chosen is the one that made the data, and by its rule."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from analysis.choice.crossval import cross_validate
from analysis.energy.fit import choose, fit
from analysis.energy.fitted import Form, forms
from analysis.energy.models import AUTO, ESTIMATED
from analysis.measurements.observations import FitError, Observations
from tests.analysis.synthetic import grid_observations

CORE_MHZ = (400.0, 520.0, 640.0, 760.0, 880.0, 1000.0)
MEM_MHZ = (500.0, 700.0, 900.0)
SEEDS = range(12)


def measured(seed: int, **more) -> Observations:
    size = {"kernels": 16, "core_mhz": CORE_MHZ, "mem_mhz": MEM_MHZ, "noise": 0.02}
    return grid_observations(seed, **(size | more))


def chosen(data: Observations, model: str = AUTO, voltage: str = AUTO) -> Form:
    return choose(data, forms(data, model, voltage)).form


def test_the_terms_that_made_the_energies_are_chosen():
    """A clock tree is never missed. Of plain energies choi is chosen in more than three of four
    campaigns, and nothing for certain: noise is drawn anew."""
    assert {chosen(measured(seed, clock_tree=True)).model for seed in SEEDS} == {"choi+clock"}
    plain = [chosen(measured(seed, clock_tree=False)).model for seed in SEEDS]
    assert plain.count("choi") >= 0.75 * len(SEEDS)


def test_without_voltages_they_are_estimated():
    for seed in range(3):
        data = measured(seed, known_voltage=False, noise=0.01)
        assert chosen(data).voltage in ESTIMATED


def test_a_voltage_that_does_not_vary_is_not_estimated():
    """Energies made with V = 1 at every clock: the simplest, unit, must mostly be chosen."""
    voltages = []
    for seed in range(8):
        data = measured(seed, known_voltage=False)
        flat = replace(data, energy_j=level_energies(data, seed))
        voltages.append(chosen(flat, "choi").voltage)
    assert voltages.count("unit") >= 6


def level_energies(data: Observations, seed: int) -> np.ndarray:
    """Joules of a machine with one voltage and 10 W besides, with 1 % noise."""
    rng = np.random.default_rng(seed)
    per_op = {"sp": 20e-12, "int": 45e-12, "dram": 300e-12}
    energy_j = sum(values * per_op[name] for name, values in data.counts.items())
    return (energy_j + 10.0 * data.time_s) * rng.normal(1.0, 0.01, len(data))


def test_the_simplest_within_one_standard_error_of_the_best_by_hand():
    """Leave-one-setting-out by :func:`fit` for each form, and the rule written out."""
    kinds = Counter()
    for seed in range(8):
        # Seven settings: each is a fold of its own.
        data = grid_observations(
            seed,
            kernels=8,
            noise=0.05,
            clock_tree=seed % 2 == 0,
            core_mhz=(*CORE_MHZ, 460.0),
            mem_mhz=(700.0,),
        )
        candidates = forms(data, AUTO, AUTO)
        errors = []
        for form in candidates:
            by_setting = []
            for s in range(len(data.settings)):
                out = data.setting == s
                fitted = fit(data.take(~out), form.model, form.voltage, intervals=False)
                held_out = data.take(out)
                ratio = fitted.energy_j(held_out) / held_out.energy_j
                by_setting.append(np.abs(ratio - 1).mean() * 100)
            errors.append(by_setting)
        mean = [sum(errors_of_form) / len(errors_of_form) for errors_of_form in errors]
        best = mean.index(min(mean))
        expected = None
        for i, errors_of_form in enumerate(errors):
            behind = [a - b for a, b in zip(errors_of_form, errors[best], strict=True)]
            average = sum(behind) / len(behind)
            square = sum((b - average) ** 2 for b in behind) / (len(behind) - 1)
            if expected is None and average <= (square / len(behind)) ** 0.5:
                expected = i
        choice = choose(data, candidates)
        assert choice.form == candidates[expected]
        np.testing.assert_allclose([t.error_pct for t in choice.tried], mean, rtol=1e-4)
        assert choice.form.model in choice.why
        kinds[expected == best] += 1
    assert len(kinds) == 2  # the rule made a difference, and not always


def test_with_too_few_settings_all_terms_are_taken_and_it_is_said():
    data = grid_observations(0, core_mhz=(400.0, 1000.0), mem_mhz=(500.0,))
    choice = choose(data, forms(data, AUTO, AUTO))
    assert choice.form == Form("choi+clock", "known")
    assert "too few" in choice.why
    assert not choice.tried
    unknown = grid_observations(0, core_mhz=(400.0, 1000.0), mem_mhz=(500.0,), known_voltage=False)
    assert chosen(unknown) == Form("choi+clock", "unit")


def test_what_is_asked_for_is_taken_as_it_is():
    data = measured(0)
    for model in ("choi", "choi+clock"):
        choice = choose(data, forms(data, model, AUTO))
        assert (choice.form.model, choice.why) == (model, "the model and the voltage were given")


@pytest.mark.parametrize("names", [("chio", AUTO), (AUTO, "guess")])
def test_unknown_names_are_refused(names):
    with pytest.raises(FitError, match=r"[Kk]nown: "):
        forms(measured(0), *names)


def test_known_voltages_must_be_known():
    with pytest.raises(FitError, match="--voltage auto"):
        forms(measured(0, known_voltage=False), AUTO, "known")


def test_forms_with_more_numbers_than_rows_are_left_out():
    """Two lumped kernels at seven settings, 14 rows: a voltage for each clock is too many."""
    data = grid_observations(
        1,
        kernels=2,
        counted=0.0,
        known_voltage=False,
        core_mhz=tuple(np.linspace(400.0, 1000.0, 7)),
        mem_mhz=(700.0,),
    )
    candidates = [Form("choi", v) for v in ("unit", "floor", "free")]
    # unit: two a[k] and p_misc; floor adds two b[k], c1_core and two numbers of the curve, 8 in
    # all; free has one number for each clock but the highest instead of those two.
    choice = choose(data, candidates)
    assert [t.form.voltage for t in choice.tried] == ["unit", "floor", "free"]
    few = data.take(np.isin(data.setting, [0, 2, 4, 6]))
    choice = choose(few, candidates)
    assert [t.form.voltage for t in choice.tried] == ["unit", "floor"]


def test_where_known_voltages_ask_for_too_many_numbers_they_are_not_used_and_it_is_said():
    """Kernels without counts at two settings: two numbers each, and of time, with voltages."""
    two = {"counted": 0.0, "core_mhz": (400.0, 1000.0), "mem_mhz": (500.0,)}
    data, without = (grid_observations(2, known_voltage=known, **two) for known in (True, False))
    made, same = fit(data), fit(without)
    assert (made.voltage, made.model) == (same.voltage, same.model) == ("unit", "choi+clock")
    assert made.energy_j(data) == pytest.approx(same.energy_j(without))
    assert made.energy_j(data) == pytest.approx(data.energy_j, rel=0.02)
    assert made.why == (
        "the voltages are not used, as with them 19 coefficients cannot be fitted to 16 "
        f"measurements; {same.why}"
    )
    for refused, asked in ((data, "known"), (data.take(data.setting == 0), "unit")):
        with pytest.raises(FitError, match="measurements; measure more settings or kernels"):
            fit(refused, voltage=asked)
    three = grid_observations(2, **(two | {"core_mhz": (400.0, 700.0, 1000.0)}))
    assert fit(three).voltage == "table"


@pytest.mark.parametrize("known", [True, False])
def test_the_choice_in_a_fold_never_sees_what_the_fold_predicts(known):
    """One setting's energies are ruined: neither the form of its fold nor what it says changes."""
    size = {"kernels": 4, "core_mhz": CORE_MHZ[::2]}
    if not known:  # takes long
        size |= {"mem_mhz": MEM_MHZ[::2], "known_voltage": False}
    data = measured(3, **size)
    for s in (0, 4) if known else (0,):
        mine = data.setting == s
        rng = np.random.default_rng(s)
        ruined = replace(
            data,
            energy_j=np.where(mine, data.energy_j * rng.uniform(0.2, 5, len(data)), data.energy_j),
        )
        predicted_j, of_ruined_j = (
            cross_validate(rows, "leave-one-setting-out").predicted_j for rows in (data, ruined)
        )
        np.testing.assert_array_equal(predicted_j[mine], of_ruined_j[mine])
        assert not np.allclose(predicted_j[~mine], of_ruined_j[~mine], rtol=1e-3)


def test_the_choice_does_not_depend_on_the_order_of_rows():
    data = measured(5, noise=0.05)
    order = np.random.default_rng(0).permutation(len(data))
    assert chosen(data.take(order)) == chosen(data)


def test_noise_free_energies_of_choi_are_given_choi():
    for seed in range(3):
        data = measured(seed, clock_tree=False, noise=0.0)
        assert chosen(data).model == "choi"
