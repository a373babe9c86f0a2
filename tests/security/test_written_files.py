"""What a verb writes: whole or not at all, and nowhere that a link leads."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from campaign.launch.detached import driver_log, start_detached
from campaign.store.layout import (
    UnwritableStoreError,
    create_store,
    driver_lock,
    open_store,
    replace_file,
)
from campaign.store.tables import read_columns
from campaign.verbs.command_line import main
from dvfs.files import replacing, write_kept, write_output
from tests.requirement import need_root
from tests.simulated_runs import simulate

ROOT = Path(__file__).parents[2]
LEFT = f".file.{'0' * 16}.new"
STUDY = ROOT / "examples" / "codesign-maxwell.toml"


@contextlib.contextmanager
def files_of_at_most(most_bytes: int) -> Iterator[None]:
    """What a full disk does to this process's files, without a disk: EFBIG in place of ENOSPC."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A measured simulated campaign with a fit."""
    folder = tmp_path_factory.mktemp("written")
    (folder / "c.toml").write_text(
        'name = "c"\n[[sites]]\nsite = "jetson-tk1"\n'
        'settings = { choose = "random", count = 6, seed = 1 }\n'
        "[protocol]\nmin_duration_s = 0.1\n[[kernels]]\n"
        'kernel = "sp_fma"\nparams = { level = "dram", ops_per_word = [1, 8, 64] }\n'
    )
    simulate(folder / "c.toml", folder / "S")
    assert main(["fit", str(folder / "S"), "--site", "jetson-tk1"]) == 0
    return folder / "S"


def words_of(verb: str, store: Path, to: Path) -> list[str]:
    """A verb that writes ``to``, or into that folder."""
    site = ["--site", "jetson-tk1"]
    return {
        "csv": ["export", str(store), "--csv", str(to)],
        "parquet": ["export", str(store), "--parquet", str(to)],
        "report": ["report", str(store), "-o", str(to)],
        "figures": ["figures", str(store), *site, "-o", str(to), "--format", "svg"],
        "platforms": ["figures", "--platform", "gtx-580", "-o", str(to), "--format", "svg"],
        "policy": ["policy", str(store), *site, "--unsure", "--force", "-o", str(to)],
        "next": ["next", str(store), *site, "--budget", "1", "--output", str(to)],
        "init": ["init", "--force", "-o", str(to)],
        "svg": ["show", str(store), a_point(store), "--svg", str(to)],
        "codesign": ["codesign", str(STUDY), "-o", str(to)],
    }[verb]


def a_point(store: Path) -> str:
    """The id of a point of a store."""
    return str(read_columns(open_store(store))["point_id"][0])


INTO_FOLDER = ("figures", "platforms", "codesign")
VERBS = ("csv", "parquet", "report", "policy", "next", "init", "svg", *INTO_FOLDER)


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("verb", VERBS)
def test_a_full_disk_leaves_the_earlier_file_and_no_other(
    verb: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    to = folder if verb in INTO_FOLDER else folder / "file"
    words = words_of(verb, store, to)
    if verb in INTO_FOLDER:
        assert main(words) == 0
    else:
        to.write_bytes(b"good")
    before = files_in(folder)
    capsys.readouterr()
    with files_of_at_most(min(map(len, before.values())) // 2):
        code = main(words)
    said = capsys.readouterr().err
    assert code in (1, 2), said
    assert str(folder) in said
    assert len(said.strip().splitlines()) == 1
    assert files_in(folder) == before


@pytest.mark.root
def test_a_small_file_system_that_is_full(tmp_path: Path) -> None:
    """As above, where the system itself says that there is no space."""
    need_root()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(tmp_path)], check=True)
    try:
        path = tmp_path / "file"
        write_output(path, b"good")
        with pytest.raises(OSError, match="No space left") as failed:
            write_output(path, bytes(100_000))
        assert failed.value.filename == str(path)
        assert path.read_bytes() == b"good"
        assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_an_interrupt_leaves_the_earlier_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_output(path, "good")
    with pytest.raises(KeyboardInterrupt), replacing(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert files_in(tmp_path) == {"file": b"good"}


def test_what_a_killed_writer_left_goes_with_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    program = (
        "import os, sys; from pathlib import Path; from dvfs.files import replacing\n"
        "with replacing(Path(sys.argv[1])) as file:\n"
        "    file.write(b'half'); file.flush(); os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(path)], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    with replacing(path) as file:  # a file that is being written is not taken for one
        write_output(path, b"first")
        file.write(b"second")
    assert files_in(tmp_path) == {"file": b"second"}


@pytest.mark.parametrize("name", [".file.new", LEFT])
@pytest.mark.parametrize("write", [write_output, replace_file, write_kept])
def test_no_link_leads_the_bytes_elsewhere(
    tmp_path: Path, write: Callable[[Path, bytes], None], name: str
) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(tmp_path / "victim")
    write(tmp_path / "out" / "file", b"new")
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert (tmp_path / "out" / name).is_symlink()  # nor is what it names opened
    assert (tmp_path / "out" / "file").read_bytes() == b"new"


def test_not_even_a_link_at_the_name_that_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / LEFT).symlink_to(tmp_path / "victim")
    monkeypatch.setattr("dvfs.files.secrets.token_hex", lambda n: "0" * (2 * n))
    with pytest.raises(FileExistsError):
        write_output(tmp_path / "file", b"new")
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert not (tmp_path / "file").exists()


def test_links_in_a_store_are_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    store = create_store(tmp_path / "S", "s")
    for name in ("lock", "status.json", "campaign.json"):
        (store.root / name).symlink_to(victim)
    store.write_json("campaign.json", {})
    replace_file(store.root / "status.json", b"{}", False)
    with pytest.raises(UnwritableStoreError, match="lock"), driver_lock(store):
        pass
    log = driver_log(store)
    log.symlink_to(victim)
    with pytest.raises(OSError, match=r"driver\.log"):
        start_detached(["--version"], log)
    assert victim.read_bytes() == b"precious"


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_permissions_are_those_of_the_umask_or_of_the_file_before(
    tmp_path: Path, mask: int
) -> None:
    before = os.umask(mask)
    try:
        write_output(tmp_path / "new", b"x")
        (tmp_path / "old").write_bytes(b"y")
        (tmp_path / "old").chmod(0o640)
        write_output(tmp_path / "old", b"z")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o666 & ~mask
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o640


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to("far/target")
    write_output(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert files_in(tmp_path / "far") == {"target": b"new"}


@pytest.mark.parametrize("verb", ["csv", "report"])
def test_dev_stdout_is_written_to(verb: str, store: Path, tmp_path: Path) -> None:
    words = words_of(verb, store, Path("/dev/stdout"))
    page = tmp_path / "page"
    with page.open("wb") as file:
        file.write(b"before\n")
        file.flush()
        subprocess.run(
            [sys.executable, "-m", "campaign", *words],
            stdout=file,
            cwd=ROOT,
            check=True,
            timeout=60,
        )
    begin = {"csv": b"point_id,", "report": b"<!DOCTYPE html>"}[verb]
    assert page.read_bytes().lower().startswith(b"before\n" + begin.lower())
    assert list(tmp_path.iterdir()) == [page]


def test_a_pipe_is_written_to(store: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        assert main(words_of("report", store, pipe)) == 0
        page, _ = reader.communicate(timeout=60)
    assert page.rstrip().endswith(b"</html>")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


def test_nobody_else_may_write_what_a_cache_keeps(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_kept(tmp_path / "kept", b"code")
    finally:
        os.umask(before)
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o600
