"""The FMM on MPI ranks agrees with direct summation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.kernels.test_fmm import direct, error, points

ROOT = Path(__file__).parents[2]
MPIEXEC = Path(sys.executable).parent / "mpiexec"


@pytest.mark.parametrize(
    ("ranks", "name", "digits"),
    [(1, "plummer", 6), (2, "plummer", 6), (3, "line", 4), (4, "plummer", 6)],
)
def test_ranks_agree_with_direct_sums(ranks, name, digits, tmp_path):
    n = 2500
    sources, charges = points(name, n, 11), np.random.default_rng(11).uniform(-1, 1, n)
    np.savez(tmp_path / "given.npz", points=sources, charges=charges, digits=digits, q=40)
    done = subprocess.run(
        [
            str(MPIEXEC), "-n", str(ranks), sys.executable, "-m", "tests.kernels.fmm_rank",
            str(tmp_path / "given.npz"), str(tmp_path / "computed.npy"),
        ],
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    computed = np.load(tmp_path / "computed.npy")
    potential, gradient = direct(sources, charges, sources)
    assert error(computed[0], potential) <= 10.0**-digits
    assert error(computed[1], potential) <= 10.0**-digits
    assert error(computed[2:].T, gradient) <= 2 * 10.0**-digits
