"""AMD GPUs through ROCm's package ``amdsmi``: an energy counter and a power of each GPU.

Functions and keys: the AMD SMI Python API reference. The channels of GPU N, in the order of
amdsmi_get_processor_handles():

- ``gpu-N/energy``: amdsmi_get_energy_count: an accumulator of 64 bits times
  ``counter_resolution`` in uJ, about 15.3. The accumulator's key is ``power`` before ROCm 6.4 and
  ``energy_accumulator`` on. It never wraps: a reading below the last one is a reset.
- ``gpu-N/power``: amdsmi_get_power_info in W, the first of ``current_socket_power``,
  ``socket_power`` and ``average_socket_power`` that is a number: an unavailable value is
  ``"N/A"``, or 65535 in older releases. It measures the same energy as the counter, if there is
  one.

**0 is not a reading.** A GPU that is on has used some energy and draws some power, so a value of 0
at opening means "not available", and 0 W later is an error.

**MI250 and MI250X** have two dies on a card, each a device. The even device reports the whole card;
the odd one is left out and cannot be selected. A counter that stopped until the node was rebooted
was seen (ROCm/amdsmi, issue 22); the power beside it shows this.

GPUs: all, or those in the option ``devices``. The library ignores ROCR_VISIBLE_DEVICES and
HIP_VISIBLE_DEVICES.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Literal

from sites.described_options import list_option
from sites.meters.shared.counter import Counter
from sites.meters.shared.meter import AbsentMeterError, Channel, MeterDescription, MeterError
from sites.meters.shared.open_meter import OpenMeter

ABOUT = MeterDescription(
    kind="amdsmi",
    reads="energy counter and power of AMD GPUs, through ROCm's Python package amdsmi",
    domains="gpu",
    needs="ROCm and its package amdsmi; membership in the groups render and video",
    options={
        "devices": "indices of GPUs (default: all; of an MI250, the even dies)",
    },
)

ENERGY_KEYS = ("energy_accumulator", "power")
POWER_KEYS = {"current_socket_power": 0.0, "socket_power": 0.0, "average_socket_power": 1.0}
"""Key -> averaging time of the power in s; that of the last is not documented but assumed."""
NO_VALUE = 65535
TWO_DIES = re.compile(r"\bMI250X?\b")

PERIOD_S = 0.01
"""Assumed: the update rate of the firmware is not documented."""
GAIN_PCT = 5.0
"""Assumed: no accuracy is documented."""

NOT_SUPPORTED, NOT_YET_IMPLEMENTED, NO_PERMISSION = 2, 3, 10
"""AMDSMI_STATUS_NOT_SUPPORTED, _NOT_YET_IMPLEMENTED and _NO_PERM."""
PACKAGE_REMEDY = (
    "install ROCm's AMD SMI (`apt install amd-smi-lib`), then its package with "
    "`pip install /opt/rocm/share/amd_smi`"
)
PERMISSION_REMEDY = "your user must be in its groups: `sudo usermod -aG render,video $USER`"
START_REMEDY = "check `amd-smi list`, and load the driver with `modprobe amdgpu`"
OTHER_REMEDY = "discard the measurement; check `amd-smi metric --power --energy` and `dmesg`"
UNSUPPORTED_REMEDY = "this GPU (or a virtual machine's) does not offer it: see `amd-smi metric`"


class NotSupportedError(Exception):
    """The GPU does not offer the requested value."""


@dataclass(frozen=True)
class AmdGpu:
    """A GPU that is read, and the values that it offers."""

    index: int
    handle: Any
    label: str
    resolution_uj: Fraction | None
    """Of its energy counter; None: it has none."""
    power_key: str | None


def open_meter(root: Path, options: Mapping[str, Any]) -> OpenMeter:
    """Open the GPUs that AMD SMI lists; its library finds them itself, whatever ``root`` is."""
    indices = parse_options(options)
    try:
        import amdsmi  # noqa: PLC0415
    except Exception as error:  # Importing it loads its library, which may raise anything.
        what = f"the Python package amdsmi cannot be imported: {error}"
        raise AbsentMeterError(what, PACKAGE_REMEDY) from error
    try:
        with _explained(amdsmi, "AMD SMI", START_REMEDY):
            amdsmi.amdsmi_init()
    except NotSupportedError as error:
        raise MeterError(str(error), START_REMEDY) from error
    try:
        gpus = _find_gpus(amdsmi, indices)
    except BaseException as error:
        _shut_down(amdsmi)
        if isinstance(error, NotSupportedError):
            raise MeterError(str(error), UNSUPPORTED_REMEDY) from error
        raise
    return _make_meter(amdsmi, gpus)


def _make_meter(library: Any, gpus: Sequence[AmdGpu]) -> OpenMeter:
    counters: list[Counter | None] = []
    channels: list[Channel] = []
    for gpu in gpus:
        energy = None
        if gpu.resolution_uj is not None:
            energy = f"gpu-{gpu.index}/energy"
            joules_per_unit = gpu.resolution_uj / 10**6
            counters.append(Counter(f"the energy of {gpu.label}", joules_per_unit))
            channels.append(_channel(energy, "energy", float(joules_per_unit)))
        if gpu.power_key is not None:
            counters.append(None)
            power = _channel(f"gpu-{gpu.index}/power", "power", 1.0)
            averaging_s = POWER_KEYS[gpu.power_key]
            channels.append(replace(power, same_as=energy, averaging_s=averaging_s))
    resources = ExitStack()
    resources.callback(_shut_down, library)
    read_raw = partial(_read_all, library, gpus)
    return OpenMeter(ABOUT.kind, channels, counters, read_raw, resources)


def _channel(name: str, kind: Literal["energy", "power"], resolution: float) -> Channel:
    return Channel(
        name=name,
        domain="gpu",
        kind=kind,
        resolution=resolution,
        period_s=PERIOD_S,
        gain_pct=GAIN_PCT,
    )


def _read_all(library: Any, gpus: Sequence[AmdGpu]) -> list[float]:
    """Of each GPU the ticks of its counter and its power in W, as far as it has them."""
    values: list[float] = []
    for gpu in gpus:
        try:
            if gpu.resolution_uj is not None:
                ticks, resolution_uj = _read_energy(library, gpu.handle, gpu.label)
                if resolution_uj != gpu.resolution_uj:
                    raise MeterError(
                        f"the energy counter of {gpu.label} changed its unit from "
                        f"{float(gpu.resolution_uj):g} to {float(resolution_uj):g} uJ",
                        OTHER_REMEDY,
                    )
                values.append(ticks)
            if gpu.power_key is not None:
                watts = _read_powers(library, gpu.handle, gpu.label).get(gpu.power_key)
                if watts is None:
                    raise NotSupportedError(f"{gpu.label} has no {gpu.power_key} any more")
                values.append(watts)
        except NotSupportedError as error:
            raise MeterError(str(error), OTHER_REMEDY) from error
    return values


def parse_options(options: Mapping[str, Any]) -> list[int] | None:
    ABOUT.check_options(options)
    what = "a list of different indices, such as [0, 1]"
    devices = list_option(options, "devices", what, lambda i: type(i) is int and i >= 0)
    if devices is not None and len(set(devices)) < len(devices):
        raise ValueError(f"devices is {what}, not {devices!r}")
    return devices


def _find_gpus(library: Any, indices: Sequence[int] | None) -> list[AmdGpu]:
    with _explained(library, "AMD SMI", START_REMEDY):
        handles = list(library.amdsmi_get_processor_handles())
    if not handles:
        raise AbsentMeterError("AMD SMI lists no GPU", START_REMEDY)
    there = ", ".join(str(index) for index in range(len(handles)))
    gpus = []
    for index in range(len(handles)) if indices is None else indices:
        if index >= len(handles):
            raise MeterError(f"there is no AMD GPU {index}", f"the AMD GPUs are: {there}")
        what = f"AMD GPU {index}"
        with _explained(library, what, OTHER_REMEDY):
            asic = library.amdsmi_get_gpu_asic_info(handles[index])
        name = str(asic.get("market_name", "unknown"))
        label = f"{what} ({name})"
        if TWO_DIES.search(name) and index % 2 == 1:
            if indices is None:
                continue
            raise MeterError(
                f"{label} is the odd die of its card, which reports no values",
                f"name the even die, {index - 1}, which reports the whole card",
            )
        gpus.append(_probe(library, index, handles[index], label))
    return gpus


def _probe(library: Any, index: int, handle: Any, label: str) -> AmdGpu:
    resolution_uj, power_key = None, None
    try:
        ticks, resolution_uj = _read_energy(library, handle, label)
        if ticks == 0:
            resolution_uj = None
    except NotSupportedError:
        resolution_uj = None
    try:
        powers = _read_powers(library, handle, label)
        power_key = next((key for key in POWER_KEYS if key in powers), None)
    except NotSupportedError:
        power_key = None
    if resolution_uj is None and power_key is None:
        raise MeterError(f"{label} offers neither energy nor power", UNSUPPORTED_REMEDY)
    return AmdGpu(index, handle, label, resolution_uj, power_key)


def _read_energy(library: Any, handle: Any, label: str) -> tuple[int, Fraction]:
    """Ticks of the counter, and uJ per tick."""
    with _explained(library, f"the energy of {label}", OTHER_REMEDY):
        answer = library.amdsmi_get_energy_count(handle)
    ticks = next((answer[key] for key in ENERGY_KEYS if key in answer), "N/A")
    resolution_uj = answer.get("counter_resolution", "N/A")
    if not isinstance(ticks, int) or not isinstance(resolution_uj, int | float):
        raise NotSupportedError(
            f"the energy of {label} is {ticks!r} in units of {resolution_uj!r} uJ"
        )
    if not 0 < resolution_uj < float("inf"):
        raise NotSupportedError(f"the energy of {label} has units of {resolution_uj!r} uJ")
    return ticks, Fraction(resolution_uj)


def _read_powers(library: Any, handle: Any, label: str) -> dict[str, float]:
    """The powers that are available, in W."""
    with _explained(library, f"the power of {label}", OTHER_REMEDY):
        answer = library.amdsmi_get_power_info(handle)
    return {
        key: float(answer[key])
        for key in POWER_KEYS
        if isinstance(answer.get(key), int | float) and 0 < answer[key] < NO_VALUE
    }


@contextmanager
def _explained(library: Any, what: str, remedy: str) -> Iterator[None]:
    """Turn errors of the library in the body into MeterError or NotSupportedError."""
    try:
        yield
    except library.AmdSmiException as error:
        code = error.get_error_code() if hasattr(error, "get_error_code") else None
        text = " ".join(str(error).split())
        if code in (NOT_SUPPORTED, NOT_YET_IMPLEMENTED):
            raise NotSupportedError(f"{what}: {text}") from error
        if code == NO_PERMISSION:
            remedy = PERMISSION_REMEDY
        raise MeterError(f"{what}: {text}", remedy) from error


def _shut_down(library: Any) -> None:
    try:
        library.amdsmi_shut_down()
    except library.AmdSmiException:
        return
