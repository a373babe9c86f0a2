"""Builds ``fake_nvml.c``, a fake of NVIDIA's library, and installs it below a root.

What the tree holds is said at the top of ``fake_nvml.c``.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from sites.nvml_library import LIBRARY

SOURCE = Path(__file__).with_suffix(".c")
TREE = Path("nvml")
"""The folder of values below a root."""


@cache
def build() -> Path:
    """The compiled library, built once in a process."""
    folder = tempfile.mkdtemp(prefix="fake-nvml-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = Path(folder) / LIBRARY.name
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, "-o", library, SOURCE], check=True)
    return library


@contextmanager
def installed(root: Path) -> Iterator[None]:
    """The library in ``root``, which reads ``root/nvml`` as long as the context lasts.

    Within it CUDA's variables are not set, so that the machine's own do not choose the GPUs.
    """
    (root / LIBRARY).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(build(), root / LIBRARY)
    names = ("FAKE_NVML_TREE", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
    before = {name: os.environ.pop(name, None) for name in names}
    os.environ["FAKE_NVML_TREE"] = str(root / TREE)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def put(root: Path, name: str, value: object) -> None:
    """Replace a value of the tree: ``put(root, "gpu0/energy_mj", 17)``."""
    path = root / TREE / name
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(f"{value}\n")
    fresh.replace(path)
