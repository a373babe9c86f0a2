"""Variants predicted by the others: prices by scipy, and what picks lose by plain loops."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.optimize import linprog, nnls

from analysis.choice.variant_crossval import cross_validate_variants, folds
from analysis.choice.variant_prices import (
    SEED,
    TIME_TERM,
    fit_energies,
    fit_times,
    price_record,
    times_without,
)
from analysis.measurements.observations import FitError, observations
from analysis.measurements.variants import MeasuredVariants, measured_variants
from dvfs.kernel_instance import KernelInstance
from dvfs.setting import Setting
from tests.analysis.variant_data import variant_columns

NAN = math.nan
CLOCKS = (500.0, 1000.0)


def terms(instances: Sequence[KernelInstance]) -> dict[str, np.ndarray]:
    """What a tile's time is a sum of: its points, and its edges."""
    n = np.array([instance.params["n"] for instance in instances], float)
    tile = np.array([instance.params["tile"] for instance in instances], float)
    return {"dp": 1e6 * n, "dram": 1e6 * n / tile, "tiles": n / tile**2}


def rows(seed: int = 3, noise: float = 0.1) -> list[tuple]:
    """Two stencils of two sizes at two clocks; ten tiles of each, of which some twice."""
    rng = np.random.default_rng(seed)
    made = []
    for stencil, price in (("a", 1.0), ("b", 1.7)):
        for n in (64, 256):
            for tile in range(1, 11):
                for mhz in CLOCKS:
                    for repeat in range(1 + (tile == 2)):
                        time_s = price * n * (1e-3 + 5e-3 / tile) * 1000 / mhz
                        time_s *= math.exp(noise * rng.normal())
                        joules = time_s * 30 + n * 2e-3 * math.exp(noise * rng.normal())
                        counts = {"n_dp": 1e6 * n, "n_dram": 1e6 * n / tile}
                        more = {**counts, "core_mhz": mhz, "repeat": repeat}
                        params = {"stencil": stencil, "n": n, "tile": tile}
                        made.append((params, time_s, joules, more))
    return made


def variants(made: list[tuple], **more: object) -> MeasuredVariants:
    return measured_variants(
        variant_columns(made), "s", "dgemm", terms, tuned=("tile",), **more  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_row_is_a_variant_at_a_setting_with_the_mean_of_its_repeats():
    made = [*rows(), ({"stencil": "a", "n": 64, "tile": 99}, NAN, NAN, {"status": "timed out"})]
    of = variants(made)
    assert len(of) == 2 * 2 * 10 * 2
    assert [one.label for one in of.instances] == sorted(one.label for one in of.instances)
    assert of.problems == [
        {"stencil": s, "n": n}
        for s, n in dict.fromkeys((i.params["stencil"], i.params["n"]) for i in of.instances)
    ]
    assert [family["stencil"] for family in of.families] == ["a", "b"]
    assert (of.highest, of.simulated) == ({"core_mhz": 1000.0}, False)
    assert {*of.counts} == {"dp", "dram"}
    assert of.settings == [Setting(500.0, 500.0), Setting(1000.0, 500.0)] * 40
    for row in range(len(of)):
        instance, mhz = of.instances[of.variant[row]], of.clocks["core_mhz"][row]
        same = [(t, e) for params, t, e, own in made[:-1]
                if params == instance.params and own["core_mhz"] == mhz]  # fmt: skip
        assert len(same) == 1 + (instance.params["tile"] == 2)
        assert of.time_s[row] == pytest.approx(np.mean([t for t, _ in same]))
        assert of.energy_j[row] == pytest.approx(np.mean([e for _, e in same]))
        problem = of.problems[of.problem[row]]
        assert problem == {name: instance.params[name] for name in ("stencil", "n")}
        assert of.families[of.family[row]] == {"stencil": instance.params["stencil"]}
        points = 1e6 * instance.params["n"]
        assert of.time_terms["dp"][row] == points
        assert of.time_terms["dp / core_mhz"][row] == points * 1000.0 / mhz
        assert of.time_terms["tiles"][row] == instance.params["n"] / instance.params["tile"] ** 2
    fixed = variants(made, problem={"n": "64", "stencil": "b"})
    assert (len(fixed), fixed.problems) == (20, [{"stencil": "b", "n": 64}])


def test_an_energy_that_is_missing_is_not_a_number_and_its_time_stays():
    made = rows()
    made = [(p, t, NAN if i % 7 == 0 else e, own) for i, (p, t, e, own) in enumerate(made)]
    made[3] = (made[3][0], made[3][1], -1.0, made[3][3])
    of = variants(made)
    assert np.isfinite(of.time_s).all()
    lost = {(str(p), own["core_mhz"]) for p, _, e, own in made if not e > 0}
    there = {(str(p), own["core_mhz"]) for p, _, e, own in made if e > 0}
    gone = {(str(dict(of.instances[v].params)), mhz) for v, mhz in
            zip(of.variant[np.isnan(of.energy_j)], of.clocks["core_mhz"][np.isnan(of.energy_j)],
                strict=True)}  # fmt: skip
    assert gone == lost - there


def test_the_counts_of_a_variant_are_those_of_the_repeats_that_have_them():
    """The first repeats of the variants that have two lack a count, or all."""
    whole = variants(rows())
    for lacking in (["n_dram"], ["n_dp", "n_dram"]):
        made = [
            (p, t, e, {**own, **dict.fromkeys(lacking if p["tile"] == 2 else [], NAN)})
            if own["repeat"] == 0
            else (p, t, e, own)
            for p, t, e, own in rows()
        ]
        of = variants(made)
        for name, counts in whole.counts.items():
            np.testing.assert_allclose(of.counts[name], counts)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("x", "dgemm"), "--site: unknown site 'x'; known: s"),
        (("s", "fma"), "--kernel: unknown kernel 'fma'; known: dgemm"),
    ],
)
def test_what_was_not_measured_is_said(asked, said):
    with pytest.raises(FitError) as refused:
        measured_variants(variant_columns(rows()), *asked, terms)
    assert str(refused.value) == said
    failed = [(p, t, e, {**own, "status": "timed out"}) for p, t, e, own in rows()]
    with pytest.raises(FitError, match="no measurement of dgemm at s has succeeded"):
        variants(failed)
    with pytest.raises(FitError, match="dgemm counts nothing that its time could be a sum of"):
        measured_variants(variant_columns(rows()), "s", "dgemm", lambda instances: {})


