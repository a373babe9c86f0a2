"""The driver of FMM3D's Laplace potential (wheel fmm3dpy): POINTS N EPS THREADS REPEATS.

Runs in its own virtual environment; prints what fmm_peers.py reads.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

file, n, eps, threads, repeats = sys.argv[1], *map(float, sys.argv[2:])
os.environ["OMP_NUM_THREADS"] = str(int(threads))  # read when FMM3D is loaded

import fmm3dpy  # noqa: E402
import numpy as np  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.peers.ours import direct_error, memory_mb, read_points, since_start_s  # noqa: E402

x, charges = read_points(file, int(n))
sources = np.asfortranarray(x.T)
seconds, first_s = [], 0.0
for turn in range(int(repeats) + 1):
    began = time.perf_counter()
    result = fmm3dpy.lfmm3d(eps=eps, sources=sources, charges=charges, pg=1)  # 1 / (4 pi r)
    if turn:
        seconds.append(time.perf_counter() - began)
    else:
        first_s = since_start_s()
peak_mb = memory_mb("VmHWM")
print(json.dumps({
    "code": "fmm3d", "evaluation_s": seconds, "first_answer_s": first_s, "resident_mb": peak_mb,
    "error": direct_error(file, x, charges, result.pot), "computes": "potential",
}))  # fmt: skip
