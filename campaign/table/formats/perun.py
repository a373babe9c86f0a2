"""perun's results as rows: a run of a program is a measurement, and a region of a run is one.

perun writes its measurements to an HDF5 file, which ``perun export F.hdf5 json`` converts to JSON.
It is a tree: the program, groups of runs with a run id each, runs, nodes, devices, sensors. A run
has energies; a region, which is a decorated function, has the mean power and time of its calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from campaign.table.delimited import HDF5, read_table_text
from campaign.table.formats import Columns, FormatDescription, columns_of
from campaign.table.map_file import TableMap
from dvfs.dataset import ESTIMATED, KERNEL_FAILED
from dvfs.extras import MissingExtraError, explain_missing
from dvfs.files import open_regular
from dvfs.input_files import FileError, readable

MARKER = b"perun_version"
FAILED = "failed"
"""The id of a run that failed; also the prefix, before ``_``, of the name of its program."""
NO_LABELS = ("type", "n_runs", "benchmarking.", "post-processing.")
"""Prefixes of metadata that are no labels: the kind of a node, the number of runs of its group,
which looks like an operation count, and the settings of reports."""
SAMPLES = 20
"""perun interpolates powers between samples: its energies of runs and regions with fewer sampling
periods can be wrong by more than 5 %."""
REMEDY = "name the HDF5 file in perun_results, or one of perun export FILE json"
ABOUT = FormatDescription(
    name="perun",
    tool="perun",
    versions="1.0.0, with a pretended RAPL",
    reads="its HDF5 file (needs h5py), and `perun export F json`: a row a run, and a row a region "
    "with the mean of its calls",
    traps="a region's power is interpolated: rows of less than 20 sampling periods are "
    "`estimated`. A run's joules are also in its regions. `pue` and `power_overhead` are taken out",
    rows="runs and regions",
    repeats=True,
)

Node = Mapping[str, Any]
"""A node of the tree, as JSON has it: ``metrics`` by name, ``nodes`` by id."""


def recognises(path: Path, head: bytes) -> bool:
    """Whether the file is HDF5 or JSON with perun's version."""
    is_json = head.startswith(b'{"id": ') and b'"last_execution_dt"' in head
    return is_json or (head.startswith(HDF5) and MARKER in head)


def read(path: Path, mapping: TableMap) -> tuple[Columns, list[str]]:
    """The runs and regions as columns; and notes. All metrics, in units without a prefix, and
    perun's metadata, except samples and settings of reports, are labels.

    Raises:
        FileError: the file is not of perun.
        MissingExtraError: the file is HDF5, and h5py is not installed.
    """
    with readable(path), open_regular(path) as file:
        is_hdf5 = file.read(len(HDF5)) == HDF5
    notes: list[str] = []
    try:
        if is_hdf5:
            rows = _hdf5_rows(path)
        else:
            text, notes = read_table_text(path)
            rows = list(_rows(json.loads(text), lambda nodes: nodes[0]))
    except (FileError, MissingExtraError):
        raise
    except Exception:  # what a damaged HDF5 file raises is of many kinds
        raise FileError("has no results of perun", REMEDY, str(path)) from None
    return columns_of((1, row) for row in rows), notes


def _hdf5_rows(path: Path) -> list[dict[str, Any]]:
    with explain_missing():
        import h5py  # noqa: PLC0415

    def node(group: Any) -> Node:
        return {
            "id": group.name.rpartition("/")[2],
            "metadata": dict(group.attrs),
            "metrics": {name: dict(item.attrs) for name, item in group["metrics"].items()},
            "nodes": group["nodes"],
            "regions": {name: region(item) for name, item in group.get("regions", {}).items()},
        }

    def region(group: Any) -> Node:
        return {
            "id": group.attrs["id"],
            "runs_per_rank": group["N_RUNS"].attrs,
            "metrics": [dict(metric.attrs) for metric in group["metrics"].values()],
        }

    with open_regular(path) as file, h5py.File(file, "r") as tree:
        (program,) = tree.values()
        return list(_rows(node(program), lambda nodes: {n: node(g) for n, g in nodes.items()}))


def _rows(program: Node, inside: Callable[[Any], Mapping[str, Node]]) -> Iterator[dict[str, Any]]:
    """A program's runs and their regions. ``inside``: returns the nodes of a node's ``nodes``."""
    for group in inside(program["nodes"]).values():
        settings = group["metadata"]
        pue = float(settings["post-processing.pue"])
        overhead_w = float(settings["post-processing.power_overhead"])
        sample_s = float(settings["monitor.sampling_period"])
        for run in inside(group["nodes"]).values():
            hosts = inside(run["nodes"])
            labels = {
                k: v
                for k, v in {**settings, **run["metadata"]}.items()
                if not k.startswith(NO_LABELS)
            }
            labels |= {"run": run["id"], "node": next(iter(hosts)) if len(hosts) == 1 else None}
            metrics = _metrics(run["metrics"].values())
            kernel, failed = program["id"], run["id"] == FAILED
            if failed:
                kernel = kernel.removeprefix(f"{FAILED}_")
                labels |= {"status": KERNEL_FAILED, "text": "perun: the program failed"}
            runtimes = [
                _metrics(host["metrics"].values()).get("runtime", 0) for host in hosts.values()
            ]
            energy_j = metrics.get("energy", 0) / pue - overhead_w * sum(runtimes)
            yield labels | metrics | _measured(kernel, metrics, energy_j, sample_s, failed)
            for region in (run["regions"] or {}).values():
                metrics = _metrics(region["metrics"])
                calls = region["runs_per_rank"]["mean"]
                # A region has the power of one node only: of several nodes, it is not known.
                energy_j = metrics.get("power", 0) * metrics["runtime"] if len(hosts) == 1 else 0
                measured = _measured(region["id"], metrics, energy_j, sample_s, failed)
                yield labels | {"calls_per_rank": calls} | metrics | measured


def _measured(
    kernel: str, metrics: Mapping[str, float], energy_j: float, sample_s: float, failed: bool
) -> dict[str, Any]:
    """The standard columns, without time and energy if the program failed."""
    time_s = metrics["runtime"]
    is_short = energy_j > 0 and time_s < SAMPLES * sample_s
    return {
        "kernel": kernel,
        "time_s": None if failed else time_s,
        "energy_j": energy_j if energy_j > 0 and not failed else None,
        ESTIMATED: f"perun: less than {SAMPLES} of its sampling periods" if is_short else None,
    }


def _metrics(metrics: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Name -> value, or mean over the calls, in the unit without a prefix."""
    return {
        metric["type"]: float(metric["value" if "value" in metric else "mean"])
        * float(metric.get("metric_md", metric)["mag"])
        for metric in metrics
    }
