"""How many terms the vector exponential's Taylor series has. Imports no Numba."""

from __future__ import annotations

EXP_TERMS = {32: 8, 64: 14}
"""By the bits of a number: the error of the series stays below the last bit."""
