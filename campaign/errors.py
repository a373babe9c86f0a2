"""The errors that a user can fix, and the exit code of each."""

from __future__ import annotations

from pathlib import Path


class BadArgument(Exception):
    """An argument is wrong in a way that only the store or a file can show."""


class CannotDo(Exception):
    """What was asked for cannot be done now; nothing that was given is wrong."""


def reason(error: OSError, path: Path) -> str:
    """Why a file cannot be written, for a person."""
    if not path.parent.exists():
        return f"the folder {path.parent} does not exist"
    return error.strerror or str(error)


EXIT_CODES = {
    "sites.located_toml.BadFile": 2,
    "campaign.extras.MissingExtra": 2,
    "campaign.errors.BadArgument": 2,
    "campaign.store.layout.NotAStore": 2,
    "campaign.store.layout.DamagedStore": 2,
    "campaign.store.mixtures.ChangedSetup": 2,
    "campaign.fits.NoKeptFit": 2,
    "analysis.measurements.observations.CantFit": 2,
    "kernels.products.chain_plan.WrongChain": 2,
    "campaign.launch.slurm.SubmissionRefused": 2,
    "campaign.launch.slurm.CantLaunch": 1,
    "campaign.store.layout.StoreBusy": 1,
    "campaign.store.layout.StoreUnwritable": 1,
    "campaign.errors.CannotDo": 1,
    "sites.meters.shared.meter.MeterUnreadable": 1,
    "sites.clocks.shared.control.ClocksUnavailable": 1,
    "builtins.OSError": 1,
    "builtins.MemoryError": 1,
}
"""By name, so that a verb imports only what it uses."""


def exit_code(error: Exception) -> int | None:
    """The exit code of an error that a user can fix; None for a fault of the program."""
    names = (f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__)
    return next((EXIT_CODES[name] for name in names if name in EXIT_CODES), None)
