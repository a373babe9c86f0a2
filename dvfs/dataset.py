"""The Dataset's contract: the names, types, units and statuses of a measurement's columns.

A row is a measurement, along the dimension ``measurement``. The tables of a store have these
columns, ``campaign.store.dataset.open_dataset`` returns them as variables, and ``analysis`` reads
them by these names. Every package may import this module: it imports none of them.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from dvfs.kernel_instance import KernelInstance
    from dvfs.texts import Texts

OK = "ok"
DAMAGED = "trace damaged"
"""The point was measured, but samples of its traces can no longer be read."""
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
"""The point was measured, but nothing showed at which clocks it ran."""
COMPLETE = (OK, CLOCK_UNPROVEN)
"""The statuses of a point that is done: its time and energy were measured."""
STATUSES = (OK, *FAILURES, CLOCK_UNPROVEN)
"""All values of the variable ``status``. A store holds their indices: append new ones."""

READ_BACK = "read back"
TIMED = "timed"
STATED = "stated"
SIMULATED = "simulated"
CLOCK_PROOFS = (READ_BACK, TIMED, STATED, SIMULATED)
"""The values of ``clock_proof``, how a measurement's clocks were proven: read from the device
inside the window; by a loop of dependent instructions, timed right before and after each window;
stated by the author of an imported table without achieved clocks; set on a simulated machine. The
text is empty if no clock was requested or proven, and in rows of earlier versions."""

COUNT_PREFIX = "n_"
"""The variable ``n_<class>`` counts that class's operations in an iteration; NaN if unknown."""
PHASE_PREFIX = "phase:"
"""The prefix of a trace channel that marks a phase of a kernel, before the phase's name."""

COUNTERS = "counters"
"""The provenance key of a measurement's hardware counters: see
:mod:`analysis.measurements.hardware_counters`."""
ESTIMATED = "estimated"
"""The provenance key of the reason why an energy is an estimate; measured energies have none."""
METRICS = "metrics"
"""The provenance key of further numbers about the kernel's variant, by name:
:attr:`kernels.kernel.Kernel.metrics`."""
RECORDED_PREFIX = "recorded/"
"""The prefix of the channels of the meter ``recorded``, which replays energies from a file."""

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
"""The unit of each class of operations. A byte is counted once, at the level that served it. The
unit of a class that a user adds is ``op``: see :func:`class_unit`."""
MEMORY_CLASSES = ("dram", "mem")
"""The classes whose default domain is the memory; that of all others is the core. A site file or a
map file may say otherwise."""

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
INTEGER_COLUMNS = ("repeat", "ranks", "iterations", "attempt", "table_line")
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
"""The numeric columns (float64; NaN is missing) other than counts, and their units."""
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
"""Column -> the least and the greatest physically possible value, and their unit.

Built-in sites start at 68 MHz, and no processor has run at 10 GHz; vendors state the data rate of
GDDR7, up to 28,000 MT/s, as a memory clock. Voltages may be relative, 1 at the highest clock. An
achieved clock may be an idle device's, and a timed one is as wrong as its loop. Light travels
0.3 mm in 1e-12 s, and 1e9 s are 30 years; 1e-18 J switch a few transistors, and a machine of 30 MW
uses 1e15 J in a year; 1e11 s after 1970 is the year 5138."""
POSSIBLE_COUNT = (0.0, 1e28)
"""The same of a count: a machine of 1e19 operations/s executes 1e28 in 30 years."""
MEASUREMENT_COLUMNS = (*TEXT_COLUMNS, *COLUMN_UNITS, *INTEGER_COLUMNS, *BOOLEAN_COLUMNS)
"""``setup`` is the id of ``setups/ID.json`` in the store, which records how the measurement was
made; ``core_mhz_timed`` is the core clock by the timed loop, NaN if it did not run. Columns that a
store of an earlier version lacks are read as their missing value."""

