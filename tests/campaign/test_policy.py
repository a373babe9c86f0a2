"""The policy file, which entry a job gets, and what an administrator copies."""

from __future__ import annotations

import datetime
import fnmatch
import itertools
import json
import os
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.choice.candidates import SettingCandidates
from analysis.choice.pick import promised_change
from campaign.policy.checks import Cluster, check_policy, obstacles
from campaign.policy.forms import FORMS, install
from campaign.policy.orders import CONTROL, POLICY, Order, fits
from campaign.policy.policy_file import (
    Match,
    Origin,
    Policy,
    policy_text,
    read_policy,
    withdraw,
    write_policy,
)
from campaign.results import open_store
from campaign.verbs.command_line import main
from dvfs.errors import ArgumentError
from dvfs.input_files import FileError
from dvfs.setting import Setting
from sites.site_file import Site
from tests.campaign.policy_data import LATER, TODAY, a_policy, entry, through_filter
from tests.commands import prints, refuses
from tests.stores import store_of_table

A_SITE = Site.model_validate(
    {
        "name": "s",
        "partitions": {"a": {}},
        "domains": {"core": {"frequencies_mhz": [1200.0, 2000.0, 2600.0]}},
        "clocks": {"control": "cpufreq"},
    }
)
NOWHERE = Cluster({}, ())


def applied(policy: Policy, job: dict[str, str], today: datetime.date = TODAY) -> Order | None:
    """The entry that a job gets on a day."""
    return policy.orders(today).order(None, job)


def written(folder: Path, policy: Policy) -> Path:
    path = folder / "policy.toml"
    write_policy(path, policy)
    return path


# --- The file -------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=20)


@given(
    fit=TEXTS,
    pattern=TEXTS.filter(lambda text: not set(text) & set("[]")),
    mhz=st.floats(1, 9999),
    seed=st.integers(0, 2**31 - 1),
)
def test_what_is_written_is_read_back(tmp_path_factory, fit, pattern, mhz, seed):
    policy = a_policy(
        entry("a", mhz, job_name=pattern, account="x"),
        entry("b.c=1+2-3", partition="p*"),
        seed=seed,
        origin=Origin(
            fit=fit, simulated=True, created=datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
        ),
        default=entry("default"),
    )
    path = tmp_path_factory.mktemp("policy") / "p.toml"
    write_policy(path, policy)
    assert read_policy(path)[0] == policy


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("core_mhz = 2000", "core_mhz = 0", "setting.core_mhz"),
        ("core_mhz = 2000", "core_ghz = 2", "setting"),
        ('job_name = "x"', 'jobname = "x"', "match.jobname"),
        ('job_name = "x"', 'job_name = "[x]"', "match.job_name"),
        ('match = { job_name = "x" }', "match = {}", "match"),
        ('match = { job_name = "x" }\n', "", "match"),
        ('name = "app"', 'name = "a b"', "name"),
        ("control_pct = 0", "control_pct = 91", "control_pct"),
        ("saving_pct = 10,", "saving_pct = 13,", "saving_pct"),
        ("until = 2099-01-01", 'until = "soon"', "until"),
        ('device = "cpu"', 'device = "tpu"', "device"),
        ('site = "s"', 'site = "s; touch x"', "site"),
        ('comment = "no-dvfs"', 'comment = "no dvfs"', "opt_out.comment"),
        ("[opt_out]", "[default]\nsetting = {}\n[opt_out]", "default"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path, old, new, key):
    path = written(tmp_path, a_policy(entry("app", job_name="x")))
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    error = refuses("policy", "check", path)
    assert re.search(rf"{re.escape(str(path))}:\d+: .*{re.escape(key)}", error), error


