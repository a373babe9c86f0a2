"""Wrong usages of every verb: exit code 2 and one or two lines that say what is wrong, where, and
what to do."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from campaign.codesign.study_file import Study
from campaign.plan.campaign_file import Campaign
from campaign.plan.profile_file import Profile
from campaign.policy.policy_file import Policy
from campaign.profiles.profile import BUILT_IN_MAPS, CounterMap
from campaign.results import open_store
from campaign.results.rooflines import PlatformFile
from campaign.table.map_file import MAPPED_COLUMNS, TableMap
from campaign.verbs.command_line import main
from dvfs.input_files import FILE_KINDS, built_in_files
from kernels.registry import KERNELS
from sites.counters.group_file import CounterGroup
from sites.site_file import Site
from sites.site_reading import built_in_sites
from tests.campaign.test_wrong_files import CAMPAIGN, SITE
from tests.docs.pages import first_difference

MAPS = ", ".join(built_in_files(BUILT_IN_MAPS))
SITES = ", ".join(sorted(built_in_sites()))
TABLE = "site,kernel,core_mhz,mem_mhz,core_v,mem_v,time_s,energy_j\n"
PARTITIONS = '[partitions.board]\nscheduler = "local"\n'
SPACE = (
    CAMPAIGN[: CAMPAIGN.index("[[kernels]]")]
    + """[[kernels]]
kernel = "stencil"
params = { stencil = "j1d", size_1 = 64, steps = 4, tiling = "hexagonal" }
[kernels.space]
tile_t = [4, 5]
tile_1 = [8]
"""
)
FILES = {
    "s.toml": SITE,
    "intensity.toml": CAMPAIGN,
    "argv.toml": CAMPAIGN[: CAMPAIGN.index("[[kernels]]")]
    + '[[kernels]]\nkernel = "command"\nparams = { argv = "./x -n 4" }\n',
    "odd.toml": CAMPAIGN[: CAMPAIGN.index("[[kernels]]")]
    + '[[kernels]]\nkernel = "stencil"\nparams = { stencil = "j1d", size_1 = 64, steps = 4, '
    'tiling = "hexagonal", tile_t = 3, tile_1 = 8 }\n',
    "odd-space.toml": SPACE,
    "empty-range.toml": SPACE.replace("[4, 5]", "[4, 8]").replace("[8]", '"16 : tile_t"'),
    "memory-site.toml": SITE.replace('scheduler = "local"', 'scheduler = "slurm"\nmemory = "200"'),
    "memory.toml": CAMPAIGN.replace("s.toml", "memory-site.toml"),
    "jetson.toml": CAMPAIGN.replace("s.toml", "jetson"),
    "three.toml": CAMPAIGN.replace("repeats = 1", 'repaets = 1\nseed = "x"').replace(
        "sp_fma", "spfma"
    ),
    "partition.toml": CAMPAIGN.replace('"s.toml"', '"s.toml"\npartitions = ["bord"]'),
    "clocks.toml": CAMPAIGN + "[settings]\ncore_mhz = 852\n",
    "no-kernels.toml": CAMPAIGN[: CAMPAIGN.index("[[kernels]]")],
    "no-partitions-site.toml": SITE.replace(PARTITIONS, ""),
    "no-partitions.toml": CAMPAIGN.replace("s.toml", "no-partitions-site.toml"),
    "search.toml": CAMPAIGN + '[search]\nstrategy = "modle"\n',
    "random.toml": CAMPAIGN + '[settings]\nchoose = "random"\npairs = [[1, 2]]\n',
    "good.toml": "x = 1\n",
    "ghz-site.toml": SITE.replace("[1000, 2000]", "[1.4, 2.2]"),
    "khz-site.toml": SITE.replace("[1000, 2000]", "[1400000]"),
    "constant.toml": "[constants]\ntime_s = 5.0\n",
    "typed.toml": '[constants]\ntime_s = "fast"\n',
    "keep.toml": '[[keep]]\ncolumn = "site"\nvalues = ["none"]\n',
    "columns.toml": '[columns]\ncore_mhz = "f"\ntime = "t"\n',
    "factor.toml": '[columns]\ntime_s = { column = "t", factor = "ms" }\n',
    "profile.toml": 'kernel = "x"\ntime_s = 1.0\n[counts]\nsp = 1e9\n',
    "csv-site.toml": CAMPAIGN.replace('"s.toml"', '"two.csv"'),
    "page.html": "<!DOCTYPE html>\n<html></html>\n",
    "map.toml": '[columns]\ncore_mhz = "f"\n',
    "data.json": '[{"site": "a"}]',
    "sites-table.toml": CAMPAIGN.replace("[[sites]]", "[sites]"),
    "one.csv": f"{TABLE}jetson-tk1,k,1000,500,0.9,1,1,2\n",
    "unnamed.csv": "site,kernel,core_mhz,time_s,energy\na,k,1000,1,2\n",
    "two.csv": f"{TABLE}a,k,1000,500,0.9,1,1,2\nb,k,1000,500,0.9,1,1,2\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files of every kind, a store of one site and one of two."""
    path = tmp_path_factory.mktemp("usages")
    for name, text in FILES.items():
        (path / name).write_text(text)
    (path / "empty").mkdir()
    (path / "binary.dat").write_bytes(b"\x00\x01\xff")
    for name in ("one", "two"):
        assert main(["import", str(path / f"{name}.csv"), "--store", str(path / name)]) == 0
    return path


