"""``campaign roofline`` on a table made from tables 3 and 4 of Choi & Vuduc 2012."""

from __future__ import annotations

import pytest

from campaign.verbs.command_line import main
from tests.commands import answers, prints, refuses
from tests.stores import store_of_table

PEAK = {"sp": 1581.06e9, "dp": 197.63e9, "dram": 192.4e9}
EPS_J = {"sp": 99.7e-12, "dp": 212e-12, "dram": 513e-12, "l2": 257e-12}
CONSTANT_W = 122.0
SETTINGS = {(772, 2004): 0.5, (1544, 2004): 1.0}
"""(core, memory) MHz -> the operations' rate over the peak."""


def kernels() -> dict[str, dict[str, float]]:
    counts = {
        f"{name}-{intensity}": {name: intensity * 1e9, "dram": 1e9}
        for name in ("sp", "dp")
        for intensity in (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64)
    }
    return counts | {"chase": {"sp": 1e8, "l2": 1e9}}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Eqs. 3 and 10 at two core clocks, without a fit; and three sites that carry less: ``few`` has
    neither flops nor memory's bytes, ``one`` one intensity, ``lumped`` no counts."""
    lines = [
        "site,kernel,core_mhz,mem_mhz,time_s,energy_j,n_sp,n_dp,n_dram,n_l2,n_int",
        "few,low,1000,,1,2,,,,4e9,1e9",
        "few,high,1000,,1,2,,,,1e9,4e9",
        "one,k,1000,,1,2,4e9,,1e9,,",
        "lumped,k,1000,,1,2,,,,,",
    ]
    for (core_mhz, mem_mhz), share in SETTINGS.items():
        for name, n in kernels().items():
            rate = {c: v * (1.0 if c == "dram" else share) for c, v in PEAK.items()}
            rate["l2"] = 4.0 * PEAK["dram"]
            time_s = max(n[c] / rate[c] for c in n)
            energy_j = sum(n[c] * EPS_J[c] for c in n) + CONSTANT_W * time_s
            counts = ",".join(str(n.get(c, "")) for c in ("sp", "dp", "dram", "l2"))
            lines.append(f"gtx580,{name},{core_mhz},{mem_mhz},{time_s!r},{energy_j!r},{counts},")
    return str(store_of_table(tmp_path_factory.mktemp("roofline"), lines))


@pytest.fixture(scope="module")
def fitted(store: str) -> str:
    assert main(["fit", store, "--site", "gtx580"]) == 0
    return store


def answer(store, *words):
    return answers("roofline", store, "--site", "gtx580", *words)


def by_pair(shown):
    return {(p["operation"], p["memory"]): p for p in shown["pairs"]}


def test_without_a_fit_the_energies_are_the_regressions(store):
    sp = by_pair(answer(store))["sp", "dram"]
    assert sp["energy_from"] == "regression"
    assert sp["energy_balance"] == pytest.approx(5.145, rel=1e-3)


def test_a_setting_is_named_whole(tmp_path):
    """At 100 W all takes twice the time of 200 W, so that the two have other rates."""
    lines = ["site,kernel,core_mhz,uncore_mhz,power_limit_w,time_s,energy_j,n_sp,n_dram"]
    for limit_w in (100, 200):
        for sp in (1e9, 4e9, 64e9):
            time_s = max(sp / 1e11, 0.1) * 200 / limit_w
            energy_j = 50e-12 * sp + 0.2 + 30.0 * time_s
            lines.append(f"gtx580,k{sp:g},1000,1800,{limit_w},{time_s!r},{energy_j!r},{sp},1e9")
    store = store_of_table(tmp_path, lines)
    for limit_w in (100, 200):
        at = ["--setting", f"1000,,{limit_w},uncore=1800"]
        shown = answer(store, *at)
        setting = {"core_mhz": 1000, "mem_mhz": None, "uncore_mhz": 1800, "power_limit_w": limit_w}
        assert {name: shown[name] for name in setting} == setting
        assert f"gtx580 at 1000 MHz, uncore 1800, {limit_w} W\n" in prints(
            "roofline", store, "--site", "gtx580", *at
        )