def test_withdrawing_keeps_all_else_as_it_is_written(tmp_path):
    path = written(tmp_path, a_policy(entry("a", job_name="a"), entry("b", job_name="b")))
    before = path.read_text().replace('\nname = "b"', '\nname = "b"  # mine')
    path.write_text(before)
    withdraw(path, "b", TODAY)
    after = path.read_text().splitlines()
    assert [line for line in after if line not in before.splitlines()] == ["withdrawn = 2026-11-28"]
    policy = read_policy(path)[0]
    assert applied(policy, {"job_name": "b"}) is None
    assert applied(policy, {"job_name": "a"}).name == "a"
    with pytest.raises(ArgumentError, match="withdrawn"):
        withdraw(path, "b", TODAY)
    with pytest.raises(ArgumentError, match="'a'"):
        withdraw(path, "aa", TODAY)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('name = "default"\n', ""),
        lambda text: text.rstrip("\n"),
        lambda text: text.replace("\n", "\r\n"),
    ],
    ids=["a default without its name", "no last line end", "Windows line ends"],
)
def test_withdrawing_the_last_entry(tmp_path, change):
    path = written(tmp_path, a_policy(default=entry("default")))
    path.write_bytes(change(path.read_text()).encode())
    withdraw(path, "default", TODAY)
    policy = read_policy(path)[0]
    assert applied(policy, {"job_name": "b"}) is None
    # It is installed again: the filter and the file for scripts then do nothing.
    for form in ("slurm-cli-filter", "env"):
        install(policy, form, tmp_path, TODAY)
    done, logged = through_filter(tmp_path, [{"job-name": "app"}])
    assert (done, logged) == ([["0", "", "", ""]], "")
    job = {"SLURM_JOB_ID": "1", "SLURM_JOB_NAME": "app"}
    assert "SLURM_CPU_FREQ_REQ" not in in_job(tmp_path, job)


def test_an_entry_in_a_list_is_not_withdrawn_by_half(tmp_path):
    path = written(tmp_path, a_policy())
    one = '{ name = "a", match = { job_name = "a" }, setting = { core_mhz = 1 } }'
    text = path.read_text().replace("\n[opt_out]", f"entries = [{one}]\n[opt_out]")
    path.write_text(text)
    assert len(read_policy(path)[0].entries) == 1
    with pytest.raises(ArgumentError, match=str(TODAY)):
        withdraw(path, "a", TODAY)
    assert path.read_text() == text


# --- Which entry ----------------------------------------------------------------------------------


def test_the_most_specific_entry_is_applied():
    few, many = entry("few", job_name="dgemm-big"), entry("many", job_name="d*", partition="p*")
    short, first, second = (
        entry("short", job_name="d*"),
        entry("first", job_name="dg*m"),
        entry("second", job_name="*gem"),
    )
    policy = a_policy(short, few, first, second, many, default=entry("default"))
    chosen = {
        (name, partition): applied(policy, {"job_name": name} | partition_of(partition))
        for name in ("dgemm-big", "dgem", "other")
        for partition in ("", "p1", "q")
    }
    assert {key: found.name for key, found in chosen.items() if found is not None} == {
        ("dgemm-big", ""): "few",
        ("dgemm-big", "p1"): "many",
        ("dgemm-big", "q"): "few",
        ("dgem", ""): "first",
        ("dgem", "p1"): "many",
        ("dgem", "q"): "first",
        ("other", ""): "default",
        ("other", "p1"): "default",
        ("other", "q"): "default",
    }


def partition_of(name: str) -> dict[str, str]:
    return {"partition": name} if name else {}


def test_entries_end_on_their_day():
    policy = a_policy(entry("a", job_name="*").model_copy(update={"until": TODAY}), until=LATER)
    assert applied(policy, {"job_name": "x"}) is not None
    assert applied(policy, {"job_name": "x"}, TODAY + datetime.timedelta(1)) is None


def test_the_control_share_is_binomial():
    policy = a_policy(entry("a", job_name="*"), control_pct=10.0)
    orders = policy.orders(TODAY)
    arms = [orders.arm(str(job)) for job in range(20_000)]
    low, high = stats.binom.interval(0.99, len(arms), 0.1)
    assert low <= arms.count(CONTROL) <= high
    other = a_policy(entry("a", job_name="*"), control_pct=10.0, seed=2).orders(TODAY)
    both = sum(other.arm(str(job)) == CONTROL == arms[job] for job in range(20_000))
    assert both < 300, "another seed draws other jobs: 200 are expected in both"


