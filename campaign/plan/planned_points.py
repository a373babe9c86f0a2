"""The points of a plan in a compact table, in the order of measurement.

Ten million points take some hundred megabytes. A row is an id of 24 bytes, and a number that
identifies the kernel entry, parameters and setting; :class:`~campaign.plan.point.Point` objects are
created on access.
"""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np

from campaign.plan.point import ID_CHARS, Point, content_value, point_ids
from dvfs.setting import AXES, Setting

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
        return Point(**self._content(code), repeat=repeat).id

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
    for repeat, (count, end) in enumerate(zip(sizes, ends, strict=True)):
        repeated = np.flatnonzero(input_repeats > repeat)
        unordered = np.empty(count, ID)
        keys = np.empty((count, DIGEST_BYTES), np.uint8)
        # The order of a hash of seed, repeat and id is random, with any version of a library.
        front = f"{seed}:{repeat}:".encode()
        for start in range(0, count, CHUNK):
            stop = min(start + CHUNK, count)
            of_input, of_setting = np.divmod(np.arange(start, stop), len(settings))
            chunk = [inputs[i] for i in repeated[of_input[0] : of_input[-1] + 1].tolist()]
            of_input -= of_input[0]
            constant = {"site": site, "partition": partition, "repeat": repeat}
            unordered[start:stop] = _ids(constant, chunk, of_input, settings, of_setting)
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


def _ids(
    constant: Mapping[str, Any],
    inputs: Sequence[Input],
    of_input: np.ndarray,
    settings: Sequence[Setting],
    of_setting: np.ndarray,
) -> np.ndarray:
    """The ids of points, S24 (points,). ``constant``: the content that all of them share;
    ``of_input``, ``of_setting``: the index of each point's input and setting, int (points,)."""
    values = {name: ([value], np.zeros_like(of_input)) for name, value in constant.items()}
    for name in ("kernel", "label", "params", "ranks"):
        values[name] = [getattr(entry, name) for entry in inputs], of_input
    for name in AXES:
        values[name] = [content_value(getattr(setting, name)) for setting in settings], of_setting
    columns = {}
    for name, (listed, codes) in values.items():
        number = {value: i for i, value in enumerate(dict.fromkeys(listed))}
        columns[name] = np.array([number[value] for value in listed])[codes], list(number)
    return point_ids(columns)
