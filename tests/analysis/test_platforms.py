"""Machines as papers print them: every figure that the papers print of them, and time, energy and
power counted from W and Q. The numbers here were typed from the papers a second time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.figures.figure import Line, Rule
from analysis.figures.rooflines import comparison_figures, platform_figures
from analysis.report.platform_sheets import platform_sheets
from analysis.report.tables import as_tex
from analysis.rooflines.greenup import work_advice, work_limits
from analysis.rooflines.platforms import PLATFORMS
from campaign.results.rooflines import platform_named
from campaign.verbs.command_line import main
from tests.analysis import platforms as printed
from tests.analysis.platforms import from_peaks
from tests.analysis.test_greenup import counted
from tests.commands import answers, prints, refuses

TDP_W = {"gtx-580": 244, "gtx-680": 190, "i7-950": 130, "omap-4460": 0.6, "i3-3217u": 17}
CACHES_PJ = {"gtx-580": {"l1": 149, "l2": 257}, "gtx-680": {"shared": 51, "l2": 195}}
PAPER = ("gtx-580", "gtx-680", "i7-950")


def every_line():
    return [(p, name, p.line(name)) for p in PLATFORMS.values() for name in p.operations]


def test_the_constants_are_those_of_tables_3_to_5_and_of_the_slides():
    lines = {(p.name, name): line for p, name, line in every_line() if p.name != "fermi-keckler"}
    expected = {
        (name.lower().replace(" ", "-"), op): from_peaks(*numbers, operation=op)
        for (name, op), numbers in printed.PLATFORMS.items()
    }
    assert lines == expected
    assert PLATFORMS["fermi-keckler"].line("dp") == from_peaks(*printed.FERMI, operation="dp")
    for name, platform in PLATFORMS.items():
        assert platform.tdp_w == TDP_W.get(name) or math.isnan(platform.tdp_w)
        assert platform.caches_pj == CACHES_PJ.get(name, {})


@pytest.mark.parametrize(
    ("platform", "op", "what", "printed_value", "half_digit"),
    [
        # Table 2 and figure 2.
        ("fermi-keckler", "dp", "tau_op_ps", 1.9, 0.05),
        ("fermi-keckler", "dp", "tau_mem_ps", 6.9, 0.05),
        ("fermi-keckler", "dp", "b_tau", 3.6, 0.05),
        ("fermi-keckler", "dp", "b_eps", 14.4, 0.05),
        ("fermi-keckler", "dp", "balance_gap", 4.0, 0.05),
        # Section 6.2: the limit of eq. 17 for a compute-bound baseline, "about five".
        ("fermi-keckler", "dp", "no_bytes_at_b_tau", 5, 0.5),
        # Section 8 and table 4.
        ("gtx-680", "sp", "constant_w", 66, 0.5),
        ("gtx-580", "sp", "constant_w", 122, 0.5),
        ("i7-950", "sp", "constant_w", 122, 0.5),
    ],
)
def test_printed_figures_of_the_model(platform, op, what, printed_value, half_digit):
    line = PLATFORMS[platform].line(op)
    ours = {
        "tau_op_ps": 1e12 * line.tau_op_s,
        "tau_mem_ps": 1e12 * line.tau_mem_s,
        "b_tau": line.time_balance,
        "b_eps": line.energy_balance,
        "balance_gap": line.balance_gap,
        "no_bytes_at_b_tau": work_limits(line)[2].no_bytes,
        "constant_w": line.constant_w,
    }
    assert abs(ours[what] - printed_value) <= half_digit


@pytest.mark.parametrize(
    ("platform", "op", "what", "attained", "half_digit", "printed_pct"),
    [
        ("gtx-580", "dp", "gb_s", 170, 0.5, 88.3),
        ("gtx-580", "dp", "gop_s", 196, 0.5, 99.3),
        ("gtx-680", "sp", "gb_s", 147, 0.5, 76.6),
        ("gtx-680", "dp", "gb_s", 147, 0.5, 76.6),
        ("gtx-680", "dp", "gop_s", 148, 0.5, 101),
        ("gtx-680", "sp", "gop_s", 3000, 50, 85.6),
        ("i7-950", "sp", "gb_s", 18.7, 0.05, 73.1),
        ("i7-950", "sp", "gop_s", 99.4, 0.05, 93.3),
        ("i7-950", "dp", "gb_s", 18.9, 0.05, 73.8),
        ("i7-950", "dp", "gop_s", 49.7, 0.05, 93.3),
    ],
)
def test_attained_fractions_within_the_printed_digits(
    platform, op, what, attained, half_digit, printed_pct
):
    """Section 4.2: the printed rate's last digit and the printed fraction's, together."""
    rows = {
        (row[0], row[1]): dict(zip(("gb_s", "gb_pct", "gop_s", "gop_pct"), row[2:], strict=True))
        for row in platform_sheets(list(PLATFORMS.values()))[1].rows
    }
    row = rows[platform, op]
    assert row[what] == attained
    pct = row[what.replace("_s", "_pct")]
    room = pct * half_digit / attained + (0.5 if printed_pct == 101 else 0.05)
    assert abs(pct - printed_pct) <= room


@pytest.mark.parametrize(
    ("name", "printed_pct", "ours"), [("gtx-580", 55, 56.4), ("gtx-680", 69, 69.7)]
)
def test_the_shares_of_flops_in_compute_only_energy_are_above_those_measured(
    name, printed_pct, ours
):
    """Section 5.5 prints what the microbenchmarks spent, 55 and 69 %; by eta at the stated peak it
    is 56.4 and 69.7 %, and at the attained rate, which lasts longer, 53.4 and 66.1 %."""
    platform = PLATFORMS[name]
    of, line = platform.operations["sp"], platform.line("sp")
    at_attained = of.eps_pj / (of.eps_pj + 1e3 * platform.constant_w / of.attained_gop_s)
    assert 100 * line.op_efficiency == pytest.approx(ours, abs=0.05)
    assert 100 * at_attained < printed_pct < 100 * line.op_efficiency


def test_the_power_of_387_w_is_not_that_of_tables_3_and_4():
    """Section 5.2 reads 387 W from figure 7; with the constants of tables 3 and 4 it is 378.3 W."""
    line = PLATFORMS["gtx-580"].line("sp")
    assert pytest.approx(line.power_limits_w[1]) == 122 + 1581.06 * 0.0997 + 192.4 * 0.513
    assert line.power_limits_w[1] == pytest.approx(378.3, abs=0.05)
    assert line.power_limits_w[1] > TDP_W["gtx-580"]


@pytest.mark.parametrize(("platform", "op", "line"), every_line(), ids=str)
def test_the_limits_of_more_work_are_where_time_and_energy_turn(platform, op, line):
    """A little below each limit the change pays, a little above it does not."""
    shares = (0.25, 0.5, 1.0, 2.0, 4.0)
    for share, limits in zip(shares, work_limits(line), strict=True):
        assert limits.intensity == pytest.approx(share * line.time_balance)
        for f, m in ((limits.halved, 2.0), (limits.quartered, 4.0), (limits.no_bytes, np.inf)):
            assert counted(line, limits.intensity, f * 0.999, m)[1] > 1.0
            assert counted(line, limits.intensity, f * 1.001, m)[1] < 1.0
        assert limits.faster == pytest.approx(max(1.0, 1.0 / share))
        assert counted(line, limits.intensity, limits.faster * 1.001, np.inf)[0] < 1.0
        # The greatest greenup: the same operations without any byte.
        assert counted(line, limits.intensity, 1.0, np.inf)[1] == pytest.approx(limits.no_bytes)
        if share < 1.0:
            draw = np.random.default_rng(0)
            f, m = 10.0 ** draw.uniform(0, 1 / share, (2, 2_000))
            stays = f * m * share < 1.0
            greener = counted(line, limits.intensity, f[stays], m[stays])[1]
            assert (greener >= limits.greenup_low).all()
            assert (greener <= limits.greenup_high).all()
        else:
            assert math.isnan(limits.greenup_low)


def test_the_advice_names_the_limits():
    assert work_advice(PLATFORMS["gtx-580"].line("sp")) == (
        "a kernel of 4.11 op/B that halves its bytes saves time with less than 2 times the "
        "operations, and energy with less than 1.79 times; one of 8.22 op/B saves energy with less "
        "than 1.18 times (1.35 with no bytes at all), and never time"
    )
    unknown = from_peaks(100.0, 10.0, math.nan, math.nan, math.nan)
    assert work_limits(unknown) == []
    assert work_advice(unknown) == ""


@pytest.mark.parametrize(("platform", "op", "line"), every_line(), ids=str)
def test_the_normalised_lines_and_the_power_are_those_of_w_and_q(platform, op, line):
    """Figures 2a, 2b, 4 and 5: eqs. 3 and 4 with W = I and Q = 1, counted one by one."""
    figure = next(
        f for f in platform_figures(platform) if f.name == f"roofline_{platform.name}_{op}"
    )
    best, power = figure.panels
    drawn = {s.label: s for panel in figure.panels for s in panel.series if isinstance(s, Line)}
    i = drawn["arch line"].x
    time_s = np.maximum(i * line.tau_op_s, line.tau_mem_s)
    energy_j = i * line.eps_op_j + line.eps_mem_j + line.constant_w * time_s
    flop_j = line.eps_op_j + line.constant_w * line.tau_op_s
    assert drawn["roofline in time"].y == pytest.approx(i * line.tau_op_s / time_s)
    assert drawn["arch line"].y == pytest.approx(i * flop_j / energy_j)
    flop_w = line.eps_op_j / line.tau_op_s
    assert drawn["power"].y == pytest.approx(energy_j / time_s / flop_w)
    assert drawn["power"].y.max() == pytest.approx(line.power_limits_w[1] / flop_w)
    for panel in (best, power):
        rules = {s.style: s.at for s in panel.series if isinstance(s, Rule) and s.vertical}
        assert rules["tau"] == pytest.approx(line.tau_mem_s / line.tau_op_s)
        half = np.interp(rules["eps"], i, drawn["arch line"].y)
        assert half == pytest.approx(0.5, abs=2e-3)
        third = {"eps_free"} if platform.constant_w else set()
        assert rules.keys() == {"tau", "eps"} | third
        if platform.constant_w:
            assert rules["eps_free"] == pytest.approx(line.eps_mem_j / line.eps_op_j)
    if platform.constant_w:
        dynamic_w = (i * line.eps_op_j + line.eps_mem_j) / time_s
        assert drawn["power without constant power"].y == pytest.approx(dynamic_w / flop_w)
    if platform.name in PAPER:
        of = platform.operations[op]
        attained_s = np.maximum(i / of.attained_gop_s, 1.0 / of.attained_gb_s)
        assert drawn["attained"].y == pytest.approx(i / attained_s / of.gop_s)


def test_machines_on_one_plot():
    two = [platform_named("GTX-580"), PLATFORMS["fermi-keckler"]]
    lines = [(p.name, p.line(op)) for p in two for op in p.operations]
    (figure,) = comparison_figures(lines, False)  # a single machine has sp: no figure of it
    assert figure.name == "machines_dp_dram"
    speed, efficiency = figure.panels
    for (_, line), drawn in zip(lines[1:], speed.series, strict=True):
        assert drawn.y.max() == pytest.approx(1e-9 / line.tau_op_s)
    for (_, line), drawn in zip(lines[1:], efficiency.series, strict=True):
        assert drawn.y == pytest.approx(1e-9 * line.efficiency_ops_j(drawn.x))


# The verbs


@pytest.mark.parametrize("name", PLATFORMS)
def test_the_verb_needs_no_store_and_fits_the_screen(name):
    shown = prints("roofline", "--platform", name)
    assert max(map(len, shown.splitlines())) <= 100
    assert "nan" not in shown
    assert PLATFORMS[name].model in shown
    answer = answers("roofline", "--platform", name)
    assert answer["platform"] == name
    assert answer["simulated"] is False
    for pair, (op, of) in zip(answer["pairs"], PLATFORMS[name].operations.items(), strict=True):
        assert pair["operation"] == op
        assert pair["gop_s"] == pytest.approx(of.gop_s)
        assert len(pair["more_work"]) == 5


def test_a_cap_at_the_stated_power_of_a_gtx_580():
    """Eq. 7's 378.3 W under 244 W: (378.3 - 122) / (244 - 122) times slower at the balance."""
    sp = answers("roofline", "--platform", "gtx-580", "--cap-w", "244")["pairs"][0]
    assert sp["attained_op_pct"] == pytest.approx(100 * 1400 / 1581.06)
    assert sp["attained_mem_pct"] == pytest.approx(100 * 168 / 192.4)
    at_balance = sp["cap"]["at"][2]
    assert at_balance["slowdown_pct"] == pytest.approx(100 * (256.33 / 122 - 1), abs=0.1)
    assert "--cap-w" in refuses("roofline", "--platform", "gtx-580", "--cap-w", "100")


