"""Traces as a folder of Zarr that xarray reads by itself: export writes it, import reads it.

::

    import xarray
    traces = xarray.open_zarr(FOLDER)

Dimension ``trace``: one channel of one measurement, with ``point_id``, ``channel``, ``domain``,
``unit``, and its samples, which are those from ``row_start`` to ``row_start + row_size``.
Dimension ``sample``: ``time_ns`` (int64, nanoseconds since the window's start) and ``value``
(float64, in the trace's unit). It is the contiguous ragged array of the CF conventions, 9.3.3.
"""

from __future__ import annotations

import shutil
import struct
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BytesCodec, VLenUTF8Codec, ZstdCodec
from zarr.core.buffer import Buffer
from zarr.core.metadata import ArrayV3Metadata
from zarr.storage import LocalStore, WrapperStore

from campaign.store.columns import CHUNK_SAMPLES, SAMPLES
from campaign.store.layout import Store
from campaign.store.measurement import Trace
from campaign.store.tables import read_traces
from dvfs.files import MAX_BYTES, NotRegularError, TooLargeError
from dvfs.input_files import FileError

TEXTS = ("point_id", "channel", "domain", "unit")
WHOLES = ("row_start", "row_size")
BATCH_SAMPLES = 1 << 22
MAX_TRACES = 50_000_000
MAX_TRACE_SAMPLES = 1 << 26
"""The most samples of a trace, which is held in memory: 18 hours at 1 kHz."""
MAX_CHUNK_BYTES = 64 << 20
"""The most bytes of an unpacked chunk; export writes chunks of half a MiB."""
CODECS = (BytesCodec, VLenUTF8Codec, ZstdCodec)
"""The codecs of the arrays that export writes."""
ZSTD_MAGIC = 0xFD2FB528
CONVENTIONS = "CF-1.11"
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "point_id": {"long_name": "id of the measured point, as in the table"},
    "channel": {"long_name": "channel of a meter"},
    "domain": {"long_name": "part of the node that the channel measures"},
    "unit": {"long_name": "unit of the channel's values"},
    "row_start": {"long_name": "first sample of the trace"},
    "row_size": {"long_name": "number of samples of the trace", "sample_dimension": "sample"},
    "time_ns": {"long_name": "time since the window's start in nanoseconds"},
    "value": {"long_name": "value of the channel, in the trace's unit"},
}


def write_traces(store: Store, folder: Path) -> int:
    """Write all traces of a compacted store, and return their number.

    Raises:
        OSError: it cannot be written, or ``folder`` exists and is not empty.
        DamagedStoreError: a sample cannot be read.
    """
    stored = read_traces(store)
    order = np.argsort(stored["row_start"], kind="stable")
    starts, sizes = (stored[name][order] for name in WHOLES)
    new_starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    columns: dict[str, np.ndarray] = {
        name: stored[f"trace_{name}"][order].astype(object) for name in TEXTS[1:]
    }
    owners = stored["trace_measurement"][order]
    columns["point_id"] = stored["point_id"][owners].astype(object)
    columns |= {"row_start": new_starts[:-1], "row_size": sizes.astype(np.int64)}
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(17, "exists and is not empty", str(folder))
    try:
        group = zarr.create_group(folder, attributes={"Conventions": CONVENTIONS})
        for name in (*TEXTS, *WHOLES):
            _create(group, name, "trace", columns[name])
        for name, dtype in SAMPLES.items():
            array = _create(group, name, "sample", np.empty(0, dtype))
            array.resize((int(new_starts[-1]),))
            for first, last in _batches(sizes):
                low, high = int(starts[first]), int(starts[last - 1] + sizes[last - 1])
                block = stored.arrays[name][low:high]
                spans = zip(starts[first:last] - low, sizes[first:last], strict=True)
                array[int(new_starts[first]) : int(new_starts[last])] = np.concatenate(
                    [block[begin : begin + size] for begin, size in spans]
                )
        with warnings.catch_warnings():  # it is not in Zarr's specification yet
            warnings.simplefilter("ignore")
            zarr.consolidate_metadata(group.store)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return len(order)


def _create(group: zarr.Group, name: str, dimension: str, values: np.ndarray) -> zarr.Array[Any]:
    is_text = values.dtype.kind == "O"
    array = group.create_array(
        name,
        shape=values.shape,
        chunks=(CHUNK_SAMPLES,),
        dtype=str if is_text else values.dtype,
        fill_value=np.nan if values.dtype.kind == "f" else None,
        dimension_names=(dimension,),
        attributes=ATTRIBUTES[name],
    )
    if values.size:
        array[:] = values.astype(np.dtypes.StringDType()) if is_text else values
    return array


def _batches(sizes: np.ndarray) -> Iterator[tuple[int, int]]:
    """Ranges of traces (first, after the last) of about :data:`BATCH_SAMPLES` samples."""
    first, total = 0, 0
    for i, size in enumerate(sizes.tolist()):
        total += size
        if total >= BATCH_SAMPLES or i == len(sizes) - 1:
            yield first, i + 1
            first, total = i + 1, 0


