"""The variants of a GPU's matrix product: the tiles and thread shapes of Anzt et al. 2015."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, model_validator

from kernels.cuda.processor import WARP
from kernels.kernel import ParameterError, Params

ITEM_BYTES = 8
BLOCK_THREADS = 1024
"""The most threads of a block on every GPU."""
LARGEST = 1 << 16


class Tiles(Params):
    """The product, and the variant. The defaults are the fastest of Anzt et al. 2015, Table II."""

    most_shared_bytes: ClassVar[int]
    """The most shared memory of a block; a variant that needs more is refused without a GPU."""

    n: int = Field(ge=1, le=1 << 20)
    """rows and columns of A, B and C"""
    dim_m: int = Field(default=16, ge=1, le=BLOCK_THREADS)
    """threads of a block along the rows of C"""
    dim_n: int = Field(default=16, ge=1, le=BLOCK_THREADS)
    """threads of a block along the columns of C"""
    blk_m: int = Field(default=64, ge=1, le=LARGEST)
    """rows of C that a block computes, a multiple of dim_m"""
    blk_n: int = Field(default=96, ge=1, le=LARGEST)
    """columns of C that a block computes, a multiple of dim_n"""
    blk_k: int = Field(default=16, ge=1, le=LARGEST)
    """columns of A, and rows of B, in shared memory at a time"""
    m_a: int = Field(default=64, ge=1, le=BLOCK_THREADS)
    """threads along the rows of A as it is loaded; divides blk_m"""
    n_a: int = Field(default=4, ge=1, le=BLOCK_THREADS)
    """threads along the columns of A; divides blk_k; m_a n_a = dim_m dim_n"""
    m_b: int = Field(default=16, ge=1, le=BLOCK_THREADS)
    """threads along the rows of B as it is loaded; divides blk_k"""
    n_b: int = Field(default=16, ge=1, le=BLOCK_THREADS)
    """threads along the columns of B; divides blk_n; m_b n_b = dim_m dim_n"""
    simd: int = Field(default=0, ge=0, le=1)
    """1: a thread loads two numbers at a time; 2 m_a divides blk_m, and 2 m_b blk_k"""

    @model_validator(mode="after")
    def _can_be_built(self) -> Tiles:
        threads = self.threads()
        if threads > BLOCK_THREADS or threads % WARP:
            raise ParameterError(
                "dim_m",
                f"dim_m dim_n = {threads} threads in a block",
                f"use a multiple of {WARP}, at most {BLOCK_THREADS}",
            )
        for shape in (("m_a", "n_a"), ("m_b", "n_b")):
            product = getattr(self, shape[0]) * getattr(self, shape[1])
            if product != threads:
                raise ParameterError(
                    shape[0],
                    f"{shape[0]} {shape[1]} = {product}, and a block has {threads} threads",
                    "make both the same",
                )
        numbers = 1 + self.simd
        for divisor, name, of in (
            (self.dim_m, "dim_m", "blk_m"),
            (self.dim_n, "dim_n", "blk_n"),
            (numbers * self.m_a, "2 m_a" if self.simd else "m_a", "blk_m"),
            (self.n_a, "n_a", "blk_k"),
            (numbers * self.m_b, "2 m_b" if self.simd else "m_b", "blk_k"),
            (self.n_b, "n_b", "blk_n"),
        ):
            if getattr(self, of) % divisor:
                raise ParameterError(
                    of,
                    f"found {getattr(self, of)}, not a multiple of {name}, {divisor}",
                    "use a multiple",
                )
        if (shared_bytes := self.shared_bytes()) > self.most_shared_bytes:
            raise ParameterError(
                "blk_m",
                f"{shared_bytes} bytes of shared memory in a block, and there are "
                f"{self.most_shared_bytes}",
                "make blk_m, blk_n or blk_k smaller",
            )
        return self

    def threads(self) -> int:
        """The number of threads of a block."""
        return self.dim_m * self.dim_n

    def sums(self) -> tuple[int, int]:
        """The rows and columns of C whose sums a thread has in registers."""
        return self.blk_m // self.dim_m, self.blk_n // self.dim_n

    def shared_bytes(self) -> int:
        """The bytes of shared memory of a block: a stripe of A and one of B."""
        return ITEM_BYTES * self.blk_k * (self.blk_m + self.blk_n)
