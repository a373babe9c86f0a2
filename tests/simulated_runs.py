"""Stores of simulated campaigns, without the seconds that workers take to start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from campaign.launch.drive import plan_record, planned_points, site_record
from campaign.launch.outcome import missing_points
from campaign.launch.partition_run import partition_setup
from campaign.launch.setup_record import node_record
from campaign.measure.point_life import measure
from campaign.plan.plan import make_plan
from campaign.store.compaction import compact, equalize_generations
from campaign.store.journal import JournalWriter, encode, encode_setup
from campaign.store.layout import create_store, driver_lock, writing
from campaign.store.planned import write_planned
from campaign.store.setups import setup_id
from campaign.store.site_record import write_site_record
from campaign.store.states import point_states


def simulate(campaign: Path, path: Path) -> None:
    """Measure in this process what a store lacks of a campaign of simulated sites. It leaves what
    ``campaign run`` leaves, but for the run's snapshot and node-hours."""
    plan = make_plan(campaign)
    store = create_store(path, plan.campaign.name)
    missing = [point for point, _ in missing_points(plan, point_states(store), False)]
    kernels = {point.kernel for point in missing}
    with driver_lock(store), writing(store):
        write_planned(store, plan_record(plan, store), planned_points(plan))
        for name, site in plan.sites.items():
            assert site.is_simulated
            write_site_record(store, name, site_record(site))
        with JournalWriter(store.journals) as journal:
            for names in plan.partitions:
                setup = partition_setup(plan, store, *names, kernels)
                record = node_record(setup)
                setup = replace(setup, id=setup_id(record))
                points = [point for point in missing if (point.site, point.partition) == names]
                measured = [encode(measure(setup, point, 0)) for point in points]
                journal.append(encode_setup(record), *measured)
        compact(store)
        equalize_generations(store)
