"""The cases of the contract tests of clock controls: every control on trees of files."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from dvfs.setting import Setting
from sites.clocks import ClockControl, open_control
from sites.clocks.shared.journal import put_back_held
from sites.site_file import Site
from tests.sites import clock_hardware, fake_nvml
from tests.sites.meter_layouts.amdsmi import importable as amdsmi_importable

TREES = Path(__file__).parents[1] / "trees"
NOT_OF_THE_MACHINE = ("run", "tmp", "usr")
"""Folders of a root that hold journals and programs."""
CPU0 = "sys/devices/system/cpu/cpu0/cpufreq"
CPU1 = "sys/devices/system/cpu/cpu1/cpufreq"
UNCORE = "sys/devices/system/cpu/intel_uncore_frequency"
ORIN_GPU = "sys/class/devfreq/17000000.gpu"
NANO_GPU = "sys/class/devfreq/57000000.gpu"
ORIN_EMC = "sys/kernel/debug/bpmp/debug/clk/emc"
NANO_EMC = "sys/kernel/debug/clk/override.emc"
AMDSMI_CAP = "amdsmi/gpu0/power_cap"
NVML_LIMIT = "nvml/gpu0/power_limit_mw"
POLICIES = tuple(f"sys/devices/system/cpu/cpufreq/policy{i}" for i in (0, 1))
PACKAGE_0 = "sys/class/powercap/intel-rapl:2"
PACKAGE_1 = "sys/class/powercap/intel-rapl:0"
LONG_TERM = (f"{PACKAGE_0}/constraint_1", f"{PACKAGE_1}/constraint_0")
"""How the files of the packages' long-term constraints begin."""


@dataclass(frozen=True, kw_only=True)
class ClockLayout:
    """A control on one type of machine.

    ``legal`` is what the control must say; ``shown(root)`` is the setting that the tree is at by
    its files, None where that domain is not set. ``written``: files each of which makes it unable
    to set clocks when it is missing or a folder; ``numbers``: those that must hold a number.
    ``device`` goes away as a whole in a test.
    """

    name: str
    control: str
    tree: str
    legal: tuple[Setting, ...]
    illegal: tuple[Setting, ...]
    shown: Callable[[Path], Setting]
    written: tuple[str, ...]
    numbers: tuple[str, ...]
    device: str
    options: Mapping[str, Any] = field(default_factory=dict)
    core_mhz: tuple[float, ...] = ()
    mem_mhz: tuple[float, ...] = ()
    uncore_mhz: tuple[float, ...] = ()
    """The site file's clocks."""
    limits_w: tuple[float, ...] = ()
    """The site file's power limits: then the control sets these, and the clocks are left."""
    profiles: tuple[str, ...] = ()
    """The site file's profiles: then the control sets these."""
    no_numbers: tuple[str, ...] = ("", "abc\n", "-5\n", "1.5\n", "12 x\n")
    """Invalid content for a file of ``numbers``."""
    running: Callable[[Path], AbstractContextManager[None]] = clock_hardware.running

    def site(self) -> Site:
        domains = {"core": self.core_mhz, "mem": self.mem_mhz, "uncore": self.uncore_mhz}
        control = {"control": self.control, "options": dict(self.options)}
        set_by: dict[str, Any] = {"clocks": control}
        if self.limits_w:
            set_by = {"power_limit": control | {"limits_w": list(self.limits_w)}}
        if self.profiles:
            set_by = {"profiles": control | {"names": list(self.profiles)}}
        return Site.model_validate(
            {
                "name": self.name,
                "partitions": {"all": {}},
                "domains": {
                    name: {"frequencies_mhz": list(mhz)} for name, mhz in domains.items() if mhz
                },
                **set_by,
            }
        )

    def open(self, root: Path) -> ClockControl:
        return open_control(self.site(), root)


def copy(layout: ClockLayout, root: Path) -> dict[str, bytes]:
    """Copy the layout's tree to ``root``, with empty run and tmp; returns its files' content."""
    shutil.copytree(TREES / layout.tree, root, dirs_exist_ok=True)
    for name in ("run", "tmp"):
        (root / name).mkdir(exist_ok=True)
    return contents(root)