def test_the_gtx_580_as_the_paper_has_it(fitted):
    shown = answer(fitted, "--cap-w", "244")
    assert (shown["core_mhz"], shown["mem_mhz"]) == (1544.0, 2004.0)
    pairs = by_pair(shown)
    assert set(pairs) == {("sp", "dram"), ("dp", "dram")}
    sp, dp = pairs["sp", "dram"], pairs["dp", "dram"]
    assert (sp["energy_from"], sp["kernels"]) == ("fit", 9)
    assert (sp["time_balance"], dp["time_balance"]) == pytest.approx((8.218, 1.027), rel=1e-3)
    assert (sp["energy_balance"], dp["energy_balance"]) == pytest.approx((5.145, 2.420), rel=1e-3)
    assert sp["most_w"] == pytest.approx(378.3, abs=0.1)
    assert sp["fast_is_efficient"] is dp["fast_is_efficient"] is True
    assert (sp["balance_gap"] > 1.0, dp["balance_gap"] > 1.0) == (False, True)
    at_balance = sp["cap"]["at"][2]
    assert at_balance["intensity"] == pytest.approx(8.218, rel=1e-3)
    assert at_balance["slowdown_pct"] == pytest.approx(110.1, abs=0.1)
    assert at_balance["capped_power_w"] == pytest.approx(244.0)
    assert sp["cap"]["to_intensity"] is None
    coefficients = {c["name"]: c["value"] for c in shown["regression"]["coefficients"]}
    printed = {"eps_sp": 99.7, "eps_dp": 212, "eps_dram": 513, "pi_0": 122, "eps_l2": 257}
    assert {name: coefficients[name] for name in printed} == pytest.approx(printed, rel=1e-6)
    assert shown["regression"]["r_squared"] == pytest.approx(1.0)


def test_another_setting_and_a_cap_that_never_binds(fitted):
    shown = answer(fitted, "--setting", "772,2004", "--cap-w", "500")
    sp = by_pair(shown)["sp", "dram"]
    assert sp["time_balance"] == pytest.approx(8.218 / 2.0, rel=1e-3)
    assert sp["cap"]["binds"] is False


def test_what_a_person_reads(fitted):
    shown = prints("roofline", fitted, "--site", "gtx580", "--cap-w", "300")
    assert "gtx580 at 1544/2004 MHz" in shown
    assert "sp/dram: fast is efficient" in shown
    assert "fast would not be efficient" in shown
    assert "R^2 1.00000" in shown
    assert "sp/dram: a cap of 300 W slows kernels of" in shown
    assert "dp/dram: a cap of 300 W never binds" in shown
    assert "nan" not in shown


def test_kernels_that_do_not_allow_a_regression_are_reported(store):
    shown = prints("roofline", store, "--site", "few", "--cap-w", "5")
    assert "int/l2: unknown: no energy is known" in shown
    assert "no regression: few at 1000 MHz: the 3 coefficients" in shown
    assert "a cap" not in shown


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--setting", "1,2"], "1544,2004"),
        (["--setting", "fast"], "1544,2004"),
        (["--cap-w", "100"], "constant power alone is 122 W"),
        (["--site", "nowhere"], "gtx580"),
    ],
)
def test_what_is_wrong_is_said_with_what_would_do(fitted, words, says):
    site = [] if "--site" in words else ["--site", "gtx580"]
    error = refuses("roofline", fitted, *site, *words)
    assert says in error
    assert len(error.splitlines()) == 1


def test_kernels_without_pairs_are_refused(store):
    assert "measure such kernels, or name another setting" in refuses(
        "roofline", store, "--site", "one"
    )
    error = refuses("roofline", store, "--site", "lumped")
    assert "one class of operations and one of bytes" in error
    assert "no counts" in error


def one_setting(folder, eps_op_j, eps_mem_j, constant_w):
    """A store of one setting, of kernels whose energies are exactly these."""
    lines = ["site,kernel,core_mhz,mem_mhz,time_s,energy_j,n_sp,n_dram"]
    for intensity in (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64):
        sp, dram = intensity * 1e9, 1e9
        time_s = max(sp / 1e11, dram / 1e10)
        energy_j = eps_op_j * sp + eps_mem_j * dram + constant_w * time_s
        lines.append(f"gtx580,k{intensity},1000,900,{time_s!r},{energy_j!r},{sp!r},{dram!r}")
    return str(store_of_table(folder, lines))


def test_an_energy_below_zero_is_missing_with_its_reason(tmp_path):
    shown = answer(one_setting(tmp_path, 50e-12, -200e-12, 30.0))
    (pair,) = shown["pairs"]
    assert pair["energy_from"] is None
    assert "a byte of dram" in pair["energy_missing"]
    for name in ("eps_mem_pj", "energy_balance", "effective_balance", "streaming_w", "most_w"):
        assert pair[name] is None, name
    assert pair["fast_is_efficient"] is None
    by_name = {row["name"]: row for row in shown["regression"]["coefficients"]}
    assert by_name["eps_dram"]["value"] is None
    assert by_name["pi_0"]["value"] == pytest.approx(30.0)
    assert by_name["eps_sp"]["value"] == pytest.approx(50.0)


def test_without_an_energy_of_operations_there_is_no_balance_in_energy(tmp_path):
    store = one_setting(tmp_path, 0.0, 300e-12, 30.0)
    assert main(["fit", store]) == 0
    (pair,) = answer(store)["pairs"]
    assert pair["time_balance"] == pytest.approx(10.0)
    assert pair["energy_balance"] is None or pair["energy_balance"] > 1e3
    words = prints("roofline", store, "--site", "gtx580").replace(",", " ").split()
    assert not {"inf", "nan", "-inf"} & set(words)
