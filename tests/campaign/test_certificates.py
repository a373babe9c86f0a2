"""A campaign's certificate is valid whatever a node's clock says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.shim import AtCall, environment

CONNECT = """
import sys
from pathlib import Path
from campaign.launch.certificates import make_security
from distributed import Client, LocalCluster
from tests.faults.shim import AtCall, arm

security = make_security()
folder, jump_s = Path(sys.argv[1]), int(sys.argv[2])
at_call = AtCall(prefix=folder, act="clock", number=1, jump_s=jump_s, log_path=folder / "hit")
arm(at_call.variables())
options = {"n_workers": 1, "processes": False, "dashboard_address": None, "protocol": "tls://"}
with LocalCluster(security=security, **options) as cluster, Client(cluster) as client:
    print(client.submit(abs, -7).result(timeout=60))
"""


@pytest.mark.parametrize("jump_s", [-315_360_000, -60, 315_360_000])
def test_who_connects_with_a_clock_far_off_is_let_in(tmp_path: Path, jump_s: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CONNECT, str(tmp_path), str(jump_s)],
        env=environment(AtCall(prefix=tmp_path, act="count")),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split() == ["7"], done.stderr
    assert (tmp_path / "hit").read_text().split()[1] == "clock"
