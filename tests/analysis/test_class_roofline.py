"""Times from counts and one measured time, against machines whose ceilings are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.choice.candidates import profile_candidates
from analysis.choice.crossval import cross_validate
from analysis.choice.pick import pick
from analysis.energy.fit import fit
from analysis.measurements.observations import CantFit, observations
from analysis.rooflines.roofline import fastest_setting
from analysis.time.class_roofline import fit_class_roofline
from dvfs.setting import Setting
from tests.analysis.synthetic import grid_observations
from tests.analysis.twin_data import twin_dataset


@pytest.fixture(scope="module")
def twin():
    return observations(twin_dataset("off"), "tk1")


def predicted_and_measured(data, ceilings, kernel):
    """(predicted, measured) seconds of a kernel from its time at the fastest setting."""
    base = fastest_setting(data)
    mine = data.kernel == kernel
    profile = mine & (data.setting == base)
    counts = {name: float(values[profile][0]) for name, values in data.counts.items()}
    time_s = ceilings.time_s(
        counts,
        float(data.time_s[profile][0]),
        data.settings[base],
        data.core_mhz[mine],
        data.mem_mhz[mine],
    )
    return time_s, data.time_s[mine]


def test_the_measured_time_itself_comes_back(twin):
    ceilings = fit_class_roofline(twin)
    base = fastest_setting(twin)
    for kernel in sorted(set(twin.kernel)):
        predicted, measured = predicted_and_measured(twin, ceilings, kernel)
        here = twin.setting[twin.kernel == kernel] == base
        np.testing.assert_allclose(predicted[here], measured[here], rtol=1e-9)


def test_an_unseen_kernels_times_on_the_simulated_board_are_predicted(twin):
    """Each kernel's ceilings are fitted without it; the board's roofline is not this model's."""
    errors = []
    for kernel in sorted(set(twin.kernel))[::6]:
        ceilings = fit_class_roofline(twin.take(twin.kernel != kernel))
        predicted, measured = predicted_and_measured(twin, ceilings, kernel)
        errors.append(np.abs(predicted / measured - 1).mean())
    assert np.mean(errors) < 0.06


def test_a_machine_of_two_ceilings_is_found():
    """Unlike the model, the synthetic machine does sp and int one after the other."""
    data = grid_observations(11, kernels=24)
    ceilings = fit_class_roofline(data)
    errors = [
        np.abs(np.divide(*predicted_and_measured(data, ceilings, kernel)) - 1)
        for kernel in sorted(set(data.kernel))
    ]
    assert np.mean(errors) < 0.03
    assert np.max(errors) < 0.35
    assert ceilings.exponent > 3


def test_a_class_that_was_not_counted_takes_no_time(twin):
    ceilings = fit_class_roofline(twin)
    at = (1.0, Setting(852.0, 924.0), np.array([396.0, 852.0]), np.array([528.0, 204.0]))
    whole = dict.fromkeys(ceilings.tau_s, 0.0) | {"sp": 2.0}
    assert (ceilings.time_s({"sp": 2.0}, *at) == ceilings.time_s(whole, *at)).all()
    assert (ceilings.time_s(whole | {"dram": np.nan}, *at) == ceilings.time_s(whole, *at)).all()


def test_a_kernel_of_the_core_alone_scales_with_its_clock(twin):
    ceilings = fit_class_roofline(twin)
    top = ceilings.top_mhz
    core = np.array([top[0], top[0] / 2, top[0] / 4])
    busy = {"sp": 1.0 / ceilings.tau_s["sp"]}
    time_s = ceilings.time_s(busy, 1.0, Setting(*top), core, np.full(3, top[1]))
    np.testing.assert_allclose(time_s, [1.0, 2.0, 4.0], rtol=0.05)
    at = (np.full(2, top[0]), np.array([top[1], 68.0]))
    faster_memory = ceilings.time_s(busy, 1.0, Setting(*top), *at)
    np.testing.assert_allclose(faster_memory, 1.0, rtol=0.02)


def test_too_few_kernels_and_none_with_counts_are_refused(twin):
    few = twin.take(np.isin(twin.kernel.astype(str), sorted(set(twin.kernel))[:3]))
    with pytest.raises(CantFit, match="3 kernels"):
        fit_class_roofline(few)
    with pytest.raises(CantFit, match="no kernel has operation counts"):
        fit_class_roofline(replace(twin, counts={}))


def test_a_kernel_that_was_not_measured_at_the_fastest_setting_is_left_out(twin):
    """Those that were measured there alone are not: they show how fast their classes can be."""
    absent, *there_alone = sorted(set(twin.kernel))[:3]
    fastest = twin.setting == fastest_setting(twin)
    kept = np.where(fastest, twin.kernel != absent, ~np.isin(twin.kernel, there_alone))
    data = twin.take(kept)
    ceilings = fit_class_roofline(data)
    assert ceilings == fit_class_roofline(data.take(data.kernel != absent))
    assert ceilings != fit_class_roofline(data.take(~np.isin(data.kernel, [absent, *there_alone])))


def test_a_profile_is_picked_for_as_the_kernel_itself_would_be(twin):
    """The pick from counts and one time costs little more than the best of the true energies."""
    fitted = fit(twin, "choi", "known")
    base = fastest_setting(twin)
    lost = []
    for kernel in sorted(set(twin.kernel))[::4]:
        mine = twin.kernel == kernel
        row = np.flatnonzero(mine & (twin.setting == base))[0]
        counts = {name: float(values[row]) for name, values in twin.counts.items()}
        counts = {name: n for name, n in counts.items() if n > 0}
        among = profile_candidates(
            fitted,
            twin.take(~mine),
            "unseen",
            counts=counts,
            measured_s=float(twin.time_s[row]),
            measured_at=twin.settings[base],
        )
        chosen = pick(among)
        at = twin.settings.index(chosen.setting)
        energy_j = twin.energy_j[mine]
        lost.append(float(energy_j[twin.setting[mine] == at][0] / energy_j.min() - 1))
    assert np.mean(lost) < 0.02
    assert 0.0 <= chosen.best_probability <= 1.0


def test_counts_that_the_fit_does_not_know_are_refused(twin):
    fitted = fit(twin, "choi", "known", intervals=False)
    with pytest.raises(CantFit, match="no class 'tensor'"):
        profile_candidates(
            fitted,
            twin,
            "k",
            counts={"tensor": 1.0},
            measured_s=1.0,
            measured_at=twin.settings[-1],
        )


def test_crossval_by_profile_takes_nothing_else_of_the_kernel(twin):
    """Ruin a kernel's times everywhere but at the fastest setting: its predictions stay."""
    base = fastest_setting(twin)
    kernel = sorted(set(twin.kernel))[0]
    mine = twin.kernel == kernel
    ruined = np.where(mine & (twin.setting != base), twin.time_s * 3.0, twin.time_s)
    few = np.isin(twin.kernel.astype(str), sorted(set(twin.kernel))[:8])
    judged, other = (
        cross_validate(d.take(few), "leave-one-kernel-out", "choi", time="profile", voltage="known")
        for d in (twin, replace(twin, time_s=ruined))
    )
    np.testing.assert_allclose(judged.predicted_j[mine[few]], other.predicted_j[mine[few]])