def test_a_promise_is_of_the_draws_of_both_settings():
    """Log-normal draws whose ratio has a known median and known percentiles."""
    rng = np.random.default_rng(1)
    z, w = rng.normal(size=(2, 200_000))
    settings = [Setting(1000.0), Setting(2000.0)]
    among = SettingCandidates(
        kernel="k",
        params={},
        label="k",
        settings=settings,
        energy_j=np.ones(2),
        time_s=np.ones(2),
        measured=np.ones(2, bool),
        measured_j=np.ones(2),
        energy_draws_j=np.exp([0.03 * z - 0.2, 0.04 * w]),
        time_draws_s=np.exp([0.01 * z + 0.1, 0.0 * w]),
        time_error_s=np.zeros(2),
    )
    change = promised_change([among], *settings)
    reach = stats.norm.ppf(0.975)
    expected = 100 * (1 - np.exp(-0.2 + np.array([0.05, 0.0, -0.05]) * reach))
    assert [change.saving_pct_95[0], change.saving_pct, change.saving_pct_95[1]] == pytest.approx(
        expected, abs=0.05
    )
    slower = 100 * (np.exp(0.1 + np.array([-0.01, 0.0, 0.01]) * reach) - 1)
    assert [
        change.slowdown_pct_95[0],
        change.slowdown_pct,
        change.slowdown_pct_95[1],
    ] == pytest.approx(slower, abs=0.05)
    assert change.is_sure
    assert not promised_change([among], *settings[::-1]).is_sure
    assert promised_change([among], settings[0], Setting(1.0)) is None


def test_entries_of_kernels_with_like_names_have_different_names(tmp_path):
    kernels = ["lu+2", "lu", "lu/", "LU" * 40, "LU" * 40 + "x"]
    lines = ["kernel,core_mhz,mem_mhz,time_s,energy_j"]
    lines += [f"{k},{mhz},500,{1000 / mhz},{mhz / 10}" for k in kernels for mhz in (1000, 800, 600)]
    store = str(store_of_table(tmp_path, lines, "--site", "box"))
    policy = tmp_path / "policy.toml"
    assert main(["fit", store]) == 0
    assert main(["policy", store, "--unsure", "-o", str(policy)]) == 0
    names = [one.name for one in read_policy(policy)[0].entries]
    assert len(set(names)) == len(kernels)
    assert max(map(len, names)) <= 60


