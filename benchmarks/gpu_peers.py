"""Other programs that the GPU's products are compared with, and variants of the own product."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from kernels.cuda.products.gemm_counts import random_matrix


@dataclass(frozen=True)
class Peer:
    """``time_s`` of one product by the package ``name``."""

    name: str
    time_s: float


def product_s(number: str, n: int, seconds: float) -> Peer | None:
    """The time of A B by torch, or else CuPy, of the same n x n numbers as ``gpu_gemm`` takes: a
    GPU's power, and so its clock, depends on them. None where neither is installed, or CuPy has no
    such numbers."""
    if find_spec("torch") is not None:
        return Peer("torch", _torch_s(number, n, seconds))
    if find_spec("cupy") is not None and number != "bf16":
        return Peer("CuPy", _cupy_s(number, n, seconds))
    return None


def _torch_s(number: str, n: int, seconds: float) -> float:
    import torch

    def on_gpu(seed: int) -> torch.Tensor:
        numbers = random_matrix(number, n, seed).reshape(n, n)
        if number == "bf16":
            return torch.from_numpy(numbers.view(np.int16)).view(torch.bfloat16).cuda()
        return torch.from_numpy(numbers).cuda()

    a, b = on_gpu(0), on_gpu(1)
    c = torch.empty_like(a)
    return _mean_s(lambda: torch.matmul(a, b, out=c), torch.cuda.synchronize, seconds)


def _cupy_s(number: str, n: int, seconds: float) -> float:
    import cupy

    a, b = (cupy.asarray(random_matrix(number, n, seed).reshape(n, n)) for seed in (0, 1))
    c = cupy.empty_like(a)
    done = cupy.cuda.Device().synchronize
    return _mean_s(lambda: cupy.matmul(a, b, out=c), done, seconds)


def _mean_s(once: Any, done: Any, seconds: float) -> float:
    """Seconds of one call: the mean over about ``seconds``, after as long a warm-up, as
    :func:`benchmarks.gpu_here.run_for` measures."""
    once()
    done()
    for _ in range(2):
        begin_s = time.perf_counter()
        calls = 0
        while time.perf_counter() - begin_s < seconds:
            for _ in range(8):
                once()
            done()
            calls += 8
        mean_s = (time.perf_counter() - begin_s) / calls
    return mean_s


def variants_of_example(path: Path, count: int) -> list[dict[str, Any]]:
    """The parameters of so many variants of a campaign file's space, drawn at random."""
    from campaign.plan.plan import make_plan

    texts = sorted({point.params for point in make_plan(path).points})
    drawn = np.random.default_rng(1).permutation(len(texts))[:count]
    return [json.loads(texts[i]) for i in drawn]


def processors() -> int:
    """Multiprocessors of the GPU."""
    from cuda.core import Device

    device = Device(0)
    device.set_current()
    return int(device.properties.multiprocessor_count)