A_STORE = "name ... that campaign run or import created"
A_CAMPAIGN_FILE = "name a campaign file, which ends in .toml"
A_SITE_FILE = f"... site file (ending in .toml) or one of: {SITES}"
EXAMINED = "campaign doctor s.toml"
FORMATS = (
    "--from ... caliper, codecarbon, ear, geopm, kernel-tuner, likwid, perf-stat, perun, reframe, "
    "sacct, zeus"
)
COUNTER_MAPS = "likwid-mem-dp, ncu, nsys, nvprof-kepler, perf-generic, perf-intel"
SCHEMES = (
    "leave-one-setting-out, leave-one-core-clock-out, leave-one-memory-clock-out, holdout, "
    "kfold:K, leave-one-kernel-out, leave-one-node-out, leave-one-site-out, few:M, "
    "leave-one-variant-out, variants-kfold:K"
)
USAGES = {
    "status intensity.toml": f"intensity.toml: is a file, ...; {A_STORE}",
    "status missing": f"missing: ... (no such folder); {A_STORE}",
    "status ONE": f"ONE: ... (no such folder); did you mean 'one'? {A_STORE}",
    "--store one status": "--store ... verb; ... campaign VERB ... --store (campaign --help)",
    "demo one": "one: is a store; name a folder ...",
    "status empty": f"empty: is not a store; {A_STORE}",
    "status two.csv": f"two.csv: is a file, ...; {A_STORE}",
    "run s.toml": f"s.toml: is a site file, ... [[sites]], ... {EXAMINED}",
    "run intensity.toml --store two.csv": "--store: two.csv: exists ...; name a ... folder",
    "run intensity.toml --dashboard here": "--dashboard 'here': ... HOST:PORT, ...:8787 ...",
    "plan profile.toml": "profile.toml: is a profile file, ... --profile profile.toml",
    "plan map.toml": "map.toml: is a map file ...: campaign import TABLE --map map.toml --store S",
    "plan two.csv": f"two.csv: is not TOML; {A_CAMPAIGN_FILE}",
    "plan two": f"two: is a store, ...; {A_CAMPAIGN_FILE}",
    "plan binary.dat": f"binary.dat: is not text; {A_CAMPAIGN_FILE}",
    "plan csv-site.toml": f"csv-site.toml:5: sites[0].site: found 'two.csv', ...; {A_SITE_FILE}",
    "doctor two": f"found 'two', which is a folder; {A_SITE_FILE}",
    "next one --campaign s.toml --budget 1": f"--campaign: s.toml: is a site file, ... {EXAMINED}",
    "predict --space map.toml": "--space: map.toml: is a map file ... --map map.toml --store S",
    "crossval one --fitted-on one": "--fitted-on: ... the store itself, ...; ... --scheme",
    "crossval one --fitted-on s.toml": f"--fitted-on: s.toml: is a file, ...; {A_STORE}",
    "compare one s.toml": f"s.toml: is a file, not a store; {A_STORE}",
    "import page.html --store three": f"page.html: is HTML ...; ... CSV or Parquet, or {FORMATS}",
    "import two.csv --store three --map one": "--map: one: is a store, ...; name a map file ...",
    "profile good.toml=perf-intel": "good.toml: is a TOML file, ...; give FILE=MAP, ...",
    "profile two.csv=data.json": f"found 'data.json', ...; name a map file ... or one of: {MAPS}",
    "codesign s.toml": f"s.toml: is a site file, not a study file ... {EXAMINED}",
    "plan empty": "empty: is a directory; name a file in it",
    "plan intensity": "intensity: no such file; did you mean 'intensity.toml'? ...",
    "plan sites-table.toml": (
        "sites-table.toml:4: sites: found {'site': 's.toml'}; ... [[sites]] in place of [sites]"
    ),
    "plan intensity.toml --limit -1": "--limit: found -1; must be 0 or more",
    "plan intensty.toml": "intensty.toml: no such file; did you mean 'intensity.toml'? ...",
    "plan three.toml": (
        "three.toml:2: repaets: unknown key; did you mean 'repeats'? Known keys: kernels, name, "
        "part_of, protocol, repeats, retries, search, seed, settings, sites\n"
        "  three.toml:3: seed: found 'x'; must be a whole number\n"
        "  three.toml:9: kernels[0].kernel: unknown kernel 'spfma'; did you mean "
        f"'sp_fma'? Known: {', '.join(sorted(KERNELS))}"
    ),
    "plan odd.toml": "odd.toml:9: kernels[0].params.tile_t: found 3; ... even, such as 2 or 4",
    "plan odd-space.toml": (
        "odd-space.toml:11: kernels[0].space.tile_t: found 5; ... even, such as 4 or 6"
    ),
    "plan empty-range.toml": (
        "empty-range.toml:12: kernels[0].space.tile_1: ... '16 : tile_t' ... tile_t = 4: ... 4, "
        "... 16, ... step is 1; give a last value of 16 or more, or a negative step"
    ),
    "plan argv.toml": (
        'argv.toml:9: kernels[0].params.argv: found \'./x -n 4\'; ... such as ["./x", "-n", "4"]'
    ),
    "plan memory.toml": (
        "memory-site.toml:20: partitions.board.memory: found '200'; ... such as \"200 MB\""
    ),
    "plan jetson.toml": (
        "jetson.toml:5: sites[0].site: unknown site 'jetson'; did you mean 'jetson-tk1'? "
        f"{A_SITE_FILE}"
    ),
    "plan partition.toml": (
        "partition.toml:6: sites[0].partitions: ... 'bord'; did you mean 'board'? It has: board"
    ),
    "run jetson-tk1": (
        "jetson-tk1: is a built-in site, ... [[sites]], ... campaign doctor jetson-tk1"
    ),
    "plan clocks.toml": "clocks.toml:13: settings.core_mhz: found 852; ... a list of numbers",
    "plan no-kernels.toml": "no-kernels.toml: kernels: missing; ... [[kernels]]",
    "plan no-partitions.toml": "no-partitions-site.toml: ... missing; ... [partitions.NAME]",
    "plan intensity.toml --limit many": (
        "--limit: found 'many'; must be a whole number (campaign plan --help)"
    ),
    "plan intensity.toml --retry-failed": (
        "... --retry-failed; it is an option of run, tune (campaign plan --help)"
    ),
    "plan intensity.toml s.toml": "'s.toml' is one argument too many; ... (campaign plan --help)",
    "doctor jetson": f"unknown site 'jetson'; did you mean 'jetson-tk1'? {A_SITE_FILE}",
    "doctor intensity.toml": (
        "intensity.toml: is a campaign file, ...; ...: campaign run intensity.toml"
    ),
    "doctor s.toml --partition gpu": "s has no Slurm partition; leave --partition out",
    "import two --store three": "two: is a store; campaign export two --csv F ...",
    "import s.toml --store three": "s.toml: is a TOML file, not a table; --map ...",
    "import two.csv --store three --map s.toml": f"--map: s.toml: is a site file, ... {EXAMINED}",
    "import data.json --store three": f"data.json: is JSON, ...; ... CSV or Parquet, or {FORMATS}",
    "import two.csv": "missing: --store, ... (campaign import --help)",
    "export one": (
        "export: ... --csv, --parquet, --traces, --kernel-tuner, --extra-p, --crate, --netcdf"
    ),
    "export one --csv missing/x.csv": (
        "--csv: missing/x.csv: cannot be written (the folder missing ...); name another file"
    ),
    "fit two": "two: has 2 sites; name one: --site a or --site b",
    "fit one --site jetson": (
        "--site: unknown site 'jetson'; did you mean 'jetson-tk1'? Known: jetson-tk1"
    ),
    "fit one --model chio": (
        "--model: found 'chio'; did you mean 'choi'? Choices: auto, choi, choi+clock "
        "(campaign fit --help)"
    ),
    "fit one --voltage high": (
        "--voltage: found 'high'; ... one of: auto, known, unit, floor, free (campaign fit --help)"
    ),
    "fit one --max-slowdown 0.1": (
        "... --max-slowdown; it is an option of predict, policy (campaign fit --help)"
    ),
    "fit": "missing: S, the store: ... (campaign fit --help)",
    "coefficients two --site a": "two: has no fit of site 'a'; run: campaign fit two --site a",
    "crossval one --scheme few:x": "--scheme: few:M ... a whole number M, or few:all; found 'x'",
    "crossval one --scheme few:2 --time predicted": "--train and --time: not with --scheme few:M",
    "crossval one --scheme few:2 --robust": (
        "--model, --voltage, --robust and --fit: not with --scheme few:M, ..."
    ),
    "crossval one --new 2": "--new: needs --scheme few:M or few:all",
    "predict one --site jetson": "one: has no site 'jetson'; did you mean 'jetson-tk1'?",
    "crossval one --scheme holdot": (
        f"unknown scheme 'holdot'; did you mean 'holdout'? Known: {SCHEMES}"
    ),
    **{
        f"predict one --{words}": "one: has no fit ...; run: campaign fit one --site jetson-tk1"
        for words in ("objective energie", "profile s.toml")
    },
    "predict one --max-slowdown 5%": (
        "--max-slowdown: found '5%'; must be a number, such as 0.05 (campaign predict --help)"
    ),
    "predict one --fit": "--fit: no value; ... (campaign predict --help)",
    "predcit one": "unknown verb 'predcit'; did you mean 'predict'? (campaign --help)",
    "roofline": "roofline: name a store, ... --platform",
    "roofline one --setting 852MHz": "--setting: found '852MHz'; ... jetson-tk1 ...: 1000,500",
    "roofline --platform gtx-58": (
        "--platform: unknown platform 'gtx-58'; did you mean 'gtx-580'? Known: gtx-580, gtx-680, "
        "i7-950, omap-4460, i3-3217u, fermi-keckler"
    ),
    "report empty": f"empty: is not a store; {A_STORE}",
    "figures one --site jetson": (
        "--site: unknown site 'jetson'; did you mean 'jetson-tk1'? Known: jetson-tk1"
    ),
    "failures one --kernel nope": "--kernel: unknown kernel 'nope'; known: k",
    "failures one --node n1": "--node: unknown node 'n1'; known: none",
    **{
        f"tune intensity.toml --{name} {value}": (
            f"--{name}: only with --replay; ... set {name} under [search] in intensity.toml"
        )
        for name, value in (("budget", "5"), ("strategy", "model"), ("objective", "time"))
    },
    **{
        f"tune intensity.toml --{name} {value}": (
            f"--{name}: only with --replay; ... intensity.toml ...; leave it out"
        )
        for name, value in (("trials", "5"), ("problem", "n=4"), ("kernel", "k"), ("site", "s"))
    },
    "tune --replay one --budget 0": "--budget: found 0; must be 1 or more",
    "run intensity.toml --detach --submit": "--detach and --submit cannot be combined; ...",
    **{
        f"{verb} search.toml": (
            "search.toml:13: search.strategy: unknown strategy 'modle'; did you mean 'model'? "
            "Known: auto, model, neighbours, random, all"
        )
        for verb in ("plan", "run")
    },
    "plan intensity.toml --store nothere": f"--store: nothere: ... (no such folder); {A_STORE}",
    "plan intensity.toml --estimate": "--estimate: only with --json; ...",
    "plan random.toml": (
        'random.toml:14: settings.pairs: ... choose = "random"; set choose = "pairs", or ...'
    ),
    "doctor ghz-site.toml": (
        "ghz-site.toml:4: domains.core.frequencies_mhz: found 1.4; ... 10 to 10,000 MHz; give MHz, "
        "not GHz"
    ),
    "doctor khz-site.toml": (
        "khz-site.toml:4: domains.core.frequencies_mhz: found 1.4e+06; ... 10 to 10,000 MHz; give "
        "MHz, not kHz"
    ),
    "predict two --site a --site b": "--site: given twice; ... (campaign predict --help)",
    "predict --site gtx-980": (
        "missing: the store (S). ...: campaign predict --site gtx-980 --space CAMPAIGN.toml"
    ),
    "predict --space intensity.toml --objective edp": (
        "--objective: found 'edp'; without a store only time or energy ...; leave it out, or ..."
    ),
    "compare one two --fail-above -1": "--fail-above: found -1; must be 0 or more, such as 2.5",
    "import two.csv --store three --map constant.toml": (
        "--map: constant.toml: constants.time_s: ... two.csv has a column time_s; leave ... out ..."
    ),
    "import two.csv --store three --map typed.toml": (
        "typed.toml:2: constants.time_s: found 'fast'; must be a number, without quotes"
    ),
    "import two.csv --store three --map keep.toml": (
        "two.csv: none of its 2 rows ... [[keep]] in keep.toml; correct that rule"
    ),
    "import two.csv --store three --map columns.toml": (
        "columns.toml:3: columns.time: unknown column 'time'; ... "
        f"{', '.join(MAPPED_COLUMNS)} and n_CLASS"
    ),
    "import two.csv --store three --map factor.toml": (
        "factor.toml:2: columns.time_s.factor: found 'ms'; must be a number, without quotes"
    ),
    "import unnamed.csv --store three": (
        "unnamed.csv: no column energy_j or power_w; ... site, kernel, core_mhz, time_s, energy: "
        "... [columns] ... [constants]\n  unnamed.csv: unknown column 'energy'; ... [columns] ... "
        'unknown = "label" ...'
    ),
    "import two.csv --store three --traces empty": (
        "--traces: empty: is not a folder of traces; ... campaign export --traces ..."
    ),
    "crossval one --scheme few:3 --new 5": "--new: found 5; with few:3 it must be 1 to 3",
    "crossval one --scheme few:all": "--scheme: few:all needs --new Q, ...",
    "crossval one --scheme leave-one-out": (
        "unknown scheme 'leave-one-out'; did you mean 'leave-one-setting-out'? Known: " + SCHEMES
    ),
    "chain 936": "SIZES: found one number; ..., such as 936,1008 ...",
    "chain 936x1008": "SIZES: found '936x1008'; must be a whole number; ... commas",
    "chain 936,1008 --on-chip 0": "--on-chip: found 0; must be from 1 to 1000000000",
    "compare one": "one: found one store; ... (--after 2026-03-01) ... (1 measurements)",
    "profile two.csv=ncuu": (
        f"unknown counter map 'ncuu'; did you mean 'ncu'? ... or one of: {COUNTER_MAPS}"
    ),
    "profile s.toml": f"found 's.toml'; must be FILE=MAP with a map of: {COUNTER_MAPS}",
    "compare one empty": f"empty: is not a store; {A_STORE}",
    "compare one two": "one and two have no ... (... jetson-tk1; a, b); name two stores ...",
    "tune --replay one --detach": "--replay: ...; leave out --detach and --submit",
    "demo one.csv": "one.csv: cannot be created (File exists); name another folder",
    "--verison": "unknown option --verison; did you mean '--version'? (campaign --help)",
}
"""Words of a command -> its answer after ``campaign: ``, or after ``campaign VERB: `` where it ends
with the verb's help. ``...`` stands for any text within a line."""


