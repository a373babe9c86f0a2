"""Faults of whole runs on local Dask workers with the simulated board.

``campaign run`` is started on a campaign of its own, harmed at a random instant or at a random
system call, and must end by itself with an exit code and a last line that say where it is. Then up
to two undisturbed runs must bring it to its end, with nothing left alive or on the disk, and the
checker (:mod:`tests.faults.checker`) compares every measurement with the simulated machine.
"""

from __future__ import annotations

import contextlib
import functools
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from campaign.store.columns import SHARD_SAMPLES
from campaign.store.dataset import current_tables
from campaign.store.journal import encode, scan
from campaign.store.layout import JOURNAL_SUFFIX, open_store
from tests.faults import bad_program, local_run
from tests.faults.checker import Judgement, expected_of, judge, measured_ids
from tests.faults.local_run import STORE, Running
from tests.faults.outcome import Outcome
from tests.faults.shim import AtCall, environment
from tests.faults.small_campaign import (
    SCRATCH,
    measured_here,
    plan_of,
    write_campaign,
    write_programs,
)
from tests.shared_imports import program

LIMIT_S = 180.0
"""A run that has not ended by itself in so long counts as one that never does."""
ORPHANS_S = 30.0
"""So long may processes take to notice that their driver was killed."""
ATTEMPTS = 4
KEPT = "What was measured is kept"
SAYS_STATE = ("points measured", "campaign: ")
"""What one of has to be in the last line of a driver that was not killed itself."""


@dataclass(kw_only=True)
class Trial:
    """One fault while it is carried out: its folder, its random numbers, what became of it."""

    folder: Path
    generator: random.Random
    mark: str = field(default_factory=local_run.new_mark)
    what: str = ""
    exit_code: int | None = None
    output: str = ""
    killed: bool = False
    """Whether the driver itself was killed: then it can't say anything."""
    wrong: list[str] = field(default_factory=list)
    more: tuple[str, ...] = ()
    """Further words of the undisturbed runs."""
    missed: bool = False
    """Nothing was harmed: the run was over before."""
    held: set[str] = field(default_factory=set)
    """The points that were measured when it was harmed, and no fault of its kind may cost."""
    finished: bool = False

    @property
    def store(self) -> Path:
        """The campaign's store."""
        return self.folder / STORE

    def start(self, at_call: AtCall | None = None, *more: str) -> Running:
        """Start the run that is to be harmed."""
        variables = environment(at_call) if at_call is not None else None
        return local_run.start(self.folder, self.mark, variables, more)

    def ended(self, running: Running, killed: bool = False, asked: bool = False) -> None:
        """Wait for the harmed run's end, and look at how it ended. ``killed``, ``asked``: a signal
        killed it or asked it to end, if it lived to get it."""
        self.exit_code = local_run.wait(running, LIMIT_S)
        self.output = running.text()
        self.killed = killed and self.exit_code == -signal.SIGKILL
        if self.exit_code is None:
            self.wrong.append(f"it did not end in {LIMIT_S:g} s")
        elif asked and self.exit_code == -signal.SIGTERM:
            self.missed = True  # it had not begun to listen, or was about to end
        elif not self.killed:
            self._check_end()

    def _check_end(self) -> None:
        said = local_run.last_line(self.output)
        if self.exit_code not in (0, 1, 2, 130):
            self.wrong.append(f"exit code {self.exit_code}")
        if not any(words in said for words in SAYS_STATE):
            self.wrong.append(f"its last line does not say in which state it is: {said}")

    def judge(self, resumable: bool) -> Judgement:
        """The checker's word on the store as it is."""
        plan = plan_of(self.folder)
        return judge(plan, self.store, resumable, self.folder / SCRATCH, expected_of(plan))


@dataclass(frozen=True)
class Kind:
    """A kind of fault: its name, what does it, and how often it is drawn beside the others."""

    name: str
    harm: Callable[[Trial], None]
    weight: int = 1
    nodes: int = 1
    """How many Dask workers the campaign has: a second one costs seconds to come up."""


