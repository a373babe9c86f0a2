"""The points of a plan in a compact table, in the order of measurement.

Ten million points take some hundred megabytes. A row is an id of 24 bytes, and a number that
identifies the kernel entry, parameters and setting; :class:`~campaign.plan.point.Point` objects are
created on access.
"""

from __future__ import annotations

import hashlib
import itertools
from binascii import hexlify
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np

from campaign.plan.point import ID_CHARS, Point, canonical_json, make_point
from dvfs.setting import Setting

BATCH = 16
"""The most points of a setting that follow each other."""
ID = np.dtype(f"S{ID_CHARS}")
DIGEST_BYTES = hashlib.sha256().digest_size
CHUNK = 1 << 16
ShowCount = Callable[[int], None]
"""A function that is called now and then with the number of points planned so far."""


def in_batches(
    block: np.ndarray, settings: Sequence[Setting], seed: int, repeat: int
) -> np.ndarray:
    """The points of a block in batches of one setting.

    ``block``: shape (inputs * settings,), input * len(settings) + setting, in random order; every
    setting has all inputs. The points of a setting are divided at random into batches of at most
    :data:`BATCH`. In each round every setting has one batch. The order of the settings is random in
    each round, by a hash of seed, repeat, round and setting.
    """
    of_setting = block[np.argsort(block % len(settings), kind="stable")].reshape(len(settings), -1)
    rounds = -(-of_setting.shape[1] // BATCH)
    batches = []
    for turn in range(rounds):
        front = f"{seed}:{repeat}:{turn}:"
        keys = [hashlib.sha256((front + s.hash_text).encode()).digest() for s in settings]
        places = sorted(range(len(settings)), key=keys.__getitem__)
        batches += [of_setting[place, turn::rounds] for place in places]
    return np.concatenate(batches)


@dataclass(frozen=True)
class Input:
    """A kernel entry's name, label, ranks and one of its parameter sets (canonical JSON)."""

    kernel: str
    label: str
    params: str
    ranks: int


@dataclass(frozen=True, eq=False, kw_only=True)
class PartitionPoints(Sequence[Point]):
    """The points of one partition, in the order of measurement.

    ``order``: shape (points,), uint32; input * len(settings) + setting. ``ids``: (points,), bytes.
    In both, the points of the first repeat come first, then those of the second, and so on.
    ``ends``: the end of each of these blocks.
    """

    site: str
    partition: str
    inputs: Sequence[Input]
    settings: Sequence[Setting]
    order: np.ndarray
    ids: np.ndarray
    ends: Sequence[int]

    def __len__(self) -> int:
        return int(self.order.size)

    @overload
    def __getitem__(self, index: int) -> Point: ...
    @overload
    def __getitem__(self, index: slice) -> list[Point]: ...
    def __getitem__(self, index: int | slice) -> Point | list[Point]:
        if isinstance(index, slice):
            return [self._point(i) for i in range(len(self))[index]]
        return self._point(range(len(self))[index])

    def __iter__(self) -> Iterator[Point]:
        return map(self._point, range(len(self)))

    def only(self, candidates: np.ndarray) -> PartitionPoints:
        """The points of some candidates (input * len(settings) + setting), with all repeats, in the
        same order."""
        is_kept = np.isin(self.order, candidates)
        before = np.concatenate([[0], np.cumsum(is_kept)])
        return replace(
            self, order=self.order[is_kept], ids=self.ids[is_kept], ends=before[self.ends].tolist()
        )

    def with_repeats(self, repeats: Mapping[int, int]) -> PartitionPoints:
        """Add further repeats. ``repeats``: candidate -> its total number of repeats. The new
        points of a block come after its other points."""
        planned = np.bincount(self.order, minlength=len(self.inputs) * len(self.settings))
        most = max([len(self.ends), *repeats.values()])
        bounds = [0, *self.ends] + [len(self)] * (most - len(self.ends))
        order: list[int] = []
        ids: list[bytes] = []
        ends = []
        for repeat, (start, end) in enumerate(itertools.pairwise(bounds)):
            more = sorted(code for code, n in repeats.items() if planned[code] <= repeat < n)
            order += [*self.order[start:end].tolist(), *more]
            ids += [
                *self.ids[start:end].tolist(),
                *(self.point_id(code, repeat).encode() for code in more),
            ]
            ends.append(len(order))
        return replace(
            self, order=np.array(order, self.order.dtype), ids=np.array(ids, ID), ends=ends
        )

    def point_id(self, code: int, repeat: int) -> str:
        """The id of a repeat of a candidate, even one that is not among these points."""
        return make_point(**self._content(code), repeat=repeat).id

    def _point(self, index: int) -> Point:
        content = self._content(int(self.order[index]))
        return Point(**content, repeat=bisect_right(self.ends, index), id=self.ids[index].decode())

    def _content(self, code: int) -> dict[str, Any]:
        """The content that all points of a candidate share."""
        input_index, setting = divmod(code, len(self.settings))
        content = vars(self.inputs[input_index])
        place = {"site": self.site, "partition": self.partition}
        return {**place, **content, "setting": self.settings[setting]}


@dataclass(frozen=True, eq=False)
class PlannedPoints(Sequence[Point]):
    """The points of all partitions, one partition after another."""

    parts: Sequence[PartitionPoints]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @overload
    def __getitem__(self, index: int) -> Point: ...
    @overload
    def __getitem__(self, index: slice) -> list[Point]: ...
    def __getitem__(self, index: int | slice) -> Point | list[Point]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        position = range(len(self))[index]
        for part in self.parts:
            if position < len(part):
                return part[position]
            position -= len(part)
        raise IndexError(index)

    def __iter__(self) -> Iterator[Point]:
        return itertools.chain.from_iterable(self.parts)


def partition_points(
    *,
    site: str,
    partition: str,
    inputs: Sequence[Input],
    settings: Sequence[Setting],
    repeats: Sequence[int],
    seed: int,
    batched: bool,
    show: ShowCount,
) -> PartitionPoints:
    """All points of a partition, in a block for each repeat. The random order differs between
    blocks. ``repeats``: the number for each input; ``batched``: apply :func:`in_batches`."""
    input_repeats = np.array(repeats)
    sizes = [int((input_repeats > repeat).sum()) * len(settings) for repeat in range(max(repeats))]
    order = np.empty(sum(sizes), np.uint32)
    ids = np.empty(sum(sizes), ID)
    ends = list(itertools.accumulate(sizes))
    fronts, repeated = None, np.zeros(0, np.int64)
    for repeat, (count, end) in enumerate(zip(sizes, ends, strict=True)):
        if fronts is None or count < len(repeated) * len(settings):
            repeated = np.flatnonzero(input_repeats > repeat)
            fronts = _Fronts(partition, [inputs[i] for i in repeated.tolist()], settings)
        back = f'"repeat":{repeat},"site":{canonical_json(site)}'.encode()
        backs = [back + end for end in fronts.ends]
        unordered = np.empty(count, ID)
        keys = np.empty((count, DIGEST_BYTES), np.uint8)
        for start in range(0, count, CHUNK):
            stop = min(start + CHUNK, count)
            numbered = enumerate(fronts.chunk(start, stop), start)
            digests = _digests(front + backs[i % len(backs)] for i, front in numbered)
            unordered[start:stop] = np.frombuffer(
                hexlify(digests[:, : ID_CHARS // 2].tobytes()), ID
            )
            # The order of a hash of seed, repeat and id is random, with any version of a library.
            front = f"{seed}:{repeat}:".encode()
            keys[start:stop] = _digests(front + name for name in unordered[start:stop].tolist())
            show(end - count + stop)
        # Big-endian words compare as the digests do; lexsort's last key is the first word.
        words = keys.view(">u8")
        block = np.lexsort(words.T[::-1])
        block = in_batches(block, settings, seed, repeat) if batched else block
        order[end - count : end] = repeated[block // len(settings)] * len(settings) + block % len(
            settings
        )
        ids[end - count : end] = unordered[block]
    return PartitionPoints(
        site=site,
        partition=partition,
        inputs=inputs,
        settings=settings,
        order=order,
        ids=ids,
        ends=ends,
    )


def _digests(texts: Iterable[bytes]) -> np.ndarray:
    """The SHA-256 of each text, shape (n, 32), uint8."""
    sha256 = hashlib.sha256
    joined = b"".join([sha256(text).digest() for text in texts])
    return np.frombuffer(joined, np.uint8).reshape(-1, DIGEST_BYTES)


class _Fronts:
    """The content of points as canonical JSON, up to their repeat: see
    :func:`campaign.plan.point.point_id`. The keys come in the order of their names."""

    def __init__(
        self, partition: str, inputs: Sequence[Input], settings: Sequence[Setting]
    ) -> None:
        def text(value: float | str | None) -> str:
            return canonical_json(value)

        parts = [
            make_point(
                site="", partition="", kernel="", label="", params="", ranks=1, setting=s, repeat=0
            ).as_dict()
            for s in settings
        ]
        self._settings = [
            (
                f'{{"core_mhz":{text(content["core_mhz"])}'.encode(),
                text(content["mem_mhz"]).encode(),
                "".join(
                    f'"{name}":{text(content[name])},'
                    for name in ("power_limit_w", "profile")
                    if name in content
                ).encode(),
            )
            for content in parts
        ]
        self.ends = [
            f',"uncore_mhz":{text(content["uncore_mhz"])}}}'.encode()
            if "uncore_mhz" in content
            else b"}"
            for content in parts
        ]
        """The end of the content of the points at each setting."""
        self._inputs = [
            (
                f',"kernel":{text(entry.kernel)},"label":{text(entry.label)},"mem_mhz":'.encode(),
                f',"params":{text(entry.params)},"partition":{text(partition)},'.encode(),
                f'"ranks":{entry.ranks},'.encode(),
            )
            for entry in inputs
        ]
        self._cached: list[bytes] | None = None

    def chunk(self, start: int, stop: int) -> list[bytes]:
        """The fronts of the points ``start`` to ``stop`` of a repeat, in the order of the files."""
        if self._cached is not None:
            return self._cached
        n_settings = len(self._settings)
        fronts = []
        for i in range(start // n_settings, -(-stop // n_settings)):
            name, params, ranks = self._inputs[i]
            first = i * n_settings
            chunk = self._settings[max(start - first, 0) : stop - first]
            fronts += [core + name + mem + params + more + ranks for core, mem, more in chunk]
        if len(self._inputs) * n_settings <= CHUNK:
            self._cached = fronts
        return fronts
