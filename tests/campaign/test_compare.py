"""campaign compare: two stores, one store before and after a change, and its exit codes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from campaign.results import open_store
from campaign.store.compaction import compact
from campaign.store.layout import open_store as open_layout
from campaign.store.setups import setup_id
from tests.campaign.compared_stores import CLOCKS_MHZ, DRIVERS, KERNELS, SITE, setup_record, write
from tests.commands import answers, prints, refuses
from tests.stores import store_of_table

IDS = [setup_id(setup_record(driver)) for driver in DRIVERS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stores ``old`` and ``new`` of one driver each, ``both``, and ``again``, as ``old``."""
    path = tmp_path_factory.mktemp("compare")
    write(path / "both")
    write(path / "old", DRIVERS[:1])
    write(path / "new", DRIVERS[1:])
    write(path / "again", DRIVERS[:1])
    compact(open_layout(path / "both"))
    return path


def test_two_stores_and_the_parts_of_one_are_compared_alike(folder):
    old, new, both = (str(folder / name) for name in ("old", "new", "both"))
    of_stores = answers("compare", old, new)
    for words in (
        ["--after", "2026-02-01"],
        ["--before", "2026-02-01T00:00+01:00"],
        ["--before", IDS[0][:6]],
        ["--before", IDS[0], "--after", IDS[1]],
    ):
        of_parts = answers("compare", both, *words)
        assert of_parts["changes"] == of_stores["changes"]
        assert of_parts["setup_changes"] == of_stores["setup_changes"]
    backwards = answers("compare", new, old)
    ratios = [np.array([c["ratio"] for c in r["changes"]]) for r in (of_stores, backwards)]
    assert sorted(ratios[0]) == pytest.approx(sorted(1.0 / ratios[1]))


@pytest.mark.parametrize("words", [["--after", "2026-03-01"], ["--before", "2026-03-01"]])
def test_what_has_no_time_is_neither_before_nor_after_a_date(tmp_path, words):
    """Twice as slow after the date; what has no time took ten times as long."""
    lines = ["site,kernel,core_mhz,repeat,node,time_s,energy_j,start_unix_s"]
    for r in range(6):  # 1 February and 1 April 2026
        start, time_s = (("1769904000", 1.0), ("1775001600", 2.0), ("", 10.0))[r // 2]
        lines.append(f"a,k,1000,{r},n,{time_s + r % 2 / 100},{100 * time_s + r % 2},{start}")
    store = store_of_table(tmp_path, lines)
    found = answers("compare", store, *words)
    (change,) = [c for c in found["changes"] if c["level"] == "site" and c["quantity"] == "time"]
    assert change["ratio"] == pytest.approx(2.0, rel=0.01)
    assert (change["before"], change["after"]) == (2, 2)
    assert found["sites"][0]["notes"][-1].startswith("2 measurements without a time")


def test_the_ratio_is_that_of_the_geometric_means(folder):
    changes = answers("compare", folder / "old", folder / "new")["changes"]
    means = {}
    for side in ("old", "new"):
        frame = open_store(folder / side).scalars[["kernel", "core_mhz", "time_s"]].to_dataframe()
        means[side] = np.log(frame.set_index(["kernel", "core_mhz"])["time_s"]).groupby(
            level=[0, 1]
        )
    expected = np.exp(means["new"].mean() - means["old"].mean())
    points = [c for c in changes if c["level"] == "point" and c["quantity"] == "time"]
    assert len(points) == len(KERNELS) * len(CLOCKS_MHZ)
    for change in points:
        kernel = change["kernel"].split()[0]
        assert change["ratio"] == pytest.approx(expected[kernel, change["core_mhz"]])
        assert change["before"] == change["after"] == 3
    found = {c["kernel"] for c in changes if c["significant"] and c["level"] == "kernel"}
    assert found == {"fmm n=1"}


def test_what_changed_in_the_set_ups_is_named(folder):
    (change,) = answers("compare", folder / "old", folder / "new")["setup_changes"]
    assert (change["site"], change["key"]) == (SITE, "node.gpu_driver")
    assert change["before"] == [[DRIVERS[0], 18]] and change["after"] == [[DRIVERS[1], 18]]


@pytest.mark.parametrize(("limit", "code"), [("1", 1), ("0", 1), ("5", 0)])
def test_a_significant_regression_above_the_limit_ends_with_1(folder, limit, code):
    words = [str(folder / "old"), str(folder / "new"), "--fail-above", limit]
    lines = prints("compare", *words, code=code).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[-1].endswith(f"of more than {limit} %")


def test_equal_stores_and_improvements_end_with_0(folder):
    same = answers("compare", folder / "old", folder / "again", "--fail-above", "0")
    assert not any(change["significant"] for change in same["changes"])
    assert {change["ratio"] for change in same["changes"]} == {1.0}
    answers("compare", folder / "new", folder / "old", "--fail-above", "1")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["both"], IDS[0]),
        (["both", "--before", "monday"], "2026-03-01"),
        (["both", "--before", IDS[0], "--after", IDS[0][:4]], "in common"),
        (["both", "--after", "2027-01-01"], "no measured point in common"),
        (["old", "new", "--before", "2026-02-01"], "one store"),
    ],
)
def test_what_cannot_be_compared_is_answered_with_what_can(folder, words, says):
    given = [str(folder / word) if (folder / word).exists() else word for word in words]
    assert says in refuses("compare", *given)


def test_the_example_of_the_page_is_the_one_that_is_written_here(folder):
    kept = Path(__file__).parents[1] / "data" / "stores" / "driver-change"
    ours, theirs = (open_store(path).scalars for path in (folder / "both", kept))
    for name in ("point_id", "time_s", "energy_j", "setup"):
        assert ours[name].values.tolist() == theirs[name].values.tolist()


def test_tables_of_different_nodes_have_their_points_in_common(tmp_path):
    """The node of a foreign table's row is no part of what was measured."""
    stores = []
    for name, node, factor in (("a", "n1", 1.0), ("b", "n2", 1.05)):
        rows = [
            f"x,{kernel},{node},{repeat},{mhz},{factor * (1.0 + 0.002 * ((repeat + i) % 3))},5.0"
            for i, (kernel, mhz) in enumerate((("k", 1000), ("k", 2000), ("l", 1000)))
            for repeat in range(3)
        ]
        header = "site,kernel,node,repeat,core_mhz,time_s,energy_j"
        stores.append(store_of_table(tmp_path / name, [header, *rows]))
    for words, is_known in (([], False), (["--alike-nodes"], True)):
        shown = answers("compare", *stores, *words)
        assert shown["sites"][0]["common"] == 3
        times = [c for c in shown["changes"] if c["level"] == "site" and c["quantity"] == "time"]
        assert [c["change_pct"] for c in times] == [pytest.approx(5.0)]
        assert [c["significant"] for c in times] == [is_known]
