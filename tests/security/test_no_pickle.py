"""Nothing that comes out of a file is run: no unpickling, no evaluation, no shell."""

from __future__ import annotations

import ast
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from campaign.store.journal import JournalWriter, encode
from campaign.store.layout import create_store, open_store
from campaign.store.measurement import Measurement, Trace
from campaign.store.tables import read_columns
from campaign.verbs.command_line import main
from tests.faults.fuzz.damage import sealed, unsealed
from tests.points import a_point
from tests.stores import write

ROOT = Path(__file__).parents[2]
ROOMS = ("campaign", "dvfs", "kernels", "sites", "analysis")
UNPICKLERS = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "joblib", "dill", "cloudpickle"}
RUNNERS = {"eval", "exec", "compile", "__import__"}
CALLS = {
    "os.system",
    "os.popen",
    "pandas.read_pickle",
    "pd.read_pickle",
    "yaml.load",
    "yaml.unsafe_load",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "asyncio.create_subprocess_shell",
}
CODECS = {"bytes", "blosc", "crc32c", "sharding_indexed", "vlen-utf8", "zstd"}
TYPES = {"string", "bool", "int32", "int64", "uint64", "float32", "float64"}


def dotted(node: ast.expr) -> str:
    """``os.path.join`` of an expression of names; empty for another."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return ""


def offences(tree: ast.AST) -> Iterator[str]:
    """What in a module would unpickle, evaluate or start a shell."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        yield from (f"imports {name}" for name in names if name.split(".")[0] in UNPICKLERS)
        if not isinstance(node, ast.Call):
            continue
        called = dotted(node.func)
        if called in CALLS or called in RUNNERS or called.endswith(".read_pickle"):
            yield f"calls {called}"
        for keyword in node.keywords:
            on = not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False)
            if keyword.arg in ("shell", "allow_pickle") and on:
                yield f"{called}({keyword.arg}=...)"
        if called.endswith(("np.load", "numpy.load")) and not any(
            keyword.arg == "allow_pickle" for keyword in node.keywords
        ):
            yield "np.load without allow_pickle=False"


def test_the_check_sees_what_it_looks_for():
    bad = (
        "import pickle\nfrom shelve import open\nimport os, numpy as np\nos.system('x')\n"
        "np.load('f', allow_pickle=True)\nnp.load('f')\nsubprocess.run('x', shell=True)\n"
        "eval('1')\npd.read_pickle('f')\n"
    )
    assert len(list(offences(ast.parse(bad)))) == 8


