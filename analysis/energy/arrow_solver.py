"""Non-negative least squares of an arrow-shaped system, compiled.

With thousands of rows and hundreds of kernels without counts the system is an arrow: a few
coefficients that all kernels share, and two for each kernel, which occur with no other kernel's.
For given shared coefficients each kernel's two have a closed form. The shared ones are found by an
active set; the objective is a convex, piecewise quadratic function of them.

Where the rows cannot separate columns, many coefficients fit equally well. The solution is the one
closest to 0: of all x >= 0 with the least |A x - b|^2, the least sum of (x_i |a_i|)^2, a_i the
columns of A. It is the limit of x_k = argmin over x >= 0 of |A x - b|^2 + RIDGE sum of
((x_i - x_k-1,i) |a_i|)^2 from x_0 = 0 (the proximal point algorithm: Rockafellar, SIAM J. Control
Optim. 14, 1976), which changes no prediction that the rows determine.

Plain loops over plain arrays compile in seconds; array expressions and calls of linear algebra take
half a minute. The loops also add in the same order on every processor, which a linear algebra
library does not: the last digits of the sums decide those of coefficients that the rows hardly
separate.
"""

from __future__ import annotations

import numba
import numpy as np

RIDGE = 1e-8
"""Added to the diagonal, relative to it. The sums' rounding, 1e-16, then moves undetermined
coefficients by 1e-8. Columns that differ by less than its root, 1e-4 of their length, count as
dependent."""
ROUNDS = 5
CLOSE = 1e-11
SINGULAR = 1e-12
TINY = 1e-300
MAX_STEPS = 100
SHORTEST_STEP = 1e-6
GAIN = 1e-13
"""Newton's method ends when a step gains less than this share of the target's sum of squares."""


@numba.njit(cache=True)
def block_sums(rows, root, block, n):  # type: ignore[no-untyped-def]
    """Return sums of products over the rows of each block: gram float64 (n, p, p), moment (n, p),
    square (n,). ``rows`` float64 (R, p), ``root`` (R,), the target; ``block`` int64 (R,)."""
    size = rows.shape[1]
    gram, moment, square = np.zeros((n, size, size)), np.zeros((n, size)), np.zeros(n)
    for r in range(len(rows)):
        s = block[r]
        square[s] += root[r] * root[r]
        for i in range(size):
            moment[s, i] += root[r] * rows[r, i]
            for j in range(i + 1):
                gram[s, i, j] += rows[r, i] * rows[r, j]
    for s in range(n):
        for i in range(size):
            for j in range(i):
                gram[s, j, i] = gram[s, i, j]
    return gram, moment, square


@numba.njit(cache=True)
def row_products(rows, block, value):  # type: ignore[no-untyped-def]
    """Return each row times the coefficients of its block, float64 (R,); 0 where the block is -1.
    ``rows`` float64 (R, p), ``block`` int64 (R,), ``value`` (n, p)."""
    products = np.zeros(len(rows))
    for r in range(len(rows)):
        if block[r] >= 0:
            for i in range(rows.shape[1]):
                products[r] += rows[r, i] * value[block[r], i]
    return products


@numba.njit(cache=True)
def mean_errors(predicted, measured, block, n):  # type: ignore[no-untyped-def]
    """Return the mean of |predicted / measured - 1| over the rows of each block, float64 (n,).
    ``predicted``, ``measured`` float64 (R,); ``block`` int64 (R,), -1 for a row that is left
    out."""
    total, rows = np.zeros(n), np.zeros(n)
    for r in range(len(block)):
        if block[r] >= 0:
            total[block[r]] += abs(predicted[r] / measured[r] - 1.0)
            rows[block[r]] += 1.0
    return total / rows


