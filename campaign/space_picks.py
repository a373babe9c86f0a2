"""The best variants of a space, as predicted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dvfs.setting import Setting

if TYPE_CHECKING:
    import pandas as pd

NEAR = 0.10
MOST_NEAR = 200
"""Variants near the best that a result lists."""


@dataclass(frozen=True, kw_only=True)
class SpacePick:
    """The best variant and setting of one problem, as predicted.

    ``variants``: of the space; ``settings``: at which they were predicted; ``measured``: how many
    variants the time's prices come from, and ``time_error_pct`` their root mean square error.
    ``params``: of the variant. ``energy_j`` and ``time_s`` of one iteration; an energy is NaN where
    the store has no fit. ``near``: the parameters of the variants that are at this setting within
    10 % of the best, the best first, at most 200; ``near_count``: how many there are.
    """

    kernel: str
    problem: Mapping[str, Any]
    variants: int
    settings: int
    measured: int
    time_error_pct: float
    params: Mapping[str, Any]
    setting: Setting
    energy_j: float
    time_s: float
    slurm: str
    near_count: int
    near: tuple[Mapping[str, Any], ...]

    def as_dict(self) -> dict[str, Any]:
        """An entry of ``campaign predict --space --json``."""
        numbers = {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in vars(self).items()
            if name != "setting"
        }
        return numbers | asdict(self.setting) | {"near": [dict(own) for own in self.near]}


@dataclass(frozen=True, kw_only=True)
class SpacePredictions:
    """The picks of every problem that a campaign file's spaces declare, at one site."""

    site: str
    simulated: bool
    objective: str
    fit: str | None
    """The fit that energies are from; None where they are not predicted."""
    picks: tuple[SpacePick, ...]

    def as_dict(self) -> dict[str, Any]:
        """``campaign predict --space --json``."""
        return {
            "site": self.site,
            "simulated": self.simulated,
            "objective": self.objective,
            "fit": self.fit,
            "picks": [pick.as_dict() for pick in self.picks],
        }

    def to_pandas(self) -> pd.DataFrame:
        """The picks, a row each."""
        import pandas as pd  # noqa: PLC0415

        return pd.json_normalize([pick.as_dict() | {"near": None} for pick in self.picks])

    def _repr_html_(self) -> str:
        return str(self.to_pandas()._repr_html_())  # type: ignore[operator]
