"""Code that most open meters share: readings between two times, counters, and closing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from typing import Any

from sites.gpu_error import Closable
from sites.meters.shared.counter import Counter
from sites.meters.shared.kept_file import KeptFile, Remedies, parse_number
from sites.meters.shared.meter import Channel, MeterError, Reading


class OpenMeter:
    """An open meter of counters and powers. For one thread only.

    Args:
        name: its kind.
        channels: its channels.
        counters: for each channel, the counter that unwraps its energy; None for a power.
        read_raw: reads all channels, in order: counters and powers in their raw units; raises
            MeterError.
        resources: closed with the meter.
        units_per_w: raw units of power in a watt.
    """

    def __init__(
        self,
        name: str,
        channels: Sequence[Channel],
        counters: Sequence[Counter | None],
        read_raw: Callable[[], Sequence[Any]],
        resources: Closable,
        *,
        units_per_w: float = 1.0,
    ) -> None:
        self.name = name
        self.channels = tuple(channels)
        self.counters = tuple(counters)
        self._read_raw = read_raw
        self._resources = resources
        self._units_per_w = units_per_w
        self._is_open = True

    def read(self) -> Reading:
        """All channels: energies in J since the first reading, powers in W.

        All are read before any counter is updated, so that no energy is lost if a channel cannot
        be read now but can be read later.

        Raises:
            MeterError: a channel cannot be read, a counter has no plausible energy since the last
                reading, or the meter is closed.
        """
        self.refuse_closed()
        start_ns = time.monotonic_ns()
        raw = self._read_raw()
        return self.take(raw, start_ns, time.monotonic_ns())

    def take(self, raw: Sequence[Any], start_ns: int, end_ns: int) -> Reading:
        """The result of :meth:`read` for these raw values, read between the two times."""
        self.refuse_closed()
        values = tuple(
            value / self._units_per_w
            if counter is None
            else counter.update(value, start_ns, end_ns)
            for value, counter in zip(raw, self.counters, strict=True)
        )
        return Reading((start_ns + end_ns) // 2, values)

    def refuse_closed(self) -> None:
        """Raise MeterError if the meter is closed."""
        if not self._is_open:
            raise MeterError(f"internal error: the {self.name} meter is closed", "please report it")

    def close(self) -> None:
        """Release the meter's resources; closing again does nothing."""
        self._is_open = False
        self._resources.close()


class FileMeter(OpenMeter):
    """An open meter whose readings are whole numbers in files, one or more for each channel."""

    def __init__(
        self,
        name: str,
        channels: Sequence[Channel],
        counters: Sequence[Counter | None],
        files: Sequence[KeptFile],
        resources: ExitStack,
        *,
        units_per_w: float = 1.0,
    ) -> None:
        self._files = tuple(files)
        super().__init__(
            name, channels, counters, self._read_files, resources, units_per_w=units_per_w
        )

    def _read_files(self) -> list[int]:
        return [file.read_number() for file in self._files]

    def take(self, raw: Sequence[Any], start_ns: int, end_ns: int) -> Reading:
        """See :meth:`OpenMeter.take`; a number below 0 is refused as by :meth:`read`."""
        for file, number in zip(self._files, raw, strict=True):
            if number < 0:
                parse_number(file.path, b"%d" % number, file.remedies)
        return super().take(raw, start_ns, end_ns)

    def descriptors(self) -> tuple[int, ...]:
        """The open files of the last :meth:`read`, in the order of the channels.

        A later replacement of a file is not noticed; it does not happen on a real machine.

        Raises:
            MeterError: the meter is closed.
        """
        self.refuse_closed()
        return tuple(file.descriptor for file in self._files)


def keep_open(resources: ExitStack, paths: Iterable[object], remedies: Remedies) -> list[KeptFile]:
    """Open these files, and close them with ``resources``; raises MeterError."""
    return [resources.enter_context(closing(KeptFile(str(path), remedies))) for path in paths]