def contents(root: Path) -> dict[str, bytes]:
    """Path below the root -> bytes, of every file of the machine."""
    content_of = {}
    for top in sorted(root.iterdir()):
        if top.name in NOT_OF_THE_MACHINE:
            continue
        for path in sorted(top.rglob("*")):
            if path.is_file():
                content_of[str(path.relative_to(root))] = path.read_bytes()
    return content_of


def settled_contents(root: Path) -> dict[str, bytes]:
    """:func:`contents`, once the hardware shows what was written."""
    clock_hardware.wait_until_settled(root)
    return contents(root)


def journals(root: Path) -> list[str]:
    """The journals that exist."""
    return sorted(path.name for path in root.glob("*/campaign-clocks*/*.json"))


def end(number: int, frame: FrameType | None) -> None:
    """A signal handler like the measuring process's: SIGTERM runs the ``finally`` blocks."""
    raise SystemExit(128 + number)


def fork(work: Callable[[], None]) -> int:
    """Run ``work`` in a child that ends like the fork server's children; returns its process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        work()
        code = 0
    except BaseException as error:
        if not isinstance(error, SystemExit | KeyboardInterrupt):
            import traceback

            traceback.print_exc()
    finally:
        try:
            put_back_held()
        finally:  # also if a signal came meanwhile
            os._exit(code)


def answer_without_privileges(ask: Callable[[], Any]) -> Any:
    """What ``ask`` returns, as JSON has it, to a user who is not root; in a child.

    The child may not be able to read modules: what ``ask`` imports must be imported before.
    """
    read, write = os.pipe()

    def work() -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        os.write(write, json.dumps(ask()).encode())

    child = fork(work)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        text = answer.read()
    assert os.waitpid(child, 0)[1] == 0
    return json.loads(text)


def hold(layout: ClockLayout, root: Path, setting: Setting, ready: int) -> None:
    """Set clocks as a measurement does, report it, and wait for the end."""
    with ExitStack() as stack:
        clocks = layout.open(root)
        stack.callback(clocks.restore)
        clocks.set(setting)
        os.write(ready, b"x")
        time.sleep(60)


def measure_for_ever(layout: ClockLayout, root: Path, seed: int, ready: int) -> None:
    """Open, set and restore repeatedly, as a worker does; writes a byte at the start."""
    rng = random.Random(seed)
    site = layout.site()
    os.write(ready, b"x")
    while True:
        with ExitStack() as stack:
            clocks = open_control(site, root)
            stack.callback(clocks.restore)
            for _ in range(rng.randint(1, 3)):
                setting = rng.choice(layout.legal)
                clocks.set(setting if rng.random() < 0.8 else Setting(setting.core_mhz))
                clocks.state()
                time.sleep(rng.uniform(0.0, 0.005))  # the kernel that is measured
        # A kernel answers within the write. The program beside the tree is a little later.
        clock_hardware.wait_until_settled(root)


def _number(path: Path) -> float:
    return float(path.read_text())


def _userspace(root: Path) -> Setting:
    for cpu in (CPU0, CPU1):
        assert (root / cpu / "scaling_governor").read_text() == "userspace\n"
    khz = {_number(root / cpu / "scaling_setspeed") for cpu in (CPU0, CPU1)}
    assert len(khz) == 1
    return Setting(khz.pop() / 1000)


def _same(root: Path, files: list[str], per_mhz: float) -> float:
    values = {_number(root / path) for path in files}
    assert len(values) == 1, (files, values)
    return values.pop() / per_mhz


def _limits(root: Path) -> Setting:
    ends = [f"{cpu}/scaling_{end}_freq" for cpu in (CPU0, CPU1) for end in ("min", "max")]
    return Setting(_same(root, ends, 1000))


def _uncore(root: Path, folders: tuple[str, ...]) -> float:
    ends = [f"{UNCORE}/{folder}/{end}_freq_khz" for folder in folders for end in ("min", "max")]
    return _same(root, ends, 1000)


def _orin(root: Path) -> Setting:
    assert (root / ORIN_GPU / "device/railgate_enable").read_text() == "0\n"
    assert (root / ORIN_EMC / "mrq_rate_locked").read_text() == "1\n"
    core = _same(root, [f"{ORIN_GPU}/min_freq", f"{ORIN_GPU}/max_freq"], 1e6)
    return Setting(core, _number(root / ORIN_EMC / "rate") / 1e6)


def _nano(root: Path) -> Setting:
    assert (root / NANO_EMC / "clk_state").read_text() == "1\n"
    core = _same(root, [f"{NANO_GPU}/min_freq", f"{NANO_GPU}/max_freq"], 1e6)
    return Setting(core, _number(root / NANO_EMC / "clk_update_rate") / 1e6)


def _nvml(root: Path) -> Setting:
    gpu = root / "nvml/gpu0"
    core, mem = (
        {float(word) for word in (gpu / f"{name}_locked_clocks_mhz").read_text().split()}
        for name in ("gpu", "memory")
    )
    assert len(core) == len(mem) == 1
    return Setting(core.pop(), mem.pop())


@contextlib.contextmanager
def _nvml_running(root: Path) -> Iterator[None]:
    # The clocks that it would run at, so that every lock moves them: a GPU with work to do.
    with fake_nvml.installed(root):
        yield


def _product(core: tuple[float | None, ...], mem: tuple[float | None, ...]) -> tuple[Setting, ...]:
    return tuple(Setting(c, m) for m in mem for c in core)


def _at_limit(root: Path) -> Setting:
    """Of the packages: their limits are the same, and their windows 2 s."""
    assert _same(root, [f"{file}_time_window_us" for file in LONG_TERM], 1e6) == 2.0
    return Setting(power_limit_w=_same(root, [f"{file}_power_limit_uw" for file in LONG_TERM], 1e6))


def _limits_w(*limits_w: float) -> tuple[Setting, ...]:
    return tuple(Setting(power_limit_w=limit_w) for limit_w in limits_w)


def amdsmi_answer(root: Path, name: str) -> dict[str, float]:
    """The numbers of an answer that the fake of AMD's package gives."""
    lines = (root / "amdsmi" / name).read_text().splitlines()
    return {key: float(value) for key, value in (line.split() for line in lines)}


