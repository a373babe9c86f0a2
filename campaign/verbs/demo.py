"""demo: the whole chain on the simulated Jetson TK1, or on a GPU of this machine."""

from __future__ import annotations

import math
import os
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign.verbs.crossval import print_crossval
from campaign.verbs.fit import print_fit
from campaign.verbs.predict import print_predictions
from campaign.verbs.printing import explain, marked, print_table, say
from dvfs.errors import ArgumentError
from dvfs.setting import Setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from campaign.launch.outcome import Outcome
    from campaign.plan.plan import Plan
    from campaign.results import Results
    from campaign.store.layout import Store
    from dvfs.dataset import Columns

SUMMARY = "run the whole chain on the simulated Jetson TK1"
EXAMPLE = "campaign demo /tmp/demo --fmm"
FOLDER, GPU_FOLDER = "campaign-demo", "campaign-demo-gpu"
FMM_STORE = "fmm-store"
WARM_BOARD = "jetson-tk1-warm.toml"
TRAINING_SETTINGS = 8
"""The number of the demo's settings, first in its file, that Choi & Vuduc 2016 fit on (Table I,
type T)."""


def check_gpu() -> None:
    """Check that GPU kernels can run here. Of several GPUs, select the first by
    CUDA_VISIBLE_DEVICES, so that the meter reads the GPU that the kernels run on.

    Raises:
        ArgumentError: they cannot; it names what is missing, and what to install or where to run.
    """
    from campaign.doctor.gpu_examination import examine_gpus  # noqa: PLC0415
    from kernels.cuda.device import NO_DRIVER_REMEDY  # noqa: PLC0415

    gpus = examine_gpus()
    if gpus is None:
        raise ArgumentError(f"--gpu: no NVIDIA GPU can be used here: {NO_DRIVER_REMEDY}")
    if gpus.problem is not None:
        raise ArgumentError(f"--gpu: {gpus.problem}: {gpus.remedy}")
    os.environ["CUDA_VISIBLE_DEVICES"] = gpus.uuids[0]
    say(f"{gpus.gpus[0]} ({gpus.uuids[0]}), driver {gpus.driver}, CUDA {gpus.cuda}")


def show_measured(store: Results) -> None:
    """Print the status of the store, and each kernel's time, energy and clock."""
    from campaign.verbs import status  # noqa: PLC0415

    status.run(Namespace(store=str(store.path), verify=False, all=True, json=False))
    say()
    print_table(
        ["kernel", "ms", "J", "W", "pJ per operation", "core MHz"],
        measured_rows(store.columns),
    )
    explain(
        "ms, J: of one iteration; pJ per operation: all energy, constant power too, divided by the "
        "arithmetic operations; core MHz: as NVML showed it meanwhile. Clocks were not set."
    )
    say(f"store: {store.path}")


def measured_rows(columns: Columns) -> list[list[Any]]:
    """A row for each measured kernel: label, ms, J, W, pJ per operation, core MHz; means over
    repeats, sorted by energy per operation."""
    import pandas as pd  # noqa: PLC0415

    from dvfs.dataset import COUNT_PREFIX, is_complete  # noqa: PLC0415

    labels = columns.kernels_by_pair
    pairs = zip(columns["kernel"], columns["params"], strict=True)
    arithmetic = {COUNT_PREFIX + name for name in ("sp", "dp", "half", "int")}
    counts = sorted(arithmetic & set(columns))
    names = ["time_s", "energy_j", "core_mhz_achieved", *counts]
    rows = pd.DataFrame({name: columns[name].astype(float) for name in names})
    rows = rows.assign(label=[labels[pair].label for pair in pairs])
    means = rows[is_complete(columns["status"])].groupby("label").mean().reset_index()
    operations = means[counts].sum(axis=1).replace(0.0, float("nan"))
    table = pd.DataFrame(
        {
            "label": means["label"],
            "ms": means["time_s"] * 1e3,
            "J": means["energy_j"],
            "W": means["energy_j"] / means["time_s"],
            "pj": means["energy_j"] / operations * 1e12,
            "mhz": means["core_mhz_achieved"],
        }
    )
    return table.sort_values("pj", kind="stable").to_numpy().tolist()


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--gpu",
        action="store_true",
        help="instead measure a few kernels on one NVIDIA GPU of this machine, at its clocks as "
        "found; nothing is simulated",
    )
    parser.add_argument(
        "--fmm",
        action="store_true",
        help="also measure the fast multipole method of Choi & Vuduc 2016, predict its energies by "
        "the fit of the others, and draw figures 4 to 7 of that paper",
    )
    parser.add_argument(
        "--warming",
        type=float,
        default=0.0,
        metavar="PCT",
        help="simulate a board whose voltages rise by PCT %% for each W of power, which no model "
        "with one voltage a setting can follow: an error that cross-validation finds (try 2.5)",
    )
    parser.add_argument(
        "folder",
        nargs="?",
        metavar="DIR",
        help=f"where the files, the store and the report go (default: {FOLDER}, with --gpu "
        f"{GPU_FOLDER})",
    )


