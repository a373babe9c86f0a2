"""Shards read by this program's own reader, beside Zarr's of the same files."""

from __future__ import annotations

import struct
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from campaign.store.columns import CHUNK_SAMPLES, SHARD_SAMPLES
from campaign.store.dataset import open_dataset
from campaign.store.layout import Store
from campaign.store.samples import CHUNKS, BadChunkError, read_shard
from tests.campaign.test_journal import measurement
from tests.stores import stored

ONCE = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
FLOAT = np.dtype(np.float64)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Samples of two shards, random ones that do not pack well among them."""
    sizes = enumerate((700_000, 1, 400_000, 65_536))
    made = [measurement(i, size) for i, size in sizes]
    return stored(tmp_path_factory.mktemp("shards") / "store", *made, compacted=True)


@pytest.fixture(scope="module")
def expected(store: Store) -> np.ndarray:
    array = zarr.open_array(store.traces / "value", mode="r")
    assert array.shape[0] >= 2 * SHARD_SAMPLES
    return np.asarray(array[:])


@pytest.fixture
def shard(store: Store, tmp_path: Path) -> Path:
    """A copy of the first one, to be damaged."""
    path = tmp_path / "0"
    path.write_bytes((store.traces / "value/c/0").read_bytes())
    return path


ENDS = st.integers(0, SHARD_SAMPLES) | st.sampled_from([0, CHUNK_SAMPLES, SHARD_SAMPLES])


@ONCE
@given(st.sampled_from([0, 1]), ENDS, ENDS)
def test_any_part_is_what_zarr_reads(
    store: Store, expected: np.ndarray, number: int, one: int, other: int
) -> None:
    start, end = min(one, other), max(one, other)
    values = read_shard(store.traces / f"value/c/{number}", FLOAT, start, end)
    whole = expected[number * SHARD_SAMPLES : (number + 1) * SHARD_SAMPLES]
    np.testing.assert_array_equal(values, whole[start:end])


@ONCE
@given(st.slices(2 * SHARD_SAMPLES))
def test_any_slice_through_the_dataset(store: Store, expected: np.ndarray, cut: slice) -> None:
    values = open_dataset(store, 300_000)["value"][: expected.size].data[cut].compute()
    np.testing.assert_array_equal(values, expected[cut])


@ONCE
@given(st.data())
def test_a_changed_byte_is_noticed_or_changes_nothing(
    shard: Path, expected: np.ndarray, data: st.DataObject
) -> None:
    whole = shard.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1) | st.integers(len(whole) - 260, len(whole) - 1))
    changed = bytearray(whole)
    changed[at] ^= data.draw(st.integers(1, 255))
    shard.write_bytes(changed)
    bad = 0
    for chunk in range(CHUNKS):
        start, end = chunk * CHUNK_SAMPLES, (chunk + 1) * CHUNK_SAMPLES
        try:
            values = read_shard(shard, FLOAT, start, end)
        except BadChunkError:
            bad += 1
        else:
            np.testing.assert_array_equal(values, expected[start:end])
    assert bad in (1, CHUNKS)
    shard.write_bytes(whole)


@ONCE
@given(st.integers(0, 5_000_000))
@example(0)
@example(3)
@example(4)
def test_a_shorter_file_is_noticed(shard: Path, length: int) -> None:
    whole = shard.read_bytes()
    shard.write_bytes(whole[: min(length, len(whole) - 1)])
    with pytest.raises(BadChunkError):
        read_shard(shard, FLOAT, 0, 1)
    shard.write_bytes(whole)


@pytest.mark.parametrize(
    "entry",
    [
        (0, 2**64 - 1),
        (2**64 - 1, 2**64 - 1),
        (2**63, 20),
        (10**12, 20),
        (0, 0),
        (0, 3),
        (0, 12),
        (1, 200),
    ],
)
def test_an_index_that_lies_is_noticed_though_its_sum_is_right(
    shard: Path, entry: tuple[int, int]
) -> None:
    whole = bytearray(shard.read_bytes())
    index = struct.pack("<QQ", *entry) + whole[-244:-4]
    whole[-260:] = index + struct.pack("<I", google_crc32c.value(index))
    shard.write_bytes(whole)
    with pytest.raises(BadChunkError):
        read_shard(shard, FLOAT, 0, 1)


@pytest.mark.parametrize("unpacked", [0, 8, CHUNK_SAMPLES * 8 - 1, 2**31, 2**32 - 1])
def test_a_chunk_that_says_another_length_is_noticed(shard: Path, unpacked: int) -> None:
    whole = bytearray(shard.read_bytes())
    offset, size = struct.unpack_from("<QQ", whole, len(whole) - 260)
    whole[offset + 4 : offset + 8] = struct.pack("<I", unpacked)
    body = bytes(whole[offset : offset + size - 4])
    whole[offset + size - 4 : offset + size] = struct.pack("<I", google_crc32c.value(body))
    shard.write_bytes(whole)
    with pytest.raises(BadChunkError, match="samples 0 to 65536"):
        read_shard(shard, FLOAT, 0, 1)
