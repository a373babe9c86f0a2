"""The tables of a report's page, read as a browser shows them."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

ERRORS = {"mean": "mape_pct", "std": "std_pct", "smallest": "min_pct", "largest": "max_pct"}
JUDGED = "Energy lost by the choice of a setting"


class Tables(HTMLParser):
    """Caption -> rows of cells, of every table of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.by_caption: dict[str, list[list[str]]] = {}
        self.rows: list[list[str]] = []
        self.within = ""
        self.caption = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag == "table":
            self.rows, self.caption = [], ""
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        if tag in ("td", "th", "caption"):
            self.within = tag

    def handle_endtag(self, tag):
        if tag == self.within:
            self.within = ""
        if tag == "table":
            self.by_caption[self.caption.removesuffix(" simulated")] = self.rows

    def handle_data(self, data):
        if self.within == "caption":
            self.caption += data
        elif self.within:
            self.rows[-1][-1] += data


def assert_report_shows(html: str, judged: dict) -> None:
    """A page of one site shows the figures of ``campaign crossval --json``, to its decimals."""
    tables = Tables(html).by_caption
    scheme, decision = judged["scheme"], judged["decision"]
    headings, *rows = tables["Error of predicted energy, out of fold"]
    (row,) = (row for row in rows if row[0] == scheme)
    cells = dict(zip([heading.split()[0] for heading in headings], row, strict=True))
    assert int(cells["folds"]) == judged["n_folds"]
    assert int(cells["predictions"].replace(",", "")) == judged["n"]
    for name, key in ERRORS.items():
        assert float(cells[name].replace(",", "")) == pytest.approx(judged[key], abs=0.006)
    shown: dict[str, list[str]] = {}
    group = ""
    for row in tables[JUDGED][1:]:
        if len(row) == 1:
            (group,) = row
        elif group == scheme:
            shown[row[0]] = row[1:]
    choosers = {
        "picks": "picks",
        "physics": "physics fit",
        "race_to_halt": "race to halt",
        "race_to_halt_best": "race to halt, best tie",
        "highest_clocks": "highest clocks",
        "best_single": "best single setting",
        "random": "random setting",
    }
    assert {"picks", "physics fit", "race to halt", "random setting"} <= set(shown)
    for key, name in choosers.items():
        assert (key in decision) == (name in shown)
        if name in shown:
            mean, most, exact = shown[name]
            assert float(mean) == pytest.approx(decision[key]["mean_lost_pct"], abs=0.006)
            assert float(most) == pytest.approx(decision[key]["max_lost_pct"], abs=0.006)
            exact, _, cases = exact.partition(" of ")
            assert float(exact) == pytest.approx(decision[key]["exact"], abs=0.06)
            assert int(cases) == decision["cases"]
