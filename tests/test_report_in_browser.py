"""The report as a browser shows it: headless Chromium opens the file and is asked what it shows."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import select
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from analysis.choice.candidates import all_candidates
from analysis.choice.crossval import cross_validate
from analysis.choice.pick import picks
from analysis.energy.fit import fit
from analysis.measurements.observations import kernel_names, observations
from analysis.report.content import MeasurementCounts, ReportContent, SiteReport
from analysis.report.page import render
from tests.analysis.simulated_tk1 import simulated_columns
from tests.analysis.synthetic import numbered
from tests.requirement import need_browser

pytestmark = pytest.mark.browser

OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--remote-debugging-pipe",
]
KERNELS = 116
WIDTHS = (1280, 400)

# What the page is asked: each svg's box, the union of its marks' boxes, and what sticks out.
SEEN = """
(() => {
  const open = document.querySelectorAll('details'); open.forEach(details => details.open = true);
  const svgs = [...document.querySelectorAll('svg')].map(svg => {
    const box = svg.getBoundingClientRect();
    const marks = [...svg.querySelectorAll('path, rect, circle')];
    const sized = marks.filter(mark => {
      const own = mark.getBoundingClientRect();
      return own.width > 0 || own.height > 0;
    });
    const view = svg.viewBox.baseVal;
    const outside = [...svg.querySelectorAll('text')].filter(text => {
      const own = text.getBBox();
      return own.x < -2 || own.y < -2 || own.x + own.width > view.width + 2
        || own.y + own.height > view.height + 2;
    }).map(text => text.textContent);
    const small = [...svg.querySelectorAll('text')].filter(text =>
      parseFloat(getComputedStyle(text).fontSize) * box.width / view.width < 7);
    return {label: svg.getAttribute('aria-label'), width: box.width, height: box.height,
      marks: sized.length, outside, small: small.length};
  });
  const root = document.documentElement;
  return JSON.stringify({svgs, scroll: root.scrollWidth, client: root.clientWidth,
    ground: getComputedStyle(document.body).backgroundColor,
    ink: getComputedStyle(document.body).color,
    resources: performance.getEntriesByType('resource').map(entry => entry.name)});
})()
"""


class Chromium:
    """A headless Chromium, controlled over its pipe: messages of JSON, each ended by a zero."""

    def __init__(self, program: str, profile: Path) -> None:
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()
        # The browser reads commands from descriptor 3 and writes answers to 4.
        self.process = subprocess.Popen(
            [
                "bash",
                "-c",
                f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}',
                program,
                *OPTIONS,
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self.waiting = b""
        self.number = 0
        self.events: list[dict] = []
        self.session = ""

    def message(self, patience_s: float) -> dict:
        until = time.monotonic() + patience_s
        while b"\0" not in self.waiting:
            ready, _, _ = select.select([self.back], [], [], max(until - time.monotonic(), 0))
            assert ready, "Chromium does not answer"
            got = os.read(self.back, 1 << 20)
            assert got, f"Chromium has ended, code {self.process.poll()}"
            self.waiting += got
        one, _, self.waiting = self.waiting.partition(b"\0")
        return json.loads(one)

    def ask(self, method: str, **params: object) -> dict:
        self.number += 1
        command = {"id": self.number, "method": method, "params": params}
        if self.session:
            command["sessionId"] = self.session
        os.write(self.to, json.dumps(command).encode() + b"\0")
        while True:
            answer = self.message(30.0)
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def attach(self) -> None:
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def show(self, page: Path, width: int, scheme: str) -> dict:
        """Opens a page at a width, light or dark; what :data:`SEEN` says of it."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.ask(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.events.clear()
        self.ask("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.message(30.0))
        shown = self.ask("Runtime.evaluate", expression=SEEN, returnByValue=True)
        return json.loads(shown["result"]["value"])

    def close(self) -> None:
        self.session = ""
        try:
            os.write(self.to, b'{"id":0,"method":"Browser.close"}\0')
            self.process.wait(10)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait(10)
        os.close(self.to)
        os.close(self.back)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of as many kernels as the demo's, from the simulated Jetson TK1."""
    data = observations(simulated_columns("default", per_family=30), "tk1")
    words = [kernel.replace("-", " level=dram ops_per_word=") for kernel in data.labels]
    data = replace(data, **numbered(words))
    names = kernel_names(data)
    assert len(names) >= KERNELS
    site = SiteReport(
        site="tk1",
        simulated=True,
        measured=MeasurementCounts(
            ok=len(data),
            kernels=len(names),
            settings=16,
            nodes=["n1"],
            meters=["board (node, power)"],
        ),
        data=data,
        fit=fit(data),
        crossvals=[cross_validate(data, s) for s in ("leave-one-setting-out", "holdout")],
        picks=picks(data),
        candidates=all_candidates(data),
    )
    bare = SiteReport(
        site="bare",
        simulated=False,
        measured=MeasurementCounts(
            ok=3, without_energy=3, kernels=1, settings=1, nodes=[], meters=[]
        ),
        why_no_fit="no energy",
        timing=replace(data, simulated=False, energy_j=np.full(len(data), np.nan)),
    )
    content = ReportContent("a study", "store", "2026-01-01 00:00 UTC", [site, bare])
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(render(content), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory):
    chromium = Chromium(need_browser(), tmp_path_factory.mktemp("profile"))
    chromium.attach()
    yield chromium
    chromium.close()


@pytest.fixture(
    scope="module",
    params=[(w, s) for w in WIDTHS for s in ("light", "dark")],
    ids=lambda shape: f"{shape[0]}-{shape[1]}",
)
def seen(request: pytest.FixtureRequest, browser: Chromium, page: Path):
    width, scheme = request.param
    shown = browser.show(page, width, scheme)
    return width, scheme, shown, list(browser.events)


def test_nothing_goes_wrong_and_nothing_is_fetched(seen, page):
    _, _, shown, events = seen
    wrong = [
        event
        for event in events
        if event.get("method")
        in (
            "Runtime.exceptionThrown",
            "Log.entryAdded",
            "Runtime.consoleAPICalled",
            "Network.loadingFailed",
        )
    ]
    assert wrong == []
    asked = {
        event["params"]["request"]["url"]
        for event in events
        if event.get("method") == "Network.requestWillBeSent"
    }
    assert asked <= {page.as_uri()}
    assert shown["resources"] == []


def test_every_figure_is_drawn(seen, page):
    _, _, shown, _ = seen
    assert len(shown["svgs"]) == len(re.findall("<svg ", page.read_text(encoding="utf-8"))) > 20
    for svg in shown["svgs"]:
        assert svg["width"] > 200, svg
        assert svg["height"] > 60, svg
        assert svg["marks"] > 5, svg


def test_no_text_is_cut_or_too_small(seen):
    _, _, shown, _ = seen
    assert [(svg["label"], svg["outside"]) for svg in shown["svgs"] if svg["outside"]] == []
    assert [svg["label"] for svg in shown["svgs"] if svg["small"]] == []


def test_the_page_is_never_wider_than_the_window(seen):
    width, _, shown, _ = seen
    assert width - 20 <= shown["client"] <= width  # the vertical scroll bar takes the rest
    assert shown["scroll"] == shown["client"]


def test_the_page_follows_light_and_dark(seen):
    _, scheme, shown, _ = seen
    ground, ink = (sum(map(int, re.findall(r"\d+", shown[name])[:3])) for name in ("ground", "ink"))
    assert (ground > ink) is (scheme == "light")


def evaluated(browser: Chromium, expression: str) -> object:
    """The value of an expression of JavaScript in the page that is shown."""
    answer = browser.ask("Runtime.evaluate", expression=expression, returnByValue=True)
    assert "exceptionDetails" not in answer, answer
    return answer["result"].get("value")


PICKS = "[...document.querySelectorAll('table.data')].find(t => /pick of each/.test(t.textContent))"


def test_a_table_sorts_by_a_column_inside_its_groups(browser, page):
    browser.show(page, 1280, "light")
    column = f"[...{PICKS}.tHead.rows[0].cells].findIndex(c => c.textContent.startsWith('saves'))"
    cells = f"""[...{PICKS}.tBodies].map(body => [...body.rows].filter(r => !r.matches('.group'))
        .map(row => Number(row.cells[{column}].textContent.replace('−', '-'))))"""
    headings = f"[...{PICKS}.tBodies].map(body => body.rows[0].textContent)"
    before, names = evaluated(browser, cells), evaluated(browser, headings)
    for falling in (False, True):
        evaluated(browser, f"{PICKS}.tHead.rows[0].cells[{column}].firstChild.click()")
        wanted = [sorted(group, reverse=falling) for group in before]
        assert evaluated(browser, cells) == wanted
        assert evaluated(browser, headings) == names
    assert any(group != sorted(group) for group in before)


def test_a_table_shows_the_rows_that_contain_the_words(browser, page):
    browser.show(page, 1280, "light")
    box = f"{PICKS}.closest('.frame')"
    evaluated(
        browser,
        f"(() => {{ const input = {box}.previousElementSibling.querySelector('input');"
        "input.value = 'ops_per_word=1 dp'; input.dispatchEvent(new Event('input')); })()",
    )
    shown = evaluated(
        browser,
        f"[...{PICKS}.querySelectorAll('tbody:not([hidden]) tr:not(.group):not([hidden])')]"
        ".map(row => row.cells[0].textContent)",
    )
    assert shown
    assert all("dp" in name and "ops_per_word=1" in name for name in shown)
    assert len(shown) < KERNELS


def test_a_heat_map_is_chosen_by_its_kernel(browser, page):
    browser.show(page, 1280, "light")
    wanted = evaluated(
        browser,
        "(() => { const select = document.querySelector('select'); select.selectedIndex = 7;"
        "select.dispatchEvent(new Event('change')); return select.options[7].textContent; })()",
    )
    assert evaluated(browser, "document.querySelector('.stage .kernel').textContent") == wanted
    assert evaluated(browser, "document.querySelectorAll('.stage td.pick').length") == 1
    options = evaluated(browser, "document.querySelector('select').options.length")
    assert options == evaluated(browser, "document.querySelectorAll('.heat-maps table').length")


CUT = """
(() => {
  document.querySelectorAll('details').forEach(details => details.open = true);
  const scrolls = [...document.querySelectorAll('.box, .panels.wide')];
  const edge = document.documentElement.clientWidth + 1;
  const stray = [...document.querySelectorAll('main *, header *')].filter(element =>
    !element.parentElement.closest('.box, .panels.wide')
    && element.getBoundingClientRect().right > edge).map(element => element.outerHTML.slice(0, 90));
  const wider = scrolls.filter(box => box.scrollWidth > box.clientWidth + 1
    || box.scrollHeight > box.clientHeight + 1);
  // The shadow of an edge, above the content, is there as long as there is more beyond it.
  const unmarked = [];
  for (const box of wider) {
    const shadow = edge =>
      getComputedStyle(box.parentElement, '::after').getPropertyValue('--' + edge).trim() !== '';
    const turn = (x, y) => { box.scrollTo(x, y); box.dispatchEvent(new Event('scroll')); };
    const across = box.scrollWidth > box.clientWidth + 1;
    const down = box.scrollHeight > box.clientHeight + 1;
    turn(0, 0);
    const begin = [shadow('left'), shadow('right'), shadow('below')];
    turn(1e6, 1e6);
    const end = [shadow('left'), shadow('right'), shadow('below')];
    const wanted = [[false, across, down], [across, false, false]];
    if (JSON.stringify([begin, end]) !== JSON.stringify(wanted)
        || getComputedStyle(box.parentElement, '::after').content !== '""')
      unmarked.push([box.outerHTML.slice(0, 90), begin, end]);
  }
  // A caption stays where it is while its table scrolls.
  const captions = [...document.querySelectorAll('caption')].filter(caption =>
    caption.getBoundingClientRect().width > edge).map(caption => caption.textContent);
  return JSON.stringify({stray, unmarked, captions, wider: wider.length});
})()
"""


@pytest.mark.parametrize("width", WIDTHS)
def test_what_is_wider_than_its_place_scrolls_with_a_sign(browser, page, width):
    browser.show(page, width, "light")
    shown = json.loads(str(evaluated(browser, CUT)))
    assert (shown["stray"], shown["unmarked"], shown["captions"]) == ([], [], [])
    assert shown["wider"] > 0 or width > 400


def test_every_section_is_in_the_contents(browser, page):
    browser.show(page, 1280, "light")
    linked = evaluated(browser, "[...document.querySelectorAll('nav a')].map(a => a.hash.slice(1))")
    there = evaluated(
        browser, "[...document.querySelectorAll('section, section h3')].map(one => one.id)"
    )
    assert sorted(linked) == sorted(there)
    assert len(set(there)) == len(there) > 10


def test_every_table_is_there_as_csv(browser, page):
    """Read by Python's own csv, beside the cells that are shown."""
    browser.show(page, 1280, "light")
    tables = json.loads(
        str(
            evaluated(
                browser,
                """JSON.stringify([...document.querySelectorAll('table')].map(table => {
                  const link = table.querySelector('a.csv');
                  link.addEventListener('click', event => event.preventDefault());
                  link.click();
                  const rows = [...table.querySelectorAll('tbody tr:not(.group)')];
                  return {href: link.href, name: link.download,
                    cells: rows.map(row => [...row.cells].map(cell => cell.textContent.trim()))};
                }))""",
            )
        )
    )
    assert len(tables) > KERNELS + 8  # a heat map each, and the one that is chosen
    for table in tables:
        assert table["name"].endswith(".csv")
        kind, _, text = table["href"].partition(",")
        assert kind == "data:text/csv;charset=utf-8"
        _, *rows = csv.reader(io.StringIO(unquote(text)))
        assert len(rows) == len(table["cells"]) > 0
        for row, cells in zip(rows, table["cells"], strict=True):
            assert len(row) - len(cells) in (0, 1)
            for got, cell in zip(row[len(row) - len(cells) :], cells, strict=True):
                plain = cell.replace("−", "-").replace("–", "")
                assert got in (plain, plain.replace(",", ""), cell)


def test_the_file_is_small(page):
    assert page.stat().st_size < 5_000_000
