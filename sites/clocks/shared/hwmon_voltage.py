"""The core voltage that Linux's hwmon reports.

``inN_input`` is in mV (Documentation/hwmon/sysfs-interface.rst in the Linux source); an AMD GPU's
core voltage has the label ``vddgfx`` (Documentation/gpu/amdgpu/thermal.rst), and boards' sensor
chips have labels such as ``Vcore``.
"""

from __future__ import annotations

from pathlib import Path

from sites.clocks.shared.control import ClocksError
from sites.clocks.shared.kernel_files import optional_text

HWMON = Path("sys/class/hwmon")
REMEDY = "see /sys/class/hwmon/*/name and in*_label, or leave clocks.core_voltage out"


def find_input(root: Path, chip: str, label: str) -> Path:
    """The voltage input of a chip with this label.

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
    return inputs[0]


def read_volts(file: Path) -> float:
    """The present voltage of an input, in V.

    Raises:
        ClocksError: it cannot be read.
    """
    try:
        text = file.read_text()
        return int(text) / 1000.0
    except OSError as error:
        raise ClocksError(f"{file}: {error.strerror}", REMEDY) from error
    except ValueError:
        raise ClocksError(f"{file} holds {text!r}, not mV", REMEDY) from None
