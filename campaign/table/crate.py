"""A store as an RO-Crate 1.2: a folder that can be published, and imported again.

It has the table, what the table cannot hold, the traces as Zarr, and ``ro-crate-metadata.json``,
which describes them: each column with its unit (QUDT), the sites and how they were measured, the
software, the licence, the authors, and the paper of the model
(https://w3id.org/ro/crate/1.2, sections 2 to 8).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from campaign.store.layout import Store
from campaign.table.exporting import export_table, write_csv
from campaign.table.sidecar import write_sidecar
from campaign.table.trace_folder import write_traces
from dvfs.dataset import COLUMN_UNITS, COUNT_PREFIX, LONG_NAMES, OK, class_unit
from dvfs.errors import ArgumentError
from dvfs.files import write_output
from dvfs.input_files import FileError, read_text
from dvfs.setting import AXES

if TYPE_CHECKING:
    import pandas as pd

METADATA = "ro-crate-metadata.json"
TABLE, TRACES = "measurements.csv", "traces"
PROFILE = "https://w3id.org/ro/crate/1.2"
QUDT = "http://qudt.org/vocab/unit/"
UNIT_CODES = {
    "J": "J",
    "s": "SEC",
    "W": "W",
    "MHz": "MegaHZ",
    "V": "V",
    "byte": "BYTE",
}
"""Our unit -> its name in QUDT's vocabulary; of operations there is none."""
SPDX = "https://spdx.org/licenses/"
SPDX_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")
ORCID = re.compile(r"(?P<name>.*\S)\s*<(?P<id>https://orcid\.org/[0-9X-]{19})>")
PAPER = "https://doi.org/10.1109/IPDPS.2013.77"
CSV = "https://www.nationalarchives.gov.uk/PRONOM/x-fmt/18"
IMPORTED = {"power_w": "mean power, as imported", "estimated": "why the energy is an estimate"}
"""Columns that only imported tables have, besides their labels."""
HARDWARE = ("cpu", "board", "gpus")
"""Facts of a node that name its hardware."""
Entity = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class CrateAbout:
    """The metadata that the authors of a data set supply. ``licence``: an SPDX identifier.
    ``authors``: names, each followed by ``<https://orcid.org/...>`` if there is one."""

    title: str
    licence: str
    authors: Sequence[str]

    def __post_init__(self) -> None:
        """Check the licence and the authors.

        Raises:
            ArgumentError: one of them is missing or invalid.
        """
        if not SPDX_ID.fullmatch(self.licence):
            raise ArgumentError(
                f"--license {self.licence}: must be an SPDX identifier, as CC-BY-4.0"
            )
        if not self.authors or not all(map(str.strip, self.authors)):
            raise ArgumentError("--crate needs --author: a name, again for each")


def write_crate(store: Store, folder: Path, about: CrateAbout) -> int:
    """Write a crate, and return its number of measurements.

    Raises:
        OSError: it cannot be written, or ``folder`` exists and is not empty.
        DamagedStoreError: a sample or record of the store cannot be read.
    """
    table = export_table(store)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(17, "exists and is not empty", str(folder))
    try:
        write_csv(table, folder / TABLE)
        sites = sorted(set(table["site"]))
        sidecar = write_sidecar(store, sites, folder / TABLE)
        n_traces = write_traces(store, folder / TRACES)
        if not n_traces:
            rmtree(folder / TRACES)
        setups = json.loads(sidecar.read_text(encoding="utf-8"))["setups"]
        graph = list(_graph(table, setups, sidecar, n_traces, about))
        metadata = {"@context": f"{PROFILE}/context", "@graph": graph}
        write_output(folder / METADATA, json.dumps(metadata, indent=1) + "\n")
    except BaseException:
        rmtree(folder, ignore_errors=True)
        raise
    return int(table["point_id"].nunique())


def crate_table(path: Path) -> tuple[Path, Path | None]:
    """The table of a crate that :func:`write_crate` wrote, and its traces, if it has any.

    Raises:
        FileError: the folder is no such crate.
    """
    metadata = path / METADATA
    try:
        graph = json.loads(read_text(metadata))["@graph"]
        parts = {entity["@id"] for entity in graph}
    except (ValueError, KeyError, TypeError, RecursionError):
        parts = set()
    if TABLE not in parts or not (path / TABLE).is_file():
        cause, remedy = f"has no {TABLE}", "name a crate that campaign export --crate wrote"
        raise FileError(cause, remedy, str(metadata))
    traces = path / TRACES
    return path / TABLE, traces if f"{TRACES}/" in parts and traces.is_dir() else None


