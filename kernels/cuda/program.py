"""Compilation of CUDA C++ to GPU machine code by NVRTC. It needs no GPU or driver."""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from dvfs.files import write_kept
from kernels.kernel import KernelError

EXTRA_REMEDY = (
    "pip install 'dvfs-campaign[cuda13]' (drivers from 580.65 on) or 'dvfs-campaign[cuda12]' "
    "(from 525.60 on)"
)
NEEDS = (f"an NVIDIA GPU, and CUDA for Python: {EXTRA_REMEDY}",)
""":attr:`kernels.kernel.Kernel.needs` of every kernel that is compiled here."""
OPTIONS = ("-std=c++17",)
_USE = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?(?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True, kw_only=True)
class FunctionUse:
    """The resources of a function, as the compiler reports them: 32-bit ``registers`` of a thread,
    ``shared_bytes`` of a block, and register spills of a thread, ``spilled_bytes``."""

    registers: int
    shared_bytes: int
    spilled_bytes: int


@dataclass(frozen=True, kw_only=True)
class Source:
    """A CUDA C++ file and the values of its macros, by name. ``specific``: whether it uses
    instructions that later architectures lack, such as wgmma of sm_90."""

    path: Path
    macros: Mapping[str, int | str]
    specific: bool = False

    @property
    def options(self) -> list[str]:
        """The macros as options of a C++ compiler."""
        return [f"-D{name}={value}" for name, value in self.macros.items()]


@dataclass(frozen=True, kw_only=True)
class Program:
    """Machine code for an architecture: ``cubin``, and the resources of each function, by name."""

    architecture: str
    cubin: bytes
    functions: Mapping[str, FunctionUse]


def compile_program(source: Source, architecture: str) -> Program:
    """The machine code of ``source``. It is cached in the user's cache folder, keyed by its inputs.

    ``architecture``: ``sm_90``, for example; a specific source is compiled for its variant sm_90a.

    Raises:
        KernelError: the compiler is missing, does not know the architecture, or refuses the
            source; the text has the remedy.
    """
    architecture += "a" if source.specific else ""
    text = source.path.read_text(encoding="utf-8")
    try:
        compiler = version("nvidia-cuda-nvrtc")
    except ModuleNotFoundError:
        compiler = "of the system"
    key = "\0".join([text, *sorted(source.options), *OPTIONS, architecture, compiler])
    name = hashlib.sha256(key.encode()).hexdigest()
    cubin_path, log_path = (_cache() / f"{name}.{kind}" for kind in ("cubin", "log"))
    try:
        cubin, log = cubin_path.read_bytes(), log_path.read_text(encoding="utf-8")
    except OSError:
        cubin, log = _compiled(text, source, architecture)
        for path, data in ((log_path, log.encode()), (cubin_path, cubin)):
            with suppress(OSError):  # the cache is optional: it may not be writable
                write_kept(path, data)
    return Program(architecture=architecture, cubin=cubin, functions=_uses(log))


def _compiled(text: str, source: Source, architecture: str) -> tuple[bytes, str]:
    try:
        from cuda.core import Program as Compilation  # noqa: PLC0415
        from cuda.core import ProgramOptions  # noqa: PLC0415
    except ImportError as error:
        raise KernelError(
            f"GPU kernels need CUDA's compiler for Python, which cannot be imported ({error}): "
            f"{EXTRA_REMEDY}"
        ) from None
    log = io.StringIO()
    options = ProgramOptions(
        arch=architecture,
        std="c++17",
        name=source.path.name,
        ptxas_options="-v",
        # ProgramOptions refuses an empty list.
        define_macro=[(name, str(value)) for name, value in source.macros.items()] or None,
    )
    try:
        compilation = Compilation(text, "c++", options)
        code = compilation.compile("cubin", logs=log).code
    except Exception as error:
        if "invalid value for --gpu-architecture" in str(error):
            raise KernelError(
                f"the compiler does not know the architecture {architecture}: install one for this "
                f"GPU: {EXTRA_REMEDY}"
            ) from None
        if type(error).__name__ == "DynamicLibNotFoundError":
            raise KernelError(f"CUDA's compiler NVRTC is not installed: {EXTRA_REMEDY}") from None
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise KernelError(f"{source.path.name}: {' '.join(lines[:3])}") from None
    assert isinstance(code, bytes)  # noqa: S101
    return code, log.getvalue()


def _uses(log: str) -> dict[str, FunctionUse]:
    """The resources of each function, from the output of ``ptxas -v``."""
    uses = {}
    for found in _USE.finditer(log):
        shared = _SHARED.search(found["rest"])
        uses[found["name"]] = FunctionUse(
            registers=int(found["registers"]),
            shared_bytes=int(shared[1]) if shared else 0,
            spilled_bytes=int(found["stores"]) + int(found["loads"]),
        )
    return uses


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "dvfs-campaign" / "cuda"
