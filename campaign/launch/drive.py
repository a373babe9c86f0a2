"""The driver: it measures all missing points of a plan, even if workers are lost."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from campaign.launch.campaign_run import CampaignRun, compact_store
from campaign.launch.chooser import Chooser
from campaign.launch.dask_settings import LOOPBACK_DASHBOARD, configure_dask
from campaign.launch.interrupts import INTERRUPTED
from campaign.launch.live_status import LiveStatus
from campaign.launch.node_hours import NodeHours
from campaign.launch.outcome import Outcome, missing_points, outcome
from campaign.launch.partition_run import partition_setup
from campaign.launch.progress import PlainProgress
from campaign.launch.scheduler import scheduler_of
from campaign.launch.setup_record import planned_record
from campaign.launch.snapshot import STARTING, SUBMITTED, read_snapshot
from campaign.plan.plan import Plan
from campaign.store.compaction import equalize_generations
from campaign.store.earlier import keep_earlier
from campaign.store.environment_variables import recorded_site
from campaign.store.journal import has_writer
from campaign.store.layout import Store, driver_lock, writing
from campaign.store.mixtures import ChangedSetupError, changes, not_comparable, refuse_changes
from campaign.store.planned import with_earlier_kernels, write_planned
from campaign.store.records import StoreContents, read_contents
from campaign.store.setups import setup_uses
from campaign.store.site_record import SiteRecord, write_site_record
from campaign.store.states import point_states
from campaign.store.verify import give_up_records, repair_samples
from dvfs.errors import exit_code
from sites.site_file import Site

LATE_WORKERS_S = 5.0


def _tidy(plan: Plan) -> None:
    """Remove the files of dead workers on this host."""
    for site, partition in plan.partitions:
        scheduler_of(plan.sites[site], partition).tidy(partition)


def plan_record(plan: Plan, store: Store) -> dict[str, Any]:
    """The plan in the store's campaign.json, without the points' ids."""
    sites = {name: recorded_site(store, site) for name, site in plan.sites.items()}
    kernels = with_earlier_kernels(store, plan.campaign)
    return {
        "campaign": plan.campaign.model_dump(mode="json"),
        "kernels": {name: kernel._asdict() for name, kernel in kernels.items()},
        "sites": {name: site.model_dump(mode="json") for name, site in sites.items()},
        "file": None if plan.file is None else str(plan.file),
    }


def planned_points(plan: Plan) -> dict[str, list[str]]:
    """The ids of a plan's points by "site/partition"."""
    return {
        f"{site}/{partition}": [point.id for point in plan.of_partition(site, partition)]
        for site, partition in plan.partitions
    }


def site_record(site: Site) -> SiteRecord:
    """The store's record of a site, for fits and predictions."""
    return SiteRecord(
        classes={name: entry.domain for name, entry in site.classes.items()},
        device=site.clocks.device,
        legal={setting: site.volts(setting) for setting in site.settings},
    )


def run(
    plan: Plan,
    store: Store,
    progress: PlainProgress,
    retry_failed: bool = False,
    dashboard: str = LOOPBACK_DASHBOARD,
    accept_changes: bool = False,
    *,
    campaign_file: Path | None = None,
    max_node_hours: float | None = None,
    chooser: Chooser | None = None,
) -> Outcome:
    """Measure every planned point that is not in the store yet.

    The run reports damaged data in the store, and measures their points again. After SIGINT or
    SIGTERM it ends the jobs, keeps the measurements, and the outcome is ``interrupted``.

    Args:
        plan: the points.
        store: the store of the measurements.
        progress: shows progress and messages.
        retry_failed: also retry points that failed.
        dashboard: host:port of Dask's dashboard of the first partition.
        accept_changes: measure even if the store's measurements have another set-up.
        campaign_file: that of the plan, for the command that continues it.
        max_node_hours: no more points begin once all runs of the store have spent these.
        chooser: chooses the points of the plan to measure; None measures all.

    Raises:
        StoreBusyError: another process is using the store.
        UnwritableStoreError: the store cannot be written to, here or on a worker.
        DamagedStoreError: the index of the store cannot be read.
        ChangedSetupError: the store's measurements have another set-up.
        LaunchError: a partition's jobs cannot be submitted.
    """
    configure_dask()
    _tidy(plan)
    with driver_lock(store), _interrupts() as interrupted:
        verb = "run" if chooser is None else chooser.command
        live = LiveStatus(plan, store, progress, campaign_file, max_node_hours, verb)
        try:
            ended = _run_locked(
                plan=plan,
                store=store,
                progress=progress,
                live=live,
                retry_failed=retry_failed,
                interrupted=interrupted,
                dashboard=dashboard,
                accept_changes=accept_changes,
                max_node_hours=max_node_hours,
                chooser=chooser,
            )
        except KeyboardInterrupt:
            live.end(INTERRUPTED, "interrupted; run it again to continue")
            raise
        except ChangedSetupError as error:
            # The snapshot of the store's last run stays, unless it states that this driver waits.
            shown = read_snapshot(store)
            if shown is not None and shown.phase == SUBMITTED:
                live.end(exit_code(error) or 1, str(error))
            raise
        except Exception as error:
            live.end(exit_code(error) or 1, str(error) or type(error).__name__)
            raise
        live.end(ended.exit_code, ended.sentence(str(store.root), live.resume))
        return ended