@numba.njit(cache=True)
def solve_blocks(  # type: ignore[no-untyped-def]
    gram,
    moment,
    square,
    own_gram,
    cross,
    own_moment,
    kernel,
    cell_end,
    count,
    core_power,
    mem_power,
    weight,
    core_v,
    mem_v,
    start,
):
    """Return the coefficients >= 0 with the least sum of squares over all blocks (settings).

    Arrays: as in :class:`analysis.energy.normal_equations.NormalEquations`; ``count``: K;
    ``weight``, ``core_v``, ``mem_v`` float64 (S,); ``start`` float64 (p,). Returns the shared
    coefficients (p,), the kernels' (K, 2), the sum of squares, and its derivatives (2, S) by the
    core's and the memory's voltages.
    """
    n, size = moment.shape
    factor = np.empty((n, size))
    a, b, scale = np.zeros((size, size)), np.zeros(size), np.ones(size)
    own_a, own_c = np.zeros((count, 2, 2)), np.zeros((count, 2, size))
    own_b = np.zeros((count, 2))
    total = 0.0
    for s in range(n):
        first = 0 if s == 0 else cell_end[s - 1]
        for i in range(size):
            factor[s, i] = core_v[s] ** core_power[i] * mem_v[s] ** mem_power[i]
        if weight[s] > 0.0:
            total += weight[s] * square[s]
            _add_shared(a, b, gram[s], moment[s], factor[s], weight[s])
            for c in range(first, cell_end[s]):
                k = kernel[c]
                _add_own(
                    own_a[k],
                    own_c[k],
                    own_b[k],
                    own_gram[c],
                    cross[c],
                    own_moment[c],
                    factor[s],
                    weight[s],
                    (core_v[s] ** 2, mem_v[s] ** 2),
                )
    _scale(a, b, own_a, own_c, scale)
    x, kernel_x = np.empty(size), np.zeros((count, 2))
    for i in range(size):
        x[i] = start[i] * scale[i]
    value = _closest(a, b, own_a, own_c, own_b, total, x, kernel_x)
    for i in range(size):
        x[i] /= scale[i]
    slope = np.zeros((2, n))
    for s in range(n):
        first = 0 if s == 0 else cell_end[s - 1]
        if weight[s] > 0.0:
            core, mem = _slopes(
                gram[s],
                moment[s],
                own_gram[first : cell_end[s]],
                cross[first : cell_end[s]],
                own_moment[first : cell_end[s]],
                kernel[first : cell_end[s]],
                core_power,
                mem_power,
                x,
                kernel_x,
                factor[s],
                (core_v[s] ** 2, mem_v[s] ** 2),
            )
            slope[0, s] = 2.0 * weight[s] * core / core_v[s]
            slope[1, s] = 2.0 * weight[s] * mem / mem_v[s]
    return x, kernel_x, max(total + value, 0.0), slope


@numba.njit(cache=True)
def _add_shared(a, b, gram, moment, factor, w):  # type: ignore[no-untyped-def]
    for i in range(len(b)):
        b[i] += w * factor[i] * moment[i]
        for j in range(len(b)):
            a[i, j] += w * factor[i] * factor[j] * gram[i, j]


@numba.njit(cache=True)
def _add_own(own_a, own_c, own_b, gram, cross, moment, factor, w, squares):  # type: ignore[no-untyped-def]
    for d in range(2):
        own_b[d] += w * squares[d] * moment[d]
        for e in range(2):
            own_a[d, e] += w * squares[d] * squares[e] * gram[d, e]
        for i in range(len(factor)):
            own_c[d, i] += w * squares[d] * factor[i] * cross[d, i]


@numba.njit(cache=True)
def _scale(a, b, own_a, own_c, scale):  # type: ignore[no-untyped-def]
    """Scale the shared columns to length 1, and put the ridge on the diagonals."""
    for i in range(len(b)):
        if a[i, i] > 0.0:
            scale[i] = np.sqrt(a[i, i])
    for i in range(len(b)):
        b[i] /= scale[i]
        for j in range(len(b)):
            a[i, j] /= scale[i] * scale[j]
        a[i, i] += RIDGE
    for k in range(len(own_a)):
        for d in range(2):
            own_a[k, d, d] = own_a[k, d, d] * (1.0 + RIDGE) + TINY
            for i in range(len(b)):
                own_c[k, d, i] /= scale[i]


@numba.njit(cache=True)
def _closest(a, b, own_a, own_c, own_b, total, x, kernel_x):  # type: ignore[no-untyped-def]
    """Write the best coefficients that are closest to 0 to ``x`` and ``kernel_x``, by rounds of the
    proximal point algorithm. Return the objective without the ridge, less the constant."""
    size, count = len(b), len(own_b)
    centre, kernel_centre = np.zeros(size), np.zeros((count, 2))
    shifted_b, shifted_own_b = b.copy(), own_b.copy()
    value = 0.0
    for _round in range(ROUNDS):
        value = _descend(a, shifted_b, own_a, own_c, shifted_own_b, total, x, kernel_x)
        moved, largest = 0.0, 0.0
        for i in range(size):
            value += RIDGE * (2.0 * centre[i] - x[i]) * x[i]
            moved, largest = max(moved, abs(x[i] - centre[i])), max(largest, x[i])
            centre[i] = x[i]
            shifted_b[i] = b[i] + RIDGE * x[i]
        for k in range(count):
            for d in range(2):
                weight = own_a[k, d, d] * RIDGE / (1.0 + RIDGE)
                value += weight * (2.0 * kernel_centre[k, d] - kernel_x[k, d]) * kernel_x[k, d]
                length = np.sqrt(own_a[k, d, d])
                moved = max(moved, length * abs(kernel_x[k, d] - kernel_centre[k, d]))
                largest = max(largest, length * kernel_x[k, d])
                kernel_centre[k, d] = kernel_x[k, d]
                shifted_own_b[k, d] = own_b[k, d] + weight * kernel_x[k, d]
        if moved <= CLOSE * largest:
            break
    return value


