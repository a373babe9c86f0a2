"""demo: the whole chain on the simulated Jetson TK1."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.verbs.crossval import print_crossval
from campaign.verbs.fit import print_fit
from campaign.verbs.predict import print_predictions
from campaign.verbs.printing import print_table, say
from dvfs.errors import ArgumentError
from dvfs.setting import Setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from campaign.results import Results

SUMMARY = "run the whole chain on the simulated Jetson TK1"
EXAMPLE = "campaign demo /tmp/demo"
FOLDER, GPU_FOLDER = "campaign-demo", "campaign-demo-gpu"
TRAINING_SETTINGS = 8
"""How many of the demo's settings, in its file's order, are those that Choi & Vuduc 2016 fit on
(Table I, type T)."""


def add_arguments(parser: ArgumentParser) -> None:
    """The verb's arguments."""
    parser.add_argument(
        "--gpu",
        action="store_true",
        help="instead measure a few kernels on one NVIDIA GPU of this machine, at its clocks as "
        "found; nothing is simulated",
    )
    parser.add_argument(
        "folder",
        nargs="?",
        metavar="DIR",
        help=f"where the files, the store and the report go (default: {FOLDER}, with --gpu "
        f"{GPU_FOLDER})",
    )


def run(arguments: Namespace) -> int:
    """Plan, run, fit, cross-validate, predict and report; print where each result lies."""
    if arguments.gpu:
        from campaign.verbs.demo_gpu import check_gpu  # noqa: PLC0415

        check_gpu()

    from importlib.resources import files  # noqa: PLC0415

    from campaign.launch.drive import run as drive  # noqa: PLC0415
    from campaign.launch.progress import progress_for  # noqa: PLC0415
    from campaign.plan.plan import make_plan  # noqa: PLC0415
    from campaign.results import open_store  # noqa: PLC0415
    from campaign.store.layout import create_store  # noqa: PLC0415
    from campaign.table.beside import write_beside  # noqa: PLC0415
    from campaign.table.exporting import export_table, write_csv  # noqa: PLC0415
    from dvfs.files import write_output  # noqa: PLC0415

    began = time.monotonic()
    folder = Path(arguments.folder or (GPU_FOLDER if arguments.gpu else FOLDER))
    if (folder / "store.json").exists():
        raise ArgumentError(f"{folder}: is a store; name a folder for the demo's files")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(
            f"{folder}: cannot be created ({error.strerror}); name another folder"
        ) from None
    campaign = folder / "campaign.toml"
    own = "demo_gpu_campaign.toml" if arguments.gpu else "demo_campaign.toml"
    if not campaign.exists():
        write_output(campaign, (files("campaign.verbs") / own).read_bytes())
    plan = make_plan(campaign)
    created = create_store((folder / "store").resolve(), plan.campaign.name)
    outcome = drive(plan, created, progress_for())
    say(
        f"measured: {outcome.measured} of {outcome.planned} points, {outcome.failed} failed, "
        f"{outcome.left} left{'' if arguments.gpu else ' (simulated)'}\n"
    )
    if outcome.interrupted:
        say("interrupted; run it again to continue")
    if outcome.interrupted or not outcome.measured:
        return outcome.exit_code
    store = open_store(created.root)
    if arguments.gpu:
        from campaign.verbs.demo_gpu import show_measured  # noqa: PLC0415

        show_measured(store)
        return 0 if outcome.complete else 1
    pairs = plan.campaign.settings.pairs or []
    train = [Setting(*pair) for pair in pairs[:TRAINING_SETTINGS]] or None
    for site in plan.sites:
        _show_site(store, site, train)
    table = export_table(created)
    write_csv(table, folder / "table.csv")
    write_beside(created, sorted(plan.sites), folder / "table.csv")
    report = store.report(folder / "report.html", train=train)
    say(f"\ncampaign file: {campaign}\nstore: {created.root}\ntable: {folder / 'table.csv'}")
    say(f"report: {report}\n\nall of it took {time.monotonic() - began:.1f} s")
    return 0 if outcome.complete else 1


def _show_site(store: Results, site: str, train: Sequence[Setting] | None) -> None:
    fit = store.fit(site)
    print_fit(fit.summary, fit.source)
    say("\nconstant power by setting (simulated)")
    print_table(
        ["core MHz", "memory MHz", "W", "low", "high"],
        [
            [costs.core_mhz, costs.mem_mhz, cost.value, cost.low, cost.high]
            for costs in store.costs_by_setting(site)
            for cost in costs.costs
            if cost.name == "constant_power"
        ],
    )
    for scheme, fitted_at in (("leave-one-setting-out", None), ("holdout", train)):
        say()
        print_crossval(store.crossval(site, scheme, train=fitted_at))
    say()
    print_predictions(store.predict(site))
