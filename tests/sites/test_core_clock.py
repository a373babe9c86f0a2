"""Which files and registers show at which clock CPUs and GPUs run, on trees of files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pynvml
import pytest

from dvfs.setting import Setting
from sites.clocks import open_control
from sites.clocks.shared.control import ClockState
from sites.clocks.shared.core_clock import (
    APERF,
    LEAST_NS,
    MPERF,
    TSC,
    count_in_process,
    open_core_clock,
    work_in,
)
from sites.clocks.shared.reading import open_reading
from sites.site_file import Site
from tests.sites.fake_nvml import installed, put

TREES = Path(__file__).parents[1] / "trees"
FLAGS = {
    "counts": "flags\t\t: fpu tsc aperfmperf\n",
    "a guest": "flags\t\t: fpu tsc hypervisor\n",
    "Arm": "Features\t: fp asimd\n",
}


def write_cpus(root: Path, cpuinfo: str, **khz: list[int]) -> None:
    """Files of cpufreq, one list of values for each, and the processor's description."""
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(FLAGS[cpuinfo])
    for file, values in khz.items():
        for cpu, value in enumerate(values):
            folder = root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(f"{value}\n")


def work(root: Path, *ticks: int) -> None:
    """How long each CPU has worked since the boot."""
    lines = [f"cpu{cpu} {n} 0 0 9999 0 0 0 0 0 0\n" for cpu, n in enumerate(ticks)]
    (root / "proc/stat").write_text("cpu  0 0 0 0 0 0 0 0 0 0\n" + "".join(lines) + "ctxt 1\n")


@pytest.mark.parametrize(
    ("cpuinfo", "files", "shown"),
    [
        # The kernel's own order of files: what was asked for is no answer.
        ("counts", {"scaling_cur_freq": 1400, "cpuinfo_cur_freq": 1}, 1400.0),
        ("counts", {"scaling_cur_freq": 1, "cpuinfo_avg_freq": 1300}, 1300.0),
        ("counts", {"scaling_setspeed": 1400, "scaling_max_freq": 1400}, None),
        ("a guest", {"scaling_cur_freq": 1400, "cpuinfo_cur_freq": 1400}, None),
        ("Arm", {"scaling_cur_freq": 1, "cpuinfo_cur_freq": 1200}, 1200.0),
        ("Arm", {"scaling_cur_freq": 1400, "scaling_setspeed": 1400}, None),
        ("counts", {}, None),
    ],
)
def test_only_what_the_hardware_says_is_a_clock(tmp_path, cpuinfo, files, shown):
    write_cpus(tmp_path, cpuinfo, **{name: [1000 * mhz] * 2 for name, mhz in files.items()})
    clock = open_core_clock(tmp_path, {0, 1})
    assert clock.mhz() == shown
    assert bool(clock.source) == (shown is not None)


def test_a_cpu_without_work_does_not_count(tmp_path):
    write_cpus(tmp_path, "counts", scaling_cur_freq=[1_200_000, 2_300_000, 1_300_000])
    work(tmp_path, 100, 700, 0)
    clock = open_core_clock(tmp_path, {0, 1, 2})
    work(tmp_path, 103, 700, 1)
    assert clock.mhz() == pytest.approx((3 * 1200 + 1300) / 4)
    assert clock.mhz() is None  # nothing worked since
    work(tmp_path, 103, 701, 1)
    assert clock.mhz() == 2300.0


def test_work_is_all_but_idling_and_waiting(tmp_path):
    """The columns of /proc/stat, proc_stat(5): user, nice, system, idle, iowait, irq, softirq,
    then time of guests, which is not this system's or is in user already."""
    khz = [1_000_000, 1_500_000, 2_100_000, 2_600_000, 3_300_000, 500_000, 700_000]
    write_cpus(tmp_path, "counts", scaling_cur_freq=khz)
    stat = tmp_path / "proc/stat"
    before = np.random.default_rng(0).integers(0, 10**6, (7, 10))
    worked = np.diag([3, 40, 500, 10**6, 10**6, 7, 90])  # each CPU in another column
    guests = np.full((7, 3), 10**5)  # steal, guest, guest_nice

    def write(ticks: np.ndarray) -> None:
        rows = (f"cpu{cpu} {' '.join(map(str, row))}\n" for cpu, row in enumerate(ticks.tolist()))
        stat.write_text("cpu  1 2 3 4 5 6 7 8 9 10\n" + "".join(rows) + "intr 5 6\n")

    write(before)
    clock = open_core_clock(tmp_path, set(range(7)))
    write(before + np.hstack([worked, guests]))
    weights = np.array([3, 40, 500, 0, 0, 7, 90])
    assert clock.mhz() == pytest.approx((weights * np.array(khz)).sum() / weights.sum() / 1e3)