def matrix(of: MeasuredVariants, mine: np.ndarray, names: Sequence[str]) -> np.ndarray:
    return np.stack([of.time_terms[name][mine] for name in names], axis=1)


def by_nnls(of: MeasuredVariants, fitted: np.ndarray) -> np.ndarray:
    """Prices with the least squares of relative errors, none below 0."""
    relative = matrix(of, fitted, list(of.time_terms)) / of.time_s[fitted, None]
    size = np.abs(relative).max(axis=0)
    return nnls(relative / size, np.ones(len(relative)))[0] / size


def test_times_are_sums_at_prices_of_each_family():
    of = variants(rows())
    for place, cost in enumerate(fit_times(of)):
        mine = of.family == place
        assert cost is not None
        assert cost.terms == tuple(of.time_terms)
        assert cost.n == 40
        predicted_s = matrix(of, mine, cost.terms) @ by_nnls(of, mine)
        np.testing.assert_allclose(cost.of({k: c[mine] for k, c in of.time_terms.items()}),
                                   predicted_s, rtol=1e-9)  # fmt: skip
        error = np.sqrt(np.mean((predicted_s / of.time_s[mine] - 1) ** 2))
        assert cost.error == pytest.approx(error, rel=1e-6)
    bare = fit_times(of, intervals=False)[0]
    assert np.isnan(bare.low).all()


def test_a_variant_s_time_comes_from_the_others_of_its_family_alone():
    of = variants(rows())
    test = np.arange(len(of)) % 9 == 2
    time_s = times_without(of, test)
    assert np.isnan(time_s[~test]).all()
    for place in (0, 1):
        mine = of.family == place
        prices = by_nnls(of, mine & ~test)
        expected = matrix(of, mine & test, list(of.time_terms)) @ prices
        np.testing.assert_allclose(time_s[mine & test], expected, rtol=1e-9)
    none = times_without(of, of.family == 1)
    assert np.isnan(none).all()


