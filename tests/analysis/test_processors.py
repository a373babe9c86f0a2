"""What a user sees is the same on every processor, also where columns depend on each other."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from itertools import product

import numpy as np
import pytest
from scipy import optimize

from analysis.choice.pick import picks
from analysis.energy.fit import fit
from analysis.energy.normal_equations import normal_equations, solve
from analysis.energy.terms.registry import design_matrix, model_terms
from analysis.measurements.observations import Observations
from analysis.predict.population import symmetric_root
from analysis.ties import first_least
from dvfs.printable import rounded
from tests.analysis.synthetic import grid_observations
from tests.processors import environments, without_choice

DIGITS = """\
import json, sys
from tests.analysis.test_processors import printed
print(json.dumps(printed()))
"""


def tied_classes() -> Observations:
    """Two classes in a constant ratio, and a power that two memory clocks do not split."""
    data = grid_observations(4, 6, noise=0.02)
    return replace(data, counts=data.counts | {"int": data.counts["sp"] * 3.0})


def tied_clocks() -> Observations:
    """Without counts and voltages; the memory's clock is always half of the core's."""
    clocks = (400.0, 600.0, 800.0, 1000.0)
    data = grid_observations(6, 4, 0.0, noise=0.02, known_voltage=False, core_mhz=clocks,
                             mem_mhz=tuple(mhz / 2 for mhz in clocks))  # fmt: skip
    return data.take(data.mem_mhz == data.core_mhz / 2)


def printed() -> dict[str, object]:
    """What ``campaign fit`` and ``predict`` print as JSON of sites whose columns depend on each
    other."""
    shown: dict[str, object] = {}
    for name, data in {"classes": tied_classes(), "clocks": tied_clocks()}.items():
        shown[name] = rounded(fit(data).as_dict())
        shown[f"{name}, picks"] = [rounded(asdict(made)) for made in picks(data)]
    return shown


def test_all_digits_are_the_same_with_the_arithmetic_of_every_processor():
    variables, _ = environments()
    here = json.loads(json.dumps(printed()))
    assert here["classes"]["condition_number"] is None
    for name, more in variables.items():
        run = subprocess.run(
            [sys.executable, "-c", DIGITS], env=without_choice() | more,
            capture_output=True, text=True, check=True, timeout=200,
        )  # fmt: skip
        np.testing.assert_equal(json.loads(run.stdout), here, err_msg=name)


def least_norm(matrix: np.ndarray) -> np.ndarray:
    """Of all x >= 0 with the least |matrix x - 1|, the shortest: of every set of columns the
    pseudo-inverse's solution, which is the shortest one, where it is >= 0 and as good."""
    target = np.ones(len(matrix))
    least = optimize.nnls(matrix, target)[1]
    best, shortest = np.zeros(matrix.shape[1]), np.inf
    for used in product([False, True], repeat=matrix.shape[1]):
        if any(used):
            part = np.linalg.pinv(matrix[:, used], rcond=1e-9) @ target
            as_good = np.linalg.norm(matrix[:, used] @ part - target) < least * (1 + 1e-9)
            if as_good and (part >= 0).all() and np.linalg.norm(part) < shortest:
                best = np.zeros(matrix.shape[1])
                best[list(used)], shortest = part, float(np.linalg.norm(part))
    return best


@pytest.mark.parametrize("terms", ["choi", "choi+clock"])
def test_of_coefficients_that_fit_alike_the_shortest_are_found(terms):
    data = tied_classes()
    equations = normal_equations(data, model_terms(data, terms, estimated=False)[0])
    matrix = design_matrix(data, equations.terms) / data.energy_j[:, None]
    scale = np.linalg.norm(matrix, axis=0)
    expected = least_norm(matrix / scale)
    found = solve(equations).value * scale
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-5 * expected.max())
    again = solve(equations, start=np.arange(1.0, 1.0 + len(scale)) / scale).value * scale
    assert again == pytest.approx(found, rel=1e-6, abs=1e-6 * expected.max())


def test_columns_that_differ_by_little_are_separated_all_the_same():
    """By 2e-3 of their length; energies are those of the coefficients that are found again."""
    data = tied_classes()
    few = 1.0 + 2e-3 * np.random.default_rng(2).standard_normal(len(data))
    data = replace(data, counts=data.counts | {"int": data.counts["int"] * few})
    terms = model_terms(data, "choi", estimated=False)[0]
    columns = design_matrix(data, terms)
    shares = [3.0 if term.name == "c0_int" else 1.0 for term in terms]
    true = np.array(shares) / np.linalg.norm(columns, axis=0)
    data = replace(data, energy_j=columns @ true)
    assert solve(normal_equations(data, terms)).value == pytest.approx(true, rel=1e-4)


def test_rounding_of_the_measurements_moves_no_coefficient():
    """The last digit of every energy, at random: four digits of a coefficient are determined."""
    data = tied_classes()
    last = 1 + 2e-16 * np.random.default_rng(1).integers(-1, 2, len(data))
    one, other = (
        fit(d, "choi+clock") for d in (data, replace(data, energy_j=data.energy_j * last))
    )
    assert other.value == pytest.approx(one.value, rel=1e-5, abs=1e-9 * one.value.max())
    groups = [set(group["terms"]) for group in one.confounded]
    for alike in ({"c0_sp", "c0_int"}, {"c1_mem", "p_misc"}):
        assert any(alike <= group for group in groups)


def test_rounding_of_a_covariance_moves_no_draw():
    """Of one whose axes may have any direction: rounding alone decides which are found."""
    rng = np.random.default_rng(1)
    last, normal = 1e-14 * rng.standard_normal((8, 8)), rng.standard_normal((8, 100))
    one, other = (
        symmetric_root(whole) @ normal for whole in (np.eye(8), np.eye(8) + last + last.T)
    )
    assert one == pytest.approx(normal, abs=1e-12)
    assert other == pytest.approx(one, rel=1e-6)


def test_a_memory_clock_that_follows_the_cores_has_no_voltage_of_its_own():
    fitted = fit(tied_clocks(), "choi", "free")
    assert len(fitted.curves.core.mhz) == 4
    assert fitted.curves.mem.at(np.array([200.0, 500.0])).tolist() == [1.0, 1.0]
    assert "c1_mem" in {term["name"] for term in fitted.dropped}


def test_of_equal_numbers_the_first_is_taken():
    near = np.array([[1.0, np.nan, np.inf], [1.0 - 1e-12, 2.0, np.inf], [1.1, 3.0, np.inf]])
    assert first_least(near).tolist() == [0, 1, 0]
    assert int(first_least(np.array([-5.0, -5.0 - 1e-12, -4.0]))) == 0
    assert int(first_least(np.array([1.0, 1.0 - 1e-6]))) == 1


def test_json_has_the_digits_that_are_sure_and_all_of_what_was_asked():
    value = {"core_mhz": 1234.56789, "params": {"x": 0.123456789}, "value": 1.23456789e-12,
             "saving_pct": 3e-14, "n": 123456789}  # fmt: skip
    assert rounded(value) == {"core_mhz": 1234.56789, "params": {"x": 0.123456789},
                              "value": 1.23457e-12, "saving_pct": 0.0, "n": 123456789}  # fmt: skip
