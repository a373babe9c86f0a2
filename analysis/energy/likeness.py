"""The difference between a site and the known one from whose fit its fit starts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """The difference between a site and the known one, and whether the known one helps.

    ``spread_pct``: one standard deviation of a coefficient's relative difference;
    ``most_spread_pct``: the largest spread at which the known site helps. The errors are means over
    the measurements, each predicted without itself: by this fit, by the known site's fit as it is,
    and by unrestricted coefficients; None with a single measurement.
    """

    site: str
    spread_pct: float
    most_spread_pct: float
    error_pct: float | None
    as_it_is_error_pct: float
    alone_error_pct: float | None

    @property
    def helps(self) -> bool:
        """Whether the sites are near enough to each other."""
        return self.spread_pct <= self.most_spread_pct

    @property
    def text(self) -> str:
        """The difference in words."""
        text = (
            f"started from the fit of {self.site}: coefficients are about {self.spread_pct:.0f} % "
            f"apart (one standard deviation)"
        )
        if self.error_pct is not None and self.alone_error_pct is not None:
            text += (
                f"; error on measurements left out {self.error_pct:.1f} %, by the fit of "
                f"{self.site} as it is {self.as_it_is_error_pct:.1f} %, without it "
                f"{self.alone_error_pct:.1f} %"
            )
        return text

    @property
    def warning(self) -> str:
        """Why the known site does not help; empty where it does."""
        if self.helps:
            return ""
        return (
            f"{self.site} is too different to help: about {self.spread_pct:.0f} % apart, more than "
            f"{self.most_spread_pct:.0f} %; measure more settings, and fit without --like"
        )

    def as_dict(self) -> dict[str, Any]:
        """``like`` in JSON output."""
        return asdict(self) | {"helps": self.helps}