def test_the_list_and_what_is_wrong():
    lines = prints("roofline", "--platform").splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(PLATFORMS)
    assert max(map(len, lines)) <= 100
    assert [row["platform"] for row in answers("roofline", "--platform")] == list(PLATFORMS)
    for words, said in (
        (["roofline", "--platform", "gtx-590"], "nown: gtx-580"),
        (["roofline"], "roofline: name a store, or a paper's machine with --platform\n"),
        (["roofline", "S", "--platform", "gtx-580"], "without a store"),
        (["figures"], "name a store"),
        (["figures", "--platform", "x"], "nown: gtx-580"),
    ):
        assert said in refuses(*words)


def test_the_files_of_a_platform(tmp_path, capsys):
    folder = tmp_path / "figures"
    assert main(["figures", "--platform", "i7-950", "--cap-w", "200", "-o", str(folder)]) == 0
    names = {path.name for path in folder.iterdir()}
    assert {
        f"roofline_i7-950_{op}.{kind}" for op in ("sp", "dp") for kind in ("svg", "pdf")
    } <= names
    balances = (folder / "platform_balances.csv").read_text().splitlines()
    header, first = (line.split(",") for line in balances[:2])
    assert float(first[header.index("b_tau")]) == pytest.approx(106.56 / 25.6)
    assert not any("caches" in name for name in names)
    assert len(capsys.readouterr().out.splitlines()) == len(names)


