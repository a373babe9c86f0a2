"""The right files of each target, which inputs are made from."""

from __future__ import annotations

import io
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from campaign.store.compaction import compact
from campaign.store.journal import JournalWriter, encode
from campaign.store.layout import create_store
from campaign.store.measurement import Measurement
from campaign.store.planned import write_planned
from tests.campaign.test_journal import measurement
from tests.faults.fuzz.damage import Files
from tests.faults.fuzz.reading import call
from tests.sites.meter_layouts.layout import TREES

ROOT = Path(__file__).parents[3]
GTX = ROOT / "tests/data/gtxtitanx/microbenchmarks.csv"
GTX_MAP = ROOT / "examples/gtxtitanx.map.toml"


HEADER = "site,kernel,params,node,repeat,core_mhz,mem_mhz,core_v,mem_v,time_s,energy_j,n_sp,n_dram"
MAP = """\
unknown = "label"
device = "cpu"

[columns]
time_s = { column = "t_ms", factor = 1e-3 }
power_w = "watts"

[constants]
site = "a"
repeat = 1

[classes]
sp = "core"

[voltage]
core = [[1000, 0.9], [2000, 1.1]]
mem = [[500, 1.0]]
"""
MAPPED = """\
kernel,core_mhz,mem_mhz,t_ms,watts,who,n_sp
k,1000,500,12.5,3,"b, c",1e9
k,2000,500,9,4,,
"""
PROFILE = """\
kernel = "cg"
core_mhz = 1000
time_s = 1.5
[counts]
sp = 1e9
dram = 3
"""
IPMI = """\
Current Power                        : 164 Watts
Minimum Power over sampling duration : 120 watts
Power Measurement                    : Active
"""
IPMITOOL = """\
    Instantaneous power reading:                   180 Watts
    Power reading state is:                   activated
"""
POWERMON = b"#joined\n" + b"".join(
    b"%d.%03d %d 12.0%02d 1.0%02d\n" % (t // 40, t % 40 * 25, s, t, t)
    for t in range(40)
    for s in (0, 3, 5)
)


def table_rows(kernels: int = 4) -> list[str]:
    """Rows of our own columns that a model fits."""
    rows = []
    for k in range(kernels):
        for core, mem in ((500, 500), (1000, 500), (2000, 500), (1000, 900), (2000, 900)):
            flops, moved = 1e9 * (k + 1), 1e8 * (kernels - k)
            v, w = 0.7 + core / 5000, 0.8 + mem / 5000
            time_s = flops / core / 1e6 / 100 + moved / mem / 1e6 / 10
            energy_j = 2e-11 * flops * v**2 + 3e-10 * moved * w**2 + (2 * v + 3 * w) * time_s
            rows.append(
                f'a,k{k},"{{""n"": {k}}}",n1,0,{core},{mem},{v:.4f},{w:.4f},{time_s:.6g},'
                f"{energy_j:.6g},{flops:g},{moved:g}"
            )
    return rows


def files_in(**named: bytes | str) -> Callable[[Path], None]:
    """Writes these files; in a name, two underscores stand for a dot."""

    def prepare(folder: Path) -> None:
        for name, data in named.items():
            path = folder / name.replace("__", ".")
            path.write_bytes(data.encode() if isinstance(data, str) else data)

    return prepare


TABLE = "\n".join([HEADER, *table_rows()]) + "\n"


def prepare_parquet(folder: Path) -> None:
    """The table as Parquet."""
    pd.read_csv(io.StringIO(TABLE)).to_parquet(folder / "table.parquet", index=False)


def parquet_spares(files: Files) -> dict[str, list[bytes]]:
    """Parquet with other codecs, types and pages."""
    frame = pd.read_csv(io.StringIO(TABLE))
    made = []
    for change, options in (
        (frame, {"compression": "zstd"}),
        (frame.assign(core_mhz=frame["core_mhz"].astype(str)), {"compression": None}),
        (frame.assign(n_dram=None, when=pd.Timestamp("2020-01-01")), {"compression": "gzip"}),
        (frame.set_index("kernel"), {}),
        (frame.assign(params=[[1, 2]] * len(frame)), {}),
    ):
        buffer = io.BytesIO()
        change.to_parquet(buffer, **options)
        made.append(buffer.getvalue())
    return {"table.parquet": made}


def prepare_import(folder: Path) -> None:
    """A table with its map, and as Parquet without."""
    files_in(table__csv=MAPPED, map__toml=MAP)(folder)
    prepare_parquet(folder)


def prepare_cray(folder: Path) -> None:
    """The counters of a recorded node, stamped as of now."""
    shutil.copytree(TREES / "cray-ex-4gpu", folder, dirs_exist_ok=True, symlinks=True)
    for path in (folder / "sys/cray/pm_counters").iterdir():
        if path.is_file():
            path.chmod(0o644)


SLURM_PROGRAM = '#!/bin/sh\nexec cat "${0%/usr/bin/*}/NAME.txt"\n'


def prepare_slurm(folder: Path) -> None:
    """sstat and sacct, which print what a file beside them says."""
    programs = folder / "usr/bin"
    programs.mkdir(parents=True)
    for name in ("sstat", "sacct"):
        (programs / name).write_text(SLURM_PROGRAM.replace("NAME", name))
        (programs / name).chmod(0o755)
        (folder / f"{name}.txt").write_text("7.batch|5000\n7.0|123456\n")


def prepare_journal(folder: Path) -> None:
    """Three records, one of them without traces."""
    nothing = measurement(2, traces=(), counts=None, energy_j=math.nan)
    records = [encode(record) for record in (measurement(0), nothing, measurement(1, 3000))]
    (folder / "a.journal").write_bytes(b"".join(records))


def prepare_store(folder: Path) -> None:
    """A store with an import, compacted and other journals, traces, a fit and a plan."""
    files_in(table__csv=TABLE, more__csv=HEADER + "\n" + table_rows(1)[0].replace("a,k", "b,k"))(
        folder
    )
    path = folder / "store"
    call("import", str(folder / "table.csv"), "--store", str(path))
    call("fit", str(path), "--site", "a", "--model", "choi", "--voltage", "known")
    store = create_store(path, "fuzz")
    for repeats in ((0, 1), (2, 3)):
        with JournalWriter(store.journals) as journal:
            for repeat in repeats:
                journal.append(encode(measurement(repeat, 200)))
            point = measurement(9).point
            failed = Measurement(
                point=point,
                status="timed out",
                text="slow",
                attempt=repeats[0],
                node="n1",
                start_unix_s=1.0,
            )
            journal.append(encode(failed))
        if repeats == (0, 1):
            compact(store)
    ids = [measurement(repeat).point.id for repeat in range(6)]
    write_planned(store, {"name": "fuzz", "sites": {}}, {"s/p": ids})
    (folder / "table.csv").unlink()
