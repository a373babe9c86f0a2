"""A fake of AMD's package amdsmi that reads the folder named by FAKE_AMDSMI_TREE.

``gpuN/``:

- ``market_name``, ``address``; ``energy``, ``power`` and ``power_cap``, each with a line
  ``KEY VALUE`` for every key of the answer. ``taken_power_cap``: what a set takes instead.
- ``limits`` of clocks in MHz, with the keys sclk_min, sclk_max, mclk_max; ``default_limits``, the
  widest that can be set; ``shown_limits``, instead of those set; ``perf_level``; ``mclk_table``.
- ``clocks``: sclk and mclk that the GPU runs at without limits. ``idle``: there is no work, so the
  lower limit does not hold. ``shown_clocks``: what is shown instead.

A file that holds ``!N`` raises the library's error N; ``init`` may, too, and ``set_power_cap``,
``set_clk_limit`` and ``set_perf_level``, which refuse a set. What is not there is not supported
(2), a GPU whose folder went away is not found (31), what holds no number is unexpected (43). Before
amdsmi_init(), and after amdsmi_shut_down() however often the former was called, every call raises
32. Names, keys and codes: the AMD SMI Python API reference.

As in the driver, a power cap takes whole watts (amdgpu_pm.c), a limit sets the level to manual, the
level auto restores all limits unless ``keeps_limits`` exists, and the lower limit of the memory
clock cannot be set (smu_v13_0_6_ppt.c).
"""

from __future__ import annotations

import os
from enum import IntEnum
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


class AmdSmiClkType(IntEnum):
    SYS = 0
    MEM = 4


class AmdSmiDevPerfLevel(IntEnum):
    AUTO = 0
    MANUAL = 3


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
    # Not among the values: a process killed here leaves it.
    folder = _tree().parent / "tmp"
    folder.mkdir(exist_ok=True)
    fresh = folder / f"amdsmi-{os.getpid()}"
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


def amdsmi_get_gpu_perf_level(handle: Path) -> str:
    return f"AMDSMI_DEV_PERF_LEVEL_{_read(handle / 'perf_level').strip()}"


def amdsmi_set_gpu_perf_level(handle: Path, perf_level: AmdSmiDevPerfLevel) -> None:
    if not isinstance(perf_level, AmdSmiDevPerfLevel):
        raise AmdSmiException("Invalid parameter")
    amdsmi_get_gpu_perf_level(handle)
    _refuse(handle / "set_perf_level")
    _write(handle / "perf_level", f"{perf_level.name}\n")
    if perf_level == AmdSmiDevPerfLevel.AUTO and not (handle / "keeps_limits").exists():
        _write(handle / "limits", _read(handle / "default_limits"))


def amdsmi_get_gpu_od_volt_info(handle: Path) -> dict[str, object]:
    limits = _read_answer(handle / "limits")
    if (handle / "shown_limits").exists():
        limits = _read_answer(handle / "shown_limits")

    def hz(name: str) -> object:
        mhz = limits.get(name, "N/A")
        return mhz * 10**6 if isinstance(mhz, int) else mhz

    return {
        "curr_sclk_range": {"lower_bound": hz("sclk_min"), "upper_bound": hz("sclk_max")},
        "curr_mclk_range": {"lower_bound": "N/A", "upper_bound": hz("mclk_max")},
    }


def amdsmi_set_gpu_clk_limit(handle: Path, clk_type: str, limit_type: str, value: int) -> None:
    if type(value) is not int or clk_type not in ("sclk", "mclk"):
        raise AmdSmiException("Invalid parameter")
    limits, widest = _read_answer(handle / "limits"), _read_answer(handle / "default_limits")
    _refuse(handle / "set_clk_limit")
    name = f"{clk_type}_{limit_type}"
    if name not in limits:
        raise AmdSmiLibraryException(2)
    limits[name] = value
    outside = (
        not int(widest["sclk_min"]) <= int(limits["sclk_min"]) <= int(limits["sclk_max"])
        or int(limits["sclk_max"]) > int(widest["sclk_max"])
        or int(limits.get("mclk_max", 0)) > int(widest.get("mclk_max", 0))
    )
    if outside:
        raise AmdSmiLibraryException(1)
    _write(handle / "perf_level", "MANUAL\n")
    _write(handle / "limits", "".join(f"{key} {one}\n" for key, one in limits.items()))


def amdsmi_get_clk_freq(handle: Path, clk_type: AmdSmiClkType) -> dict[str, object]:
    if clk_type != AmdSmiClkType.MEM:
        raise AmdSmiLibraryException(2)
    hz = [int(word) * 10**6 for word in _read(handle / "mclk_table").split()]
    return {"num_supported": len(hz), "current": 0, "frequency": hz}


def amdsmi_get_clock_info(handle: Path, clock_type: AmdSmiClkType) -> dict[str, object]:
    clock = {AmdSmiClkType.SYS: "sclk", AmdSmiClkType.MEM: "mclk"}[clock_type]
    limits, mhz = _read_answer(handle / "limits"), _read_answer(handle / "clocks").get(clock, "N/A")
    if isinstance(mhz, int):
        mhz = min(mhz, int(limits.get(f"{clock}_max", mhz)))
        if not (handle / "idle").exists():
            mhz = max(mhz, int(limits.get(f"{clock}_min", mhz)))
    if (handle / "shown_clocks").exists():
        mhz = _read_answer(handle / "shown_clocks")[clock]
    return {"clk": mhz, "min_clk": 0, "max_clk": 0, "clk_locked": "N/A", "clk_deep_sleep": 0}
