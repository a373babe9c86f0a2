"""Journals: what was acknowledged is there, whole; what was cut off or damaged is noticed."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from campaign.store.journal import (
    HEAD,
    LENGTHS,
    MAGIC,
    JournalWriter,
    TornRecordError,
    decode,
    encode,
    read,
    remove_if_done,
    scan,
)
from campaign.store.measurement import Measurement, Trace
from dvfs.dataset import OK
from dvfs.setting import Setting
from tests.points import a_point

EARLIER = Path(__file__).parents[1] / "data" / "stores" / "format-2.journal"
"""One record of ``measurement()``, by the version that did not say how clocks were shown, and that
called the channel twin:board."""


def measurement(repeat: int = 0, samples: int = 20, **changes: object) -> Measurement:
    rng = np.random.default_rng(repeat)
    trace = Trace(
        "simulated:board",
        "node",
        "W",
        np.arange(samples, dtype=np.int64) * 976_562,
        rng.normal(5.0, 0.1, samples).astype(np.float32),
    )
    point = a_point(setting=Setting(852.0, None), repeat=repeat)
    fields = {"time_s": 0.5, "energy_j": 2.5, "counts": {"sp": 1e9}, "traces": (trace,)} | changes
    return Measurement(point=point, status=OK, **fields)


def same(a: Measurement, b: Measurement) -> bool:
    for name in a.__dataclass_fields__:
        x, y = getattr(a, name), getattr(b, name)
        if name == "traces":
            for s, t in zip(x, y, strict=True):
                assert (s.channel, s.domain, s.unit) == (t.channel, t.domain, t.unit)
                assert s.time_ns.tobytes() == t.time_ns.tobytes()
                assert s.value.dtype == t.value.dtype
                assert s.value.tobytes() == t.value.tobytes()
        elif isinstance(x, float) and math.isnan(x):
            assert math.isnan(y)
        else:
            assert x == y, name
    return True


@given(
    time_ns=hnp.arrays(np.int64, st.integers(1, 300), elements=st.integers(-(2**62), 2**62)),
    dtype=st.sampled_from([np.float32, np.float64]),
    text=st.text(),
    data=st.data(),
)
def test_any_trace_comes_back_bit_for_bit(time_ns, dtype, text, data):
    value = data.draw(hnp.arrays(dtype, time_ns.size))
    once = measurement(text=text, traces=(Trace("c", "d", "W", time_ns, value),))
    assert same(decode(encode(once)), once)


def test_a_record_of_an_earlier_version_has_missing_values():
    """It was written before measurements said how their clocks were shown."""
    (entry,) = scan(EARLIER).entries
    kept = read(entry)
    assert math.isnan(kept.core_mhz_timed)
    assert (kept.clock_proof, kept.setup) == ("", "")
    later = {"core_mhz_timed": 850.0, "clock_proof": "timed", "setup": "ab12"}
    now = measurement(start_unix_s=kept.start_unix_s)
    now = replace(now, traces=(replace(now.traces[0], channel="twin:board"),))
    assert same(kept, now)
    assert same(decode(encode(replace(now, **later))), replace(now, **later))


def journal_of(folder: Path, count: int) -> tuple[Path, list[bytes]]:
    records = [encode(measurement(i)) for i in range(count)]
    with JournalWriter(folder) as writer:
        for record in records:
            writer.append(record)
        return writer.path, records


def test_cut_at_every_byte_the_records_before_stand(tmp_path):
    path, records = journal_of(tmp_path, 3)
    whole = path.read_bytes()
    ends = np.cumsum([len(r) for r in records])
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        scanned = scan(path)
        assert len(scanned.entries) == int(np.sum(ends <= size))
        assert scanned.end == ([0, *ends])[len(scanned.entries)]
        assert bool(scanned.damage) == (size not in (0, *ends))


def test_a_flipped_byte_costs_one_record_and_is_reported(tmp_path):
    path, records = journal_of(tmp_path, 3)
    whole = path.read_bytes()
    first, second = len(records[0]), len(records[0]) + len(records[1])
    for at in range(first, second):
        broken = bytearray(whole)
        broken[at] ^= 0x40
        path.write_bytes(bytes(broken))
        scanned = scan(path)
        kept = [e.point_id for e in scanned.entries]
        assert kept[0] == measurement(0).point.id
        assert kept[-1] == measurement(2).point.id
        if len(kept) == 3:  # the damage is in the traces: found when they are read
            with pytest.raises(TornRecordError):
                read(scanned.entries[1])
        else:
            assert scanned.damage


def test_garbage_is_no_record(tmp_path):
    path = tmp_path / "x.journal"
    for garbage in (b"", b"DVFS", b"DVFS" + b"\xff" * 40, bytes(1000)):
        path.write_bytes(garbage)
        assert scan(path).entries == []
        with pytest.raises(TornRecordError):
            decode(garbage)


def test_a_field_that_is_not_known_is_named_so_that_it_can_be_printed():
    """With the right checksums, as of a record that another version wrote."""
    record = encode(replace(measurement(0), traces=()))
    text = record[HEAD.size :].replace(b"core_mhz_timed", b"core_mhz\x7ftimed")
    head = LENGTHS.pack(MAGIC, len(text), 0, google_crc32c.value(text), 0)
    record = head + struct.pack("<I", google_crc32c.value(head)) + text
    with pytest.raises(
        TornRecordError, match=r"values cannot be read \(.*'core_mhz\\x7ftimed'"
    ) as torn:
        decode(record)
    assert str(torn.value).isprintable()


def test_a_scan_goes_on_where_the_last_one_ended(tmp_path):
    path, _ = journal_of(tmp_path, 2)
    first = scan(path)
    with path.open("ab") as file:
        file.write(encode(measurement(7)))
    more = scan(path, first.end)
    assert [e.point_id for e in more.entries] == [measurement(7).point.id]
    assert same(
        read(more.entries[0]), measurement(7, start_unix_s=read(more.entries[0]).start_unix_s)
    )


def test_a_journal_with_a_living_writer_is_not_removed(tmp_path):
    writer = JournalWriter(tmp_path)
    record = encode(measurement())
    writer.append(record)
    assert not remove_if_done(writer.path, len(record))
    writer.close()
    assert not remove_if_done(writer.path, 0)
    with writer.path.open("ab") as file:
        file.write(record[:50])  # cut off as its writer died
    assert remove_if_done(writer.path, len(record))
    assert not writer.path.exists()


def test_an_empty_journal_leaves_no_file(tmp_path):
    JournalWriter(tmp_path).close()
    assert list(tmp_path.iterdir()) == []
