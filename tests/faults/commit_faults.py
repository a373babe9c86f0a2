"""Faults at every system call with which a store is made, appended to and compacted.

One process writes to a store with the preloaded library in it, which kills it before or after one
call, cuts one write in half, or has calls fail as a full disk, a quota, a read-only file system or
a broken disk would. A reader must then find every acknowledged point, each once and bit for bit;
the next process must bring the store to its end; and after that nothing may be left behind.
"""

from __future__ import annotations

import itertools
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.faults.outcome import Outcome
from tests.faults.shim import AtCall
from tests.faults.small_campaign import write_campaign
from tests.faults.store_server import StoreServer

STAGES = 4
"""What the store holds when it is harmed: nothing at all, or that many parts less one."""
POINTS_A_PART = 3
ERRORS = ("ENOSPC", "EDQUOT", "EROFS", "EIO")
KINDS = {
    "kill-before": "killed before a call",
    "kill-after": "killed after a call",
    "torn": "killed inside a write",
    "ENOSPC": "disk full",
    "EDQUOT": "quota",
    "EROFS": "read-only",
    "EIO": "disk broken",
}
EXPECTED_ERRORS = ("OSError", "PermissionError", "NotAStoreError", "UnwritableStoreError")
"""What a process may end with when calls fail: the system's error, or one that says it better."""
SIGKILLED = -9


@dataclass(frozen=True)
class Fault:
    """A store at this stage, and what goes wrong when it is written to."""

    stage: int
    at_call: AtCall
    call: str

    @property
    def kind(self) -> str:
        """What sort of fault it is."""
        return f"commit: {KINDS[self.at_call.error or self.at_call.act]}"


class Workshop:
    """A folder with a campaign, the stores to begin with, and a warm interpreter."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        campaign = write_campaign(folder / "campaign", kernels=STAGES, settings=POINTS_A_PART)
        self.server = StoreServer(campaign)
        for stage in range(1, STAGES):
            if stage > 1:
                shutil.copytree(self.stage(stage - 1), self.stage(stage))
                shutil.copy(self.acks(stage - 1), self.acks(stage))
            done = self.write(self.stage(stage), POINTS_A_PART, acks=self.acks(stage))
            assert done["exit"] == 0, done["output"]
        self.acks(0).touch()

    def stage(self, stage: int) -> Path:
        """The store to begin with; of stage 0 there is none."""
        return self.folder / f"stage-{stage}"

    def acks(self, stage: int) -> Path:
        """A file of the points that were acknowledged to whoever made that store."""
        return self.folder / f"acks-{stage}"

    def write(
        self,
        store: Path,
        points: int | None,
        at_call: AtCall | None = None,
        acks: Path | None = None,
    ) -> dict[str, Any]:
        """Have a process write to a store."""
        return self.server.ask(
            do="write",
            store=str(store),
            points=points,
            acks=str(acks) if acks else None,
            variables=at_call.variables() if at_call else {},
            output=str(self.folder / "output"),
        )

    def check(self, store: Path, resumable: bool, acks: Path | None = None) -> dict[str, Any]:
        """Have a process judge a store."""
        return self.server.ask(
            do="check",
            store=str(store),
            resumable=resumable,
            acks=str(acks) if acks else None,
            output=str(self.folder / "output"),
        )

    def victim(self, stage: int) -> Path:
        """A fresh store of this stage, to be harmed."""
        store = self.folder / "victim"
        shutil.rmtree(store, ignore_errors=True)
        if stage:
            shutil.copytree(self.stage(stage), store)
        return store

    def calls(self, stage: int) -> list[str]:
        """The calls that an undisturbed process makes on a store of this stage, in order."""
        log = self.folder / "calls"
        log.unlink(missing_ok=True)
        store = self.victim(stage)
        at_call = AtCall(prefix=store, act="count", log_path=log)
        done = self.write(store, POINTS_A_PART, at_call)
        assert done["exit"] == 0, done["output"]
        return [call for _, call, _ in at_call.hits()]


def every_fault(calls: dict[int, list[str]], prefix: Path) -> list[Fault]:
    """Each way to go wrong at each call of each stage. ``calls``: stage -> names of its calls."""
    faults = []
    for stage, names in calls.items():
        so_far: Counter[str] = Counter()
        for name in names:
            takes_space = name not in ("unlink", "rmdir")
            so_far.update([name, "call", *(["space"] if takes_space else [])])
            at = AtCall(prefix=prefix, act="", number=so_far[name], call=name)
            acts = ["kill-before", "kill-after", *(["torn"] if name == "write" else [])]
            faults += [Fault(stage, replace(at, act=act), name) for act in acts]
            for error in ERRORS:
                full = error in ("ENOSPC", "EDQUOT")
                if full and not takes_space:
                    continue  # a full disk lets files be removed
                once = replace(at, act="errno", error=error)
                number = so_far["space" if full else "call"]
                from_then_on = replace(once, call="", number=number, always=True)
                faults += [Fault(stage, once, name), Fault(stage, from_then_on, name)]
    return faults


def chosen(faults: list[Fault], count: int, seed: int) -> list[Fault]:
    """So many of them, at random; of every kind equally many, and of a kind's calls and stages."""
    generator = random.Random(seed)
    kinds: dict[str, dict[tuple[str, int, bool], list[Fault]]] = {}
    for fault in generator.sample(faults, len(faults)):
        key = (fault.call, fault.stage, fault.at_call.always)
        kinds.setdefault(fault.kind, {}).setdefault(key, []).append(fault)
    of_kinds = [_in_turn(groups.values()) for groups in kinds.values()]
    return list(itertools.islice(_in_turn(of_kinds), count))


