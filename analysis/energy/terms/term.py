"""What every kind of term answers for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy import sparse

from analysis.measurements.observations import Observations

CORE, MEM = "core", "mem"
DOMAIN_NAMES = {CORE: "core", MEM: "memory"}
CONSTANT = "constant"
COMPUTATION, DATA = "computation", "data"


@dataclass(frozen=True)
class Varying:
    """Domain -> whether its voltage, and whether its clock, varies over the rows of a fit."""

    volts: Mapping[str, bool]
    mhz: Mapping[str, bool]


@dataclass(frozen=True)
class OperatingPoint:
    """One setting: clocks in MHz and voltages in V."""

    core_mhz: float
    mem_mhz: float
    core_v: float
    mem_v: float


def volts(at: Observations | OperatingPoint, domain: str) -> Any:
    """A domain's voltages, V: of each row, or of the setting."""
    return at.core_v if domain == CORE else at.mem_v


def clock_mhz(at: Observations | OperatingPoint, domain: str) -> Any:
    """A domain's clock, MHz: of each row, or of the setting; NaN where there is none."""
    return at.core_mhz if domain == CORE else at.mem_mhz


@dataclass(frozen=True)
class Term(ABC):
    """One coefficient of the model, with all that the program must know of it.

    ``domain``: core or mem; empty where the term belongs to neither. ``of``: the class of
    operations or the label of the kernel that it is paid for; empty where it is paid by time.
    """

    domain: str = ""
    of: str = ""

    kind: ClassVar[str]
    """The key in the registry and in a fit's JSON."""
    pays_for: ClassVar[Literal["operation", "kernel", "time"]]
    """What its joules grow with: operations of a class, runs of one kernel, or run time."""
    volt_power: ClassVar[int]
    """The power of its domain's voltage that the coefficient is multiplied with."""
    domains: ClassVar[tuple[str, ...]] = (CORE, MEM)
    """The values of ``domain`` that a term of this kind can have."""

    @classmethod
    @abstractmethod
    def terms_for(
        cls, data: Observations, varying: Varying
    ) -> tuple[Sequence[Self], list[dict[str, str]]]:
        """The terms of this kind that the rows can have, and those left out: name and why."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The coefficient's name."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """The coefficient's unit, with what it is paid for: ``pJ/V^2 per flop``."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What the coefficient is, in words, as a report explains it."""

    @abstractmethod
    def column(self, data: Observations) -> np.ndarray:
        """float64 (rows,): joules that one unit of the coefficient adds to each row."""

    @classmethod
    def columns(cls, data: Observations, terms: Sequence[Self]) -> sparse.coo_array:
        """The columns of several terms of this kind: float64 (rows, terms)."""
        return sparse.coo_array(np.column_stack([term.column(data) for term in terms]))

    @abstractmethod
    def cost(self, at: OperatingPoint) -> float:
        """What one unit of the coefficient costs at a setting.

        pJ of one operation, J of one run of the kernel, or W of run time, as ``pays_for`` says.
        """

    @property
    def measure_to_separate(self) -> str:
        """What to measure where this term cannot be separated from others; empty: no advice."""
        return ""

    @property
    def part(self) -> str:
        """Its group where energy is shown by what it is spent on."""
        return CONSTANT

    @property
    def domain_part(self) -> str:
        """Its group where energy is shown by domain: core, memory or constant."""
        return CONSTANT if self.pays_for == "time" else DOMAIN_NAMES[self.domain]

    @property
    def nature(self) -> str:
        """Its group where energy is shown as computation, data and constant power."""
        return CONSTANT

    @property
    def core_power(self) -> int:
        """The power of the core's voltage that it is multiplied with."""
        return self.volt_power if self.domain == CORE else 0

    @property
    def mem_power(self) -> int:
        """The power of the memory's voltage that it is multiplied with."""
        return self.volt_power if self.domain == MEM else 0

    def as_dict(self) -> dict[str, str]:
        """The term in a fit's JSON; :func:`analysis.energy.terms.registry.term_of` reads it."""
        return {"name": self.name, "kind": self.kind, "domain": self.domain, "of": self.of}


def where_it_varies(
    terms: Sequence[Term], varies: Mapping[str, bool], what: str
) -> tuple[list[Any], list[dict[str, str]]]:
    """Of a term for each domain, those whose domain varies; why the others are left out."""
    kept = [term for term in terms if varies[term.domain]]
    dropped = [
        {
            "name": term.name,
            "why": f"the {DOMAIN_NAMES[term.domain]} {what} is the same in every row: "
            f"merged into p_misc",
        }
        for term in terms
        if not varies[term.domain]
    ]
    return kept, dropped


def more_clocks(domain: str) -> str:
    """The measurements that separate a domain's terms of time."""
    return f"more {DOMAIN_NAMES[domain]} clocks, at voltages that differ more"
