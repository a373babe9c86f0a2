"""``gpu_dgemm``: the matrix product C = C + A B in double precision on a GPU, in variants.

The program is from Anzt et al. 2015, section 2.2, in CUDA C++ for current GPUs: a block of
dim_m x dim_n threads computes a tile of blk_m x blk_n of C = C + A B. It goes along A and B in
steps of blk_k: load a stripe of each into shared memory, wait for all threads, multiply from shared
memory, wait for all threads. A thread has blk_m / dim_m x blk_n / dim_n sums in registers, which
start with the numbers of C. Plain loads that bypass L1 replace the paper's texture reads. All
matrices are padded with zeros to whole tiles, so that no loop tests for an edge.

With ``mma`` the tensor cores multiply (DMMA): each warp computes a part of the block's tile by
products of 8 or 16 rows and 8 columns. Shared memory holds ``stages`` stripes: one is multiplied
while the others are copied (``cp.async``).

Operation counts:

- ``dp``, or with ``mma`` ``tc_dp``: two for each executed multiply-add, in whole tiles. Exact;
- ``shared``: each stripe is stored once; for every column of A's stripe a thread loads its rows of
  A and its columns of B; with ``mma`` only the numbers of its lane, a quarter and an eighth of
  them. Exact, in bytes added over threads: a number that several threads of a warp load together
  counts for each of them;
- ``l2`` and ``dram``: their sum is what the threads load and store of A, B and C, exact. Its
  division is a model: C is read from DRAM and written to it once; blocks start in the order of C's
  tiles, by columns or in bands, in rounds of the blocks that the GPU runs concurrently; the blocks
  of a round read the rows of A and columns of B that they share from DRAM once. If A and B fit into
  L2, they are read from DRAM once in total. L2 serves the rest.

The number of concurrent blocks is known on the node. A plan assumes an H100 with 132 processors,
and two registers for each number that a thread holds, plus OTHER_REGISTERS.

The compiler reports the registers, spills and shared memory of a variant before it runs, without a
GPU or a driver. (Anzt et al. 2015 choose variants by estimates of these.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from kernels.cuda.architectures import MOST_BLOCK_SHARED_BYTES, PROCESSORS, processor_of
from kernels.cuda.device import Gpu, Launch
from kernels.cuda.processor import WARP
from kernels.cuda.products.tiles import ITEM_BYTES, Tiles
from kernels.cuda.program import NEEDS, FunctionUse, Source, compile_program
from kernels.host.ranks import Team
from kernels.kernel import Counts, Kernel, KernelError, ParameterError
from kernels.products.kernel import Matrices
from kernels.products.probes import Probes

SOURCE = Path(__file__).with_name("dgemm.cu")
FUNCTION = "add_product"
MOST_STEPS = 256
"""The most multiply-adds in one pass of the inner loop, unless a single step of a tile has more."""
OTHER_REGISTERS = 24
PADDING = 4
"""Numbers of padding after each column of a stripe for tensor cores, so that the lanes of a load
access different banks: see the source."""
LANES_M, LANES_N = 8, 4
"""The threads of a warp along the rows and columns of C with ``mma``."""
PLANNED_PROCESSORS, PLANNED_ARCHITECTURE, PLANNED_L2_BYTES = 132, "sm_90", 50 << 20
BATCH = 16
"""The number of products in the longer graph."""


class GpuDgemmParams(Tiles):
    """The product, and the variant. The defaults are the fastest of Anzt et al. 2015, Table II."""

    most_shared_bytes: ClassVar[int] = MOST_BLOCK_SHARED_BYTES

    n: int = Field(ge=1, le=1 << 17)
    """rows and columns of A, B and C"""
    mma: Literal["none", "m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"] = "none"
    """instruction of the tensor cores: m8n8k4 from sm_80 on, others from sm_90 on. With one, simd
    is 1; dim_m, dim_n, blk_m are multiples of 8, 4, m dim_m / 8; blk_n of 2 dim_n; blk_k of 8 and 2
    k"""
    stages: int = Field(default=1, ge=1, le=8)
    """stripes of A and B in shared memory; with mma at least 2, else 1"""
    band: int = Field(default=0, ge=0, le=1024)
    """rows of tiles of C that blocks take together, column after column; 0: all"""

    @model_validator(mode="after")
    def _tensor_cores_can_multiply(self) -> GpuDgemmParams:
        shape = self.mma_shape()
        if shape is None:
            if self.stages > 1:
                raise ParameterError(
                    "stages", f"found {self.stages}, and mma is none", "use 1, or choose an mma"
                )
            return self
        m, k = shape
        if not self.simd:
            raise ParameterError("simd", f"found 0, and mma is {self.mma}", "use 1")
        if self.stages < 2:
            raise ParameterError("stages", f"found 1, and mma is {self.mma}", "use 2 or more")
        for name, divisor in (
            ("dim_m", LANES_M),
            ("dim_n", LANES_N),
            ("blk_m", m * self.dim_m // LANES_M),
            ("blk_n", 2 * self.dim_n),
            ("blk_k", max(8, 2 * k)),
        ):
            if (found := getattr(self, name)) % divisor:
                raise ParameterError(
                    name,
                    f"found {found}, and mma {self.mma} needs a multiple of {divisor}",
                    "use one",
                )
        return self

    def mma_shape(self) -> tuple[int, int] | None:
        """Rows and columns of A in the tensor cores' instruction; None without one."""
        if self.mma == "none":
            return None
        m, k = self.mma.removeprefix("m").split("n8k")
        return int(m), int(k)

    def shared_bytes(self) -> int:
        """The bytes of shared memory of a block: its stripes of A and of B."""
        if self.mma == "none":
            return super().shared_bytes()
        of_a, of_b = self.blk_k * (self.blk_m + PADDING), self.blk_n * (self.blk_k + PADDING)
        return ITEM_BYTES * self.stages * (of_a + of_b)

    def operands(self, depth: int) -> int:
        """Numbers of A and B that a thread loads from shared memory for ``depth`` columns of A."""
        rows, columns = self.sums()
        if self.mma == "none":
            return (rows + columns) * depth
        return rows * depth // LANES_N + columns * depth // LANES_M

    def padded(self) -> tuple[int, int, int]:
        """Rows and columns of C, and columns of A, padded to whole tiles."""
        sizes = (self.blk_m, self.blk_n, self.blk_k)
        rows, columns, depth = (-(-self.n // size) * size for size in sizes)
        return rows, columns, depth

    def blocks(self) -> int:
        """The number of tiles of C."""
        rows, columns, _ = self.padded()
        return rows // self.blk_m * (columns // self.blk_n)

    def steps(self) -> int:
        """Columns of A in one pass of the inner loop: a divisor of blk_k."""
        rows, columns = self.sums()
        numbers = 1 + self.simd
        divisors = [d for d in range(numbers, self.blk_k + 1, numbers) if self.blk_k % d == 0]
        return max((d for d in divisors if d * rows * columns <= MOST_STEPS), default=numbers)


def dgemm_source(params: GpuDgemmParams) -> Source:
    """The source with the variant's macros."""
    names = ("dim_m", "dim_n", "blk_m", "blk_n", "blk_k", "m_a", "n_a", "m_b", "n_b", "band")
    macros: dict[str, int | str] = {name.upper(): getattr(params, name) for name in names}
    if shape := params.mma_shape():
        macros |= {"MMA_M": shape[0], "MMA_K": shape[1], "STAGES": params.stages}
    else:
        macros |= {"SIMD": params.simd, "STEPS": params.steps()}
    return Source(path=SOURCE, macros=macros)


def count_product(params: GpuDgemmParams, at_a_time: int, l2_bytes: int) -> dict[str, float]:
    """Class -> operations of one product, on a GPU with ``l2_bytes`` of L2 cache that runs
    ``at_a_time`` blocks concurrently."""
    rows, columns, depth = params.padded()
    passes = params.blocks() * (depth // params.blk_k)
    stripes = params.blk_k * (params.blk_m + params.blk_n)
    operands = params.threads() * params.operands(params.blk_k)
    loaded = ITEM_BYTES * float(passes * stripes)
    once = ITEM_BYTES * float(depth) * (rows + columns)
    in_rounds = ITEM_BYTES * float(depth) * _read_in_rounds(params, at_a_time)
    from_dram = once if once <= l2_bytes else min(loaded, in_rounds)
    return {
        "dp" if params.mma == "none" else "tc_dp": 2.0 * rows * columns * depth,
        "shared": ITEM_BYTES * float(passes) * (stripes + operands),
        "l2": loaded - from_dram,
        "dram": from_dram + 2 * ITEM_BYTES * float(rows) * columns,
    }


def _read_in_rounds(params: GpuDgemmParams, at_a_time: int) -> int:
    """Rows of A and columns of B that are read, added over rounds of ``at_a_time`` blocks. The
    blocks of a round are the next tiles of C, by columns of each band."""
    rows, columns, _ = params.padded()
    down, across, blocks = rows // params.blk_m, columns // params.blk_n, params.blocks()
    height = min(params.band or down, down)
    first = np.arange(0, blocks, at_a_time)
    last = np.minimum(first + at_a_time, blocks) - 1
    # For the first and the last tile: the band, its rows of tiles, and the position in it.
    (band_1, high_1, place_1), (band_2, high_2, place_2) = (
        (band, np.minimum(height, down - band * height), tile - band * height * across)
        for tile, band in ((tile, tile // (height * across)) for tile in (first, last))
    )
    column_1, column_2 = place_1 // high_1, place_2 // high_2
    is_one = band_1 == band_2
    read_rows = np.where(
        is_one,
        np.minimum(last - first + 1, high_1),
        np.minimum(high_1 * across - place_1, high_1)
        + np.maximum(band_2 - band_1 - 1, 0) * height
        + np.minimum(place_2 + 1, high_2),
    )
    # In two bands, the columns from the first tile on and those up to the last; in more, all.
    read_columns = np.where(is_one, 0, across) + column_2 - column_1 + 1
    read_columns = np.where(band_2 - band_1 > 1, across, np.minimum(read_columns, across))
    return int((read_rows * params.blk_m + read_columns * params.blk_n).sum())


def count_planned(params: GpuDgemmParams) -> dict[str, float]:
    """Class -> operations of one product, on the GPU assumed by a plan."""
    rows, columns = params.sums()
    shape = params.mma_shape()
    # Tensor cores hold two slices: one is loaded while the other is multiplied.
    held = params.operands(2 * shape[1] if shape else 1)
    registers = min(2 * (rows * columns + held) + OTHER_REGISTERS, 255)
    processor = PROCESSORS[PLANNED_ARCHITECTURE]
    each = processor.resident_blocks(params.threads(), registers, params.shared_bytes())
    return count_product(params, PLANNED_PROCESSORS * max(each, 1), PLANNED_L2_BYTES)


def planned_metrics(params: GpuDgemmParams) -> Mapping[str, float]:
    """The metrics of a variant that need no compiler; a run on a GPU records more."""
    return {"shared_bytes": params.shared_bytes(), "warps": params.threads() // WARP}


@dataclass(frozen=True, kw_only=True)
class VariantUse:
    """The resources of a variant: ``registers`` and ``spilled_bytes`` of a thread, ``threads`` and
    ``shared_bytes`` of a block; ``resident_blocks``: blocks that a processor runs concurrently.
    ``refusal``: why the variant is excluded; empty if it is not."""

    registers: int
    spilled_bytes: int
    threads: int
    shared_bytes: int
    resident_blocks: int
    refusal: str


def variant_use(params: GpuDgemmParams, architecture: str) -> VariantUse:
    """The resources of a variant on an architecture, such as ``sm_90``.

    Raises:
        kernels.kernel.KernelError: the architecture is unknown, lacks the instruction, or there is
            no compiler for it.
    """
    processor = processor_of(architecture)
    if why := lacking(params, architecture):
        raise KernelError(why)
    use = compile_program(dgemm_source(params), architecture).functions[FUNCTION]
    threads, shared_bytes = params.threads(), params.shared_bytes()
    return VariantUse(
        registers=use.registers,
        spilled_bytes=use.spilled_bytes,
        threads=threads,
        shared_bytes=shared_bytes,
        resident_blocks=processor.resident_blocks(threads, use.registers, shared_bytes),
        refusal=refusal(params, use, processor.block_shared_bytes),
    )


def lacking(params: GpuDgemmParams, architecture: str) -> str:
    """The instruction of the variant that the architecture lacks; empty if it has all."""
    capability, needed = int(architecture.removeprefix("sm_")), 80 if params.mma == "m8n8k4" else 90
    if params.mma == "none" or capability >= needed:
        return ""
    other = "m8n8k4 or none" if capability >= 80 else "none"
    return f"mma {params.mma} needs sm_{needed} or later, not {architecture}: choose {other}"


def refusal(params: GpuDgemmParams, use: FunctionUse, block_shared_bytes: int) -> str:
    """Why a variant is refused on a GPU whose blocks have at most ``block_shared_bytes``: it does
    not fit, or spills registers; empty if it is not refused."""
    if (shared_bytes := params.shared_bytes()) > block_shared_bytes:
        return (
            f"it cannot be launched: a block needs {shared_bytes} bytes of shared memory, and this "
            f"GPU's have at most {block_shared_bytes}; make blk_m, blk_n"
            f"{' or blk_k' if params.mma == 'none' else ', blk_k or stages'} smaller"
        )
    if use.spilled_bytes:
        rows, columns = params.sums()
        return (
            f"the registers of a block of {params.threads()} threads do not suffice for {rows} x "
            f"{columns} sums of each: the compiler uses {use.registers} registers a thread and "
            f"spills {use.spilled_bytes} bytes to memory, so that more would be moved than is "
            f"counted; make blk_m or blk_n smaller, or a block's threads fewer"
        )
    return ""


def with_use(
    variants: Iterable[GpuDgemmParams], architecture: str
) -> Iterator[tuple[GpuDgemmParams, VariantUse]]:
    """Each variant with its resources. The first compilation takes some tenths of a second."""
    for params in variants:
        yield params, variant_use(params, architecture)


class DgemmRun:
    """The kernel with its matrices on the GPU."""

    def __init__(self, params: GpuDgemmParams, team: Team) -> None:
        """Add A B to C once, so that nothing is loaded while the kernel is measured."""
        self._params, self._gpu = params, Gpu(team)
        try:
            architecture = self._gpu.architecture
            if why := lacking(params, architecture):
                raise KernelError(f"this variant is not run: {why}")
            program = compile_program(dgemm_source(params), architecture)
            self._use = program.functions[FUNCTION]
            if why := refusal(params, self._use, self._gpu.block_shared_bytes):
                raise KernelError(f"this variant is not run on {architecture}: {why}")
            threads, shared_bytes = params.threads(), params.shared_bytes()
            function = self._gpu.function(program, FUNCTION, shared_bytes)
            self._at_a_time = self._gpu.resident_blocks(function, threads, shared_bytes)
            if not self._at_a_time:
                raise KernelError(
                    f"no processor of this GPU has room for a block of {threads} threads with "
                    f"{self._use.registers} registers each and {shared_bytes} bytes of shared "
                    f"memory; make blk_m, blk_n or blk_k smaller"
                )
            matrices = Matrices.random(params.n, team.rank)
            rows, columns, depth = params.padded()
            a, b, c = matrices.square()
            self._probes = Probes(a, b, c, team.rank)
            # The kernel stores matrices by columns: the transpose of an array by rows.
            self._like_c = np.zeros((columns, rows))
            self._c = self._gpu.array(padded(c, rows, columns))
            arguments = (
                self._c,
                self._gpu.array(padded(a, rows, depth)),
                self._gpu.array(padded(b, depth, columns)),
                np.int64(rows),
                np.int64(depth),
            )
            launch = Launch(
                function=function,
                blocks=params.blocks(),
                threads=threads,
                arguments=arguments,
                shared_bytes=shared_bytes,
            )
            self._one = self._gpu.recorded([launch])
            self._batch = self._gpu.recorded([launch] * BATCH)
            self._runs = 0
            self.run(1)
        except BaseException:
            self._gpu.close()
            raise

    def run(self, iterations: int) -> None:
        """Add A B to C ``iterations`` times, in graphs of BATCH products and of one."""
        batches, single = divmod(iterations, BATCH)
        self._gpu.replay(self._batch, batches)
        self._gpu.replay(self._one, single)
        self._runs += iterations

    def counts(self) -> Counts:
        """Operations of one product on this GPU."""
        return count_product(self._params, self._at_a_time, self._gpu.l2_bytes)

    def metrics(self) -> Mapping[str, float]:
        """The variant's resources, and the blocks that each processor runs concurrently."""
        return {
            "registers": self._use.registers,
            "spilled_bytes": self._use.spilled_bytes,
            "resident_blocks": self._at_a_time // self._gpu.processors,
        }

    def check(self) -> None:
        """Compare C with the initial C + runs A B: see :mod:`kernels.products.probes`."""
        n = self._params.n
        c = self._gpu.copied(self._c, self._like_c).T[:n, :n]
        self._probes.check(c, self._runs)

    def close(self) -> None:
        """Release the GPU's memory."""
        self._gpu.close()


def padded(matrix: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The matrix by columns, padded with zeros: float64 (columns, rows)."""
    result = np.zeros((columns, rows))
    result[: matrix.shape[1], : matrix.shape[0]] = matrix.T
    return result


def _refused_on(params: GpuDgemmParams, architecture: str) -> str:
    return lacking(params, architecture) or variant_use(params, architecture).refusal


gpu_dgemm = Kernel(
    name="gpu_dgemm",
    summary="a GPU's tiled matrix product in double precision, in variants",
    counted="flops of whole tiles (dp or tc_dp) and bytes of shared memory, exact; bytes at l2 and "
    "dram, by a model",
    classes=("dp", "tc_dp", "shared", "l2", "dram"),
    params=GpuDgemmParams,
    counts=count_planned,
    metrics=planned_metrics,
    prepare=DgemmRun,
    needs=NEEDS,
    refused_on=_refused_on,
)
