"""The operations that one evaluation executes, by phase and by class.

Flops are exact; integer operations and bytes follow a model. The counts are for potentials
without gradients. They depend only on the tree, the lists and the accuracy: nothing is evaluated.
Importing these modules does not import Numba.

Of several MPI ranks, each counts its operations: the pairs of points and nodes of its leaves, the
nodes above these, and the spectra of its nodes and of nodes that act on them. Work that several
ranks do is counted by each of them: the nodes above leaves of several ranks, the spectra of
sources, and the distances of a pair of leaves of two ranks, which a single rank would compute once
for both leaves. Adding the rows of densities that a rank receives is counted; the MPI library's
data movement is not.

Flops (``sp``, ``dp``) are those that the loops execute, including lanes that only fill a vector. A
fused multiply-add is 2, the processor's estimate of 1 / sqrt(x) is 1, a root with a division is 2,
a product of (m, k) and (k, n) matrices 2 m k n. Minima, comparisons, selections and conversions are
not flops. Pairs of leaves that are computed again in double precision because two points nearly
coincide are not predicted, except when all points coincide.

Integer operations (``int``): :data:`~kernels.fmm.counts.tally.LOOP_OPS` for each pass of an
innermost loop, :data:`~kernels.fmm.counts.tally.INDEXED_OPS` for each number or group that is
addressed by an index from an array, 1 for each lane of a minimum, a comparison or a selection.
Addresses at a constant distance are free, as x86 and Arm compute them in the load. Python's work
between the loops is not counted.

Bytes (``l1``, ``l2``, ``dram``, ...): every byte that an instruction loads or stores is counted
once, at the level that serves it. A byte that is used again is served by the smallest level that
holds everything touched since its last use, the window:

- inner loops: the sources over which a loop passes for the targets in registers;
- U: a leaf is used again while its neighbours are processed,
  :data:`~kernels.fmm.counts.by_phase.NEIGHBOURHOOD` leaves;
- V: the spectra of a pair of parents are used again at the next direction, after all spectra of
  one frequency; the window of the transforms' scratch memory is this memory; a spectrum occupies
  one more cache line than it fills, which it shares with the next parent's spectrum;
- matrix products: blocked as in a BLAS, so that :data:`~kernels.fmm.counts.tally.BLAS_LOADS`
  numbers are loaded for every :data:`~kernels.fmm.counts.tally.BLAS_TILE` multiply-adds, and each
  operand comes once from the level that holds all three;
- the first touch of points or spectra in a phase: all data of an evaluation, because the phases
  evict each other's data; of densities and check potentials: only these.

:mod:`~kernels.fmm.counts.machine` and :mod:`~kernels.fmm.counts.work` describe the machine and the
work, :mod:`~kernels.fmm.counts.tally` sums the operations, :mod:`~kernels.fmm.counts.loops` counts
the compiled loops, :mod:`~kernels.fmm.counts.by_phase` the phases that call them.
"""
