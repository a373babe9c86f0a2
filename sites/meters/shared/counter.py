"""Unwrap energy counters: from raw readings to joules that never decrease.

A hardware energy counter is an integer that restarts at zero when it reaches its range. All meters
pass the readings of counters through :class:`Counter`, so the rules are written once:

- A reading that is not less than the last one adds the difference.
- A reading that is less than the last one is a wrap: it adds ``reading + range - last``. Without
  a known range it is an error.
- Where the greatest possible power is known, no step may exceed this power times the time between
  the two readings. This bound distinguishes a wrap from a reset: after a reset the step through the
  wrap would be too large, unless the counter was within the bound of its range. In that case the
  two cannot be separated, and the step, which is plausible, counts as a wrap.
- If that bound is as large as the range, one wrap could hide another, so the reading is refused for
  any value.
- After an error every update fails until the meter is opened again, because later readings would
  look right while an unknown energy is missing.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NoReturn

from sites.meters.shared.meter import MeterError

NS_PER_S = 10**9
OPEN_AGAIN = "discard the measurement and open the meter again"


class Counter:
    """An energy counter, unwrapped in integers; only the result is rounded, to a float.

    Args:
        name: the source, for messages: the path of a file, or a device and its field.
        joules_per_unit: J per unit of a reading, exactly.
        range_units: the reading at which the counter restarts at zero, in the counter's units; a
            reading of exactly the range is the same as zero. None: it never wraps.
        max_power_w: the greatest power that the hardware can draw, in W; None: unknown, and
            then every step back is a wrap, and several wraps between two readings look like one.
        lag_s: the greatest age of a reading when it is read, in s: energy used up to this time
            before the last reading may appear only in the present one.
        step_units: the smallest step of the hardware's counter, in units of a reading.

    Raises:
        ValueError: an argument is out of its range.
    """

    def __init__(
        self,
        name: str,
        joules_per_unit: Fraction,
        *,
        range_units: int | None = None,
        max_power_w: float | None = None,
        lag_s: float = 0.0,
        step_units: int = 1,
    ) -> None:
        if joules_per_unit <= 0 or lag_s < 0 or step_units < 1:
            raise ValueError(
                f"{name}: joules_per_unit and step_units must be above 0, and lag_s not below 0"
            )
        if range_units is not None and range_units < 1:
            raise ValueError(f"{name}: a range of {range_units} holds no energy")
        if max_power_w is not None and not 0 < max_power_w < float("inf"):
            raise ValueError(f"{name}: max_power_w must be above 0 and finite, not {max_power_w}")
        self.name = name
        self.range_units = range_units
        self.max_power_w = max_power_w
        self._joules_per_unit = joules_per_unit
        self._lag_s = lag_s
        self._lag_ns = round(lag_s * NS_PER_S)
        self._step_units = step_units
        self._units_per_ns = (
            None if max_power_w is None else Fraction(max_power_w) / (joules_per_unit * NS_PER_S)
        )
        self._total_units = 0
        self._last: tuple[int, int] | None = None
        """The last reading, and the time before it was taken, in ns."""
        self._failure: tuple[str, str] | None = None

    @property
    def longest_gap_s(self) -> float | None:
        """The longest allowed time between two readings, in s; None where no limit is known."""
        if self.range_units is None or self.max_power_w is None:
            return None
        range_j = float((self.range_units - self._step_units - 1) * self._joules_per_unit)
        return max(0.0, range_j / self.max_power_w - self._lag_s)

    def update(self, raw: int, start_ns: int, end_ns: int) -> float:
        """Take a reading and return the energy since the first one, in J.

        Args:
            raw: the reading, in the counter's units.
            start_ns, end_ns: CLOCK_MONOTONIC before and after the reading was taken. Both are
                needed, because the reader may be interrupted between reading the counter and
                reading the clock, and the elapsed time must not be underestimated.

        Raises:
            MeterError: the counter decreased, was reset, or jumped; the reading is outside the
                range; more than one wrap is possible since the last reading; or an earlier
                update raised.
            ValueError: the times decrease.
        """
        if self._failure is not None:
            raise MeterError(*self._failure)
        if end_ns < start_ns or (self._last is not None and start_ns < self._last[1]):
            raise ValueError(f"{self.name}: the times of its readings go back")
        if raw < 0 or (self.range_units is not None and raw > self.range_units):
            self._fail(f"{self.name} reads {raw}, outside its range of 0 to {self.range_units}")
        if self._last is not None:
            self._total_units += self._step(raw, *self._last, end_ns)
        self._last = (raw, start_ns)
        numerator, denominator = self._joules_per_unit.as_integer_ratio()
        # The quotient of two integers is correctly rounded, however large they are, so a greater
        # total cannot become a smaller float.
        return self._total_units * numerator / denominator

    def _step(self, raw: int, last_raw: int, last_start_ns: int, end_ns: int) -> int:
        elapsed_ns = end_ns - last_start_ns
        most = self._most_units(elapsed_ns)
        if self.range_units is not None and most is not None and most >= self.range_units:
            self._fail(
                f"{self.name} was read {elapsed_ns / NS_PER_S:.6g} s apart: at up to "
                f"{self.max_power_w:g} W it can have wrapped more than once",
                f"read it at least every {self.longest_gap_s:.3g} s, or open the meter again "
                "for each measurement",
            )
        step = raw - last_raw
        if step < 0:
            if self.range_units is None:
                self._fail(
                    f"{self.name} went back from {last_raw} to {raw}: it was reset, since it "
                    "has no range at which it wraps"
                )
            step += self.range_units
        if most is not None and step > most:
            if raw >= last_raw:
                change = f"jumped from {last_raw} to {raw}"
            elif raw <= most:
                change = f"was reset: it went from {last_raw} to {raw}, near zero,"
            else:
                change = f"went back from {last_raw} to {raw}"
            self._fail(
                f"{self.name} {change} within {elapsed_ns / NS_PER_S:.6g} s, which at up to "
                f"{self.max_power_w:g} W no wrap can explain"
            )
        return step

    def _most_units(self, elapsed_ns: int) -> int | None:
        """The largest step that the greatest power allows, rounded up; None: no bound is known."""
        if self._units_per_ns is None:
            return None
        numerator, denominator = self._units_per_ns.as_integer_ratio()
        return -(-(elapsed_ns + self._lag_ns) * numerator // denominator) + self._step_units

    def _fail(self, problem: str, remedy: str = OPEN_AGAIN) -> NoReturn:
        self._failure = (problem, remedy)
        raise MeterError(problem, remedy)
