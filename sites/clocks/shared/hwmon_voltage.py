"""The core voltage that Linux's hwmon reports, added to the states of any clock control.

``inN_input`` is in mV (Documentation/hwmon/sysfs-interface.rst in the Linux source); an AMD GPU's
core voltage has the label ``vddgfx`` (Documentation/gpu/amdgpu/thermal.rst), and boards' sensor
chips have labels such as ``Vcore``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dvfs.setting import Setting
from sites.clocks.shared.control import ClockControl, ClocksError, ClockState
from sites.clocks.shared.kernel_files import optional_text

HWMON = Path("sys/class/hwmon")
REMEDY = "see /sys/class/hwmon/*/name and in*_label, or leave clocks.core_voltage out"


class WithVoltage:
    """A clock control whose states also contain the measured core voltage."""

    def __init__(self, control: ClockControl, file: Path) -> None:
        self._control = control
        self._file = file

    def legal(self) -> list[Setting] | None:
        return self._control.legal()

    def set(self, setting: Setting) -> None:
        self._control.set(setting)

    def state(self) -> ClockState:
        return replace(self._control.state(), core_v=self._volts())

    def restore(self) -> None:
        self._control.restore()

    def _volts(self) -> float:
        try:
            text = self._file.read_text()
            return int(text) / 1000.0
        except OSError as error:
            raise ClocksError(f"{self._file}: {error.strerror}", REMEDY) from error
        except ValueError:
            raise ClocksError(f"{self._file} holds {text!r}, not mV", REMEDY) from None


def with_voltage(control: ClockControl, root: Path, chip: str, label: str) -> WithVoltage:
    """``control`` with the voltage of a chip's labelled input.

    Raises:
        ClocksError: there is no such input, or several.
    """
    inputs = [
        path.with_name(path.name.replace("_label", "_input"))
        for path in sorted((root / HWMON).glob("hwmon*/in*_label"))
        if optional_text(path.parent, path.name) == label
        and optional_text(path.parent, "name") == chip
    ]
    if len(inputs) != 1:
        raise ClocksError(
            f"{root / HWMON} has {len(inputs)} inputs {label!r} of a chip {chip!r}", REMEDY
        )
    return WithVoltage(control, inputs[0])
