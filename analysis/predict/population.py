"""The population of devices and kernels that physics allows, and its linearisation.

A device has 15 numbers ``theta`` and a kernel 5 numbers ``phi``, all standard normal. At a setting
of relative clocks ``f_c`` and ``f_m`` and voltages ``v_c`` and ``v_m`` (each 1 at its highest) a
kernel takes, in units of its level,

    t = ((t_c / f_c)^p + (t_m / f_m)^p)^(1/p) + r
    w = c + l v_c + g_c v_c^2 f_c + g_m v_m^2 f_m + e_c x t_c v_c^n / t + e_m y t_m v_m^n / t

seconds and watts: a roofline of sharpness ``p`` (Williams et al. 2009) and time that no clock
shortens; constant power, leakage, two clock trees and the energy of operations in both domains
(Choi & Vuduc 2016, eq. 9, with clock trees). An unknown voltage is flat up to a knee and rises from
there (:func:`voltage_curve`).

The population is wide on purpose: the ranges cover processors from phones to server GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from scipy.special import ndtr, ndtri

DEVICE_NUMBERS = 15
KERNEL_NUMBERS = 5
WIDTH = 1.5
"""Width of the powers' prior, by marginal likelihood (GTX 980 and Titan X; 1 is 22 worse)."""
POWERS = np.log([0.25, 0.1, 0.3, 0.09, 0.4, 0.15])
POWER_SPREADS = WIDTH * np.array([0.8, 0.8, 1.3, 1.1, 0.6, 0.8])
"""Logarithms of the six powers of a fully used device at the highest clocks, and deviations."""
BALANCE_WIDTH = 2.0
SHARPEST = 3.0
"""The sharpest knee, a corner to 2 % of the depth; a sharper one would not differ."""


def voltage_curve(
    mhz: np.ndarray, start: np.ndarray, fall: np.ndarray, sharp: np.ndarray
) -> np.ndarray:
    """Return relative voltages (..., S), which fall from 1 at the highest clock to a flat floor,

        v = 1 - depth x / (1 + x^s)^(1/s),   x = (1 - f) / (1 - knee)

    ``start``, ``fall``, ``sharp`` (...): standard normal numbers that give the knee, the depth (the
    voltage falls at most as fast as the clock), and the sharpness ``s`` of the knee.
    """
    f = mhz / mhz.max()
    if np.ptp(f) == 0.0:
        return np.ones((*np.shape(start), len(f)))
    knee = f.min() + (1.2 * ndtr(start) - 0.3) * (1.0 - f.min())
    depth = ndtr(fall) * (1.0 - np.maximum(knee, 0.0))
    x = (1.0 - f) / (1.0 - knee[..., None])
    s = 1.0 + 2.0 * np.exp(np.minimum(sharp[..., None], SHARPEST))
    return np.asarray(1.0 - depth[..., None] * x / (1.0 + x**s) ** (1.0 / s))


def simulate(
    mhz: np.ndarray, volts: np.ndarray | None, theta: np.ndarray, phi: np.ndarray
) -> np.ndarray:
    """Return log times and then log powers, (..., K, 2S), of devices ``theta`` (..., 15) and
    kernels ``phi`` (K, 5) at settings of ``mhz`` (S, 2) and ``volts`` (S, 2), None where not known.

    Levels are such that the means of the least log times and of the largest log powers are 0.
    """
    fc, fm = (mhz / mhz.max(axis=0)).T
    # axes: devices, kernels, settings
    number = np.moveaxis(theta, -1, 0)[..., None, None]
    if volts is None:
        vc = voltage_curve(mhz[:, 0], theta[..., [8]], theta[..., [9]], theta[..., [14]])
        vm = voltage_curve(mhz[:, 1], theta[..., [11]], theta[..., [10]] - 0.7, theta[..., [14]])
        # Power may rise faster than the assumed curve squared.
        exponent = 2.0 + ndtr(number[7])
    else:
        vc, vm = (volts[:, i] / volts[np.argmax(mhz[:, i]), i] for i in (0, 1))
        exponent = np.full((1, 1), 2.0)
    const, leak, core_tree, mem_tree, core, mem = (
        np.exp(POWERS[i] + POWER_SPREADS[i] * number[i]) for i in range(6)
    )
    balance = BALANCE_WIDTH * number[6] + 1.5 * np.exp(0.3 * number[12]) * phi[:, [0]]
    tc, tm = np.exp(balance / 2), np.exp(-balance / 2)
    fixed_time = -0.08 * np.log(ndtr(-phi[:, [1]])) * (tc + tm)
    p = 2.0 ** (3.0 * ndtr(phi[:, [2]]))
    # by exponentials, which are faster than powers
    limits = np.exp(p * (balance / 2 - np.log(fc))) + np.exp(p * (-balance / 2 - np.log(fm)))
    t = np.exp(np.log(limits) / p) + fixed_time
    x, y = (np.exp(0.5 * np.exp(0.4 * number[13]) * phi[:, [i]]) for i in (3, 4))
    w = const + leak * vc + core_tree * vc**2 * fc + mem_tree * vm**2 * fm
    w = w + (core * x * tc * vc**exponent + mem * y * tm * vm**exponent) / t
    log_t, log_w = np.log(t), np.log(w)
    log_t -= log_t.min(axis=-1, keepdims=True).mean(axis=-2, keepdims=True)
    log_w -= log_w.max(axis=-1, keepdims=True).mean(axis=-2, keepdims=True)
    return np.concatenate([log_t, log_w], axis=-1)