TWO_KERNELS = {
    "compute": {1000: (1.0, 100.0), 800: (1.25, 80.0), 600: (1.6667, 70.0)},
    "memory": {1000: (1.0, 100.0), 800: (1.01, 80.0), 600: (1.02, 60.0)},
}
"""Kernel -> core clock in MHz -> s and J."""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a fit, of two kernels and three repeats that hardly differ."""
    lines = ["kernel,core_mhz,mem_mhz,repeat,time_s,energy_j"]
    lines += [
        f"{kernel},{mhz},500,{n},{time_s * (0.9999 + 1e-4 * n)},{energy_j * (0.999 + 1e-3 * n)}"
        for kernel, settings in TWO_KERNELS.items()
        for mhz, (time_s, energy_j) in settings.items()
        for n in range(3)
    ]
    store = str(store_of_table(tmp_path_factory.mktemp("measured"), lines, "--site", "box"))
    assert main(["fit", store]) == 0
    return store


@pytest.mark.parametrize(
    ("limits", "default_mhz"),
    [
        ({}, 600.0),
        ({"max_slowdown": 0.3}, 800.0),  # compute takes 1.67 times as long at 600 MHz
        ({"max_power_w": 65.0}, 600.0),
        ({"max_slowdown": 0.3, "max_power_w": 65.0}, None),  # memory takes 79 W at 800 MHz
        ({"max_power_w": 50.0}, None),  # memory takes 59 W at least
    ],
)
def test_the_default_entry_keeps_the_limits_for_every_kernel(measured, limits, default_mhz):
    draft = open_store(measured).policy("box", limits, with_default=True)
    default = draft.policy.default
    assert (None if default is None else default.clocks.core_mhz) == default_mhz
    said = [line for line in draft.left_out if "within the limits" in line]
    assert len(said) == (default is None)


def test_a_policy_says_within_which_limits_its_picks_are(measured, tmp_path):
    file = str(tmp_path / "p.toml")
    words = ["--max-slowdown", "0.3", "--max-power-w", "90", "--unsure", "-o", file]
    assert main(["policy", measured, *words]) == 0
    assert tomllib.loads(Path(file).read_text())["max_power_w"] == 90.0
    said = " ".join(prints("policy", "explain", file, "--job", "job_name=memory").split())
    assert "limits of the picks: at most 30 % slower, a mean power of at most 90 W" in said


def test_the_default_entry_is_not_for_kernels_that_are_left_as_they_are(measured):
    """By energy times time, compute is best at 1000 MHz: 100 J s against 117 at 600 MHz, the best
    of both kernels together."""
    draft = open_store(measured).policy("box", {"objective": "edp"}, with_default=True)
    found = {
        name: applied(draft.policy, {"job_name": name}) for name in ("compute", "memory", "other")
    }
    mhz = {name: order.setting.core_mhz for name, order in found.items()}
    assert mhz == {"compute": 1000.0, "memory": 600.0, "other": 600.0}
    assert draft.policy.entry("compute").promise is None
    assert [line.partition(":")[0] for line in draft.left_out] == ["compute"]
    without = open_store(measured).policy("box", {"objective": "edp"}).policy
    assert [entry.name for entry in without.all_entries] == ["memory"]


# --- Checks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "cluster", "site", "key"),
    [
        ({"until": TODAY - datetime.timedelta(1)}, NOWHERE, None, "until"),
        ({"cluster": "other"}, Cluster({"ClusterName": "here"}, ()), None, "cluster"),
        ({}, Cluster({}, ("gpu", "cpu")), None, "entries[0].match.partition"),
        ({"entries": [entry("a", 1999.0, job_name="a")]}, NOWHERE, A_SITE, "entries[0].setting"),
        ({"site": "t"}, NOWHERE, A_SITE, "site"),
    ],
)
def test_what_cannot_be_applied_is_refused(tmp_path, changes, cluster, site, key):
    policy = a_policy(**{"entries": [entry("a", partition="big*")]} | changes)
    read, source = read_policy(written(tmp_path, policy))
    with pytest.raises(FileError) as refused:
        check_policy(read, source, TODAY, site, cluster)
    assert refused.value.place.endswith(f": {key}")
    assert str(source.path) in refused.value.place


def test_what_can_be_applied_is_accepted(tmp_path):
    policy = a_policy(entry("a", partition="b?g"), cluster="Here", until=TODAY)
    read, source = read_policy(written(tmp_path, policy))
    check_policy(read, source, TODAY, A_SITE, Cluster({"ClusterName": "here"}, ("big",)))


@pytest.mark.parametrize(
    ("configuration", "named"),
    [
        ({"TaskPlugin": "task/none"}, ["TaskPlugin", "AccountingStoreFlags", "CliFilterPlugins"]),
        (
            {
                "TaskPlugin": "task/affinity",
                "CliFilterPlugins": "cli_filter/lua",
                "AccountingStoreFlags": "job_comment",
            },
            [],
        ),
    ],
)
def test_a_cluster_that_would_not_apply_it_is_said(tmp_path, configuration, named):
    found = obstacles(a_policy(entry("a", job_name="a")), Cluster(configuration, ()), tmp_path)
    assert sorted(line.partition("=")[0] for line in found) == sorted(named)


# --- The filter -----------------------------------------------------------------------------------

WORD = st.text("ab?*.é", max_size=5)


@pytest.fixture
def filtered(tmp_path: Path) -> Callable[[Policy], Path]:
    def make(policy: Policy) -> Path:
        install(policy, "slurm-cli-filter", tmp_path, TODAY)
        return tmp_path

    return make


def test_the_filter_chooses_as_the_policy_does(filtered):
    """1,200 jobs, against the Python of `explain` and against fnmatch."""
    rng = np.random.default_rng(2)

    def text(letters: str, most: int) -> str:
        return "".join(rng.choice(list(letters), rng.integers(1, most)))

    keys = ("job_name", "account", "partition")
    entries = [
        entry(f"e{i}", 1000.0 + i, **{key: text("ab?*é", 5) for key in keys[: i % 3 + 1]})
        for i in range(40)
    ]
    policy = a_policy(*entries, default=entry("default", 999.0))
    orders = policy.orders(TODAY)
    jobs = [
        {key: text("abé", 6) for key in keys if rng.random() < 0.8} | {"job_name": text("abé", 6)}
        for _ in range(1200)
    ]
    options = [{name.replace("_", "-"): value for name, value in job.items()} for job in jobs]
    done, logged = through_filter(filtered(policy), options)
    assert logged == ""
    chosen = {1000.0 + i: one for i, one in enumerate(entries)}
    seen = set()
    for job, (code, khz, gpu, comment) in zip(jobs, done, strict=True):
        expected = orders.order(None, job)
        assert (code, gpu) == ("0", "")
        assert float(khz) / 1000.0 == expected.setting.core_mhz
        assert comment == f"dvfs={expected.mark}:policy"
        found = chosen.get(float(khz) / 1000.0)
        if found is not None:
            seen.add(found.name)
            assert all(fnmatch.fnmatchcase(job[k], p) for k, p in found.match.given.items())
    assert len(seen) > 15


SUBMISSIONS = {
    "no match": {"job-name": "other"},
    "opted out by comment": {"job-name": "app", "comment": "mine no-dvfs"},
    "opted out by variable": {"job-name": "app", "$NO_DVFS": "1"},
    "a clock of its own": {"job-name": "app", "cpu-freq": "1200000"},
    "a GPU clock of its own": {"job-name": "app", "gpu-freq": "high"},
    "from a job with a clock": {"job-name": "app", "$SLURM_CPU_FREQ_REQ": "1200000"},
    "a step of a job": {"job-name": "app", "type": "srun", "$SLURM_JOB_ID": "7"},
}


@pytest.mark.parametrize("which", SUBMISSIONS)
def test_the_filter_leaves_a_submission_alone(filtered, which):
    folder = filtered(a_policy(entry("app", job_name="app")))
    given = SUBMISSIONS[which]
    done, logged = through_filter(folder, [given, {"job-name": "app", "comment": "no-dvfss"}])
    kept = ["0", given.get("cpu-freq", ""), given.get("gpu-freq", ""), given.get("comment", "")]
    assert done[0] == kept
    assert done[1] == ["0", "2000000", "", "no-dvfss dvfs=app:2000/-:policy"]
    assert logged == ""


@pytest.mark.parametrize(
    ("options", "key", "value"),
    [
        ({"argv": ["/opt/x/app.sh", "-n", "4"]}, "job_name", "app.sh"),
        ({"argv": ["/opt/x/app.sh", "-n", "4"]}, "executable", "app.sh"),
        ({"argv": ["/opt/x/app.sh", "-n", "4"]}, "arguments", "-n 4"),
        ({"wrap": " ./app  --size 3 "}, "arguments", "--size 3"),
        ({"wrap": "./app --size 3"}, "executable", "app"),
        ({"wrap": "./app --size 3"}, "job_name", "wrap"),
        ({"account": "proj", "job-name": "x"}, "account", "proj"),
        ({"comment": "a b", "job-name": "x"}, "comment", "a b"),
        ({"wrap": "invalid-context", "argv": ["app"]}, "executable", "app"),
    ],
)
def test_what_the_filter_knows_of_a_submission(filtered, options, key, value):
    folder = filtered(a_policy(entry("app", **{key: value})))
    ((_, khz, _, _),), _ = through_filter(folder, [options])
    assert khz == "2000000"
    filtered(a_policy(entry("app", **{key: f"?{value}"})))
    ((_, khz, _, _),), _ = through_filter(folder, [options])
    assert khz == ""


def test_the_filters_control_share_is_binomial(filtered):
    folder = filtered(a_policy(entry("app", job_name="app*"), control_pct=10.0))
    done, _ = through_filter(folder, [{"job-name": f"app{i % 7}"} for i in range(3000)])
    arms = [comment.rpartition(":")[2] for _, _, _, comment in done]
    low, high = stats.binom.interval(0.99, len(arms), 0.1)
    assert low <= arms.count(CONTROL) <= high
    assert arms.count(CONTROL) + arms.count(POLICY) == 3000
    for (_, khz, _, _), arm in zip(done, arms, strict=True):
        assert khz == ("2000000" if arm == POLICY else "")
    # Runs of equal arms are as long as chance makes them: neighbours are independent.
    pairs = sum(a == b == CONTROL for a, b in itertools.pairwise(arms))
    low, high = stats.binom.interval(0.999, 2999, 0.01)
    assert low <= pairs <= high


DAMAGES = {
    "missing": None,
    "empty": "",
    "a syntax error": "return { format = 1,",
    "another type": "return 7",
    "calls a global": "os.execute('touch /tmp/never')",
    "another format": "return { format = 2 }",
    "no entries": 'return { format = 1, ["until"] = 9e12, opt_out_comment = "x" }',
    "words that Slurm refuses": 'return { format = 1, ["until"] = 9e12, seed = 1, control = 0, '
    'opt_out_comment = "x", opt_out_variable = "Y", entries = { { mark = "m", option = "cpu-freq", '
    'words = "2.0GHz", ["until"] = 9e12, match = {} } } }',
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_table_changes_nothing(filtered, damage):
    folder = filtered(a_policy(entry("app", job_name="app")))
    table = folder / "dvfs_policy.lua"
    table.unlink()
    if DAMAGES[damage] is not None:
        table.write_text(DAMAGES[damage])
    done, logged = through_filter(folder, [{"job-name": "app"}] * 3)
    assert done == [["0", "", "", ""]] * 3
    assert len(logged.splitlines()) == 3


@pytest.mark.parametrize(
    ("changes", "conf"),
    [
        ({"until": TODAY - datetime.timedelta(800)}, "ClusterName=here\n"),
        ({"cluster": "there"}, "# x\nClusterName = here # it\n"),
    ],
)
def test_the_filter_ignores_what_is_not_for_here(tmp_path, changes, conf):
    policy = a_policy(entry("app", job_name="app"), **changes)
    (tmp_path / "slurm.conf").write_text(conf)
    today = min(policy.until, TODAY)
    install(policy, "slurm-cli-filter", tmp_path, today)
    done, logged = through_filter(tmp_path, [{"job-name": "app"}])
    assert done == [["0", "", "", ""]]
    assert len(logged.splitlines()) == 1


def test_gpu_clocks_are_requested_with_the_memory_clock(filtered):
    policy = a_policy(entry("app", 1305.0, job_name="app"), device="gpu")
    done, _ = through_filter(filtered(policy), [{"job-name": "app"}])
    assert done[0][1:3] == ["", "1305,memory=high"]


# --- The other forms ------------------------------------------------------------------------------


def in_job(folder: Path, job: dict[str, str], comment: str = "") -> dict[str, str]:
    """What a job script gets that reads the file: its variables, and the updates of the job."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name, text in {
        "squeue": f"echo '{comment}'",
        "scontrol": f'echo "$@" >> {folder}/updates',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    (folder / "updates").write_text("")
    done = subprocess.run(
        ["sh", "-euc", f". {folder}/dvfs_policy.sh; env"],
        env={"PATH": f"{programs}:{os.environ['PATH']}"} | job,
        capture_output=True,
        text=True,
        check=True,
    )
    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    return found | {"updates": (folder / "updates").read_text().strip()}


