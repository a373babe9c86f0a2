"""A person's text never becomes a command: it is carried as it is, or refused in one line."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tempfile
import tomllib
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from campaign.launch.scheduler import LaunchError
from campaign.launch.slurm import SlurmScheduler
from campaign.measure.point_life import PartitionSetup
from campaign.measure.subprocesses import SubprocessRunner
from campaign.plan.campaign_file import Protocol
from campaign.plan.plan import make_plan
from campaign.plan.point import canonical_json
from campaign.store.journal import decode
from campaign.verbs.command_line import main
from dvfs.input_files import FileError
from kernels.host.ranks import Team
from kernels.registry import find_kernel
from sites.site_file import Site
from sites.site_reading import built_in_sites, read_site
from sites.slurm_environment import REMOTE
from tests.points import a_point

ROOT = Path(__file__).parents[2]
HOSTILE = [
    "two words",
    " around ",
    "'",
    "it's",
    '"',
    "a\"b'c",
    "$(touch MARK)",
    "`touch MARK`",
    "; touch MARK",
    "&& touch MARK",
    "| touch MARK",
    "> MARK",
    "x\ntouch MARK",
    "x\n#SBATCH --wrap=touch",
    "x\r",
    "$HOME ${PATH} \\$x \\",
    "-rf",
    "--help",
    "-",
    "../../etc/passwd",
    "..",
    "~",
    "*",
    "{a,b}",
    "!!",
    "#",
    "%j %x %",
    "{} {0} %(shebang)s",
    "nul\0byte",
    "esc\x1b[31m",
    "tab\t",
    "\u00e9\u4e16\U0001f600",
    "\u202etxt.exe",
    "line\u2028line\x85line\x0b",
    "x" * 5000,
    "",
]
PIECES = st.sampled_from(
    [
        *"aB7_ '\"$()`;&|<>\n\r\\-/~*?[]{}!#%=\0\x1b\t\u00e9\u2028\x85",
        *("--", "..", "$(touch MARK)", "`touch MARK`", "; touch MARK"),
    ]
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)


def toml(text: str) -> str:
    """A text as a TOML string."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def test_the_texts_reach_the_files_as_they_are():
    for text in HOSTILE:
        assert tomllib.loads(f"x = {toml(text)}")["x"] == text


# A site file with one hostile text in it. Keys may stand in a table of their own only once.
SITE = """\
name = {name}
[clocks]
control = "fixed"
[slurm]
{slurm}
[partitions.{partition}]
scheduler = "slurm"
{keys}
[partitions.{partition}.environment]
{environment}
"""
PLACES = {
    "name": ("name", "{}"),
    "partition": ("partition", "{}"),
    "conf": ("slurm", "conf = {}"),
    "submit_prefix": ("slurm", "submit_prefix = [{}]"),
    "account": ("keys", "account = {}"),
    "qos": ("keys", "qos = {}"),
    "memory": ("keys", "memory = {}"),
    "walltime": ("keys", "walltime = {}"),
    "interface": ("keys", "interface = {}"),
    "local_directory": ("keys", "local_directory = {}"),
    "directive": ("keys", "directives = [{}]"),
    "python": ("environment", "python = {}"),
    "module": ("environment", "modules = [{}]"),
    "value": ("environment", "variables = {{ CARRIED = {} }}"),
    "variable": ("environment", "variables = {{ {} = 'carried' }}"),
}
RUN_BY_BASH = ("account", "qos", "local_directory", "directive", "python", "module", "value")


def site_with(folder: Path, place: str, text: str) -> Path:
    parts = {"name": '"s"', "partition": "p", "slurm": "", "keys": "", "environment": ""}
    part, line = PLACES[place]
    parts[part] = line.format(toml(text))
    path = folder / "site.toml"
    path.write_text(SITE.format(**parts), encoding="utf-8")
    return path


def read_or_refuse(path: Path) -> Site | None:
    """The site; None where it is refused, which must be one line that a terminal can show."""
    try:
        return read_site(path)
    except FileError as error:
        said = str(error)
        assert len(said.splitlines()) == 1, said
        assert said.startswith(str(path))
        assert all(c >= " " for c in said), said
        assert len(said) < 1000, said
        return None


