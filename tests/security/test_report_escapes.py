"""Markup and terminal escapes in names stay text: in the report, the figures and the terminal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import unicodedata
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from campaign.verbs.command_line import main
from tests.commands import prints, refuses
from tests.requirement import need_browser
from tests.stores import store_of_table, stored

SITES = ("<script>alert(1)</script>", "</title></style><img src=x onerror=alert(2)>")
KERNELS = (
    '"><img src=x onerror=alert(3)>',
    "</text></svg><script>alert(4)</script>",
    "&amp;&lt;b&gt;' onload='alert(5)",
    "{{ 7 * 7 }}{% raw %}]]><!--",
)
NODE = "<iframe src=javascript:alert(6)>"
LABEL = "</td><script>alert(7)</script>"
PARAMS = '{"<b>k</b>": "</script><script>alert(8)</script>"}'
COUNT = "n_<u>sp</u>"
COLUMNS = ["site", "kernel", "node", "params", "core_mhz", "mem_mhz", "time_s", "energy_j", COUNT]


def machine(k: int, core_mhz: float, mem_mhz: float) -> tuple[float, float]:
    """Seconds and joules of kernel number ``k``: of a machine that can be fitted."""
    time_s = (k + 1) * 800 / core_mhz + 200 / mem_mhz
    return time_s, (2 + core_mhz / 1500) * time_s + k * mem_mhz / 900


def store_of(
    folder: Path, sites: tuple[str, ...], kernels: tuple[str, ...], node: str, count: str = "n_sp"
) -> Path:
    """A store of a small imported table with these names, enough of it to fit."""
    rows = [
        [site, kernel, node, PARAMS, core, mem, *machine(k, core, mem), 1e9 * (k + 1),
         1e8 * (len(kernels) - k), LABEL]
        for site, (k, kernel), core, mem in product(
            sites, enumerate(kernels), (1000, 1500, 2000), (500, 900)
        )
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=[*COLUMNS[:-1], count, "n_dram", LABEL])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "map.toml").write_text('unknown = "label"\n')
    return store_of_table(folder, table, "--map", folder / "map.toml")


class Page(HTMLParser):
    """Every element and attribute of a page, its text, and its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.attributes: Counter[tuple[str, str]] = Counter()
        self.values: list[tuple[str, str]] = []
        self.strange: list[str] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.inside = tag
        for name, value in attrs:
            self.attributes[tag, name] += 1
            self.values.append((name, value or ""))

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        (self.scripts if self.inside == "script" else self.words).append(data)

    def handle_comment(self, data: str) -> None:
        self.strange.append(data)

    def unknown_decl(self, data: str) -> None:
        self.strange.append(data)

    def handle_pi(self, data: str) -> None:
        self.strange.append(data)