@numba.njit(cache=True)
def _descend(a, b, own_a, own_c, own_b, total, x, kernel_x):  # type: ignore[no-untyped-def]
    """Minimise over ``x`` and ``kernel_x``, in place, by Newton's method.

    Returns the objective, less the constant ``total``.
    """
    size, count = len(b), len(own_b)
    value = _own_best(a, b, own_a, own_c, own_b, x, kernel_x)
    h, g = np.empty((size, size)), np.empty(size)
    target, trial, trial_kernel_x = np.empty(size), np.empty(size), np.empty((count, 2))
    for _step in range(MAX_STEPS):
        # The kernels' coefficients are eliminated, which holds while the same ones are above 0.
        h[:] = a
        g[:] = b
        for k in range(count):
            _eliminate(h, g, own_a[k], own_c[k], own_b[k], kernel_x[k])
        _active_set(h, g, target)
        step, gain = 1.0, 0.0
        while step > SHORTEST_STEP:
            for i in range(size):
                trial[i] = x[i] + step * (target[i] - x[i])
            reached = _own_best(a, b, own_a, own_c, own_b, trial, trial_kernel_x)
            # A full step that gains nothing still moves coefficients that the objective hardly
            # depends on.
            if reached < value + (GAIN * total if step == 1.0 else 0.0):
                gain = value - reached
                value = reached
                x[:] = trial
                kernel_x[:] = trial_kernel_x
                break
            step *= 0.5
        if gain <= GAIN * total:
            break
    return value


@numba.njit(cache=True)
def _slopes(  # type: ignore[no-untyped-def]
    gram,
    moment,
    own_gram,
    cross,
    own_moment,
    kernel,
    core_power,
    mem_power,
    x,
    kernel_x,
    factor,
    squares,
):
    """Return the derivatives of half a setting's squares by log V of the core and the memory."""
    size = len(x)
    core, mem = 0.0, 0.0
    pull = np.empty(size)
    for i in range(size):
        pull[i] = -moment[i]
        for j in range(size):
            pull[i] += gram[i, j] * x[j] * factor[j]
    for c in range(len(kernel)):
        u0, u1 = kernel_x[kernel[c], 0] * squares[0], kernel_x[kernel[c], 1] * squares[1]
        p0 = own_gram[c, 0, 0] * u0 + own_gram[c, 0, 1] * u1 - own_moment[c, 0]
        p1 = own_gram[c, 1, 0] * u0 + own_gram[c, 1, 1] * u1 - own_moment[c, 1]
        for i in range(size):
            p0 += cross[c, 0, i] * x[i] * factor[i]
            p1 += cross[c, 1, i] * x[i] * factor[i]
            pull[i] += cross[c, 0, i] * u0 + cross[c, 1, i] * u1
        core += p0 * 2.0 * u0
        mem += p1 * 2.0 * u1
    for i in range(size):
        core += pull[i] * core_power[i] * x[i] * factor[i]
        mem += pull[i] * mem_power[i] * x[i] * factor[i]
    return core, mem


