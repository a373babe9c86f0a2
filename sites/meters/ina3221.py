"""INA3221: the power monitors of the supply rails on NVIDIA Jetson boards.

Files and units: Documentation/hwmon/ina3221.rst in the Linux source. Each chip has three channels:
``inN_label`` is the rail, ``inN_input`` its voltage in mV, ``currN_input`` its current in mA. The
rails and what they supply: "Power Monitor" in NVIDIA's Jetson Linux Developer Guide. Steps and
errors of the chip: Texas Instruments' data sheet SBOS576.

**Power** is voltage times current: mV x mA / 1000 = mW. There is no energy counter, and voltage and
current are not sampled at the same time. A current may be negative because of the chip's offset; it
is not clipped, because clipping would raise the mean.

**Rails overlap.** ``VDD_IN`` and ``POM_5V_IN`` supply the whole module, and so contain all others;
on boards without such a rail (AGX Orin) the others add up to the module. A rail that supplies
several parts belongs to the domain that draws most of its power: ``VDD_CPU_GPU_CV`` is the package.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sites.meters.shared.kept_file import KeptFile, Remedies, read_once, read_text
from sites.meters.shared.meter import (
    CONTAINS,
    AbsentMeterError,
    Channel,
    MeterDescription,
    MeterError,
    Reading,
)
from sites.meters.shared.open_meter import FileMeter, keep_open

ABOUT = MeterDescription(
    kind="ina3221",
    reads="voltage times current of the rails of an NVIDIA Jetson",
    domains="module, package, gpu, dram, board",
    needs="the ina3221 driver",
    options={
        "rails": "rail label = domain (default: the known rails)",
    },
)

DRIVERS = Path("sys/bus/i2c/drivers")
NAMES = ("ina3221", "ina3221x")
"""The driver's names in Linux and in older Jetson kernels."""
LABEL_FILE = re.compile(r"in([123])_label")
SIGNED = re.compile(rb"(-?\d+)\n?")

RAILS = {
    "VDD_IN": "module",
    "POM_5V_IN": "module",
    "VDD_CPU_GPU_CV": "package",
    "VDD_CPU_CV": "package",
    "VDD_CPU_SOC_MSS": "package",
    "VDD_GPU_SOC": "gpu",
    "VDD_GPU": "gpu",
    "VDD_SOC": "board",
    "VIN_SYS_5V0": "board",
    "VDDQ_VDD2_1V8AO": "dram",
    "VDD_SYS_GPU": "gpu",
    "VDD_SYS_CPU": "package",
    "VDD_SYS_SOC": "board",
    "VDD_SYS_DDR": "dram",
    "POM_5V_GPU": "gpu",
    "POM_5V_CPU": "package",
    "GPU": "gpu",
    "CPU": "package",
    "SOC": "board",
    "CV": "board",
    "VDDRQ": "dram",
    "SYS5V": "board",
}
"""Rail -> domain: Orin NX, Nano and AGX, Thor, TX2, Nano, and AGX Xavier. A rail of the SoC or of
accelerators is not part of the CPU's rail, and so not uncore, which is part of a package."""
WHOLE = ("node", "module")
"""Domains whose rail contains all others of the board."""
FED_BY = {"VDDQ_VDD2_1V8AO": "VIN_SYS_5V0"}
"""Rail -> the rail that feeds it, where that is not the module's (AGX Orin)."""
NO_RAIL = ("NC", "")

BUS_STEP_V, SHUNT_STEP_V = 8e-3, 40e-6
SHUNT_OFFSET_V = 80e-6
"""The greatest offset of the shunt's voltage."""
GAIN_PCT = 0.25
"""The greatest gain error of bus and shunt, each without the shunt resistor's tolerance."""
SHUNT_OHM = 5e-3
"""Used where ``shuntN_resistor`` does not exist: the shunt of most Jetson rails."""
CONVERSION_S = 1.1e-3
"""The chip's default conversion time of each of the two voltages of a channel."""
RECTANGULAR = 3**-0.5
"""The standard deviation of a value uniform within +/- a limit, as a share of the limit."""

