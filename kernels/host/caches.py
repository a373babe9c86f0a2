"""The node's caches, and the size of the working set that a level of memory serves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernels.kernel import KernelError

Level = Literal["l1", "l2", "l3", "dram"]
"""A level of the memory hierarchy that serves loads."""

CACHES_OF_CPU0 = Path("/sys/devices/system/cpu/cpu0/cache")

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30
_UNITS = {"K": _KIB, "M": _MIB, "G": _GIB}


@dataclass(frozen=True)
class Cache:
    """A data or unified cache.

    Attributes:
        level: 1, 2, 3, or 4 where the node has one.
        size_bytes: size of one instance.
        line_bytes: size of a line.
        sharing: number of logical processors that share an instance.
    """

    level: int
    size_bytes: int
    line_bytes: int
    sharing: int


def read_caches(root: Path = CACHES_OF_CPU0) -> list[Cache]:
    """The data and unified caches of the first processor, sorted by level.

    Source: the Linux kernel's ``index*`` directories (Documentation/ABI/testing/
    sysfs-devices-system-cpu). A core uses one instance of each cache, so one processor represents
    all.

    Args:
        root: a processor's ``cache`` directory.

    Raises:
        KernelError: ``root`` describes no data cache, or a description cannot be read.
    """
    caches = []
    for index in sorted(root.glob("index[0-9]*")):
        try:
            if _text(index / "type") == "Instruction":
                continue
            caches.append(
                Cache(
                    level=int(_text(index / "level")),
                    size_bytes=_bytes(_text(index / "size")),
                    line_bytes=int(_text(index / "coherency_line_size")),
                    sharing=_cpus(_text(index / "shared_cpu_list")),
                )
            )
        except (OSError, ValueError) as error:
            raise KernelError(f"cannot read the cache described in {index}: {error}") from error
    if not caches:
        raise KernelError(f"the node describes no data cache in {root}")
    return sorted(caches, key=lambda cache: cache.level)


def memory_bytes() -> int:
    """The node's physical memory in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def working_set_bytes(level: Level, caches: Sequence[Cache], memory: int, parts: int = 1) -> int:
    """The working set in bytes, a power of two, that one of ``parts`` threads loads from a level.

    l1: at most three quarters of the cache. l2 and l3: six times the next smaller cache, so that
    little of the data is still in it at the next pass, and at most half of the cache; at least
    twice the smaller one. dram: four times the largest cache and at least 64 MiB; at most 1 GiB,
    and a quarter of the memory for all parts together. A cache is divided among the parts that
    may share it.

    Args:
        level: the level that serves the loads.
        caches: the node's, from :func:`read_caches`.
        memory: the node's memory in bytes.
        parts: number of threads on the node, each with a separate working set.

    Raises:
        KernelError: the node has no such level, or no size fits.
    """
    share = {c.level: c.size_bytes // min(parts, c.sharing) for c in caches}
    size = {c.level: c.size_bytes for c in caches}
    if level == "dram":
        largest = max(size.values())
        chosen = min(
            _power_of_two_from(max(4 * largest, 64 * _MIB)),
            _GIB,
            _power_of_two_to(memory // 4 // parts),
        )
        if chosen < 2 * max(share.values()):
            raise KernelError(
                f"no working set for dram: {parts} x {chosen} bytes (a quarter of the memory, "
                f"at most 1 GiB each) are less than twice the largest cache, {largest} bytes"
            )
        return chosen
    number = int(level[1:])
    if number not in size:
        present = ", ".join(f"l{n}" for n in sorted(size))
        raise KernelError(f"the node has no {level} cache, only {present}")
    if number == 1:
        return _power_of_two_to(share[1] * 3 // 4)
    # The smaller cache may also hold other parts' data, but no part has more than all of it.
    smaller = max((s for n, s in size.items() if n < number), default=0)
    chosen = min(_power_of_two_from(6 * smaller), _power_of_two_to(share[number] // 2))
    if chosen < 2 * smaller:
        raise KernelError(
            f"no working set for {level}: half of it, shared by {parts} part(s), is "
            f"{share[number] // 2} bytes, less than twice the next smaller cache's {smaller}"
        )
    return chosen


def _text(path: Path) -> str:
    return path.read_text(encoding="ascii").strip()


def _bytes(text: str) -> int:
    """The bytes of a size such as "48K"."""
    return int(text[:-1]) * _UNITS[text[-1]] if text[-1:] in _UNITS else int(text)


def _cpus(text: str) -> int:
    """The number of processors in a list such as "0-3,8"."""
    ranges = [part.split("-") for part in text.split(",")]
    return sum(int(ends[-1]) - int(ends[0]) + 1 for ends in ranges)


def _power_of_two_to(limit: int) -> int:
    """The largest power of two that is not above the limit."""
    return 1 << (max(limit, 1).bit_length() - 1)


def _power_of_two_from(limit: int) -> int:
    """The smallest power of two that is not below the limit."""
    return 1 << (max(limit, 1) - 1).bit_length()