DIRECTIONS = np.array(
    [
        [16, 8, 4, 2, 1], [16, 24, 20, 30, 17], [16, 24, 12, 18, 29], [16, 24, 4, 10, 31],
        [16, 8, 4, 22, 31], [16, 8, 12, 6, 25], [16, 24, 20, 26, 11], [16, 8, 20, 10, 17],
        [16, 8, 20, 10, 5], [16, 8, 28, 22, 19], [16, 8, 20, 2, 1], [16, 8, 4, 6, 11],
        [16, 24, 20, 10, 31], [16, 24, 12, 18, 7], [16, 8, 4, 30, 21],
    ]
)  # fmt: skip
"""The first direction numbers of Sobol's sequence in each dimension (Joe & Kuo 2008), times 32.
SciPy's module with these takes longer to import than computing all picks of a site."""


def sobol_points(n: int, dimensions: int) -> np.ndarray:
    """Return the first n points of Sobol's sequence, (n, dimensions): at most 32, 15 dimensions."""
    number = np.arange(n)
    gray = number ^ (number >> 1)
    is_set = (gray[:, None] >> np.arange(DIRECTIONS.shape[1])) & 1
    points = np.bitwise_xor.reduce(is_set[:, None] * DIRECTIONS[:dimensions], axis=2)
    return np.asarray(points / 32.0)


@cache
def even_normals(n: int, dimensions: int) -> np.ndarray:
    """Return evenly spread standard normal numbers (n, dimensions), n a power of 2 and at most 64.

    These are Sobol's sequence and its mirror image, scaled to mean 0 and covariance I exactly. They
    are the same on every processor."""
    half = ndtri(sobol_points(n // 2, dimensions) + 1.0 / n)
    points = np.vstack([half, -half])
    values, vectors = np.linalg.eigh(points.T @ points / len(points))
    return np.asarray(points @ (vectors / np.sqrt(values)) @ vectors.T)


def symmetric_root(matrix: np.ndarray, power: float = 0.5) -> np.ndarray:
    """Return a positive semidefinite matrix's symmetric root: unlike eigenvectors, it is unique."""
    values, vectors = np.linalg.eigh(matrix)
    values = np.maximum(values, 1e-12 * max(float(values[-1]), 1e-300))
    return np.asarray((vectors * values**power) @ vectors.T)


@dataclass(frozen=True)
class Physics:
    """The population linearised: a device's mean curve is ``mean + slopes @ theta``, with an error
    of covariance ``error``; its kernels differ from the curve with covariance ``kernel``, (2S, 2S).

    ``theta``: the device about which it is linearised, (15,).
    """

    theta: np.ndarray
    mean: np.ndarray
    slopes: np.ndarray
    error: np.ndarray
    kernel: np.ndarray

    @cached_property
    def common(self) -> np.ndarray:
        """The covariance of the mean curves of all devices, (2S, 2S)."""
        return np.asarray(self.slopes @ self.slopes.T + self.error)


DEVICES, DEVICE_KERNELS = 64, 32


def linearised(
    mhz: np.ndarray,
    volts: np.ndarray | None,
    theta: np.ndarray | None = None,
    spread: np.ndarray | None = None,
    width: float = 1.0,
) -> Physics:
    """Return the population linearised about devices N(theta, width^2 spread), by statistical
    linear regression:

        A = Cov(z, theta) spread^-1,   error = Cov(z) - A spread A'

    (Garcia-Fernandez et al. 2015). In directions where the device is unknown the regression covers
    the full width and its nonlinearity; where measurements determine it, it becomes a tangent.
    Without ``theta``: about the whole population. A small ``width``: the tangent at ``theta``.
    """
    theta = np.zeros(DEVICE_NUMBERS) if theta is None else theta
    spread = width**2 * (np.eye(DEVICE_NUMBERS) if spread is None else spread)
    unit = even_normals(DEVICES, DEVICE_NUMBERS)
    phi = even_normals(DEVICE_KERNELS, KERNEL_NUMBERS)
    root = symmetric_root(spread)
    z = simulate(mhz, volts, theta + unit @ root, phi)
    curves = z.mean(axis=1)
    mean = curves.mean(axis=0)
    by_unit = (curves - mean).T @ unit / len(unit)
    error = curves - mean - unit @ by_unit.T
    slopes = by_unit @ symmetric_root(spread, -0.5)
    within = (z - curves[:, None]).reshape(-1, len(mean))
    return Physics(
        theta=theta,
        mean=mean - slopes @ theta,
        slopes=slopes,
        error=error.T @ error / (len(unit) - DEVICE_NUMBERS - 1),
        kernel=within.T @ within / (len(unit) * (len(phi) - 1)),
    )
