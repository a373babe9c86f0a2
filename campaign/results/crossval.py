"""Cross-validation of one site or several, and its results as the Python interface returns them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.choice.crossval import cross_validate, fitted_elsewhere, folds, leave_one_site_out
from analysis.choice.few_crossval import judge_holdout
from campaign.results.tables import html_table, simulated_mark
from dvfs.errors import ArgumentError
from dvfs.setting import Setting

if TYPE_CHECKING:
    import pandas as pd

    from analysis.choice.crossval import CrossValidation
    from analysis.choice.few_crossval import FewCase, FewCrossValidation
    from analysis.energy.models import FormRequest
    from analysis.measurements.observations import Observations


def crossvalidate(
    data: Sequence[Observations],
    scheme: str,
    *,
    time: str,
    train: Sequence[Setting] | None,
    fitted_on: Observations | None,
    objective: str,
    form: FormRequest,
) -> CrossvalResult:
    """Cross-validate with the arguments of :meth:`campaign.results.Results.crossval`. ``form``: the
    options of the fits.

    Raises:
        ArgumentError: arguments that exclude each other.
        FitError: there are too few measurements, or the scheme is unknown.
    """
    over_sites = scheme == "leave-one-site-out"
    if len(data) > 1 and not over_sites:
        raise ArgumentError("--site: several sites need --scheme leave-one-site-out")
    if over_sites and time != "measured":
        raise ArgumentError("--time: leave-one-site-out uses measured times only")
    if train and scheme != "holdout":
        raise ArgumentError("--train needs --scheme holdout")
    options: dict[str, Any] = vars(form) | {"objective": objective}
    all_data = data if fitted_on is None else [*data, fitted_on]
    unproven = any(observed.unproven_clocks for observed in all_data)
    if fitted_on is not None:
        if over_sites or train or time != "measured":
            raise ArgumentError("--fitted-on takes no --scheme, --train or --time")
        return CrossvalResult(fitted_elsewhere(fitted_on, data[0], **options), unproven)
    if over_sites:
        return CrossvalResult(leave_one_site_out(data, **options), unproven)
    crossval = cross_validate(data[0], scheme, time=time, train=train, **options)
    among_all = []
    if scheme == "holdout":
        (predicted,) = folds(data[0], scheme, train)
        among_all = judge_holdout(data[0], ~predicted, objective=objective)
    return CrossvalResult(crossval, unproven, among_all)


@dataclass(frozen=True)
class CrossvalResult:
    """A cross-validation: the error out of fold, and what the picks lose.

    ``among_all``: for a holdout, the picks of ``predict`` among all settings, including those that
    were fitted on.
    """

    crossval: CrossValidation
    unproven_clocks: bool = False
    among_all: Sequence[FewCase] = ()

    def as_dict(self) -> dict[str, Any]:
        """``campaign crossval --json``."""
        shown = self.crossval.as_dict() | {"unproven_clocks": self.unproven_clocks}
        if not self.among_all:
            return shown
        from analysis.choice.few_crossval import choosers  # noqa: PLC0415

        lost = {name: vars(chooser) for name, chooser in choosers(self.among_all).items()}
        return shown | {"among_all_settings": {"cases": len(self.among_all)} | lost}

    def to_pandas(self) -> pd.DataFrame:
        """The choosers, a row each: mean and most energy lost in %, and how often it was best."""
        import pandas as pd  # noqa: PLC0415

        choosers = {
            name: chooser
            for name, chooser in self.as_dict()["decision"].items()
            if isinstance(chooser, dict)
        }
        return pd.DataFrame.from_dict(choosers, orient="index").rename_axis("chooser")

    def _repr_html_(self) -> str:
        shown = self.as_dict()
        title = (
            f"{shown['site']}: {shown['scheme']}, error {shown['mape_pct']:.2f} % out of fold"
            f"{simulated_mark(shown['simulated'])}"
        )
        return html_table(self.to_pandas(), title)


@dataclass(frozen=True)
class FewCrossvalResult:
    """What picks lose with few measurements."""

    crossval: FewCrossValidation
    unproven_clocks: bool = False

    def as_dict(self) -> dict[str, Any]:
        """``campaign crossval --scheme few:M --json``."""
        return self.crossval.as_dict() | {"unproven_clocks": self.unproven_clocks}

    def to_pandas(self) -> pd.DataFrame:
        """The cases, each a kernel in a draw, a row each: what each chooser loses, in %."""
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame(
            [
                {"kernel": case.label, "draw": case.draw} | dict(case.lost_pct)
                for case in self.crossval.cases
            ]
        )

    def _repr_html_(self) -> str:
        shown = self.as_dict()
        title = f"{shown['site']}: {shown['scheme']}{simulated_mark(shown['simulated'])}"
        return html_table(self.to_pandas(), title)