def run(arguments: Namespace) -> int:
    """Plan, run, fit, cross-validate, predict and report; print the path of each result."""
    if arguments.gpu and (arguments.fmm or arguments.warming):
        raise ArgumentError("--gpu: measures a GPU; leave out --fmm and --warming")
    if arguments.fmm and arguments.warming:
        raise ArgumentError("--fmm and --warming: give one of them")
    if not 0.0 <= arguments.warming < math.inf:
        raise ArgumentError(
            f"--warming: found {arguments.warming:g}; must be 0 or more, such as 2.5"
        )
    if arguments.gpu:
        check_gpu()

    from campaign.results import open_store  # noqa: PLC0415
    from campaign.table.exporting import export_table, write_csv  # noqa: PLC0415
    from campaign.table.sidecar import write_sidecar  # noqa: PLC0415

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
    source = "demo_gpu_campaign.toml" if arguments.gpu else "demo_campaign.toml"
    if arguments.warming:
        write_warm_board(folder, arguments.warming)
    plan, created, outcome = _measure(folder, "campaign.toml", source, "store")
    if outcome.interrupted or not outcome.measured:
        return outcome.exit_code
    store = open_store(created.root)
    if arguments.gpu:
        show_measured(store)
        return 0 if outcome.complete else 1
    pairs = plan.campaign.settings.pairs or []
    train = [Setting(*pair) for pair in pairs[:TRAINING_SETTINGS]] or None
    for site in plan.sites:
        _show_site(store, site, train)
    table = export_table(created)
    write_csv(table, folder / "table.csv")
    write_sidecar(created, sorted(plan.sites), folder / "table.csv")
    report = store.report(folder / "report.html", train=train)
    complete = outcome.complete and (not arguments.fmm or _show_fmm(folder, store))
    say(
        f"\ncampaign file: {folder / 'campaign.toml'}\nstore: {created.root}\n"
        f"table: {folder / 'table.csv'}"
    )
    say(f"report: {report}\n\nall of it took {time.monotonic() - began:.1f} s")
    return 0 if complete else 1


def write_warm_board(folder: Path, pct_per_w: float) -> None:
    """Write a site file of a board that warms, and a campaign file that uses it, to the folder."""
    from importlib.resources import files  # noqa: PLC0415

    from dvfs.files import write_output  # noqa: PLC0415
    from sites.site_reading import find_site  # noqa: PLC0415

    if (folder / "campaign.toml").exists():
        raise ArgumentError(
            f"{folder}: has a demo; name another folder, or continue it without --warming"
        )
    board = find_site("jetson-tk1", folder).read_text(encoding="utf-8")
    board = board.replace('name = "jetson-tk1"', f'name = "{Path(WARM_BOARD).stem}"', 1)
    board = board.replace("[simulated]\n", f"[simulated]\nwarming_pct_per_w = {pct_per_w!r}\n", 1)
    text = (files("campaign.verbs") / "demo_campaign.toml").read_text(encoding="utf-8")
    write_output(folder / WARM_BOARD, board.encode())
    text = text.replace('site = "jetson-tk1"', f'site = "{WARM_BOARD}"', 1)
    write_output(folder / "campaign.toml", text.encode())


def _measure(folder: Path, name: str, built_in: str, store: str) -> tuple[Plan, Store, Outcome]:
    """Run a campaign file of the folder; where it is missing, first write the built-in one."""
    from importlib.resources import files  # noqa: PLC0415

    from campaign.launch.drive import run as drive  # noqa: PLC0415
    from campaign.launch.progress import progress_for  # noqa: PLC0415
    from campaign.plan.plan import make_plan  # noqa: PLC0415
    from campaign.store.layout import create_store  # noqa: PLC0415
    from dvfs.files import write_output  # noqa: PLC0415

    campaign = folder / name
    if not campaign.exists():
        write_output(campaign, (files("campaign.verbs") / built_in).read_bytes())
    plan = make_plan(campaign)
    created = create_store((folder / store).resolve(), plan.campaign.name)
    outcome = drive(plan, created, progress_for())
    counts = (
        f"measured: {outcome.measured} of {outcome.planned} points, {outcome.failed} failed, "
        f"{outcome.left} left"
    )
    say(marked(counts, all(site.is_simulated for site in plan.sites.values())) + "\n")
    if outcome.interrupted:
        say("interrupted; run it again to continue")
    return plan, created, outcome


def _show_fmm(folder: Path, microbenchmarks: Results) -> bool:
    """Measure the paper's application, and predict it by the fit of the microbenchmarks. Return
    whether all of it was measured."""
    from campaign.results import open_store  # noqa: PLC0415

    say("\nthe fast multipole method, by the fit of these measurements")
    plan, created, outcome = _measure(folder, "fmm.toml", "demo_fmm_campaign.toml", FMM_STORE)
    if outcome.interrupted or not outcome.measured:
        return False
    store = open_store(created.root)
    for site in plan.sites:
        print_crossval(store.crossval(site, fitted_on=microbenchmarks))
    written = store.figures(folder / "figures", kernels=["fmm"], fitted_on=microbenchmarks)
    say(f"\n{len(written)} figures and tables: {folder / 'figures'}")
    return bool(outcome.complete)


def _show_site(store: Results, site: str, train: Sequence[Setting] | None) -> None:
    fit = store.fit(site)
    print_fit(fit.summary, fit.source)
    say("\nconstant power by setting (simulated)")
    print_table(
        ["core MHz", "memory MHz", "W", "low", "high"],
        [
            [*costs.setting.clocks, cost.value, cost.low, cost.high]
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
