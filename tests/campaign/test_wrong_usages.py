"""Wrong usages of every verb: exit code 2 and one or two lines that say what is wrong and what to
do. The whole text is compared."""

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


USAGES = {
    "status intensity.toml": (
        "campaign: intensity.toml: is a file, not a store; name a folder that campaign "
        "run or import created"
    ),
    "status missing": (
        "campaign: missing: is not a store (no such folder); name one that campaign run "
        "or import created"
    ),
    "status ONE": (
        "campaign: ONE: is not a store (no such folder); did you mean 'one'? name one that "
        "campaign run or import created"
    ),
    "--store one status": (
        "campaign: --store stands before the verb; write it behind: campaign VERB ... --store "
        "(campaign --help)"
    ),
    "demo one": "campaign: one: is a store; name a folder for the demo's files",
    "status empty": (
        "campaign: empty: is not a store; name a folder that campaign run or import created"
    ),
    "status two.csv": (
        "campaign: two.csv: is a file, not a store; name a folder that campaign run or "
        "import created"
    ),
    "run s.toml": (
        "campaign: s.toml: is a site file, not a campaign file; name it in a campaign "
        "file, under [[sites]], or examine it: campaign doctor s.toml"
    ),
    "run intensity.toml --store two.csv": (
        "campaign: --store: two.csv: exists and is not a store; name a new or empty folder"
    ),
    "run intensity.toml --dashboard here": (
        "campaign: --dashboard 'here': must be HOST:PORT, such as 127.0.0.1:8787 "
        "(0.0.0.0:8787 listens on every interface)"
    ),
    "plan profile.toml": (
        "campaign: profile.toml: is a profile file, not a campaign file; use it: "
        "campaign predict S --profile profile.toml"
    ),
    "plan map.toml": (
        "campaign: map.toml: is a map file of a table, not a campaign file; use it: "
        "campaign import TABLE --map map.toml --store S"
    ),
    "plan two.csv": ("campaign: two.csv: is not TOML; name a campaign file, which ends in .toml"),
    "plan two": (
        "campaign: two: is a store, not a campaign file; name a campaign file, which ends in .toml"
    ),
    "plan binary.dat": (
        "campaign: binary.dat: is not text; name a campaign file, which ends in .toml"
    ),
    "plan csv-site.toml": (
        "campaign: csv-site.toml:5: sites[0].site: found 'two.csv', which is a file whose name "
        f"does not end in .toml; name a site file (ending in .toml) or one of: {SITES}"
    ),
    "doctor two": (
        "campaign: found 'two', which is a folder; name a site file (ending in .toml) or one of: "
        f"{SITES}"
    ),
    "next one --campaign s.toml --budget 1": (
        "campaign: --campaign: s.toml: is a site file, not a campaign file; name it in a campaign "
        "file, under [[sites]], or examine it: campaign doctor s.toml"
    ),
    "predict --space map.toml": (
        "campaign: --space: map.toml: is a map file of a table, not a campaign file; use it: "
        "campaign import TABLE --map map.toml --store S"
    ),
    "crossval one --fitted-on one": (
        "campaign: --fitted-on: names the store itself, whose measurements would be fitted on and "
        "predicted; name another store, or a --scheme"
    ),
    "crossval one --fitted-on s.toml": (
        "campaign: --fitted-on: s.toml: is a file, not a store; name a folder that campaign run or "
        "import created"
    ),
    "compare one s.toml": (
        "campaign: s.toml: is a file, not a store; name a folder that campaign run or import "
        "created"
    ),
    "import page.html --store three": (
        "campaign: page.html: is HTML or XML, and no table; save it as CSV or Parquet, or --from "
        "one of caliper, codecarbon, ear, geopm, kernel-tuner, likwid, perf-stat, perun, reframe, "
        "sacct, zeus"
    ),
    "import two.csv --store three --map one": (
        "campaign: --map: one: is a store, not a map file of a table; name a map file of a table, "
        "which ends in .toml"
    ),
    "profile good.toml=perf-intel": (
        "campaign: good.toml: is a TOML file, not the output of a profiler; give FILE=MAP, the map "
        "last"
    ),
    "profile two.csv=data.json": (
        "campaign: found 'data.json', which is a file whose name does not end in .toml; name a map "
        f"file (ending in .toml) or one of: {MAPS}"
    ),
    "codesign s.toml": (
        "campaign: s.toml: is a site file, not a study file of chips; name it in a campaign file, "
        "under [[sites]], or examine it: campaign doctor s.toml"
    ),
    "plan empty": ("campaign: empty: is a directory; name a file in it"),
    "plan intensity": (
        "campaign: intensity: no such file; did you mean 'intensity.toml'? check the path"
    ),
    "plan sites-table.toml": (
        "campaign: sites-table.toml:4: sites: found {'site': 's.toml'}; write [[sites]] in place "
        "of [sites]"
    ),
    "plan intensity.toml --limit -1": "campaign: --limit: found -1; must be 0 or more",
    "plan intensty.toml": (
        "campaign: intensty.toml: no such file; did you mean 'intensity.toml'? check the path"
    ),
    "plan three.toml": (
        "campaign: three.toml:2: repaets: unknown key; did you mean 'repeats'? Known "
        "keys: kernels, name, part_of, protocol, repeats, retries, search, seed, settings, sites\n"
        "  three.toml:3: seed: found 'x'; must be a whole number\n"
        "  three.toml:9: kernels[0].kernel: unknown kernel 'spfma'; did you mean "
        f"'sp_fma'? Known: {', '.join(sorted(KERNELS))}"
    ),
    "plan odd.toml": (
        "campaign: odd.toml:9: kernels[0].params.tile_t: found 3; with hexagonal tiling it must "
        "be even, such as 2 or 4"
    ),
    "plan odd-space.toml": (
        "campaign: odd-space.toml:11: kernels[0].space.tile_t: found 5; with hexagonal tiling it "
        "must be even, such as 4 or 6"
    ),
    "plan empty-range.toml": (
        "campaign: empty-range.toml:12: kernels[0].space.tile_1: the range '16 : tile_t' has no "
        "value with tile_t = 4: its last, 4, is below its first, 16, and its step is 1; give a "
        "last value of 16 or more, or a negative step"
    ),
    "plan argv.toml": (
        "campaign: argv.toml:9: kernels[0].params.argv: found './x -n 4'; must be a list "
        'of words, such as ["./x", "-n", "4"]'
    ),
    "plan memory.toml": (
        "campaign: memory-site.toml:20: partitions.board.memory: found '200'; must be a "
        'number and a unit, such as "200 MB"'
    ),
    "plan jetson.toml": (
        "campaign: jetson.toml:5: sites[0].site: unknown site 'jetson'; did you mean "
        f"'jetson-tk1'? Name a site file (ending in .toml) or one of: {SITES}"
    ),
    "plan partition.toml": (
        "campaign: partition.toml:6: sites[0].partitions: s has no partition 'bord'; did "
        "you mean 'board'? It has: board"
    ),
    "run jetson-tk1": (
        "campaign: jetson-tk1: is a built-in site, not a campaign file; name it in a campaign "
        "file, under [[sites]], or examine it: campaign doctor jetson-tk1"
    ),
    "plan clocks.toml": (
        "campaign: clocks.toml:13: settings.core_mhz: found 852; must be a list of numbers"
    ),
    "plan no-kernels.toml": (
        "campaign: no-kernels.toml: kernels: missing; add a table [[kernels]]"
    ),
    "plan no-partitions.toml": (
        "campaign: no-partitions-site.toml: partitions: missing; add a table [partitions.NAME]"
    ),
    "plan intensity.toml --limit many": (
        "campaign plan: --limit: found 'many'; must be a whole number (campaign plan --help)"
    ),
    "plan intensity.toml --retry-failed": (
        "campaign plan: plan has no option --retry-failed; it is an option of run, tune "
        "(campaign plan --help)"
    ),
    "plan intensity.toml s.toml": (
        "campaign plan: 's.toml' is one argument too many; leave it out (campaign plan --help)"
    ),
    "doctor jetson": (
        "campaign: unknown site 'jetson'; did you mean 'jetson-tk1'? Name a site file "
        f"(ending in .toml) or one of: {SITES}"
    ),
    "doctor intensity.toml": (
        "campaign: intensity.toml: is a campaign file, not a site file; measure its "
        "points: campaign run intensity.toml"
    ),
    "doctor s.toml --partition gpu": ("campaign: s has no Slurm partition; leave --partition out"),
    "import two --store three": (
        "campaign: two: is a store; campaign export two --csv F writes its table"
    ),
    "import s.toml --store three": (
        "campaign: s.toml: is a TOML file, not a table; --map takes a map file"
    ),
    "import two.csv --store three --map s.toml": (
        "campaign: --map: s.toml: is a site file, not a map file of a table; name it in a "
        "campaign file, under [[sites]], or examine it: campaign doctor s.toml"
    ),
    "import data.json --store three": (
        "campaign: data.json: is JSON, and no table; save it as CSV or Parquet, or --from one of "
        "caliper, codecarbon, ear, geopm, kernel-tuner, likwid, perf-stat, perun, reframe, sacct, "
        "zeus"
    ),
    "import two.csv": (
        "campaign import: missing: --store, the store to import into (campaign import --help)"
    ),
    "export one": (
        "campaign: export: name what to write, by one of --csv, --parquet, --traces, "
        "--kernel-tuner, --extra-p, --crate, --netcdf"
    ),
    "export one --csv missing/x.csv": (
        "campaign: --csv: missing/x.csv: cannot be written (the folder missing does not exist); "
        "name another file"
    ),
    "fit two": ("campaign: two: has 2 sites; name one: --site a or --site b"),
    "fit one --site jetson": (
        "campaign: --site: unknown site 'jetson'; did you mean 'jetson-tk1'? Known: jetson-tk1"
    ),
    "fit one --model chio": (
        "campaign fit: --model: found 'chio'; did you mean 'choi'? Choices: auto, choi, "
        "choi+clock (campaign fit --help)"
    ),
    "fit one --voltage high": (
        "campaign fit: --voltage: found 'high'; must be one of: auto, known, unit, floor, free "
        "(campaign fit --help)"
    ),
    "fit one --max-slowdown 0.1": (
        "campaign fit: fit has no option --max-slowdown; it is an option of predict, policy "
        "(campaign fit --help)"
    ),
    "fit": (
        "campaign fit: missing: S, the store: a folder that campaign run or import created "
        "(campaign fit --help)"
    ),
    "coefficients two --site a": (
        "campaign: two: has no fit of site 'a'; run: campaign fit two --site a"
    ),
    "crossval one --scheme few:x": (
        "campaign: --scheme: few:M needs a whole number M, or few:all; found 'x'"
    ),
    "crossval one --scheme few:2 --time predicted": (
        "campaign: --train and --time: not with --scheme few:M"
    ),
    "crossval one --scheme few:2 --robust": (
        "campaign: --model, --voltage, --robust and --fit: not with --scheme few:M, which judges "
        "the picks of campaign predict"
    ),
    "crossval one --new 2": "campaign: --new: needs --scheme few:M or few:all",
    "predict one --site jetson": (
        "campaign: one: has no site 'jetson'; did you mean 'jetson-tk1'?"
    ),
    "crossval one --scheme holdot": (
        "campaign: unknown scheme 'holdot'; did you mean 'holdout'? Known: "
        "leave-one-setting-out, leave-one-core-clock-out, leave-one-memory-clock-out, holdout, "
        "kfold:K, leave-one-kernel-out, "
        "leave-one-node-out, leave-one-site-out, few:M, leave-one-variant-out, variants-kfold:K"
    ),
    "predict one --objective energie": (
        "campaign: one: has no fit of site 'jetson-tk1'; run: campaign fit one --site jetson-tk1"
    ),
    "predict one --max-slowdown 5%": (
        "campaign predict: --max-slowdown: found '5%'; must be a number, such as 0.05 "
        "(campaign predict --help)"
    ),
    "predict one --profile s.toml": (
        "campaign: one: has no fit of site 'jetson-tk1'; run: campaign fit one --site jetson-tk1"
    ),
    "predict one --fit": (
        "campaign predict: --fit: no value; write one after it (campaign predict --help)"
    ),
    "predcit one": "campaign: unknown verb 'predcit'; did you mean 'predict'? (campaign --help)",
    "roofline": ("campaign: roofline: name a store, or a paper's machine with --platform"),
    "roofline one --setting 852MHz": (
        "campaign: --setting: found '852MHz'; must be one that jetson-tk1 was measured at: 1000,500"
    ),
    "roofline --platform gtx-58": (
        "campaign: --platform: unknown platform 'gtx-58'; did you mean 'gtx-580'? Known: "
        "gtx-580, gtx-680, i7-950, omap-4460, i3-3217u, fermi-keckler"
    ),
    "report empty": (
        "campaign: empty: is not a store; name a folder that campaign run or import created"
    ),
    "figures one --site jetson": (
        "campaign: --site: unknown site 'jetson'; did you mean 'jetson-tk1'? Known: jetson-tk1"
    ),
    "failures one --kernel nope": "campaign: --kernel: unknown kernel 'nope'; known: k",
    "failures one --node n1": "campaign: --node: unknown node 'n1'; known: none",
    **{
        f"tune intensity.toml --{name} {value}": (
            f"campaign: --{name}: only with --replay; in a search, set {name} under [search] in "
            "intensity.toml"
        )
        for name, value in (("budget", "5"), ("strategy", "model"), ("objective", "time"))
    },
    **{
        f"tune intensity.toml --{name} {value}": (
            f"campaign: --{name}: only with --replay; a search takes all that intensity.toml "
            "declares; leave it out"
        )
        for name, value in (("trials", "5"), ("problem", "n=4"), ("kernel", "k"), ("site", "s"))
    },
    "tune --replay one --budget 0": "campaign: --budget: found 0; must be 1 or more",
    "run intensity.toml --detach --submit": (
        "campaign: --detach and --submit cannot be combined; --detach runs the driver here, "
        "--submit runs it as a Slurm job"
    ),
    **{
        f"{verb} search.toml": (
            "campaign: search.toml:13: search.strategy: unknown strategy 'modle'; did you mean "
            "'model'? Known: auto, model, neighbours, random, all"
        )
        for verb in ("plan", "run")
    },
    "plan intensity.toml --store nothere": (
        "campaign: --store: nothere: is not a store (no such folder); name one that campaign run "
        "or import created"
    ),
    "plan intensity.toml --estimate": (
        "campaign: --estimate: only with --json; without it, the points and the estimates are "
        "printed"
    ),
    "plan random.toml": (
        'campaign: random.toml:14: settings.pairs: not used with choose = "random"; set choose = '
        '"pairs", or remove pairs'
    ),
    "doctor ghz-site.toml": (
        "campaign: ghz-site.toml:4: domains.core.frequencies_mhz: found 1.4; devices have 10 to "
        "10,000 MHz; give MHz, not GHz"
    ),
    "doctor khz-site.toml": (
        "campaign: khz-site.toml:4: domains.core.frequencies_mhz: found 1.4e+06; devices have 10 "
        "to 10,000 MHz; give MHz, not kHz"
    ),
    "predict two --site a --site b": (
        "campaign predict: --site: given twice; give it once (campaign predict --help)"
    ),
    "predict --site gtx-980": (
        "campaign: missing: the store (S). Without a store, only stencil tiles can be predicted: "
        "campaign predict --site gtx-980 --space CAMPAIGN.toml"
    ),
    "predict --space intensity.toml --objective edp": (
        "campaign: --objective: found 'edp'; without a store only time or energy can be predicted; "
        "leave it out, or name a store with measured variants"
    ),
    "compare one two --fail-above -1": (
        "campaign: --fail-above: found -1; must be 0 or more, such as 2.5"
    ),
    "import two.csv --store three --map constant.toml": (
        "campaign: --map: constant.toml: constants.time_s: the table two.csv has a column time_s; "
        "leave time_s out of [constants]"
    ),
    "import two.csv --store three --map typed.toml": (
        "campaign: typed.toml:2: constants.time_s: found 'fast'; must be a number, without quotes"
    ),
    "import two.csv --store three --map keep.toml": (
        "campaign: two.csv: none of its 2 rows is kept by [[keep]] in keep.toml; correct that rule"
    ),
    "import two.csv --store three --map columns.toml": (
        "campaign: columns.toml:3: columns.time: unknown column 'time'; standard columns are "
        f"{', '.join(MAPPED_COLUMNS)} and n_CLASS"
    ),
    "import two.csv --store three --map factor.toml": (
        "campaign: factor.toml:2: columns.time_s.factor: found 'ms'; must be a number, without "
        "quotes"
    ),
    "import unnamed.csv --store three": (
        "campaign: unnamed.csv: no column energy_j or power_w; it has site, kernel, core_mhz, "
        "time_s, energy: name theirs under [columns] in a map file, or give one value under "
        "[constants]\n  unnamed.csv: unknown column 'energy'; name what is needed under [columns] "
        'in a map file, or set unknown = "label" there to keep the others as labels'
    ),
    "import two.csv --store three --traces empty": (
        "campaign: --traces: empty: is not a folder of traces; name one that campaign export "
        "--traces wrote"
    ),
    "crossval one --scheme few:3 --new 5": (
        "campaign: --new: found 5; with few:3 it must be 1 to 3"
    ),
    "crossval one --scheme few:all": (
        "campaign: --scheme: few:all needs --new Q, the settings of a new kernel"
    ),
    "crossval one --scheme leave-one-out": (
        "campaign: unknown scheme 'leave-one-out'; did you mean 'leave-one-setting-out'? Known: "
        "leave-one-setting-out, leave-one-core-clock-out, leave-one-memory-clock-out, holdout, "
        "kfold:K, leave-one-kernel-out, leave-one-node-out, leave-one-site-out, few:M, "
        "leave-one-variant-out, variants-kfold:K"
    ),
    "chain 936": (
        "campaign: SIZES: found one number; give at least two, such as 936,1008 for one matrix"
    ),
    "chain 936x1008": (
        "campaign: SIZES: found '936x1008'; must be a whole number; separate the sizes with commas"
    ),
    "chain 936,1008 --on-chip 0": "campaign: --on-chip: found 0; must be from 1 to 1000000000",
    "compare one": (
        "campaign: one: found one store; name a second one, or divide this one by the date of a "
        "change (--after 2026-03-01) or by set-ups: no record (1 measurements)"
    ),
    "profile two.csv=ncuu": (
        "campaign: unknown counter map 'ncuu'; did you mean 'ncu'? Name a map file "
        "(ending in .toml) or one of: likwid-mem-dp, ncu, nsys, nvprof-kepler, "
        "perf-generic, perf-intel"
    ),
    "profile s.toml": (
        "campaign: found 's.toml'; must be FILE=MAP with a map of: likwid-mem-dp, ncu, "
        "nsys, nvprof-kepler, perf-generic, perf-intel"
    ),
    "compare one empty": (
        "campaign: empty: is not a store; name a folder that campaign run or import created"
    ),
    "compare one two": (
        "campaign: one and two have no measured point in common (site, partition, kernel, "
        "parameters and setting; sites: jetson-tk1; a, b); name two stores that the same campaign "
        "file was measured into"
    ),
    "tune --replay one --detach": (
        "campaign: --replay: measures nothing; leave out --detach and --submit"
    ),
    "demo one.csv": ("campaign: one.csv: cannot be created (File exists); name another folder"),
    "--verison": (
        "campaign: unknown option --verison; did you mean '--version'? (campaign --help)"
    ),
}


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
    assert code == 2
    assert printed.err.removesuffix("\n").replace(f"{folder}{os.sep}", "") == USAGES[usage]
    assert printed.out == ""


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
