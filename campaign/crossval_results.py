"""What cross-validations return to Python: each also as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from campaign.notebook_html import html_table, simulated_mark

if TYPE_CHECKING:
    import pandas as pd

    from analysis.choice.crossval import CrossValidation
    from analysis.choice.few_crossval import FewCase, FewCrossValidation


@dataclass(frozen=True)
class CrossvalResult:
    """A cross-validation: the error out of fold, and what the picks lose.

    ``among_all``: of a holdout, the picks of ``predict`` among all settings, those that it was
    fitted on included.
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
        """The cases, a row each: what each chooser loses a kernel in a draw, in %."""
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
