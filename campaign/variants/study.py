"""The study of a kernel's variants from a store's measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.choice.variants import Predicted, VariantStudy, study
from analysis.measurements.problems import value_text
from analysis.measurements.variants import kernel_variants
from campaign.store.planned import planned_kernels
from dvfs.errors import ArgumentError
from dvfs.setting import Setting

if TYPE_CHECKING:
    import pandas as pd

    from campaign.store.layout import Store
    from dvfs.dataset import Columns


@dataclass(frozen=True)
class VariantResult:
    """A study of variants; ``study``: the result of :mod:`analysis.choice.variants`.

    ``why_stale``: why the fit that predicts energies is not of the measurements that the store has
    now; empty if it is, or predicts none.
    """

    study: VariantStudy
    why_stale: str = ""

    def as_dict(self) -> dict[str, Any]:
        """``campaign variants --json``."""
        return self.study.as_dict()

    def to_pandas(self) -> pd.DataFrame:
        """The variants, a row each; their parameters are columns ``params.NAME``."""
        import pandas as pd  # noqa: PLC0415

        return pd.json_normalize([variant.as_dict() for variant in self.study.variants])

    def _repr_html_(self) -> str:
        return str(self.to_pandas()._repr_html_())  # type: ignore[operator]


def study_variants(
    store: Store,
    columns: Columns,
    site: str,
    kernel: str | None,
    problem: Mapping[str, Any] | None,
    setting: Setting | None,
    predicted: Predicted,
) -> VariantResult:
    """Study the variants of a kernel; ``kernel`` may be None where the site has only one.
    ``predicted``: from the variants, label -> predicted time and energy.

    Raises:
        ArgumentError: no kernel is named, and the site has several.
        FitError: see :func:`analysis.measurements.variants.kernel_variants`.
    """
    if kernel is None:
        kernels = kernels_at(columns, site)
        if len(kernels) > 1:
            named = ", ".join(kernels[:12]) + (" ..." if len(kernels) > 12 else "")
            raise ArgumentError(f"{site} has {len(kernels)} kernels; name one by --kernel: {named}")
        kernel = kernels[0] if kernels else ""
    texts = {name: value_text(value) for name, value in (problem or {}).items()}
    tuned = tuned_parameters(store).get(kernel, ())
    variants = kernel_variants(columns, site, kernel, tuned=tuned, problem=texts, setting=setting)
    return VariantResult(study(variants, predicted(variants)))


def kernels_at(columns: Columns, site: str) -> list[str]:
    """The names of the kernels with measurements of a site, sorted."""
    return sorted(set(columns["kernel"][columns["site"] == site].tolist()))


def tuned_parameters(store: Store) -> dict[str, list[str]]:
    """Kernel, by its name in the store -> the parameters that its spaces declare, of kernels that
    have a space."""
    return {name: kernel.tuned for name, kernel in planned_kernels(store).items() if kernel.tuned}


def read_problem(text: str) -> dict[str, str]:
    """Parse the problem in ``--problem``: ``n=1920,precision=double``.

    Raises:
        ArgumentError: the text is not of this form.
    """
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name.strip() and equals and value.strip() for name, equals, value in pairs):
        raise ArgumentError(
            f"--problem: found {text!r}; must be NAME=VALUE, several with commas, such as "
            f"n=1920,precision=double"
        )
    return {name.strip(): value.strip() for name, _, value in pairs}