REMEDIES = Remedies(
    denied="give a group access, as root, with `chgrp GROUP {path} && chmod g+r {path}`",
    gone="the driver was unbound: discard the measurement",
    other="check `dmesg`, or name the rails to read in the meter's option `rails`",
)
ABSENT_REMEDY = (
    "load the driver with `modprobe ina3221`; only Jetson boards have it, and containers need "
    "`--volume /sys:/sys:ro`"
)


@dataclass(frozen=True)
class LabelledRail:
    """A rail of this board."""

    label: str
    number: int
    """Its channel number in the chip."""
    directory: Path
    is_enabled: bool


def open_meter(root: Path, options: Mapping[str, Any]) -> Ina3221Meter:
    """Open the rails below ``root`` that the option ``rails`` names, or those in RAILS."""
    domains = parse_options(options)
    rails = find_rails(root)
    chosen = _choose(root, rails, domains)
    domains = domains or RAILS
    paths = [
        rail.directory / f"{quantity}{rail.number}_input"
        for rail in chosen
        for quantity in ("in", "curr")
    ]
    with ExitStack() as resources:
        files = keep_open(resources, paths, REMEDIES)
        chosen_domains = {rail.label: domains[rail.label] for rail in chosen}
        channels = tuple(
            _make_channel(rail, chosen_domains, voltage)
            for rail, voltage in zip(chosen, files[::2], strict=True)
        )
        return Ina3221Meter(ABOUT.kind, channels, (), files, resources.pop_all())


def find_rails(root: Path) -> tuple[LabelledRail, ...]:
    """All labelled rails below ``root``, by chip and number.

    Raises:
        MeterError: there is no such chip, or a label cannot be read.
    """
    rails: list[LabelledRail] = []
    for name in NAMES:
        chips = sorted((root / DRIVERS / name).glob("*/hwmon/hwmon*"))
        for directory in chips:
            for path in sorted(directory.iterdir()):
                match = LABEL_FILE.fullmatch(path.name)
                label = read_text(path, REMEDIES) if match else ""
                if match is None or label in NO_RAIL:
                    continue
                number = int(match[1])
                rails.append(LabelledRail(label, number, directory, _is_enabled(directory, number)))
    if not rails:
        raise AbsentMeterError(
            f"{root / DRIVERS} has no ina3221 with labelled rails", ABSENT_REMEDY
        )
    return tuple(rails)