TRACE_TEXT_COLUMNS = ("channel", "domain", "unit")
TRACE_INTEGER_COLUMNS = ("measurement", "row_start", "row_size")
TRACE_COLUMNS = (*TRACE_TEXT_COLUMNS, *TRACE_INTEGER_COLUMNS)
"""The columns of traces; a trace is one channel of one measurement. In the Dataset their names
have the prefix ``trace_``, except ``row_start`` and ``row_size``: the samples of a trace are
``row_start`` to ``row_start + row_size`` along the dimension ``sample``."""

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
    "table_line": "line of the imported table, 0 if there is none",
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
    """The columns of a store's measurements and its attributes, without xarray, whose import takes
    longer than most questions: all :data:`MEASUREMENT_COLUMNS`, the counts, and with traces their
    columns. ``arrays``: objects that ``numpy.asarray`` accepts. Of ``time_ns`` and ``value`` take
    slices there, since a column is read whole.
    """

    arrays: Mapping[str, Any]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    _texts: dict[str, Texts] = field(default_factory=dict, repr=False, compare=False)

    def __getitem__(self, name: str) -> np.ndarray:
        import numpy as np  # noqa: PLC0415

        return np.asarray(self.arrays[name])

    def __contains__(self, name: object) -> bool:
        return name in self.arrays  # without reading it

    def replaced(self, arrays: Mapping[str, Any]) -> Columns:
        """A copy in which some variables have other values."""
        return Columns(ChainMap(dict(arrays), self.arrays), self.attrs)  # type: ignore[arg-type]

    def texts(self, name: str) -> Texts:
        """A variable of texts, which holds each distinct text once."""
        from dvfs.texts import Texts  # noqa: PLC0415

        if name not in self._texts:
            self._texts[name] = Texts.of(self.arrays[name])
        return self._texts[name]

    @cached_property
    def kernels(self) -> tuple[list[KernelInstance], np.ndarray]:
        """The distinct kernels, sorted by label, and each row's index into them, int64 (rows,)."""
        import numpy as np  # noqa: PLC0415

        pairs, pair_indices = self._pairs
        instances = self.kernels_by_pair
        by_label = {instance.label: instance for instance in instances.values()}
        index = {label: i for i, label in enumerate(sorted(by_label))}
        index_of_pair = np.array([index[instances[pair].label] for pair in pairs], np.int64)
        return [by_label[label] for label in index], index_of_pair[pair_indices]

    @cached_property
    def kernels_by_pair(self) -> dict[tuple[str, str], KernelInstance]:
        """The instance of each (kernel, params)."""
        from dvfs.kernel_instance import kernel_instances  # noqa: PLC0415

        return kernel_instances(self._pairs[0])

    @cached_property
    def _pairs(self) -> tuple[list[tuple[str, str]], np.ndarray]:
        """The distinct (kernel, params), and the index of each row's pair, int64 (rows,)."""
        from dvfs.groups import Groups  # noqa: PLC0415
        from dvfs.texts import group_codes  # noqa: PLC0415

        kernel, params = self.texts("kernel"), self.texts("params")
        groups = Groups(group_codes([kernel, params]))
        return [(kernel[i], params[i]) for i in groups.firsts.tolist()], groups.numbers()

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)


def count_columns(columns: Columns) -> dict[str, str]:
    """Class of operations -> the variable that has its counts, sorted."""
    names = sorted(name for name in map(str, columns) if name.startswith(COUNT_PREFIX))
    return {name.removeprefix(COUNT_PREFIX): name for name in names}


def complete_rows(columns: Columns, site: str) -> np.ndarray:
    """bool (measurement,): the rows of a site whose points are done."""
    sites, statuses = columns.texts("site"), columns.texts("status")
    at_site = sites.array(bool, [name == site for name in sites.values])
    is_done: np.ndarray = statuses.array(bool, [*map(is_complete, statuses.values)])
    complete: np.ndarray = at_site & is_done
    return complete


def is_complete(status: Any) -> Any:
    """Whether a point of this status is done; elementwise (bool) for an array."""
    return (status == OK) | (status == CLOCK_UNPROVEN)


def is_float_column(name: str) -> bool:
    """Whether a column holds float64 numbers, in which NaN is missing."""
    return name in COLUMN_UNITS or name.startswith(COUNT_PREFIX)


def class_unit(name: str) -> str:
    """The unit of a class of operations: flop, byte, cycle or op."""
    return CLASS_UNITS.get(name, "op")


def moves_data(name: str) -> bool:
    """Whether a class counts bytes."""
    return class_unit(name) == "byte"
