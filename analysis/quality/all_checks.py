"""All checks of a site's measurements.

Deviations are judged against the noise of the measurements: between repeats of a point, if there
are any, and between neighbouring settings. Every limit is Student's t at
:data:`~analysis.quality.noise.FALSE_ALARM` divided by the number of comparisons (Bonferroni), so
that a clean campaign has no findings, however large it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from analysis.quality.clocks import (
    against_the_clocks,
    apparent_clocks,
    clocks_not_held,
    fixed_duration,
    name_only,
    swapped_clocks,
    too_many_cycles,
)
from analysis.quality.finding import SEVERITIES, Finding
from analysis.quality.noise import median_grid, repeat_noise
from analysis.quality.origins import estimated, mixed_setups, recorded_energies, unproven_clocks
from analysis.quality.possible_values import (
    clocks_missing,
    counts_by_setting,
    counts_missing,
    energy_against_power,
    falling_voltages,
    possible_clocks_and_volts,
    possible_operations,
    possible_power,
    voltages_missing,
)
from analysis.quality.power_caps import limits_not_kept, power_caps
from analysis.quality.powers_of_ten import power_levels, run_lengths, time_levels
from analysis.quality.repeats import (
    identical,
    level_changes,
    node_offsets,
    outliers,
    session_offsets,
)
from analysis.quality.rows import Rows, provenance, rows_of
from dvfs.dataset import Columns


def check(columns: Columns, site: str) -> list[Finding]:
    """The problems of a site's measurements that would distort a fit, worst first.

    ``columns``: the measurements of a store. The checks read the complete rows of
    ``site`` with a positive time (s) and energy (J); without such rows there are no findings.
    """
    rows = rows_of(columns, site)
    if not len(rows.index):
        return []
    power_w, labels = provenance(columns, rows)
    findings = list(unproven_clocks(rows))
    findings += estimated(columns, rows)
    findings += recorded_energies(columns, rows)
    findings += identical(rows)
    findings += energy_against_power(rows, power_w)
    findings += mixed_setups(columns, site)
    findings += possible_clocks_and_volts(rows)
    findings += falling_voltages(rows)
    findings += voltages_missing(rows)
    findings += clocks_missing(rows)
    findings += counts_by_setting(rows)
    findings += counts_missing(rows)
    findings += power_caps(rows, labels)
    findings += limits_not_kept(rows)
    findings += clocks_not_held(rows)
    residual, sigma, df = repeat_noise(rows)
    findings += outliers(rows, residual, sigma, df)
    changes = [*level_changes(rows, residual, sigma), *node_offsets(rows)]
    findings += changes + _elsewhere(session_offsets(rows), changes)
    limited = any(
        (setting.power_limit_w, setting.profile) != (None, None) for setting in rows.settings
    )
    free = rows_of(columns, site, limited=False) if limited else rows
    if len(free.index):
        if limited:
            _, sigma, df = repeat_noise(free)
        findings += _clock_checks(free, sigma, df)
    return sorted(
        (replace(finding, kernels=rows.kernels_at(finding.rows)) for finding in findings),
        key=lambda finding: SEVERITIES.index(finding.severity),
    )


def _clock_checks(rows: Rows, sigma: dict[str, np.ndarray], df: float) -> list[Finding]:
    """The findings about clocks and units from power and time, of rows without a power limit."""
    grids = {name: median_grid(rows, name, sigma[name], df) for name in ("time", "power")}
    time, power = grids["time"], grids["power"]
    findings = list(name_only(rows, grids))
    findings += apparent_clocks(rows, time, _rows(findings))
    findings += too_many_cycles(rows, time, _rows(findings))
    findings += swapped_clocks(rows, time)
    findings += fixed_duration(rows, time)
    levels = [*power_levels(rows, power), *time_levels(rows, time)]
    implausible = list(possible_operations(rows)) or _elsewhere(possible_power(rows), levels)
    findings += implausible + levels + _elsewhere(run_lengths(rows, time), levels)
    return findings + _elsewhere(against_the_clocks(rows, grids), levels)


def _elsewhere(findings: Iterable[Finding], causes: list[Finding]) -> list[Finding]:
    """The findings, without those whose rows all have a finding in ``causes``."""
    rows = _rows(causes)
    return [finding for finding in findings if not np.isin(finding.rows, rows).all()]


def _rows(findings: list[Finding]) -> np.ndarray:
    """The rows of the findings, int64."""
    return np.concatenate([np.zeros(0, np.int64), *(finding.rows for finding in findings)])
