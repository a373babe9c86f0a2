"""A store as an RO-Crate and as NetCDF: described as the specification says, and the same again."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from campaign.results import open_store
from campaign.verbs.command_line import main
from tests.commands import prints, refuses
from tests.demo import copy_demo

ABOUT = ["--license", "CC-BY-4.0", "--author", "A. Name"]
ORCID = "https://orcid.org/0000-0002-1825-0097"  # of a person who does not exist
QUDT = {"J": "J", "s": "SEC", "W": "W", "MHz": "MegaHZ", "V": "V", "byte": "BYTE"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    copy_demo(folder)
    return folder / "campaign-demo" / "store"


@pytest.fixture(scope="module")
def crate(store: Path) -> Path:
    folder = store.parent / "crate"
    words = ["--author", f"B. Name <{ORCID}>", "--title", "A title"]
    assert main(["export", str(store), "--crate", str(folder), *ABOUT, *words]) == 0
    return folder


@pytest.fixture(scope="module")
def graph(crate: Path) -> dict[str, dict[str, Any]]:
    made = json.loads((crate / "ro-crate-metadata.json").read_text(encoding="utf-8"))
    assert made["@context"] == "https://w3id.org/ro/crate/1.2/context"
    entities = {entity["@id"]: entity for entity in made["@graph"]}
    assert len(entities) == len(made["@graph"])
    return entities


def references(value: Any) -> Iterator[str]:
    """The ids that a property names."""
    if isinstance(value, dict):
        assert value.keys() == {"@id"}  # flattened: an entity within another one is not allowed
        yield value["@id"]
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def test_every_part_is_there_and_every_entity_is_reached(crate: Path, graph) -> None:
    root, descriptor = graph["./"], graph["ro-crate-metadata.json"]
    assert descriptor["about"] == {"@id": "./"}
    assert descriptor["conformsTo"] == {"@id": "https://w3id.org/ro/crate/1.2"}
    for part in references(root["hasPart"]):
        assert (crate / part).exists() and "@id" in graph[part]
        assert part.endswith("/") == (crate / part).is_dir() == (graph[part]["@type"] == "Dataset")
    reached = {"ro-crate-metadata.json"}
    todo = ["ro-crate-metadata.json"]
    while todo:
        for value in (v for k, v in graph[todo.pop()].items() if not k.startswith("@")):
            for name in references(value):
                if name in graph and name not in reached:
                    reached.add(name)
                    todo.append(name)
                assert name in graph or name == "https://w3id.org/ro/crate/1.2", name
    assert reached == graph.keys()


def test_what_a_reader_must_know_is_said(crate: Path, graph, store: Path) -> None:
    root = graph["./"]
    assert root["name"] == "A title"
    assert root["license"] == {"@id": "https://spdx.org/licenses/CC-BY-4.0"}
    people = [graph[name] for name in references(root["author"])]
    assert [person["name"] for person in people] == ["A. Name", "B. Name"]
    assert people[1]["@id"] == ORCID
    table = pd.read_csv(crate / "measurements.csv")
    assert str(len(table)) in root["description"] and "simulated" in root["description"]
    action = graph["#measuring"]
    began = pd.Timestamp(table["start_unix_s"].min(), unit="s", tz="UTC")
    assert abs(pd.Timestamp(action["startTime"]) - began) < pd.Timedelta("1ms")
    assert [graph[name]["name"] for name in references(action["object"])] == ["jetson-tk1"]
    assert graph[action["instrument"]["@id"]]["@type"] == "SoftwareApplication"


def test_every_column_has_its_unit(crate: Path, graph, store: Path) -> None:
    header = pd.read_csv(crate / "measurements.csv", nrows=0).columns
    described = {graph[n]["name"]: graph[n] for n in references(graph["./"]["variableMeasured"])}
    assert described.keys() == {*header}
    dataset = open_store(store).dataset
    for name, entity in described.items():
        unit = dataset[name].attrs.get("units")
        if unit in QUDT:
            assert entity["unitCode"] == f"http://qudt.org/vocab/unit/{QUDT[unit]}", name
        else:
            assert "unitCode" not in entity, name
        assert entity["description"]


def test_a_crate_gives_the_same_store_and_the_same_fit(
    crate: Path, store: Path, tmp_path: Path
) -> None:
    again = tmp_path / "again"
    assert main(["import", str(crate), "--store", str(again)]) == 0
    first, second = open_store(store).dataset, open_store(again).dataset
    order = [np.argsort(d["point_id"].values.astype("U24")) for d in (first, second)]
    for name in ("energy_j", "time_s", "core_mhz", "n_dram", "kernel"):
        one, other = (d[name].values[at] for d, at in zip((first, second), order, strict=True))
        np.testing.assert_array_equal(one, other, err_msg=name)
    assert first.sizes["trace"] == second.sizes["trace"] > 0
    fits = []
    for of in (store, again):
        printed = prints("fit", of, "--json")
        fits.append(re.sub(r'"(created|store)": "[^"]*"', "", printed))
    assert fits[0] == fits[1]


def test_a_site_that_was_measured_says_its_processor(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        'name = "here"\nrepeats = 1\n[[sites]]\nsite = "localhost"\n'
        '[[kernels]]\nkernel = "command"\nparams = { argv = ["true"] }\n'
    )
    store, crate = str(tmp_path / "s"), tmp_path / "c"
    assert main(["run", str(tmp_path / "c.toml"), "--store", store, "--quiet"]) == 0
    assert main(["export", store, "--crate", str(crate), *ABOUT]) == 0
    graph = json.loads((crate / "ro-crate-metadata.json").read_text(encoding="utf-8"))["@graph"]
    (site,) = [entity for entity in graph if entity["@id"] == "#site-localhost"]
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    models = re.findall(r"^model name\s*: (.*)$", cpuinfo, re.M)
    assert all(model in site["description"] for model in models)
    assert "simulated" not in site["description"]
    assert not (crate / "traces").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "--license"),
        (["--license", "CC-BY-4.0"], "--author"),
        (["--license", "free for all", "--author", "A"], "SPDX"),
        (["--license", "MIT", "--author", " "], "--author"),
    ],
)
def test_what_only_an_author_knows_is_asked_for(
    store: Path, tmp_path: Path, words: list[str], says: str
) -> None:
    assert says in refuses("export", store, "--crate", tmp_path / "c", *words)
    assert not (tmp_path / "c").exists()


def test_a_folder_with_files_stays_as_it_is(store: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    assert str(tmp_path) in refuses("export", store, "--crate", tmp_path, *ABOUT)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"@graph": [{"@id": "other.csv"}]}', '{"@graph": 3}']
)
def test_a_crate_of_others_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c/ro-crate-metadata.json").write_text(text)
    assert "ro-crate-metadata.json" in refuses("import", tmp_path / "c", "--store", tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_a_crate_without_its_table_is_refused(crate: Path, tmp_path: Path) -> None:
    shutil.copytree(crate, tmp_path / "c")
    (tmp_path / "c/measurements.csv").unlink()
    assert "measurements.csv" in refuses("import", tmp_path / "c", "--store", tmp_path / "s")


def test_netcdf_has_what_the_dataset_has(store: Path, tmp_path: Path) -> None:
    made = tmp_path / "made.nc"
    assert main(["export", str(store), "--netcdf", str(made)]) == 0
    ours = open_store(store).dataset
    with xr.open_dataset(made, engine="h5netcdf") as theirs:
        assert {*theirs.variables} == {*ours.variables}
        for name, variable in ours.variables.items():
            one, other = variable.values, theirs[name].values
            if one.dtype.kind in "OTU":
                assert one.astype(object).tolist() == other.astype(object).tolist(), name
            else:
                assert one.dtype == other.dtype, name
                np.testing.assert_array_equal(one, other, err_msg=str(name))
            assert theirs[name].attrs == dict(variable.attrs), name
