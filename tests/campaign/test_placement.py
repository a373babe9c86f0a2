"""A worker measures only where its partition's jobs were planned."""

from __future__ import annotations

import pytest

from campaign.launch.slurm_placement import PlacementError, check_placement, planned_placement
from sites.site_file import Partition

HERE = {
    "SLURM_CLUSTER_NAME": "alpha",
    "SLURM_JOB_PARTITION": "gpu",
    "SLURM_JOB_CONSTRAINTS": "a100&nvlink",
    "SLURMD_NODENAME": "n7",
}


@pytest.mark.parametrize(
    ("name", "directives", "cluster", "elsewhere"),
    [
        ("gpu", [], "alpha", ""),
        ("gpu", [], None, ""),
        ("debug", [], "alpha", "SLURM_JOB_PARTITION"),
        ("gpu-long", [], "alpha", "SLURM_JOB_PARTITION"),
        ("gpu", [], "beta", "SLURM_CLUSTER_NAME"),
        # sbatch takes the last of an option, and so a directive decides.
        ("a100", ["--partition=gpu"], "alpha", ""),
        ("a100", ["-p gpu"], "alpha", ""),
        ("a100", ["-pgpu"], "alpha", ""),
        ("gpu", ["--partition debug"], "alpha", "SLURM_JOB_PARTITION"),
        ("gpu", ["-p debug", "--partition=gpu"], "alpha", ""),
        ("gpu", ["--partition=gpu", "-p debug"], "alpha", "SLURM_JOB_PARTITION"),
        ("a100", ["--partition=debug,gpu"], "alpha", ""),
        ("gpu", ["--constraint=a100"], "alpha", ""),
        ("gpu", ["-C 'nvlink&a100'"], "alpha", ""),
        ("gpu", ["--constraint=[h100|a100]"], "alpha", "SLURM_JOB_CONSTRAINTS"),
        ("gpu", ["-Ch100"], "alpha", "SLURM_JOB_CONSTRAINTS"),
        ("gpu", ["--nodelist=n7"], "alpha", ""),
        ("gpu", ["-w n6,n7"], "alpha", ""),
        ("gpu", ["-w n6"], "alpha", "SLURMD_NODENAME"),
        ("gpu", ["-w n[1-6]"], "alpha", ""),  # Slurm alone knows these names
        ("gpu", ["--gres=gpu:1", "--comment=-p x"], "alpha", ""),
    ],
)
def test_a_worker_elsewhere_is_refused(name, directives, cluster, elsewhere):
    planned = planned_placement(name, Partition(directives=directives), cluster)
    if elsewhere:
        with pytest.raises(PlacementError, match=elsewhere):
            check_placement(planned, HERE)
    else:
        check_placement(planned, HERE)


def test_what_slurm_does_not_say_is_not_compared():
    planned = planned_placement("gpu", Partition(directives=["-C x", "-w n1"]), "beta")
    check_placement(planned, {})
    check_placement(planned, {"SLURM_JOB_PARTITION": "gpu"})
