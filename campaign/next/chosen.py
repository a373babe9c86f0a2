"""What to measure next of a partition, chosen from what the store has of its site."""

from __future__ import annotations

from analysis.choice.next_measurements import MeasuredCells, NextMeasurements, next_measurements
from analysis.choice.objectives import Objective
from analysis.measurements.observations import FitError, Observations, measured_volts
from analysis.predict.site import site_posterior
from campaign.results import Results


def site_data(results: Results, site: str) -> Observations | None:
    """A site's measurements as the model takes them; None where none has an energy.

    Raises:
        ArgumentError: no fit can be true to them.
    """
    try:
        data, _ = results.usable_data(site, accept_unproven=False)
    except FitError:
        return None
    return data


def choose_next(
    results: Results,
    data: Observations | None,
    site: str,
    cells: MeasuredCells,
    objective: Objective,
    *,
    budget_h: float,
    most: int | None,
    enough: float,
    more_h: float = 0.0,
    anchors: int = 0,
) -> NextMeasurements:
    """What to measure next (:func:`analysis.choice.next_measurements.next_measurements`), by the
    posterior of the site's measurements."""
    found = None
    if data is not None:
        found = site_posterior(data, {**results.setting_volts(site), **measured_volts(data)})
    return next_measurements(
        data,
        found,
        cells,
        objective,
        budget_h=budget_h,
        most=most,
        enough=enough,
        more_h=more_h,
        anchors=anchors,
    )
