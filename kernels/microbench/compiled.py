"""Access to the compiled loops without importing Numba before a kernel is prepared."""

from __future__ import annotations

from types import ModuleType

from kernels.kernel import KernelFailed


def compiled_loops() -> ModuleType:
    """The module of compiled loops, imported only where a kernel is prepared.

    Raises:
        KernelFailed: Numba is missing, or finds no directory to keep machine code in.
    """
    try:
        from kernels.microbench import loops  # noqa: PLC0415  (a plan must not import Numba)
    except (ImportError, RuntimeError) as error:
        raise KernelFailed(
            f"cannot compile the loops: {error} (NUMBA_CACHE_DIR names a writable directory "
            f"for the machine code)"
        ) from error
    return loops
