"""``campaign roofline --platform FILE --trade I,F,M`` against the equations in plain numbers."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

from campaign.verbs.command_line import main
from tests.commands import answers, refuses

CLOSE = 1e-9
RANDOM = random.Random(12)
TRADES = [
    (
        10.0 ** RANDOM.uniform(-1.5, 2.5),
        10.0 ** RANDOM.uniform(0.0, 1.0),
        10.0 ** RANDOM.uniform(0.0, 1.5),
    )
    for _ in range(50)
]


def a_platform() -> dict[str, Any]:
    """Constants between those of a phone and of a GPU; every fourth has no constant power."""
    return {
        "gb_s": 10.0 ** RANDOM.uniform(0.5, 3.5),
        "eps_mem_pj": 10.0 ** RANDOM.uniform(0.5, 3.0),
        "constant_w": RANDOM.choice((0.0, 1.0, 1.0, 1.0)) * 10.0 ** RANDOM.uniform(0.0, 2.5),
        "operations": {
            name: {
                "gop_s": 10.0 ** RANDOM.uniform(0.5, 4.5),
                "eps_pj": 10.0 ** RANDOM.uniform(0.0, 3.0),
            }
            for name in ("sp", "dp")
        },
    }


PLATFORMS = [a_platform() for _ in range(20)]


def time_and_energy(
    own: dict[str, Any], operation: str, operations: float, bytes_: float
) -> tuple[float, float]:
    """Eqs. 3 and 4 of Choi & Vuduc 2012, in s and J."""
    of = own["operations"][operation]
    time_s = max(operations / (of["gop_s"] * 1e9), bytes_ / (own["gb_s"] * 1e9))
    energy_j = operations * of["eps_pj"] * 1e-12 + bytes_ * own["eps_mem_pj"] * 1e-12
    return time_s, energy_j + own["constant_w"] * time_s


def written(folder: Path, own: dict[str, Any]) -> str:
    lines = ['name = "mine"', *(f"{key} = {own[key]!r}" for key in list(own)[:3])]
    for name, of in own["operations"].items():
        lines += [f"[operations.{name}]", *(f"{key} = {value!r}" for key, value in of.items())]
    path = folder / "mine.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def close(value: float) -> Any:
    return pytest.approx(value, rel=CLOSE, abs=0.0)


@pytest.mark.parametrize("own", PLATFORMS, ids=range(20))
def test_random_machines_and_changes_follow_the_equations(
    own: dict[str, Any], tmp_path: Path
) -> None:
    words = ["roofline", "--platform", written(tmp_path, own)]
    for trade in TRADES:
        words += ["--trade", ",".join(map(repr, trade))]
    pairs = answers(*words)["pairs"]
    assert [pair["operation"] for pair in pairs] == ["sp", "dp"]
    for pair in pairs:
        operation, of = pair["operation"], own["operations"][pair["operation"]]
        b_tau = of["gop_s"] / own["gb_s"]
        b_eps = own["eps_mem_pj"] / of["eps_pj"]
        constant_pj = own["constant_w"] / of["gop_s"] * 1e3
        eta = of["eps_pj"] / (of["eps_pj"] + constant_pj)
        assert pair["time_balance"] == close(b_tau)
        assert pair["energy_balance"] == close(b_eps)
        half = pair["effective_balance"]  # where it is I = B^_eps(I), eq. 6
        assert half == close(eta * b_eps + (1.0 - eta) * max(0.0, b_tau - half))
        assert len(pair["trades"]) == len(TRADES)
        for (intensity, f, m), row in zip(TRADES, pair["trades"], strict=True):
            assert (row["intensity"], row["f"], row["m"]) == (intensity, f, m)
            before_s, before_j = time_and_energy(own, operation, intensity, 1.0)
            after_s, after_j = time_and_energy(own, operation, f * intensity, 1.0 / m)
            assert row["speedup"] == close(before_s / after_s)  # eq. 15
            assert row["greenup"] == close(before_j / after_j)  # eqs. 16 and 26
            assert row["powerup"] == close((after_j / after_s) / (before_j / before_s))
            saves = [
                name
                for name, saved in (("time", before_s > after_s), ("energy", before_j > after_j))
                if saved
            ]
            assert row["saves"] == (" and ".join(saves) or "neither")
            sides = ["compute" if i >= b_tau else "memory" for i in (intensity, f * m * intensity)]
            verb = "stays" if sides[0] == sides[1] else "becomes"
            assert row["case"] == f"{verb} {sides[1]}-bound"
            slack = 1.0 + CLOSE
            assert row["greenup_low"] / slack <= row["greenup"] <= row["greenup_high"] * slack
            assert row["speedup_low"] / slack <= row["speedup"] <= row["speedup_high"] * slack


def test_all_bytes_may_be_avoided(tmp_path: Path) -> None:
    own = PLATFORMS[0]
    path = written(tmp_path, own)
    (row, _) = [
        pair["trades"][0]
        for pair in answers("roofline", "--platform", path, "--trade", "1,2,inf")["pairs"]
    ]
    before_s, before_j = time_and_energy(own, "sp", 1.0, 1.0)
    after_s, after_j = time_and_energy(own, "sp", 2.0, 0.0)
    assert row["speedup"] == close(before_s / after_s)
    assert row["greenup"] == close(before_j / after_j)


def test_the_figures_are_drawn_for_each_class(tmp_path: Path) -> None:
    words = ["figures", "--platform", written(tmp_path, PLATFORMS[1]), "--format", "svg"]
    assert main([*words, "-o", str(tmp_path / "out")]) == 0
    drawn = {path.stem for path in (tmp_path / "out").glob("*.svg")}
    assert drawn == {f"{kind}_mine_{op}" for kind in KINDS for op in ("sp", "dp")}


KINDS = ("roofline", "speedup_greenup")


def test_two_machines_of_one_name_do_not_overwrite_each_other(tmp_path: Path) -> None:
    words = []
    for folder, own in ((tmp_path / "a", PLATFORMS[1]), (tmp_path / "b", PLATFORMS[2])):
        folder.mkdir()
        words += ["--platform", written(folder, own)]
    assert "two have the name 'mine'" in refuses("figures", *words, "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_figures_of_a_machine_without_energies_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "times.toml"
    path.write_text(
        'name = "times"\ngb_s = 900\neps_mem_pj = 0\nconstant_w = 0\n'
        "operations.dp = { gop_s = 7000, eps_pj = 0 }\n"
    )
    assert "eps_pj" in refuses("figures", "--platform", path, "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--trade", "2,1.5"], "write I,F,M"),
        (["--trade", "2,0.5,2"], "1 or more"),
        (["--trade", "0,2,2"], "above 0"),
        (["--platform", "no.toml"], "no.toml"),
        (["--platform", "wrong.toml"], "wrong.toml:2: gb_s"),
    ],
)
def test_what_is_wrong_is_named(
    words: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = 'name = "x"\ngb_s = -1\neps_mem_pj = 1\nconstant_w = 1\n'
    wrong += "operations.sp = { gop_s = 1, eps_pj = 1 }\n"
    (tmp_path / "wrong.toml").write_text(wrong, encoding="utf-8")
    given = words if "--platform" in words else ["--platform", "gtx-580", *words]
    assert says in refuses("roofline", *given)


def test_the_refined_peak_of_a_gtx_580_is_the_paper_s() -> None:
    """(3 x 64 + 4 x 32 + 8 x 20) / 15 = 32 flops a cycle, on 16 processors at 1.54 GHz."""
    words = ["roofline", "--refined", "fmm_u", "--platform", "gtx-580"]
    (row,) = answers(*words)
    assert row["flops"] == 11
    assert row["refined_gflop_s"] == pytest.approx(32 * 16 * 1.54)
    assert row["multiply_adds_gflop_s"] == pytest.approx(1581.06, rel=0.003)


def test_the_refined_peak_is_measured_on_this_node() -> None:
    rows = answers("roofline", "--refined", "fmm_u")
    assert {row["ways"] for row in rows} == {"one", "both"}
    for row in rows:
        assert 0.0 < row["loop_gflop_s"] <= row["refined_gflop_s"] * 1.0001
        # AMD's cores have as many units for sums alone as for multiply-adds: 6 flops in place of 4.
        most = 1.0 if row["root"] == "sqrt" else 1.5
        assert row["refined_gflop_s"] < most * row["multiply_adds_gflop_s"]


@pytest.mark.parametrize(
    ("words", "says"),
    [(["fmm"], "fmm_u"), (["fmm_u", "--platform", "i7-950"], "gtx-580"), (["fmm_u", "S"], "store")],
)
def test_a_refined_peak_that_is_not_known_is_named(words, says) -> None:
    assert says in refuses("roofline", "--refined", *words)


def test_missing_is_never_zero(tmp_path: Path) -> None:
    own = {**PLATFORMS[0], "constant_w": math.nan}
    text = Path(written(tmp_path, own)).read_text(encoding="utf-8")
    (tmp_path / "mine.toml").write_text(text.replace("constant_w = nan\n", ""), encoding="utf-8")
    assert "constant_w" in refuses("roofline", "--platform", tmp_path / "mine.toml")
