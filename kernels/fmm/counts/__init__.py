"""The operations that one evaluation executes, by phase and by class.

Flops are exact; integer operations and bytes follow a model. The counts are for potentials
without gradients. They depend on the tree, the lists and the accuracy alone: nothing is evaluated.
Importing these modules does not import Numba.

Of several MPI ranks each counts what it does itself: the pairs of points and nodes of its own
leaves, the nodes above them, and the spectra of its nodes and of those that act on them. What
several ranks compute is counted by each of them: the nodes above the leaves of several, the
spectra of sources, and the distances of a pair of leaves of two ranks, which one rank alone
computes once for both leaves. Rows of densities that a rank receives are added, which is counted;
what the MPI library does to move data is not.

Flops (``sp``, ``dp``) are what the loops execute, including lanes that only fill a vector. A fused
multiply-add is 2, the processor's estimate of 1 / sqrt(x) is 1, a root with a division is 2, a
product of (m, k) and (k, n) matrices 2 m k n. Minima, comparisons, selections and conversions are
not flops. Not predicted are pairs of leaves that are computed again in double precision because
two points nearly coincide, except when all points coincide.

Integer operations (``int``): :data:`~kernels.fmm.counts.tally.LOOP_OPS` for each pass of an
innermost loop, :data:`~kernels.fmm.counts.tally.INDEXED_OPS` for each number or group whose place
is looked up in an array, 1 for each lane of a minimum, a comparison or a selection. Addresses at a
constant distance are free, as x86 and Arm compute them in the load. Python's own work between the
loops is not counted.

Bytes (``l1``, ``l2``, ``dram``, ...): every byte that an instruction loads or stores is counted
once, at the level that serves it. A byte that is used again is served by the smallest level that
holds everything touched since its last use, the window:

- inner loops: the sources that pass by the targets in registers;
- U: a leaf is used again while its neighbours are processed,
  :data:`~kernels.fmm.counts.by_phase.NEIGHBOURHOOD` leaves;
- V: the spectra of a pair of parents are used again at the next direction, after all spectra of
  one frequency; the transforms' scratch memory is its own window; a spectrum lies on one more
  cache line than it fills, which it shares with the next parent's;
- matrix products: blocked as a BLAS does, so that :data:`~kernels.fmm.counts.tally.BLAS_LOADS`
  numbers are loaded for every :data:`~kernels.fmm.counts.tally.BLAS_TILE` multiply-adds, and each
  operand comes once from the level that holds all three;
- the first touch of points or spectra in a phase: everything that an evaluation passes over,
  because the phases evict each other's data; of densities and check potentials: these alone.

:mod:`~kernels.fmm.counts.machine` and :mod:`~kernels.fmm.counts.work` describe what the counts
depend on, :mod:`~kernels.fmm.counts.tally` adds up, :mod:`~kernels.fmm.counts.loops` counts the
compiled loops, :mod:`~kernels.fmm.counts.by_phase` the phases that call them.
"""
