"""A fit of a site's measurements, from these alone or from the fit of a site like it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from campaign.errors import BadArgument
from campaign.fits import Request
from dvfs.setting import Volts

if TYPE_CHECKING:
    from analysis.energy.fitted import Fit
    from analysis.measurements.observations import Observations


@dataclass(frozen=True)
class KnownSite:
    """The site that a fit starts from: its fit, its measurements, and the voltages of its
    settings."""

    fit: Fit
    data: Observations
    volts: Volts

    def measured_as(self, fit: Fit) -> tuple[Observations, Volts]:
        """Its measurements, their energies as the site of ``fit``, which started from this one's,
        should have them; and the voltages of the settings that were measured."""
        present = {self.data.settings[s] for s in set(self.data.setting.tolist())}
        ratio = fit.energy_j(self.data) / self.fit.energy_j(self.data)
        data = replace(self.data, energy_j=self.data.energy_j * ratio)
        return data, {s: v for s, v in self.volts.items() if s in present}


def check_like(site: str, request: Request) -> None:
    """Refuse a request that no fit can start from.

    Raises:
        BadArgument: ``like`` goes with other options, or names the site itself.
    """
    if request.like == site:
        raise BadArgument(f"--like: names the site {site} itself; name another one")
    if request.like and request != Request(like=request.like):
        raise BadArgument(
            f"--like: the model and the voltages are those of the fit of {request.like}; leave "
            f"--model, --voltage and --robust out"
        )


def fitted(data: Observations, request: Request, known: KnownSite | None) -> Fit:
    """The fit that was asked for; ``known``: the site that it starts from, None for none.

    Raises:
        CantFit: there are too few measurements, or the names are unknown.
    """
    from analysis.energy.fit import fit  # noqa: PLC0415
    from analysis.energy.known_site import fit_like  # noqa: PLC0415

    if known is not None:
        return fit_like(data, known.fit, known.data, known.volts)
    return fit(data, request.model, request.voltage, robust=request.robust)
