"""Remarks on the reliability of a site's results, from its measurements, fit and picks.

A remark has one cause, and counts the items that it concerns.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from analysis.choice.pick import SURE, Pick, not_surely_better
from analysis.energy.fitted import Fit
from analysis.energy.models import ESTIMATED
from analysis.figures.labels import natural, setting_label, shortened
from analysis.measurements.provenance import UNPROVEN, clock_proofs, mention
from analysis.quality.finding import SEPARATE, SEVERITIES, Finding, Severity, describe
from analysis.quality.origins import CLOCK_PROOF
from analysis.report.tables import Table, TableColumn, TextColumn, decimals
from dvfs.dataset import FAILURES, STATED, Columns, is_complete

LISTED = 500
"""The most rows that a remark names; further ones are counted."""
NUMBERS = re.compile(r"[-+.\d]+(e[-+]?\d+)?")


@dataclass(frozen=True, kw_only=True)
class Remark:
    """A limit on the reliability of the results.

    ``count``: the items that it concerns, such as "3 measurements". ``lines``: the items, or the
    first ones and the number of others; ``table``: the items in a table, if they have one.
    """

    severity: Severity
    title: str
    count: str
    text: str
    lines: list[str] = field(default_factory=list)
    table: Table | None = None


def of_measurements(
    columns: Columns, rows: np.ndarray, findings: Sequence[Finding], accepted: bool
) -> list[Remark]:
    """The remarks on a site's measurements; ``rows``: bool (measurement,), those of the site.
    ``accepted``: whether the fit has accepted unproven clocks."""
    indices = np.flatnonzero(rows)
    return [
        *_failures(columns, indices),
        *_clocks(columns, indices, findings, accepted),
        *_findings(columns, [finding for finding in findings if finding.check != CLOCK_PROOF]),
        *_flags(columns, indices),
    ]


def _failures(columns: Columns, rows: np.ndarray) -> list[Remark]:
    status = columns.texts("status")
    failed = rows[status.array(bool, [name in FAILURES for name in status.values])[rows]].tolist()
    if not failed:
        return []
    kernels, kernel_of_row = columns.kernels
    attempts_of: dict[tuple[str, str], list[int]] = {}
    for row in failed:
        attempts_of.setdefault((status[row], kernels[kernel_of_row[row]].label), []).append(row)
    ordered = sorted(attempts_of.items(), key=lambda item: (-len(item[1]), item[0]))
    texts = columns["text"]
    rows_of_table = [
        {
            TextColumn("reason"): reason,
            TextColumn("kernel"): kernel,
            TableColumn("points"): f"{len(attempts)}",
            TextColumn("the last one's text"): _short(str(texts[attempts[-1]])),
        }
        for (reason, kernel), attempts in ordered
    ]
    table = Table.of("Failures by reason and kernel", {"": rows_of_table}, tall=True)
    reasons = Counter(reason for (reason, _), attempts in attempts_of.items() for _ in attempts)
    text = "These points have no measurement: " + ", ".join(
        f"{count:,} {reason}" for reason, count in reasons.most_common()
    )
    return [_remark("warning", "failed points", len(failed), "point", f"{text}.", table=table)]


def _clocks(
    columns: Columns, indices: np.ndarray, findings: Sequence[Finding], accepted: bool
) -> list[Remark]:
    complete = indices[is_complete(columns["status"][indices])]
    proof = clock_proofs(columns, complete)
    unproven, stated = complete[proof == UNPROVEN], complete[proof == STATED]
    refused = any(finding.check == CLOCK_PROOF for finding in findings) and not accepted
    remarks = []
    if len(unproven):
        text = (
            "Nothing showed at which clocks they ran: what differs between two such settings may "
            "be no effect of a clock."
        )
        text += " They were accepted for the fit as they were asked for." * accepted
        remarks.append(
            _remark(
                "refused" if refused else "warning",
                "clocks unproven",
                len(unproven),
                "measurement",
                text,
                describe(unproven, columns, LISTED),
            )
        )
    if len(stated):
        text = (
            "They come from an imported table that gives no achieved clocks: the clocks are those "
            "that its author states."
        )
        remarks.append(_remark("note", "clocks as stated", len(stated), "measurement", text))
    return remarks


def _findings(columns: Columns, findings: Sequence[Finding]) -> list[Remark]:
    """A remark for each finding; one remark for more than :data:`SEPARATE` findings of a check."""
    remarks = []
    for check, group in groupby(sorted(findings, key=lambda f: f.check), key=lambda f: f.check):
        alike = list(group)
        for merged in [alike] if len(alike) > SEPARATE else [[finding] for finding in alike]:
            rows = np.unique(np.concatenate([finding.rows for finding in merged]))
            worst = min((finding.severity for finding in merged), key=SEVERITIES.index)
            texts = [_sentence(finding.text) for finding in merged]
            lines = texts[1:] if len(merged) > 1 else describe(merged[0].rows, columns, LISTED)
            more = f" {len(merged)} findings; the others are:" if len(merged) > 1 else ""
            remarks.append(
                _remark(
                    worst,
                    f"check of {check}",
                    len(rows),
                    "measurement",
                    texts[0] + more,
                    lines,
                )
            )
    return remarks


def _flags(columns: Columns, indices: np.ndarray) -> list[Remark]:
    texts = columns["provenance"][indices]
    kinds: dict[str, list[str]] = {}
    flagged = 0
    for text in texts[mention(texts, '"flags"')].tolist():
        flags = json.loads(text).get("flags", [])
        flagged += bool(flags)
        for flag in flags:
            kinds.setdefault(NUMBERS.sub("#", str(flag)), []).append(str(flag))
    if not flagged:
        return []
    by_frequency = sorted(kinds.values(), key=len, reverse=True)
    lines = [f"{len(flags):,}: {_short(flags[0])}" for flags in by_frequency]
    text = "The program that measured them noted what may be wrong; how many, and an example each:"
    return [_remark("warning", "flagged measurements", flagged, "measurement", text, lines)]


def of_fit(model: Fit, stale: str) -> list[Remark]:
    """The remarks on a fit. ``stale``: the reason why it is of other measurements, or empty."""
    remarks = []
    if stale:
        remarks.append(_remark("warning", "other measurements", 1, "fit", f"{stale}."))
    if model.like is not None:
        text, warning = f"It {model.like.text}.", model.like.warning
        remarks.append(
            _remark(
                "warning", "fit from a known site", model.n, "measurement", f"{text} {warning}."
            )
            if warning
            else _remark("note", "fit from a known site", model.n, "measurement", text)
        )
    if model.voltage in ("unit", *ESTIMATED):
        assumption = (
            "V = 1 is assumed at every setting, so that coefficients include the voltage"
            if model.voltage == "unit"
            else "they are estimated from the energies, relative to those at the highest clocks"
        )
        n = model.n_settings
        text = f"Voltages were neither measured nor given in a table: {assumption}."
        remarks.append(_remark("note", "voltages not known", n, "setting", text))
    if model.confounded:
        lines = [f"{', '.join(group['terms'])}: {group['remedy']}" for group in model.confounded]
        text = (
            "The measurements cannot separate the terms of a group: only what they cost together "
            "is known. What to measure to separate them:"
        )
        n = sum(len(group["terms"]) for group in model.confounded)
        remarks.append(_remark("warning", "terms that cannot be separated", n, "term", text, lines))
    if model.outliers:
        lines = [
            f"{row['label']} at {row['setting']}: {row['energy_j']:.4g} J measured, "
            f"{row['predicted_j']:.4g} J by the model, {row['deviations']:.0f} standard deviations "
            f"apart"
            for row in model.outliers
        ]
        text = "The model predicts another energy for them than was measured."
        n = len(model.outliers)
        remarks.append(_remark("warning", "outliers of the fit", n, "measurement", text, lines))
    return remarks


def of_picks(picks: Sequence[Pick]) -> list[Remark]:
    """The remarks on the uncertainty of the picks."""
    picks = sorted(picks, key=lambda p: natural(p.label))
    no_gain = [p for p in picks if p.saving_low_pct <= 0.0 < p.saving_high_pct]
    unsure = [p for p in picks if p.best_probability < SURE]
    remarks = []
    if no_gain:
        text = "The 95 % interval of what they save includes 0."
        lines = [
            f"{p.label}: {decimals(p.saving_pct)} % ({decimals(p.saving_low_pct)} to "
            f"{decimals(p.saving_high_pct)})"
            for p in no_gain
        ]
        title = "picks that may save nothing"
        remarks.append(_remark("note", title, len(no_gain), "pick", text, lines))
    if unsure:
        text = (
            f"Another setting may be better: each of these picks is the best with a probability "
            f"below {SURE * 100:.0f} %."
        )
        lines = [f"{p.label}: {_below(p.best_probability)}" for p in unsure]
        remarks.append(_remark("note", "picks that are not sure", len(unsure), "pick", text, lines))
    single = next((setting_label(p.best_single) for p in picks if p.best_single is not None), "")
    for reference, name, label in (
        ("highest_clocks", "the highest clocks", ""),
        ("best_single", "the best single setting for all kernels", f" ({single})"),
    ):
        doubtful, n_others = not_surely_better(picks, reference)
        if 2 * len(doubtful) > n_others:
            text = (
                f"Each of these picks is better than {name}{label} with a probability below 95 %. "
                f"Picks that are that setting themselves are not listed."
            )
            lines = [
                f"{p.label}: {_below(getattr(p, f'better_than_{reference}'))}" for p in doubtful
            ]
            title = f"picks not surely better than {name}"
            remarks.append(_remark("warning", title, len(doubtful), "pick", text, lines))
    return remarks


def _below(probability: float) -> str:
    """The text in percent, rounded down: a value below 95 % does not read as 95 %."""
    return f"{np.floor(probability * 1000.0) / 10.0:.1f} %"


def worst_first(remarks: Sequence[Remark]) -> list[Remark]:
    """The remarks, refusals first, then warnings and notes."""
    return sorted(remarks, key=lambda remark: SEVERITIES.index(remark.severity))


def _remark(
    severity: Severity,
    title: str,
    count: int,
    noun: str,
    text: str,
    lines: Sequence[str] = (),
    table: Table | None = None,
) -> Remark:
    # A finding about all measurements of a site has no rows.
    counted = f"{count:,} {noun}{'' if count == 1 else 's'}" if count else f"all {noun}s"
    listed = list(lines[:LISTED])
    if len(lines) > len(listed):
        listed.append(f"and {len(lines) - len(listed):,} more")
    return Remark(
        severity=severity, title=title, count=counted, text=text, lines=listed, table=table
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def _short(text: str) -> str:
    """The first line of a text, cut to 120 characters."""
    return shortened(text.split("\n", 1)[0], 120)