def test_without_proc_stat_each_cpu_counts_the_same_and_a_new_one_by_all_of_its_work(tmp_path):
    write_cpus(tmp_path, "counts", scaling_cur_freq=[1_000_000, 2_000_000, 3_600_000])
    clock = open_core_clock(tmp_path, {0, 1, 2})
    assert clock.mhz() == pytest.approx(2200.0)
    work(tmp_path, 10, 20)
    assert clock.mhz() == pytest.approx((10 * 1000 + 20 * 2000 + 3600) / 31)


def write_registers(root: Path, cpu: int, **values: int) -> None:
    path = root / f"dev/cpu/{cpu}/msr"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    with path.open("r+b") as file:
        for name, value in values.items():
            file.seek({"aperf": APERF, "mperf": MPERF, "tsc": TSC}[name])
            file.write(value.to_bytes(8, "little"))


def test_registers_count_before_any_file(tmp_path, monkeypatch):
    """Two CPUs at a reference clock of 2,000 MHz, of which one works half the time.

    The numbers of MPERF and APERF are next to each other. In a plain file their eight bytes
    overlap, so that APERF is always a 256th of MPERF.
    """
    write_cpus(tmp_path, "counts", scaling_cur_freq=[3_000_000] * 2)
    base, second = 1 << 40, 2_000_000_000
    for cpu in (0, 1):
        write_registers(tmp_path, cpu, mperf=base, tsc=base)
    now_ns = iter([10**9, 2 * 10**9, 3 * 10**9])
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(now_ns))
    clock = open_core_clock(tmp_path, {0, 1})
    assert "APERF" in clock.source
    write_registers(tmp_path, 0, mperf=base + second // 2)
    for cpu in (0, 1):
        write_registers(tmp_path, cpu, tsc=base + second)
    assert clock.mhz() == pytest.approx(2000 / 256)
    for cpu in (0, 1):
        write_registers(tmp_path, cpu, tsc=base + 2 * second)
    assert clock.mhz() is None  # halted all the time


def test_a_register_that_does_not_count_is_not_used(tmp_path):
    """As hypervisors show it: every register reads zero."""
    write_registers(tmp_path, 0, mperf=0, aperf=0, tsc=0)
    assert open_core_clock(tmp_path, {0}).source == ""


CORES = 2
TSC_MHZ = 2000
"""Of the processor whose registers are below."""


class Registers:
    """APERF, MPERF and the TSC of two CPUs, by their numbers in Intel's manual, and the time."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 10**9
        self.values = {cpu: {0xE8: 5, 0xE7: 3, 0x10: 9} for cpu in range(CORES)}
        for cpu in self.values:
            path = root / f"dev/cpu/{cpu}/msr"
            path.parent.mkdir(parents=True)
            path.touch()
        monkeypatch.setattr(os, "pread", self.read)
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.now_ns)

    def read(self, descriptor: int, size: int, register: int) -> bytes:
        cpu = int(Path(f"/proc/self/fd/{descriptor}").readlink().parent.name)
        return self.values[cpu][register].to_bytes(size, "little")

    def run(self, seconds: float, **worked_s: tuple[float, float]) -> None:
        """Let time pass; ``cpuN``: (seconds of work, MHz)."""
        self.now_ns += round(seconds * 1e9)
        for cpu, registers in self.values.items():
            own_s, mhz = worked_s.get(f"cpu{cpu}", (0.0, 0.0))
            registers[0x10] += round(seconds * TSC_MHZ * 1e6)
            registers[0xE7] += round(own_s * TSC_MHZ * 1e6)
            registers[0xE8] += round(own_s * mhz * 1e6)


def test_registers_give_the_mean_clock_of_the_time_worked(tmp_path, monkeypatch):
    registers = Registers(tmp_path, monkeypatch)
    clock = open_core_clock(tmp_path, {0, 1})
    registers.run(2.0, cpu0=(1.5, 3000.0), cpu1=(0.5, 1000.0))
    assert clock.mhz() == pytest.approx((1.5 * 3000 + 0.5 * 1000) / 2)
    registers.run(0.25, cpu1=(0.25, 1700.0))
    assert clock.mhz() == pytest.approx(1700.0)
    registers.now_ns += 10**9  # the machine was stopped: not even the TSC counted
    assert clock.mhz() is None


@pytest.mark.parametrize("seconds", [0.01, 3.0])
def test_work_of_less_than_a_tenth_of_a_millisecond_shows_no_clock(tmp_path, monkeypatch, seconds):
    registers = Registers(tmp_path, monkeypatch)
    clock = open_core_clock(tmp_path, {0, 1})
    registers.run(seconds, cpu0=(90e-6, 1500.0))
    assert clock.mhz() is None
    registers.run(seconds, cpu0=(110e-6, 1500.0))
    assert clock.mhz() == pytest.approx(1500.0, rel=1e-3)
    registers.run(seconds, cpu0=(60e-6, 1500.0), cpu1=(60e-6, 2500.0))
    assert clock.mhz() == pytest.approx(2000.0, rel=1e-3)


def spin(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def own_s(run: Callable[[float], None]) -> float:
    """The CPU time of this process while it runs."""
    before = time.process_time()
    run(0.1)
    return time.process_time() - before


def in_thread(seconds: float) -> None:
    thread = threading.Thread(target=spin, args=(seconds,))
    thread.start()
    thread.join()


def process_s(seconds: float) -> float:
    """The CPU time of a process; what earlier tests have left behind may end at any time."""
    code = f"import time\nuntil = time.time() + {seconds}\nwhile time.time() < until: pass"
    process = subprocess.Popen([sys.executable, "-c", code])
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize(
    "run",
    [partial(own_s, spin), partial(own_s, in_thread), partial(process_s, 0.1)],
    ids=["in_this_thread", "in_thread", "in_process"],
)
def test_perf_counts_in_threads_and_processes_while_they_run(run: Callable[[], float]):
    """On the event ``tsc``, which every x86 has: its rate is the same wherever it is counted."""
    clock = count_in_process("tsc")
    if clock is None:  # root may count it wherever the source is
        assert os.getuid() != 0 or not Path("/sys/bus/event_source/devices/msr").is_dir()
        return
    spin(0.02)
    rate_mhz = clock.mhz()
    ran_s = run()
    ticks, running_ns = (now - then for now, then in zip(clock._read(), clock._before, strict=True))
    assert running_ns / 1e9 == pytest.approx(ran_s, abs=0.05)
    assert 1e3 * ticks / running_ns == pytest.approx(rate_mhz, rel=0.01)
    assert clock.mhz() is not None
    # Hardly anything runs in between, unless a thread that another test has left behind.
    short = []
    for _ in range(100):
        began_ns = clock._before[1]
        mhz = clock.mhz()
        short.append(clock._before[1] - began_ns < LEAST_NS)
        assert (mhz is None) == short[-1]
    assert any(short)


def test_perf_counts_in_a_process_that_was_there_before_and_in_none_that_is_not_known():
    code = "import time\ninput()\nwhile time.process_time() < 0.3: pass"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    with work_in(process.pid):
        of_process = count_in_process("tsc")
    with work_in(None):
        assert count_in_process("tsc") is None
    own = count_in_process("tsc")
    process.communicate(b"\n")
    if own is None:  # root may count it wherever the source is
        assert os.getuid() != 0 or not Path("/sys/bus/event_source/devices/msr").is_dir()
        return
    assert of_process is not None
    assert of_process._read()[1] - of_process._before[1] > 0.1e9
    assert own._read()[1] - own._before[1] < 0.1e9


def test_an_event_that_is_not_there():
    assert count_in_process("no-such-event") is None


def gpu_site(control: str) -> Site:
    return Site.model_validate(
        {
            "name": "gpus",
            "partitions": {"all": {"scheduler": "slurm"}},
            "domains": {"core": {"frequencies_mhz": [1110.0, 1410.0]}},
            "clocks": {"control": control, "device": "gpu"},
        }
    )


@pytest.mark.parametrize("control", ["slurm", "fixed"])
def test_gpu_clocks_are_read_whoever_sets_them(tmp_path, control):
    """In a job step too, without root: SM and memory clock, and why they are what they are."""
    shutil.copytree(TREES / "nvml-2-gpus", tmp_path, dirs_exist_ok=True)
    with installed(tmp_path):
        for gpu, core_mhz in (("gpu0", 1395), ("gpu1", 1425)):
            put(tmp_path, f"{gpu}/clock_sm_mhz", core_mhz)
            put(tmp_path, f"{gpu}/clock_graphics_mhz", 210)
            put(tmp_path, f"{gpu}/clock_mem_mhz", 1593)
            put(tmp_path, f"{gpu}/event_reasons", 0x4)
        state = open_control(gpu_site(control), tmp_path).state()
    assert state.setting == Setting(1410.0, 1593.0)
    assert state.apart_pct == pytest.approx(100 * 30 / 1425)
    assert state.throttled == ("software power cap",)
    assert state.source == "NVML"


REASON_NAMES = {
    "SwPowerCap": "software power cap",
    "HwSlowdown": "hardware slowdown",
    "SyncBoost": "sync boost",
    "SwThermalSlowdown": "software thermal slowdown",
    "HwThermalSlowdown": "hardware thermal slowdown",
    "HwPowerBrakeSlowdown": "hardware power brake",
    "DisplayClockSetting": "display clocks",
    "GpuIdle": "",
    "ApplicationsClocksSetting": "",
}
"""NVIDIA's name of a reason, and what a state calls it: nothing where it is no throttling."""


@pytest.mark.parametrize("name", REASON_NAMES)
def test_every_reason_of_nvml_has_its_bit(tmp_path, name):
    """The bits of NVIDIA's own binding; the other GPU has none."""
    shutil.copytree(TREES / "nvml-2-gpus", tmp_path, dirs_exist_ok=True)
    bit = getattr(pynvml, f"nvmlClocksEventReason{name}")
    assert bit & pynvml.nvmlClocksEventReasonAll
    with installed(tmp_path):
        put(tmp_path, "gpu0/event_reasons", bit)
        put(tmp_path, "gpu1/event_reasons", 0)
        throttled = open_control(gpu_site("fixed"), tmp_path).state().throttled
    assert throttled == ((REASON_NAMES[name],) if REASON_NAMES[name] else ())


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_where_nothing_can_be_read_the_state_is_empty(tmp_path, device):
    assert open_reading(device, tmp_path)() == ClockState()


def test_the_clocks_of_a_gpu_that_is_lost_are_unknown_and_not_zero(tmp_path):
    shutil.copytree(TREES / "nvml-2-gpus", tmp_path, dirs_exist_ok=True)
    with installed(tmp_path):
        control = open_control(gpu_site("fixed"), tmp_path)
        assert control.state().source == "NVML"
        put(tmp_path, "gpu1/clock_sm_mhz", "!15")
        assert control.state() == ClockState()
        # One whose clocks cannot be read from the start is no error either.
        assert open_reading("gpu", tmp_path)() == ClockState()


def test_why_a_gpu_is_slow_and_how_warm_it_is_may_be_unknown(tmp_path):
    """A driver that has neither; of two GPUs the warmer one's temperature counts."""
    shutil.copytree(TREES / "nvml-2-gpus", tmp_path, dirs_exist_ok=True)
    with installed(tmp_path):
        for gpu, degrees_c in (("gpu0", 61), ("gpu1", 58)):
            put(tmp_path, f"{gpu}/event_reasons", "!3")
            put(tmp_path, f"{gpu}/temperature_c", degrees_c)
        state = open_control(gpu_site("fixed"), tmp_path).state()
        assert (state.throttled, state.temperature_c) == ((), 61.0)
        assert state.setting.core_mhz is not None
        put(tmp_path, "gpu0/temperature_c", "!3")
        assert open_reading("gpu", tmp_path)().temperature_c == 58.0
        put(tmp_path, "gpu1/temperature_c", "!3")
        assert open_reading("gpu", tmp_path)().temperature_c is None
        # Refused is not the same as not there: then it is not known whether it was throttled.
        put(tmp_path, "gpu1/event_reasons", "!15")
        assert open_reading("gpu", tmp_path)() == ClockState()
