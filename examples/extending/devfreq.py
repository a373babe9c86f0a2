"""One device of Linux's devfreq: both of its limits, as core clock."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from dvfs.setting import Setting
from sites.clocks.shared.control import (
    ClockState,
    ControlDescription,
    ControlledSite,
    IllegalClockError,
)
from sites.clocks.shared.journal import Journal, log_left_over
from sites.clocks.shared.kernel_files import optional_number, read_text, right_to_write
from sites.clocks.shared.written_files import Limits, WrittenFiles, put_back_entries

ABOUT = ControlDescription(
    control="devfreq",
    writes="both limits of one device in /sys/class/devfreq, as core clock",
    needs="root, or write access to the files",
    options={"device": "the device's folder, such as 17000000.gpu"},
)
FOLDER = "sys/class/devfreq"
ABSENT = "list the devices with `ls /sys/class/devfreq`, and name one in the option device"


class Devfreq:
    """The clock of one device."""

    def __init__(self, root: Path, device: str) -> None:
        self.root, self.folder = root, f"{FOLDER}/{device}"
        self.files = WrittenFiles(root, Journal(root, "devfreq"), ABSENT)

    def legal(self) -> list[Setting]:
        text = read_text(self.root, f"{self.folder}/available_frequencies", ABSENT)
        return [Setting(float(hz) / 1e6) for hz in text.split()]

    def set(self, setting: Setting) -> None:
        if setting not in self.legal():
            raise IllegalClockError(f"{setting}: {self.folder} offers other clocks")
        hz = f"{round((setting.core_mhz or 0) * 1e6)}\n"
        low, high = f"{self.folder}/min_freq", f"{self.folder}/max_freq"
        self.files.write([Limits(low, high, hz, hz)])

    def state(self) -> ClockState:
        hz = optional_number(self.root, f"{self.folder}/cur_freq")
        return ClockState(Setting(None if hz is None else hz / 1e6))

    def restore(self) -> None:
        self.files.restore()


def open_control(site: ControlledSite, root: Path) -> Devfreq:
    """See :mod:`sites.clocks`."""
    log_left_over(root)
    return Devfreq(root, str(site.clocks.options["device"]))


# Whether this user may write the limits; and what restores them after a killed process.
rights = partial(right_to_write, "devfreq", pattern=f"{FOLDER}/*/max_freq")
put_back = partial(put_back_entries, writes=(rf"{FOLDER}/[^/]+/(min|max)_freq",))