# --- processes that are killed ---------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What an undisturbed run of this campaign is like on this machine, and what it leaves.

    ``seconds`` from its start to its end; ``driver`` and ``worker``: the calls of each on the store
    that may be harmed, and how often it makes each. ``journal_bytes``: what half of the records
    take in journals; ``disk_bytes``: what the store takes on the disk. ``complete`` and ``half``:
    stores, of that run and of one whose processes were all killed half way. ``kept`` holds their
    folder.
    """

    seconds: float
    driver: Counter[str]
    worker: Counter[str]
    journal_bytes: int
    disk_bytes: int
    complete: Path
    half: Path
    kept: tempfile.TemporaryDirectory[str]


@functools.cache
def reference() -> Reference:
    """Run it twice; once a process."""
    kept = tempfile.TemporaryDirectory(prefix="local-faults-")
    complete, half = Path(kept.name) / "complete", Path(kept.name) / "half"
    write_campaign(complete)
    at_call = AtCall(prefix=complete / STORE, act="count", log_path=complete / "calls")
    began = time.monotonic()
    running = local_run.start(complete, local_run.new_mark(), environment(at_call))
    assert local_run.wait(running, LIMIT_S) == 0, running.text()
    seconds = time.monotonic() - began
    driver: Counter[str] = Counter()
    worker: Counter[str] = Counter()
    for pid, call, _ in at_call.hits():
        (driver if pid == running.process.pid else worker)[call] += 1
    write_campaign(half)
    plan = plan_of(half)
    half_bytes = sum(len(encode(measured_here(plan, point))) for point in plan.points) // 2
    running = local_run.start(half, local_run.new_mark())
    local_run.wait_until(
        lambda: local_run.journal_bytes(half / STORE) > half_bytes or running.ended(),
        LIMIT_S,
        0.001,
    )
    local_run.kill_marked(running.mark)
    running.process.wait()
    return Reference(
        seconds=seconds,
        driver=driver,
        worker=worker,
        journal_bytes=half_bytes,
        disk_bytes=sum(path.lstat().st_blocks * 512 for path in (complete / STORE).rglob("*")),
        complete=complete / STORE,
        half=half / STORE,
        kept=kept,
    )


def _at_an_instant(trial: Trial, running: Running, find: Callable[[Running], list[int]]) -> str:
    """Wait for a random instant of a run; what it was.

    Of ten, four lie anywhere in a run, three after the first process to be hit has come up, and
    three after a random number of bytes were written to journals, for which there are
    milliseconds.
    """
    way = trial.generator.random()
    if way < 0.4:
        at_s = trial.generator.uniform(0.0, reference().seconds)
        local_run.wait_until(running.ended, at_s)
        return f"{at_s:.2f} s after the start"
    if way < 0.7:
        after_s = trial.generator.uniform(0.0, 1.0)
        local_run.wait_until(lambda: running.ended() or find(running), LIMIT_S)
        local_run.wait_until(running.ended, after_s)
        return f"{after_s:.2f} s after there was one"
    size = trial.generator.randrange(1, reference().journal_bytes)
    local_run.wait_until(
        lambda: running.ended() or local_run.journal_bytes(trial.store) >= size, LIMIT_S, 0.001
    )
    return f"when the journals held {size} bytes"


def _killer(name: str, find: Callable[[Running], list[int]], number: int, nodes: int) -> Kind:
    def harm(trial: Trial) -> None:
        running = trial.start()
        if number == signal.SIGTERM:  # before it holds the store it has nothing to say
            local_run.wait_until(lambda: running.ended() or _is_held(trial.store), LIMIT_S)
        instant = _at_an_instant(trial, running, find)
        victims: list[int] = []

        def has_come() -> bool:
            victims[:] = find(running)
            return bool(victims) or running.ended()

        local_run.wait_until(has_come, LIMIT_S, 0.001)
        if name != "all":
            victims = victims[:1]
        hits_driver = running.process.pid in victims and not running.ended()
        # Stopped, they stay at this instant while it is read what they have measured.
        stopped = local_run.everyone(running)
        local_run.kill(stopped, signal.SIGSTOP)
        trial.held = measured_ids(trial.store)
        local_run.kill(victims, number)
        local_run.kill(stopped, signal.SIGCONT)
        trial.what = f"{signal.Signals(number).name} {name} {instant}, {len(trial.held)} measured"
        asks = number == signal.SIGTERM
        trial.ended(running, hits_driver and not asks, asks)
        trial.missed |= not victims or (hits_driver and not asks and not trial.killed)
        if asks and not trial.missed and trial.exit_code not in (0, 130):
            trial.wrong.append(f"ended with {trial.exit_code} at a SIGTERM")

    return Kind(f"{signal.Signals(number).name} {name}", harm, 3, nodes)


def _is_held(store: Path) -> bool:
    lock = store / "lock"
    return lock.exists() and bool(lock.read_text())


def _driver(running: Running) -> list[int]:
    return [] if running.ended() else [running.process.pid]


# --- system calls that fail or never come back -------------------------------------------------

DRIVER, WORKER, SERVER = "campaign run", "spawn_main", "campaign.measure.forkserver"


def _calls_of(word: str, act: str = "") -> int:
    """How many calls of such a process may be harmed; only its writes can be torn."""
    match word:
        case "campaign run":
            calls = reference().driver
        case "spawn_main":  # there are two of them
            calls = Counter({call: -(-n // 2) for call, n in reference().worker.items()})
        case _:  # the fork server measures simulated points itself, and writes a record of each
            points = len(plan_of(reference().complete.parent).points)
            calls = Counter({"open": points, "write": points, "rename": points})
    return calls["write"] if act == "torn" else calls.total()


def _at_a_call(name: str, prefix: str, word: str) -> Kind:
    """A random fault at a random call of one of the processes with ``word``."""

    def harm(trial: Trial) -> None:
        draw = trial.generator
        act = draw.choice(["kill-before", "kill-after", "torn", "errno", "errno", "errno"])
        error = draw.choice(["ENOSPC", "EDQUOT", "EROFS", "EIO"]) if act == "errno" else ""
        always = act == "errno" and draw.random() < 0.5
        number = draw.randrange(1, _calls_of(word, act) + 1)
        log = trial.folder / "hit"
        at_call = AtCall(
            prefix=trial.folder / prefix,
            act=act,
            number=number,
            error=error,
            always=always,
            word=word,
            once_path=trial.folder / "acted",
            log_path=log,
        )
        trial.ended(trial.start(at_call), word == DRIVER)
        hit = at_call.first_hit(trial.folder)
        trial.missed = not hit
        trial.what = f"{at_call}: {hit}"

    return Kind(f"system call in {name}", harm, 3, 2 if word == WORKER else 1)


def _errors_everywhere(name: str, error: str) -> Kind:
    """From a random call on, nothing can be written to the store by anyone."""

    def harm(trial: Trial) -> None:
        word = trial.generator.choice([DRIVER, WORKER])
        number = trial.generator.randrange(1, _calls_of(word) + 1)
        log = trial.folder / "hit"
        at_call = AtCall(
            prefix=trial.store, act="errno", number=number, error=error, always=True, log_path=log
        )
        trial.ended(trial.start(at_call))
        trial.missed = not at_call.hits()
        trial.what = f"{at_call} in every process: {at_call.first_hit(trial.folder)}"

    return Kind(name, harm, 2)


def _small_disk(trial: Trial) -> None:
    """The store on a real file system that is too small; it is then made larger."""
    size_kib = trial.generator.randrange(4, reference().disk_bytes // 1024, 4)
    trial.what = f"a disk of {size_kib} KiB"
    with _mounted(trial, f"size={size_kib}k"):
        if not trial.missed:
            trial.ended(trial.start())
            trial.missed = trial.exit_code == 0
            _mount("-o", "remount,size=1g", str(trial.store))
            _to_the_end(trial)


def _read_only_disk(trial: Trial) -> None:
    """A store, half done, on a real file system that has become read-only; then it is not."""
    trial.what = "a read-only disk"
    with _mounted(trial, "size=1g"):
        if not trial.missed:
            shutil.copytree(reference().half, trial.store, dirs_exist_ok=True)
            trial.held = measured_ids(trial.store)
            _mount("-o", "remount,ro", str(trial.store))
            trial.ended(trial.start())
            if trial.exit_code != 1 or KEPT not in local_run.last_line(trial.output):
                trial.wrong.append(f"ended with {trial.exit_code}, not with 1 and {KEPT!r}")
            _mount("-o", "remount,rw", str(trial.store))
            _to_the_end(trial)


@contextlib.contextmanager
def _mounted(trial: Trial, options: str) -> Iterator[None]:
    """A tmpfs for the store; where this user may not mount, the trial is missed."""
    trial.store.mkdir(parents=True, exist_ok=True)
    try:
        _mount("-t", "tmpfs", "-o", options, "tmpfs", str(trial.store))
    except (FileNotFoundError, subprocess.CalledProcessError):
        trial.what += ", which can't be mounted"
        trial.missed = trial.finished = True
        yield
        return
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(trial.store)], check=False)


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], capture_output=True, check=True)


# --- files that are not what was written -------------------------------------------------------


def _damaged_file(trial: Trial) -> None:
    """A journal, shard or index file is cut or has bytes flipped between two runs."""
    draw = trial.generator
    shutil.copytree(draw.choice([reference().complete, reference().half]), trial.store)
    files = [
        path
        for path in sorted(trial.store.rglob("*"))
        if path.is_file() and path.stat().st_size and _is_data(path.relative_to(trial.store))
    ]
    by_folder: dict[str, list[Path]] = {}
    for path in files:
        by_folder.setdefault(path.relative_to(trial.store).parts[0], []).append(path)
    path = draw.choice(by_folder[draw.choice(sorted(by_folder))])
    whole = measured_ids(trial.store)
    data = bytearray(path.read_bytes())
    if draw.random() < 0.4:
        at = draw.randrange(len(data))
        cost = _costs(trial.store, path, range(at, len(data)))
        trial.missed = _ends_a_record(path, at)
        path.write_bytes(bytes(data[:at]))
        how = f"cut at byte {at} of {len(data)}"
    else:
        places = sorted(draw.sample(range(len(data)), min(len(data), draw.randrange(1, 9))))
        cost = _costs(trial.store, path, places)
        for place in places:
            data[place] ^= 1 << draw.randrange(8)
        path.write_bytes(bytes(data))
        how = f"bits flipped at {', '.join(map(str, places))} of {len(data)} bytes"
    name = path.relative_to(trial.store)
    trial.what = f"{name} {how}"
    before = trial.judge(True)
    trial.held = whole - cost
    trial.ended(trial.start())
    kept = len(trial.held)
    trial.wrong += local_run.measured_again(trial.output, before.planned, kept)
    harm = before.findings or [f"{before.measured} of {len(whole)} points left"]
    noticed = before.findings or (before.measured < len(whole) and not trial.missed)
    if noticed and not _is_reported(trial, str(name), before.findings):
        trial.wrong.append(f"nothing was said of it, and: {harm[0]}")


def _costs(store: Path, path: Path, places: Sequence[int]) -> set[str]:
    """The points that damage at these bytes of a file may cost, before it is done: those of a
    journal's records that lie there, or those with samples in a shard. Nothing else costs any."""
    name = path.relative_to(store).parts
    if name[0] == "journals":
        return {
            entry.point_id
            for entry in scan(path).entries
            if bisect_left(places, entry.offset) < bisect_left(places, entry.end)
        }
    if name[0] != "traces.zarr" or "c" not in name:
        return set()
    tables = current_tables(open_store(store))[0]
    begin = int(name[-1]) * SHARD_SAMPLES
    rows = tables.traces
    inside = (rows["row_start"] < begin + SHARD_SAMPLES) & (
        rows["row_start"] + rows["row_size"] > begin
    )
    owners = tables.measurements["point_id"].iloc[rows["measurement"][inside]]
    return {str(owner) for owner in owners}


