"""A fake of AMD's package amdsmi that reads the folder named by FAKE_AMDSMI_TREE.

``gpuN/``: ``market_name``, ``address``; ``energy``, ``power`` and ``power_cap``, each with a line
``KEY VALUE`` for every key of the answer. A file that holds ``!N`` raises the library's error N;
``init`` may, too, and ``set_power_cap``, which refuses a set. ``taken_power_cap``: what a set takes
instead. What is not there is not supported (2), a GPU whose folder went away is not found (31), and
what holds no number is unexpected (43). Before amdsmi_init(), and after amdsmi_shut_down() however
often the former was called, every call raises 32. Names, keys and codes: the AMD SMI Python API
reference. As the driver does, a power cap takes whole watts (amdgpu_pm.c).
"""

from __future__ import annotations

import os
from pathlib import Path


class AmdSmiException(Exception):  # noqa: N818  # the name that the real library has
    """The base of the library's errors."""


class AmdSmiLibraryException(AmdSmiException):
    """An error code of the C library."""

    def __init__(self, code: int) -> None:
        super().__init__(f"Error code:\n\t{code} | AMDSMI_STATUS of the fake")
        self.code = code

    def get_error_code(self) -> int:
        return self.code


def _tree() -> Path:
    return Path(os.environ["FAKE_AMDSMI_TREE"])


_STARTED = False


def _read(path: Path) -> str:
    if not _STARTED:
        raise AmdSmiLibraryException(32)
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise AmdSmiLibraryException(2 if path.parent.exists() else 31) from None
    except PermissionError:
        raise AmdSmiLibraryException(10) from None
    except OSError:
        raise AmdSmiLibraryException(14) from None
    if text.startswith("!"):
        raise AmdSmiLibraryException(int(text[1:]))
    return text


def _read_answer(path: Path) -> dict[str, object]:
    answer: dict[str, object] = {}
    try:
        for line in _read(path).splitlines():
            key, value = line.split()
            if value == "N/A":
                answer[key] = value
            else:
                answer[key] = float(value) if "." in value else int(value)
    except ValueError:
        raise AmdSmiLibraryException(43) from None
    return answer


def _write(path: Path, text: str) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text)
    fresh.replace(path)


def _refuse(path: Path) -> None:
    """Raise the error that a file holds; there may be none."""
    if path.exists():
        _read(path)


def amdsmi_init() -> None:
    global _STARTED  # noqa: PLW0603  # the real library has one state in a process, too
    _STARTED = True
    try:
        _refuse(_tree() / "init")
    except AmdSmiException:
        _STARTED = False
        raise


def amdsmi_shut_down() -> None:
    global _STARTED  # noqa: PLW0603
    _STARTED = False


def amdsmi_get_processor_handles() -> list[Path]:
    if not _STARTED:
        raise AmdSmiLibraryException(32)
    return sorted(_tree().glob("gpu[0-9]"))


def amdsmi_get_gpu_asic_info(handle: Path) -> dict[str, object]:
    return {"market_name": _read(handle / "market_name").strip()}


def amdsmi_get_gpu_device_bdf(handle: Path) -> str:
    return _read(handle / "address").strip()


def amdsmi_get_energy_count(handle: Path) -> dict[str, object]:
    return _read_answer(handle / "energy")


def amdsmi_get_power_info(handle: Path) -> dict[str, object]:
    return _read_answer(handle / "power")


def amdsmi_get_power_cap_info(handle: Path) -> dict[str, object]:
    return _read_answer(handle / "power_cap")


def amdsmi_set_power_cap(handle: Path, sensor_ind: int, cap: int) -> None:
    if type(sensor_ind) is not int or type(cap) is not int:
        raise AmdSmiException("Invalid parameter")
    answer = amdsmi_get_power_cap_info(handle)
    _refuse(handle / "set_power_cap")
    if sensor_ind != 0 or not int(answer["min_power_cap"]) <= cap <= int(answer["max_power_cap"]):
        raise AmdSmiLibraryException(1)
    taken = cap - cap % 1_000_000
    if (handle / "taken_power_cap").exists():
        taken = int(_read(handle / "taken_power_cap"))
    lines = [f"{key} {taken if key == 'power_cap' else value}\n" for key, value in answer.items()]
    _write(handle / "power_cap", "".join(lines))