def test_tables_of_a_platform_are_rounded_as_they_are_read():
    """Numbers of the GTX 580 with three digits, percentages with one after the point."""
    lines = {
        sheet.name: [line for line in as_tex(sheet).splitlines() if line.startswith("gtx-580")]
        for sheet in platform_sheets([PLATFORMS["gtx-580"]])
    }
    assert lines["platform_peaks"] == [
        r"gtx-580 & NVIDIA GeForce GTX 580 (Fermi) & 1,581 & 198 & 192 & 244 & "
        r"Choi \& Vuduc 2012, tables 3 to 5 \\"
    ]
    assert lines["platform_attained"] == [
        r"gtx-580 & sp & 168 & 87.3 & 1,400 & 88.5 \\",
        r"gtx-580 & dp & 170 & 88.4 & 196 & 99.2 \\",
    ]
    assert lines["platform_energies"] == [r"gtx-580 & 99.7 & 212 & 513 & 122 \\"]
    assert lines["platform_caches"] == [r"gtx-580 & l1 & 149 \\", r"gtx-580 & l2 & 257 \\"]
    assert lines["platform_balances"] == [
        r"gtx-580 & sp & 0.632 & 5.20 & 8.22 & 5.15 & 4.52 & "
        r"0.626 & 56.4 & 158 & 221 & 378 & 280 \\",
        r"gtx-580 & dp & 5.06 & 5.20 & 1.03 & 2.42 & 0.793 & "
        r"2.36 & 25.6 & 41.9 & 221 & 263 & 164 \\",
    ]
    assert lines["platform_more_work"][0] == (
        r"gtx-580 & sp & 2.05 & 4.00 & 3.01 & 3.37 & 3.72 & 0.688 & 2.75 \\"
    )
