"""The Dataset's contract: the names, types, units and statuses that a store writes and all read.

One row a measurement, along the dimension ``measurement``. A store's tables have these columns,
``campaign.store.dataset.open_dataset`` gives them as variables, and everything in ``analysis``
reads them by these names. Imports nothing of the project, so that any room above may use it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

    from dvfs.texts import Texts

OK = "ok"
DAMAGED = "trace damaged"
"""It was measured, and a sample of its traces can no longer be read."""
CLOCK_NOT_LEGAL = "clock not legal"
CLOCK_NOT_ACHIEVED = "clock not achieved"
METER_UNREADABLE = "meter unreadable"
KERNEL_FAILED = "kernel failed"
WRONG_RESULT = "wrong result"
TIMED_OUT = "timed out"
NODE_LOST = "node lost"
FAILURES = (
    CLOCK_NOT_LEGAL,
    CLOCK_NOT_ACHIEVED,
    METER_UNREADABLE,
    KERNEL_FAILED,
    WRONG_RESULT,
    TIMED_OUT,
    NODE_LOST,
    DAMAGED,
)
CLOCK_UNPROVEN = "clock unproven"
"""It was measured, and nothing showed at which clocks it ran."""
COMPLETE = (OK, CLOCK_UNPROVEN)
"""The statuses of a point that is done: its time and energy were measured."""
STATUSES = (OK, *FAILURES, CLOCK_UNPROVEN)
"""Everything that the variable ``status`` can say. A store keeps the index: add new ones last."""

READ_BACK = "read back"
TIMED = "timed"
STATED = "stated"
SIMULATED = "simulated"
CLOCK_PROOFS = (READ_BACK, TIMED, STATED, SIMULATED)
"""What ``clock_proof`` can say of how a measurement's clocks were shown: read from the device
inside the window; by a loop of dependent instructions that was timed right before and after each
window; by the author of an imported table without achieved clocks; on a simulated machine. It is
empty where no clock was asked for, where nothing showed one, and in rows of earlier versions."""

COUNT_PREFIX = "n_"
"""A variable ``n_<class>`` counts operations of that class in one iteration, NaN where unknown."""
PHASE_PREFIX = "phase:"
"""The channel of a trace that marks a phase of a kernel; the phase's name follows."""

COUNTERS = "counters"
"""The key of a measurement's provenance that has its hardware counters: see
:mod:`analysis.measurements.hardware_counters`."""
ESTIMATED = "estimated"
"""The key of a measurement's provenance that says why its energy is an estimate; without it the
energy was measured."""
METRICS = "metrics"
"""The key of a measurement's provenance that has further numbers about its kernel's variant, by
name: those of :attr:`kernels.kernel.Kernel.metrics`."""
RECORDED_PREFIX = "recorded/"
"""How a channel of the meter ``recorded`` begins, after the names of node and meter: its energies
are replayed from a file."""

CLASS_UNITS = {
    "sp": "flop",
    "dp": "flop",
    "half": "flop",
    "sfu": "op",
    "tc_dp": "flop",
    "tc_half": "flop",
    "tc_fp8": "flop",
    "int": "op",
    "sp_add": "op",
    "sp_mul": "op",
    "dp_add": "op",
    "dp_mul": "op",
    "int_add": "op",
    "int_max": "op",
    "shared": "byte",
    "l1": "byte",
    "l2": "byte",
    "l3": "byte",
    "dram": "byte",
    "mem": "byte",
    "stall": "cycle",
    "barrier": "op",
    "launch": "op",
}
"""The unit in which each class of operations is counted. A byte is counted once, at the level
that served it. Any other class, a user's own, is counted in operations: see :func:`class_unit`."""
MEMORY_CLASSES = ("dram", "mem")
"""Classes in the memory domain unless the site file or the map file says otherwise; every other
class is in the core domain."""

