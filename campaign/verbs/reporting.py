"""report, under the name that the command line still asks for."""

from campaign.verbs.report import run as report

__all__ = ["report"]
