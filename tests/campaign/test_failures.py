"""campaign failures: every failed attempt is counted once, and its point as what it became."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from campaign.results import open_store as open_results
from campaign.store.compaction import compact
from campaign.store.layout import Store, create_store
from campaign.store.measurement import Measurement
from campaign.store.planned import write_planned
from tests.commands import answers, prints, refuses
from tests.points import a_point
from tests.stores import stored

RETRIES = 1
LONG_OUTPUT = "\n".join(f"line {i} of the output " + "x" * 90 for i in range(30))
HISTORIES = [
    ("sp_fma", 1, [("node lost", "n1"), ("ok", "n2")]),
    ("sp_fma", 2, [("node lost", "n1"), ("timed out", "n2")]),
    ("sp_fma", 3, [("timed out", "n2")]),
    ("sp_fma", 4, [("timed out", "n2"), ("timed out", "n2")]),
    ("bad", 1, [("wrong result", "n1")]),
    ("bad", 2, [("wrong result", "n1")]),
    ("good", 1, [("ok", "n1")]),
]
"""Kernel, parameter n, and the status and node of each attempt, one after the other."""
OF_LAST = {  # of the point whose last failed attempt it is
    ("sp_fma", 1): "measured_since",
    ("sp_fma", 2): "failed",  # its second failure, and one retry is allowed
    ("sp_fma", 3): "waiting",
    ("sp_fma", 4): "failed",
    ("bad", 1): "failed",  # a wrong result would come again
    ("bad", 2): "failed",
}


def expected_groups() -> dict[tuple[str, str, str], dict[str, int]]:
    """The groups, counted from :data:`HISTORIES` alone."""
    groups: dict[tuple[str, str, str], dict[str, int]] = {}
    for kernel, n, attempts in HISTORIES:
        failed = [(status, node) for status, node in attempts if status != "ok"]
        for i, (status, node) in enumerate(failed):
            names = ("attempts", "failed", "waiting", "measured_since")
            group = groups.setdefault((kernel, status, node), dict.fromkeys(names, 0))
            group["attempts"] += 1
            if i == len(failed) - 1:
                group[OF_LAST[kernel, n]] += 1
    return groups


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    ids, made = [], []
    for kernel, n, attempts in HISTORIES:
        point = a_point("k", label=kernel, params=json.dumps({"n": n}))
        ids.append(point.id)
        made += [
            Measurement(
                point=point,
                status=status,
                node=node,
                attempt=attempt,
                start_unix_s=1e9 + 1 + len(made) + attempt,
                text="" if status == "ok" else LONG_OUTPUT,
                provenance={"simulated": False},
            )
            for attempt, (status, node) in enumerate(attempts)
        ]
    store = stored(tmp_path_factory.mktemp("failures") / "store", *made)
    write_planned(store, {"campaign": {"retries": {"max": RETRIES}}}, {"s/p": ids})
    return store


def test_attempts_and_points_are_counted_once_before_and_after_a_compaction(store):
    path = str(store.root)
    before = answers("failures", path)
    compact(store)
    after = answers("failures", path)
    assert before == after == open_results(path).failures().as_dict()
    names = ("attempts", "failed", "waiting", "measured_since")
    assert {
        (group["kernel"], group["reason"], group["node"]): {name: group[name] for name in names}
        for group in after["groups"]
    } == expected_groups()
    reasons = [group["reason"] for group in after["groups"]]
    assert reasons == ["timed out", "wrong result", "node lost"]  # most failed, most waiting first
    assert {name: after[name] for name in names} == {
        name: sum(group[name] for group in expected_groups().values()) for name in names
    }


def test_the_last_output_is_shown_within_100_columns(store):
    shown = prints("failures", store.root, "--kernel", "bad")
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 100
    assert "line 29 of the output" in shown and "line 2 of the output" not in shown
    assert "bad n=2" in shown and "attempt 1" in shown and "2001-09-09 01:46:49 UTC" in shown
    assert "line 2 of the output" in prints("failures", store.root, "--all")


def test_one_kernel_or_node_alone(store):
    groups = answers("failures", store.root, "--node", "n2")["groups"]
    assert {group["node"] for group in groups} == {"n2"}
    root = str(store.root)
    assert prints("failures", root, "--kernel", "good") == "no attempt of good has failed\n"
    assert "--kernel: unknown kernel 'nope'; known: " in refuses(
        "failures", root, "--kernel", "nope"
    )


def test_a_store_without_failures_says_so(tmp_path: Path):
    create_store(tmp_path / "s", "empty")
    assert prints("failures", tmp_path / "s") == "no attempt has failed\n"
    assert open_results(tmp_path / "s").failures().to_pandas().empty
