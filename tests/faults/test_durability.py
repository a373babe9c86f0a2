"""What is acknowledged or renamed into place is on disk: the order of writes, fsyncs and renames.

SIGKILL leaves the system's page cache as it is, so that no kill shows a missing fsync. The calls of
an undisturbed process are listed instead, and read as a machine that loses its power would: what
was written and not yet synced is gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from campaign.store.layout import JOURNAL_SUFFIX as JOURNAL
from tests.faults.commit_faults import POINTS_A_PART, STAGES, Workshop
from tests.faults.shim import AtCall

NEXT = "index/.next"


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    shop = Workshop(tmp_path_factory.mktemp("durability"))
    yield shop
    shop.server.close()


@dataclass(frozen=True)
class Trail:
    """The calls on a store and on the list of acknowledged points, in order: (call, path)."""

    calls: list[tuple[str, str]]

    def last(self, before: int, *calls: str, path: str) -> int:
        """The last such call on a path before a place in the list; -1 if there is none."""
        earlier = (
            i for i in reversed(range(before)) if self.calls[i][0] in calls
            and self.calls[i][1] == path
        )  # fmt: skip
        return next(earlier, -1)

    def is_synced(self, path: str, before: int) -> bool:
        """Whether all that was written to a file by then had been synced by then."""
        written = self.last(before, "write", "ftruncate", "open", "rename", path=path)
        return written < self.last(before, "fsync", path=path)


def trail_of(workshop: Workshop, stage: int) -> Trail:
    """What a process does to a store of this stage, from the first call to the last."""
    store, acks = workshop.victim(stage), workshop.folder / "acks"
    log = workshop.folder / "trail"
    for path in (acks, log):
        path.unlink(missing_ok=True)
    at_call = AtCall(prefix=workshop.folder, act="count", log_path=log)
    done = workshop.write(store, POINTS_A_PART, at_call, acks)
    assert done["exit"] == 0, done["output"]
    assert len(acks.read_text().split()) == POINTS_A_PART
    return Trail([(call, _seen_from(store, path)) for _, call, path in at_call.hits()])


def _seen_from(store: Path, path: str) -> str:
    return path.removeprefix(f"{store}/") if path.startswith(f"{store}/") else Path(path).name


@pytest.mark.parametrize("stage", range(STAGES))
def test_a_point_is_on_disk_before_it_is_acknowledged(workshop: Workshop, stage: int) -> None:
    trail = trail_of(workshop, stage)
    acknowledged = [i for i, call in enumerate(trail.calls) if call == ("write", "acks")]
    assert len(acknowledged) == POINTS_A_PART
    for i in acknowledged:
        written = [path for call, path in trail.calls[:i] if call == "write"]
        journal = [path for path in written if path.startswith("journals/")][-1]
        assert trail.is_synced(journal, i), (journal, trail.calls[:i])
        # Its name, too: a file without one is not found again.
        made = trail.last(i, "open", path=journal)
        assert trail.last(i, "fsync", path="journals") > made


@pytest.mark.parametrize("stage", range(STAGES))
def test_an_index_is_on_disk_before_it_is_named_and_before_journals_go(
    workshop: Workshop, stage: int
) -> None:
    trail = trail_of(workshop, stage)
    named = [
        i for i, (call, path) in enumerate(trail.calls)
        if call == "rename" and re.fullmatch(r"index/\d+", path)
    ]  # fmt: skip
    assert named
    for begun, i in pairwise([0, *named]):
        # Zarr writes a file under another name, and renames it.
        files = {
            path for call, path in trail.calls[begun:i]
            if call in ("write", "open", "rename")
            and path.startswith(f"{NEXT}/") and not path.endswith(".partial")
        }  # fmt: skip
        assert f"{NEXT}/manifest" in files
        assert len(files) > 10
        assert [path for path in files if not trail.is_synced(path, i)] == []
    for i, (call, path) in enumerate(trail.calls):
        if call == "unlink" and path.endswith(JOURNAL):
            newest = max(j for j in named if j < i)
            assert ("fsync", "index") in trail.calls[newest:i]
