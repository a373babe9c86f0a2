"""What to measure next of a partition, chosen from what the store has of its site."""

from __future__ import annotations

from analysis.choice.next_measurements import Cells, NextMeasurements, next_measurements
from analysis.choice.objectives import Objective
from analysis.energy.fit import fit
from analysis.energy.fitted import Fit
from analysis.measurements.observations import CantFit, Observations
from campaign import fits
from campaign.results import Results


def site_data(results: Results, site: str) -> Observations | None:
    """A site's measurements as the model takes them; None where none has an energy.

    Raises:
        BadArgument: no fit can be true to them.
    """
    try:
        data, _ = results.usable_data(site, accept_unproven=False)
    except CantFit:
        return None
    return data


def choose_next(
    results: Results,
    data: Observations | None,
    site: str,
    cells: Cells,
    objective: Objective,
    *,
    budget_h: float,
    most: int | None,
    enough: float,
    more_h: float = 0.0,
    anchors: int = 0,
) -> NextMeasurements:
    """What to measure next (:func:`analysis.choice.next_measurements.next_measurements`).

    By the site's default fit where it is one of these measurements, else by a new one, which is
    not kept.
    """
    return next_measurements(
        data,
        None if data is None else _fitted(results, data, site),
        cells,
        {} if data is None else results.setting_volts(site),
        objective,
        budget_h=budget_h,
        most=most,
        enough=enough,
        more_h=more_h,
        anchors=anchors,
    )


def _fitted(results: Results, data: Observations, site: str) -> Fit | None:
    """The site's fit; None where there are too few measurements for one."""
    try:
        if results.fit_source(site).stale is False:
            return results.kept_fit(site)
    except fits.NoKeptFit:
        pass
    try:
        return fit(data)
    except CantFit:
        return None
