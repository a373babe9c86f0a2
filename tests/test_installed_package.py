"""What an installed package gives by entry points: a package is installed, and used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PACKAGE = Path(__file__).parent / "example_package"
SITE = """\
name = "elsewhere"

[domains.core]
frequencies_mhz = [1000]

[clocks]
control = "as-found"
device = "gpu"

[[meters]]
kind = "ten-watts"

[partitions.p]
scheduler = "here"
"""
CAMPAIGN = """\
name = "installed"

[[sites]]
site = "site.toml"

[protocol]
idle_s = 0
warm_up_s = 0
min_duration_s = 0.2

[[kernels]]
kernel = "waits"
params = { times = [1, 2] }
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example package, installed by pip."""
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(PACKAGE, folder / "source")  # a build writes into it
    install(folder / "source", folder / "packages")
    return folder / "packages"


def install(package: Path, folder: Path) -> None:
    words = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run(
        [sys.executable, "-m", "pip", *words, "--target", folder, package],
        check=True,
        capture_output=True,
        text=True,
    )


def campaign(path: list[Path], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command, where these folders are among those that Python searches."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [ROOT, *path]))}
    return subprocess.run(
        [sys.executable, "-m", "campaign", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_its_kernel_is_listed_with_its_package(installed: Path, tmp_path: Path) -> None:
    done = campaign([installed], tmp_path, "kernels", "waits", "--json")
    assert json.loads(done.stdout)["package"] == "example-plugins", done.stderr
    done = campaign([installed], tmp_path, "kernels", "idle", "--json")
    assert json.loads(done.stdout)["package"] is None
    assert "waits" not in campaign([], tmp_path, "kernels").stdout


def test_a_change_of_its_kernel_is_another_identity(installed: Path, tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    shutil.copytree(installed, packages)
    kernel = packages / "example_plugins" / "kernel.py"

    def identity() -> str:
        code = "from kernels.sources import kernel_identity; print(kernel_identity('waits'))"
        path = os.pathsep.join(map(str, [ROOT, packages]))
        words = [sys.executable, "-c", code]
        environment = os.environ | {"PYTHONPATH": path}
        return subprocess.run(
            words, env=environment, capture_output=True, text=True, check=True
        ).stdout

    first = identity()
    kernel.write_text(kernel.read_text() + "\n# a comment\n")
    assert identity() == first
    kernel.write_text(kernel.read_text().replace("WAIT_S = 0.001", "WAIT_S = 0.002"))
    assert identity() != first


def test_its_meter_control_kernel_and_scheduler_measure(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(SITE)
    (tmp_path / "c.toml").write_text(CAMPAIGN)
    # Its scheduler says that it has no jobs: doctor examines this node, and no job is estimated.
    done = campaign([installed], tmp_path, "doctor", "site.toml", "--json")
    node = json.loads(done.stdout)
    assert [meter["package"] for meter in node["meters"]] == ["example-plugins"], done.stderr
    assert node["clocks"]["package"] == "example-plugins"
    done = campaign([installed], tmp_path, "run", "c.toml", "--store", "S", "--quiet")
    assert done.returncode == 0, done.stderr
    done = campaign([installed], tmp_path, "export", "S", "--csv", "t.csv")
    assert done.returncode == 0, done.stderr
    header, *rows = (line.split(",") for line in (tmp_path / "t.csv").read_text().splitlines())
    assert len(rows) == 2
    for row in rows:
        measured = dict(zip(header, row, strict=False))
        assert measured["status"] == "ok"
        power_w = float(measured["energy_j"]) / float(measured["time_s"])
        assert power_w == pytest.approx(10.0, rel=0.01)


def test_its_importer_reads_a_file(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("dgemm 1000 2.5 30\ndgemm 500 4.0 26\n")
    (tmp_path / "map.toml").write_text('layout = "lines"\n\n[constants]\nsite = "s"\n')
    words = ["import", "lines.txt", "--store", "S", "--map", "map.toml"]
    done = campaign([installed], tmp_path, *words)
    assert done.returncode == 0, done.stderr
    done = campaign([installed], tmp_path, "export", "S", "--csv", "t.csv")
    text = (tmp_path / "t.csv").read_text()
    assert "30" in text and "26" in text
    done = campaign([], tmp_path, *words)
    assert done.returncode == 2
    assert "map.toml" in done.stderr and "kernel-tuner" in done.stderr


def test_without_it_a_site_file_that_names_its_parts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(SITE)
    done = campaign([], tmp_path, "doctor", "site.toml", "--here")
    assert done.returncode == 2
    assert "site.toml" in done.stderr and "Traceback" not in done.stderr


def test_two_packages_of_one_name_are_refused(installed: Path, tmp_path: Path) -> None:
    more = another(tmp_path, "second-plugins", "meters", "ten-watts", "raise RuntimeError")
    (tmp_path / "site.toml").write_text(SITE)
    done = campaign([installed, more], tmp_path, "doctor", "site.toml", "--here")
    assert done.returncode == 2, done.stderr
    assert "example-plugins" in done.stderr and "second-plugins" in done.stderr


@pytest.mark.parametrize("code", ["import a_package_that_is_not_there", "1 / 0", "x ="])
def test_a_package_that_cannot_be_imported_is_named(tmp_path: Path, code: str) -> None:
    more = another(tmp_path, "broken-plugins", "kernels", "waits", code)
    done = campaign([more], tmp_path, "kernels", "waits")
    assert done.returncode == 2
    assert "broken-plugins" in done.stderr and "Traceback" not in done.stderr


def another(folder: Path, name: str, group: str, entry: str, code: str) -> Path:
    """A package of one entry point and this code, installed in a folder of its own."""
    source = folder / "another"
    (source / "plugins").mkdir(parents=True)
    (source / "plugins" / "__init__.py").write_text(f"{code}\n")
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        f'[project]\nname = "{name}"\nversion = "1"\n'
        f'[project.entry-points."dvfs_campaign.{group}"]\n{entry} = "plugins:thing"\n'
        '[tool.setuptools]\npackages = ["plugins"]\n'
    )
    install(source, folder / "more")
    return folder / "more"
