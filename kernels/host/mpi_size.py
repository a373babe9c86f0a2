"""``python mpi_size.py LIBRARY``: print the size of COMM_WORLD that an MPI library sees.

Run on every rank, it shows whether launcher and library use the same start-up protocol. It needs
no header of the library, only the value of MPI_COMM_WORLD in Open MPI, in MPICH (also Intel's and
Cray's), or in the standard ABI of MPI 5.
"""

import ctypes
import sys

MPICH_WORLD = 0x44000000
STANDARD_WORLD = 0x101


def main(path: str) -> None:
    """Print the line ``mpi size N``. ``path``: the library's file."""
    library = ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    world = ctypes.c_void_p(STANDARD_WORLD if "libmpi_abi" in path else MPICH_WORLD)
    if hasattr(library, "ompi_mpi_comm_world"):
        world = ctypes.c_void_p(
            ctypes.addressof(ctypes.c_char.in_dll(library, "ompi_mpi_comm_world"))
        )
    size = ctypes.c_int()
    library.MPI_Init(None, None)
    library.MPI_Comm_size(world, ctypes.byref(size))
    sys.stdout.write(f"mpi size {size.value}\n")
    sys.stdout.flush()
    library.MPI_Finalize()


if __name__ == "__main__":
    main(sys.argv[1])
