"""A node whose clocks and energy counter are plain files: what a test's Slurm sets and reads.

`write` keeps the energy counters of nodes, `work` is what a job runs. A CPU draws its power while
`work` runs on it, which holds a lock of the CPU's folder meanwhile: a killed one holds it no more.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from dataclasses import astuple, dataclass
from pathlib import Path

CPUS = Path("/sys/devices/system/cpu")
SHOWN = ("scaling_cur_freq", "cpuinfo_cur_freq")


@dataclass(frozen=True)
class Power:
    """A node's power in W: ``idle_w``, and ``cpu_w`` (f / GHz) ** ``exponent`` for each CPU that
    works at the clock f."""

    idle_w: float = 40.0
    cpu_w: float = 20.0
    exponent: float = 2.5

    def watts(self, clocks_khz: list[int]) -> float:
        """The power with CPUs that work at these clocks."""
        return self.idle_w + sum(self.cpu_w * (khz / 1e6) ** self.exponent for khz in clocks_khz)

    def words(self) -> list[str]:
        """The numbers as words of a command line."""
        return [str(value) for value in astuple(self)]


POWER = Power()


def write_clocks(cpu: Path, clocks_khz: tuple[int, ...]) -> None:
    """Write the files of a CPU's cpufreq folder, as acpi-cpufreq has them, at the highest clock."""
    folder = cpu / "cpufreq"
    folder.mkdir()
    low, high = min(clocks_khz), max(clocks_khz)
    files = {
        "scaling_available_frequencies": " ".join(map(str, sorted(clocks_khz, reverse=True))),
        "scaling_available_governors": "performance powersave userspace ondemand",
        "scaling_governor": "performance",
        "scaling_setspeed": high,
        "scaling_min_freq": low,
        "scaling_max_freq": high,
        "cpuinfo_min_freq": low,
        "cpuinfo_max_freq": high,
        **dict.fromkeys(SHOWN, high),
    }
    for name, value in files.items():
        (folder / name).write_text(f"{value}\n")


def clock_khz(cpu: Path) -> int:
    """The clock of a busy CPU, by its governor and limits, from its folder."""
    names = ("min_freq", "max_freq", "setspeed", "governor")
    *clocks, governor = [_read(f"{cpu}/cpufreq/scaling_{name}") for name in names]
    low, high, asked = map(int, clocks)
    return {b"userspace": min(max(asked, low), high), b"powersave": low}.get(governor, high)


def _read(file: str) -> bytes:
    # Whoever writes it empties it first. No pathlib: the writer would take a third of its time.
    text = b""
    while not text:
        descriptor = os.open(file, os.O_RDONLY)
        text = os.read(descriptor, 80).strip()
        os.close(descriptor)
    return text


def work(gigacycles: float, stall_s: float) -> None:
    """Keep this process's CPUs busy for so many cycles of the slowest, and ``stall_s`` seconds."""
    cpus = [CPUS / f"cpu{number}" for number in sorted(os.sched_getaffinity(0))]
    for cpu in cpus:
        fcntl.flock(os.open(cpu / "cpufreq", os.O_RDONLY), fcntl.LOCK_SH)  # until this process ends
    time.sleep(stall_s + gigacycles * 1e6 / min(map(clock_khz, cpus)))


class _Node:
    """The counter of one node, from its folder: cpu/, counters/ and the log energy.log."""

    def __init__(self, folder: Path, power: Power) -> None:
        self.counters = folder / "counters"
        self.log = (folder / "energy.log").open("a", buffering=1)
        self.power = power
        self.energy_j = 0.0
        self.then_s = time.time()
        self.cpus = [path.parent for path in (folder / "cpu").glob("cpu*/cpufreq")]
        self.shown: dict[Path, object] = {}

    def write(self) -> None:
        """Add up what was drawn since the last call, and write the counters and the clocks."""
        now_s = time.time()
        clocks_khz = {cpu: clock_khz(cpu) for cpu in self.cpus}
        watts = self.power.watts([khz for cpu, khz in clocks_khz.items() if _is_busy(cpu)])
        self.energy_j += watts * (now_s - self.then_s)
        self.then_s = now_s
        _replace(self.counters / "energy", f"{self.energy_j:.0f} J {now_s * 1e6:.0f} us")
        self._show(watts, self.counters / "power", f"{watts:.0f} W {now_s * 1e6:.0f} us")
        self.log.write(f"{now_s:.3f} {self.energy_j:.3f} {watts:.3f}\n")
        for cpu, khz in clocks_khz.items():
            for name in SHOWN:
                self._show(khz, cpu / "cpufreq" / name, str(khz))

    def _show(self, value: object, file: Path, text: str) -> None:
        if self.shown.get(file) != value:
            _replace(file, text)
            self.shown[file] = value


def _is_busy(cpu: Path) -> bool:
    descriptor = os.open(f"{cpu}/cpufreq", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _replace(file: Path, text: str) -> None:
    # By a rename: a reader never finds half a number.
    new = file.with_name(f".{file.name}")
    new.write_text(f"{text}\n")
    new.rename(file)


def write(period_s: float, power: Power, folders: list[Path]) -> None:
    """Write the counters of the nodes of these folders every ``period_s`` seconds, until killed."""
    nodes = [_Node(folder, power) for folder in folders]
    while True:
        for node in nodes:
            node.write()
        time.sleep(period_s)


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    if verb == "work":
        work(*map(float, words))
    else:
        period_s, *numbers = map(float, words[:4])
        write(period_s, Power(*numbers), list(map(Path, words[4:])))
