"""What listens while a campaign runs here: on loopback alone, and behind certificates."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from campaign.launch.certificates import make_security
from sites.site_reading import built_in_sites, read_site
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
CAMPAIGN = """\
name = "sockets"
repeats = 20
[[sites]]
site = "board.toml"
[protocol]
min_duration_s = 1.0
[[kernels]]
kernel = "sp_fma"
params = { level = "dram", ops_per_word = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128] }
"""
WAIT_S = 0.4
SILENT_S = 10.0
"""So long nothing was said: far longer than a busy machine needs for a refusal."""
KEY = b"PRIVATE KEY-----"


@dataclass(frozen=True)
class Listener:
    """A listening socket: its address, and what a stranger's knock brings."""

    host: str
    port: int
    protocol: str


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What was found while the campaign ran, and after its end."""

    listeners: list[Listener]
    plain_client: str
    tls_stranger: str
    scheduler: str
    """host:port at which the two clients knocked."""
    keys: list[str]
    """Files that held a private key while it ran, and after."""
    keys_after: list[str]
    told_of_keys: list[str]
    """Processes whose command line, which all may read, holds a key."""
    dashboards: list[str]
    changed_by_page: int
    """The HTTP status of a page's request to send a worker away."""


def family(driver: subprocess.Popen[bytes]) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        first = psutil.Process(driver.pid)
        return [first, *first.children(recursive=True)]
    return []


def listening(processes: list[psutil.Process]) -> set[tuple[str, int]]:
    """(host, port) of every socket that listens."""
    addresses = set()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            for connection in process.net_connections():
                if connection.status == psutil.CONN_LISTEN:
                    addresses.add(connection.laddr[:2])
    return addresses


def spoken(host: str, port: int) -> str:
    """The protocol of a listener, found without Dask: a plain Dask greets every client."""
    try:
        with socket.create_connection((host, port), timeout=WAIT_S) as plain:
            greeting = plain.recv(64)
            return "plain" if greeting else "closed"
    except TimeoutError:
        pass
    except ConnectionRefusedError:
        return "gone"
    except OSError:
        return "unknown"
    # Before TLS: a web server waits long for what follows a handshake's first bytes.
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host, port), timeout=SILENT_S) as web,
    ):
        web.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        if web.recv(64).startswith(b"HTTP/"):
            return "http"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), timeout=SILENT_S) as raw,
            context.wrap_socket(raw) as secure,
        ):
            try:
                greeting = secure.recv(64)
            except TimeoutError:
                return "tls, silent"
            except OSError:  # an alert, or the connection cut: no certificate was shown
                return "tls, refused"
            return "tls, open" if greeting else "tls, refused"
    except OSError:
        return "unknown"


def scheduler_address(dashboard: str) -> str:
    """host:port of the scheduler that a dashboard belongs to, as the dashboard shows it."""
    page = dashboard.rpartition("/")[0] + "/info/main/workers.html"
    with urllib.request.urlopen(page, timeout=10) as answer:
        match = re.search(r"Scheduler t(?:cp|ls)://([\d.:]+)", answer.read().decode())
    assert match is not None, page
    return match[1]