def page_of(store: Path) -> Page:
    output = store.parent / "report.html"
    assert main(["report", str(store), "-o", str(output)]) == 0
    return Page(output.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_of(tmp_path_factory.mktemp("hostile"), SITES, KERNELS, NODE, COUNT)


@pytest.fixture(scope="module")
def shown(hostile) -> Page:
    return page_of(hostile)


def test_the_report_of_hostile_names_has_the_elements_of_the_report_of_plain_ones(shown, tmp_path):
    # Like COUNT, a column of no count: it is kept as a label.
    plain = page_of(store_of(tmp_path, ("aa", "bb"), ("ka", "kb", "kc", "kd"), "n1", "label"))
    assert set(shown.tags) <= set(plain.tags)
    assert not {"img", "iframe", "b", "object", "form", "base"} & set(shown.tags)
    assert shown.tags["script"] == 1
    assert shown.scripts == plain.scripts
    assert set(shown.attributes) <= set(plain.attributes)
    assert shown.tags["style"] == plain.tags["style"]
    assert shown.tags["table"] == plain.tags["table"]
    assert shown.tags["svg"] > 10
    assert not shown.strange


def test_no_attribute_runs_or_loads_anything(shown):
    assert [name for name, _ in shown.values if name.startswith("on")] == []
    links = {value for name, value in shown.values if name in ("href", "src", "xlink:href")}
    inside = {link: re.fullmatch(r"#(site-[12])(?:-([a-z-]+))?(?:-\d+)?", link) for link in links}
    assert all(inside.values()), [link for link, match in inside.items() if not match]
    # A heading's link is made of the page's words: those of both sites are the same.
    first, second = (
        {match[2] for match in inside.values() if match and match[1] == site}
        for site in ("site-1", "site-2")
    )
    assert first == second
    styles = [value for name, value in shown.values if name == "style"]
    assert not any(word in value for value in styles for word in (*KERNELS, *SITES))


def test_the_names_are_shown_as_they_are(shown):
    words = "\n".join(shown.words)
    for text in (*SITES, *KERNELS, NODE):
        assert text in words, text


@pytest.mark.browser
def test_a_browser_runs_nothing_of_the_names(hostile, shown, tmp_path):
    """Chromium writes the page as it stands after its scripts ran: nothing was added."""
    program = need_browser()
    page = hostile.parent / "report.html"
    # Whatever ran would leave a mark: an alert cannot be seen from here, but a title can.
    armed = page.read_text(encoding="utf-8").replace("alert(", "document.title+=(")
    marked = tmp_path / "armed.html"
    marked.write_text(armed, encoding="utf-8")
    done = subprocess.run(
        [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--dump-dom",
            marked.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    seen = Page(done.stdout)
    assert not {"img", "iframe"} & set(seen.tags)
    assert seen.scripts == shown.scripts
    assert seen.tags["svg"] == shown.tags["svg"]
    title = done.stdout.split("<title>", 1)[1].split("</title>", 1)[0]
    assert title == armed.split("<title>", 1)[1].split("</title>", 1)[0]


def test_figures_are_well_formed_and_hold_no_script(hostile, tmp_path):
    assert main(["figures", str(hostile), "-o", str(tmp_path / "figures"), "--format", "svg"]) == 0
    svgs = sorted((tmp_path / "figures").rglob("*.svg"))
    assert svgs
    for path in svgs:
        kinds = {element.tag.rpartition("}")[2] for element in ET.parse(path).iter()}
        assert not {"script", "img", "foreignObject", "iframe", "a"} & kinds, path
        for element in ET.parse(path).iter():
            assert not [name for name in element.attrib if name.startswith("on")]


@pytest.mark.parametrize(
    "sites",
    [
        ("../../x", "/abs/x", "a/b", ".hidden"),
        ("..", "."),
    ],
)
def test_figures_stay_in_their_folder(tmp_path, sites):
    store = store_of(tmp_path / "in", sites, ("ka",), "n1")
    output = tmp_path / "out" / "figures"
    assert main(["figures", str(store), "-o", str(output), "--format", "svg"]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["figures"]
    assert all(path.is_dir() for path in output.iterdir())
    assert len(list(output.iterdir())) == len(sites)


def test_tex_tables_run_no_command(tmp_path):
    names = (r"\input{/etc/passwd}", r"\write18{id}", r"a & b % c _ # $x^2$ {~}")
    store = store_of(tmp_path / "in", ("s",), names, "n1")
    assert main(["figures", str(store), "-o", str(tmp_path / "figures"), "--format", "svg"]) == 0
    texts = [path.read_text() for path in (tmp_path / "figures").glob("*.tex")]
    assert texts
    assert any("input" in text for text in texts)
    assert not any("\\input" in text or "\\write18" in text for text in texts)


ESCAPES = "\x1b[31mred\x1b]0;title\x07\x9b2Jend"
SITE = "s\x9b31m"
SHOWN = {
    "status": ["status"],
    "fit": ["fit", "--site", SITE],
    "coefficients": ["coefficients"],
    "predict": ["predict", "--site", SITE],
    "crossval": ["crossval", "--site", SITE],
    "roofline": ["roofline", "--site", SITE],
}


def steering(text: str) -> list[str]:
    """The lines that hold a control character: what a terminal would obey."""
    return [
        line
        for line in text.split("\n")
        if any(unicodedata.category(c) == "Cc" and c != "\t" for c in line)
    ]


def written_store(folder: Path, kernels: tuple[str, ...], node: str) -> Path:
    """A store of these names as another program may have written it: import refuses them."""
    from campaign.store.measurement import Measurement
    from dvfs.setting import Setting
    from tests.points import a_point

    made = []
    for (k, kernel), core, mem in product(enumerate(kernels), (1000, 1500, 2000), (500, 900)):
        time_s, energy_j = machine(k, core, mem)
        setting = Setting(float(core), float(mem))
        made.append(
            Measurement(
                point=a_point("import", site=SITE, label=kernel, params=PARAMS, setting=setting),
                status="ok",
                node=node,
                time_s=time_s,
                energy_j=energy_j,
                core_mhz_achieved=float(core),
                mem_mhz_achieved=float(mem),
                counts={"sp": 1e9 * (k + 1), "dram": 1e8 * (len(kernels) - k)},
            )
        )
    return stored(folder / "store", *made).root


@pytest.fixture(scope="module")
def steered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("steered")
    store = written_store(folder, tuple(f"{ESCAPES}{i}" for i in range(3)), ESCAPES)
    assert main(["fit", str(store), "--site", SITE]) == 0
    return store


@pytest.mark.parametrize("verb", SHOWN)
def test_no_name_steers_the_terminal(steered, verb, capsys):
    first, *rest = SHOWN[verb]
    capsys.readouterr()
    assert main([first, str(steered), *rest]) == 0
    said = capsys.readouterr()
    assert any(name in said.out for name in ("s\\x9b31m", "\\x1b[31mred"))
    assert steering(said.out) == []
    assert steering(said.err) == []


@pytest.mark.parametrize("verb", SHOWN)
def test_json_carries_names_as_escapes(steered, verb):
    first, *rest = SHOWN[verb]
    said = prints(first, steered, *rest, "--json")
    assert steering(said) == []
    assert any(SITE in text or ESCAPES in text for text in texts(json.loads(said)))


def texts(value: object) -> Iterator[str]:
    """Every text in a value from JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts(item)


def test_what_a_program_printed_does_not_steer_the_terminal(tmp_path, capsys):
    """A failed program's last output is kept in the store, and status prints it."""
    from campaign.store.measurement import Measurement
    from tests.points import a_point

    text = f"ended with 1; its last output: {ESCAPES}"
    failed = Measurement(point=a_point("command"), status="kernel failed", text=text)
    store = stored(tmp_path / "store", failed)
    capsys.readouterr()
    main(["status", str(store.root)])
    said = capsys.readouterr().out
    assert "its last output" in said
    assert steering(said) == []


def test_a_mistake_on_standard_error_is_one_line_whatever_it_names(tmp_path):
    path = tmp_path / "c.toml"
    hostile = "a\\nb\\u001b[31m"
    path.write_text(
        f'name = "{hostile}"\n[[sites]]\nsite = "{hostile}"\n[[kernels]]\nkernel = "idle"\n'
    )
    said = refuses("plan", path)
    numbers = [re.search(r"c\.toml:(\d+): ", line) for line in said.splitlines()]
    assert [number and number[1] for number in numbers] == ["1", "3"]
    assert steering(said.rstrip("\n")) == []
    assert os.linesep in said