@pytest.mark.parametrize("usage", USAGES)
def test_a_wrong_usage_is_answered(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], usage: str
) -> None:
    monkeypatch.chdir(folder)
    try:
        code = main(shlex.split(usage))
    except SystemExit as end:
        code = end.code
    printed = capsys.readouterr()
    answer = printed.err.replace(f"{folder}{os.sep}", "")
    verb, expected = usage.partition(" ")[0], USAGES[usage]
    of = f"campaign {verb}" if expected.endswith(f"(campaign {verb} --help)") else "campaign"
    assert first_difference(f"{of}: {expected}".splitlines(), answer) is None
    assert (code, printed.out) == (2, "")


def test_without_a_verb_the_verbs_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    printed = capsys.readouterr()
    assert "    predict " in printed.out
    assert printed.err == ""


def test_kinds_of_files_have_the_keys_of_their_models() -> None:
    models = (
        *(Campaign, Site, TableMap, Profile, Study),
        *(PlatformFile, Policy, CounterMap, CounterGroup),
    )
    keys = {model.__name__: frozenset(model.model_fields) for model in models}
    assert keys == {name: kind.keys for name, kind in FILE_KINDS.items()}


def test_the_only_site_of_a_store_need_not_be_named(folder: Path) -> None:
    assert open_store(folder / "one").only_site() == "jetson-tk1"
