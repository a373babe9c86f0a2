"""A store of one user in the hands of another: it can be read, and nothing in it changes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from campaign.store.layout import open_store
from campaign.store.measurement import Measurement, Trace
from campaign.verbs.command_line import main
from tests.points import a_point
from tests.requirement import need_root
from tests.security.test_report_escapes import machine
from tests.stores import write

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[2]
NOBODY = 65534
CAMPAIGN = 'name = "c"\n[[sites]]\nsite = "localhost"\n[[kernels]]\nkernel = "dp_fma"\n'

# The interpreter's own files may be closed to others: what the verbs import is imported first,
# by running them on a copy, and the other user is a fork of that process.
AS_OTHER = """
import json, os, sys, traceback
from pathlib import Path
uid, home, warm, asked = int(sys.argv[1]), sys.argv[2], *map(json.loads, sys.argv[3:])
from campaign.verbs.command_line import main
from campaign.store.dataset import open_dataset
from campaign.store.layout import open_store
import campaign.launch.drive, campaign.launch.progress, campaign.launch.partition_run
import campaign.launch.local, campaign.launch.slurm
import encodings.utf_8_sig

def do(words):
    if words[0] == "open_dataset":
        dataset = open_dataset(open_store(Path(words[1]))).load()
        print(json.dumps(dict(dataset.sizes)))
        return 0
    try:
        return main(words)
    except SystemExit as end:
        return end.code

null = os.open(os.devnull, os.O_WRONLY)
kept = os.dup(1), os.dup(2)
os.dup2(null, 1); os.dup2(null, 2)
for words in warm:
    try:
        do(words)
    except Exception:
        pass
sys.stdout.flush(); sys.stderr.flush()
os.dup2(kept[0], 1); os.dup2(kept[1], 2)
outcomes = []
for words in asked:
    out, out_end = os.pipe()
    error, error_end = os.pipe()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.dup2(out_end, 1); os.dup2(error_end, 2)
            os.setgroups([]); os.setgid(uid); os.setuid(uid)
            os.environ["HOME"] = home
            os.chdir(home)
            code = do(words)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush(); sys.stderr.flush()
        os._exit(code)
    os.close(out_end); os.close(error_end)
    said = [os.fdopen(each).read() for each in (out, error)]
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    outcomes.append({"words": words, "code": status, "out": said[0], "error": said[1]})
print(json.dumps(outcomes))
"""


@dataclass(frozen=True)
class Place:
    """A folder that all may enter, the store in it that root owns, and the other user's home."""

    folder: Path
    store: Path
    home: Path


@dataclass(frozen=True)
class CommandOutcome:
    """How a verb ended for the other user."""

    code: int
    out: str
    error: str


def tree(root: Path) -> dict[str, tuple[str, int, int]]:
    """Content, mode and time of change of everything below a folder."""
    files = {}
    for path in sorted([root, *root.rglob("*")]):
        status = path.stat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        files[str(path)] = (content, status.st_mode, status.st_mtime_ns)
    return files


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    need_root()
    # pytest's own folders are closed to others.
    folder = Path(tempfile.mkdtemp(prefix="two-users-"))
    try:
        folder.chmod(0o755)
        table, store, home = folder / "t.csv", folder / "store", folder / "home"
        home.mkdir(mode=0o700)
        os.chown(home, NOBODY, NOBODY)
        rows = ["site,kernel,core_mhz,mem_mhz,time_s,energy_j,n_sp,n_dram"]
        for k in range(2):
            for core in (1000, 2000):
                for mem in (500, 900):
                    time_s, energy_j = machine(k, core, mem)
                    rows.append(f"x,k{k},{core},{mem},{time_s},{energy_j},{k + 1}e9,{2 - k}e8")
        table.write_text("\n".join(rows) + "\n")
        assert main(["import", str(table), "--store", str(store)]) == 0
        assert main(["fit", str(store), "--site", "x"]) == 0
        # A record that no index holds yet, as after a driver that was killed.
        time_ns = np.arange(100, dtype=np.int64)
        trace = Trace("c", "node", "W", time_ns, np.ones(100))
        point = a_point(site="y")
        measured = Measurement(point=point, status="ok", traces=(trace,))
        write(open_store(store), measured)
        (folder / "c.toml").write_text(CAMPAIGN)
        yield Place(folder, store, home)
    finally:
        shutil.rmtree(folder)


def verbs(place: Place, store: Path, out: Path) -> dict[str, list[str]]:
    at = str(store)
    return {
        "status": ["status", at],
        "export": ["export", at, "--csv", str(out / "table.csv")],
        "coefficients": ["coefficients", at],
        "report": ["report", at, "-o", str(out / "report.html")],
        "open_dataset": ["open_dataset", at],
        "fit": ["fit", at, "--site", "x"],
        "import": ["import", str(place.folder / "t.csv"), "--store", at],
        "run": ["run", str(place.folder / "c.toml"), "--store", at, "--quiet"],
        "run beside": ["run", str(place.folder / "c.toml"), "--quiet"],
    }


@pytest.fixture(scope="module")
def outcomes(place) -> Iterator[tuple[dict[str, CommandOutcome], bool]]:
    """What each verb said to the other user, and whether the store is as it was."""
    copy = place.folder / "copy"
    shutil.copytree(place.store, copy)
    copy.chmod(0o700)
    warm = verbs(place, copy, copy)
    asked = verbs(place, place.store, place.home) | {"closed": ["status", str(copy)]}
    before = tree(place.store)
    answers = as_other(
        place, list(asked.values()), [warm[name] for name in warm if "run" not in name]
    )
    yield dict(zip(asked, answers, strict=True)), tree(place.store) == before
    shutil.rmtree(copy)


def as_other(place: Place, asked: list[list[str]], warm: list[list[str]]) -> list[CommandOutcome]:
    """Run verbs as a user who owns nothing but an empty home."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            AS_OTHER,
            str(NOBODY),
            str(place.home),
            json.dumps(warm),
            json.dumps(asked),
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        timeout=120,
    )
    return [
        CommandOutcome(answer["code"], answer["out"], answer["error"])
        for answer in json.loads(done.stdout)
    ]


def test_the_store_is_as_it_was(outcomes):
    assert outcomes[1]


@pytest.mark.parametrize("verb", ["status", "export", "coefficients", "report", "open_dataset"])
def test_what_only_reads_works(outcomes, place, verb):
    outcome = outcomes[0][verb]
    assert outcome.code == 0, outcome.error
    assert "Traceback" not in outcome.error
    if verb == "open_dataset":
        assert json.loads(outcome.out)["measurement"] == 9
    if verb == "export":
        lines = (place.home / "table.csv").read_text().splitlines()
        assert len(lines) == 10
    if verb == "report":
        assert (place.home / "report.html").stat().st_uid == NOBODY


@pytest.mark.parametrize("verb", ["fit", "import", "run", "run beside"])
def test_what_would_write_is_refused_in_one_line(outcomes, verb):
    outcome = outcomes[0][verb]
    assert "Traceback" not in outcome.error, outcome.error
    assert outcome.code == (2 if verb == "run beside" else 1), outcome.error
    assert len(outcome.error.splitlines()) == 1, outcome.error
    assert outcome.error.startswith("campaign: ")


def test_a_store_that_is_closed_to_others_says_so(outcomes):
    outcome = outcomes[0]["closed"]
    assert outcome.code == 2
    assert len(outcome.error.splitlines()) == 1
    assert "Permission denied" in outcome.error
