"""policy: the picks as a cluster applies them."""

from __future__ import annotations

import datetime
import re
import shlex
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.verbs import options
from campaign.verbs.printing import explain, marked, print_json, print_table, say
from dvfs.errors import ArgumentError
from dvfs.setting import AS_FOUND

if TYPE_CHECKING:
    from campaign.policy.policy_file import Entry, Policy
    from dvfs.input_files import Source
    from sites.site_file import Site

SUMMARY = "write the picks as a policy that a cluster applies; check, explain and install it"
EXAMPLE = "campaign policy campaign-demo/store --max-slowdown 0.05 -o policy.toml"
MORE = (
    "campaign policy S -o F writes the policy of a store's picks. campaign policy check F "
    "validates it, also against this cluster; explain F --job KEY=VALUE says what a job gets; "
    "install F --for FORM -o DIR writes what an administrator copies; withdraw F ENTRY ends an "
    "entry."
)
MOST_LISTED = 5
TAKES = {
    "check": ("file", "site"),
    "explain": ("file", "job"),
    "install": ("file", "form", "output", "site"),
    "withdraw": ("file", "entry"),
}
"""Action -> the arguments it takes."""
ACTIONS = tuple(TAKES)
WRITE_TAKES = (
    *("output", "site", "kernel", "objective", "max_slowdown", "max_power_w", "fit", "against"),
    *("until", "control", "cluster", "default", "unsure", "force"),
)
OPTIONS = {*WRITE_TAKES, *(name for names in TAKES.values() for name in names)}
DEFAULTS = {"objective": "energy", "fit": "default", "control": 10.0}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "what", metavar="S", help=f"the store, or {', '.join(ACTIONS[:-1])} or {ACTIONS[-1]}"
    )
    parser.add_argument("file", nargs="?", metavar="F", help="the policy file, after such a word")
    parser.add_argument("entry", nargs="?", metavar="ENTRY", help="the entry that withdraw ends")
    parser.add_argument(
        "-o", "--output", metavar="F", help="the policy file to write; the folder for install"
    )
    options.add_site(parser)
    parser.add_argument("--kernel", metavar="K", help="only this kernel, as for campaign predict")
    options.add_objective(parser)
    options.add_limits(parser)
    options.add_fit(parser)
    parser.add_argument(
        "--against",
        metavar="CORE,MEM",
        help="the setting in MHz that jobs run at without a policy, which savings are promised "
        "against (default: the highest clocks)",
    )
    parser.add_argument(
        "--until", metavar="DATE", help="the last day on which it holds (default: in half a year)"
    )
    parser.add_argument(
        "--control",
        type=float,
        default=10.0,
        metavar="PCT",
        help="the share of jobs that are left at the cluster's defaults, in %%, so that campaign "
        "verify can measure the effect (default: %(default)s)",
    )
    parser.add_argument(
        "--cluster", metavar="NAME", help="the ClusterName that may apply it (default: this one)"
    )
    parser.add_argument(
        "--default",
        action="store_true",
        help="add an entry for all other jobs: the best single setting of all kernels",
    )
    parser.add_argument(
        "--unsure",
        action="store_true",
        help="also write entries whose saving is not surely above 0",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace a policy file, with what was edited in it"
    )
    parser.add_argument(
        "--job",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="explain: a job, by job_name, executable, account, partition, comment, arguments",
    )
    parser.add_argument(
        "--for", dest="form", metavar="FORM", help="install: the form; without it they are listed"
    )
    options.add_json(parser)


def run(arguments: Namespace) -> int:
    """Write a policy, or check, explain, install or withdraw from one."""
    _refuse_others(arguments)
    if arguments.what not in ACTIONS:
        return _write(arguments)
    if arguments.file is None:
        raise ArgumentError(f"missing: the policy file: campaign policy {arguments.what} F")
    return {"check": _check, "explain": _explain, "install": _install, "withdraw": _withdraw}[
        arguments.what
    ](arguments)


def _refuse_others(arguments: Namespace) -> None:
    """Refuse arguments of another action."""
    takes = TAKES.get(arguments.what, WRITE_TAKES)
    for name in OPTIONS - set(takes):
        value = getattr(arguments, name)
        if value in (None, False, []) or value == DEFAULTS.get(name):
            continue
        option = {"form": "for"}.get(name, name).replace("_", "-")
        shown = repr(value) if name in ("file", "entry") else f"--{option}"
        action = arguments.what if arguments.what in ACTIONS else "S"
        raise ArgumentError(f"{shown}: not with campaign policy {action}; leave it out")


