"""Nothing that is changed in a store gives other numbers with exit code 0."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from campaign.results import open_store
from tests.faults.changed_stores import COMMANDS, ask, run, small_store

ROOT = Path(__file__).parents[2]


def test_changed_anywhere_it_gives_the_same_numbers_or_is_refused_by_name():
    outcomes = list(run(200, seed=2, fits_of=10))
    assert [outcome.line() for outcome in outcomes if not outcome.ok] == []
    assert len({outcome.kind for outcome in outcomes}) > 7
    assert any(outcome.exit_code == 0 for outcome in outcomes)
    assert any(outcome.exit_code == 2 for outcome in outcomes)


UNABLE = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-all")
"""Runs a command that cannot read what its mode forbids, also as root."""


def test_what_cannot_be_read_is_named_and_never_empty(tmp_path):
    store = small_store(tmp_path)
    code = (
        "import sys; from pathlib import Path; from tests.faults.changed_stores import ask\n"
        "for verb in sys.argv[2:]:\n"
        "    said = ask(verb, Path(sys.argv[1])); print(said.out, said.error, said.code, '\\0')"
    )
    before = {verb: ask(verb, store) for verb in COMMANDS if verb != "fit"}
    words = [*(UNABLE if os.getuid() == 0 else ()), sys.executable, "-c", code, str(store), *before]
    for name in ("journals", "index", "setups", "hours", "fits", "sites", "campaign.json"):
        path = store / name
        mode = path.stat().st_mode
        path.chmod(0)
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        path.chmod(mode)
        assert done.returncode == 0, (name, done.stderr)
        said = done.stdout.split("\0")[:-1]
        assert len(said) == len(before)
        for (verb, then), text in zip(before.items(), said, strict=True):
            code_now = int(text.split()[-1])
            same = code_now == 0 and then.out.strip() in text
            assert same or (code_now != 0 and name in text), (name, verb, text)
        assert any(text.split()[-1] != "0" for text in said), name


def test_verify_names_what_does_not_belong(tmp_path):
    store = small_store(tmp_path)
    assert open_store(store).status(verify=True).damage == ()
    for name in ("notes.txt", "fits/x.txt", "index/000001/x", "traces.zarr/value/c/x"):
        path = Path(store, name)
        path.touch()
        (said,) = open_store(store).status(verify=True).damage
        assert name in said
        path.unlink()
