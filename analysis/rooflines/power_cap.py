"""A roofline under a cap in watts: the extension proposed in Choi & Vuduc 2012, section 5.2.

A machine that may not draw the power of eq. 7 slows its operations and bytes down until the average
power is the cap. Constant power pi_0 cannot be reduced, so operations and bytes spend their energy
at cap - pi_0 at most:

    T_capped(I) = max(T(I), (W eps_op + Q eps_mem) / (cap - pi_0))

This is the average over a run; a machine that caps over a shorter window can be slower.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.rooflines.roofline import Roofline


class CapError(ValueError):
    """A cap on power that cannot be applied; the message has the reason."""


@dataclass(frozen=True)
class CappedRoofline:
    """A roofline under a cap, with the same functions of intensity as :class:`Roofline`.

    ``cap_w``: the highest average power, W, pi_0 included. Intensities are operations per byte, an
    array of any shape; results are float64 of that shape.

    Raises:
        CapError: the cap is at or below pi_0, where no work can be done, or the line's energies
            are unknown.
    """

    line: Roofline
    cap_w: float

    def __post_init__(self) -> None:
        """Raise CapError for a cap that leaves no power for operations and bytes."""
        line = self.line
        if np.isnan([line.eps_op_j, line.eps_mem_j, line.constant_w]).any():
            raise CapError("a cap needs the energies of operations and bytes; none are known")
        if not self.cap_w > line.constant_w:
            raise CapError(
                f"a cap of {self.cap_w:g} W leaves nothing for operations and bytes: constant "
                f"power alone is {line.constant_w:.4g} W; give more than that"
            )

    @property
    def active_w(self) -> float:
        """cap - pi_0, W: the power that operations and bytes may draw."""
        return self.cap_w - self.line.constant_w

    @property
    def capped_intensities(self) -> tuple[float, float] | None:
        """The range of intensities, operations per byte, in which the cap slows a kernel, or None.

        Eq. 7 rises to B_tau and falls beyond it, so these are its two crossings of the cap: 0 if
        streaming alone exceeds the cap, infinity if operations alone do.
        """
        line = self.line
        if line.power_limits_w[1] <= self.cap_w:
            return None
        streaming_w = line.eps_mem_j / line.tau_mem_s
        spare_j = self.active_w * line.tau_op_s - line.eps_op_j
        low, high = 0.0, float("inf")
        if streaming_w < self.active_w:
            low = (self.active_w - streaming_w) * line.tau_mem_s / line.eps_op_j
        if spare_j > 0.0:
            high = line.eps_mem_j / spare_j
        return low, high

    def op_time_s(self, intensity: np.ndarray) -> np.ndarray:
        """T_capped / W, seconds per operation."""
        uncapped_s, active_j = self.line.op_time_s(intensity), self._active_j(intensity)
        return np.asarray(np.maximum(uncapped_s, active_j / self.active_w))

    def slowdown(self, intensity: np.ndarray) -> np.ndarray:
        """T_capped / T, 1 where the cap does not bind."""
        return np.asarray(self.op_time_s(intensity) / self.line.op_time_s(intensity))

    def op_total_energy_j(self, intensity: np.ndarray) -> np.ndarray:
        """E / W, joules per operation: eq. 4 with the capped time, during which pi_0 is drawn."""
        return self._active_j(intensity) + self.line.constant_w * self.op_time_s(intensity)

    def speed_ops_s(self, intensity: np.ndarray) -> np.ndarray:
        """W / T_capped, operations per second."""
        return 1.0 / self.op_time_s(intensity)

    def efficiency_ops_j(self, intensity: np.ndarray) -> np.ndarray:
        """W / E, operations per joule."""
        return 1.0 / self.op_total_energy_j(intensity)

    def power_w(self, intensity: np.ndarray) -> np.ndarray:
        """E / T_capped, W: eq. 7 with the cap as its ceiling."""
        return np.asarray(self.op_total_energy_j(intensity) / self.op_time_s(intensity))

    def _active_j(self, intensity: np.ndarray) -> np.ndarray:
        """The energy of operations and bytes, joules per operation, without constant power."""
        return self.line.eps_op_j + self.line.eps_mem_j / np.asarray(intensity, float)