def _ends_a_record(path: Path, at: int) -> bool:
    """Whether a journal that is cut here ends whole, so that nothing can tell."""
    return path.suffix == JOURNAL_SUFFIX and at in {0, *(entry.end for entry in scan(path).entries)}


def _is_data(name: Path) -> bool:
    return name.parts[0] not in ("lock", "store.json", "logs", "fits", "sites", "campaign.json")


def _is_reported(trial: Trial, name: str, findings: list[str]) -> bool:
    """Whether the run named the damaged file, or every point that the damage has cost."""
    known = Path(name).name if name.startswith("journals/") else name
    if known in trial.output:
        return True
    points = {p.id: p for p in plan_of(trial.folder).points}
    lost = [
        points[w.rstrip(":")] for f in findings for w in f.split()[1:2] if w.rstrip(":") in points
    ]
    return bool(lost) and all(p.id in trial.output or p.params in trial.output for p in lost)


# --- clocks, drivers, ports ----------------------------------------------------------------------


def _clock_jumps(trial: Trial) -> None:
    draw = trial.generator
    jump_s = draw.choice([60, 3600, 86_400, 315_360_000]) * draw.choice([-1, 1])
    word = draw.choice([DRIVER, WORKER, SERVER, ""])
    number = int(2000 ** draw.random())  # most processes read the clock less often
    log = trial.folder / "hit"
    at_call = AtCall(
        prefix=trial.store, act="clock", number=number, jump_s=jump_s, word=word, log_path=log
    )
    trial.what = str(at_call)
    trial.ended(trial.start(at_call))
    trial.missed = not at_call.hits()
    if trial.exit_code != 0:
        trial.wrong.append(f"exit code {trial.exit_code} because of a clock")


