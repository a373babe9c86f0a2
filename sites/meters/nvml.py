"""NVIDIA GPUs through NVML: the energy counter and the power of each GPU.

Functions, fields and scopes: NVIDIA's NVML API reference. The channels of GPU N:

- ``gpu-N/energy``: nvmlDeviceGetTotalEnergyConsumption, mJ since the driver was loaded, 64 bits. It
  never wraps, so a reading below the last one shows that the driver was reloaded. Volta and later.
- ``gpu-N/power``: mW, the first of these that the GPU offers: the field
  NVML_FI_DEV_POWER_INSTANT (186), NVML_FI_DEV_POWER_AVERAGE (185, a mean over 1 s),
  nvmlDeviceGetPowerUsage (a mean over 1 s on Ampere and later except GA100, instantaneous before).
  It measures the same energy as the counter, if there is one.
- ``gpu-N/memory-power``: mW, the field 186 or 185 at the scope NVML_POWER_SCOPE_MEMORY, where the
  GPU and its driver have it. Its energy is part of the GPU's. A driver that does not know the scope
  may refuse it, or ignore it and return the power of the whole GPU: a value that is 0 or not below
  the GPU's is not used.

**GH200.** Its energy counter covers the whole module, including the processor and its memory, as
users found by comparison (ml-energy/zeus, pull request 172); NVIDIA does not document it. Its
domain is therefore ``module``, the GPU's power (NVML_POWER_SCOPE_GPU) is inside it, and
``gpu-N/module-power`` (NVML_POWER_SCOPE_MODULE) measures the same energy. The GPU is recognised by
its name. On other superchips the counter is assumed to be the GPU's, which is not confirmed.

**Partial sampling.** The power of an A100 or H100 is a mean over 25 ms of every 100 ms
(Yang, Adamek & Armour, Part-time power measurements, arXiv 2312.02741), so that a load with a
period near 100 ms is misread: make runs long, repeat them, and start them at various phases. The
GPUs are recognised by their names. The energy counter of an H100 covers the whole time, so its
``seen`` is 1 (measured in November 2026 by benchmarks/gpu_energy_counter.py: loads with periods of
20 to 400 ms, begun at two phases; between these the counter differs by at most 3.8 %, the power by
up to 37 %). For an A100 this is not shown.

**Calibration.** NVIDIA states +/- 5 % (nvmlDeviceGetPowerUsage in the API reference) or +/- 5 W
(manual of nvidia-smi). Five boards compared with an external meter (tests/data/gpu_power_traces:
RTX 3090, RTX 4090, A5000, A100, K40m) have similar gain errors and larger offsets: a straight line
through NVML's readings has slopes of 0.96 to 1.07 and intercepts of -1 to 20 W, root mean square
9 W, mostly because of the RTX 4090. (One of the two A100 traces is not usable for this, because its
load beats with the sampling.) So the standard uncertainties are taken as 5 % and 9 W, also for the
energy counter, for which no comparison is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Literal

from sites.gpu_error import closed_on_error
from sites.meters.shared.counter import Counter
from sites.meters.shared.meter import AbsentMeterError, Channel, MeterDescription, MeterError
from sites.meters.shared.open_meter import OpenMeter
from sites.nvml_library import (
    ABSENT_REMEDY,
    DEVICES,
    UNSUPPORTED_REMEDY,
    Gpu,
    NvmlError,
    NvmlLibrary,
    find_gpus,
    open_library,
    parse_devices,
)

ABOUT = MeterDescription(
    kind="nvml",
    reads="energy counter and power of NVIDIA GPUs",
    domains="gpu, gpu-memory; module on a GH200",
    needs="the NVIDIA driver",
    options=DEVICES,
)
parse_options = parse_devices

POWER_AVERAGE, POWER_INSTANT = 185, 186
"""NVML_FI_DEV_POWER_AVERAGE and NVML_FI_DEV_POWER_INSTANT."""
SCOPE_GPU, SCOPE_MODULE, SCOPE_MEMORY = 0, 1, 2
"""NVML_POWER_SCOPE_GPU, NVML_POWER_SCOPE_MODULE and NVML_POWER_SCOPE_MEMORY."""
INVALID_ARGUMENT = 2
"""NVML_ERROR_INVALID_ARGUMENT."""
ARCH_AMPERE = 7
"""NVML_DEVICE_ARCH_AMPERE."""

PERIOD_S = 0.1
"""The longest update period: it is 20 to 100 ms, by generation (arXiv 2312.02741)."""
AVERAGING_S = 1.0
"""The averaging time of field 185 and, from Ampere on, of nvmlDeviceGetPowerUsage."""
GAIN_PCT = 5.0
OFFSET_W = 9.0
"""Standard uncertainties of gain and offset, see above."""
PARTLY_SEEN = re.compile(r"\b[AH]100\b")
PARTLY_SEEN_SHARE = 0.25
PARTLY_SEEN_AVERAGING_S = 0.025
GA100 = re.compile(r"\bA(30|100|800)\b")
MODULES = re.compile(r"\bGH200\b")


@dataclass(frozen=True)
class PowerSource:
    """The source of a power: a field at a scope, or nvmlDeviceGetPowerUsage (field None)."""

    field: int | None
    scope: int
    averaging_s: float


@dataclass(frozen=True)
class Signal:
    """The signal of a channel: a power, or the energy counter if ``source`` is None."""

    gpu: Gpu
    source: PowerSource | None


def open_meter(root: Path, options: Mapping[str, Any]) -> OpenMeter:
    """Open the GPUs that NVML lists; another root has its ``usr/lib/libnvidia-ml.so.1``."""
    devices = parse_options(options)
    channels: list[Channel] = []
    signals: list[Signal] = []
    try:
        library = open_library(root)
        with closed_on_error(library):
            for gpu in find_gpus(library, devices):
                for channel, signal in _find_channels(library, gpu):
                    channels.append(channel)
                    signals.append(signal)
    except NvmlError as error:
        kind = AbsentMeterError if error.remedy == ABSENT_REMEDY else MeterError
        raise kind(error.what, error.remedy) from error
    counters = [
        None if signal.source else Counter(f"the energy of {signal.gpu.label}", Fraction(1, 1000))
        for signal in signals
    ]
    read_raw = partial(_read_signals, library, signals)
    return OpenMeter(ABOUT.kind, channels, counters, read_raw, library, units_per_w=1e3)


def _read_signals(library: NvmlLibrary, signals: Sequence[Signal]) -> list[int]:
    try:
        return [_read_signal(library, signal) for signal in signals]
    except NvmlError as error:
        raise MeterError(error.what, error.remedy) from error


def _find_channels(library: NvmlLibrary, gpu: Gpu) -> list[tuple[Channel, Signal]]:
    """The channels that a GPU offers, each with its signal.

    Raises:
        NvmlError: it offers no channel, or an error other than "not supported" occurred.
    """
    is_module = MODULES.search(gpu.name) is not None
    energy = f"gpu-{gpu.index}/energy" if _has_energy(library, gpu) else None
    # The scope of nvmlDeviceGetPowerUsage on a module is not documented.
    power = _find_power(library, gpu, SCOPE_GPU, has_usage=not is_module)
    module = _find_power(library, gpu, SCOPE_MODULE, has_usage=False) if is_module else None
    channels: list[tuple[Channel, Signal]] = []
    if energy is not None:
        domain = "module" if is_module else "gpu"
        channels.append((_channel(gpu, energy, domain, "energy"), Signal(gpu, None)))
    module_name = f"gpu-{gpu.index}/module-power"
    if module is not None:
        channel = _channel(gpu, module_name, "module", "power", module, same_as=energy)
        channels.append((channel, Signal(gpu, module)))
    if power is not None:
        outer = energy or (module_name if module is not None else None)
        name = f"gpu-{gpu.index}/power"
        channel = (
            _channel(gpu, name, "gpu", "power", power, inside=outer)
            if is_module
            else _channel(gpu, name, "gpu", "power", power, same_as=energy)
        )
        channels.append((channel, Signal(gpu, power)))
        memory = _find_memory_power(library, gpu, power)
        if memory is not None:
            outer = name if is_module else energy or name
            memory_name = f"gpu-{gpu.index}/memory-power"
            channel = _channel(gpu, memory_name, "gpu-memory", "power", memory, inside=outer)
            channels.append((channel, Signal(gpu, memory)))
    if not channels:
        raise NvmlError(f"{gpu.label} offers neither energy nor power", UNSUPPORTED_REMEDY)
    return channels


def _channel(
    gpu: Gpu,
    name: str,
    domain: str,
    kind: Literal["energy", "power"],
    source: PowerSource | None = None,
    *,
    inside: str | None = None,
    same_as: str | None = None,
) -> Channel:
    is_partly_seen = source is not None and PARTLY_SEEN.search(gpu.name) is not None
    return Channel(
        name=name,
        domain=domain,
        kind=kind,
        resolution=1e-3,
        period_s=PERIOD_S,
        inside=inside,
        same_as=same_as,
        averaging_s=0.0 if source is None else source.averaging_s,
        seen=PARTLY_SEEN_SHARE if is_partly_seen else 1.0,
        gain_pct=GAIN_PCT,
        offset_w=OFFSET_W,
    )


def _has_energy(library: NvmlLibrary, gpu: Gpu) -> bool:
    try:
        _read_signal(library, Signal(gpu, None))
    except NvmlError as error:
        if error.is_unsupported:
            return False
        raise
    return True


def _find_power(
    library: NvmlLibrary, gpu: Gpu, scope: int, *, has_usage: bool
) -> PowerSource | None:
    """The first source of the power at a scope that the GPU offers; None if it offers none."""
    instant_s = PARTLY_SEEN_AVERAGING_S if PARTLY_SEEN.search(gpu.name) else 0.0
    sources = [
        PowerSource(POWER_INSTANT, scope, instant_s),
        PowerSource(POWER_AVERAGE, scope, AVERAGING_S),
    ]
    if has_usage:
        usage_s = instant_s if _is_usage_instant(library, gpu) else AVERAGING_S
        sources.append(PowerSource(None, scope, usage_s))
    for source in sources:
        try:
            _read_signal(library, Signal(gpu, source))
        except NvmlError as error:
            if not error.is_unsupported:
                raise
        else:
            return source
    return None


def _find_memory_power(library: NvmlLibrary, gpu: Gpu, whole: PowerSource) -> PowerSource | None:
    """The first source of the memory's power; None where the GPU has none."""
    try:
        memory = _find_power(library, gpu, SCOPE_MEMORY, has_usage=False)
    except NvmlError as error:
        if error.code == INVALID_ARGUMENT:
            return None
        raise
    if memory is None:
        return None
    memory_mw, gpu_mw = (_read_signal(library, Signal(gpu, source)) for source in (memory, whole))
    return memory if 0 < memory_mw < gpu_mw else None


