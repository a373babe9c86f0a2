"""The forms that a model can take, from the simplest on.

A form is the terms (choi or choi+clock), where the voltage comes from, and whether the smooth
surface of the residuals is added. ``--model auto --voltage auto`` chooses among them.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.energy.models import (
    AUTO,
    ESTIMATED,
    MODEL_NAMES,
    MODELS,
    SURFACE,
    VOLTAGE_NAMES,
)
from analysis.measurements.observations import CantFit, Observations
from analysis.unknown_name import unknown_name


@dataclass(frozen=True)
class Form:
    """``terms``: a name in :data:`~analysis.energy.models.MODELS`; ``voltage``: known, unit or a
    family that is estimated."""

    terms: str
    voltage: str
    surface: bool

    @property
    def model(self) -> str:
        """The form's name without its voltage: ``choi+clock+surface``."""
        return self.terms + SURFACE * self.surface


def forms(data: Observations, model: str, voltage: str) -> tuple[list[Form], tuple[bool, ...]]:
    """The forms without surface that two names leave open, the simplest first; and whether a
    surface is to be added: (False,), (True,) or, where that is open, (False, True).

    Where voltages are known they are taken; where none is, V = 1 comes before the families
    that are estimated.

    Raises:
        CantFit: an unknown name.
    """
    if model not in MODEL_NAMES:
        raise CantFit(unknown_name("model", model, MODEL_NAMES))
    if voltage not in VOLTAGE_NAMES:
        raise CantFit(unknown_name("voltage", voltage, VOLTAGE_NAMES))
    if voltage == "known" and data.voltage == "unit":
        raise CantFit(
            f"no voltage of {data.site} is known; give the site's table, or --voltage auto"
        )
    if voltage != AUTO:
        voltages: tuple[str, ...] = (voltage,)
    elif data.voltage == "unit":
        voltages = ("unit", *ESTIMATED)
    else:
        voltages = ("known",)
    term_lists = tuple(MODELS) if model == AUTO else (model.removesuffix(SURFACE),)
    surfaces = (False, True) if model == AUTO else (model.endswith(SURFACE),)
    return [Form(terms, v, False) for terms in term_lists for v in voltages], surfaces