# What stands for a node's programs: each writes its words, ended by NUL, and the environment.
RECORD = """\
#!/bin/bash
printf '%s\\0' "$0" "$@" > {words}
env -0 > {variables}
"""


def words_of(path: Path) -> list[str]:
    return path.read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1]


def run_script(script: str, folder: Path, python: str) -> tuple[list[str], list[str], list[str]]:
    """Run a job script by a real bash; the worker's words, its environment, module's words."""
    program = Path(os.fsencode(python).decode("utf-8", "surrogateescape"))
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(RECORD.format(words=folder / "words", variables=folder / "variables"))
    program.chmod(0o755)
    for name in ("words", "variables", "modules"):
        (folder / name).unlink(missing_ok=True)
    stub = f"module() {{ printf '%s\\0' \"$@\" >> {folder / 'modules'}; }}\n"
    path = folder / "script.sh"
    path.write_bytes(stub.encode() + script.encode("utf-8", "surrogateescape"))
    subprocess.run(
        ["bash", str(path)],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
        capture_output=True,
        timeout=20,
        check=False,
    )
    paths = [folder / name for name in ("words", "variables", "modules")]
    words, variables, modules = (words_of(path) if path.exists() else [] for path in paths)
    return words, variables, modules


def check_script(place: str, text: str) -> bool:
    """Whether a text is taken in this place; taken, it must reach its program as it is."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        folder = Path(name)
        python = str(folder / "bin" / "python")
        given_text = text
        if place == "python":  # a file's name under a folder of ours, or it would be anywhere
            given_text = python = str(folder / "bin" / f"p{text.replace('/', '_')[:100]}")
        if place == "directive":
            given_text = f"--comment={text}"
        site = read_or_refuse(site_with(folder, place, given_text))
        if site is None:
            return False
        partition = site.partitions["p"]
        if place != "python":
            environment = partition.environment.model_copy(update={"python": python})
            partition = partition.model_copy(update={"environment": environment})
            site = site.model_copy(update={"partitions": {"p": partition}})
        script = SlurmScheduler(site).job_script("p", "dvfs-0")
        header = [line for line in script.split("\n") if line.startswith("#SBATCH")]
        more = place in ("account", "qos", "directive")
        assert len(header) == plain_header_lines() + more
        words, variables, modules = run_script(script, folder, python)
        assert not list(folder.rglob("MARK")), script
        assert words[:3] == [python, "-m", "distributed.cli.dask_worker"]
        if place == "local_directory":
            assert words[words.index("--local-directory") + 1] == text
        if place == "value":
            assert f"CARRIED={text}" in variables
        if place == "module":
            assert modules == ["load", text]
        if place in ("account", "qos"):
            assert f"--{place}={text}" in [shlex.split(x)[-1] for x in quoted(header)]
        if place == "directive":
            assert f"#SBATCH --comment={text}" in header
        return True


def quoted(header: list[str]) -> list[str]:
    """The lines of a header that name an account or a quality of service."""
    return [line for line in header if "--account=" in line or "--qos=" in line]


@cache
def plain_header_lines() -> int:
    """How many lines of a partition's job script are Slurm's where the site file adds none."""
    with tempfile.TemporaryDirectory() as name:
        site = read_site(site_with(Path(name), "python", "/python"))
    script = SlurmScheduler(site).job_script("p", "dvfs-0")
    return sum(line.startswith("#SBATCH") for line in script.split("\n"))


@pytest.mark.parametrize("place", RUN_BY_BASH)
def test_hostile_text_in_a_job_script_is_carried_or_refused(place):
    taken = [text for text in HOSTILE if check_script(place, text)]
    assert "two words" in taken
    assert "$(touch MARK)" in taken
    assert not any("\n" in text or "\0" in text or "\r" in text for text in taken)


@pytest.mark.parametrize("place", RUN_BY_BASH)
@settings(max_examples=8)
@given(text=TEXTS)
def test_any_text_in_a_job_script_is_carried_or_refused(place, text):
    check_script(place, text)


@pytest.mark.parametrize("place", ["name", "memory", "walltime"])
@settings(max_examples=40)
@given(text=TEXTS)
@example("..")
@example("a\n")
@example("1GB\n")
@example("١GB")
@example("٠١:00:00")
def test_names_sizes_and_times_hold_nothing_that_a_shell_reads(place, text):
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        site = read_or_refuse(site_with(Path(name), place, text))
        if site is None:
            return
        if place == "memory":  # a blank may stand before the unit
            assert re.fullmatch(r"[0-9A-Za-z ]+", text), text
        else:
            assert shlex.quote(text) == text
        assert not text.startswith((".", "-"))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_partition_s_name_is_refused(tmp_path, text):
    with pytest.raises(FileError):
        read_site(site_with(tmp_path, "partition", text))


@pytest.mark.parametrize(
    "text",
    [
        "x y",
        "x\x1b(0y",
        "x\ny",
    ],
)
def test_a_refused_key_is_named_in_one_line(tmp_path, text):
    assert read_or_refuse(site_with(tmp_path, "partition", text)) is None


TAKEN = {
    "name": ["s", "a-b_c.1"],
    "memory": ["1GB", "512 MiB"],
    "walltime": ["01:00:00", "2-12:30"],
    "interface": ["lo", "ib0.1", "eth0:1@x"],
}
"""What must be taken: were all refused, nothing would be shown of what is."""


@pytest.mark.parametrize(
    ("place", "text"), [(k, text) for k, texts in TAKEN.items() for text in texts]
)
def test_ordinary_names_sizes_and_times_are_taken(tmp_path, place, text):
    assert read_or_refuse(site_with(tmp_path, place, text)) is not None


@pytest.mark.parametrize("text", ["$(touch MARK)", "lo; touch MARK", "`touch MARK`", "lo > MARK"])
def test_an_interface_that_is_a_command_is_refused(tmp_path, text):
    assert read_or_refuse(site_with(tmp_path, "interface", text)) is None


@pytest.mark.parametrize("place", ["account", "qos"])
def test_a_backslash_that_slurm_would_take_out_is_refused(tmp_path, place):
    assert read_or_refuse(site_with(tmp_path, place, "back\\slash")) is None


@pytest.mark.parametrize(
    "name",
    [
        "A\u00e9",
        "a\u0661",
        "x\u4e16",
        "_",
        "UID",
        "a b",
        "a=b",
        "a;touch MARK",
        "$(touch MARK)",
        "-x",
        "1a",
        "",
    ],
)
def test_a_name_that_no_shell_can_set_is_refused(tmp_path, name):
    assert read_or_refuse(site_with(tmp_path, "variable", name)) is None


@pytest.mark.parametrize("name", ["A_1", "_A", "a"])
def test_a_variable_is_exported(tmp_path, name):
    site = read_or_refuse(site_with(tmp_path, "variable", name))
    assert site is not None
    python = str(tmp_path / "bin" / "python")
    partition = site.partitions["p"]
    environment = partition.environment.model_copy(update={"python": python})
    partition = partition.model_copy(update={"environment": environment})
    site = site.model_copy(update={"partitions": {"p": partition}})
    _, variables, _ = run_script(SlurmScheduler(site).job_script("p", "dvfs-0"), tmp_path, python)
    assert f"{name}=carried" in variables


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_of_campaigns_labels_and_sites_are_refused(tmp_path, text):
    params = 'params = { argv = ["true"] }'
    for top, label, site in (
        (toml(text), '"k"', '"localhost"'),
        ('"c"', toml(text), '"localhost"'),
        ('"c"', '"k"', toml(text)),
    ):
        path = tmp_path / "c.toml"
        path.write_text(
            f'name = {top}\n[[sites]]\nsite = {site}\n[[kernels]]\nkernel = "command"\n'
            f"label = {label}\n{params}\n",
            encoding="utf-8",
        )
        with pytest.raises(FileError) as refused:
            make_plan(path)
        said = str(refused.value)
        assert len(said.splitlines()) == 1, said
        assert all(c >= " " for c in said), said


# The command kernel: words to a real program that writes them down.

WRITE_WORDS = 'printf "%s\\0" "$@" > "$0"'


def command_words(folder: Path, words: list[str]) -> list[str]:
    """What a program is given whose words stand in a campaign file."""
    out = folder / "words"
    out.unlink(missing_ok=True)
    argv = ["bash", "-c", WRITE_WORDS, str(out), *words]
    listed = ", ".join(map(toml, argv))
    path = folder / "c.toml"
    path.write_text(
        f'name = "c"\n[[sites]]\nsite = "localhost"\n[[kernels]]\nkernel = "command"\n'
        f"params = {{ argv = [[{listed}]] }}\n",
        encoding="utf-8",
    )
    (point,) = make_plan(path).points
    kernel = find_kernel("command")
    prepared = kernel.prepare(kernel.params.model_validate_json(point.params), Team())
    prepared.run(1)
    prepared.close()
    return words_of(out)


@settings(max_examples=20)
@given(words=st.lists(TEXTS, min_size=1, max_size=4))
@example(words=[text for text in HOSTILE if "\0" not in text])
def test_a_program_gets_its_words_as_the_campaign_file_has_them(words):
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        folder = Path(name)
        if any("\0" in word for word in words):
            with pytest.raises(FileError) as refused:
                command_words(folder, words)
            wrong = sum("\0" in word for word in words)
            assert len(str(refused.value).splitlines()) == wrong, "each has its line"
            return
        assert command_words(folder, words) == words
        assert not (folder / "MARK").exists()
        assert not Path("MARK").exists()


def test_hostile_words_through_the_whole_measuring_subprocess(tmp_path):
    """The fork server, its requests and the record: everything between plan and program."""
    words = [text for text in HOSTILE if "\0" not in text]
    out = tmp_path / "out 'put'"
    odd = tmp_path / "$(touch MARK) folder; x"
    odd.mkdir()
    params = {
        "argv": ["bash", "-c", 'printf "%s\\0" "$PWD" "$@" > "$0"', str(out), *words],
        "cwd": str(odd),
        "counts": {"sp": 1.0},
    }
    site = read_site(built_in_sites()["localhost"])
    kernel = find_kernel("command")
    checked = kernel.params.model_validate(params).model_dump(mode="json")
    text = canonical_json(checked)
    point = a_point("command", site=site.name, partition="local", params=text)
    quick = Protocol(idle_s=0.0, warm_up_s=0.0, min_duration_s=0.0, timeout_s=30.0)
    runner = SubprocessRunner(PartitionSetup(site, quick, ("command",)), tmp_path)
    try:
        measured = decode(runner.measure(point, 0))
    finally:
        runner.close()
    assert measured.status == "ok", measured.text
    assert words_of(out) == [str(odd), *words]
    assert measured.counts == {"sp": 1.0}
    assert measured.point == point
    assert not list(tmp_path.rglob("MARK"))


def test_a_folder_that_no_program_can_start_in_is_a_failure_not_a_crash(tmp_path):
    site = read_site(built_in_sites()["localhost"])
    quick = Protocol(idle_s=0.0, warm_up_s=0.0, min_duration_s=0.0, timeout_s=30.0)
    runner = SubprocessRunner(PartitionSetup(site, quick, ("command",)), tmp_path)
    try:
        for cwd in ("nul\0byte", "-", "x" * 5000, "/dev/null"):
            text = canonical_json({"argv": ["true"], "cwd": cwd})
            point = a_point("command", site=site.name, partition="local", params=text)
            assert decode(runner.measure(point, 0)).status == "kernel failed", cwd
    finally:
        runner.close()


# Paths of stores and tables.

PATHS = [
    " two 'w\"o $(touch MARK) `touch MARK`; && | > < * ? ~ {a,b} ! # % \\ ",
    "x\ntouch MARK\r\t\x1b[31m\u2028\u00e9\u4e16\U0001f600",
    "-rf",
    "x" * 200,
]


@pytest.mark.parametrize("text", PATHS)
def test_a_store_of_any_name(tmp_path, monkeypatch, capsys, text):
    monkeypatch.chdir(tmp_path)
    table = tmp_path / f"t{text}.csv"
    table.write_text("site,kernel,core_mhz,mem_mhz,time_s,energy_j\nx,a,1000,900,1,2\n")
    store = str(tmp_path / text)
    assert main(["import", str(table), "--store", store]) == 0
    assert (tmp_path / text / "store.json").is_file()
    assert main(["status", store]) == 0
    assert main(["export", store, "--csv", f"{store}.out"]) == 0
    written = {f"{text}.out", f"{text}.out.sites.json"}
    assert {path.name for path in tmp_path.iterdir()} == {table.name, text, *written}


# What is called to reach Slurm: real programs that write down how they were called.

CALLED = """\
#!/bin/bash
{{ printf '%s\\0' "$0" "$@"; printf 'SLURM_CONF=%s\\0' "$SLURM_CONF"; }} > "{out}"
echo 'no controller here' >&2
exit 1
"""


def stub(folder: Path, name: str, out: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(CALLED.format(out=out))
    path.chmod(0o755)
    return path


def reached(folder: Path, slurm: str) -> None:
    """Ask a site's Slurm for its jobs; the stubs have no controller."""
    path = folder / "site.toml"
    path.write_text(
        SITE.format(name='"s"', partition="p", slurm=slurm, keys="", environment=""),
        encoding="utf-8",
    )
    with pytest.raises(LaunchError, match="no controller here"):
        SlurmScheduler(read_site(path)).queued_jobs(["dvfs-0"])


