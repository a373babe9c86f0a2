"""Inputs that were found to matter, each tried in every run."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.faults.fuzz.damage import (
    DEEP,
    LONG,
    Change,
    Changes,
    Files,
    Link,
    as_json,
    bomb,
    sealed,
    sealed_line,
    unsealed,
)
from tests.faults.fuzz.right_files import IPMI, TABLE


def in_file(name: str, data: bytes | str) -> Callable[[Files], Changes]:
    """The whole of one file."""
    return lambda files: {name: data.encode() if isinstance(data, str) else data}


def replaced(name: str, old: str, new: str) -> Callable[[Files], Changes]:
    """One text of a file, replaced."""

    def make(files: Files) -> Changes:
        assert old.encode() in files[name]
        return {name: files[name].replace(old.encode(), new.encode(), 1)}

    return make


def in_first(pattern: str, change: Callable[[bytes], Change]) -> Callable[[Files], Changes]:
    """The first file of a name, changed."""

    def make(files: Files) -> Changes:
        name = min(name for name in files if re.search(pattern, name))
        return {name: change(files[name])}

    return make


def in_record(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    """The scalars of a journal's first record, changed, under right checksums."""

    def make(data: bytes) -> bytes:
        (text, payload), *others = unsealed(data)
        scalars = json.loads(text)
        change(scalars)
        return b"".join(
            [sealed(as_json(scalars), payload), *(sealed(*record) for record in others)]
        )

    return make


def bombed(data: bytes) -> bytes:
    """A record whose traces fill 600 MB."""
    (text, _), *others = unsealed(data)
    scalars, big = json.loads(text), bomb(600_000_000)
    scalars["traces"][0].update(samples=75_000_000, time_bytes=len(big), value_bytes=len(big))
    return sealed(as_json(scalars), big + big) + b"".join(sealed(*record) for record in others)


RECORDS: dict[str, Callable[[bytes], bytes]] = {
    "scalars that are no table": lambda d: sealed(b"[]", b"") + d,
    "scalars that are empty": lambda d: sealed(b"{}", b"") + d,
    "scalars that are no JSON": lambda d: sealed(b"{", b"") + d,
    "scalars that are no UTF-8": lambda d: sealed(b'{"a": "\xff"}', b"") + d,
    "deep scalars": lambda d: sealed(b"[" * DEEP, b"") + d,
    "a number of 5000 digits": in_record(lambda s: s.update(attempt="@digits@")),
    "no status": in_record(lambda s: s.pop("status")),
    "no traces": in_record(lambda s: s.pop("traces")),
    "an unknown field": in_record(lambda s: s.update(colour="red")),
    "a point that is none": in_record(lambda s: s.update(point=3)),
    "a point without id": in_record(lambda s: s["point"].pop("id")),
    "a point of text clocks": in_record(lambda s: s["point"].update(core_mhz="fast")),
    "counts that are none": in_record(lambda s: s.update(counts=[1])),
    "a count that is none": in_record(lambda s: s.update(counts={"sp": "many"})),
    "a class that leads away": in_record(lambda s: s.update(counts={"../../../x": 1.0})),
    "a time that is none": in_record(lambda s: s.update(time_s="1")),
    "an attempt that is none": in_record(lambda s: s.update(attempt=None)),
    "a huge attempt": in_record(lambda s: s.update(attempt=10**30)),
    "provenance that is none": in_record(lambda s: s.update(provenance=None)),
    "flags of numbers": in_record(lambda s: s["provenance"].update(flags=[1])),
    "flags that are none": in_record(lambda s: s["provenance"].update(flags=3)),
    "a start that is no number": in_record(lambda s: s.update(start_unix_s=math.nan)),
    "a start that is true": in_record(lambda s: s.update(start_unix_s=True)),
    "traces of objects": in_record(lambda s: s["traces"][0].update(dtype="|O")),
    "traces of no type": in_record(lambda s: s["traces"][0].update(dtype="no type")),
    "negative bytes": in_record(lambda s: s["traces"][0].update(time_bytes=-8)),
    "more bytes than there are": in_record(lambda s: s["traces"][0].update(value_bytes=2**40)),
    "fewer samples than stated": in_record(lambda s: s["traces"][0].update(samples=10**12)),
    "traces that tell 2 GB": lambda d: (
        sealed(unsealed(d)[0][0], bomb(1000, 2**31 - 17) + unsealed(d)[0][1]) + d
    ),
    "traces that fill 600 MB": bombed,
    "a length of 4 GB": lambda d: sealed(*unsealed(d)[0], (2**32 - 1, 0)) + d,
    "a length of 2^64": lambda d: sealed(*unsealed(d)[0], (10, 2**64 - 1)) + d,
}
JOURNAL_CASES = {
    name: in_first(r"a\.journal$", make)  # type: ignore[arg-type]
    for name, make in RECORDS.items()
}