def _graph(
    table: pd.DataFrame, setups: Mapping[str, Any], sidecar: Path, n_traces: int, about: CrateAbout
) -> Iterable[Entity]:
    """The entities of the metadata file. An entity follows those that refer to it."""
    now = datetime.now(UTC).replace(microsecond=0).isoformat()
    authors = [_author(text) for text in about.authors]
    licence = {"@id": f"{SPDX}{about.licence}"}
    sites = [_site(str(name), of_site, setups) for name, of_site in table.groupby("site")]
    columns = [_column(name) for name in table.columns]
    simulated = int((table["simulated"] & (table["status"] == OK)).sum())
    software = {"@id": f"#dvfs-campaign-{version('dvfs-campaign')}"}
    action = {"@id": "#measuring"}
    parts = [TABLE, sidecar.name] + [f"{TRACES}/"] * bool(n_traces)
    yield {
        "@id": METADATA,
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": {"@id": PROFILE},
    }
    yield {
        "@id": "./",
        "@type": "Dataset",
        "name": about.title,
        "description": f"Times and energies of {table['kernel'].nunique()} kernels at "
        f"{len(table[list(AXES)].drop_duplicates())} settings of "
        f"{len(sites)} site(s): {len(table)} measurements, {simulated} of them simulated.",
        "datePublished": now,
        "license": licence,
        "author": _one_or_all([{"@id": author["@id"]} for author in authors]),
        "keywords": "energy, DVFS, high-performance computing",
        "hasPart": [{"@id": name} for name in parts],
        "mentions": [action, *({"@id": site["@id"]} for site in sites)],
        "citation": {"@id": PAPER},
        "variableMeasured": [{"@id": column["@id"]} for column in columns],
    }
    yield {
        "@id": TABLE,
        "@type": "File",
        "name": "Measurements",
        "description": "One row a measurement; failed ones have a status other than ok.",
        "encodingFormat": ["text/csv", {"@id": CSV}],
        "contentSize": str((sidecar.parent / TABLE).stat().st_size),
        "variableMeasured": [{"@id": column["@id"]} for column in columns],
    }
    yield {
        "@id": sidecar.name,
        "@type": "File",
        "name": "Sites and set-ups",
        "description": "Clocks, voltages and classes of the sites, and how each measurement was "
        "made.",
        "encodingFormat": "application/json",
        "contentSize": str(sidecar.stat().st_size),
    }
    if n_traces:
        yield {
            "@id": f"{TRACES}/",
            "@type": "Dataset",
            "name": "Traces",
            "description": f"{n_traces} traces of power or energy against time: a contiguous "
            "ragged array of the CF conventions, as Zarr, by point_id of the table.",
        }
    yield from columns
    yield from sites
    yield from authors
    yield {
        **action,
        "@type": "CreateAction",
        "name": "Measuring",
        "instrument": software,
        "object": _one_or_all([{"@id": site["@id"]} for site in sites]),
        "result": [{"@id": name} for name in parts],
        **_times(table),
        **_described(setups),
    }
    yield {
        **software,
        "@type": "SoftwareApplication",
        "name": "dvfs-campaign",
        "version": version("dvfs-campaign"),
        "url": PAPER,  # as in pyproject.toml: the project has no public address yet
        "description": "Measurement campaigns over clusters and clock settings.",
        "citation": {"@id": PAPER},
    }
    yield {
        **licence,
        "@type": "CreativeWork",
        "name": about.licence,
        "description": f"The licence {about.licence}, by its SPDX identifier.",
    }
    yield {"@id": PAPER, "@type": "ScholarlyArticle", "name": "A roofline model of energy"}
    yield {
        "@id": CSV,
        "@type": "WebPage",
        "name": "Comma Separated Values",
    }


def _one_or_all(references: list[Entity]) -> Entity | list[Entity]:
    """A single value without a list, as the specification recommends."""
    return references[0] if len(references) == 1 else references


def _column(name: str) -> Entity:
    """A column as a PropertyValue, with its unit if it has one."""
    entity: Entity = {"@id": f"#column-{quote(name)}", "@type": "PropertyValue", "name": name}
    if name.startswith(COUNT_PREFIX):
        class_name = name.removeprefix(COUNT_PREFIX)
        unit: str | None = class_unit(class_name)
        entity["description"] = f"operations of the class {class_name} in an iteration"
    else:
        unit = "W" if name == "power_w" else COLUMN_UNITS.get(name)
        entity["description"] = LONG_NAMES.get(name) or IMPORTED.get(name, "a label")
    if unit is None:
        return entity
    code = UNIT_CODES.get(unit)
    return entity | {"unitText": unit} | ({"unitCode": f"{QUDT}{code}"} if code else {})


def _site(name: str, rows: pd.DataFrame, setups: Mapping[str, Any]) -> Entity:
    """A site, with the hardware of its nodes from the set-ups."""
    nodes = sorted({*rows["node"]} - {""})
    kinds = {True: "a simulated machine", False: "a machine"}
    description = " and ".join(kinds[bool(kind)] for kind in sorted(set(rows["simulated"])))
    measured = not rows["simulated"].all()
    records = [s.get("node") or {} for s in setups.values() if s["site"]["name"] == name]
    facts = [node[part] for node in records for part in HARDWARE if measured and node.get(part)]
    hardware = sorted({", ".join(f) if isinstance(f, list) else str(f) for f in facts})
    return {
        "@id": f"#site-{quote(name)}",
        "@type": "Thing",
        "name": name,
        "description": "; ".join(
            [f"{description}; {len(rows)} measurements on {len(nodes)} node(s)", *hardware]
        ),
    }


def _author(text: str) -> Entity:
    match = ORCID.fullmatch(text.strip())
    if match:
        return {"@id": match["id"], "@type": "Person", "name": match["name"]}
    return {"@id": f"#author-{quote(text.strip())}", "@type": "Person", "name": text.strip()}


def _times(table: pd.DataFrame) -> Entity:
    """The start times of the first and the last measurement; empty if the table has none."""
    starts = table["start_unix_s"].to_numpy(float)
    starts = starts[np.isfinite(starts) & (starts > 0)]
    if not len(starts):
        return {}
    first, last = (datetime.fromtimestamp(s, UTC).isoformat() for s in (starts.min(), starts.max()))
    return {"startTime": first, "endTime": last}


def _described(setups: Mapping[str, Any]) -> Entity:
    """The set-ups' campaigns and sites, in a sentence."""
    names = sorted({str(setup.get("campaign", "")) for setup in setups.values()} - {""})
    return {"description": f"Campaigns: {', '.join(names)}."} if names else {}
