"""The interface of every kind of term."""

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
    """Domain -> whether its voltage and its clock vary over the rows of a fit."""

    volts: Mapping[str, bool]
    mhz: Mapping[str, bool]


@dataclass(frozen=True)
class OperatingPoint:
    """One setting: clocks in MHz and voltages in V."""

    core_mhz: float
    mem_mhz: float
    core_v: float
    mem_v: float


def volts(source: Observations | OperatingPoint, domain: str) -> Any:
    """Return a domain's voltages, V: of each row, or of the setting."""
    return source.core_v if domain == CORE else source.mem_v


def clock_mhz(source: Observations | OperatingPoint, domain: str) -> Any:
    """Return a domain's clocks, MHz: of each row, or of the setting; NaN where there is none."""
    return source.core_mhz if domain == CORE else source.mem_mhz


@dataclass(frozen=True)
class Term(ABC):
    """One coefficient of the model.

    ``domain``: core or mem; empty where the term belongs to neither. ``of``: the class of
    operations or the label of the kernel that the term is for; empty for a term of time.
    """

    domain: str = ""
    of: str = ""

    kind: ClassVar[str]
    """The key in the registry and in a fit's JSON."""
    pays_for: ClassVar[Literal["operation", "kernel", "time"]]
    """What its joules are proportional to: operations of a class, runs of a kernel, or run time."""
    volt_power: ClassVar[int]
    """The exponent of its domain's voltage."""
    domains: ClassVar[tuple[str, ...]] = (CORE, MEM)
    """The possible values of ``domain``."""

    @classmethod
    @abstractmethod
    def terms_for(
        cls, data: Observations, varying: Varying
    ) -> tuple[Sequence[Self], list[dict[str, str]]]:
        """Return the terms of this kind for these rows, and those left out: name and why."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The coefficient's name."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """The coefficient's unit, such as ``pJ/V^2 per flop``."""

    @property
    @abstractmethod
    def title(self) -> str:
        """The coefficient in words, for reports."""

    @abstractmethod
    def column(self, data: Observations) -> np.ndarray:
        """Return float64 (rows,): joules that one unit of the coefficient adds to each row."""

    @classmethod
    def columns(cls, data: Observations, terms: Sequence[Self]) -> sparse.coo_array:
        """Return the columns of several terms of this kind: float64 (rows, terms)."""
        return sparse.coo_array(np.column_stack([term.column(data) for term in terms]))

    @abstractmethod
    def cost(self, point: OperatingPoint) -> float:
        """Return the cost of one unit of the coefficient at a setting.

        pJ of one operation, J of one run of the kernel, or W of run time, as ``pays_for`` says.
        """

    @property
    def measure_to_separate(self) -> str:
        """What to measure to separate this term from others; empty: no advice."""
        return ""

    @property
    def part(self) -> str:
        """Its group in a breakdown by class of operations."""
        return CONSTANT

    @property
    def nature(self) -> str:
        """Its group in a breakdown by computation, data and constant power."""
        return CONSTANT

    @property
    def core_power(self) -> int:
        """The exponent of the core's voltage."""
        return self.volt_power if self.domain == CORE else 0

    @property
    def mem_power(self) -> int:
        """The exponent of the memory's voltage."""
        return self.volt_power if self.domain == MEM else 0

    def as_dict(self) -> dict[str, str]:
        """Return the term for a fit's JSON; :func:`analysis.energy.terms.registry.term_of` reads
        it."""
        return {"name": self.name, "kind": self.kind, "domain": self.domain, "of": self.of}


def where_it_varies(
    terms: Sequence[Term], varies: Mapping[str, bool], quantity: str
) -> tuple[list[Any], list[dict[str, str]]]:
    """Return the terms whose domain's ``quantity`` varies, and why the others are left out."""
    varying = [term for term in terms if varies[term.domain]]
    dropped = [
        {
            "name": term.name,
            "why": f"the {DOMAIN_NAMES[term.domain]} {quantity} is the same in every row: "
            f"merged into p_misc",
        }
        for term in terms
        if not varies[term.domain]
    ]
    return varying, dropped


def more_clocks(domain: str) -> str:
    """Return in words the measurements that separate a domain's terms of time."""
    return f"more {DOMAIN_NAMES[domain]} clocks, at voltages that differ more"
