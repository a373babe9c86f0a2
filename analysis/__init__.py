"""From measurements to coefficients, cross-validation, picks, figures and reports."""

OWNER = "dvfs-campaign"  # campaign/verbs/command_line.py looks for this