def test_slurm_is_called_without_a_shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    conf = "/no/slurm conf';$(touch MARK)\""
    prefix = stub(tmp_path / "my programs; touch MARK", "reach it", tmp_path / "called")
    slurm = f"conf = {toml(conf)}\nsubmit_prefix = [{toml(str(prefix))}, '$(touch MARK)', '-x']"
    reached(tmp_path, slurm)
    called = words_of(tmp_path / "called")
    assert called[:3] == [str(prefix), "$(touch MARK)", "-x"]
    # A script of ours that holds nothing of the site file; what follows are its arguments.
    assert called[3:7] == ["sh", "-c", REMOTE, "sh"]
    assert called[7:10] == ["env", f"SLURM_CONF={conf}", "squeue"]
    assert not (tmp_path / "MARK").exists()


SSH = """\
#!/bin/bash
# As ssh does: the words after the host are joined by blanks and given to the user's shell there.
shift
exec sh -c "$*"
"""


def test_slurm_is_called_through_ssh_with_the_words_as_they_are(tmp_path, monkeypatch):
    there = tmp_path / "there"
    stub(there, "squeue", tmp_path / "called")
    stub(there, "sbatch", tmp_path / "called")
    (there / "ssh").write_text(SSH)
    (there / "ssh").chmod(0o755)
    conf = "/no/slurm conf;touch MARK"
    monkeypatch.setenv("PATH", f"{there}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    reached(tmp_path, f'conf = {toml(conf)}\nsubmit_prefix = ["ssh", "login-b"]')
    assert not (tmp_path / "MARK").exists()
    called = words_of(tmp_path / "called")
    assert called[-1] == f"SLURM_CONF={conf}"
    assert "--format=%i|%j|%T|%M|%D|%r" in called


@pytest.mark.slurm
def test_a_real_sbatch_reads_an_account_as_the_site_file_has_it(tmp_path, slurm_cluster):
    """Slurm has a parser of its own for #SBATCH lines; scontrol shows what it kept."""
    texts = ["two words", "it's", 'a"b', "$(touch MARK)", "`x`", "a#b", "a;b", "-x", "a,b=c", "~"]
    for text in texts:
        site = read_or_refuse(site_with(tmp_path, "account", text))
        assert site is not None, text
        script = SlurmScheduler(site).job_script("p", "dvfs-0")
        script = script.replace("#SBATCH -p p\n", "").replace("#SBATCH --mem=2G\n", "")
        script = script.replace("#SBATCH -o STORE/logs", f"#SBATCH -o {tmp_path}")
        job = slurm_cluster.submit(script, "--hold")
        try:
            shown = slurm_cluster.run("scontrol", "show", "job", job)
        finally:
            slurm_cluster.scancel(job)
        account = next(line for line in shown.splitlines() if " Account=" in line)
        kept = account.partition(" Account=")[2].partition(" QOS=")[0]
        assert kept == text.lower(), text  # Slurm's accounts are lower case
    assert not (tmp_path / "MARK").exists()
