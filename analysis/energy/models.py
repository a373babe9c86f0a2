"""The energy models by name: their kinds of terms, and the possible origins of voltages.

Imports nothing heavy, so that the command line lists the names quickly.
"""

from __future__ import annotations

from dataclasses import dataclass

AUTO = "auto"

MODELS = {
    "choi": ("class", "lumped", "leak", "misc"),
    "choi+clock": ("class", "lumped", "leak", "misc", "clock"),
}
"""Model -> its kinds of terms (see :mod:`analysis.energy.terms.registry`), the simpler first."""
MODEL_NAMES = (AUTO, *MODELS)
MODEL_HELP = (
    "choi: eq. 9 of Choi & Vuduc 2016; choi+clock: with the clock-tree terms; auto: chosen by "
    "cross-validation"
)

ESTIMATED = ("floor", "free")
"""The families of voltage curves that are estimated, the simpler first."""
NOT_KNOWN = ("unit", *ESTIMATED)
"""Voltages of forms that are neither measured nor from a table. All others are known: ``table``,
``measured``, or ``measured+table`` where rows differ in this."""
VOLTAGE_NAMES = (AUTO, "known", "unit", *ESTIMATED)
VOLTAGE_HELP = (
    "known: measured or from a table; unit: V = 1; floor, free: estimated from the energies; "
    "auto: known where it is, otherwise chosen by cross-validation"
)


@dataclass(frozen=True)
class FormRequest:
    """The options of a fit, by the names above. ``robust``: rows far from the model count less."""

    model: str = AUTO
    voltage: str = AUTO
    robust: bool = False

    @property
    def is_chosen(self) -> bool:
        """Whether the measurements choose the model or the voltage."""
        return AUTO in (self.model, self.voltage)


def without_surface(model: str) -> str:
    """Return a model's name without the suffix by which fits of earlier versions name a surface of
    residuals, which the coefficients do not need."""
    return model.removesuffix("+surface")
