"""The energy preference of CPUs (EPP) as a profile, through Linux's cpufreq.

Format: the kernel's Documentation/admin-guide/pm/intel_pstate.rst and amd-pstate.rst beside it. The
files ``energy_performance_preference`` of all policies are written; their values are listed in
``energy_performance_available_preferences``. ``default`` is no profile: the file then shows the
preference that the driver took for it. Under the governor ``performance`` drivers refuse every
other preference.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from dvfs.setting import Setting
from sites.clocks.shared.control import (
    ClocksError,
    ClockState,
    ControlDescription,
    IllegalClockError,
    ProfilesEntry,
)
from sites.clocks.shared.journal import Journal, log_left_over
from sites.clocks.shared.kernel_files import CPUS, optional_text, read_text, right_to_write
from sites.clocks.shared.written_files import File, WrittenFiles, put_back_entries

ABOUT = ControlDescription(
    control="energy-preference",
    writes="for [profiles]: the energy preference (EPP) of all CPUs",
    needs="root, or write access",
    device="cpu",
    axis="profile",
    sets_clocks=False,
)

PREFERENCE = "energy_performance_preference"
FOLDERS = f"{CPUS}/cpufreq/policy[0-9]*"
WRITES = (rf"{CPUS}/cpufreq/policy\d+/{PREFERENCE}",)
rights = partial(right_to_write, ABOUT.control, pattern=f"{FOLDERS}/{PREFERENCE}")
put_back = partial(put_back_entries, writes=WRITES)
ABSENT = "it needs intel_pstate or amd-pstate in active mode; virtual machines rarely have it"


class EnergyPreference:
    """Sets the energy preference of every policy."""

    def __init__(self, root: Path, folders: Sequence[str], names: Sequence[str]) -> None:
        self.root = root
        self.names = names
        self.paths = [f"{folder}/{PREFERENCE}" for folder in folders]
        self.offered = [
            read_text(root, f"{folder}/energy_performance_available_preferences", ABSENT).split()
            for folder in folders
        ]
        self.files = WrittenFiles(root, Journal(root, ABOUT.control), ABSENT)

    def legal(self) -> list[Setting]:
        return [Setting(profile=name) for name in self.names if self._is_offered(name)]

    def _is_offered(self, name: str) -> bool:
        return name != "default" and all(name in offered for offered in self.offered)

    def set(self, setting: Setting) -> None:
        name = setting.profile
        if name is not None and not self._is_offered(name):
            offered = ", ".join(name for name in self.offered[0] if self._is_offered(name))
            raise IllegalClockError(f"profile {name}: this processor offers {offered}")
        self.files.write([] if name is None else [File(path, f"{name}\n") for path in self.paths])

    def state(self) -> ClockState:
        shown = sorted({read_text(self.root, path, ABSENT).strip() for path in self.paths})
        return ClockState(Setting(profile=", ".join(shown) or None))

    def restore(self) -> None:
        self.files.restore()


def in_force(root: Path) -> str:
    """The energy preferences of all CPUs; empty where there are none or they cannot be read."""
    folders = sorted(path.relative_to(root) for path in root.glob(FOLDERS))
    shown = {optional_text(root, f"{folder}/{PREFERENCE}") for folder in folders}
    return ", ".join(sorted(shown - {""}))


def open_control(profiles: ProfilesEntry, root: Path) -> EnergyPreference:
    """See :mod:`sites.clocks`.

    Raises:
        ClocksError: a CPU has no energy preference.
    """
    log_left_over(root)
    folders = sorted(str(path.relative_to(root)) for path in root.glob(FOLDERS))
    if not folders:
        raise ClocksError(f"{root / CPUS}/cpufreq has no policy", ABSENT)
    return EnergyPreference(root, folders, profiles.names)
