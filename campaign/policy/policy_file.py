"""The policy file: the setting of each job of a cluster, and the saving that it promises.

A TOML file that `campaign policy` writes and a person edits. An entry has a match, a setting and a
promise. Of the entries that match a job, the most specific is applied: the one with the most keys
in its match, of these the one with the most characters that are no wildcard, of these the first.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from campaign.policy.orders import Order, Orders
from dvfs.errors import ArgumentError, known_names
from dvfs.files import write_output
from dvfs.input_files import (
    BadValueError,
    Check,
    FileError,
    FileModel,
    KeyPath,
    Source,
    matching,
    parse,
    read_file,
    read_text,
)
from dvfs.setting import Setting
from sites.site_file import Name, OneLine

EntryName = Annotated[
    str,
    matching(
        "[A-Za-z0-9][A-Za-z0-9_.=+-]{0,79}",
        "must be 1 to 80 letters, digits, _ . = + -, beginning with a letter or digit",
    ),
]
Glob = Annotated[str, matching(r"[^\n\r\x00\[\]]+", "must be one line, with * and ? as wildcards")]
VariableName = Annotated[
    str, matching("[A-Za-z_][A-Za-z0-9_]*", "must be letters, digits and _, no digit first")
]
Megahertz = Annotated[float, Field(gt=0, le=1e5, allow_inf_nan=False)]
Percent = Annotated[float, Field(allow_inf_nan=False)]
MOST_CONTROL_PCT = 90.0
DEFAULT = "default"
"""The name of the entry of all jobs that no other entry matches."""
MATCH_KEYS = ("job_name", "executable", "account", "partition", "comment", "arguments")


class Match(FileModel):
    """What a job must be like: every key that is given must match. ``*`` stands for any text and
    ``?`` for one character; upper and lower case differ."""

    job_name: Glob | None = None
    """The job's name."""
    executable: Glob | None = None
    """The file name of the program (srun) or script (sbatch)."""
    account: Glob | None = None
    """The account, where the user names it."""
    partition: Glob | None = None
    """The partition, where the user names it."""
    comment: Glob | None = None
    """The job's comment."""
    arguments: Glob | None = None
    """The arguments, with single spaces between them."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.given:
            raise BadValueError("an empty match", f"give one of {', '.join(MATCH_KEYS)}")
        return self

    @property
    def given(self) -> dict[str, str]:
        """Key -> pattern, for the keys that the match has."""
        patterns = {name: getattr(self, name) for name in MATCH_KEYS}
        return {name: pattern for name, pattern in patterns.items() if pattern is not None}


class PolicySetting(FileModel):
    """The clocks of an entry, in MHz; a clock that is left out stays as it is."""

    core_mhz: Megahertz | None = None
    """The core clock."""
    mem_mhz: Megahertz | None = None
    """The memory clock; of a CPU the uncore clock."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.core_mhz is None and self.mem_mhz is None:
            raise BadValueError("no clock", "give core_mhz, mem_mhz or both")
        return self


