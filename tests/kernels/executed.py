"""Which of our functions a kernel executes: ``python -m tests.kernels.executed OUT.json``.

Runs every kernel once, small, under ``sys.settrace``, and adds the functions that Numba has
compiled by then. What modules execute while they are imported does not count. GPU kernels end where
there is no GPU; what they execute until then counts. Every kernel is a process of its own, so that
nothing of ours is imported, compiled or in memory for another: they fork from one that has imported
what others wrote."""

from __future__ import annotations

import gc
import json
import multiprocessing
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from kernels.host.ranks import Team
from kernels.registry import KERNELS, find_kernel

ROOT = Path(__file__).parents[2]
OTHERS = ["numba", "numpy", "pydantic", "scipy.special", "yaml"]
"""What the kernels import of other projects."""
SMALL: dict[str, dict[str, Any]] = {
    "load": {"level": "l1"},
    "chase": {"level": "l1"},
    "fmm": {"n": 2000, "q": 60, "digits": 3},
    "fmm_u": {"n": 2000, "q": 64, "root": "sqrt", "vector_bits": 256},
    "dgemm": {"n": 64},
    "chain": {"sizes": (8, 16, 8, 4)},
    "stencil": {"stencil": "j1d", "size_1": 64, "steps": 4},
    "gpu_load": {"level": "l1"},
    "gpu_chase": {"level": "l1"},
    "gpu_gemm": {"n": 256},
    "gpu_dgemm": {"n": 192},
    "gpu_stencil": {"stencil": "j1d", "size_1": 4096, "steps": 8, "tile_t": 4, "tile_1": 64},
    "gpu_fmm": {"n": 5000},
    "cuda_dgemm": {"n": 192},
    "cuda_stencil": {"stencil": "j1d", "size_1": 4096, "steps": 8},
    "command": {"argv": ("true",)},
}


def executed(name: str) -> list[tuple[str, int]]:
    """(file, line at which it begins) of every function of ``kernels/`` that runs."""
    found: set[tuple[str, int]] = set()
    inside = str(ROOT / "kernels")

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(inside):
            return
        above: FrameType | None = frame
        while above is not None:
            if above.f_code.co_name == "<module>" and above.f_code.co_filename.startswith(inside):
                return  # this module is being imported
            above = above.f_back
        found.add((code.co_filename, frame.f_lineno))

    kernel = find_kernel(name)
    threading.settrace(note)
    sys.settrace(note)
    try:
        params = kernel.params.model_validate(SMALL.get(name, {}))
        kernel.counts(params)
        if kernel.prepare is not None:
            prepared = kernel.prepare(params, Team())
            prepared.run(1)
            prepared.counts()
            prepared.check()
            prepared.close()
        if "numba" in sys.modules:
            found |= compiled()
    except Exception as error:
        print(f"{name}: ended with {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.settrace(None)
    return sorted(place for place in found if place[0].startswith(inside))


def compiled() -> set[tuple[str, int]]:
    """The functions that Numba has compiled in this process."""
    from numba.core.dispatcher import Dispatcher

    codes = (
        own.py_func.__code__
        for own in gc.get_objects()
        if isinstance(own, Dispatcher) and own.overloads
    )
    return {(code.co_filename, code.co_firstlineno) for code in codes}


def main() -> None:
    """See the module's text."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(OTHERS)
    with context.Pool(1, maxtasksperchild=1) as pool:
        places = pool.map(executed, KERNELS, chunksize=1)
    Path(sys.argv[1]).write_text(json.dumps(dict(zip(KERNELS, places, strict=True))))


if __name__ == "__main__":
    main()
