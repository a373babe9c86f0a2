"""The points of a plan in a compact table, in the order in which they are measured.

Ten million points take some hundred megabytes. A row is 24 bytes of id and a number that says which
kernel entry, parameters and setting it is; :class:`~campaign.plan.point.Point` objects are made
when they are asked for.
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
"""At most so many points of a setting follow each other."""
ID = np.dtype(f"S{ID_CHARS}")
DIGEST_BYTES = hashlib.sha256().digest_size
CHUNK = 1 << 16
ShowCount = Callable[[int], None]
"""Is called now and then with how many points have been planned so far."""


def in_batches(
    block: np.ndarray, settings: Sequence[Setting], seed: int, repeat: int
) -> np.ndarray:
    """A block's points in batches of one setting.

    ``block``: shape (inputs * settings,), input * len(settings) + setting, in random order; every
    setting has all inputs. The points of a setting are divided at random into batches of
    :data:`BATCH` at most. In each round every setting has one batch, in a random order of the
    settings that is a new one in each round: that of a hash of seed, repeat, round and setting.
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
    """The points of one partition, in the order in which they are measured.

    ``order``: shape (points,), uint32; input * len(settings) + setting. ``ids``: (points,), bytes.
    Both begin with the points of the first repeat, then those of the second, and so on; ``ends``:
    where each of these blocks ends.
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
        """The points of some candidates (input * len(settings) + setting), all repeats of each, in
        this order."""
        kept = np.isin(self.order, candidates)
        before = np.concatenate([[0], np.cumsum(kept)])
        return replace(
            self, order=self.order[kept], ids=self.ids[kept], ends=before[self.ends].tolist()
        )

    def with_repeats(self, repeats: Mapping[int, int]) -> PartitionPoints:
        """These points and further repeats: candidate -> how often it is measured in all. Those of
        a block come after its own points."""
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
        """The id of a repeat of a candidate, also of one that is not among these points."""
        return make_point(**self._content(code), repeat=repeat).id

    def _point(self, index: int) -> Point:
        content = self._content(int(self.order[index]))
        return Point(**content, repeat=bisect_right(self.ends, index), id=self.ids[index].decode())

    def _content(self, code: int) -> dict[str, Any]:
        """What the points of a candidate have in common."""
        which, setting = divmod(code, len(self.settings))
        content = vars(self.inputs[which])
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
        left = range(len(self))[index]
        for part in self.parts:
            if left < len(part):
                return part[left]
            left -= len(part)
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
    """All points of a partition: a block for each repeat, in a random order of its own;
    ``repeats``: of each input; ``batched``: as :func:`in_batches` does."""
    often = np.array(repeats)
    sizes = [int((often > repeat).sum()) * len(settings) for repeat in range(max(repeats))]
    order = np.empty(sum(sizes), np.uint32)
    ids = np.empty(sum(sizes), ID)
    ends = list(itertools.accumulate(sizes))
    fronts, among = None, np.zeros(0, np.int64)
    for repeat, (count, end) in enumerate(zip(sizes, ends, strict=True)):
        if fronts is None or count < len(among) * len(settings):
            among = np.flatnonzero(often > repeat)
            fronts = _Fronts(partition, [inputs[i] for i in among.tolist()], settings)
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
            # A point's place is a hash of seed, repeat and id: random, and the same with every
            # version of any library.
            front = f"{seed}:{repeat}:".encode()
            keys[start:stop] = _digests(front + name for name in unordered[start:stop].tolist())
            show(end - count + stop)
        # Big-endian words compare as the digests do; lexsort's last key is the first word.
        words = keys.view(">u8")
        block = np.lexsort(words.T[::-1])
        block = in_batches(block, settings, seed, repeat) if batched else block
        order[end - count : end] = among[block // len(settings)] * len(settings) + block % len(
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
    """SHA-256 of each, shape (n, 32), uint8."""
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
                f'{{"core_mhz":{text(one["core_mhz"])}'.encode(),
                text(one["mem_mhz"]).encode(),
                "".join(
                    f'"{name}":{text(one[name])},'
                    for name in ("power_limit_w", "profile")
                    if name in one
                ).encode(),
            )
            for one in parts
        ]
        self.ends = [
            f',"uncore_mhz":{text(one["uncore_mhz"])}}}'.encode() if "uncore_mhz" in one else b"}"
            for one in parts
        ]
        """How the content of the points at each setting ends."""
        self._inputs = [
            (
                f',"kernel":{text(one.kernel)},"label":{text(one.label)},"mem_mhz":'.encode(),
                f',"params":{text(one.params)},"partition":{text(partition)},'.encode(),
                f'"ranks":{one.ranks},'.encode(),
            )
            for one in inputs
        ]
        self._few: list[bytes] | None = None

    def chunk(self, start: int, stop: int) -> list[bytes]:
        """Those of the points ``start`` to ``stop`` of a repeat, in the files' order."""
        if self._few is not None:
            return self._few
        many = len(self._settings)
        fronts = []
        for which in range(start // many, -(-stop // many)):
            name, params, ranks = self._inputs[which]
            first = which * many
            chunk = self._settings[max(start - first, 0) : stop - first]
            fronts += [core + name + mem + params + other + ranks for core, mem, other in chunk]
        if len(self._inputs) * many <= CHUNK:
            self._few = fronts
        return fronts
