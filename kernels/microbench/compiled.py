"""Import of the compiled loops, and with them Numba, only when a kernel is prepared."""

from __future__ import annotations

from types import ModuleType

from kernels.kernel import not_compiled


def compiled_loops() -> ModuleType:
    """The module :mod:`kernels.microbench.loops`.

    Raises:
        KernelError: Numba is missing, or has no writable directory for its machine code.
    """
    try:
        from kernels.microbench import loops  # noqa: PLC0415  (a plan must not import Numba)
    except (ImportError, RuntimeError) as error:
        raise not_compiled(error) from error
    return loops
