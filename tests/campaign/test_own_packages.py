"""Another project's package under one of our names is noticed, and the message says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from campaign.verbs.command_line import PACKAGES, foreign_package

ROOT = Path(__file__).parents[2]
FOREIGN = 'raise RuntimeError("a foreign package was imported")\n'


def status(*path: Path) -> subprocess.CompletedProcess[str]:
    """``campaign status`` with these folders first on Python's path."""
    return subprocess.run(
        [sys.executable, "-m", "campaign", "status", "store"],
        cwd=path[0],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        capture_output=True,
        text=True,
        check=False,
    )


def check_refused(done: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert done.returncode == 2
    assert done.stderr.startswith(f"campaign: the package '{folder.name}' in {folder} belongs to")
    assert "in an environment of its own" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", PACKAGES)
def test_a_foreign_package_first_on_the_path_is_refused(tmp_path, name):
    package = tmp_path / name
    package.mkdir()
    (package / "__init__.py").write_text(FOREIGN)
    check_refused(status(tmp_path, ROOT), package)


def test_a_foreign_file_as_a_module_is_refused(tmp_path):
    (tmp_path / "kernels.py").write_text(FOREIGN)
    done = status(tmp_path, ROOT)
    assert done.returncode == 2
    assert f"the package 'kernels' in {tmp_path}" in done.stderr


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_that_another_one_overwrote_is_refused(tmp_path, name):
    """Both were installed into one folder: ours lies there in part, and so does theirs."""
    for package in ("campaign", *PACKAGES):
        (tmp_path / package).mkdir()
        for path in (ROOT / package).iterdir():
            (tmp_path / package / path.name).symlink_to(path)
    (tmp_path / name / "__init__.py").unlink()
    (tmp_path / name / "__init__.py").write_text(FOREIGN)
    check_refused(status(tmp_path), tmp_path / name)


def test_a_package_that_is_missing_is_named(tmp_path):
    for package in ("campaign", *PACKAGES[1:]):
        (tmp_path / package).symlink_to(ROOT / package)
    code = "import sys; from campaign.verbs.command_line import main; "
    code += "sys.exit(main(['status', 'store']))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=tmp_path,
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"the package {PACKAGES[0]!r} is missing" in done.stderr and "install" in done.stderr


def test_ours_are_accepted_within_5_ms():
    seconds = []
    for _ in range(20):
        start_s = time.perf_counter()
        assert foreign_package() is None
        seconds.append(time.perf_counter() - start_s)
    assert min(seconds) < 0.005
