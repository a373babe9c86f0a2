"""Roofline in time, arch line and power line of a pair of classes, and kernels' fractions of it.

Choi & Vuduc 2012, eqs. 3 to 8: the least time, energy and power of a kernel of W operations of one
class on Q bytes of one memory class, as functions of its intensity I = W / Q alone.

At each setting, the roof of a class is the highest rate n_k / T of the kernels measured there. A
kernel's least time is then max_k n_k / roof_k, as on a roofline with one ceiling a class
(Williams, Waterman & Patterson 2009). Its fraction of the roof is that over its time: 1 for the
kernels that set the roof, and less for a kernel that latency or dependences delay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analysis.energy.fitted import Fit, costs_run_at
from analysis.measurements.observations import (
    FitError,
    Observations,
    cell_means,
    kernel_names,
    rows_by_kernel,
)
from dvfs.dataset import CLASS_UNITS, moves_data
from dvfs.groups import Groups
from dvfs.kernel_instance import KernelInstance
from dvfs.setting import Setting


@dataclass(frozen=True)
class Roofline:
    """The model of a machine at one setting, for one class of operations and one of bytes.

    ``tau_op_s``: s per operation; ``tau_mem_s``: s per byte; ``eps_op_j``: J per operation;
    ``eps_mem_j``: J per byte; ``constant_w``: pi_0, W. If energies are unknown, these three and
    all results from them are NaN, and only times are known.

    The functions take intensities in operations per byte, an array of any shape, and return
    float64 of that shape.
    """

    operation: str
    memory: str
    tau_op_s: float
    tau_mem_s: float
    eps_op_j: float
    eps_mem_j: float
    constant_w: float

    @property
    def time_balance(self) -> float:
        """B_tau = tau_mem / tau_op, operations per byte (Choi & Vuduc 2012, below eq. 3)."""
        return self.tau_mem_s / self.tau_op_s

    @property
    def energy_balance(self) -> float:
        """B_eps = eps_mem / eps_op, operations per byte (below eq. 4); NaN if eps_op is 0."""
        return self.eps_mem_j / (self.eps_op_j or float("nan"))

    @property
    def op_energy_j(self) -> float:
        """eps^_op = eps_op + pi_0 tau_op, J: an operation, constant power included."""
        return self.eps_op_j + self.constant_w * self.tau_op_s

    @property
    def op_efficiency(self) -> float:
        """eta_op = eps_op / eps^_op, 0 to 1: 1 without constant power.

        NaN if an operation costs no energy at all, as are results from it.
        """
        return self.eps_op_j / (self.op_energy_j or float("nan"))

    @property
    def op_power_w(self) -> float:
        """pi_op = eps_op / tau_op, W: the power of operations alone (above eq. 7)."""
        return self.eps_op_j / self.tau_op_s

    def effective_balance(self, intensity: np.ndarray) -> np.ndarray:
        """B^_eps(I), operations per byte (eq. 6).

        eta B_eps is computed as eps_mem / eps^_op, which also holds if eps_op is 0.
        """
        beyond = np.maximum(0.0, self.time_balance - np.asarray(intensity, float))
        return self._balance_above + (1.0 - self.op_efficiency) * beyond

    @property
    def _balance_above(self) -> float:
        """B^_eps(I) for every I >= B_tau."""
        return self.eps_mem_j / (self.op_energy_j or float("nan"))

    @property
    def half_efficiency_intensity(self) -> float:
        """The I = B^_eps(I), operations per byte: half of the best energy efficiency (eq. 5).

        Above B_tau, B^_eps is constant; below, it falls linearly with I: each case has one
        solution.
        """
        above = self._balance_above
        if above >= self.time_balance:
            return above
        eta = self.op_efficiency
        return (above + (1.0 - eta) * self.time_balance) / (2.0 - eta)

    @property
    def balance_gap(self) -> float:
        """B_eps / B_tau, no unit (section 2.4); above 1, energy is harder to save than time."""
        return self.energy_balance / self.time_balance

    @property
    def effective_gap(self) -> float:
        """B^_eps at the half-efficiency point over B_tau, no unit: the gap with constant power.

        Section 2.4 says that constant power lowers this balance below B_eps. By eq. 6 it does so
        only if B_tau < 2 B_eps; otherwise B^_eps(I) = I is between B_eps and B_tau.
        """
        return self.half_efficiency_intensity / self.time_balance

    @property
    def fast_is_efficient(self) -> bool | None:
        """Whether B_tau >= B^_eps at the half-efficiency point (sections 2.4 and 5.2).

        Then a kernel that is compute-bound in time is within a factor of two of the best energy
        efficiency at this setting, and the papers call racing to halt a good first-order strategy.
        Whether another setting takes less energy is answered by
        :attr:`analysis.choice.pick.Pick.race_to_halt`. None if no energy is known.
        """
        gap = self.effective_gap
        return None if np.isnan(gap) else bool(gap <= 1.0)

    def op_time_s(self, intensity: np.ndarray) -> np.ndarray:
        """T / W, seconds per operation (eq. 3)."""
        return self.tau_op_s * np.maximum(1.0, self.time_balance / np.asarray(intensity, float))

    def op_total_energy_j(self, intensity: np.ndarray) -> np.ndarray:
        """E / W, joules per operation (eq. 5)."""
        i = np.asarray(intensity, float)
        return np.asarray(self.op_energy_j * (1.0 + self.effective_balance(i) / i))

    def speed_ops_s(self, intensity: np.ndarray) -> np.ndarray:
        """W / T, operations per second: the roofline in time."""
        return 1.0 / self.op_time_s(intensity)

    def efficiency_ops_j(self, intensity: np.ndarray) -> np.ndarray:
        """W / E, operations per joule: the arch line."""
        return 1.0 / self.op_total_energy_j(intensity)

    def power_w(self, intensity: np.ndarray) -> np.ndarray:
        """P = E / T, W: the power line (eq. 7)."""
        i = np.asarray(intensity, float)
        b_tau = self.time_balance
        over_op = np.minimum(i, b_tau) / b_tau + self.effective_balance(i) / np.maximum(i, b_tau)
        return np.asarray(self.op_energy_j / self.tau_op_s * over_op)

    @property
    def power_limits_w(self) -> tuple[float, float, float]:
        """Power in W as I -> 0, at its maximum (I = B_tau), and as I -> infinity.

        The bounds of eq. 8, with pi_0 added, which is zero in eq. 8. Eq. 8 states the first as the
        least power at any intensity, which holds only if B_eps <= B_tau; the least is the smaller
        of the first and the last.
        """
        memory_w = self.eps_mem_j / self.tau_mem_s
        return (
            self.constant_w + memory_w,
            self.constant_w + self.op_power_w + memory_w,
            self.constant_w + self.op_power_w,
        )


def verdict(line: Roofline) -> str:
    """One or two sentences: whether kernels that are fast at this setting are efficient, and why.

    Choi & Vuduc 2012, sections 2.4 and 5.2: the half-efficiency point compared with B_tau, with
    and without constant power.
    """
    if line.fast_is_efficient is None:
        return "unknown: no energy is known at this setting"
    b_tau, half = line.time_balance, line.half_efficiency_intensity
    if not line.fast_is_efficient:
        return (
            f"fast is not always efficient at this setting: a kernel of {b_tau:.3g} to {half:.3g} "
            f"op/B is compute-bound in time but spends more energy on bytes than on operations; "
            f"raise its intensity, or try lower clocks"
        )
    text = (
        f"fast is efficient at this setting: a kernel of {half:.3g} op/B or more has at least half "
        f"of the best energy efficiency (time balance: {b_tau:.3g} op/B)"
    )
    if line.balance_gap > 1.0:
        text += (
            f"; the reason is the constant power of {line.constant_w:.3g} W: without it the "
            f"balance would be {line.energy_balance:.3g} op/B, and fast would not be efficient"
        )
    elif line.eps_op_j == 0.0:
        text += (
            f"; the measurements show no energy of {line.operation} operations beside the constant "
            f"power of {line.constant_w:.3g} W, so there is no balance without it"
        )
    return text


@dataclass(frozen=True, kw_only=True)
class PairPoints:
    """The kernels with exactly one class of operations and one of bytes, at one setting.

    Arrays have one entry a kernel, by rising intensity (operations per byte); repeats are averaged.
    ``energy_j`` is NaN if not measured.
    """

    operation: str
    memory: str
    setting: Setting
    kernels: list[KernelInstance]
    intensity: np.ndarray
    operations: np.ndarray
    time_s: np.ndarray
    energy_j: np.ndarray


def fastest_setting(data: Observations) -> int:
    """The setting (an index into ``data.settings``) at which the site's kernels are fastest.

    It is the setting with the least mean over kernels of log(time / the kernel's least time), among
    those with the most measured kernels; repeats are averaged.
    """
    log_s = np.log(cell_means(data, kernel_names(data), data.time_s))
    log_ratio = log_s - np.nanmin(log_s, axis=1, keepdims=True)
    measured = np.isfinite(log_ratio)
    kernels = measured.sum(axis=0)
    mean = np.where(measured, log_ratio, 0.0).sum(axis=0) / np.maximum(kernels, 1)
    return int(np.lexsort((mean, -kernels))[0])


def pair_points(data: Observations, setting: int) -> list[PairPoints]:
    """The points of each pair of classes that kernels of two or more intensities have alone;
    ``setting``: index into ``data.settings``."""
    measured = data.take(data.setting == setting)
    by_pair: dict[tuple[str, str], list[tuple[float, str, float, float, float]]] = {}
    for kernel, repeats in rows_by_kernel(measured):
        counts = {
            name: float(np.nan_to_num(v[repeats]).mean()) for name, v in measured.counts.items()
        }
        classes = sorted(name for name, n in counts.items() if n > 0)
        operations = [name for name in classes if not moves_data(name)]
        memory = [name for name in classes if moves_data(name)]
        if len(operations) != 1 or len(memory) != 1:
            continue
        n = counts[operations[0]]
        by_pair.setdefault((operations[0], memory[0]), []).append(
            (
                n / counts[memory[0]],
                kernel,
                n,
                float(measured.time_s[repeats].mean()),
                float(measured.energy_j[repeats].mean()),
            )
        )
    pairs = []
    order = {name: i for i, name in enumerate(CLASS_UNITS)}
    for (operation, memory_class), rows in sorted(
        by_pair.items(), key=lambda item: (order.get(item[0][0], len(order)), item[0][1])
    ):
        rows.sort()
        if len({f"{row[0]:.6g}" for row in rows}) < 2:
            continue
        numbers = np.array([(row[0], *row[2:]) for row in rows])
        pairs.append(
            PairPoints(
                operation=operation,
                memory=memory_class,
                setting=data.settings[setting],
                kernels=[data.instance(row[1]) for row in rows],
                intensity=numbers[:, 0],
                operations=numbers[:, 1],
                time_s=numbers[:, 2],
                energy_j=numbers[:, 3],
            )
        )
    return pairs


def best_rate(data: Observations, name: str, setting: int) -> float:
    """The highest rate of a class over the kernels at a setting: operations or bytes per second.

    The repeats of each kernel are averaged.

    Raises:
        FitError: no kernel at the setting has counts of the class.
    """
    counts = np.nan_to_num(data.counts[name]) if name in data.counts else np.zeros(len(data))
    counted = (data.setting == setting) & (counts > 0)
    if not counted.any():
        raise FitError(f"no kernel measured at this setting counts {name}")
    rate = (counts / data.time_s)[counted]
    return max(float(rate[rows].mean()) for _, rows in rows_by_kernel(data.take(counted)))


def roofline(
    data: Observations, operation: str, memory: str, setting: int, fitted: Fit | None = None
) -> Roofline:
    """The rooflines of two classes at a setting, an index into ``data.settings``.

    tau is the inverse of the best measured rate of its class there. eps_k = c_k V_dom^2 and pi_0
    come from the fit, at the clocks and voltages of the rows; they are NaN without a fit.

    Raises:
        FitError: no kernel there has counts of a class, or the fit has no term for it.
    """
    tau_op_s, tau_mem_s = (1.0 / best_rate(data, name, setting) for name in (operation, memory))
    eps_op_j = eps_mem_j = constant_w = np.nan
    if fitted is not None:
        costs = costs_run_at(fitted, data, setting)
        missing = [name for name in (operation, memory) if name not in costs.operation_pj]
        if missing:
            raise FitError(f"the fit has no coefficient of class {missing[0]}")
        eps_op_j, eps_mem_j = (costs.operation_pj[name][0] * 1e-12 for name in (operation, memory))
        constant_w = costs.constant_w[0]
    return Roofline(
        operation=operation,
        memory=memory,
        tau_op_s=tau_op_s,
        tau_mem_s=tau_mem_s,
        eps_op_j=eps_op_j,
        eps_mem_j=eps_mem_j,
        constant_w=constant_w,
    )


def pair_rooflines(
    data: Observations, setting: int, fitted: Fit | None, all_kernels: Observations | None = None
) -> list[tuple[PairPoints, Roofline]]:
    """The points of each pair of classes (:func:`pair_points`) with its roofline, which has no
    energies if there is no fit or the fit lacks a class.

    ``all_kernels``: the rows of all kernels of the site, whose best rates are the roofs, if
    ``data`` has some kernels alone."""
    pairs = []
    for points in pair_points(data, setting):
        try:
            line = roofline(data, points.operation, points.memory, setting, fitted)
        except FitError:
            line = roofline(data, points.operation, points.memory, setting)
        if all_kernels is not None:
            place = all_kernels.settings.index(points.setting)
            tau_op_s, tau_mem_s = (
                1.0 / best_rate(all_kernels, name, place)
                for name in (points.operation, points.memory)
            )
            line = replace(line, tau_op_s=tau_op_s, tau_mem_s=tau_mem_s)
        pairs.append((points, line))
    return pairs


@dataclass(frozen=True)
class RoofFraction:
    """A kernel's fraction of the roof (0 to 1), the median over its rows, and the class that limits
    most of them."""

    label: str
    fraction: float
    limited_by: str


def roof_fractions(data: Observations) -> list[RoofFraction]:
    """The fraction of every kernel with operation counts, by label."""
    names = list(data.counts)
    if not names:
        return []
    rates = np.column_stack([data.counts[name] / data.time_s for name in names])
    rates = np.where(np.isfinite(rates), rates, 0.0)
    groups = Groups(data.setting)
    roofs = np.array([rates[rows].max(axis=0) for rows in groups.rows()])[groups.numbers()]
    shares = np.divide(rates, roofs, where=roofs > 0, out=np.zeros_like(rates))
    fractions = []
    has_share = shares.max(axis=1) > 0
    for label, rows in rows_by_kernel(data):
        usable = rows[has_share[rows]]
        if len(usable):
            limits = shares[usable].argmax(axis=1)
            limited_by = names[int(np.bincount(limits).argmax())]
            fraction = float(np.median(shares[usable].max(axis=1)))
            fractions.append(RoofFraction(label, fraction, limited_by))
    return fractions