def _amdsmi(root: Path) -> Setting:
    assert (root / "amdsmi/gpu0/perf_level").read_text() == "MANUAL\n"
    limits = amdsmi_answer(root, "gpu0/limits")
    assert limits["sclk_min"] == limits["sclk_max"]
    return Setting(limits["sclk_min"], limits["mclk_max"])


def _nvml_legal() -> tuple[Setting, ...]:
    gpu = TREES / "nvml-2-gpus/nvml/gpu0"
    memory = sorted(int(m) for m in (gpu / "supported_memory_clocks_mhz").read_text().split())
    return tuple(
        Setting(float(core), float(mem))
        for mem in memory
        for core in sorted(
            int(c) for c in (gpu / f"supported_graphics_clocks_mhz_{mem}").read_text().split()
        )
    )


SITE_MHZ = (800.0, 1700.0, 2650.0, 3500.0, 4000.0)
UNCORE_2S = tuple(float(mhz) for mhz in range(1200, 2401, 100))
TPMI = tuple(float(mhz) for mhz in range(1600, 2201, 100))
TPMI_COMPUTE = tuple(float(mhz) for mhz in range(800, 2201, 100))
ORIN_LEGAL = _product((306.0, 612.0, 918.0, 1300.5), (204.0, 665.6, 2133.0, 3199.0))


def _uncore_layout(
    name: str, folders: tuple[str, ...], mhz: tuple[float, ...], **more: Any
) -> ClockLayout:
    """The control of the uncore clock alone, by default on a tree with TPMI."""
    return ClockLayout(
        name=name,
        control="uncore",
        legal=_product((None,), mhz),
        shown=lambda root: Setting(None, _uncore(root, folders)),
        **{"tree": "uncore-tpmi", "device": f"{UNCORE}/uncore01"} | more,
    )


