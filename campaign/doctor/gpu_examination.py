"""Whether GPU kernels can run on this node, as ``campaign doctor`` reports it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kernels.cuda.device import NEEDED_DRIVERS, cuda_major
from sites.nvml_library import Gpu, NvmlError, NvmlLibrary, find_gpus, open_library


@dataclass(frozen=True, kw_only=True)
class GpuExamination:
    """What GPU kernels find on a node with NVIDIA GPUs.

    ``gpus``, ``uuids``: of those that this process may use; ``architectures``: such as sm_90, each
    once; ``driver``: its version. All are empty where NVML fails, or a variable hides the GPUs.
    ``cuda``: the major version of the installed packages of CUDA, None where they are missing.
    ``problem``: why GPU kernels cannot run; None: nothing is known against it.
    """

    gpus: list[str]
    uuids: list[str]
    architectures: list[str]
    driver: str
    cuda: int | None = None
    problem: str | None = None
    remedy: str | None = None


def examine_gpus(root: Path = Path("/")) -> GpuExamination | None:
    """Ask NVML, the installed packages and the compiler. None: NVML lists no GPU here."""
    try:
        library = open_library(root)
    except NvmlError:
        return None
    try:
        with library.explained(library.path):
            if library.nvml.nvmlDeviceGetCount() == 0:
                return None
        gpus = find_gpus(library)
        architectures = sorted({_architecture(library, gpu) for gpu in gpus})
        with library.explained("the driver"):
            driver = str(library.nvml.nvmlSystemGetDriverVersion())
    except NvmlError as error:
        return GpuExamination(
            gpus=[], uuids=[], architectures=[], driver="", problem=error.what, remedy=error.remedy
        )
    finally:
        library.close()
    examined = GpuExamination(
        gpus=[gpu.name for gpu in gpus],
        uuids=[gpu.uuid for gpu in gpus],
        architectures=architectures,
        driver=driver,
    )
    return examine_packages(examined)


def examine_packages(examined: GpuExamination) -> GpuExamination:
    """Check that packages of CUDA are installed that fit the driver and the architectures."""
    driver = examined.driver
    fitting = [major for major, oldest in NEEDED_DRIVERS.items() if is_from(driver, oldest)]
    if not fitting:
        needed = NEEDED_DRIVERS[min(NEEDED_DRIVERS)]
        problem = f"the driver {driver} is too old: GPU kernels need {needed} or later"
        return replace(examined, problem=problem, remedy="ask for a newer driver")
    install = f"pip install 'dvfs-campaign[cuda{max(fitting)}]'"
    try:
        major = cuda_major()
        import cuda.core  # noqa: F401, PLC0415

        supported = known_architectures()
    except (ImportError, RuntimeError) as error:
        problem = f"the packages of CUDA for GPU kernels cannot be used ({error})"
        return replace(examined, problem=problem, remedy=install)
    examined = replace(examined, cuda=major)
    if major not in fitting:
        needed = NEEDED_DRIVERS.get(major, f"of CUDA {major}")
        problem = f"the packages of CUDA {major} need driver {needed} or later"
        return replace(examined, problem=problem, remedy=f"{install}, or ask for a newer driver")
    unknown = [name for name in examined.architectures if name not in supported]
    if unknown:
        problem = (
            f"the compiler does not know {', '.join(unknown)}; "
            f"it knows {supported[0]} to {supported[-1]}"
        )
        remedy = _other_compiler(unknown[0], supported, install)
        return replace(examined, problem=problem, remedy=remedy)
    return examined


def _other_compiler(unknown: str, supported: list[str], install: str) -> str:
    if _number(unknown) < _number(supported[0]):
        return "this GPU needs an older compiler: pip install 'dvfs-campaign[cuda12]'"
    return f"this GPU needs a newer compiler: {install} --upgrade"


def known_architectures() -> list[str]:
    """The architectures that the installed compiler supports, in order: ``["sm_75", ...]``.

    Raises:
        ImportError, RuntimeError: no compiler is installed.
    """
    from cuda.bindings import nvrtc  # noqa: PLC0415

    error, numbers = nvrtc.nvrtcGetSupportedArchs()
    if int(error):
        raise RuntimeError(str(error))
    return [f"sm_{number}" for number in sorted(numbers)]


def is_from(driver: str, oldest: str) -> bool:
    """Whether a driver's version is at least ``oldest``. True if it cannot be parsed."""
    with suppress(ValueError):
        numbers = [int(part) for part in driver.split(".")]
        return numbers >= [int(part) for part in oldest.split(".")]
    return True


def _architecture(library: NvmlLibrary, gpu: Gpu) -> str:
    with library.explained(f"the architecture of {gpu.label}"):
        major, minor = library.nvml.nvmlDeviceGetCudaComputeCapability(gpu.handle)
    return f"sm_{major}{minor}"


def _number(architecture: str) -> int:
    return int(architecture.removeprefix("sm_"))
