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

**MI250 and MI250X**: the even die reports the whole card (:mod:`sites.amdsmi_library`). An energy
counter was seen to stop until the node was rebooted (ROCm/amdsmi, issue 22); a comparison with the
power shows this.

GPUs: all, or those in the option ``devices``. The library ignores ROCR_VISIBLE_DEVICES and
HIP_VISIBLE_DEVICES.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Literal

from sites.amdsmi_library import (
    DEVICES,
    OTHER_REMEDY,
    START_REMEDY,
    UNSUPPORTED_REMEDY,
    AbsentAmdsmiError,
    AmdGpu,
    AmdsmiError,
    AmdsmiLibrary,
    find_gpus,
    open_library,
    parse_devices,
    unsupported,
)
from sites.gpu_error import closed_on_error
from sites.meters.shared.counter import Counter
from sites.meters.shared.meter import AbsentMeterError, Channel, MeterDescription, MeterError
from sites.meters.shared.open_meter import OpenMeter

ABOUT = MeterDescription(
    kind="amdsmi",
    reads="energy counter and power of AMD GPUs",
    domains="gpu",
    needs="ROCm's package amdsmi; the groups render and video",
    options=DEVICES,
)
parse_options = parse_devices

ENERGY_KEYS = ("energy_accumulator", "power")
POWER_KEYS = {"current_socket_power": 0.0, "socket_power": 0.0, "average_socket_power": 1.0}
"""Key -> averaging time of the power in s; the last one is assumed, not documented."""
NO_VALUE = 65535

PERIOD_S = 0.01
"""Assumed: the update rate of the firmware is not documented."""
GAIN_PCT = 5.0
"""Assumed: no accuracy is documented."""


@dataclass(frozen=True)
class ReadGpu:
    """A GPU and the values that it offers."""

    gpu: AmdGpu
    resolution_uj: Fraction | None
    """The unit of its energy counter; None: it has no counter."""
    power_key: str | None


def open_meter(root: Path, options: Mapping[str, Any]) -> OpenMeter:
    """Open the GPUs that AMD SMI lists, for any ``root``: its library finds them."""
    indices = parse_options(options)
    try:
        library = open_library()
    except AmdsmiError as error:
        raise _unreadable(error, START_REMEDY) from error
    try:
        with closed_on_error(library):
            gpus = [_probe(library, gpu) for gpu in find_gpus(library, indices)]
    except AmdsmiError as error:
        raise _unreadable(error, UNSUPPORTED_REMEDY) from error
    return _make_meter(library, gpus)


def _unreadable(error: AmdsmiError, unsupported: str) -> MeterError:
    """Convert an error; ``unsupported``: the remedy where the GPU does not offer the value."""
    kind = AbsentMeterError if isinstance(error, AbsentAmdsmiError) else MeterError
    return kind(error.what, unsupported if error.is_unsupported else error.remedy)


def _make_meter(library: AmdsmiLibrary, gpus: Sequence[ReadGpu]) -> OpenMeter:
    counters: list[Counter | None] = []
    channels: list[Channel] = []
    for source in gpus:
        energy = None
        if source.resolution_uj is not None:
            energy = f"gpu-{source.gpu.index}/energy"
            joules_per_unit = source.resolution_uj / 10**6
            counters.append(Counter(f"the energy of {source.gpu.label}", joules_per_unit))
            channels.append(_channel(energy, "energy", float(joules_per_unit)))
        if source.power_key is not None:
            counters.append(None)
            power = _channel(f"gpu-{source.gpu.index}/power", "power", 1.0)
            averaging_s = POWER_KEYS[source.power_key]
            channels.append(replace(power, same_as=energy, averaging_s=averaging_s))
    read_raw = partial(_read_all, library, gpus)
    return OpenMeter(ABOUT.kind, channels, counters, read_raw, library)


def _channel(name: str, kind: Literal["energy", "power"], resolution: float) -> Channel:
    return Channel(
        name=name,
        domain="gpu",
        kind=kind,
        resolution=resolution,
        period_s=PERIOD_S,
        gain_pct=GAIN_PCT,
    )


def _read_all(library: AmdsmiLibrary, gpus: Sequence[ReadGpu]) -> list[float]:
    """For each GPU, the ticks of its counter and its power in W, where it offers them."""
    values: list[float] = []
    for source in gpus:
        label = source.gpu.label
        try:
            if source.resolution_uj is not None:
                ticks, resolution_uj = _read_energy(library, source.gpu)
                if resolution_uj != source.resolution_uj:
                    raise MeterError(
                        f"the energy counter of {label} changed its unit from "
                        f"{float(source.resolution_uj):g} to {float(resolution_uj):g} uJ",
                        OTHER_REMEDY,
                    )
                values.append(ticks)
            if source.power_key is not None:
                watts = _read_powers(library, source.gpu).get(source.power_key)
                if watts is None:
                    raise MeterError(f"{label} has no {source.power_key} any more", OTHER_REMEDY)
                values.append(watts)
        except AmdsmiError as error:
            raise MeterError(error.what, error.remedy) from error
    return values


def _probe(library: AmdsmiLibrary, gpu: AmdGpu) -> ReadGpu:
    resolution_uj, power_key = None, None
    try:
        ticks, resolution_uj = _read_energy(library, gpu)
        if ticks == 0:
            resolution_uj = None
    except AmdsmiError as error:
        if not error.is_unsupported:
            raise
    try:
        powers = _read_powers(library, gpu)
        power_key = next((key for key in POWER_KEYS if key in powers), None)
    except AmdsmiError as error:
        if not error.is_unsupported:
            raise
    if resolution_uj is None and power_key is None:
        raise AmdsmiError(f"{gpu.label} offers neither energy nor power", UNSUPPORTED_REMEDY)
    return ReadGpu(gpu, resolution_uj, power_key)


def _read_energy(library: AmdsmiLibrary, gpu: AmdGpu) -> tuple[int, Fraction]:
    """Ticks of the counter, and uJ per tick."""
    subject = f"the energy of {gpu.label}"
    with library.explained(subject):
        answer = library.amdsmi.amdsmi_get_energy_count(gpu.handle)
    ticks = next((answer[key] for key in ENERGY_KEYS if key in answer), "N/A")
    resolution_uj = answer.get("counter_resolution", "N/A")
    if not isinstance(ticks, int) or not isinstance(resolution_uj, int | float):
        raise unsupported(f"{subject} is {ticks!r} in units of {resolution_uj!r} uJ")
    if not 0 < resolution_uj < float("inf"):
        raise unsupported(f"{subject} has units of {resolution_uj!r} uJ")
    return ticks, Fraction(resolution_uj)


def _read_powers(library: AmdsmiLibrary, gpu: AmdGpu) -> dict[str, float]:
    """Key -> power in W, for the available powers."""
    with library.explained(f"the power of {gpu.label}"):
        answer = library.amdsmi.amdsmi_get_power_info(gpu.handle)
    return {
        key: float(answer[key])
        for key in POWER_KEYS
        if isinstance(answer.get(key), int | float) and 0 < answer[key] < NO_VALUE
    }
