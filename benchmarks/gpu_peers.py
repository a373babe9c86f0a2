"""Other programs that the GPU's products are compared with, and variants of the own product."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Peer:
    """``time_s`` of one product by the package ``name``."""

    name: str
    time_s: float


def product_s(number: str, n: int, seconds: float) -> Peer | None:
    """The time of A B of n x n numbers by torch, or else CuPy; None where neither is installed, or
    CuPy has no such numbers."""
    if find_spec("torch") is not None:
        return Peer("torch", _torch_s(number, n, seconds))
    if find_spec("cupy") is not None and number != "bf16":
        return Peer("CuPy", _cupy_s(number, n, seconds))
    return None


def _torch_s(number: str, n: int, seconds: float) -> float:
    import torch

    names = {"sp": "float32", "dp": "float64", "half": "float16", "bf16": "bfloat16"}
    kind = getattr(torch, names[number])
    a, b = (torch.rand(n, n, device="cuda").to(kind) for _ in range(2))
    c = torch.empty_like(a)
    return _best_s(lambda: torch.matmul(a, b, out=c), torch.cuda.synchronize, seconds)


def _cupy_s(number: str, n: int, seconds: float) -> float:
    import cupy

    kind = {"sp": cupy.float32, "dp": cupy.float64, "half": cupy.float16}[number]
    a, b = (cupy.random.random((n, n)).astype(kind) for _ in range(2))
    c = cupy.empty_like(a)
    done = cupy.cuda.Device().synchronize
    return _best_s(lambda: cupy.matmul(a, b, out=c), done, seconds)


def _best_s(once: Any, done: Any, seconds: float) -> float:
    """Seconds of one call, over batches of about a tenth of ``seconds``: the least."""
    once()
    done()
    begin_s = time.perf_counter()
    once()
    done()
    batch = max(1, round(seconds / 10.0 / (time.perf_counter() - begin_s)))
    best_s = float("inf")
    for _ in range(10):
        begin_s = time.perf_counter()
        for _ in range(batch):
            once()
        done()
        best_s = min(best_s, (time.perf_counter() - begin_s) / batch)
    return best_s


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
