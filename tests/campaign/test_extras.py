"""Where a package of an extra is missing, the message says which, and how to install it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from campaign.launch.progress import PlainProgress
from dvfs.extras import EXTRAS, MissingExtraError, explain_missing, missing_extra

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def campaign_without(package: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """The command on a Python that lacks a package."""
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from campaign.verbs.command_line import main; sys.exit(main(sys.argv[1:]))"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_table_in_parquet(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    done = campaign_without("pyarrow", "import", tmp_path / "t.parquet", "--store", tmp_path / "s")
    assert done.returncode == 2
    assert done.stderr == (
        "campaign: reading and writing Parquet needs pyarrow: "
        "pip install 'dvfs-campaign[parquet]'\n"
    )
    assert not (tmp_path / "s").exists()


def test_a_file_of_perun_in_hdf5(tmp_path):
    file = ROOT / "tests/data/other_tools/perun.hdf5"
    done = campaign_without("h5py", "import", file, "--store", tmp_path / "s", "--site", "x")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "needs h5py: pip install 'dvfs-campaign[hdf5]'" in done.stderr
    assert not (tmp_path / "s").exists()


def test_a_table_in_csv_needs_no_pyarrow(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("site,kernel,core_mhz,time_s,energy_j\na,k,1000,2.0,100.0\n")
    done = campaign_without("pyarrow", "import", table, "--store", tmp_path / "s")
    assert done.returncode == 0, done.stderr


def test_a_run_without_the_dashboard(capsys, monkeypatch):
    progress = PlainProgress()
    progress.start({"a/p": 3}, {"a/p": "http://127.0.0.1:1/status"})
    assert "3 points to measure; dashboard http://127.0.0.1:1/status" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "bokeh", None)
    progress.start({"a/p": 3}, {"a/p": "http://127.0.0.1:1/status"})
    shown = capsys.readouterr().err
    assert "3 points to measure; showing Dask's dashboard needs bokeh: pip install" in shown
    assert "http" not in shown


def test_a_dashboard_that_was_asked_for(tmp_path):
    words = ["run", "c.toml", "--store", tmp_path / "s", "--dashboard", "127.0.0.1:8787"]
    done = campaign_without("bokeh", *words)
    assert done.returncode == 2
    assert "needs bokeh: pip install 'dvfs-campaign[dashboard]'" in done.stderr


@pytest.mark.parametrize("package", EXTRAS)
def test_every_package_is_named_with_its_extra(package, monkeypatch):
    extra = EXTRAS[package].name
    listed = PROJECT["optional-dependencies"][extra]
    name = {"sklearn": "scikit-learn"}.get(package, package)  # the distribution's
    assert any(requirement.startswith(f"{name}>=") for requirement in listed)
    assert not any(requirement.startswith(package) for requirement in PROJECT["dependencies"])
    if package == "mpich":  # it has no module
        missing = MissingExtraError(package)
    else:
        assert missing_extra(package) is None
        monkeypatch.setitem(sys.modules, package, None)
        missing = missing_extra(package)
    assert missing is not None and f"needs {package}" in missing.what
    assert missing.remedy == f"pip install 'dvfs-campaign[{extra}]'"
    with pytest.raises(MissingExtraError, match=f"needs {package}"), explain_missing():
        __import__(f"{package}.anything")


def test_a_module_that_is_missing_for_another_reason_stays_a_fault():
    with pytest.raises(ModuleNotFoundError, match=r"campaign\.no_such_module"), explain_missing():
        __import__("campaign.no_such_module")


def test_the_extra_all_holds_every_other_one():
    """Without the compilers for GPUs, of which a machine's driver takes one, and without an MPI."""
    extras = PROJECT["optional-dependencies"]
    others = ",".join(sorted(set(extras) - {"all", "test", "docs", "cuda12", "cuda13", "mpi"}))
    assert extras["all"] == [f"dvfs-campaign[{others}]"]
