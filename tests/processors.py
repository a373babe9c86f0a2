"""``make processors``: the tests marked ``numeric``, with the arithmetic of several processors.

    python -m tests.processors [PYTEST_ARGUMENT ...]

NumPy and SciPy each bring an OpenBLAS with kernels for many processors: OPENBLAS_CORETYPE chooses
one, and NPY_DISABLE_CPU_FEATURES takes NumPy's own loops for newer processors away. What this
processor cannot run is left out, with a line that says so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

NEEDED = {
    "PRESCOTT": {"pni"},
    "HASWELL": {"avx2", "fma"},
    "ZEN": {"avx2", "fma"},
    "SKYLAKEX": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}
"""OPENBLAS_CORETYPE -> the flags that a processor needs to run its kernels."""
CORETYPE, FEATURES = "OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES"
NOT_INHERITED = (CORETYPE, FEATURES, "OPENBLAS_L2_SIZE")
SHOW_KERNELS = (
    "import numpy, scipy.linalg, threadpoolctl as t;"
    "print(*(' '.join((i['prefix'], i['version'], i['architecture']))"
    " for i in t.threadpool_info() if i['user_api'] == 'blas'), sep='; ')"
)


def processor_flags() -> set[str]:
    """What this processor can run, as Linux names it; nothing on other processors than x86."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("flags"):
            return set(line.partition(":")[2].split())
    return set()


def environments() -> tuple[dict[str, dict[str, str]], list[str]]:
    """Name -> variables of each arithmetic that this processor can run; why others are left out."""
    flags, left_out = processor_flags(), []
    variables = {}
    for coretype, needed in NEEDED.items():
        if missing := sorted(needed - flags):
            left_out.append(f"{CORETYPE}={coretype}: this processor lacks {' '.join(missing)}")
        else:
            variables[f"{CORETYPE}={coretype}"] = {CORETYPE: coretype}
    features = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    if features:
        names = " ".join(features)
        variables[f"{FEATURES}={names}"] = {FEATURES: names}
    else:
        left_out.append(f"{FEATURES}: NumPy has no loops for this processor to take away")
    return variables, left_out


def without_choice() -> dict[str, str]:
    """The environment, without what chooses an arithmetic."""
    return {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}


def main(arguments: list[str]) -> int:
    variables, left_out = environments()
    failed = []
    for name, more in variables.items():
        environment = without_choice() | more
        print(f"== {name}", flush=True)
        subprocess.run([sys.executable, "-c", SHOW_KERNELS], env=environment, check=True)
        tests = [sys.executable, "-m", "pytest", "-m", "numeric", *arguments]
        if subprocess.run(tests, env=environment, check=False).returncode:
            failed.append(name)
    for line in left_out:
        print(f"left out: {line}")
    for name in failed:
        print(f"failed: {name}")
    return 1 if failed or not variables else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
