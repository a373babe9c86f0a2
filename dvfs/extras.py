"""Optional packages, and the error if one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import NamedTuple

from dvfs.errors import UserError


class Extra(NamedTuple):
    """An extra of this distribution, and what it is needed for."""

    name: str
    what: str


EXTRAS = {
    "bokeh": Extra("dashboard", "showing Dask's dashboard"),
    "pyarrow": Extra("parquet", "reading and writing Parquet"),
    "h5py": Extra("hdf5", "reading HDF5 files of other tools"),
    "h5netcdf": Extra("hdf5", "writing NetCDF"),
    "sklearn": Extra("search", "the search strategies auto and model"),
    "matplotlib": Extra("figures", "drawing figures for a paper"),
    "mpich": Extra("mpi", "starting MPI ranks without an MPI of the site (load its module)"),
}
"""Package -> its extra in pyproject.toml. A meter names its own package. mpich has no module to
import: :mod:`campaign.measure.mpi` looks for an MPI to start ranks."""


class MissingExtraError(UserError, ImportError):
    """A package of an extra is missing.

    Attributes:
        what: the operation, and the package that it needs.
        remedy: the command that installs it.
    """

    def __init__(self, package: str) -> None:
        extra = EXTRAS[package]
        what, remedy = f"{extra.what} needs {package}", f"pip install 'dvfs-campaign[{extra.name}]'"
        super().__init__(f"{what}: {remedy}")
        self.what, self.remedy, self.name = what, remedy, package


@contextmanager
def explain_missing() -> Iterator[None]:
    """Turn a failed import of an extra's package in the block into :class:`MissingExtraError`.

    Also a decorator. Code imports such a package where it needs it, by a plain import.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise MissingExtraError(package) from error


def missing_extra(package: str) -> MissingExtraError | None:
    """The error to raise or show if a package of an extra is not installed; else None."""
    return MissingExtraError(package) if find_spec(package) is None else None