DEVICE = "sys/device"
PROGRAMS = {
    # As nvidia-smi: both clocks in one word, a reading of all, a reset without values.
    "smi": """\
case $1 in
--reset) echo 1980 > $D/core && echo 2619 > $D/mem ;;
--query) core=$(cat $D/core) && mem=$(cat $D/mem) && echo "$core, $mem" ;;
*) echo "${1#*,}" > $D/core && echo "${1%,*}" > $D/mem ;;
esac
""",
    # As geopmwrite and geopmread: a value in Hz, and one signal at a time.
    "geopm": """\
[ -d $D ] && if [ $# = 2 ]; then echo "$2" > "$D/$1"; else cat "$D/$1"; fi
""",
    # As likwid-setFrequencies: options, and a text for people.
    "likwid": """\
case $1 in
-f) echo "$2" > $D/core ;;
--umin) echo "$2" > $D/mem ;;
-p) core=$(cat $D/core) && mem=$(cat $D/mem) && echo "Current CPU frequencies:
CPU 0: governor  userspace min/cur/max 0.8/$core/2.6 GHz Turbo 0
CPU 1: governor  userspace min/cur/max 0.8/$core/2.6 GHz Turbo 0
Current Uncore frequencies:
Socket 0: min/max $mem/$mem GHz" ;;
esac
""",
    # As nvidia-smi: a limit in an option, and a text for people.
    "limit": """\
case $1 in
--power-limit=*) [ -f $D/limit ] && echo "${1#*=}" > $D/limit ;;
--query) limit=$(cat $D/limit) && echo "Current Power Limit : $limit W" ;;
esac
""",
    "profile": """
case $1 in
--profile=*) [ -f $D/profile ] && echo "${1#*=}" > $D/profile ;;
--query) profile=$(cat $D/profile) && echo "Current active profile: $profile" ;;
esac
""",
}
"""Stand-ins for the programs of sites; their device is files."""


def _profiles(*names: str) -> tuple[Setting, ...]:
    return tuple(Setting(profile=name) for name in names)


def _preference(root: Path) -> Setting:
    shown = {(root / one / "energy_performance_preference").read_text() for one in POLICIES}
    assert len(shown) == 1
    return Setting(profile=shown.pop().strip())


def _install(text: str) -> Callable[[Path], AbstractContextManager[None]]:
    @contextlib.contextmanager
    def installed(root: Path) -> Iterator[None]:
        program = root / "usr/bin/clocks"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\nset -eu\nD={root}/{DEVICE}\n{text}")
        program.chmod(0o755)
        yield

    return installed


def _command_layout(name: str, per_mhz: float, **options: Any) -> ClockLayout:
    def shown(root: Path) -> Setting:
        return Setting(
            *(round(_number(root / DEVICE / clock) / per_mhz, 6) for clock in ("core", "mem"))
        )

    return ClockLayout(
        name=f"command-{name}",
        control="command",
        tree=f"command-{name}",
        options=options,
        core_mhz=(852.0, 1410.0, 1980.0),
        mem_mhz=(1593.0, 2619.0),
        legal=_product((852.0, 1410.0, 1980.0), (1593.0, 2619.0)),
        illegal=(Setting(853.0, 1593.0), Setting(852.0, 1600.0), Setting(0.0)),
        shown=shown,
        written=(f"{DEVICE}/core", f"{DEVICE}/mem"),
        numbers=(f"{DEVICE}/core", f"{DEVICE}/mem"),
        device=DEVICE,
        no_numbers=("", "abc\n", "-5\n", "12 x\n"),
        running=_install(PROGRAMS[name]),
    )


