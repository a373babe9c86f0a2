"""export: everything that a store holds as a table, and its traces."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.verbs.options import add_store
from campaign.verbs.printing import say
from dvfs.errors import ArgumentError, reason

if TYPE_CHECKING:
    import pandas as pd

    from campaign.store.layout import Store

SUMMARY = "export all measurements as a table"
EXAMPLE = "campaign export campaign-demo/store --csv table.csv"
STDOUT = "-"
OUTPUTS = ("csv", "parquet", "traces", "kernel_tuner", "extra_p", "crate", "netcdf")
METRICS = ("energy_j", "time_s", "power_w")


def add_arguments(parser: ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument("--csv", metavar="F", help="the CSV file to write (-: standard output)")
    parser.add_argument(
        "--parquet", metavar="F", help="the Parquet file to write (-: standard output)"
    )
    parser.add_argument(
        "--netcdf", metavar="F", help="the NetCDF file to write, with the traces, for xarray"
    )
    parser.add_argument(
        "--traces", metavar="FOLDER", help="a new folder for the traces, as Zarr for xarray"
    )
    parser.add_argument(
        "--kernel-tuner", metavar="F", help="one kernel's variants as Kernel Tuner's T4 results"
    )
    parser.add_argument(
        "--extra-p", metavar="F", help="one metric of all kernels as JSON lines for Extra-P"
    )
    parser.add_argument(
        "--metric",
        choices=METRICS,
        default=METRICS[0],
        help=f"what --extra-p writes (default: {METRICS[0]})",
    )
    parser.add_argument(
        "--site",
        metavar="X",
        help="the site of --kernel-tuner or --extra-p (default: the only one of the store)",
    )
    parser.add_argument(
        "--kernel", metavar="K", help="the kernel of --kernel-tuner or --extra-p (default: all)"
    )
    parser.add_argument(
        "--crate",
        metavar="FOLDER",
        help="a new folder with all of it as an RO-Crate, to be published",
    )
    parser.add_argument("--license", metavar="SPDX", help="the licence of the crate, as CC-BY-4.0")
    parser.add_argument(
        "--author",
        action="append",
        default=[],
        metavar="NAME",
        help='an author of the crate, as "A. Name" or "A. Name <https://orcid.org/...>"; again for '
        "each",
    )
    parser.add_argument(
        "--title", metavar="T", help="the title of the crate (default: the store's)"
    )


def run(arguments: Namespace) -> int:
    """Write the requested files."""
    from campaign.store.layout import open_store  # noqa: PLC0415
    from campaign.table.exporting import (  # noqa: PLC0415
        export_table,
        write_csv,
        write_netcdf,
        write_parquet,
    )

    if not any(getattr(arguments, name) for name in OUTPUTS):
        options = ", ".join(f"--{name.replace('_', '-')}" for name in OUTPUTS)
        raise ArgumentError(f"export: name what to write, by one of {options}")
    if arguments.csv == arguments.parquet == STDOUT:
        raise ArgumentError("--csv - and --parquet -: stdout takes one of them; name a file")
    store = open_store(Path(arguments.store))
    if arguments.csv or arguments.parquet:
        table = export_table(store)
        for target, write in ((arguments.csv, write_csv), (arguments.parquet, write_parquet)):
            if target:
                _write(store, table, target, write)
    if arguments.kernel_tuner or arguments.extra_p:
        _write_formats(export_table(store), arguments)
    if arguments.traces:
        from campaign.table.trace_folder import write_traces  # noqa: PLC0415

        with _writing(arguments.traces, "name a new folder"):
            count = write_traces(store, Path(arguments.traces))
        say(f"{arguments.traces}: {count} traces written")
    if arguments.crate:
        _write_crate(store, arguments)
    if arguments.netcdf:
        with _writing(arguments.netcdf):
            write_netcdf(store, Path(arguments.netcdf))
        say(f"{arguments.netcdf}: written")
    return 0


@contextmanager
def _writing(target: str, remedy: str = "name another file") -> Iterator[None]:
    """Turn an error of writing into one that names the file or folder."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        why = reason(error, Path(target))
        raise ArgumentError(f"{target}: cannot be written ({why}); {remedy}") from None


def _write(
    store: Store,
    table: pd.DataFrame,
    target: str,
    write: Callable[[pd.DataFrame, Path | None], None],
) -> None:
    """Write the table, and next to a file the sites' records, which the table cannot hold."""
    from campaign.table.sidecar import write_sidecar  # noqa: PLC0415
    from dvfs.files import is_stream  # noqa: PLC0415

    path = None if target == STDOUT else Path(target)
    sidecar = None
    with _writing(target):
        write(table, path)
        if path is not None and not is_stream(path):
            sidecar = write_sidecar(store, sorted(set(table["site"])), path)
    points = table["point_id"].nunique()
    attempts = len(table) - points
    more = f", and {attempts} failed attempts before them" if attempts else ""
    if sidecar is None:
        say(f"{points} measurements written{more}; not the sites' records", sys.stderr)
    else:
        say(f"{target}: {points} measurements written{more}")
        say(f"{sidecar}: the sites' records")


def _write_formats(table: pd.DataFrame, arguments: Namespace) -> None:
    from campaign.table.exporting import extra_p_lines, of_one  # noqa: PLC0415
    from campaign.table.formats.kernel_tuner import kernel_tuner_results  # noqa: PLC0415
    from dvfs.files import write_output  # noqa: PLC0415

    texts = {}
    table = of_one(table, "site", arguments.site)
    if arguments.kernel_tuner:
        rows = of_one(table, "kernel", arguments.kernel)
        texts[arguments.kernel_tuner] = kernel_tuner_results(rows)
    if arguments.extra_p:
        rows = of_one(table, "kernel", arguments.kernel) if arguments.kernel else table
        texts[arguments.extra_p] = extra_p_lines(rows, arguments.metric)
    for target, text in texts.items():
        with _writing(target):
            write_output(Path(target), text)
        say(f"{target}: written")


def _write_crate(store: Store, arguments: Namespace) -> None:
    from campaign.table.crate import CrateAbout, write_crate  # noqa: PLC0415

    if not arguments.license:
        raise ArgumentError("--crate needs --license: an SPDX identifier, as CC-BY-4.0")
    title = arguments.title or f"Measurements of {Path(arguments.store).name}"
    about = CrateAbout(title=title, licence=arguments.license, authors=arguments.author)
    with _writing(arguments.crate, "name a new folder"):
        count = write_crate(store, Path(arguments.crate), about)
    say(f"{arguments.crate}: {count} measurements written")
