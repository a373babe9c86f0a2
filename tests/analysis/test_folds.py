"""Which rows every scheme leaves out, and what a fit says of rows and terms, worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from analysis.choice.crossval import OTHER_SCHEMES, SCHEMES, folds
from analysis.energy.fit import coefficient_deviations, inseparable, jackknife_deviations, outliers
from analysis.energy.terms.registry import model_terms
from analysis.measurements.observations import FitError, Observations, cell_means
from analysis.measurements.problems import (
    check_one_problem,
    of_problem,
    problem_names,
    problems,
    value_text,
)
from dvfs.kernel_instance import KernelInstance
from dvfs.setting import Setting
from tests.analysis.synthetic import grid_observations, without_node


def data(**more) -> Observations:
    return grid_observations(1, 3, repeats=2, core_mhz=(400.0, 600.0, 800.0), **more)


def left_out(of: Observations, scheme: str, train=None) -> list[list[int]]:
    return [np.flatnonzero(mask).tolist() for mask in folds(of, scheme, train)]


@pytest.mark.parametrize(
    ("scheme", "key"),
    [
        ("leave-one-setting-out", lambda of, i: of.settings[of.setting[i]]),
        ("leave-one-core-clock-out", lambda of, i: of.core_mhz[i]),
        ("leave-one-memory-clock-out", lambda of, i: of.mem_mhz[i]),
        ("leave-one-kernel-out", lambda of, i: of.labels[i]),
    ],
)
def test_a_fold_is_all_rows_of_one_setting_clock_or_kernel(scheme, key):
    of = data().take(np.arange(36) != 7)
    of = of.take(np.random.default_rng(2).permutation(len(of)))
    keys = [key(of, i) for i in range(len(of))]
    expected = [[i for i in range(len(of)) if keys[i] == k] for k in sorted(set(keys))]
    assert left_out(of, scheme) == expected


def test_rows_without_a_clock_are_in_no_fold_of_that_clock():
    of = data()
    settings = [Setting(one.core_mhz) for one in of.settings]
    with pytest.raises(FitError) as refused:
        left_out(replace(of, settings=settings), "leave-one-memory-clock-out")
    assert str(refused.value) == (
        "leave-one-memory-clock-out needs measurements at two memory clocks or more"
    )
    assert len(left_out(replace(of, settings=settings), "leave-one-core-clock-out")) == 3


def test_named_nodes_are_left_out_one_by_one():
    of = data()
    node = np.array(["b", "", "a"], object)[np.arange(len(of)) % 3]
    assert left_out(replace(of, node=node), "leave-one-node-out") == [
        list(range(2, len(of), 3)),
        list(range(0, len(of), 3)),
    ]
    for few in (without_node(of), np.where(node == "b", "", node)):
        with pytest.raises(FitError, match="needs measurements of two named nodes or more"):
            left_out(replace(of, node=few), "leave-one-node-out")


@pytest.mark.parametrize("parts", [2, 5, 36])
def test_parts_are_of_equal_size_and_at_random(parts):
    of = data()
    found = left_out(of, f"kfold:{parts}")
    assert sorted(i for part in found for i in part) == list(range(36))
    assert {len(part) for part in found} <= {36 // parts, -(-36 // parts)}
    assert found == left_out(of, f"kfold:{parts}")
    assert found != [list(range(k, 36, parts)) for k in range(parts)]


@pytest.mark.parametrize("settings", [5, 6])
def test_a_holdout_predicts_the_smaller_half_at_random_or_all_but_those_named(settings):
    of = data().take(data().setting < settings)
    (test,) = folds(of, "holdout", None)
    assert len(set(of.setting[test].tolist())) == settings // 2
    assert not set(of.setting[test].tolist()) & set(of.setting[~test].tolist())
    (test,) = folds(of, "holdout", [Setting(400.0, 900.0), Setting(600.0, 500.0)])
    there = {of.settings[s] for s in set(of.setting[~test].tolist())}
    assert there == {Setting(400.0, 900.0), Setting(600.0, 500.0)}
    as_found = replace(of, settings=[Setting(one.core_mhz) for one in of.settings])
    (test,) = folds(as_found, "holdout", [Setting(600.0)])
    assert set(of.setting[~test].tolist()) == {2}


@pytest.mark.parametrize(
    ("scheme", "train", "said"),
    [
        ("holdout", [Setting(401.0, 900.0)],
         "holdout trains on 401/900 MHz, which was not measured; a measured setting is 800,900"),
        ("holdout", [Setting(c, m) for c in (400.0, 600.0, 800.0) for m in (500.0, 900.0)],
         "holdout leaves no setting to predict; train on fewer"),
        *((scheme, None, f"found {scheme!r}; kfold:K divides the 36 measurements of synthetic "
           "into K folds: give a whole number K from 2 to 36")
          for scheme in ("kfold:1", "kfold:37", "kfold:x", "kfold:")),
        ("leave-one-site-out", None, "leave-one-site-out needs two sites or more"),
        ("leave-one-setting-ou", None,
         "unknown scheme 'leave-one-setting-ou'; did you mean 'leave-one-setting-out'? Known: "
         + ", ".join((*SCHEMES, *OTHER_SCHEMES))),
    ],
)  # fmt: skip
def test_a_scheme_that_is_not_possible_is_refused(scheme, train, said):
    with pytest.raises(FitError) as refused:
        left_out(data(), scheme, train)
    assert str(refused.value) == said
    one = data().take(data().setting == 0)
    with pytest.raises(FitError, match="needs measurements at two settings or more"):
        left_out(one, "leave-one-setting-out")
    with pytest.raises(FitError, match="kfold:2 needs two measurements or more; there is one"):
        left_out(one.take(np.arange(1)), "kfold:2")


# -- what a fit says ------------------------------------------------------------------------------


@pytest.mark.parametrize(("deviations", "named"), [(5.9, False), (6.1, True), (-6.1, True)])
def test_a_row_is_far_beyond_six_robust_standard_deviations(deviations, named):
    of = data(noise=0.0)
    residual = 0.01 * stats.norm.ppf((np.arange(36) + 0.5) / 36)
    residual[30] = 0.0
    spread = stats.median_abs_deviation(residual, scale="normal")
    centre = np.median(residual)
    residual[30] = centre + deviations * stats.median_abs_deviation(
        np.append(np.delete(residual, 30), np.inf if deviations > 0 else -np.inf), scale="normal"
    )
    far = outliers(of, of.energy_j * np.exp(residual))
    assert bool(far) is named
    if named:
        (row,) = far
        assert abs(row["deviations"]) == pytest.approx(6.1, rel=0.05)
        assert (row["label"], row["setting"]) == (of.labels[30], "600/900 MHz")
        assert row["energy_j"] == of.energy_j[30]
        assert row["predicted_j"] == pytest.approx(of.energy_j[30] * math.exp(residual[30]))
    assert spread > 0
    assert outliers(of, of.energy_j) == []


def test_the_furthest_row_is_named_first():
    of = data(noise=0.0)
    residual = 0.01 * np.where(np.arange(36) % 2 == 0, 1.0, -1.0)
    residual[[4, 9, 20]] = 0.5, -0.9, 0.7
    far = outliers(of, of.energy_j * np.exp(residual))
    assert [row["energy_j"] for row in far] == of.energy_j[[9, 20, 4]].tolist()


def test_terms_that_rows_cannot_separate_are_named_with_a_remedy():
    """Two columns that are the same but for a thousandth, two that are nearly, and one alone."""
    of = data()
    terms, _ = model_terms(of, "choi", estimated=False)
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(36, len(terms)))
    place = {term.name: i for i, term in enumerate(terms)}
    columns[:, place["c0_int"]] = columns[:, place["c0_sp"]] + 1e-3 * rng.normal(size=36)
    columns[:, place["c1_mem"]] = columns[:, place["c1_core"]] + 1e-3 * rng.normal(size=36)
    unit = columns / np.linalg.norm(columns, axis=0)
    groups = inseparable(terms, unit)
    assert sorted(group["terms"] for group in groups) == [
        ["c0_sp", "c0_int"],
        ["c1_core", "c1_mem"],
    ]
    remedies = {tuple(group["terms"]): group["remedy"] for group in groups}
    assert remedies["c0_sp", "c0_int"] == "measure kernels whose ratios of sp to int differ"
    assert remedies["c1_core", "c1_mem"].startswith("measure ")
    assert inseparable(terms, np.linalg.qr(rng.normal(size=(36, len(terms))))[0]) == []


def test_a_jackknife_is_its_formula():
    left = np.random.default_rng(1).normal(size=(7, 3))
    away = left - left.mean(axis=0)
    deviations = coefficient_deviations(left)
    np.testing.assert_allclose(deviations.T @ deviations, 6 / 7 * away.T @ away)
    np.testing.assert_allclose(jackknife_deviations(left), np.sqrt(6 / 7) * away)
    assert np.isnan(coefficient_deviations(left[:2])).all()
    assert np.isfinite(coefficient_deviations(left[:3])).all()


def test_means_of_cells_have_gaps_where_nothing_was_measured():
    of = data().take(np.arange(36) > 1)
    means = cell_means(of, ["kernel-2", "kernel-0"], of.time_s)
    assert means.shape == (2, 6)
    for k, kernel in enumerate(("kernel-2", "kernel-0")):
        for s in range(6):
            mine = of.time_s[(of.labels == kernel) & (of.setting == s)]
            assert means[k, s] == pytest.approx(mine.mean() if len(mine) else np.nan, nan_ok=True)


# -- problems -------------------------------------------------------------------------------------

OWN = [
    KernelInstance("gemm", params)
    for params in (
        {"n": 16, "order": "ij", "tile": 2}, {"n": 8, "order": "ij", "tile": 2},
        {"n": 8, "order": "ji", "tile": 4}, {"n": 8, "order": "ij", "tile": 4, "fast": True},
    )
]  # fmt: skip


def test_problems_are_what_is_not_tuned_in_the_order_of_their_values():
    assert list(problems(OWN, ["tile"]).values()) == [
        {"n": 8, "order": "ij", "fast": True},
        {"n": 8, "order": "ij"},
        {"n": 8, "order": "ji"},
        {"n": 16, "order": "ij"},
    ]
    assert list(problems(OWN, ["tile", "order", "fast"]).values()) == [{"n": 8}, {"n": 16}]
    assert problem_names(list(problems(OWN, ["tile", "fast"]).values())) == [
        "8 ij",
        "8 ji",
        "16 ij",
    ]
    assert problem_names([{"n": 8, "order": "ij"}]) == ["ij"]
    assert problem_names([{"n": 8}, {"n": 8, "fast": True}]) == ["", "true"]


@pytest.mark.parametrize(
    ("problem", "places"),
    [
        ({}, [0, 1, 2, 3]), ({"n": "8"}, [1, 2, 3]), ({"n": "8.0", "order": "ij"}, [1, 3]),
        ({"fast": "true"}, [3]), ({"order": "ji"}, [2]),
    ],
)  # fmt: skip
def test_a_problem_is_named_by_values_as_text(problem, places):
    assert of_problem(OWN, problem) == places


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        ({"m": "8"}, "--problem: unknown parameter 'm'; known: fast, n, order, tile"),
        ({"n": "9"}, "--problem: found n=9; n is one of 16, 8"),
        ({"n": "x"}, "--problem: found n=x; n is one of 16, 8"),
        ({"fast": "1"}, "--problem: found fast=1; fast is one of true"),
    ],
)
def test_a_problem_that_is_not_there_is_refused(problem, said):
    with pytest.raises(FitError) as refused:
        of_problem(OWN, problem)
    assert str(refused.value) == said


def test_twelve_of_many_values_are_named():
    own = [KernelInstance("k", {"n": n}) for n in range(13)]
    with pytest.raises(FitError) as refused:
        of_problem(own, {"n": "99"})
    assert str(refused.value).endswith("n is one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 ...")
    with pytest.raises(FitError) as refused:
        of_problem(own[:12], {"n": "99"})
    assert str(refused.value).endswith("10, 11")
    with pytest.raises(FitError) as refused:
        check_one_problem(own, [])
    text = str(refused.value)
    assert text.startswith(
        "k was measured for 13 problems; name one: --problem n=0 or --problem n=1"
    )
    assert text.endswith("--problem n=11 ...")


def test_several_problems_are_refused_by_what_differs_between_them():
    with pytest.raises(FitError) as refused:
        check_one_problem(OWN, ["tile"])
    assert str(refused.value) == (
        "gemm was measured for 4 problems; name one: --problem n=8,order=ij,fast=true or "
        "--problem n=8,order=ij or --problem n=8,order=ji or --problem n=16,order=ij"
    )
    check_one_problem(OWN[:1], ["tile"])
    check_one_problem(OWN, ["tile", "n", "order", "fast"])
    assert [value_text(v) for v in ("a", 8, 8.5, True, [1, 2])] == [
        "a",
        "8",
        "8.5",
        "true",
        "[1, 2]",
    ]