FAILURE_TEXT_COLUMNS = (
    "point_id",
    "site",
    "partition",
    "kernel",
    "params",
    "node",
    "status",
    "text",
    "profile",
)
TEXT_COLUMNS = (
    *FAILURE_TEXT_COLUMNS,
    "voltage_origin",
    "clock_proof",
    "setup",
    "meters",
    "provenance",
)
INTEGER_COLUMNS = ("repeat", "ranks", "iterations", "attempt")
BOOLEAN_COLUMNS = ("simulated", "imported")
COLUMN_UNITS = {
    "core_mhz": "MHz",
    "mem_mhz": "MHz",
    "uncore_mhz": "MHz",
    "power_limit_w": "W",
    "time_s": "s",
    "energy_j": "J",
    "energy_std_j": "J",
    "core_mhz_achieved": "MHz",
    "mem_mhz_achieved": "MHz",
    "core_mhz_timed": "MHz",
    "core_v": "V",
    "mem_v": "V",
    "start_unix_s": "s",
}
"""The columns of numbers (float64; NaN is missing) other than counts, with their units."""
POSSIBLE = {
    "core_mhz": (10.0, 1e4, "MHz"),
    "mem_mhz": (10.0, 3e4, "MHz"),
    "uncore_mhz": (10.0, 1e4, "MHz"),
    "power_limit_w": (0.1, 1e5, "W"),
    "core_mhz_achieved": (0.01, 1e4, "MHz"),
    "mem_mhz_achieved": (0.01, 3e4, "MHz"),
    "core_mhz_timed": (0.01, 1e5, "MHz"),
    "core_v": (0.2, 5.0, "V"),
    "mem_v": (0.2, 5.0, "V"),
    "time_s": (1e-12, 1e9, "s"),
    "energy_j": (1e-18, 1e15, "J"),
    "energy_std_j": (0.0, 1e15, "J"),
    "power_w": (1e-9, 1e9, "W"),
    "start_unix_s": (0.0, 1e11, "s"),
}
"""Column -> the least and the largest value that a device can have, and their unit. Built-in
sites begin at 68 MHz, and no processor has run at 10 GHz; makers give the data rate of GDDR7, up
to 28,000 MT/s, as a memory clock. Relative voltages, 1 at the highest clock, are possible too. A
clock that was read may be that of an idle device, and a timed one is as wrong as its loop. Light
crosses 0.3 mm in 1e-12 s, and 1e9 s are 30 years; 1e-18 J switch a few transistors, and 1e15 J are
what a machine of 30 MW uses in a year; 1e11 s after 1970 is the year 5138."""
POSSIBLE_COUNT = (0.0, 1e28)
"""Of a count of operations: a machine of 1e19 operations a second makes 1e28 in 30 years."""
MEASUREMENT_COLUMNS = (*TEXT_COLUMNS, *COLUMN_UNITS, *INTEGER_COLUMNS, *BOOLEAN_COLUMNS)
"""``setup`` is the id of the record of how the measurement was made, in ``setups/ID.json`` of the
store; ``core_mhz_timed`` is the core clock that the timed loop gives, NaN where it was not run. A
store that an earlier version wrote has no such columns: they are read as their missing value."""

TRACE_TEXT_COLUMNS = ("channel", "domain", "unit")
TRACE_INTEGER_COLUMNS = ("measurement", "row_start", "row_size")
TRACE_COLUMNS = (*TRACE_TEXT_COLUMNS, *TRACE_INTEGER_COLUMNS)
"""Of a trace, one channel of one measurement. In the Dataset each name begins with ``trace_``,
but for ``row_start`` and ``row_size``: the trace's samples are those from ``row_start`` to
``row_start + row_size`` along the dimension ``sample``."""