def _in_turn(lists: Iterable[Iterable[Fault]]) -> Iterator[Fault]:
    """The first of each, then the second of each, until all are used up."""
    for turn in itertools.zip_longest(*lists):
        yield from (fault for fault in turn if fault is not None)


def harm(workshop: Workshop, fault: Fault, seed: int) -> Outcome:
    """Do it, and say what came of it."""
    began = time.monotonic()
    store = workshop.victim(fault.stage)
    acks, hit = workshop.folder / "acks", workshop.folder / "hit"
    hit.unlink(missing_ok=True)
    shutil.copy(workshop.acks(fault.stage), acks)
    at_call = replace(fault.at_call, prefix=store, log_path=hit)
    written = workshop.write(store, POINTS_A_PART, at_call, acks)
    where = at_call.first_hit(store)
    verdict = _verdict(workshop, fault, store, acks, written, where)
    what = f"stage {fault.stage}, {at_call}: {where}"
    seconds = time.monotonic() - began
    ok = verdict.startswith("complete")
    return Outcome(
        kind=fault.kind,
        seed=seed,
        what=what,
        exit_code=written["exit"],
        last_line=written["said"],
        verdict=verdict,
        ok=ok,
        seconds=seconds,
    )


def _verdict(
    workshop: Workshop, fault: Fault, store: Path, acks: Path, written: dict[str, Any], where: str
) -> str:
    if not where:
        return "wrong: the fault's call never came"
    if fault.at_call.act == "errno":
        if written["exit"] == 1 and not written["said"].split(":")[0].endswith(EXPECTED_ERRORS):
            return f"wrong: an error that does not say what it is: {written['said']}"
        if written["exit"] not in (0, 1):
            return f"wrong: ended with {written['exit']}"
    elif written["exit"] != SIGKILLED:
        return f"wrong: ended with {written['exit']}, and was to be killed"
    judged = workshop.check(store, True, acks)
    if judged["exit"] != 0:
        return f"after the fault: {judged['said']}"
    again = workshop.write(store, None)
    if again["exit"] != 0:
        return f"wrong: the next process failed: {again['said']}"
    said: str = workshop.check(store, False)["said"]
    return said


def run(count: int, seed: int, at_once: int = 2) -> Iterator[Outcome]:
    """``count`` faults, ``at_once`` at the same time, each on a store of its own."""
    with tempfile.TemporaryDirectory(prefix="commit-faults-") as name:
        folder = Path(name)
        with ThreadPoolExecutor(at_once) as pool:
            shops = list(pool.map(Workshop, [folder / str(i) for i in range(at_once)]))
            try:
                calls = {stage: shops[0].calls(stage) for stage in range(STAGES)}
                faults = chosen(every_fault(calls, folder), count, seed)
                free = list(shops)

                def one(fault: Fault) -> Outcome:
                    shop = free.pop()
                    try:
                        return harm(shop, fault, seed)
                    finally:
                        free.append(shop)

                yield from pool.map(one, faults)
            finally:
                for shop in shops:
                    shop.server.close()
