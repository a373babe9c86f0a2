"""Folders and files that cannot be written: exit code 2, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaign.codesign.designs import write_study_figures
from campaign.policy.policy_file import write_policy
from dvfs.errors import ArgumentError
from tests.campaign.policy_data import a_policy, entry
from tests.campaign.test_codesign import EXAMPLE, run_study


def test_figures_of_a_study(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArgumentError, match=r"cannot be written .*; name another folder"):
        write_study_figures(run_study(EXAMPLE), tmp_path / "file")


@pytest.mark.parametrize("name", ["folder", "nowhere/x.toml"])
def test_a_policy(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    policy = a_policy(entry("a", job_name="a"))
    with pytest.raises(ArgumentError, match=rf"{tmp_path / name}: "):
        write_policy(tmp_path / name, policy)