def _run_locked(
    *,
    plan: Plan,
    store: Store,
    progress: PlainProgress,
    live: LiveStatus,
    retry_failed: bool,
    interrupted: threading.Event,
    dashboard: str,
    accept_changes: bool,
    max_node_hours: float | None,
    chooser: Chooser | None,
) -> Outcome:
    """:func:`run`, after this driver has locked the store."""
    with writing(store):
        for text in (*repair_samples(store), *give_up_records(store)):
            progress.note(text)
        compact_store(store, progress, workers_gone=True)
        contents = read_contents(store)
        keep_earlier(store, contents.generation)
        if not accept_changes:
            for text in _refuse_changes(plan, store, contents):
                progress.note(text)
        live.enter(STARTING)
        chosen = plan if chooser is None else chooser.begin()
        write_planned(store, plan_record(plan, store), planned_points(chosen))
        for name, site in plan.sites.items():
            write_site_record(store, name, site_record(site))
    state = point_states(store, contents)
    todo = missing_points(chosen, state, retry_failed)
    live.count(chosen.points, state, {point.id for point, _ in todo})
    hours = NodeHours(store, progress, max_node_hours)
    live.spent = hours.spent()
    given_up: dict[str, str] = {}
    if todo:
        n_missing = Counter((point.site, point.partition) for point, _ in todo)
        summary = contents.generation.summary
        for names in n_missing:
            label = "/".join(names)
            hours.begin(label, label in summary.get("latest_unix_s", {}))
        if note := hours.estimate_note(plan, n_missing):
            progress.note(note)
        given_up = CampaignRun(
            plan=plan,
            store=store,
            progress=progress,
            live=live,
            hours=hours,
            todo=todo,
            retry_failed=retry_failed,
            interrupted=interrupted,
            dashboard=dashboard,
            chooser=chooser,
        ).run_until_done()
        _wait_for_late_workers(store)
        with writing(store):
            compact_store(store, progress)
        state = point_states(store)
        _tidy(plan)
    with writing(store):
        equalize_generations(store)
    chosen = plan if chooser is None else chooser.begin()
    return outcome(chosen, state, interrupted.is_set(), given_up, max_node_hours)


def _wait_for_late_workers(store: Store) -> None:
    """Wait until no process has a journal open, at most ``LATE_WORKERS_S``. A worker of a cancelled
    job can outlive the job for a moment; its journal then stays until the store's next run."""
    deadline_s = time.monotonic() + LATE_WORKERS_S
    while any(map(has_writer, store.journal_paths())) and time.monotonic() < deadline_s:
        time.sleep(0.1)


def _refuse_changes(plan: Plan, store: Store, contents: StoreContents) -> list[str]:
    """Compare the set-ups of the store's measurements with this run's. Returns sentences about the
    parts that cannot be compared.

    Raises:
        ChangedSetupError: they differ.
    """
    summary = contents.generation.summary
    kernels = {entry.kernel for entry in plan.campaign.kernels}
    # First, because this creates the key by which values of variables are compared.
    planned = [
        planned_record(partition_setup(plan, store, *names, kernels)) for names in plan.partitions
    ]
    uses, _ = setup_uses(store, summary.get("setups", {}), contents.tail.setups)
    refuse_changes(str(store.root), changes(uses, planned))
    return not_comparable(uses, planned)


@contextlib.contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set; a second one ends the process at once."""
    stop_requested = threading.Event()

    def request_stop(number: int, frame: FrameType | None) -> None:
        if stop_requested.is_set():
            raise KeyboardInterrupt
        stop_requested.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop_requested
        return
    before = {
        number: signal.signal(number, request_stop) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop_requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