def _two_drivers(trial: Trial) -> None:
    """The second is refused while the first lives, and takes over when it was killed."""
    first = trial.start()
    local_run.wait_until(lambda: first.ended() or _is_held(trial.store), LIMIT_S, 0.002)
    local_run.wait_until(first.ended, trial.generator.uniform(0.0, 0.5))
    # Stopped, it holds the store for as long as the second takes to come up.
    local_run.kill([first.process.pid], signal.SIGSTOP)
    held = not first.ended()
    second = local_run.start(trial.folder, trial.mark, output="second")
    code = local_run.wait(second, LIMIT_S)
    said = local_run.last_line(second.text())
    trial.what = f"a second driver, ended with {code}: {said}; SIGKILL to the first"
    trial.missed = not held
    if held and (code != 1 or "is using this store" not in said):
        trial.wrong.append(f"the second driver ended with {code}: {said}")
    trial.held = measured_ids(trial.store)
    local_run.kill([first.process.pid])
    trial.ended(first, held)


def _port_in_use(trial: Trial) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        if trial.generator.random() < 0.5:
            taken.listen()
        port = taken.getsockname()[1]
        trial.what = f"the dashboard's port {port} is taken"
        trial.ended(trial.start(None, "--dashboard", f"127.0.0.1:{port}"))
    if trial.exit_code != 0:
        trial.wrong.append(f"exit code {trial.exit_code} because of a port")


