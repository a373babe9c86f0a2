"""Checks of measurements before anything is fitted to them."""

from __future__ import annotations

from analysis.quality.all_checks import check
from analysis.quality.finding import Finding, describe

__all__ = ["Finding", "check", "describe"]