class BoundedStore(WrapperStore[LocalStore]):
    """A folder of untrusted Zarr arrays: only regular files, with chunks of a bounded size."""

    def __init__(self, folder: Path) -> None:
        super().__init__(LocalStore(folder, read_only=True))
        self.most_bytes: int | None = MAX_BYTES
        """The most bytes of all chunks that are still to be read."""

    async def get(self, key: str, *arguments: Any, **options: Any) -> Buffer | None:
        """See :meth:`zarr.abc.store.Store.get`.

        Raises:
            NotRegularError, TooLargeError: the file is not regular, or is too large.
        """
        path = self._store.root / key
        if path.exists():
            if not path.is_file():
                raise NotRegularError(path)
            if path.stat().st_size > MAX_CHUNK_BYTES:
                raise TooLargeError(path, MAX_CHUNK_BYTES)
        data = await super().get(key, *arguments, **options)
        if data is not None and not key.endswith("zarr.json"):
            size = zstd_bytes(data.to_bytes())
            if size is None or size > MAX_CHUNK_BYTES:
                raise TooLargeError(path, MAX_CHUNK_BYTES)
            if self.most_bytes is not None:
                self.most_bytes -= size
                if self.most_bytes < 0:
                    raise TooLargeError(self._store.root, MAX_BYTES)
        return data


def zstd_bytes(packed: bytes) -> int | None:
    """The unpacked size in bytes of a Zstandard frame, from its header (RFC 8878, section 3.1.1.1);
    None if the header does not state it."""
    head = packed[:18].ljust(18, b"\0")
    magic, descriptor = struct.unpack_from("<IB", head)
    if magic != ZSTD_MAGIC:
        return None
    single = bool(descriptor & 0x20)
    width = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    offset = 5 + (not single) + (0, 1, 2, 4)[descriptor & 3]
    if not width:
        return None
    size = int.from_bytes(head[offset : offset + width], "little")
    return size + 256 if width == 2 else size


class TraceFolder(Mapping[str, Sequence[Trace]]):
    """Point id -> traces, in a folder that export wrote. Its own order is the fastest to read."""

    def __init__(self, folder: Path) -> None:
        """Open and check the folder.

        Raises:
            FileError: it is not such a folder.
        """
        self._folder = folder
        if not (folder / "zarr.json").is_file():
            raise FileError(
                "is not a folder of traces",
                "name one that campaign export --traces wrote",
                f"{folder}",
            )
        try:
            store = BoundedStore(folder)
            self._group = zarr.open_group(store, mode="r", zarr_format=3)
            self._texts = {name: self._column(name).astype(object) for name in TEXTS}
            starts, sizes = (self._column(name).astype(np.int64) for name in WHOLES)
            n_samples = {self._array(name).shape[0] for name in SAMPLES}
            lengths = {len(column) for column in (*self._texts.values(), starts, sizes)}
            if len(lengths) != 1 or len(n_samples) != 1:
                raise ValueError("its arrays have different lengths")
            last = n_samples.pop()
            if ((starts < 0) | (sizes < 0) | (starts > last - sizes)).any():
                raise ValueError("a trace lies outside of the samples")
            if (sizes > MAX_TRACE_SAMPLES).any():
                raise ValueError(f"a trace has more than {MAX_TRACE_SAMPLES} samples")
            store.most_bytes = None  # samples are read in blocks
        except Exception as error:  # Zarr may raise anything
            raise self._bad(error) from None
        self._starts, self._sizes = starts, sizes
        self._of_point: dict[str, list[int]] = {}
        for i, point_id in enumerate(self._texts["point_id"].tolist()):
            self._of_point.setdefault(point_id, []).append(i)
        self._block: tuple[int, int, dict[str, np.ndarray]] = (0, 0, {})

    def __iter__(self) -> Iterator[str]:
        return iter(self._of_point)

    def __len__(self) -> int:
        return len(self._of_point)

    def __getitem__(self, point_id: str) -> Sequence[Trace]:
        """A point's traces.

        Raises:
            FileError: they cannot be read.
        """
        traces = []
        for i in self._of_point[point_id]:
            start, size = int(self._starts[i]), int(self._sizes[i])
            try:
                samples = self._samples(start, start + size)
            except Exception as error:
                raise self._bad(error) from None
            channel, domain, unit = (str(self._texts[name][i]) for name in TEXTS[1:])
            traces.append(Trace(channel, domain, unit, samples["time_ns"], samples["value"]))
        return traces

    def _samples(self, start: int, end: int) -> dict[str, np.ndarray]:
        low, high, block = self._block
        if not low <= start <= end <= high:
            low, high = start, max(end, start + BATCH_SAMPLES)
            block = {
                name: np.asarray(self._array(name)[low:high]).astype(dtype, casting="safe")
                for name, dtype in SAMPLES.items()
            }
            self._block = low, high, block
        return {name: values[start - low : end - low] for name, values in block.items()}

    def _array(self, name: str) -> zarr.Array[Any]:
        array = self._group[name]
        if not isinstance(array, zarr.Array) or array.ndim != 1:
            raise ValueError(f"{name} is no array of one dimension")
        metadata = array.metadata
        codecs = metadata.codecs if isinstance(metadata, ArrayV3Metadata) else ()
        if not codecs or not all(isinstance(codec, CODECS) for codec in codecs):
            raise ValueError(f"{name} is not packed as export packs it")
        return array

    def _column(self, name: str) -> np.ndarray:
        array = self._array(name)
        if array.shape[0] > MAX_TRACES:
            raise ValueError(f"it has more than {MAX_TRACES} traces")
        return np.asarray(array[:])

    def _bad(self, error: Exception) -> FileError:
        return FileError(
            f"is not a folder of traces ({type(error).__name__}: {error})",
            "name one that campaign export --traces wrote",
            str(self._folder),
        )
