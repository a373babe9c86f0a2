"""The loops of :func:`analysis.costs.codesign.best_tiles`, compiled."""

# Numba's functions are untyped.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math

import numpy as np
from numba import njit

LONGEST_KS = 64
"""The size of the tables by k, more than any processor's tiles at a time."""


@njit(cache=True)
def _iterations(wide, inner, high, lanes):
    """The sum of ceil(points of a row / lanes) over half a tile's rows (A.10, A.16, A.28)."""
    total = 0
    for row in range(high // 2):
        total += -(-((wide + 2 * row) * inner) // lanes)
    return total


@njit(cache=True)
def _subtiles(size, tile, high, axes):
    """The number of subtiles (A.17, A.24): one ceiling around the product."""
    product = 1.0
    for axis in range(1, axes):
        product *= (size + high) / tile[axis]
    return math.ceil(product)


@njit(cache=True)
def _best_k(across, subtiles, transfer_s, compute_s, memory_s, processors, max_k, axes, best, ks):
    """Fill ``best`` with the least seconds of a wavefront with at most k tiles at a time, for
    k = 1 to ``max_k``, and ``ks`` with the k of it (A.13, A.17, A.30)."""
    longer_s = max(transfer_s, compute_s)
    least, least_k = np.inf, 0
    for k in range(1, max_k + 1):
        if axes == 1:
            prism_s = transfer_s + compute_s + (k - 1) * longer_s
        elif k == 1:
            prism_s = (transfer_s + compute_s) * subtiles
        else:
            prism_s = transfer_s + k * longer_s * subtiles
        groups = -(-across // k)
        rounds = -(-groups // processors)
        time_s = max(rounds * prism_s, memory_s)
        if time_s < least:
            least, least_k = time_s, k
        best[k], ks[k] = least, least_k


@njit(cache=True)
def search(designs, constant_w, tiles, problems, stencil, seconds, limits, corrected, objective):
    """The best tile and k of every design and problem, for designs that differ only in memory.

    Args:
        designs: (designs,) each: processors and lanes, the same for all, and bytes of on-chip
            memory, rising.
        constant_w: (designs,).
        tiles: lengths (tiles, 3), steps (tiles,), and bytes (tiles,).
        problems: points along each axis, and steps (problems,).
        stencil: axes, seconds and joules of a point, and joules of a word.
        seconds: of a word, a barrier and a launch.
        limits: bytes of a block, and blocks.
        corrected: the form of the equations.
        objective: 0 for time, 1 for energy, 2 for their product.

    Returns:
        time_s, energy_j, tile, k: (designs, problems).
    """
    (processors, lanes, on_chip), (tile, high, needed) = designs, tiles
    (sizes, steps), (axes, iteration_s, iteration_j, word_j) = problems, stencil
    (word_s, barrier_s, launch_s), (block_bytes, blocks) = seconds, limits
    shape = (len(processors), len(sizes))
    least = np.full(shape, np.inf)
    time_s, energy_j = np.full(shape, np.inf), np.full(shape, np.inf)
    chosen, chosen_k = np.full(shape, -1), np.zeros(shape, np.int64)
    wave_s, ks = np.zeros(LONGEST_KS + 1), np.zeros(LONGEST_KS + 1, np.int64)
    max_k = np.zeros(len(processors), np.int64)
    n, wide_units = processors[0], lanes[0]
    for t in range(len(high)):
        if needed[t] > block_bytes:
            continue
        for d in range(len(processors)):
            max_k[d] = min(blocks, int(on_chip[d] // needed[t]))
        if max_k[-1] < 1:
            continue
        wide, inner = tile[t, 0], tile[t, 1] * tile[t, 2]
        pitch = 2 * wide + high[t] - 2
        if not corrected:
            pitch = wide + high[t] if axes == 3 else 2 * wide + high[t]
        words = 2 * inner * (wide + 2 * high[t])
        transfer_s = words * word_s + 2 * barrier_s
        compute_s = 2 * iteration_s * _iterations(wide, inner, high[t], wide_units)
        compute_s += high[t] * barrier_s
        last_size = -1
        for p in range(len(sizes)):
            size = sizes[p]
            across = -(-size // pitch)
            subtiles = _subtiles(size, tile[t], high[t], axes)
            moved = float(across) * subtiles * words
            if size != last_size:
                memory_s = moved * word_s if corrected else 0.0
                _best_k(
                    across,
                    subtiles,
                    transfer_s,
                    compute_s,
                    memory_s,
                    n,
                    max_k[-1],
                    axes,
                    wave_s,
                    ks,
                )
                last_size = size
            waves = 2 * -(-steps[p] // high[t])
            points = float(steps[p]) * float(size) ** axes
            for d in range(len(processors)):
                if max_k[d] < 1:
                    continue
                cost_s = waves * (wave_s[max_k[d]] + launch_s)
                cost_j = constant_w[d] * cost_s + word_j * waves * moved + iteration_j * points
                cost = cost_s if objective == 0 else cost_j if objective == 1 else cost_s * cost_j
                if cost < least[d, p]:
                    least[d, p] = cost
                    time_s[d, p], energy_j[d, p] = cost_s, cost_j
                    chosen[d, p], chosen_k[d, p] = t, ks[max_k[d]]
    return time_s, energy_j, chosen, chosen_k
