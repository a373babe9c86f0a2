"""Wrong site and campaign files: one clear message with file, line and remedy, exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import prints, refuses

SITE = """\
name = "s"

[domains.core]
frequencies_mhz = [1000, 2000]
voltage_v = [[1000, 0.8], [2000, 1.0]]

[domains.mem]
frequencies_mhz = [500, 900]
voltage_v = [[500, 0.8], [900, 1.0]]

[clocks]
control = "simulated"

[classes]
sp = { domain = "core" }
dram = { domain = "mem" }

[partitions.board]
scheduler = "local"

[simulated]
energy_pj_per_v2 = { sp = 27.3, dram = 369.5 }
rate_per_cycle = { sp = 300.0, dram = 14.0 }
leakage_core_w_per_v = 2.9
leakage_mem_w_per_v = 3.8
misc_w = 0.1
"""

CAMPAIGN = """\
name = "c"
repeats = 1

[[sites]]
site = "s.toml"

[[kernels]]
kernel = "sp_fma"
[kernels.params]
level = "dram"
ops_per_word = [1, 2]
"""

# (what is wrong, the file, text to replace, its replacement, words that the message must hold)
WRONG = [
    ("unknown key", "c", "repeats = 1", "repaets = 1", ["c.toml:2", "repaets", "'repeats'"]),
    (
        "wrong type",
        "c",
        "repeats = 1",
        'repeats = "1"',
        ["c.toml:2", "repeats", "'1'", "whole number"],
    ),
    (
        "several nodes of a simulated machine",
        "s",
        'name = "s"\n',
        'name = "s"\nnodes_per_point = 2\n',
        ["s.toml:2", "nodes_per_point", "simulated"],
    ),
    ("zero repeats", "c", "repeats = 1", "repeats = 0", ["c.toml:2", "greater than or equal"]),
    ("unknown kernel", "c", '"sp_fma"', '"spfma"', ["c.toml:8", "spfma", "sp_fma"]),
    ("unknown parameter", "c", "level =", "lvel =", ["c.toml:10", "lvel", "known"]),
    ("wrong parameter value", "c", '"dram"', '"l9"', ["c.toml:10", "'l9'", "'dram'"]),
    ("empty sweep", "c", "[1, 2]", "[]", ["c.toml:7", "empty", "at least one value"]),
    (
        "excludes that leave nothing",
        "c",
        "[1, 2]\n",
        "[1, 2]\n[[kernels.exclude]]\nops_per_word = 1\n[[kernels.exclude]]\nops_per_word = 2\n",
        ["c.toml:7", "empty", "exclude removes every combination; exclude fewer"],
    ),
    (
        "exclude of an unknown parameter",
        "c",
        "[1, 2]\n",
        "[1, 2]\n[[kernels.exclude]]\nops = 1\n",
        ["c.toml:13", "ops", "did you mean 'ops_per_word'? Known here"],
    ),
    (
        "zip of unequal lists",
        "c",
        "[1, 2]\n",
        "[1, 2]\n[[kernels.zip]]\nthreads = [1, 2]\nlevel = ['l1']\n",
        ["different lengths", "1, 2"],
    ),
    (
        "illegal pair",
        "c",
        "repeats = 1",
        "repeats = 1\nsettings = { choose = 'pairs', pairs = [[1000, 501]] }",
        ["c.toml:3", "core 1000, memory 501", "nearest", "memory 500"],
    ),
    (
        "too many random settings",
        "c",
        "repeats = 1",
        "repeats = 1\nsettings = { choose = 'random', count = 5 }",
        ["c.toml:3", "4 legal"],
    ),
    ("a point planned twice", "c", "[1, 2]", "[1, 1]", ["planned twice", "list each value"]),
    ("unknown site", "c", '"s.toml"', '"jetson"', ["c.toml:5", "jetson", "jetson-tk1"]),
    (
        "unreadable path",
        "c",
        '"s.toml"',
        '"t.toml"',
        ["c.toml:5: sites[0].site: no such file", "t.toml", "relative to the campaign file"],
    ),
    (
        "pairs that nothing uses",
        "c",
        "repeats = 1",
        "repeats = 1\nsettings = { pairs = [[1000, 500]] }",
        ["c.toml:3: settings.pairs: only used with choose = 'pairs'", "remove pairs"],
    ),
    (
        "a count that nothing uses, of one site",
        "c",
        '"s.toml"',
        '"s.toml"\nsettings = { choose = "all", count = 2 }',
        ["c.toml:6: sites[0].settings.count: only used with choose = 'random'", "remove count"],
    ),
    (
        "a seed that nothing uses",
        "c",
        "repeats = 1",
        "repeats = 1\nsettings = { choose = 'all', seed = 0 }",
        ["c.toml:3: settings.seed: only used with choose = 'random'", "remove seed"],
    ),
    (
        "a value in place of a list",
        "s",
        "[1000, 2000]",
        "1000",
        ["s.toml:4", "found 1000; must be a list of numbers"],
    ),
    (
        "a string in place of a list of words",
        "c",
        '"s.toml"',
        '"s.toml"\npartitions = "gpu"',
        ["c.toml:6", "found 'gpu'", 'must be a list of words, such as ["gpu"]'],
    ),
    (
        "a name with a space",
        "c",
        '"s.toml"',
        '"s.toml"\npartitions = ["a b"]',
        ["c.toml:6: sites[0].partitions[0]: found 'a b'; must be 1 to 64 letters, digits"],
    ),
    (
        "a clock control without frequencies",
        "s",
        SITE[SITE.index("[domains.core]") : SITE.index("[classes]")],
        '[clocks]\ncontrol = "slurm"\n\n',
        ["s.toml:4: clocks.control: control 'slurm' has no clocks to set; list [domains.core]"],
    ),
    (
        "a price without its currency",
        "s",
        "[classes]",
        "[energy]\nprice_per_kwh = 0.3\n\n[classes]",
        ["s.toml", "energy.currency", "price_per_kwh"],
    ),
    (
        "a price that is none",
        "s",
        "[classes]",
        '[energy]\nprice_per_kwh = 0\ncurrency = "EUR"\n\n[classes]',
        ["s.toml", "energy.price_per_kwh"],
    ),
    (
        "a price without its source",
        "s",
        "[classes]",
        '[energy]\nprice_per_kwh = 0.3\ncurrency = "EUR"\nprice_year = 2026\n\n[classes]',
        ["s.toml:14: energy.price_source", "price_per_kwh"],
    ),
    (
        "a price of no year",
        "s",
        "[classes]",
        "[energy]\nprice_year = 26\n\n[classes]",
        ["s.toml:15: energy.price_year: found 26"],
    ),
    (
        "a source of no factor",
        "s",
        "[classes]",
        '[energy]\nco2e_source = "agency"\n\n[classes]',
        ["s.toml:14: energy.co2e_kg_per_kwh", "co2e_source"],
    ),
    (
        "prices of 23 hours",
        "s",
        "[classes]",
        f"[energy]\nprice_per_kwh = {[0.3] * 23}\n\n[classes]",
        ["s.toml:15: energy.price_per_kwh", "23", "24"],
    ),
    (
        "an hour without a number",
        "s",
        "[classes]",
        f"[energy]\nco2e_kg_per_kwh = {[0.3] * 20 + [-0.1] + [0.3] * 3}\n\n[classes]",
        ["s.toml:15: energy.co2e_kg_per_kwh[20]: found -0.1"],
    ),
    (
        "hours of no time zone",
        "s",
        "[classes]",
        f'[energy]\nco2e_kg_per_kwh = {[0.3] * 24}\nco2e_source = "agency"\nco2e_year = 2024\n\n'
        "[classes]",
        ["s.toml:14: energy.utc_offset_h", "co2e_kg_per_kwh"],
    ),
    (
        "a time zone of no hours",
        "s",
        "[classes]",
        "[energy]\nutc_offset_h = 1\n\n[classes]",
        ["s.toml:15: energy.utc_offset_h"],
    ),
    (
        "an unknown way to know the power conversion's loss",
        "s",
        "[classes]",
        '[metering]\npower_conversion = "guessed"\n\n[classes]',
        ["s.toml:15: metering.power_conversion", "guessed", "loss measured"],
    ),
    (
        "unknown partition",
        "c",
        '"s.toml"',
        '"s.toml"\npartitions = ["gpu"]',
        ["c.toml:6", "gpu", "board"],
    ),
    ("not TOML", "c", "repeats = 1", "repeats 1", ["c.toml", "not TOML", "line 2"]),
    (
        "no kernels",
        "c",
        CAMPAIGN[CAMPAIGN.index("[[kernels]]") :],
        "",
        ["kernels: missing; add a table [[kernels]]"],
    ),
    ("a class without a price", "c", 'level = "dram"', 'level = "l2"', ["l2", "s does not have"]),
    (
        "missing voltage",
        "s",
        "[[1000, 0.8], [2000, 1.0]]",
        "[[1000, 0.8]]",
        ["s.toml:5", "2000 MHz", "[MHz, V]"],
    ),
    ("millivolts", "s", "[2000, 1.0]", "[2000, 1000.0]", ["s.toml:5", "1000 V", "millivolts"]),
    ("negative frequency", "s", "[1000, 2000]", "[-1000, 2000]", ["s.toml:4", "greater than 0"]),
    ("unknown control", "s", '"simulated"', '"simulatedd"', ["s.toml:12", "simulatedd", "fixed"]),
    (
        "unknown meter",
        "s",
        "[clocks]",
        '[[meters]]\nkind = "watt"\n[clocks]',
        ["s.toml:12", "watt", "powercap"],
    ),
    (
        "no partitions",
        "s",
        '[partitions.board]\nscheduler = "local"\n',
        "",
        ["partitions", "missing"],
    ),
    ("unknown scheduler", "s", '"local"', '"pbs"', ["s.toml:19", "'pbs'", "slurm"]),
    ("clocks that nothing sets", "s", '"simulated"', '"fixed"', ["s.toml:12", "fixed", "another"]),
]


def write_files(folder: Path, which: str = "", old: str = "", new: str = "") -> Path:
    """A right pair of files, with one text of one of them replaced."""
    texts = {"s": SITE, "c": CAMPAIGN}
    if which:
        assert old in texts[which]
        texts[which] = texts[which].replace(old, new, 1)
    for name, text in texts.items():
        (folder / f"{name}.toml").write_text(text)
    return folder / "c.toml"


def test_the_right_files_are_right(tmp_path):
    assert "8 points" in prints("plan", write_files(tmp_path))


@pytest.mark.parametrize(
    ("which", "old", "new", "words"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG]
)
def test_wrong_files(tmp_path, which, old, new, words):
    path = write_files(tmp_path, which, old, new)
    message = refuses("plan", path)
    for word in words:
        assert word in message
    assert "Traceback" not in message
    assert len(message.strip().splitlines()) <= 2


def test_mistakes_in_all_parts_of_both_files_are_named_at_once(tmp_path):
    path = write_files(tmp_path, "c", "repeats = 1", "repaets = 1\nseed = true")
    text = path.read_text().replace("[1, 2]", '"x"').replace('"dram"', '"l9"')
    path.write_text(text + '[[sites]]\nsite = "t.toml"\n')
    site = SITE.replace("[[1000, 0.8], [2000, 1.0]]", "[[1000, 0.8]]").replace('"local"', '"pbs"')
    (tmp_path / "s.toml").write_text(site)
    lines = refuses("plan", path).strip().splitlines()
    of_campaign = [f"c.toml:{line}: " for line in (2, 3, 11, 12, 14)]
    for place in (*of_campaign, "s.toml:5: ", "s.toml:19: "):
        assert any(place in line for line in lines), place


CLOCKS = 'name = "s"\n[domains.core]\nfrequencies_mhz = [1000]\n[clocks]\n'
METER = 'name = "s"\n[[meters]]\nkind = "{}"\n[meters.options]\n'
WRONG_OPTIONS = [
    (CLOCKS + 'control = "cpufreq"\noptions = { cpu = "all" }', "s.toml:6: clocks.options.cpu: "),
    (CLOCKS + 'control = "cpufreq"\n[clocks.options]\ncpus = 4', "s.toml:7: clocks.options.cpus: "),
    (CLOCKS + 'control = "slurm"\n[clocks.options]\nx = 4', "s.toml:7: clocks.options.x: "),
    (METER.format("powercap") + 'zone = "p"', "s.toml:5: meters[0].options.zone: "),
    (METER.format("ipmi") + "period_s = 0", "s.toml:5: meters[0].options.period_s: "),
    (METER.format("nvml") + "devices = 0", "s.toml:5: meters[0].options.devices: "),
    (METER.format("recorded") + "channels = {}", "s.toml:4: meters[0].options: path is a CSV file"),
]


@pytest.mark.parametrize(("site", "place"), WRONG_OPTIONS)
def test_a_wrong_option_of_a_meter_or_control(tmp_path, site, place):
    path = write_files(tmp_path)
    scheduler = "slurm" if "slurm" in site else "local"
    text = f'{site}\n[partitions.board]\nscheduler = "{scheduler}"\n'
    (tmp_path / "s.toml").write_text(text)
    message = refuses("plan", path)
    assert place in message
    assert "; " in message.partition(place)[2]


def test_a_memory_clock_that_slurm_cannot_set(tmp_path):
    path = write_files(tmp_path, "s", '"simulated"', '"slurm"')
    text = (tmp_path / "s.toml").read_text()
    (tmp_path / "s.toml").write_text(text[: text.index("[simulated]")])
    message = refuses("plan", path)
    assert "s.toml:7: domains.mem: the control 'slurm' sets no memory clock of a CPU" in message


CPU = CLOCKS.replace("[1000]\n", "[1000, 2000]\n{}\n") + 'control = "cpufreq"\n'
TWICE = [
    (
        CPU.format("voltage_v = [[1000, 0.8], [2000, 1], [1000, 0.9]]"),
        "s.toml:4: domains.core.volt",
    ),
    (
        CPU.format("[domains.uncore]\nfrequencies_mhz = [1200, 1200]"),
        "s.toml:5: domains.uncore.freq",
    ),
    (
        CPU.format("[domains.mem]\nfrequencies_mhz = [800]")
        + "[[legal]]\nmem_mhz = 800\ncore_mhz = [1000]\n" * 2,
        "s.toml:12: legal[1].mem_mhz: found 800 MHz twice",
    ),
    (
        CLOCKS + 'control = "cpufreq"\n[classes]\n'
        'sp = { domain = "core", counted_as = ["l2"] }\n'
        'dram = { domain = "mem", counted_as = ["l2"] }\n',
        "s.toml:8: classes.dram.counted_as: 'l2' is counted as 'sp' already",
    ),
]


@pytest.mark.parametrize(("site", "place"), TWICE)
def test_what_is_given_twice_in_a_site_file_is_no_choice_of_the_last(tmp_path, site, place):
    path = write_files(tmp_path)
    (tmp_path / "s.toml").write_text(f"{site}[partitions.board]\n")
    assert place in refuses("plan", path)


@pytest.mark.parametrize("bad", ["missing.toml", "."])
def test_unreadable_campaign_files(tmp_path, bad):
    assert str(tmp_path) in refuses("plan", tmp_path / bad)


def test_a_file_that_is_not_text(tmp_path):
    (tmp_path / "c.toml").write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in refuses("plan", tmp_path / "c.toml")