class Ina3221Meter(FileMeter):
    """The open rails: the voltage in mV and the current in mA of each."""

    def _read_files(self) -> list[int]:
        return [_read_signed(file) for file in self._files]

    def take(self, raw: Sequence[int], start_ns: int, end_ns: int) -> Reading:
        """The result of :meth:`read` for these numbers, one for each descriptor.

        Raises:
            MeterError: the meter is closed, or a voltage is 0: the rail is off, or the chip
                does not measure it.
        """
        self.refuse_closed()
        values = []
        for file, voltage_mv, current_ma in zip(self._files[::2], raw[::2], raw[1::2], strict=True):
            if voltage_mv <= 0:
                raise MeterError(
                    f"{file.path} reads {voltage_mv} mV: the rail has no supply",
                    "leave it out with the option `rails`, or power the device that it feeds",
                )
            values.append(voltage_mv * current_ma / 1e6)
        return Reading((start_ns + end_ns) // 2, tuple(values))


def parse_options(options: Mapping[str, Any]) -> dict[str, str] | None:
    rails = options.get("rails")
    if rails is None:
        return None
    if not isinstance(rails, Mapping) or not rails:
        raise ValueError(f"rails is a table of label = domain, not {rails!r}")
    for label, domain in rails.items():
        if domain not in CONTAINS:
            raise ValueError(f"the domain of {label} is one of {', '.join(CONTAINS)}")
    whole = [str(label) for label, domain in rails.items() if domain in WHOLE]
    if len(whole) > 1:
        raise ValueError(
            f"{' and '.join(whole)} cannot both contain the other rails: only one is of domain "
            f"{' or '.join(WHOLE)}"
        )
    return {str(label): str(domain) for label, domain in rails.items()}


def _choose(
    root: Path, rails: Sequence[LabelledRail], domains: Mapping[str, str] | None
) -> tuple[LabelledRail, ...]:
    rail_labels = ", ".join(rail.label for rail in rails)
    if domains is None:
        chosen = tuple(rail for rail in rails if rail.label in RAILS and rail.is_enabled)
        if not chosen:
            raise MeterError(
                f"{root / DRIVERS} has no rail whose domain is known",
                f"give domains in the meter's option `rails`; the rails are {rail_labels}",
            )
    else:
        missing = [label for label in domains if label not in [rail.label for rail in rails]]
        if missing:
            raise MeterError(
                f"{root / DRIVERS} has no rail {', '.join(missing)}", f"the rails are {rail_labels}"
            )
        chosen = tuple(rail for rail in rails if rail.label in domains)
    by_label: dict[str, LabelledRail] = {}
    for rail in chosen:
        if not rail.is_enabled:
            path = rail.directory / f"in{rail.number}_enable"
            raise MeterError(f"{path} is 0", f"switch it on, as root: `echo 1 > {path}`")
        first = by_label.setdefault(rail.label, rail)
        if first is not rail:
            raise MeterError(
                f"{first.directory} and {rail.directory} both have a rail {rail.label}",
                "leave it out with the option `rails`",
            )
    return chosen


def rail_around(label: str, domains: Mapping[str, str]) -> str | None:
    """The rail whose power includes that of rail ``label``; ``domains``: rail -> domain."""
    if (feeding := FED_BY.get(label)) in domains:
        return feeding
    whole = next((name for name, domain in domains.items() if domain in WHOLE), None)
    return None if whole == label else whole


def _make_channel(rail: LabelledRail, domains: Mapping[str, str], voltage: KeptFile) -> Channel:
    shunt_ohm = _number(rail.directory / f"shunt{rail.number}_resistor", 0) / 1e6 or SHUNT_OHM
    supply_v = max(_read_signed(voltage) / 1e3, BUS_STEP_V)
    turns = _turns(rail.directory)
    period_s = _period_s(rail.directory, turns)
    return Channel(
        name=rail.label,
        domain=domains[rail.label],
        kind="power",
        # A step of the shunt voltage, in whole mA; a step of the supply voltage adds far less.
        resolution=supply_v * max(SHUNT_STEP_V / shunt_ohm, 1e-3),
        period_s=period_s,
        inside=rail_around(rail.label, domains),
        averaging_s=period_s if _samples(rail.directory) > 1 else 0.0,
        # The chip converts its channels in turn, and spends half of the time on the current.
        seen=1 / (2 * turns),
        gain_pct=2**0.5 * GAIN_PCT * RECTANGULAR,
        offset_w=supply_v * SHUNT_OFFSET_V / shunt_ohm * RECTANGULAR,
    )


def _is_enabled(directory: Path, number: int) -> bool:
    return _number(directory / f"in{number}_enable", 1) != 0


def _turns(directory: Path) -> int:
    """The number of channels that a chip converts in turn: all enabled ones, labelled or not."""
    numbers = [n for n in (1, 2, 3) if (directory / f"in{n}_input").exists()]
    return max(1, sum(_is_enabled(directory, number) for number in numbers))


def _period_s(directory: Path, turns: int) -> float:
    """The time between two updates: channels x samples x (bus + shunt conversion)."""
    interval_s = _number(directory / "update_interval", 0) / 1000
    return interval_s or turns * _samples(directory) * 2 * CONVERSION_S


def _samples(directory: Path) -> int:
    return max(_number(directory / "samples", 1), 1)


def _number(path: Path, default: int) -> int:
    return read_once(path, REMEDIES) if path.exists() else default


def _read_signed(file: KeptFile) -> int:
    text = file.read()
    match = SIGNED.fullmatch(text)
    if match is None:
        held = f"holds {text[:40]!r}, not a number" if text else "is empty"
        raise MeterError(f"{file.path} {held}", REMEDIES.other)
    return int(match[1])