def _write(arguments: Namespace) -> int:
    from campaign.policy.checks import this_cluster  # noqa: PLC0415
    from campaign.policy.policy_file import MOST_CONTROL_PCT, write_policy  # noqa: PLC0415
    from campaign.results import open_store  # noqa: PLC0415
    from sites.site_file import NAME  # noqa: PLC0415

    store = open_store(arguments.what)
    if arguments.output is None:
        raise ArgumentError("missing: -o F, the policy file to write, such as policy.toml")
    if Path(arguments.output).exists() and not arguments.force:
        raise ArgumentError(
            f"-o {arguments.output}: exists, and may have been edited; name another file, or add "
            f"--force"
        )
    if not 0.0 <= arguments.control <= MOST_CONTROL_PCT:
        raise ArgumentError(
            f"--control: found {arguments.control:g}; must be 0 to {MOST_CONTROL_PCT:g}, in %"
        )
    if arguments.cluster is not None and not re.fullmatch(NAME, arguments.cluster):
        raise ArgumentError(
            f"--cluster: found {arguments.cluster!r}; must be letters, digits, _ . and -"
        )
    against = arguments.against
    cluster = arguments.cluster or this_cluster().configuration.get("ClusterName")
    draft = store.policy(
        store.only_site(arguments.site),
        {
            "kernel": arguments.kernel,
            "objective": arguments.objective,
            "max_slowdown": arguments.max_slowdown,
            "max_power_w": arguments.max_power_w,
            "fit": arguments.fit,
        },
        against=None if against is None else options.read_setting(against, "--against"),
        until=_date(arguments.until),
        control_pct=arguments.control,
        cluster=cluster,
        with_default=arguments.default,
        unsure=arguments.unsure,
    )
    write_policy(Path(arguments.output), draft.policy)
    if arguments.json:
        shown = draft.policy.model_dump(mode="json", exclude_none=True)
        print_json(shown | {"left_out": list(draft.left_out)})
        return 0
    site = marked(draft.policy.site, draft.policy.origin.simulated)
    explain(f"{site}: {len(draft.policy.entries)} entries")
    explain(str(draft.fit))
    _print_entries(draft.policy)
    for line in draft.left_out:
        explain(f"{'unchanged' if draft.policy.default else 'no entry'}: {line}")
    output = shlex.quote(arguments.output)
    say(f"{arguments.output}: written; edit its matches, then: campaign policy check {output}")
    return 0


def _date(text: str | None) -> datetime.date | None:
    try:
        day = None if text is None else datetime.date.fromisoformat(text)
        if day is not None and day < datetime.date.today():
            raise ValueError
        return day
    except ValueError:
        raise ArgumentError(
            f"--until: found {text!r}; must be a date to come, such as 2027-06-30"
        ) from None


def _print_entries(policy: Policy) -> None:
    rows = []
    for entry in policy.all_entries:
        promise = entry.promise
        rows.append(
            [
                entry.name,
                entry.mark.rpartition(":")[2],
                *(
                    [promise.saving_pct, *promise.saving_pct_95, promise.slowdown_pct]
                    if promise is not None
                    else ["-"] * 4
                ),
            ]
        )
    print_table(["entry", "MHz", "saves %", "from", "to", "slower %"], rows)


def _read(arguments: Namespace) -> tuple[Policy, Source]:
    from campaign.policy.policy_file import read_policy  # noqa: PLC0415

    return read_policy(Path(arguments.file))


def _site(arguments: Namespace, policy: Policy) -> Site | None:
    """The site of a policy; None where it is not built in and --site does not name its file."""
    from campaign.policy.checks import site_path  # noqa: PLC0415
    from dvfs.input_files import FileError  # noqa: PLC0415
    from sites.site_reading import read_site  # noqa: PLC0415

    try:
        return read_site(site_path(policy, Path(arguments.file), arguments.site))
    except FileError:
        if arguments.site is not None:
            raise
        return None


def _check(arguments: Namespace) -> int:
    """Check a policy; 1 where this cluster would not apply it."""
    from campaign.policy.checks import check_policy, obstacles, this_cluster  # noqa: PLC0415

    policy, source = _read(arguments)
    site, cluster = _site(arguments, policy), this_cluster()
    check_policy(policy, source, datetime.date.today(), site, cluster)
    problems = obstacles(policy, cluster)
    if arguments.json:
        print_json(
            {
                "entries": len(policy.all_entries),
                "settings_checked": site is not None,
                "cluster": cluster.configuration.get("ClusterName"),
                "obstacles": problems,
            }
        )
        return 1 if problems else 0
    site_name = marked(policy.site, policy.origin.simulated)
    say(f"{arguments.file}: {len(policy.all_entries)} entries for {site_name}")
    if site is None:
        explain("settings not checked: name the site file with --site F.toml")
    if not cluster.configuration:
        explain("cluster not checked: Slurm does not answer here")
    for line in problems:
        say(f"obstacle: {line}")
    return 1 if problems else 0


