"""A fake of AMD's package amdsmi that reads the folder named by FAKE_AMDSMI_TREE.

``gpuN/``: ``market_name``; ``energy`` and ``power``, each with a line ``KEY VALUE`` for every key
of the answer. A file that holds ``!N`` raises the library's error N; ``init`` may, too. What is not
there is not supported (2), and a GPU whose folder went away is not found (31). Names, keys and
codes: the AMD SMI Python API reference.
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


def _read(path: Path) -> str:
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise AmdSmiLibraryException(2 if path.parent.exists() else 31) from None
    except PermissionError:
        raise AmdSmiLibraryException(10) from None
    if text.startswith("!"):
        raise AmdSmiLibraryException(int(text[1:]))
    return text


def _read_answer(path: Path) -> dict[str, object]:
    answer: dict[str, object] = {}
    for line in _read(path).splitlines():
        key, value = line.split()
        if value == "N/A":
            answer[key] = value
        else:
            answer[key] = float(value) if "." in value else int(value)
    return answer


def amdsmi_init() -> None:
    if (_tree() / "init").exists():
        _read(_tree() / "init")


def amdsmi_shut_down() -> None:
    pass


def amdsmi_get_processor_handles() -> list[Path]:
    return sorted(_tree().glob("gpu[0-9]"))


def amdsmi_get_gpu_asic_info(handle: Path) -> dict[str, object]:
    return {"market_name": _read(handle / "market_name").strip()}


def amdsmi_get_energy_count(handle: Path) -> dict[str, object]:
    return _read_answer(handle / "energy")


def amdsmi_get_power_info(handle: Path) -> dict[str, object]:
    return _read_answer(handle / "power")