def by_linear_program(columns: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Prices with the least sum of absolute errors: an error up and one down for each row."""
    n, k = columns.shape
    size = np.abs(columns).max(axis=0)
    answer = linprog(
        np.concatenate([np.zeros(k), np.ones(2 * n)]),
        A_eq=np.block([[columns / size, np.eye(n), -np.eye(n)]]),
        b_eq=costs,
    )
    return np.asarray(answer.x[:k] / size)


def test_energies_at_the_highest_clocks_are_constant_power_and_joules_a_count():
    """Fitted on three rows a term or a tenth of all, and judged by the others."""
    of = variants(rows())
    found = fit_energies(of)
    there = np.flatnonzero(of.clocks["core_mhz"] == 1000.0)
    order = np.random.default_rng(SEED).permutation(there)
    trained, tested = order[:9], order[9:]
    columns = np.stack([of.time_s, of.time_terms["dp"], of.time_terms["dram"]], axis=1)
    prices = by_linear_program(columns[trained], of.energy_j[trained])
    assert found.setting == Setting(1000.0, 500.0)
    assert found.cost.terms == (TIME_TERM, "dp", "dram")
    assert (found.cost.n, found.tested) == (9, 31)
    reached = np.abs(columns[trained] @ found.cost.value - of.energy_j[trained]).sum()
    least = np.abs(columns[trained] @ prices - of.energy_j[trained]).sum()
    assert reached == pytest.approx(least, rel=1e-6)
    predicted_j = columns[tested] @ found.cost.value
    error = np.sqrt(np.mean((predicted_j / of.energy_j[tested] - 1) ** 2))
    assert found.test_error_pct == pytest.approx(100 * error)


@pytest.mark.parametrize(("kept", "fits"), [(9, False), (10, True)])
def test_energies_need_three_variants_a_term_and_one_to_judge_them(kept, fits):
    made = [row for row in rows() if row[3]["core_mhz"] == 500.0 and row[3]["repeat"] == 0][:kept]
    found = fit_energies(variants(made))
    assert (found is not None) is fits
    none = [(p, t, NAN, own) for p, t, _, own in made]
    assert fit_energies(variants(none)) is None


def test_a_record_of_prices_has_no_number_that_json_lacks():
    of = variants(rows())
    (first, _) = fit_times(of, intervals=False)
    record = price_record(first, "s")
    assert record["n"] == 40
    assert record["error_pct"] == pytest.approx(100 * first.error)
    assert [price["name"] for price in record["prices"]] == list(of.time_terms)
    assert {(price["unit"], price["low"], price["high"]) for price in record["prices"]} == {
        ("s", None, None)
    }
    energies = price_record(fit_energies(of).cost, "J")
    assert [price["unit"] for price in energies["prices"]] == ["W", "J", "J"]
    assert all(price["low"] <= price["value"] <= price["high"] for price in energies["prices"])


@pytest.mark.parametrize(("scheme", "n"), [("leave-one-variant-out", 40), ("variants-kfold:7", 7)])
def test_every_variant_is_left_out_once(scheme, n):
    left_out = np.array(list(folds(40, scheme)))
    assert left_out.shape == (n, 40)
    assert (left_out.sum(axis=0) == 1).all()
    assert set(left_out.sum(axis=1)) <= {40 // n, -(-40 // n)}


@pytest.mark.parametrize(
    ("count", "scheme", "said"),
    [
        (
            5,
            "variants-kfold:6",
            "found 'variants-kfold:6'; variants-kfold:K divides the 5 variants into K folds: give "
            "a whole number K from 2 to 5",
        ),
        (5, "variants-kfold:1", "from 2 to 5"),
        (5, "kfold:3", "found 'kfold:3'"),
        (5, "variants-kfold:-2", "from 2 to 5"),
        (2, "leave-one-variant-out", "leave-one-variant-out needs 3 variants or more; there are 2"),
        (1, "variants-kfold:2", "variants-kfold:2 needs 3 variants or more; there is 1: measure"),
    ],
)
def test_folds_that_are_not_possible_are_refused(count, scheme, said):
    with pytest.raises(FitError) as refused:
        list(folds(count, scheme))
    assert said in str(refused.value)


@pytest.mark.parametrize("objective", ["time", "energy", "edp"])
@pytest.mark.parametrize("time", ["measured", "predicted"])
def test_errors_and_lost_picks_are_those_of_plain_loops(objective, time):
    of, data = variants(rows(noise=0.2)), judged(rows(noise=0.2))
    got = cross_validate_variants(
        of, data, "variants-kfold:5", objective=objective, time=time, model="choi"
    )
    assert (got.n_folds, got.objective, got.time) == (5, objective, time)
    for left_out in folds(len(of.instances), "variants-kfold:5"):
        test = left_out[of.variant]
        np.testing.assert_allclose(got.predicted_s[test], times_without(of, test)[test])

    def score(joules: float, seconds: float) -> float:
        return {"time": seconds, "energy": joules, "edp": joules * seconds}[objective]

    given_s = got.predicted_s if time == "predicted" or objective == "time" else of.time_s
    for place, own in enumerate(got.problems):
        lost, wrong, close = [], 0, []
        for mhz in CLOCKS:
            here = np.flatnonzero((of.problem == place) & (of.clocks["core_mhz"] == mhz))
            actual = [score(of.energy_j[i], of.time_s[i]) for i in here]
            expected = [score(got.predicted_j[i], given_s[i]) for i in here]
            picked = actual[int(np.argmin(expected))]
            lost.append(100 * (picked / min(actual) - 1))
            wrong += picked > min(actual)
            close += [i for i, a in zip(here, actual, strict=True) if a <= 1.2 * min(actual)]
        mine = np.flatnonzero(of.problem == place)
        assert own.problem == of.problems[place]
        assert (own.variants, own.cases, own.wrong) == (10, 2, wrong)
        assert own.lost_rms_pct == pytest.approx(math.sqrt(sum(x * x for x in lost) / 2))
        assert own.lost_max_pct == pytest.approx(max(lost))
        for predicted, measured, every, near in (
            (got.predicted_s, of.time_s, own.time_error_pct, own.time_error_close_pct),
            (got.predicted_j, of.energy_j, own.energy_error_pct, own.energy_error_close_pct),
        ):
            relative = predicted / measured - 1
            assert every == pytest.approx(100 * np.sqrt(np.mean(relative[mine] ** 2)))
            assert near == pytest.approx(100 * np.sqrt(np.mean(relative[close] ** 2)))


def test_without_energies_only_times_are_judged():
    made = [(p, t, NAN, own) for p, t, _, own in rows()]
    of = variants(made)
    got = cross_validate_variants(of, None, "variants-kfold:4", objective="time")
    assert np.isnan(got.predicted_j).all()
    assert all(math.isnan(own.energy_error_pct) for own in got.problems)
    assert all(own.time_error_pct < 30 for own in got.problems)
    with pytest.raises(
        FitError, match="no energy of dgemm at s was measured; use --objective time"
    ):
        cross_validate_variants(of, None, "variants-kfold:4")
    few = [row for row in rows() if row[0]["tile"] < 3]
    with pytest.raises(FitError, match="no problem of dgemm at s has 3 variants or more"):
        cross_validate_variants(variants(few), None, "variants-kfold:4", objective="time")


def without_counts(*stencils: str) -> MeasuredVariants:
    """Variants, of which those of some stencils count nothing."""

    def some(instances: Sequence[KernelInstance]) -> dict[str, np.ndarray]:
        counted = np.array([one.params["stencil"] not in stencils for one in instances], float)
        return {name: counted * column for name, column in terms(instances).items()}

    return measured_variants(variant_columns(rows()), "s", "dgemm", some, tuned=("tile",))


def test_variants_without_counts_have_no_picks():
    of = without_counts("b")
    got = cross_validate_variants(of, None, "variants-kfold:4", objective="time")
    by_stencil = [(own.problem["stencil"], own) for own in got.problems]
    assert [name for name, _ in by_stencil] == ["a", "a", "b", "b"]
    for name, own in by_stencil:
        assert own.variants == 10
        assert own.cases == (2 if name == "a" else 0)
        assert own.wrong <= own.cases
        for lost in (own.lost_rms_pct, own.lost_max_pct, own.time_error_pct):
            assert math.isfinite(lost) == (name == "a")
    whole = cross_validate_variants(variants(rows()), None, "variants-kfold:4", objective="time")
    a = np.array([of.instances[i].params["stencil"] == "a" for i in of.variant])
    np.testing.assert_array_equal(got.predicted_s[a], whole.predicted_s[a])
    assert np.isnan(got.predicted_s[~a]).all()
    with pytest.raises(FitError, match="no variant of dgemm at s can be predicted from the others"):
        cross_validate_variants(
            without_counts("a", "b"), None, "variants-kfold:4", objective="time"
        )


def judged(made: list[tuple]):
    """The rows as a fit of their energies needs them."""
    whole = [(p, t, e, {**more, "core_v": 1.0, "mem_v": 1.0}) for p, t, e, more in made]
    return observations(variant_columns(whole), "s")


def test_a_variant_with_a_time_and_no_energy_is_named():
    made = rows()
    lost = next(i for i, row in enumerate(made) if row[0]["tile"] == 5)
    made[lost] = (*made[lost][:2], NAN, made[lost][3])
    of = variants(made)
    said = "dgemm stencil=a n=64 tile=5 has a time and no energy at a setting; measure it again, or"
    with pytest.raises(FitError, match=said):
        cross_validate_variants(of, judged(made), "variants-kfold:4", model="choi")
    judged_by_time = cross_validate_variants(of, None, "variants-kfold:4", objective="time")
    assert len(judged_by_time.problems) == 4