def _explain(arguments: Namespace) -> int:
    from campaign.policy.orders import fits  # noqa: PLC0415

    policy, _ = _read(arguments)
    job = _job(arguments.job)
    today = datetime.date.today()
    opted_out = policy.opt_out.comment in job.get("comment", "").split()
    entries = list(policy.in_order(today))
    matching = [entry for entry in entries if entry.match is not None and fits(entry.patterns, job)]
    default = [entry for entry in entries if entry.match is None]
    chosen = next(iter([*matching, *default]), None)
    setting = AS_FOUND if chosen is None or opted_out else chosen.clocks
    if arguments.json:
        print_json(
            {
                "entry": None if chosen is None or opted_out else chosen.name,
                "core_mhz": setting.core_mhz,
                "mem_mhz": setting.mem_mhz,
                "also_match": [entry.name for entry in matching if entry is not chosen],
                "opted_out": opted_out,
                "control_pct": policy.control_pct,
                "max_slowdown": policy.max_slowdown,
                "max_power_w": policy.max_power_w,
            }
        )
        return 0
    if opted_out:
        say(f"no change: the comment has the word {policy.opt_out.comment!r}, an opt-out")
    elif chosen is None:
        say("no change: no entry matches, and there is no default entry")
        for entry in entries[:MOST_LISTED]:
            explain(f"{entry.name!r}: {_why_not(entry, job)}")
        if len(entries) > MOST_LISTED:
            explain(f"and {len(entries) - MOST_LISTED} more entries")
    else:
        say(f"entry {chosen.name!r}: {chosen.clocks}")
        if chosen.match is None:
            explain("the default entry: no other one matches")
        for entry in matching[1:]:
            explain(f"{entry.name!r} matches as well, and is less specific or later in the file")
        if chosen.promise is not None:
            low, high = chosen.promise.saving_pct_95
            explain(
                f"promised: {chosen.promise.saving_pct:g} % less energy ({low:g} to {high:g}), "
                f"time {chosen.promise.slowdown_pct:+g} %"
            )
        if limits := _limits_text(policy):
            explain(f"limits of the picks: {limits}")
        explain(f"{policy.control_pct:g} % of such jobs stay at the defaults, to compare with")
    expired = [entry.name for entry in policy.all_entries if not policy.holds(entry, today)]
    if expired:
        explain(f"not applied, expired or withdrawn: {', '.join(expired)}")
    return 0


def _limits_text(policy: Policy) -> str:
    limits = []
    if policy.max_slowdown is not None:
        limits.append(f"at most {policy.max_slowdown * 100:g} % slower")
    if policy.max_power_w is not None:
        limits.append(f"a mean power of at most {policy.max_power_w:g} W")
    return ", ".join(limits)


def _why_not(entry: Entry, job: dict[str, str]) -> str:
    from campaign.policy.orders import fits  # noqa: PLC0415

    return ", ".join(
        f"{key} {job[key]!r} is not {pattern!r}" if key in job else f"{key} is not known"
        for key, pattern in entry.patterns.items()
        if not fits({key: pattern}, job)
    )


def _job(words: list[str]) -> dict[str, str]:
    from campaign.policy.policy_file import MATCH_KEYS  # noqa: PLC0415
    from dvfs.errors import known_names  # noqa: PLC0415

    job = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in MATCH_KEYS:
            raise ArgumentError(
                f"--job: found {word!r}; must be KEY=VALUE; {known_names(key, MATCH_KEYS, 'keys')}"
            )
        job[key] = value
    if not job:
        raise ArgumentError("missing: --job KEY=VALUE, such as --job job_name=dgemm")
    if "executable" in job:
        job.setdefault("job_name", job["executable"])  # as Slurm does
    return job


def _install(arguments: Namespace) -> int:
    from campaign.policy.checks import check_policy, this_cluster  # noqa: PLC0415
    from campaign.policy.forms import FORMS, install  # noqa: PLC0415
    from dvfs.errors import unknown_name  # noqa: PLC0415

    policy, source = _read(arguments)
    if arguments.form not in FORMS:
        if arguments.form is not None:
            raise ArgumentError(f"--for: {unknown_name('form', arguments.form, FORMS)}")
        print_table(["form", "what"], [[name, form.summary] for name, form in FORMS.items()])
        raise ArgumentError("missing: --for FORM")
    if arguments.output is None:
        raise ArgumentError("missing: -o DIR, the folder to write to")
    today = datetime.date.today()
    check_policy(policy, source, today, _site(arguments, policy), this_cluster())
    for path in install(policy, arguments.form, Path(arguments.output), today):
        say(f"{path}: written")
    if policy.origin.simulated:
        explain("warning: the promises are of a simulated machine")
    return 0


def _withdraw(arguments: Namespace) -> int:
    from campaign.policy.policy_file import withdraw  # noqa: PLC0415

    if arguments.entry is None:
        raise ArgumentError("missing: the entry: campaign policy withdraw F ENTRY")
    withdraw(Path(arguments.file), arguments.entry, datetime.date.today())
    say(
        f"{arguments.file}: {arguments.entry} is withdrawn; install it again: campaign policy "
        f"install {shlex.quote(arguments.file)}"
    )
    return 0
