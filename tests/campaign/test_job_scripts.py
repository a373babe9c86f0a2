"""Golden job scripts, one a kind of site: what would be submitted, to the letter."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from campaign.doctor.examination_job import examine_partition
from campaign.launch.scheduler import LaunchError
from campaign.launch.slurm import NOT_NOW, SlurmScheduler
from sites.site_file import Environment, Partition, Site, Slurm
from sites.site_reading import built_in_sites, read_site
from tests.commands import answers, refuses

GOLDEN = Path(__file__).parent / "golden"


def plain(script: str) -> str:
    return script.replace(shlex.quote(sys.executable), "PYTHON")


def odd_site() -> Site:
    partition = Partition(
        scheduler="slurm",
        nodes=3,
        cores=64,
        memory="200GB",
        walltime="1-00:00:00",
        account="proj 42; touch x",
        qos="$(id)",
        directives=["--gres=gpu:4", "--constraint=a100&nvlink"],
        exclusive=False,
        interface="ib0",
        local_directory="/scratch/my dir",
        environment=Environment(
            python="/opt/envs/a b/bin/python",
            modules=["cuda/12.4", "$(touch x)"],
            variables={"WORDS": "a 'b' \"c\" $HOME; touch x"},
        ),
    )
    site = read_site(built_in_sites()["slurm-example"])
    return site.model_copy(update={"partitions": {"gpu": partition}})


@pytest.mark.parametrize("name", ["cpu-a", "cpu-b", "odd"])
def test_job_scripts_are_what_they_were(name):
    site = odd_site() if name == "odd" else read_site(built_in_sites()["slurm-example"])
    partition = "gpu" if name == "odd" else name
    script = plain(SlurmScheduler(site).job_script(partition, "dvfs-0123456789"))
    assert script == (GOLDEN / f"{name}.sh").read_text()


def test_a_host_without_a_slurm_configuration_comes_with_a_remedy():
    says = "squeue: fatal: Could not establish a configuration source"
    prefix = ["bash", "-c", f"echo '{says}' >&2; exit 1"]
    site = odd_site().model_copy(update={"slurm": Slurm(submit_prefix=prefix)})
    with pytest.raises(LaunchError, match=rf"{says}; Slurm cannot be reached .* login node"):
        SlurmScheduler(site).call("squeue")


def test_an_error_of_doctors_job_that_is_no_utf_8_is_shown():
    prefix = ["bash", "-c", r"printf 'module: \377: no such module' >&2; exit 1"]
    site = odd_site().model_copy(update={"slurm": Slurm(submit_prefix=prefix)})
    with pytest.raises(LaunchError, match="no such module"):
        examine_partition(site, Path("site.toml"), "gpu")


def test_no_shell_runs_what_a_site_file_says(tmp_path):
    """The script's prologue, run by a real bash with a worker that prints its environment."""
    script = SlurmScheduler(odd_site()).job_script("gpu", "dvfs-0")
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$WORDS" "$@"\n')
    fake.chmod(0o755)
    script = script.replace("'/opt/envs/a b/bin/python'", str(fake))
    script = "module() { printf 'module %s\\n' \"$2\"; }\n" + script
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[:3] == [
        "module cuda/12.4",
        "module $(touch x)",
        "a 'b' \"c\" $HOME; touch x",
    ]
    assert "/scratch/my dir" in lines
    assert not (tmp_path / "x").exists()


def test_plan_shows_the_scripts_and_the_steps(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text(
        'name = "c"\n[[sites]]\nsite = "slurm-example"\npartitions = ["cpu-a"]\n'
        '[[kernels]]\nkernel = "dp_fma"\n'
    )
    shown = answers("plan", path, "--scripts")["slurm-example/cpu-a"]
    assert shown["jobs"] == 2
    assert "#SBATCH -p cpu-a" in shown["script"]
    asked = {w for s in shown["steps"] for w in s.split() if w.startswith("--cpu-freq")}
    assert asked == {f"--cpu-freq={mhz}000" for mhz in (1400, 1800, 2200, 2600)}


@pytest.mark.parametrize("bad", ["a\nb", "--x\n#SBATCH --y"])
def test_a_newline_in_a_directive_is_refused(tmp_path, bad):
    text = built_in_sites()["slurm-example"].read_text()
    text = text.replace('# account = "project42"', f"directives = [{json.dumps('--q=' + bad)}]")
    (tmp_path / "s.toml").write_text(text)
    path = tmp_path / "c.toml"
    path.write_text('name = "c"\n[[sites]]\nsite = "s.toml"\n[[kernels]]\nkernel = "dp_fma"\n')
    assert "directives" in refuses("plan", path)


@pytest.mark.parametrize(
    ("said", "later"),
    [
        ("Unable to contact slurm controller (connect failure)", True),
        ("Socket timed out on send/recv operation", True),
        ("Required partition not available (inactive or drain)", True),
        ("Requested partition configuration not available now", True),
        ("Resource temporarily unavailable", True),
        ("Requested node configuration is not available", False),
        ("Memory specification can not be satisfied", False),
        ("invalid partition specified: gpu", False),
        ("Invalid account or account/partition combination specified", False),
    ],
)
def test_what_slurm_may_take_later_is_distinguished_from_what_it_never_takes(said, later):
    """Texts of slurm_errno.c, as sbatch prints them."""
    answer = f"sbatch: error: Batch job submission failed: {said}"
    assert bool(NOT_NOW.search(answer)) == later


@pytest.mark.parametrize("option", ["--nodes=2", "--nodes 2-4", "-N2", "-N 1-2"])
def test_jobs_of_several_nodes_are_refused(option):
    """Their energy would be that of the first one."""
    with pytest.raises(ValidationError, match="directives"):
        Partition(scheduler="slurm", directives=[option])


def test_one_node_may_be_said_and_nodes_may_be_named():
    options = ["--nodes=1", "-N 1", "--nodelist=n3", "--ntasks-per-node=2"]
    assert Partition(scheduler="slurm", directives=options).directives == options
