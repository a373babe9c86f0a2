"""Intensity microbenchmarks: known work at a known level of the memory hierarchy.

The benchmarks of Choi et al. (2013, section 4.2) and Choi & Vuduc (2016, section II-C) in Numba:
chains of multiply-adds with a chosen number for each loaded word (``fma``, ``integer``), the sum of
an array (``load``), and a pointer chase (``chase``). Only the preparation of a kernel imports
Numba, so that a plan can count operations without it.
"""