# --- users' programs --------------------------------------------------------------------------


def _bad_program(how: str, status: tuple[str, ...]) -> Kind:
    def harm(trial: Trial) -> None:
        shutil.rmtree(trial.folder)
        flag = trial.folder / "bad"
        argv = [sys.executable, "-S", str(bad_program.__file__), how, str(flag)]
        write_programs(trial.folder, argv)
        flag.touch()
        trial.what = f"a program that does {how}"
        trial.ended(trial.start())
        alive = local_run.left_alive(trial.mark, 5.0)
        if alive:
            trial.wrong.append(f"still alive: {alive[0].words}")
        if trial.exit_code != 1 or not any(word in trial.output for word in status):
            trial.wrong.append(f"ended with {trial.exit_code}, and does not tell of {status[0]!r}")
        flag.unlink()
        trial.more = ("--retry-failed",)

    return Kind(f"program: {how}", harm, 1)


KINDS = [
    _killer("driver", _driver, signal.SIGKILL, 1),
    _killer("driver", _driver, signal.SIGTERM, 1),
    _killer("worker", local_run.workers, signal.SIGKILL, 2),
    # A simulated point is measured in the fork server; "crash-parent" kills a real one's process.
    _killer("fork server", local_run.fork_servers, signal.SIGKILL, 1),
    _killer("all", local_run.everyone, signal.SIGKILL, 2),
    _at_a_call("driver", STORE, DRIVER),
    _at_a_call("worker", STORE, WORKER),
    _at_a_call("fork server", SCRATCH, SERVER),
    _errors_everywhere("disk full", "ENOSPC"),
    Kind("disk full, mounted", _small_disk, 2),
    _errors_everywhere("quota", "EDQUOT"),
    _errors_everywhere("read-only", "EROFS"),
    Kind("read-only, mounted", _read_only_disk, 1),
    Kind("damaged file", _damaged_file, 6),
    Kind("clock jumps", _clock_jumps, 3),
    Kind("two drivers", _two_drivers, 2),
    Kind("dashboard's port taken", _port_in_use, 1),
    _bad_program("hang", ("timed out",)),
    _bad_program("crash", ("kernel failed",)),
    _bad_program("crash-parent", ("kernel failed", "node lost")),
    _bad_program("garbage", ("kernel failed",)),
    _bad_program("memory", ("kernel failed", "node lost")),
]


