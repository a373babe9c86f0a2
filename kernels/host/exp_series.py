"""The number of terms of the vector exponential's Taylor series. Imports no Numba."""

from __future__ import annotations

EXP_TERMS = {32: 8, 64: 14}
"""Bits of a number -> terms: the error of the series is below the last bit."""
