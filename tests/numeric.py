"""Tests whose numbers come from linear algebra, and so from the processor's own rounding.

They have the mark ``numeric``; ``make processors`` runs them as several processors would.
"""

NUMERIC = tuple(
    f"tests/analysis/test_{name}.py"
    for name in (
        "applications",
        "breakdown",
        "choose",
        "comparison",
        "crossval",
        "estimates",
        "few_crossval",
        "fit",
        "fit_file",
        "folds",
        "kept_reports",
        "kept_results",
        "known_site",
        "linear_cost",
        "normal_equations",
        "pick",
        "predict_model",
        "processors",
        "profiles",
        "regression",
        "sites_together",
        "unmeasured_energies",
        "voltage",
    )
)
