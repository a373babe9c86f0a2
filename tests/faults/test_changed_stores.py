"""Nothing that is changed in a store gives other numbers with exit code 0."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product
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


ASKS = """
import json, sys
from pathlib import Path
from tests.faults.changed_stores import ask
store, parts, verbs = Path(sys.argv[1]), *map(json.loads, sys.argv[2:])
for part in parts:
    path = store / part
    mode = path.stat().st_mode
    path.chmod(0)
    for verb in verbs:
        said = ask(verb, store)
        print(json.dumps([part, verb, *said]))
    path.chmod(mode)
"""
"""Asks all that a store can be asked, one part of it after the other being closed."""


def test_what_cannot_be_read_is_named_and_never_empty(tmp_path):
    store = small_store(tmp_path)
    parts = ("journals", "index", "setups", "hours", "fits", "sites", "campaign.json")
    before = {verb: ask(verb, store) for verb in COMMANDS if verb != "fit"}
    words = [sys.executable, "-c", ASKS, str(store), json.dumps(parts), json.dumps([*before])]
    unable = UNABLE if os.getuid() == 0 else ()
    done = subprocess.run([*unable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(part, verb) for part, verb, *_ in answers] == [*product(parts, before)]
    for part, verb, code, out, error in answers:
        same = code == 0 and before[verb].out.strip() in out
        assert same or (code != 0 and part in out + error), (part, verb, out, error)
    assert {part for part, _, code, *_ in answers if code != 0} == {*parts}


def test_verify_names_what_does_not_belong(tmp_path):
    store = small_store(tmp_path)
    assert open_store(store).status(verify=True).damage == ()
    for name in ("notes.txt", "fits/x.txt", "index/000001/x", "traces.zarr/value/c/x"):
        path = Path(store, name)
        path.touch()
        (said,) = open_store(store).status(verify=True).damage
        assert name in said
        path.unlink()
