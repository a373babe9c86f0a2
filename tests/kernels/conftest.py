"""What the tests of the kernels share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernels.fmm.operators.translation_matrices import build_operators


@pytest.fixture(scope="module", autouse=True)
def no_operators_are_left() -> Iterator[None]:
    """Those of the FMM's tests take 400 MB."""
    yield
    build_operators.cache_clear()
