"""Cross-validation of one site or several, as a user asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from analysis.choice.crossval import cross_validate, fitted_elsewhere, leave_one_site_out
from analysis.choice.few_crossval import judge_holdout
from analysis.choice.folds import folds
from campaign.crossval_results import CrossvalResult
from campaign.errors import BadArgument
from dvfs.setting import Setting

if TYPE_CHECKING:
    from analysis.energy.models import Form
    from analysis.measurements.observations import Observations


def crossvalidate(
    data: Sequence[Observations],
    scheme: str,
    *,
    time: str,
    train: Sequence[Setting] | None,
    fitted_on: Observations | None,
    objective: str,
    form: Form,
) -> CrossvalResult:
    """See :meth:`campaign.results.Results.crossval`, whose arguments these are; ``form``: what the
    fits are asked for.

    Raises:
        BadArgument: arguments that do not go together.
        CantFit: there are too few measurements, or the scheme is unknown.
    """
    over_sites = scheme == "leave-one-site-out"
    if len(data) > 1 and not over_sites:
        raise BadArgument("--site: several sites need --scheme leave-one-site-out")
    if over_sites and time != "measured":
        raise BadArgument("--time: leave-one-site-out uses measured times only")
    if train and scheme != "holdout":
        raise BadArgument("--train needs --scheme holdout")
    fit: dict[str, Any] = vars(form) | {"objective": objective}
    judged = data if fitted_on is None else [*data, fitted_on]
    unproven = any(of_site.unproven_clocks for of_site in judged)
    if fitted_on is not None:
        if over_sites or train or time != "measured":
            raise BadArgument("--fitted-on takes no --scheme, --train or --time")
        return CrossvalResult(fitted_elsewhere(fitted_on, data[0], **fit), unproven)
    if over_sites:
        return CrossvalResult(leave_one_site_out(data, **fit), unproven)
    made = cross_validate(data[0], scheme, time=time, train=train, **fit)
    among_all = []
    if scheme == "holdout":
        (predicted,) = folds(data[0], scheme, train)
        among_all = judge_holdout(data[0], ~predicted, objective=objective)
    return CrossvalResult(made, unproven, among_all)