def test_the_file_for_job_scripts_applies_the_same_arms(tmp_path):
    policy = a_policy(
        entry("app", job_name="a?p 'x'*"),
        entry("gpu", 1500.0, partition="g", account="*"),
        control_pct=30.0,
        cluster="here",
    )
    install(policy, "env", tmp_path, TODAY)
    orders = policy.orders(TODAY)
    for number in range(60):
        job = {
            "SLURM_JOB_ID": str(number),
            "SLURM_JOB_NAME": "app 'x' 1",
            "SLURM_CLUSTER_NAME": "here",
        }
        found = in_job(tmp_path, job, "mine")
        arm = orders.arm(str(number))
        assert found.get("SLURM_CPU_FREQ_REQ") == ("2000000" if arm == POLICY else None)
        assert found["updates"] == f"update JobId={number} Comment=mine dvfs=app:2000/-:{arm}"
    job["SLURM_JOB_ID"] = next(str(n) for n in range(99) if orders.arm(str(n)) == POLICY)
    assert in_job(tmp_path, job)["SLURM_CPU_FREQ_REQ"] == "2000000"
    for other in (
        {"SLURM_CLUSTER_NAME": "there"},
        {"SLURM_JOB_NAME": "app"},
        {"NO_DVFS": ""},
        {"SLURM_JOB_ID": ""},
    ):
        assert "SLURM_CPU_FREQ_REQ" not in in_job(tmp_path, job | other)
    assert "SLURM_CPU_FREQ_REQ" not in in_job(tmp_path, job, "a no-dvfs")
    task = {"SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "2"}
    assert in_job(tmp_path, job | task)["updates"].startswith("update JobId=5_2 Comment=dvfs=")
    by_partition = {"SLURM_JOB_NAME": "y", "SLURM_JOB_PARTITION": "g", "SLURM_JOB_ACCOUNT": "b"}
    assert in_job(tmp_path, job | by_partition)["SLURM_CPU_FREQ_REQ"] == "1500000"


def test_geopm_and_ear_get_their_units(tmp_path):
    policy = a_policy(entry("app", 2100.0, job_name="app*"))
    install(policy, "geopm", tmp_path, TODAY)
    assert json.loads((tmp_path / "app.json").read_text()) == {"FREQ_CPU_DEFAULT": 2.1e9}
    install(policy, "ear", tmp_path, TODAY)
    assert "--ear-cpufreq=2100000" in (tmp_path / "ear_options.txt").read_text()


def test_the_prologs_never_fail(tmp_path):
    install(a_policy(entry("app", partition="p")), "slurm-prolog", tmp_path, TODAY)
    for name in ("prolog.sh", "epilog.sh"):
        text = (tmp_path / name).read_text()
        assert subprocess.run(["sh", "-n", str(tmp_path / name)], check=False).returncode == 0
        assert text.rstrip().endswith("exit 0")


@pytest.mark.parametrize(
    ("form", "match"), [("slurm-prolog", "job_name"), ("env", "executable"), ("env", "arguments")]
)
def test_a_form_refuses_what_it_does_not_know(tmp_path, form, match):
    with pytest.raises(ArgumentError, match=match):
        install(a_policy(entry("a", **{match: "x"})), form, tmp_path / "new", TODAY)
    assert not (tmp_path / "new").exists()


def test_no_form_sets_a_clock_that_it_cannot(tmp_path):
    uncore = entry("a", job_name="a")
    uncore = uncore.model_copy(
        update={"setting": uncore.setting.model_copy(update={"mem_mhz": 1800.0})}
    )
    for form in ("slurm-cli-filter", "env", "ear"):
        with pytest.raises(ArgumentError, match="'a'"):
            install(a_policy(uncore), form, tmp_path, TODAY)
    for form in FORMS.keys() - {"slurm-prolog", "env", "slurm-cli-filter"}:
        gone = uncore.model_copy(update={"withdrawn": TODAY})
        with pytest.raises(ArgumentError):
            install(a_policy(gone), form, tmp_path, TODAY)


def test_a_match_needs_what_is_known():
    match = Match(job_name="*", account="a")
    assert not fits(match.given, {"job_name": "x"})
    assert fits(match.given, {"job_name": "x", "account": "a"})
    assert policy_text(a_policy(entry("a", job_name="x")))
