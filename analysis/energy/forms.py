"""The forms that a model can take, from the simplest on.

A form is the terms (choi or choi+clock) and where the voltage comes from. ``--model auto --voltage
auto`` chooses among them.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.energy.models import (
    AUTO,
    ESTIMATED,
    MODEL_NAMES,
    MODELS,
    VOLTAGE_NAMES,
)
from analysis.measurements.observations import FitError, Observations
from dvfs.names import unknown_name


@dataclass(frozen=True)
class Form:
    """``model``: a name in :data:`~analysis.energy.models.MODELS`; ``voltage``: known, unit or a
    family that is estimated."""

    model: str
    voltage: str


def forms(data: Observations, model: str, voltage: str) -> list[Form]:
    """The forms that two names leave open, the simplest first.

    Where voltages are known they are taken; where none is, V = 1 comes before the families
    that are estimated.

    Raises:
        FitError: an unknown name.
    """
    if model not in MODEL_NAMES:
        raise FitError(unknown_name("model", model, MODEL_NAMES))
    if voltage not in VOLTAGE_NAMES:
        raise FitError(unknown_name("voltage", voltage, VOLTAGE_NAMES))
    if voltage == "known" and data.voltage == "unit":
        raise FitError(
            f"no voltage of {data.site} is known; give the site's table, or --voltage auto"
        )
    if voltage != AUTO:
        voltages: tuple[str, ...] = (voltage,)
    elif data.voltage == "unit":
        voltages = ("unit", *ESTIMATED)
    else:
        voltages = ("known",)
    models = tuple(MODELS) if model == AUTO else (model,)
    return [Form(one, v) for one in models for v in voltages]