@pytest.mark.parametrize("room", ROOMS)
def test_no_module_unpickles_evaluates_or_starts_a_shell(room):
    offending = {
        str(path.relative_to(ROOT)): bad
        for path in sorted((ROOT / room).rglob("*.py"))
        if (bad := list(offences(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert offending == {}


def written_store(root: Path) -> Path:
    """A store with imported rows, and a measurement with traces, compacted."""
    table = root / "table.csv"
    table.write_text(
        "site,kernel,core_mhz,mem_mhz,time_s,energy_j\nx,a,1000,900,1,2\nx,a,2000,900,1,3\n"
    )
    store = create_store(root / "store", "s")
    time_ns = np.arange(100, dtype=np.int64)
    trace = Trace("c", "node", "W", time_ns, np.ones(100))
    point = a_point(site="y")
    write(store, Measurement(point=point, status="ok", traces=(trace,)))
    assert main(["import", str(table), "--store", str(store.root)]) == 0
    return store.root


def named(value: object) -> Iterator[str]:
    """Every codec name in a Zarr array's metadata, also those inside a shard."""
    if isinstance(value, dict):
        if isinstance(value.get("name"), str):
            yield value["name"]
        for part in value.values():
            yield from named(part)
    elif isinstance(value, list):
        for part in value:
            yield from named(part)


def test_a_store_that_was_written_has_no_codec_that_unpickles(tmp_path):
    root = written_store(tmp_path)
    arrays = [
        document
        for path in root.rglob("zarr.json")
        if (document := json.loads(path.read_text()))["node_type"] == "array"
    ]
    assert len(arrays) >= 2
    for document in arrays:
        assert set(named(document["codecs"])) <= CODECS, document
        assert document["data_type"] in TYPES, document
    assert list(root.rglob(".zarray")) == []
    for path in root.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            looks_pickled = data[:1] == b"\x80" and data[1:2] in b"\2\3\4\5" and data[-1:] == b"."
            assert not looks_pickled, path


class Payload:
    """Unpickled, it makes a folder: the only thing that a payload has to show."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.mark),)


def test_the_payload_works(tmp_path):
    pickle.loads(pickle.dumps(Payload(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()


PICKLE_V2 = {"id": "pickle", "protocol": 5}
OLD_FORMATS = {
    "filter": {"dtype": "<f8", "compressor": None, "filters": [PICKLE_V2]},
    "compressor": {"dtype": "<f8", "compressor": PICKLE_V2, "filters": None},
    # Zarr looks at the first codec of objects alone, and decodes with all of them.
    "hidden filter": {
        "dtype": "|O",
        "compressor": None,
        "filters": [{"id": "vlen-utf8"}, PICKLE_V2],
    },
    "hidden compressor": {
        "dtype": "|O",
        "compressor": PICKLE_V2,
        "filters": [{"id": "vlen-utf8"}],
    },
}
NEW_FORMATS = {
    "codec pickle": [{"name": "pickle", "configuration": {"protocol": 5}}],
    "codec numcodecs.pickle": [
        {"name": "numcodecs.pickle", "configuration": {"protocol": 5}},
    ],
    "after bytes": [
        {"name": "bytes", "configuration": {"endian": "little"}},
        {"name": "numcodecs.pickle", "configuration": {"id": "pickle", "protocol": 5}},
    ],
}


def planted(root: Path, kind: str, payload: bytes) -> int:
    """Put the payload into every array of a store under one of the formats; how many."""
    count = 0
    for path in list(root.rglob("zarr.json")):
        document = json.loads(path.read_text())
        folder = path.parent
        if document["node_type"] == "array":
            count += 1
            shape = document["shape"]
            chunks = folder / "c" / "/".join("0" for _ in shape)
            for old in sorted((folder / "c").rglob("*"), reverse=True):
                old.unlink() if old.is_file() else old.rmdir()
            if kind in NEW_FORMATS:
                document["codecs"] = NEW_FORMATS[kind]
                document["chunk_grid"]["configuration"]["chunk_shape"] = [
                    max(size, 1) for size in shape
                ]
                path.write_text(json.dumps(document))
                chunks.parent.mkdir(parents=True, exist_ok=True)
                chunks.write_bytes(payload)
                continue
            head = {
                "zarr_format": 2,
                "shape": shape,
                "chunks": [max(size, 1) for size in shape],
                "fill_value": None,
                "order": "C",
            }
            (folder / ".zarray").write_text(json.dumps(head | OLD_FORMATS[kind]))
            attributes = {"_ARRAY_DIMENSIONS": document["dimension_names"]}
            (folder / ".zattrs").write_text(json.dumps(attributes))
            (folder / ".".join("0" for _ in shape)).write_bytes(payload)
        elif kind in OLD_FORMATS:
            (folder / ".zgroup").write_text('{"zarr_format": 2}')
            (folder / ".zattrs").write_text(json.dumps(document.get("attributes", {})))
        if kind in OLD_FORMATS:
            path.unlink()
    return count


READ = """
import json, sys
from pathlib import Path
from campaign.verbs.command_line import main
from campaign.store.dataset import open_dataset
from campaign.store.layout import open_store

outcomes = {}
for store in sys.argv[1:]:
    for verb in (["status", store], ["export", store, "--csv", store + ".csv"]):
        try:
            main(verb)
        except Exception:
            pass
    try:
        open_dataset(open_store(Path(store))).load()
        outcomes[store] = "loaded"
    except Exception as error:
        outcomes[store] = type(error).__name__
print("OUTCOMES" + json.dumps(outcomes))
"""


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[bool, str]]:
    """For each way to plant it: whether the payload ran, and what came of reading the store.

    numcodecs is set to unpickle, as its versions before 0.16.6 do unasked.
    """
    folder = tmp_path_factory.mktemp("planted")
    whole = written_store(folder)
    stores = {}
    for kind in (*OLD_FORMATS, *NEW_FORMATS, "nothing"):
        stores[kind] = shutil.copytree(whole, folder / kind.replace(" ", "-") / "store")
        if kind != "nothing":
            mark = stores[kind].with_name("ran")
            assert planted(stores[kind], kind, pickle.dumps(Payload(mark))) >= 2
    done = subprocess.run(
        [sys.executable, "-c", READ, *map(str, stores.values())],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=ROOT,
        env=os.environ | {"NUMCODECS_ALLOW_UNSAFE_PICKLE_DECODE": "1"},
    )
    outcomes = json.loads(done.stdout.rpartition("OUTCOMES")[2])
    return {
        kind: (store.with_name("ran").exists(), outcomes[str(store)])
        for kind, store in stores.items()
    }


def test_the_store_itself_can_be_read(read):
    assert read["nothing"] == (False, "loaded")


@pytest.mark.parametrize("kind", [*OLD_FORMATS, *NEW_FORMATS])
def test_a_planted_pickle_in_a_store_is_never_run(read, kind):
    ran, outcomes = read[kind]
    assert not ran
    assert outcomes != "loaded"


def test_an_object_array_in_a_journal_is_not_made(tmp_path, capsys):
    """A record whose checksums are right, and whose trace says that its values are objects."""
    from campaign.store.compaction import compact
    from campaign.store.dataset import open_dataset
    from campaign.store.journal import TornRecordError, scan
    from campaign.store.journal import read as read_record

    store = create_store(tmp_path / "store", "s")
    data = pickle.dumps(Payload(tmp_path / "ran")).ljust(64, b"\0")
    value = np.frombuffer(data[: len(data) // 8 * 8], "<f8")
    trace = Trace("c", "node", "W", np.arange(value.size, dtype=np.int64), value)
    point = a_point(site="y")
    ((text, payload),) = unsealed(encode(Measurement(point=point, status="ok", traces=(trace,))))
    assert text.count(b'"<f8"') == 1
    with JournalWriter(store.journals) as journal:
        journal.append(sealed(text.replace(b'"<f8"', b'"|O"'), payload))
    (entry,) = scan(store.journal_paths()[0]).entries
    with pytest.raises(TornRecordError):
        read_record(entry)
    assert main(["status", str(store.root)]) == 0
    assert compact(store).damage
    assert set(open_dataset(store).load().sizes.values()) == {0}
    assert not (tmp_path / "ran").exists()


def test_a_parquet_extension_type_is_not_unpickled(tmp_path):
    """Arrow once unpickled the type of a column from the file's own metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ["site", "kernel", "core_mhz", "mem_mhz", "time_s", "energy_j"]
    values = [["x"], ["a"], [1000.0], [900.0], [1.0], [2.0]]
    arrays = [pa.array(value) for value in values]
    hidden = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": pickle.dumps(Payload(tmp_path / "ran")),
    }
    fields = [
        pa.field(name, array.type, metadata=hidden if name == "site" else None)
        for name, array in zip(names, arrays, strict=True)
    ]
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table(arrays, schema=pa.schema(fields)), path)
    store = tmp_path / "store"
    assert main(["import", str(path), "--store", str(store)]) == 0
    assert read_columns(open_store(store))["site"].tolist() == ["x"]
    assert not (tmp_path / "ran").exists()


def test_a_planted_object_array_in_the_operators_folder_is_computed_again(tmp_path, monkeypatch):
    from kernels.fmm.operators.disk_cache import VERSION, cached

    monkeypatch.setenv("CAMPAIGN_FMM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    file = tmp_path / "cache" / f"planted-v{VERSION}.npz"
    planted_objects = np.array([Payload(tmp_path / "ran")], dtype=object)
    np.savez(file, u=planted_objects)
    operators = cached("planted", lambda: {"u": np.arange(3.0)})
    np.testing.assert_array_equal(operators["u"], np.arange(3.0))
    with np.load(file, allow_pickle=False) as again:
        np.testing.assert_array_equal(again["u"], np.arange(3.0))
    assert not (tmp_path / "ran").exists()


CACHED = """
import importlib, json, sys
found = {}
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    caches = [getattr(each, "_cache", None) for each in vars(module).values()]
    found[name] = [each.cache_path for each in caches if hasattr(each, "cache_path")]
print(json.dumps(found))
"""


def test_nobody_else_writes_where_compiled_code_is_kept(tmp_path):
    """Numba keeps compiled loops beside the source, or in the user's cache where it can't write
    there. These files are trusted as the source is, and must be no easier to write."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if "cache=True" in path.read_text(encoding="utf-8")
    ]
    assert len(modules) > 10
    done = subprocess.run(
        [sys.executable, "-c", CACHED, *modules],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    outcomes = json.loads(done.stdout)
    assert [name for name in modules if not outcomes[name]] == []
    for folder in {Path(path) for paths in outcomes.values() for path in paths}:
        beside = folder.name == "__pycache__" and folder.is_relative_to(ROOT)
        assert beside or folder.is_relative_to(Path.home()) or "NUMBA_CACHE_DIR" in os.environ
        # The nearest folder that exists decides who may make what is below it.
        there = next(parent for parent in (folder, *folder.parents) if parent.exists())
        assert there.stat().st_mode & 0o002 == 0, there
        assert there.stat().st_uid in (os.getuid(), 0)
