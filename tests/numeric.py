"""Tests whose numbers come from linear algebra, and so from the processor's own rounding.

They have the mark ``numeric``; ``make processors`` runs them as several processors would.
"""

NUMERIC = tuple(
    f"tests/analysis/test_{name}.py"
    for name in (
        "applications",
        "averaged",
        "averaged_forms",
        "breakdown",
        "choose",
        "class_roofline",
        "comparison",
        "crossval",
        "discrepancy",
        "estimates",
        "few_settings",
        "fit",
        "fit_file",
        "folds",
        "joint_process",
        "kept_reports",
        "kept_results",
        "kernel_regression",
        "known_site",
        "linear_cost",
        "normal_equations",
        "pick",
        "process",
        "processors",
        "regression",
        "sites_together",
        "stacked",
        "surface",
        "unmeasured_energies",
        "voltage",
    )
)
