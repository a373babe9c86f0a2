"""A report as one self-contained HTML page."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from analysis.choice.crossval import form_text, halves_text
from analysis.figures.svg import figure_svgs
from analysis.figures.variants import study_titles
from analysis.report import display_tables
from analysis.report.content import ReportContent, SiteReport
from analysis.report.heat_maps import heat_maps
from analysis.report.sheets import (
    autotuning_sheet,
    costs_sheet,
    energy_sheet,
    levels_sheet,
    utilisation_sheet,
    validation_sheet,
)
from analysis.report.site_figures import site_families, site_figures
from analysis.report.tables import as_table
from analysis.report.variant_sheets import summary, variant_sheets

SCHEME_TEXT = {
    "leave-one-setting-out": "each setting is predicted by a fit on all the others.",
    "leave-one-kernel-out": "each kernel is predicted by a fit on all the others.",
}


def render(content: ReportContent) -> str:
    """The page: HTML with its style, script and figures inside; it loads nothing.

    The content security policy allows only the style sheet and the script of the page, by their
    hashes.
    """
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["svgs"] = figure_svgs
    style = _file_text("analysis.figures", "marks.css") + _file_text("analysis.report", "page.css")
    script = _file_text("analysis.report", "page.js")
    return environment.from_string(_file_text("analysis.report", "page.html")).render(
        content=content,
        contents=[],  # each section adds itself
        style=Markup(style),  # noqa: S704  (a file of this package)
        script=Markup(script),  # noqa: S704  (a file of this package)
        policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}",
        simulated=[site.site for site in content.sites if site.simulated],
        overview=display_tables.overview(content.sites),
        sites=[site_view(site, i) for i, site in enumerate(content.sites)],
    )


def _file_text(package: str, name: str) -> str:
    return (files(package) / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def site_view(site: SiteReport, number: int) -> dict[str, Any]:
    """The values of a site in the template: texts, tables and figures."""
    model, data, crossvals = site.fit, site.data, site.crossvals
    families = site_families(site)
    figures = site_figures(site)
    utilisation = utilisation_sheet(site)
    energy, levels = energy_sheet(site), levels_sheet(site)
    maps = heat_maps(site, families)
    return {
        "anchor": f"site-{number + 1}",
        "name": site.site,
        "simulated": site.simulated,
        "figures": figures,
        "no_energy": data is None and site.timing is not None,
        "facts": display_tables.facts(site.measured, site.factors),
        "energy": as_table(energy, tall=True) if energy else None,
        "factors": [(factor.of, str(factor)) for factor in site.factors],
        "levels": as_table(levels) if levels else None,
        "why_no_fit": site.why_no_fit,
        "trust": display_tables.trust_summary(site),
        "remarks": site.remarks,
        "notes": site.notes,
        "fit_facts": display_tables.fit_facts(model, site.fit_origin) if model else [],
        "clock_terms": model is not None and any(term.kind == "clock" for term in model.terms),
        "dropped": [(entry["name"], entry["why"]) for entry in model.dropped] if model else [],
        "coefficients": display_tables.coefficients(model, lumped=False) if model else None,
        "lumped": display_tables.coefficients(model, lumped=True) if model else None,
        "costs": as_table(costs_sheet(model, data, crossvals), tall=True)
        if model and data
        else None,
        "errors": as_table(validation_sheet(crossvals)) if crossvals else None,
        "decisions": display_tables.decisions(crossvals),
        "schemes": [
            (c.scheme, halves_text(c) if c.train else SCHEME_TEXT.get(c.scheme, ""))
            for c in crossvals
        ],
        "form": form_text(crossvals[0]) if crossvals else "",
        "autotuning": as_table(autotuning_sheet(crossvals[0], families))
        if crossvals and crossvals[0].cases
        else None,
        "phases": display_tables.phases(site),
        "pick_summary": display_tables.pick_summary(site.picks),
        "saved_energy": display_tables.saved_energy(site),
        "family_picks": display_tables.family_picks(site, families),
        "picks": display_tables.pick_table(site, families),
        "balances": display_tables.balances(figures.lines, model is not None),
        "utilisation": as_table(utilisation, tall=True) if utilisation else None,
        "times": display_tables.times(site.timing, families) if site.timing is not None else None,
        "heat_maps": maps,
        "mapped": sum(len(family_maps) for _, family_maps in maps),
        "kernels": len(site.candidates),
        "variant_summaries": [
            summary(study, title)
            for study, title in zip(site.variants, study_titles(site.variants), strict=True)
        ],
        "variants": [as_table(sheet, tall=True) for sheet in variant_sheets(site.variants)],
    }
