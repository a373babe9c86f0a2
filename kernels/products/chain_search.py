"""The dynamic program of :func:`kernels.products.chain_plan.plan_chain`, compiled."""

# Numba's functions are untyped.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math

import numpy as np
from numba import njit

from kernels.products.movement import FORMS, KEPT_SHARE, PRINTED, TILES

OF_PRINTED, OF_TILES = FORMS.index(PRINTED), FORMS.index(TILES)
PLAIN, FUSED_LEFT, FUSED_RIGHT = 0, 1, 2
ROUNDING = 1e-9
"""Times with a smaller relative difference count as equal: the order of a sum can cause it."""


@njit(cache=True)
def _bound(rows, columns, per_rows, per_columns, once, on_chip, form):
    """The words of the best real tile: :meth:`kernels.products.movement.Movement.least`."""
    tile_x = math.sqrt(on_chip * (per_rows * rows) / (per_columns * columns))
    tile_y = on_chip / tile_x
    if form != OF_PRINTED:
        tile_x = min(max(tile_x, on_chip / columns), rows)
        tile_y = min(on_chip / tile_x, columns)
    return per_rows * rows / tile_x + per_columns * columns / tile_y + once


@njit(cache=True)
def _least(rows, columns, per_rows, per_columns, once, on_chip, form, enough):
    """The fewest words of a movement; if these are not below ``enough``, any value not below it."""
    if form != OF_TILES:
        return _bound(rows, columns, per_rows, per_columns, once, on_chip, form)
    kept = max(math.floor(on_chip * KEPT_SHARE), 1.0)
    bound = _bound(rows, columns, per_rows, per_columns, once, kept, form)
    if bound >= enough:
        return bound
    best = per_rows * rows + per_columns * columns
    row_blocks = 1.0
    while row_blocks <= rows and per_rows * row_blocks + per_columns < best:
        tile_x = math.ceil(rows / row_blocks)
        tile_y = min(math.floor(kept / tile_x), columns)
        if tile_y > 0:
            blocks = math.ceil(rows / tile_x)
            best = min(best, per_rows * blocks + per_columns * math.ceil(columns / tile_y))
        row_blocks += 1.0
    return best + once


@njit(cache=True)
def _product(p0, p1, p2, on_chip, form, enough):
    """The fewest words of one product."""
    words = _least(p0, p2, p1 * p2, p0 * p1, p0 * p2, on_chip, form, enough)
    if form == OF_TILES:
        once = p0 * p1 - p0 * p2
        words = min(words, _least(p0, p1, p1 * p2, 2 * p0 * p2, once, on_chip, form, words))
        once = p1 * p2 - p0 * p2
        words = min(words, _least(p1, p2, 2 * p0 * p2, p0 * p1, once, on_chip, form, words))
    return words


@njit(cache=True)
def _fused_left(p0, p1, p2, p3, on_chip, form, enough):
    """The fewest words of (A1 A2) A3, fused."""
    return _least(p0, p2, p2 * (p1 + p3), p0 * (p1 + 2 * p3), -p0 * p3, on_chip, form, enough)


@njit(cache=True)
def _fused_right(p0, p1, p2, p3, on_chip, form, enough):
    """The fewest words of A1 (A2 A3), fused."""
    if form == OF_PRINTED:
        beta = p0 / p1
        least = 2.0 * p1 * p2 * p3 * math.sqrt((1.0 + beta) * (1.0 + 2.0 * beta) / on_chip)
        return least - p0 * p3
    return _least(p1, p3, p3 * (p2 + 2 * p0), p1 * (p2 + p0), -p0 * p3, on_chip, form, enough)


@njit(cache=True)
def _last(p, r, q, s, way, on_chip, form, enough):
    """The operations and the fewest words of a sub-chain's last product and the product fused into
    it. ``p``, ``q``: rows and columns of the result; ``r``, ``s``: the sizes at their splits."""
    if way == FUSED_LEFT:
        return p * s * r + p * r * q, _fused_left(p, s, r, q, on_chip, form, enough)
    if way == FUSED_RIGHT:
        return r * s * q + p * r * q, _fused_right(p, r, s, q, on_chip, form, enough)
    return p * r * q, _product(p, r, q, on_chip, form, enough)


@njit(cache=True)
def _parts(i, k, at, j):
    """The sub-chains that the last product of matrices i to j, and the product fused into it if it
    splits at ``at``, multiply; (j, j) for none."""
    if at < k:
        return (i, at), (at + 1, k), (k + 1, j)
    if at > k:
        return (i, k), (k + 1, at), (at + 1, j)
    return (i, k), (k + 1, j), (j, j)


@njit(cache=True)
def _sum(a, b, c):
    return a[0] + b[0] + c[0], a[1] + b[1] + c[1], a[2] + b[2] + c[2]


@njit(cache=True)
def _better(cost, best, goal):
    """Whether a cost (operations, words, seconds) is below the best one; if equal, whether it has
    fewer operations, or words."""
    if goal == 0:
        return cost[0] < best[0] or (cost[0] == best[0] and cost[1] < best[1])
    if goal == 1:
        return cost[1] < best[1] or (cost[1] == best[1] and cost[0] < best[0])
    if cost[2] < best[2] * (1.0 - ROUNDING):
        return True
    return cost[2] <= best[2] * (1.0 + ROUNDING) and cost[0] < best[0]


@njit(cache=True)
def best_plan(sizes, on_chip, form, goal, rates):
    """The best plan of every sub-chain.

    Args:
        sizes: float64 (n + 1,).
        on_chip: numbers that fit on chip.
        form: index in :data:`kernels.products.movement.FORMS`.
        goal: 0 fewest operations, then words; 1 words, then operations; 2 time, then operations.
        rates: multiply-adds and words per second.

    Returns:
        ``split``, ``way``, ``inner`` of :class:`kernels.products.chain_plan.Choice`, and the
        multiply-adds and the seconds of the whole chain.
    """
    n = len(sizes) - 1
    cost = np.zeros((n + 1, n + 1, 3))
    split, way, inner = np.zeros((3, n + 1, n + 1), np.int64)
    for length in range(2, n + 1):
        for i in range(1, n - length + 2):
            j = i + length - 1
            best = (np.inf, np.inf, np.inf)
            for k in range(i, j):
                for place in range(i - 1, j):
                    if place == k:
                        continue
                    at = k if place < i else place  # unfused first, to prefer it if equal
                    own_way = FUSED_LEFT if at < k else FUSED_RIGHT if at > k else PLAIN
                    a, b, c = _parts(i, k, at, j)
                    before = _sum(cost[a], cost[b], cost[c])
                    enough = best[1] - before[1] if goal == 1 else np.inf
                    last = _last(
                        sizes[i - 1], sizes[k], sizes[j], sizes[at], own_way, on_chip, form, enough
                    )
                    seconds = max(last[0] / rates[0], last[1] / rates[1])
                    own = (before[0] + last[0], before[1] + last[1], before[2] + seconds)
                    if _better(own, best, goal):
                        best = own
                        split[i, j], way[i, j], inner[i, j] = k, own_way, at
            cost[i, j, 0], cost[i, j, 1], cost[i, j, 2] = best
    return split, way, inner, cost[1, n, 0], cost[1, n, 2]