class Promise(FileModel):
    """What a setting is to save against the cluster's defaults, with 95 % intervals."""

    saving_pct: Percent
    """Energy saved, in % of that at the defaults."""
    saving_pct_95: tuple[Percent, Percent]
    """Its 95 % interval, [low, high]."""
    slowdown_pct: Percent
    """Time added, in % of that at the defaults."""
    slowdown_pct_95: tuple[Percent, Percent]
    """Its 95 % interval, [low, high]."""

    @model_validator(mode="before")
    @classmethod
    def _pairs(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        return {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for name in ("saving_pct", "slowdown_pct"):
            low, high = getattr(self, f"{name}_95")
            if not low <= getattr(self, name) <= high:
                raise BadValueError(
                    f"{name} {getattr(self, name):g} is not in its interval [{low:g}, {high:g}]",
                    "give an interval [low, high] that holds it",
                    (f"{name}_95",),
                )
        return self


class Entry(FileModel):
    """Jobs that match get the setting."""

    name: EntryName = DEFAULT
    """The entry's name in the jobs' comments."""
    match: Match | None = None
    """Which jobs; none in [default]."""
    kernel: OneLine | None = None
    """The measured kernel; `campaign exec --kernel` names it."""
    setting: PolicySetting
    """The clocks."""
    promise: Promise | None = None
    """What is to be saved; without it `campaign verify` can only say what was."""
    until: datetime.date | None = None
    """The last day on which the entry holds (default: the policy's)."""
    withdrawn: datetime.date | None = None
    """The day on which it was withdrawn."""

    @property
    def patterns(self) -> dict[str, str]:
        """Key of the match -> pattern; empty for the default entry, which every job matches."""
        return {} if self.match is None else self.match.given

    @property
    def clocks(self) -> Setting:
        """The setting."""
        return Setting(self.setting.core_mhz, self.setting.mem_mhz)

    @property
    def specificity(self) -> tuple[int, int]:
        """The number of keys of the match, and of the characters in their patterns that are no
        wildcard."""
        patterns = self.patterns.values()
        return len(patterns), sum(len(re.sub("[*?]", "", pattern)) for pattern in patterns)

    @property
    def mark(self) -> str:
        """Entry and setting, as a job's comment records them: ``dgemm:852/924``."""
        return f"{self.name}:{self.clocks.short_text}"


class OptOut(FileModel):
    """How a user keeps a job at the cluster's defaults."""

    comment: Annotated[str, matching(r"\S+", "must be one word")] = "no-dvfs"
    """A word in the job's comment."""
    variable: VariableName = "NO_DVFS"
    """A variable at submission."""


class Origin(FileModel):
    """Where the picks come from."""

    store: OneLine | None = None
    """The store's folder."""
    data_id: OneLine | None = None
    """A hash of its measurements."""
    fit: OneLine | None = None
    """The fit's name and model."""
    simulated: bool = False
    """Whether a simulated machine was measured."""
    unproven_clocks: bool = False
    """Whether nothing showed some clocks."""
    created: datetime.datetime | None = None
    """When the policy was written."""
    version: OneLine | None = None
    """The version of this program."""


class Policy(FileModel):
    """A policy file, checked. Read it with :func:`read_policy`."""

    site: Name
    """The site whose measurements the picks are from."""
    cluster: Name | None = None
    """The ClusterName of the Slurm that may apply it (default: any)."""
    device: Literal["cpu", "gpu"]
    """Whose clocks are set."""
    against: PolicySetting | None = None
    """The setting that the cluster's defaults stand for."""
    until: datetime.date
    """The last day on which the policy holds."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1
    """Decides which jobs are control jobs."""
    control_pct: Annotated[float, Field(ge=0, le=MOST_CONTROL_PCT, allow_inf_nan=False)] = 10.0
    """The share of jobs left at the defaults, in %."""
    objective: OneLine = "energy"
    """What the picks minimise."""
    max_slowdown: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """How much slower picks may be, a fraction."""
    max_power_w: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Their most mean power, in W."""
    opt_out: OptOut = Field(default_factory=OptOut)
    """How users opt out."""
    origin: Origin = Field(default_factory=Origin)
    """Where the picks come from."""
    default: Entry | None = None
    """The entry of all jobs that no other matches."""
    entries: list[Entry] = Field(default_factory=list)
    """The entries."""

    def entry(self, name: str) -> Entry:
        """The entry of a name.

        Raises:
            ArgumentError: there is none.
        """
        by_name = {entry.name: entry for entry in self.all_entries}
        if name not in by_name:
            raise ArgumentError(f"no entry {name!r}; {known_names(name, by_name, 'entries')}")
        return by_name[name]

    @property
    def all_entries(self) -> list[Entry]:
        """The entries, with the default one last."""
        return [*self.entries, *([] if self.default is None else [self.default])]

    def key_of(self, entry: Entry) -> KeyPath:
        """The key of an entry in the file."""
        default = entry is self.default
        return ("default",) if default else ("entries", self.entries.index(entry))

    def holds(self, entry: Entry, today: datetime.date) -> bool:
        """Whether an entry is applied on a day."""
        return entry.withdrawn is None and today <= min(self.until, entry.until or self.until)

    def in_order(self, today: datetime.date) -> Iterator[Entry]:
        """The entries that hold on a day, the most specific first, the default one last."""
        held = [entry for entry in self.entries if self.holds(entry, today)]
        yield from sorted(held, key=lambda entry: entry.specificity, reverse=True)
        if self.default is not None and self.holds(self.default, today):
            yield self.default

    def orders(self, today: datetime.date) -> Orders:
        """The orders of a day; entries that are not applied come last."""
        held = list(self.in_order(today))
        return Orders(
            entries=tuple(
                Order(
                    name=entry.name,
                    kernel=entry.kernel,
                    match=entry.patterns,
                    setting=entry.clocks,
                    mark=entry.mark,
                    holds=entry in held,
                )
                for entry in [*held, *(entry for entry in self.all_entries if entry not in held)]
            ),
            seed=self.seed,
            control_threshold=self.control_threshold,
            comment=self.opt_out.comment,
            variable=self.opt_out.variable,
        )

    @property
    def control_threshold(self) -> int:
        """The share of control jobs, of 2^32."""
        return int(self.control_pct / 100.0 * 2**32)


def _check_names(policy: Policy, source: Source) -> None:
    names: set[str] = set()
    for i, entry in enumerate(policy.entries):
        key = ("entries", i)
        if entry.match is None:
            raise source.error((*key, "match"), "missing", "say which jobs the entry is for")
        if entry.name == DEFAULT:
            raise source.error((*key, "name"), f"missing, or {DEFAULT!r}", "give the entry a name")
        if entry.name in names:
            raise source.error((*key, "name"), f"{entry.name!r} twice", "give each its own name")
        names.add(entry.name)


def _check_default(policy: Policy, source: Source) -> None:
    if policy.default is None:
        return
    if policy.default.match is not None:
        raise source.error(("default", "match"), "is for all jobs", "leave match out")
    if policy.default.name != DEFAULT:
        raise source.error(
            ("default", "name"), f"found {policy.default.name!r}", f"name it {DEFAULT!r}"
        )


CHECKS: list[Check] = [(["entries"], _check_names), (["default"], _check_default)]


def read_policy(path: Path) -> tuple[Policy, Source]:
    """Read and check a policy file.

    Raises:
        FileError: with file, line, key, what was found and what would be right.
    """
    return read_file(path, Policy, CHECKS)


HEAD = """\
# Which clocks each job of a cluster gets, and what that is to save against the cluster's defaults.
# Edit `match` to say which jobs an entry is for: job_name, executable, account, partition, comment
# and arguments, with * and ? as wildcards. The most specific entry that matches is applied.
#
#   campaign policy check FILE                      validates it, also against this cluster
#   campaign policy explain FILE --job job_name=X   what a job gets, and why
#   campaign policy install FILE --for FORM -o DIR  what an administrator copies
#   campaign verify STORE --policy FILE             what the jobs saved that ran
"""


def policy_text(policy: Policy) -> str:
    """The file's text."""
    top = policy.model_dump(exclude_none=True, exclude={"entries", "default", "opt_out", "origin"})
    lines = [HEAD]
    lines += [f"{name} = {_value(value)}" for name, value in top.items()]
    for name in ("opt_out", "origin"):
        table = getattr(policy, name).model_dump(exclude_none=True)
        lines += ["", f"[{name}]", *(f"{key} = {_value(value)}" for key, value in table.items())]
    for entry in policy.all_entries:
        lines += ["", "[default]" if entry is policy.default else "[[entries]]"]
        table = entry.model_dump(exclude_none=True)
        lines += [f"{key} = {_value(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, datetime.date):  # a time is one as well
        return value.isoformat()
    if isinstance(value, Mapping):
        inside = ", ".join(
            f"{key} = {_clock(item) if key.endswith('_mhz') else _value(item)}"
            for key, item in value.items()
        )
        return f"{{ {inside} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _clock(mhz: float) -> str:
    """A clock in MHz with all its digits: it is looked for among the site's."""
    return repr(mhz).removesuffix(".0")


def _quoted(text: str) -> str:
    escaped = "".join(
        f"\\{c}" if c in '"\\' else c if c.isprintable() else f"\\U{ord(c):08x}" for c in text
    )
    return f'"{escaped}"'


def write_policy(path: Path, policy: Policy) -> None:
    """Write a policy file.

    Raises:
        ArgumentError: it cannot be written.
    """
    _write(path, policy_text(policy))


def withdraw(path: Path, name: str, today: datetime.date) -> None:
    """Mark an entry as withdrawn in its file; all else stays as it is written.

    Raises:
        FileError: the file is wrong.
        ArgumentError: there is no such entry, it was withdrawn, or the file cannot be written.
    """
    policy, source = read_policy(path)
    entry = policy.entry(name)
    if entry.withdrawn is not None:
        raise ArgumentError(f"entry {name!r} was withdrawn on {entry.withdrawn}; nothing to do")
    key = policy.key_of(entry)
    line = source.line_of((*key, "name")) or source.line_of(key) or 0
    lines = read_text(path).splitlines()
    lines.insert(line, f"withdrawn = {today.isoformat()}")
    text = "\n".join([*lines, ""])
    try:
        changed = parse(path, text, Policy, CHECKS)[0]
    except FileError:
        changed = policy
    if changed.entry(name).withdrawn != today:
        raise ArgumentError(
            f"{path}: entry {name!r} is not a table of its own lines; write withdrawn = "
            f"{today.isoformat()} into it by hand"
        )
    _write(path, text)


def _write(path: Path, text: str) -> None:
    if path.is_dir():
        raise ArgumentError(f"{path}: is a folder; name a file, such as {path}/policy.toml")
    try:
        write_output(path, text)
    except OSError as error:
        raise ArgumentError(
            f"{path}: cannot be written ({error.strerror}); name another file"
        ) from None