def posted(page: str) -> int:
    """The HTTP status of a POST."""
    try:
        with urllib.request.urlopen(page, data=b'{"workers": []}', timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def refused(address: str, security: object | None) -> str:
    """How a Dask client ends that knocks with these certificates, or none; empty: it got in."""
    from distributed import Client

    try:
        client = Client(address, timeout=2, security=security, set_as_default=False)
    except (OSError, TimeoutError) as error:
        return type(error).__name__
    client.close()
    return ""


def key_files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file() and KEY in path.read_bytes():
                yield path


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    from distributed.security import Security

    folder = tmp_path_factory.mktemp("sockets")
    scratch = folder / "scratch"
    scratch.mkdir()
    board = built_in_sites()["jetson-tk1"].read_text()
    assert "[partitions.board]\n" in board
    board = board.replace(
        "[partitions.board]\n", f'[partitions.board]\nlocal_directory = "{scratch}"\n'
    )
    (folder / "board.toml").write_text(board)
    (folder / "c.toml").write_text(CAMPAIGN)
    words = ["run", str(folder / "c.toml"), "--store", str(folder / "store")]
    with (folder / "out").open("wb") as output:
        driver = subprocess.Popen(
            [sys.executable, "-m", "campaign", *words],
            cwd=ROOT,
            stdout=output,
            stderr=output,
            env=os.environ | {"TMPDIR": str(scratch)},
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 60
        # The driver's line comes when scheduler, workers and dashboard are there.
        while b"dashboard" not in (folder / "out").read_bytes():
            assert driver.poll() is None, (folder / "out").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(1.0)
        processes = family(driver)
        listeners = [
            Listener(host, port, spoken(host, port)) for host, port in sorted(listening(processes))
        ]
        dashboards = re.findall(r"dashboard (\S+)", (folder / "out").read_text())
        address = scheduler_address(dashboards[0])
        asked_to_change = posted(dashboards[0].rpartition("/")[0] + "/api/v1/retire_workers")
        plain = refused(f"tcp://{address}", None)
        stranger = refused(f"tls://{address}", Security.temporary())
        keys = [path.name for path in key_files(folder)]
        named = []
        for process in processes:
            with contextlib.suppress(psutil.Error):
                if "PRIVATE KEY" in " ".join(process.cmdline()):
                    named.append(process.name())
        assert driver.poll() is None, "it ended before it was looked at"
        driver.send_signal(signal.SIGINT)
        driver.wait(60)
        yield Seen(
            listeners=listeners,
            plain_client=plain,
            tls_stranger=stranger,
            scheduler=address,
            keys=keys,
            keys_after=[path.name for path in key_files(folder)],
            told_of_keys=named,
            dashboards=dashboards,
            changed_by_page=asked_to_change,
        )
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()


def test_everything_listens_on_loopback_alone(seen):
    assert len(seen.listeners) >= 4  # scheduler, dashboard, and each worker
    assert {listener.host for listener in seen.listeners} == {"127.0.0.1"}


def test_no_listener_greets_a_stranger(seen):
    """But for pages over HTTP, which change nothing, every listener asks for a certificate."""
    strange = [listener for listener in seen.listeners if listener.protocol not in ("http", "gone")]
    assert len(strange) >= 3, seen.listeners  # the scheduler and two workers
    assert {listener.protocol for listener in strange} == {"tls, refused"}


def test_an_unencrypted_client_and_one_with_other_certificates_are_refused(seen):
    """As by a cluster of our own that lets the same client in: its certificates are at hand."""
    from distributed import LocalCluster
    from distributed.security import Security

    assert seen.scheduler in {f"{listener.host}:{listener.port}" for listener in seen.listeners}
    own = Security.temporary()
    with LocalCluster(
        n_workers=0, host="tls://127.0.0.1", security=own, dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address.removeprefix("tls://")
        assert refused(f"tls://{address}", own) == ""
        assert refused(f"tls://{address}", Security.temporary()) == seen.tls_stranger != ""
        assert refused(f"tcp://{address}", None) == seen.plain_client != ""


def test_the_dashboard_is_on_loopback(seen):
    assert len(seen.dashboards) == 1
    assert re.match(r"https?://127\.0\.0\.1:\d+/", seen.dashboards[0])


def test_nothing_can_be_changed_through_the_dashboard(seen):
    assert seen.changed_by_page in (404, 405)


def test_clusters_that_tests_start_ask_for_certificates():
    """Who connects to a Dask without them can have it run anything, as the user of the tests."""
    calls = re.compile(r"\b(?:LocalCluster|SLURMCluster|Client)\((?:[^()]|\([^()]*\))*\)")
    files = [path for name in ("tests", "benchmarks") for path in (ROOT / name).rglob("*.py")]
    started = [
        (path.name, call)
        for path in files
        for call in calls.findall(path.read_text())
        if "Cluster(" in call or "n_workers" in call
    ]
    assert len(started) >= 5
    safe = re.compile(r"security=|processes=False")
    assert [call for call in started if not safe.search(call[1])] == []


def test_keys_of_a_local_run_stay_in_memory(seen, tmp_path):
    from distributed.security import Security

    assert seen.keys == []
    assert seen.keys_after == []
    assert seen.told_of_keys == []
    (tmp_path / "key").write_text(Security.temporary().tls_worker_key)
    assert list(key_files(tmp_path)) == [tmp_path / "key"]  # it would have been seen


def test_a_worker_of_a_slurm_job_shows_its_pages_on_loopback_alone(tmp_path):
    """The command of a job script, run here without the interface that a site file may name."""
    from distributed import LocalCluster

    from campaign.launch.slurm import SlurmScheduler

    site = read_site(built_in_sites()["slurm-example"])
    command = SlurmScheduler(site).job_script("cpu-a", "dvfs-0").rstrip().rpartition("\n")[2]
    with LocalCluster(
        n_workers=0, host="tls://127.0.0.1", security=make_security(), dashboard_address=None
    ) as cluster:
        keys = []
        for option, text in (
            ("--tls-ca-file", cluster.security.tls_ca_file),
            ("--tls-cert", cluster.security.tls_worker_cert),
            ("--tls-key", cluster.security.tls_worker_key),
        ):
            (tmp_path / option).write_text(text)
            keys += [option, str(tmp_path / option)]
        words = shlex.split(command.replace("SCHEDULER", cluster.scheduler_address))
        process = subprocess.Popen([*words, *keys], cwd=ROOT, stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: cluster.scheduler_info["workers"], 60.0)
            found = listening([psutil.Process(process.pid)])
            everywhere = {address for address in found if address[0] != "127.0.0.1"}
            assert len(found) >= 2
            assert {spoken("127.0.0.1", port) for _, port in everywhere} <= {"tls, refused"}
        finally:
            process.terminate()
            process.wait(30)
