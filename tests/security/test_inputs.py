"""Inputs that are no files, or that would fill the memory, are refused in one line."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import zarr
from pyarrow import parquet

from campaign.table.trace_folder import TraceFolder, zstd_bytes
from campaign.verbs.command_line import main
from dvfs.files import MAX_BYTES, TooLargeError, read_input
from dvfs.input_files import FileError
from sites.meters.recorded import read_recording
from sites.meters.shared.meter import MeterError
from tests.commands import refuses

ROOT = Path(__file__).parents[2]
GIB = 1 << 30
TABLE = "site,kernel,core_mhz,time_s,energy_j\nx,k,100,1,2\n"
VERBS: dict[str, Callable[[str, Path], list[str]]] = {
    "site": lambda f, d: ["doctor", "--here", f],
    "campaign": lambda f, d: ["plan", f],
    "study": lambda f, d: ["codesign", f],
    "table": lambda f, d: ["import", f, "--store", str(d / "S")],
    "map": lambda f, d: ["import", str(d / "t.csv"), "--map", f, "--store", str(d / "S")],
    "profile": lambda f, d: ["predict", str(d / "T"), "--site", "x", "--profile", f],
    "counters": lambda f, d: ["profile", f"{f}=ncu"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("inputs")
    rows = "".join(f"x,k,{mhz},{1000 / mhz},{2 + mhz / 500}\n" for mhz in (100, 200, 300, 400))
    (made / "t.csv").write_text(TABLE.splitlines()[0] + "\n" + rows)
    assert main(["import", str(made / "t.csv"), "--store", str(made / "T")]) == 0
    assert main(["fit", str(made / "T"), "--site", "x"]) == 0
    return made


@pytest.fixture(params=["pipe", "device", "folder", "socket", "link to a device"])
def no_file(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "input.toml"
    listening = socket.socket(socket.AF_UNIX)
    match request.param:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path = Path("/dev/zero")
        case "folder":
            path.mkdir()
        case "socket":
            os.chdir(tmp_path)
            listening.bind(path.name)
        case _:
            path.symlink_to("/dev/zero")
    yield path
    os.chdir(ROOT)
    listening.close()


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.timeout(60)
def test_what_is_no_file_is_refused(verb: str, no_file: Path, folder: Path) -> None:
    said = refuses(*VERBS[verb](str(no_file), folder))
    assert len(said.splitlines()) == 1
    assert str(no_file) in said


@pytest.mark.timeout(60)
def test_other_inputs_that_are_no_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.parquet")
    assert main(["import", str(tmp_path / "t.parquet"), "--store", str(tmp_path / "S")]) == 2
    with pytest.raises(MeterError, match=r"t\.parquet"):
        read_recording(tmp_path / "t.parquet", ["a"])


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    large = tmp_path / "c.toml"
    with large.open("wb") as file:
        file.truncate(100 << 30)  # no bytes on disk
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert main(["plan", str(large)]) == 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # KiB
    with pytest.raises(TooLargeError):
        read_input(large, 1000)


def test_a_pipe_of_this_process_is_read(tmp_path: Path) -> None:
    """As bash makes it for ``<(...)``, and for standard input."""
    text = (ROOT / "campaign/verbs/demo_campaign.toml").read_bytes()
    for name in ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"):
        done = subprocess.run(
            [sys.executable, "-m", "campaign", "plan", name],
            input=text,
            capture_output=True,
            check=False,
            cwd=ROOT,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr


# -- small files that hold much ------------------------------------------------------------------

LIMITED_MEMORY = """
import resource, sys
from campaign.verbs.command_line import main
import pandas, pyarrow.parquet, campaign.table.importing
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (700 << 20), resource.RLIM_INFINITY))
sys.exit(main(["import", sys.argv[1], "--store", sys.argv[2]]))
"""


def packed(
    pack: Callable[[bytes], bytes], unit: bytes, units: int, times: int
) -> Callable[[Path], None]:
    """Several streams one after another are one file."""

    def write(path: Path) -> None:
        path.write_bytes(pack(TABLE.encode()) + pack(unit * units) * times)

    return write


def repeated(path: Path) -> None:
    text = pa.array(["z" * (1 << 20)])
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(3_000_000, np.int32)), text)
    parquet.write_table(pa.table({"kernel": column}), path)


def many(path: Path) -> None:
    zeros = pa.array(np.zeros(60_000_000, np.int8))
    parquet.write_table(pa.table({"time_s": zeros}), path)


BOMBS: dict[str, Callable[[Path], None]] = {
    "gzip": packed(gzip.compress, b"0", 32 << 20, 64),
    "bzip2": packed(bz2.compress, b"0", 32 << 20, 64),
    "xz": packed(lzma.compress, b"0", 32 << 20, 64),
    "lines": packed(gzip.compress, b"\n", 64 << 20, 2),
    "a text of Parquet": repeated,
    "values of Parquet": many,
}
"""They write files of at most a few MB that hold gigabytes; made at run time, and never kept."""


@pytest.mark.parametrize("kind", BOMBS)
def test_a_small_table_that_holds_much_is_refused_in_little_memory(
    kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    BOMBS[kind](path)
    assert path.stat().st_size < 4 << 20
    done = subprocess.run(
        [sys.executable, "-c", LIMITED_MEMORY, str(path), str(tmp_path / "S")],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=300,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
    )
    assert done.returncode == 2, done.stderr
    assert str(path) in done.stderr
    assert str(MAX_BYTES >> 20) in done.stderr or "50000000" in done.stderr
    assert not (tmp_path / "S").exists()


def traces(folder: Path, samples: int = 10, **how: object) -> zarr.Group:
    """A folder of one trace as export writes it, but for ``how`` its samples are kept."""
    group = zarr.create_group(folder)
    for name in ("point_id", "channel", "domain", "unit"):
        group.create_array(name, shape=(1,), dtype=str)[:] = np.array(
            ["x"], np.dtypes.StringDType()
        )
    for name, value in (("row_start", 0), ("row_size", samples)):
        group.create_array(name, shape=(1,), dtype=np.int64)[:] = value
    for name, dtype in (("time_ns", np.int64), ("value", np.float64)):
        group.create_array(name, shape=(samples,), dtype=dtype, **({"chunks": (10,)} | how))  # type: ignore[arg-type]
    return group


def test_traces_that_hold_too_much_are_refused(tmp_path: Path) -> None:
    group = traces(tmp_path / "right")
    for name in ("time_ns", "value"):
        group[name][:] = np.arange(10)  # type: ignore[index]
    (trace,) = TraceFolder(tmp_path / "right")["x"]
    assert trace.value.tolist() == list(range(10))

    traces(tmp_path / "long", 1 << 40)
    with pytest.raises(FileError, match="samples"):
        TraceFolder(tmp_path / "long")

    traces(tmp_path / "gzip", compressors=zarr.codecs.GzipCodec())
    with pytest.raises(FileError, match="packed"):
        TraceFolder(tmp_path / "gzip")["x"]

    chunk = tmp_path / "right" / "value" / "c" / "0"
    chunk.write_bytes(bytes(zarr.codecs.ZstdCodec()._zstd_codec.encode(bytes(200 << 20))))
    assert chunk.stat().st_size < 1 << 20
    with pytest.raises(FileError, match="more than 64 MiB"):
        TraceFolder(tmp_path / "right")["x"]

    chunk.unlink()
    os.mkfifo(chunk)
    with pytest.raises(FileError, match="regular"):
        TraceFolder(tmp_path / "right")["x"]


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 65_791, 65_792, 1 << 20, 5 << 20])
def test_the_size_in_a_frame_of_zstandard(size: int) -> None:
    assert zstd_bytes(bytes(zarr.codecs.ZstdCodec()._zstd_codec.encode(bytes(size)))) == size