LAYOUTS = [
    _command_layout(
        "smi",
        1.0,
        set=[["clocks", "{mem_mhz},{core_mhz}"]],
        read=[["clocks", "--query"]],
        pattern=r"^(?P<core>.*), (?P<mem>.*)$",
        restore=[["clocks", "--reset"]],
    ),
    _command_layout(
        "geopm",
        1e6,
        set=[["clocks", "core", "{core_hz}"], ["clocks", "mem", "{mem_hz}"]],
        read=[["clocks", "core"], ["clocks", "mem"]],
        unit="Hz",
        restore=[["clocks", "core", "{core_hz}"], ["clocks", "mem", "{mem_hz}"]],
    ),
    _command_layout(
        "likwid",
        1e-3,
        set=[["clocks", "-f", "{core_ghz}"], ["clocks", "--umin", "{mem_ghz}"]],
        read=[["clocks", "-p"]],
        pattern=r"^CPU \d+: .*cur/max [^/]*/(?P<core>[^/]*)/|^Socket \d+: min/max (?P<mem>[^/]*)/",
        unit="GHz",
        restore=[["clocks", "-f", "{core_ghz}"], ["clocks", "--umin", "{mem_ghz}"]],
    ),
    ClockLayout(
        name="command-power-limit",
        control="command-power-limit",
        tree="command-power-limit",
        options={
            "set": [["clocks", "--power-limit={power_limit_w}"]],
            "read": [["clocks", "--query"]],
            "pattern": r"Power Limit : (?P<limit>.*) W$",
            "restore": [["clocks", "--power-limit={power_limit_w}"]],
        },
        limits_w=(300.0, 150.0, 250.5),
        legal=_limits_w(300.0, 150.0, 250.5),
        illegal=_limits_w(250.0, 301.0),
        shown=lambda root: Setting(power_limit_w=_number(root / DEVICE / "limit")),
        written=(f"{DEVICE}/limit",),
        numbers=(f"{DEVICE}/limit",),
        device=DEVICE,
        no_numbers=("", "abc\n", "-5\n", "12 x\n"),
        running=_install(PROGRAMS["limit"]),
    ),
    ClockLayout(
        name="command-profile",
        control="command-profile",
        tree="command-profile",
        options={
            "set": [["clocks", "--profile={profile}"]],
            "read": [["clocks", "--query"]],
            "pattern": r"Current active profile: (?P<profile>.*)$",
            "restore": [["clocks", "--profile={profile}"]],
        },
        profiles=("hpc-compute", "powersave", "v1.2:x+y"),
        legal=_profiles("hpc-compute", "powersave", "v1.2:x+y"),
        illegal=_profiles("balanced", "power", "powersave "),
        shown=lambda root: Setting(profile=(root / DEVICE / "profile").read_text().strip()),
        written=(f"{DEVICE}/profile",),
        numbers=(f"{DEVICE}/profile",),
        device=DEVICE,
        no_numbers=("", "two words\n", "a/b\n", "x" * 65 + "\n"),
        running=_install(PROGRAMS["profile"]),
    ),
    ClockLayout(
        name="energy-preference",
        control="energy-preference",
        tree="energy-preference",
        profiles=("performance", "balance_power", "power", "default", "fastest"),
        legal=_profiles("performance", "balance_power", "power"),
        illegal=_profiles("default", "fastest"),
        shown=_preference,
        written=tuple(f"{policy}/energy_performance_preference" for policy in POLICIES),
        numbers=(),
        device=POLICIES[1],
    ),
    ClockLayout(
        name="cpufreq-acpi",
        control="cpufreq",
        tree="cpufreq-acpi",
        options={"cpus": "0-1"},
        legal=_product((1200.0, 1800.0, 2200.0, 2600.0), (None,)),
        illegal=(Setting(1500.0), Setting(1800.0, 1800.0), Setting(0.0)),
        shown=_userspace,
        written=tuple(
            f"{cpu}/scaling_{name}"
            for cpu in (CPU0, CPU1)
            for name in ("governor", "setspeed", "min_freq", "max_freq")
        ),
        numbers=(
            f"{CPU0}/scaling_available_frequencies",
            f"{CPU1}/scaling_min_freq",
            f"{CPU1}/cpuinfo_max_freq",
        ),
        device=CPU1,
    ),
    ClockLayout(
        name="cpufreq-intel-pstate",
        control="cpufreq",
        tree="cpufreq-intel-pstate",
        options={"cpus": "all"},
        core_mhz=SITE_MHZ,
        legal=_product(SITE_MHZ[:-1], (None,)),
        illegal=(Setting(4000.0), Setting(799.0), Setting(800.0, 1200.0)),
        shown=_limits,
        written=tuple(
            f"{cpu}/scaling_{name}_freq" for cpu in (CPU0, CPU1) for name in ("min", "max")
        ),
        numbers=(f"{CPU1}/scaling_max_freq", f"{CPU0}/cpuinfo_min_freq"),
        device=CPU1,
    ),
    ClockLayout(
        name="cpufreq-uncore-2s",
        control="cpufreq",
        tree="cpufreq-uncore-2s",
        options={"cpus": "0,1", "uncore": True},
        core_mhz=SITE_MHZ,
        mem_mhz=UNCORE_2S,
        legal=_product(SITE_MHZ[:-1], UNCORE_2S),
        illegal=(Setting(1700.0, 1250.0), Setting(1700.0, 2500.0), Setting(4000.0, 1200.0)),
        shown=lambda root: Setting(
            _limits(root).core_mhz, _uncore(root, ("package_00_die_00", "package_01_die_00"))
        ),
        written=(
            f"{CPU1}/scaling_min_freq",
            f"{UNCORE}/package_00_die_00/initial_min_freq_khz",
        ),
        numbers=(f"{UNCORE}/package_01_die_00/initial_max_freq_khz", f"{CPU0}/scaling_min_freq"),
        device=f"{UNCORE}/package_01_die_00",
    ),
    _uncore_layout(
        "uncore-2s",
        ("package_00_die_00", "package_01_die_00"),
        UNCORE_2S,
        tree="cpufreq-uncore-2s",
        illegal=(Setting(None, 1100.0), Setting(1700.0, 1200.0)),
        written=(f"{UNCORE}/package_00_die_00/initial_min_freq_khz",),
        numbers=(f"{UNCORE}/package_01_die_00/initial_max_freq_khz",),
        device=f"{UNCORE}/package_01_die_00",
    ),
    _uncore_layout(
        "uncore-tpmi",
        ("uncore00", "uncore01", "uncore02"),
        TPMI,
        illegal=(Setting(None, 1500.0), Setting(None, 2300.0)),
        written=(f"{UNCORE}/uncore02/initial_max_freq_khz",),
        numbers=(f"{UNCORE}/uncore00/initial_max_freq_khz",),
    ),
    _uncore_layout(
        "uncore-tpmi-compute",
        ("uncore00", "uncore01"),
        TPMI_COMPUTE,
        options={"domain_ids": [0, 1]},
        illegal=(Setting(None, 700.0), Setting(None, 2300.0)),
        written=(f"{UNCORE}/uncore00/initial_max_freq_khz", f"{UNCORE}/uncore02/domain_id"),
        numbers=(f"{UNCORE}/uncore01/initial_max_freq_khz",),
    ),
    ClockLayout(
        name="jetson-orin",
        control="jetson",
        tree="jetson-orin",
        legal=ORIN_LEGAL,
        illegal=(Setting(1300.0, 204.0), Setting(306.0, 1600.0), Setting(0.0)),
        shown=_orin,
        written=(
            f"{ORIN_GPU}/min_freq",
            f"{ORIN_GPU}/max_freq",
            f"{ORIN_GPU}/available_frequencies",
            f"{ORIN_EMC}/mrq_rate_locked",
            f"{ORIN_EMC}/state",
            f"{ORIN_EMC}/rate",
        ),
        numbers=(f"{ORIN_GPU}/available_frequencies", f"{ORIN_EMC}/max_rate"),
        device=ORIN_GPU,
    ),
    ClockLayout(
        name="jetson-nano",
        control="jetson",
        tree="jetson-nano",
        options={"gpu": "57000000.gpu"},
        mem_mhz=(204.0, 1600.0, 1866.0),
        legal=_product((76.8, 460.8, 921.6), (204.0, 1600.0)),
        illegal=(Setting(76.8, 1866.0), Setting(77.0, 204.0)),
        shown=_nano,
        written=(f"{NANO_GPU}/max_freq", f"{NANO_EMC}/clk_state", f"{NANO_EMC}/clk_update_rate"),
        numbers=(f"{NANO_GPU}/min_freq",),
        device=NANO_EMC,
    ),
    ClockLayout(
        name="nvml",
        control="nvml",
        tree="nvml-2-gpus",
        options={"devices": [0]},
        legal=_nvml_legal(),
        illegal=(Setting(1.0, _nvml_legal()[0].mem_mhz), Setting(None, 1.0)),
        shown=_nvml,
        written=("nvml/gpu0/supported_memory_clocks_mhz", "nvml/gpu0/clock_graphics_mhz"),
        numbers=("nvml/gpu0/clock_graphics_mhz",),
        device="nvml/gpu0",
        # NVML's numbers have no sign.
        no_numbers=("", "abc\n", "1.5\n", "12 x\n"),
        running=_nvml_running,
    ),
    ClockLayout(
        name="nvml-power-limit",
        control="nvml-power-limit",
        tree="nvml-2-gpus",
        options={"devices": [0]},
        limits_w=(700.0, 150.0, 200.0, 350.5, 701.0),
        legal=_limits_w(700.0, 200.0, 350.5),
        illegal=_limits_w(199.999, 701.0),
        shown=lambda root: Setting(power_limit_w=_number(root / NVML_LIMIT) / 1e3),
        written=(NVML_LIMIT, "nvml/gpu0/power_limits_mw"),
        numbers=(NVML_LIMIT,),
        device="nvml/gpu0",
        no_numbers=("", "abc\n", "1.5\n", "12 x\n"),
        running=_nvml_running,
    ),
    ClockLayout(
        name="amdsmi",
        control="amdsmi",
        tree="amdsmi-2-gpus",
        options={"devices": [0]},
        core_mhz=(499.0, 500.0, 1100.0, 1700.0, 1701.0),
        mem_mhz=(400.0, 1000.0, 1600.0),
        legal=tuple(Setting(c, m) for c in (500.0, 1100.0, 1700.0) for m in (400.0, 1600.0)),
        illegal=(Setting(499.0, 400.0), Setting(1701.0), Setting(500.0, 1000.0), Setting(0.0)),
        shown=_amdsmi,
        written=tuple(f"amdsmi/gpu0/{name}" for name in ("limits", "perf_level", "clocks")),
        numbers=("amdsmi/gpu0/limits",),
        device="amdsmi/gpu0",
        no_numbers=("", "abc\n", "sclk_min 1.5\n", "sclk_min N/A\nsclk_max N/A\n"),
        running=amdsmi_importable,
    ),
    ClockLayout(
        name="amdsmi-power-cap",
        control="amdsmi-power-cap",
        tree="amdsmi-2-gpus",
        options={"devices": [0]},
        limits_w=(300.0, 90.0, 100.0, 251.0, 301.0),
        legal=_limits_w(300.0, 100.0, 251.0),
        illegal=_limits_w(99.999, 301.0),
        shown=lambda root: Setting(
            power_limit_w=amdsmi_answer(root, "gpu0/power_cap")["power_cap"] / 1e6
        ),
        written=(AMDSMI_CAP,),
        numbers=(AMDSMI_CAP,),
        device="amdsmi/gpu0",
        no_numbers=("", "abc\n", "1.5\n", "power_cap N/A\n", "power_cap 0\n"),
        running=amdsmi_importable,
    ),
    ClockLayout(
        name="powercap",
        control="powercap",
        tree="powercap-limits-2s",
        options={"time_window_s": 2.0},
        limits_w=(120.0, 265.0, 85.125, 265.125, 270.0),
        legal=_limits_w(120.0, 265.0, 85.125),
        illegal=_limits_w(265.125, 300.0),
        shown=_at_limit,
        written=(
            f"{PACKAGE_0}/constraint_1_power_limit_uw",
            f"{PACKAGE_0}/enabled",
            f"{PACKAGE_1}/constraint_0_time_window_us",
        ),
        numbers=(f"{PACKAGE_1}/constraint_0_power_limit_uw", f"{PACKAGE_1}/enabled"),
        device=PACKAGE_1,
    ),
]
