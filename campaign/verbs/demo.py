"""demo: the whole chain on the simulated Jetson TK1."""

from __future__ import annotations

import time
from argparse import Namespace
from importlib.resources import files
from pathlib import Path

from campaign.verbs.show import print_table, say

TRAINING_SETTINGS = 8
"""How many of the demo's settings, in its file's order, the paper trains on (Table I, type T)."""


def demo(arguments: Namespace) -> int:
    """Plan, run, fit, cross-validate, predict and report; prints where each result lies."""
    folder = Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    campaign = folder / "campaign.toml"
    if not campaign.exists():
        campaign.write_bytes((files("campaign.verbs") / "demo_campaign.toml").read_bytes())
    began = time.monotonic()
    code = _chain(folder, campaign)
    say(f"\nall of it took {time.monotonic() - began:.1f} s")
    return code


def _chain(folder: Path, campaign: Path) -> int:
    from analysis.choice.crossval import cross_validate  # noqa: PLC0415
    from analysis.energy.fit import costs_at, fit  # noqa: PLC0415
    from campaign.launch.drive import run  # noqa: PLC0415
    from campaign.launch.progress import progress_for  # noqa: PLC0415
    from campaign.plan.plan import make_plan  # noqa: PLC0415
    from campaign.store.layout import create_store  # noqa: PLC0415
    from campaign.table.exporting import export_table  # noqa: PLC0415
    from campaign.verbs.modelling import (  # noqa: PLC0415
        keep_fit,
        predict,
        print_crossval,
        print_fit,
        setting_volts,
        site_data,
    )
    from campaign.verbs.reporting import report  # noqa: PLC0415

    plan = make_plan(campaign)
    store = create_store((folder / "store").resolve(), plan.campaign.name)
    ended = run(plan, store, progress_for())
    say(
        f"measured: {ended.ok} of {ended.planned} points, {ended.failed} failed, "
        f"{ended.left} left (simulated)\n"
    )
    if not ended.ok:
        return 1
    for site in plan.sites:
        data = site_data(store, site)
        found = fit(data)
        keep_fit(store, found)
        print_fit(found)
        volts = setting_volts(store, site, data)
        costs = [costs_at(found, *pair, *volts[pair]) for pair in data.settings]
        say("\nconstant power by setting (simulated)")
        print_table(
            ["core MHz", "memory MHz", "W", "low", "high"],
            [[c.core_mhz, c.mem_mhz, *c.constant_w] for c in costs],
        )
        say()
        train = [(pair[0], pair[1]) for pair in (plan.campaign.settings.pairs or [])]
        train = [pair for pair in train[:TRAINING_SETTINGS] if pair in data.settings]
        for scheme, settings in (("leave-one-setting-out", None), ("holdout", train or None)):
            print_crossval(cross_validate(data, scheme, train=settings).as_dict())
            say()
        predict(
            Namespace(
                store=str(store.root),
                site=site,
                kernel=None,
                objective="energy",
                max_slowdown=None,
                max_power_w=None,
                policy=None,
                profile=None,
                all_settings=False,
                json=False,
            )
        )
    export_table(store).to_csv(folder / "table.csv", index=False)
    say(f"\ncampaign file: {campaign}\nstore: {store.root}\ntable: {folder / 'table.csv'}")
    report(Namespace(store=str(store.root), output=str(folder / "report.html")))
    return 0 if ended.complete else 1
