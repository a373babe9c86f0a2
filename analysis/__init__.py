"""From an xarray Dataset to coefficients, cross-validation, picks, figures and reports."""

OWNER = "dvfs-campaign"  # campaign/verbs/own_packages.py looks for this
