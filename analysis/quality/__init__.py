"""Checks of measurements before anything is fitted to them."""

from __future__ import annotations

from analysis.quality.all_checks import check
from analysis.quality.finding import Finding, Severity, describe

__all__ = ["Finding", "Severity", "check", "describe"]
