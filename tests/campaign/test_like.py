"""From a known site to one like it by the command line: campaign next --like, run, fit --like and
predict, on two simulated boards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from campaign.results import open_store
from campaign.verbs.command_line import main
from sites.site_reading import built_in_sites
from tests.commands import answers, refuses, run
from tests.simulated_runs import simulate

CAMPAIGN = """\
name = "two-boards"
seed = 4
[[sites]]
site = "{site}"
[settings]
choose = "pairs"
pairs = [[852, 924], [396, 924], [852, 528], [396, 528], [852, 204], [72, 68], [648, 396]]
[protocol]
min_duration_s = 0.05
[[kernels]]
kernel = "sp_fma"
params = {{ level = "dram", ops_per_word = [1, 16, 64] }}
[[kernels]]
kernel = "dp_fma"
params = {{ level = "l2", ops_per_word = [2, 32] }}
[[kernels]]
kernel = "load"
params = {{ level = ["l1", "dram"] }}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A store with all points of the built-in board and its fit, and the file of another board."""
    made = tmp_path_factory.mktemp("like")
    text = Path(built_in_sites()["jetson-tk1"]).read_text()
    other = text.replace('name = "jetson-tk1"', 'name = "other"')
    for old, new in (
        ("sp = 27.3,", "sp = 30.0,"),
        ("dram = 369.5", "dram = 340.0"),
        ("_core_w_per_v = 2.86", "_core_w_per_v = 3.1"),
        # It has 91 legal settings, the known board 105.
        ("[72, 108, 180, 252, 324,", "[72, 180, 324,"),
        ("[108, 0.760], ", ""),
        (" [252, 0.763],", ""),
    ):
        assert other.count(old) == 1
        other = other.replace(old, new)
    (made / "other.toml").write_text(other)
    for name, site in (("known", "jetson-tk1"), ("new", "other.toml")):
        (made / f"{name}.toml").write_text(CAMPAIGN.format(site=site))
    simulate(made / "known.toml", made / "S")
    assert main(["fit", str(made / "S"), "--site", "jetson-tk1"]) == 0
    return made


def test_a_few_points_are_chosen_measured_fitted_and_picked_from(folder):
    store, output = str(folder / "S"), str(folder / "next.toml")
    words = [
        "next",
        store,
        "--site",
        "other",
        "--like",
        "jetson-tk1",
        "--budget",
        "1",
        "--campaign",
        str(folder / "new.toml"),
    ]
    chosen = answers(*words, "--points", "6")
    assert len(chosen["points"]) == 6
    assert {point["why"] for point in chosen["points"]} == {"like"}
    assert (chosen["like"], chosen["ended"]) == ("jetson-tk1", "like")
    assert 1.0 < chosen["error_ratio"] < 3.0
    assert chosen["expected_loss_pct"] is None

    code, out, err = run(*words, "--points", "6", "--output", output)
    assert code == 0
    text = " ".join((out + err).split())
    assert "0 of 637 points measured; like jetson-tk1" in text
    assert f"{chosen['error_ratio']:.2f} times as much as a fit of all points" in text
    assert main(["run", output, "--store", store, "--quiet"]) == 0
    assert len(open_store(store).observations("other")) == 6

    # What was measured there is not chosen again.
    more = answers(*words, "--points", "2")
    assert more["measured"] == 6
    assert more["error_ratio"] < chosen["error_ratio"]
    cell = ("kernel", "params", "core_mhz", "mem_mhz")
    assert not [
        p
        for p in more["points"]
        if [p[c] for c in cell] in [[q[c] for c in cell] for q in chosen["points"]]
    ]

    code, out, err = run("fit", store, "--site", "other", "--like", "jetson-tk1")
    assert code == 0
    text = " ".join((out + err).split())
    assert "started from the fit of jetson-tk1: coefficients are about" in text
    assert "warning" not in text
    (kept,) = answers("coefficients", store, "--site", "other")
    assert kept["like"]["site"] == "jetson-tk1"
    assert kept["like"]["spread_pct"] < 25.0
    value = {one["name"]: one for one in kept["coefficients"]}
    assert value["c0_sp"]["low"] < 30.0 < value["c0_sp"]["high"]

    picks = answers("predict", store, "--site", "other")
    assert picks
    assert all(np.isfinite(pick["expected_loss_pct"]) for pick in picks)
    assert main(["report", store, "--output", str(folder / "report.html")]) == 0
    assert "fit from a known site" in (folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["fit", "--site", "jetson-tk1", "--like", "jetson-tk1"],
         "--like: names the site jetson-tk1 itself; name another one"),
        (["fit", "--site", "jetson-tk1", "--like", "tk1"], "has no fit of site 'tk1'"),
        (["fit", "--site", "jetson-tk1", "--like", "other", "--model", "choi"],
         "--like: the model and the voltages come from the fit of other; leave --model, "
         "--voltage and --robust out"),
        (["fit", "--site", "jetson-tk1", "--like", "other", "--robust"],
         "leave --model, --voltage"),
        (["next", "--site", "other", "--like", "tk1", "--budget", "1", "--campaign", "new.toml"],
         "has no fit of site 'tk1'"),
        (["next", "--site", "other", "--like", "other", "--budget", "1", "--campaign", "new.toml"],
         "--like: names the site other itself; name another one"),
    ],
)  # fmt: skip
def test_a_wrong_usage_is_refused(folder, words, text):
    verb, *options = [str(folder / word) if word == "new.toml" else word for word in words]
    assert text in " ".join(refuses(verb, folder / "S", *options).split())


def test_a_known_site_that_measured_none_of_the_kernels_is_refused(folder):
    text = (folder / "new.toml").read_text()
    kernels = '[[kernels]]\nkernel = "int_mad"\nparams = { level = "dram", ops_per_word = 16 }\n'
    (folder / "int.toml").write_text(text[: text.index("[[kernels]]")] + kernels)
    words = ["next", str(folder / "S"), "--site", "other", "--like", "jetson-tk1", "--budget", "1"]
    assert "jetson-tk1 has measured none of these kernels" in refuses(
        *words, "--campaign", folder / "int.toml"
    )
