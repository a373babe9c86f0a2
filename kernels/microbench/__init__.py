"""Intensity microbenchmarks: known work, at a known level of the memory hierarchy.

The benchmarks of Choi et al. (IPDPS 2013, section 4.2; 2016, section II-C) in Numba: chains of
multiply-adds with a tunable number of them for each word loaded, the sum of an array, and a
pointer chase. Nothing here imports Numba before a kernel is prepared, so that a plan can count
operations without it.
"""