def with_json(change: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    """JSON, changed in place or replaced."""

    def make(data: bytes) -> bytes:
        value = json.loads(data)
        new = change(value)
        return as_json(value if new is None else new)

    return make


def in_newest_manifest(said: dict[str, Any]) -> Callable[[Files], Changes]:
    """The last generation says something else, under a right checksum."""

    def make(files: Files) -> Changes:
        name = max(name for name in files if name.endswith("/manifest"))
        manifest = json.loads(files[name].split(b"\n")[0]) | said
        return {name: sealed_line(json.dumps(manifest, separators=(",", ":")).encode())}

    return make


STORE_CASES: dict[str, Callable[[Files], Changes]] = {
    "store.json that is itself": lambda files: {"store/store.json": Link("store.json")},
    "store.json that is deep": in_file("store/store.json", "[" * DEEP),
    "store.json of a format": in_file("store/store.json", '{"format": "\\u001b[31m"}'),
    "store.json of a long format": in_file("store/store.json", as_json({"format": "x" * LONG})),
    "campaign.json of a list": in_file("store/campaign.json", "[1]"),
    "campaign.json of points": in_file("store/campaign.json", '{"planned": [1]}'),
    "campaign.json of numbers": in_file(
        "store/campaign.json", '{"planned": {"partitions": 3, "file": 4}}'
    ),
    "campaign.json that leads out": in_file(
        "store/campaign.json", '{"planned": {"partitions": ["s/p"], "file": "../../x"}}'
    ),
    "campaign.json of a long name": in_file(
        "store/campaign.json",
        as_json({"planned": {"partitions": ["s/p"], "file": "x" * LONG}}),
    ),
    "campaign.json without end": lambda files: {"store/campaign.json": Link("/dev/zero")},
    "hours of a list": in_file("store/hours/a.json", "[1]"),
    "hours that are deep": in_file("store/hours/a.json", "[" * DEEP),
    "hours without end": lambda files: {"store/hours/a.json": Link("/dev/zero")},
    "hours of no partition": in_file(
        "store/hours/a.json",
        '{"partitions": {"\\u001b[31m": {"jobs": {"1": {"elapsed_s": 9e9, "nodes": 9}}}}}',
    ),
    "campaign.json cut off": in_file("store/campaign.json", '{"planned": {'),
    "campaign.json that is deep": in_file("store/campaign.json", "[" * DEEP),
    "campaign.json of bytes": in_file("store/campaign.json", b"\xff"),
    "a plan of another file": in_first(r"planned\..*\.bin$", lambda d: d[:-1]),
    "no plan's ids": in_first(r"planned\..*\.bin$", lambda d: None),
    **{
        f"a manifest of {line[:20]!r}": in_first(
            r"/manifest$", lambda d, line=line: sealed_line(line)
        )
        for line in (b"[]", b"{}", b"3", b"[" * DEEP, b'{"consumed": 3}')
    },
    **{
        f"a manifest with {key} {value!r}": in_newest_manifest({key: value})
        for key in ("consumed", "samples_end", "shards", "summary", "files")
        for value in (None, [], {}, -1, 2**70, {"x": 1}, {"x": -1}, {"../../x": [1, 2]})
    },
    "a generation of another script": lambda files: {"store/index/٣": Link("000001")},
    "a generation of 200 digits": lambda files: {"store/index/" + "9" * 200: Link("000001")},
    "a generation that is itself": lambda files: {"store/index/000099": Link("000099")},
    "a generation that leads out": lambda files: {"store/index/000099": Link("../../..")},
    "a journal that is a folder": lambda files: {
        min(name for name in files if name.endswith(".journal")): Link("..")
    },
    "a journal that leads nowhere": lambda files: {
        min(name for name in files if name.endswith(".journal")): Link("nowhere")
    },
    "a journal without end": lambda files: {
        min(name for name in files if name.endswith(".journal")): Link("/dev/zero")
    },
    "samples of 2^60": in_first(
        r"traces\.zarr/value/zarr\.json$", with_json(lambda v: v.update(shape=[2**60]))
    ),
    "samples of another type": in_first(
        r"traces\.zarr/value/zarr\.json$", with_json(lambda v: v.update(data_type="int8"))
    ),
    "samples of no shape": in_first(
        r"traces\.zarr/time_ns/zarr\.json$", with_json(lambda v: v.update(shape=[]))
    ),
    "samples cut off": in_first(r"traces\.zarr/value/c/", lambda d: d[: len(d) // 2]),
    "samples with a bit changed": in_first(
        r"traces\.zarr/value/c/", lambda d: d[:40] + bytes([d[40] ^ 1]) + d[41:]
    ),
    "traces.zarr of nothing": in_first(r"traces\.zarr/zarr\.json$", lambda d: b""),
    **{
        f"in a journal, {name}": in_first(r"\.journal$", make)  # type: ignore[arg-type]
        for name, make in RECORDS.items()
    },
}
FIT = r"fits/a\.json$"
FIT_CASES = {
    "a fit of a list": in_first(FIT, lambda d: b"[]"),
    "a fit of nothing": in_first(FIT, lambda d: b""),
    "a fit of bytes": in_first(FIT, lambda d: b"\xff"),
    "a deep fit": in_first(FIT, lambda d: b"[" * DEEP),
    "a fit without terms": in_first(FIT, with_json(lambda v: v.pop("terms") and None)),
    "a fit of text": in_first(FIT, with_json(lambda v: v.update(coefficients="x"))),
    "a site of classes in no domain": in_file("store/sites/a.json", '{"classes": {"dram": "x"}}'),
    "a fit of ragged deviations": in_first(
        FIT, with_json(lambda v: v.update(deviations=[[1], [1, 2]]))
    ),
    "a fit with a term of no kind": in_first(
        FIT, with_json(lambda v: v["terms"][0].pop("kind") and None)
    ),
    "a fit that leads out": lambda files: {"store/fits/b.json": Link("../../../outside.txt")},
    "a fit of an empty name": in_file("store/fits/%2e%2e%2fx.json", "{}"),
}


def many_rows(files: Files) -> Changes:
    """Parquet of 60 million rows in a few bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.table({"core_mhz": np.zeros(60_000_000, np.int8)}), buffer)
    return {"table.parquet": buffer.getvalue()}


TABLE_CASES = {
    "a column twice": in_file("table.csv", TABLE.replace("energy_j", "time_s", 1)),
    "a class that leads away": in_file("table.csv", TABLE.replace("n_dram", "n_../../x", 1)),
    "a class of no name": in_file("table.csv", TABLE.replace("n_dram", "n_", 1)),
    "a class of 300 letters": in_file("table.csv", TABLE.replace("n_dram", "n_" + "x" * 300, 1)),
    "params nested deeply": in_file(
        "table.csv", TABLE.replace('"{""n"": 0}"', '"' + "[" * DEEP + '"', 1)
    ),
    "params of 5000 digits": in_file(
        "table.csv", TABLE.replace('"{""n"": 0}"', '"{""n"": ' + "9" * 5000 + '}"', 1)
    ),
    "a header of 20,000 columns": in_file("table.csv", ",".join(f"c{i}" for i in range(20_000))),
    "a column with terminal escapes": in_file("table.csv", "\x1b[31msite,kernel\n"),
    "a byte order mark": in_file("table.csv", "\ufeff" + TABLE),
    "a repeat beyond integers": in_file("table.csv", TABLE.replace(",n1,0,", ",n1,1e300,", 1)),
    "energies that are power times too long": in_file(
        "table.csv",
        "site,kernel,core_mhz,time_s,power_w\na,k,1,1e308,1e308\na,k,2,1e-300,1e-300\n",
    ),
}
MAP_CASES = {
    "a constant of 400 digits": replaced("map.toml", "repeat = 1", "repeat = 1" + "0" * 400),
    "a constant of 5000 digits": replaced("map.toml", "repeat = 1", "repeat = 1" + "0" * 5000),
    "a list nested deeply": replaced("map.toml", "repeat = 1", "repeat = " + "[" * DEEP),
    "a key of many parts": replaced("map.toml", "repeat = 1", "a." * 20_000 + "a = 1"),
    "a key of many quoted parts": replaced("map.toml", "repeat = 1", '"a" . ' * 20_000 + "a = 1"),
    "a table of many parts": replaced("map.toml", "[classes]", "[" + "a." * 20_000 + "a]"),
    "a factor of 400 digits": replaced("map.toml", "1e-3", "1" + "0" * 400),
    "a voltage of 400 digits": replaced("map.toml", "[500, 1.0]", f"[500, {10**400}]"),
    "20,000 lines before an error": replaced(
        "map.toml", "mem = [[500, 1.0]]", "core2 = [\n" + "[1, 2],\n" * 20_000 + "]"
    ),
    "10,000 keys before an error": replaced(
        "map.toml", 'sp = "core"', "".join(f'k{i} = "core"\n' for i in range(10_000)) + "x = 1"
    ),
    "a line that is none before an error": replaced(
        "map.toml", 'device = "cpu"', '# \u2028 "\ndevice = "\u0085"'
    ),
    "a constant that is a class away": replaced("map.toml", "repeat = 1", '"n_../x" = 1'),
    "no end of a text": replaced("map.toml", 'device = "cpu"', '"' + "\\u0041" * 50_000),
}
PLAN_CASES = {
    "a million repeats": replaced("c.toml", "repeats = 1", "repeats = 1000000000"),
    "repeats of 5000 digits": replaced("c.toml", "repeats = 1", "repeats = " + "9" * 5000),
    "params nested deeply": replaced("c.toml", "[1, 2]", "[" * DEEP),
    "params of 400 digits": replaced("c.toml", "[1, 2]", "[1, 1" + "0" * 400 + "]"),
    "params of a date": replaced("c.toml", "[1, 2]", "[1979-05-27]"),
    "params that are no number": replaced("c.toml", "[1, 2]", "[nan, inf]"),
    "a clock of 400 digits": replaced("s.toml", "[1000, 2000]", "[1000, 1" + "0" * 400 + "]"),
    "a site beyond a NUL": replaced("c.toml", '"s.toml"', '"\\u0000.toml"'),
    "a site of a long name": replaced("c.toml", '"s.toml"', f'"{"s" * 5000}.toml"'),
    "counts that cannot be read": replaced(
        "c.toml", 'kernel = "sp_fma"', 'kernel = "command"\n[kernels.params2]\nargv = ["x"]'
    ),
}
COUNTS_CASES = {
    "a count of 400 digits": in_file("counts.json", '{"sp": 1' + "0" * 400 + "}"),
    "a count of 5000 digits": in_file("counts.json", '{"sp": 1' + "0" * 5000 + "}"),
    "counts nested deeply": in_file("counts.json", '{"sp": ' + "[" * DEEP),
    "a class that leads away": in_file("counts.json", '{"../../x": 1}'),
    "a class of no name": in_file("counts.json", '{"": 1}'),
    "a count of infinity": in_file("counts.json", '{"sp": Infinity}'),
    "a long text as count": in_file("counts.json", as_json({"sp": "x" * LONG})),
    "bytes": in_file("counts.json", b"\xff\xfe"),
}
RECORDED = "time_s,cpu,board,who\n0,10,0,a\n0.5,11,1e-6,b\n1.0,9.5,2e-6,c\n"
RECORDED_CASES = {
    "times that overflow": in_file("trace.csv", "time_s,cpu,board\n-1e308,1,1\n1e308,1,1\n"),
    "a time that is long": in_file("trace.csv", "time_s,cpu,board\n0,1,1\n1e300,1,1\n"),
    "energies that overflow": in_file("trace.csv", "time_s,cpu,board\n0,1,1e300\n1,1,1e308\n"),
    "a byte order mark": in_file("trace.csv", "\ufeff" + RECORDED),
    "a long word as value": in_file("trace.csv", f"time_s,cpu,board\n0,{'x' * 100_000},1\n"),
}
IPMI_CASES = {
    "watts of 400 digits": in_file("output.txt", IPMI.replace("164", "1" + "0" * 400)),
    "many empty lines": in_file("output.txt", "\n" * LONG + IPMI),
    "a state of many spaces": in_file("output.txt", f"Power Measurement : a{' ' * LONG}b\n"),
    "many spaces": in_file("output.txt", IPMI + "Current Power" + " " * LONG + "x"),
    "digits of another script": in_file("output.txt", IPMI.replace("164", "١٦٤")),
}
SLURM_CASES = {
    "a superscript": in_file("sstat.txt", "7.0|²\n"),
    "an energy of 400 digits": in_file("sstat.txt", "7.0|1" + "0" * 400),
    "an energy of 5000 digits": in_file("sstat.txt", "7.0|1" + "0" * 5000),
    "a long energy": in_file("sstat.txt", "7.0|" + "x" * LONG),
}
PM = "sys/cray/pm_counters/"
CRAY_CASES = {
    "a cap of 5000 digits": in_file(PM + "power_cap", "1" * 5000 + " W\n"),
    "a rate of 5000 digits": in_file(PM + "raw_scan_hz", "1" * 5000 + " Hz\n"),
    "a rate of 400 digits": in_file(PM + "raw_scan_hz", "1" * 400 + " Hz\n"),
    "an energy of 60 digits": in_file(PM + "energy", "1" * 60 + " J\n"),
}