LONG_NAMES = {
    "point_id": "hash of what was measured",
    "site": "site",
    "partition": "partition of the site",
    "kernel": "kernel",
    "params": "parameters of the kernel, JSON",
    "node": "node that measured",
    "status": "how the measurement ended",
    "text": "text of a failure",
    "voltage_origin": "where the voltages are from",
    "clock_proof": "how the clocks were shown",
    "setup": "record of how it was measured",
    "meters": "properties and energy of each channel, JSON",
    "provenance": "further facts, JSON",
    "core_mhz": "core clock asked for",
    "mem_mhz": "memory clock asked for",
    "uncore_mhz": "uncore clock asked for",
    "profile": "profile asked for",
    "power_limit_w": "power limit asked for",
    "time_s": "time of an iteration",
    "energy_j": "energy of an iteration",
    "energy_std_j": "standard uncertainty of the energy",
    "core_mhz_achieved": "core clock read back",
    "mem_mhz_achieved": "memory or uncore clock read back",
    "core_mhz_timed": "core clock by a timed loop",
    "core_v": "core voltage",
    "mem_v": "memory voltage",
    "start_unix_s": "begin, since 1970-01-01 UTC",
    "repeat": "number of the repeat",
    "ranks": "MPI ranks on each node",
    "iterations": "iterations of the kernel in the windows",
    "attempt": "number of the attempt",
    "simulated": "whether the machine is simulated",
    "imported": "whether it comes from a table",
    "channel": "channel of a meter",
    "domain": "part of the node that the channel measures",
    "unit": "unit of the channel's values",
    "measurement": "row of the trace's measurement",
    "row_start": "the trace's first sample",
    "row_size": "samples of the trace",
}
"""The long names (CF conventions) of the columns of measurements and traces."""


@dataclass(frozen=True)
class Columns(Mapping[str, "np.ndarray"]):
    """The variables of a Dataset along ``measurement``, and its attributes, in memory. What is no
    array becomes one by ``numpy.asarray``.

    What needs no more than these takes them in place of the Dataset: xarray with pandas takes
    longer to import than such a question to answer.
    """

    arrays: Mapping[str, Any]
    attrs: Mapping[str, Any]
    _texts: dict[str, Texts] = field(default_factory=dict, repr=False, compare=False)

    def __getitem__(self, name: str) -> Any:
        return self.arrays[name]

    def __contains__(self, name: object) -> bool:
        return name in self.arrays  # without reading it

    def replaced(self, name: str, values: np.ndarray) -> Columns:
        """The same with another array of a variable."""
        return Columns(ChainMap({name: values}, self.arrays), self.attrs)  # type: ignore[arg-type]

    def texts(self, name: str) -> Texts:
        """A variable of texts, each distinct one once."""
        from dvfs.texts import Texts  # noqa: PLC0415

        if name not in self._texts:
            self._texts[name] = Texts.of(self[name])
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)


def texts_of(dataset: xr.Dataset | Columns, name: str) -> Texts:
    """A variable of texts, each distinct one once."""
    from dvfs.texts import Texts  # noqa: PLC0415

    return dataset.texts(name) if isinstance(dataset, Columns) else Texts.of(dataset[name].values)


def complete_rows(dataset: xr.Dataset | Columns, site: str) -> np.ndarray:
    """bool (measurement,): the rows of a site whose points are done."""
    of_site, status = texts_of(dataset, "site"), texts_of(dataset, "status")
    complete: np.ndarray = of_site.array(bool, [name == site for name in of_site.values])
    complete = complete & status.array(bool, [*map(is_complete, status.values)])
    return complete


def is_complete(status: Any) -> Any:
    """Whether a point of this status is done; of an array, elementwise (bool)."""
    return (status == OK) | (status == CLOCK_UNPROVEN)


def is_float_column(name: str) -> bool:
    """Whether a column holds numbers of which some may be missing (NaN)."""
    return name in COLUMN_UNITS or name.startswith(COUNT_PREFIX)


def class_unit(name: str) -> str:
    """The unit in which a class of operations is counted: flop, byte, cycle or op."""
    return CLASS_UNITS.get(name, "op")


def moves_data(name: str) -> bool:
    """Whether a class counts bytes, not operations that compute."""
    return class_unit(name) == "byte"