@numba.njit(cache=True)
def _own_best(a, b, own_a, own_c, own_b, x, kernel_x):  # type: ignore[no-untyped-def]
    """Write each kernel's best coefficients for the shared ones ``x`` to ``kernel_x``. Return the
    objective, less a constant."""
    size = len(b)
    value = 0.0
    for i in range(size):
        value -= 2.0 * b[i] * x[i]
        for j in range(size):
            value += x[i] * a[i, j] * x[j]
    for k in range(own_b.shape[0]):
        t0, t1 = own_b[k, 0], own_b[k, 1]
        for i in range(size):
            t0 -= own_c[k, 0, i] * x[i]
            t1 -= own_c[k, 1, i] * x[i]
        a00, a01, a11 = own_a[k, 0, 0], own_a[k, 0, 1], own_a[k, 1, 1]
        det = a00 * a11 - a01 * a01
        u0, u1 = -1.0, -1.0
        if det > SINGULAR * a00 * a11:
            u0 = (a11 * t0 - a01 * t1) / det
            u1 = (a00 * t1 - a01 * t0) / det
        if u0 < 0.0 or u1 < 0.0:
            u0, u1 = max(t0 / a00, 0.0), max(t1 / a11, 0.0)
            if u0 * t0 >= u1 * t1:
                u1 = 0.0
            else:
                u0 = 0.0
        kernel_x[k, 0] = u0
        kernel_x[k, 1] = u1
        value -= u0 * t0 + u1 * t1
    return value


@numba.njit(cache=True)
def _eliminate(h, g, own_a, own_c, own_b, kernel_x):  # type: ignore[no-untyped-def]
    """Eliminate a kernel's coefficients that are above 0 from the shared system (h, g)."""
    a00, a01, a11 = own_a[0, 0], own_a[0, 1], own_a[1, 1]
    i00, i01, i11 = 0.0, 0.0, 0.0
    if kernel_x[0] > 0.0 and kernel_x[1] > 0.0:
        det = a00 * a11 - a01 * a01
        i00, i01, i11 = a11 / det, -a01 / det, a00 / det
    elif kernel_x[0] > 0.0:
        i00 = 1.0 / a00
    elif kernel_x[1] > 0.0:
        i11 = 1.0 / a11
    for i in range(len(g)):
        c0 = i00 * own_c[0, i] + i01 * own_c[1, i]
        c1 = i01 * own_c[0, i] + i11 * own_c[1, i]
        g[i] -= c0 * own_b[0] + c1 * own_b[1]
        for j in range(len(g)):
            h[i, j] -= c0 * own_c[0, j] + c1 * own_c[1, j]


@numba.njit(cache=True)
def _active_set(h, g, x):  # type: ignore[no-untyped-def]
    """Write argmin over x >= 0 of x'h x - 2 g'x to ``x`` (Lawson and Hanson's active set)."""
    size = len(g)
    free, count = np.empty(size, np.int64), 0
    largest = TINY
    for i in range(size):
        x[i] = 0.0
        largest = max(largest, abs(g[i]))
    for _round in range(3 * size + 10):
        best, entering = 1e-13 * largest, -1
        for i in range(size):
            pull = g[i]
            for j in range(size):
                pull -= h[i, j] * x[j]
            if pull > best and x[i] == 0.0:
                best, entering = pull, i
        if entering < 0:
            break
        free[count] = entering
        count += 1
        while True:
            n_free = _towards_best(h, g, x, free, count)
            if n_free == count:
                break
            count = n_free


@numba.njit(cache=True)
def _towards_best(h, g, x, free, count):  # type: ignore[no-untyped-def]
    """Move x towards the best free coefficients, until the first of them reaches 0.

    That one is then no longer free. Return the number of free coefficients.
    """
    z = _solved(h, g, free, count)
    shortest, first = 1.0, -1
    for i in range(count):
        if z[i] <= 0.0:
            step = x[free[i]] / (x[free[i]] - z[i] + TINY)
            if step <= shortest:
                shortest, first = step, i
    for i in range(count):
        x[free[i]] += shortest * (z[i] - x[free[i]])
    if first < 0:
        return count
    x[free[first]] = 0.0
    for i in range(first, count - 1):
        free[i] = free[i + 1]
    return count - 1


@numba.njit(cache=True)
def _solved(h, g, free, count):  # type: ignore[no-untyped-def]
    """Return the solution of h z = g on the free rows and columns, by Cholesky's factor."""
    low, z = np.zeros((count, count)), np.empty(count)
    for i in range(count):
        for j in range(i + 1):
            remainder = h[free[i], free[j]]
            for k in range(j):
                remainder -= low[i, k] * low[j, k]
            if i == j:
                low[i, i] = np.sqrt(max(remainder, RIDGE))
            else:
                low[i, j] = remainder / low[j, j]
    for i in range(count):
        z[i] = g[free[i]]
        for k in range(i):
            z[i] -= low[i, k] * z[k]
        z[i] /= low[i, i]
    for i in range(count - 1, -1, -1):
        for k in range(i + 1, count):
            z[i] -= low[k, i] * z[k]
        z[i] /= low[i, i]
    return z