def _is_usage_instant(library: NvmlLibrary, gpu: Gpu) -> bool:
    """Whether nvmlDeviceGetPowerUsage is instantaneous; False if the GPU does not tell."""
    try:
        with library.explained(gpu.label):
            architecture: int = library.nvml.nvmlDeviceGetArchitecture(gpu.handle)
    except NvmlError as error:
        if not error.is_unsupported:
            raise
        return False
    return architecture < ARCH_AMPERE or GA100.search(gpu.name) is not None


def _read_signal(library: NvmlLibrary, signal: Signal) -> int:
    """The reading of a signal in mJ or mW.

    Raises:
        NvmlError: the call or the field's return code is an error.
    """
    nvml, gpu, source = library.nvml, signal.gpu, signal.source
    if source is None:
        with library.explained(f"the energy of {gpu.label}"):
            return int(nvml.nvmlDeviceGetTotalEnergyConsumption(gpu.handle))
    subject = f"the power of {gpu.label}"
    with library.explained(subject):
        if source.field is None:
            return int(nvml.nvmlDeviceGetPowerUsage(gpu.handle))
        (answer,) = nvml.nvmlDeviceGetFieldValues(gpu.handle, [(source.field, source.scope)])
    # The call succeeds even if a field fails, and the field's value is then undefined.
    if answer.nvmlReturn != nvml.NVML_SUCCESS:
        raise library.error(f"{subject}, field {source.field}", answer.nvmlReturn)
    if answer.valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_INT:
        return int(answer.value.uiVal)
    if answer.valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG:
        return int(answer.value.ullVal)
    raise NvmlError(
        f"{subject}, field {source.field}, has the unexpected type {answer.valueType}",
        "report this with the version of the driver",
    )
