"""Restoring files that never show the restored value."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sites.clocks.shared import written_files
from sites.clocks.shared.written_files import File, put_back_values


def test_all_files_together_have_one_time_to_settle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node may have hundreds of files; /dev/null takes what is written and shows nothing."""
    monkeypatch.setattr(written_files, "SETTLE_S", 0.2)
    names = [f"sys/cpu{i}" for i in range(6)]
    (tmp_path / "sys").mkdir()
    for name in names:
        (tmp_path / name).symlink_to("/dev/null")
    began_s = time.monotonic()
    back = put_back_values(tmp_path, [File(name, "1200000\n") for name in names])
    assert 0.2 <= time.monotonic() - began_s < 0.8
    assert (back.done, back.gone) == ((), ())
    assert [line.split(" (")[0] for line in back.failed] == [
        str(tmp_path / name) for name in reversed(names)
    ]
    assert all("it holds '' now" in line and "1200000" in line for line in back.failed)