# --- one fault after the other -----------------------------------------------------------------


def _to_the_end(trial: Trial) -> None:
    """Up to two undisturbed runs, and what must then hold. Does nothing the second time."""
    if trial.finished:
        return
    trial.finished = True
    judged = trial.judge(True)
    if trial.exit_code is not None:
        findings = [*judged.findings[:3], *lost(trial, judged)]
        trial.wrong += [f"after the fault: {finding}" for finding in findings]
    code: int | None = 1
    for attempt in range(2):
        measured = len(measured_ids(trial.store))
        running = local_run.start(
            trial.folder,
            trial.mark,
            more=trial.more,
            output=f"undisturbed-{attempt}",
            program=[program()],  # the imports are shared: nothing happens to this run
        )
        code = local_run.wait(running, LIMIT_S)
        trial.wrong += local_run.measured_again(running.text(), judged.planned, measured)
        if code == 0:
            break
    if code != 0:
        said = local_run.last_line(running.text())
        trial.wrong.append(f"the second undisturbed run ended with {code}: {said}")
    alive = local_run.left_alive(trial.mark, ORPHANS_S)
    trial.wrong += [f"left alive: {process.words}" for process in alive[:3]]
    local_run.kill_marked(trial.mark)
    judged = trial.judge(False)
    trial.wrong += judged.findings[:3]


def lost(trial: Trial, judged: Judgement) -> list[str]:
    """What the harmed run held or has reported as measured, and its store does not hold: measured
    again it would be the same, bit for bit."""
    wrong = []
    acknowledged = local_run.points_acknowledged(trial.output)
    if judged.measured < acknowledged:
        wrong.append(
            f"{acknowledged} points were reported as measured, and {judged.measured} are there"
        )
    if trial.exit_code == 0 and judged.word != "complete":
        wrong.append(f"exit code 0, and {judged}")
    gone = trial.held - measured_ids(trial.store)
    if gone:
        wrong.append(f"{len(gone)} points that were measured are gone, such as {min(gone)}")
    return wrong


def harm(kind: Kind, seed: int) -> Outcome:
    """Do it, and say what came of it. What came too late to harm anything is done again."""
    began = time.monotonic()
    for attempt in range(ATTEMPTS):
        trial = _tried(kind, random.Random(f"{seed} {attempt}"))
        if trial.wrong or not trial.missed:
            break
    else:
        trial.wrong.append(f"in {ATTEMPTS} attempts nothing was there to be harmed")
    return Outcome(
        kind=f"local: {kind.name}",
        seed=seed,
        what=trial.what,
        exit_code=trial.exit_code,
        last_line=local_run.last_line(trial.output),
        verdict=f"wrong: {'; '.join(trial.wrong)}" if trial.wrong else "complete",
        ok=not trial.wrong,
        seconds=time.monotonic() - began,
    )


def _tried(kind: Kind, generator: random.Random) -> Trial:
    with tempfile.TemporaryDirectory(prefix="local-faults-", ignore_cleanup_errors=True) as name:
        folder = Path(name) / "campaign"
        write_campaign(folder, nodes=kind.nodes)
        trial = Trial(folder=folder, generator=generator)
        try:
            kind.harm(trial)
            _to_the_end(trial)
        except Exception as error:
            trial.wrong.append(f"the trial itself failed: {type(error).__name__}: {error}")
        finally:
            local_run.kill_marked(trial.mark)
    return trial


def drawn(count: int, seed: int) -> list[tuple[Kind, int]]:
    """So many kinds of fault, each as often as its weight says, and a seed for each."""
    generator = random.Random(seed)
    pool: list[Kind] = []
    while len(pool) < count:
        a_round = [kind for kind in KINDS for _ in range(kind.weight)]
        generator.shuffle(a_round)
        pool += a_round
    return [(kind, generator.randrange(1 << 31)) for kind in pool[:count]]


def run(count: int, seed: int, at_once: int = 2) -> Iterator[Outcome]:
    """``count`` faults, ``at_once`` at the same time, each in a folder of its own."""
    reference()
    with ThreadPoolExecutor(at_once) as pool:
        yield from pool.map(lambda fault: harm(*fault), drawn(count, seed))
