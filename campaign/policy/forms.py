"""The files that an administrator copies to apply a policy: a form for each way to set clocks.

A form is a function from a policy and a day to files: name -> text. They have the clocks of every
entry that holds on that day, the most specific first.
"""

from __future__ import annotations

import datetime
import json
import re
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from campaign.policy.accounting import MARK
from campaign.policy.policy_file import MATCH_KEYS, Entry, Policy
from dvfs.errors import ArgumentError
from dvfs.files import write_output
from sites.clocks.slurm import slurm_cannot_set, step_flags

CLI_FILTER = Path(__file__).with_name("cli_filter.lua")


@dataclass(frozen=True)
class Form:
    """A way to apply a policy. ``summary``: a description for users. ``match_keys``: the supported
    keys of a match. ``files``: the function. ``empty``: whether files without entries, which end an
    installed policy, can be written."""

    summary: str
    match_keys: Collection[str]
    files: Callable[[Policy, datetime.date], dict[str, str]]
    empty: bool = False


def _last(policy: Policy, entry: Entry) -> datetime.date:
    return min(policy.until, entry.until or policy.until)


def _flag(policy: Policy, entry: Entry) -> tuple[str, str]:
    """Slurm's option for an entry's clocks, and its value: ``cpu-freq`` and ``2100000``.

    Raises:
        ArgumentError: Slurm has no option for one of the clocks.
    """
    flags = step_flags(entry.clocks, policy.device)
    if not flags or slurm_cannot_set(entry.clocks, policy.device):
        raise ArgumentError(
            f"entry {entry.name!r}: Slurm has no option for the uncore clock (mem_mhz) of a CPU; "
            f"leave mem_mhz out and measure the core clock alone, or use --for slurm-prolog"
        )
    option, _, value = flags[0].removeprefix("--").partition("=")
    return option, value


def slurm_cli_filter(policy: Policy, today: datetime.date) -> dict[str, str]:
    """The filter, which is the same for every policy, and the policy's table in Lua."""
    lines = [
        "-- Written by `campaign policy install`; data only, loaded by cli_filter.lua.",
        "return {",
        "  format = 1,",
        *([f"  cluster = {_lua(policy.cluster)},"] if policy.cluster else []),
        f'  ["until"] = {_end_of(policy.until)}, -- {policy.until}',
        f"  seed = {policy.seed},",
        f"  control = {policy.control_pct / 100.0:.6g},",
        f"  opt_out_comment = {_lua(policy.opt_out.comment)},",
        f"  opt_out_variable = {_lua(policy.opt_out.variable)},",
        "  entries = {",
    ]
    for entry in policy.in_order(today):
        option, value = _flag(policy, entry)
        pairs = ", ".join(f"{key} = {_lua(pattern)}" for key, pattern in entry.patterns.items())
        lines += [
            f"    {{ mark = {_lua(entry.mark)}, option = {_lua(option)}, words = {_lua(value)},",
            f'      ["until"] = {_end_of(_last(policy, entry))}, match = {{ {pairs} }} }},',
        ]
    return {
        "cli_filter.lua": CLI_FILTER.read_text(),
        "dvfs_policy.lua": "\n".join([*lines, "  },", "}", ""]),
        "README.dvfs": CLI_FILTER_README,
    }


CLI_FILTER_README = """\
1. Copy cli_filter.lua and dvfs_policy.lua to the folder of slurm.conf, on every host with srun,
   sbatch or salloc, the nodes too. Copy to another name in that folder, check it, and rename it:
   Slurm refuses every submission while cli_filter.lua is missing or cannot be parsed.
     luac5.1 -p cli_filter.lua dvfs_policy.lua
   A configless Slurm does not send dvfs_policy.lua to its hosts: copy it to each.
   A site with a cli_filter.lua of its own adds what slurm_cli_pre_submit here does to its own.
2. slurm.conf: CliFilterPlugins=cli_filter/lua, TaskPlugin=task/affinity or task/cgroup (with
   task/none a clock is requested and never set), and AccountingStoreFlags=job_comment, by which
   `campaign verify` knows the control jobs. `campaign policy check` looks at all three.
3. To end the policy, remove dvfs_policy.lua or install the policy with all entries withdrawn; then
   take CliFilterPlugins out of slurm.conf, and only then remove cli_filter.lua.
4. Users opt out by the word and the variable that the policy names, or by asking for a clock.

The batch script itself and what it starts without srun stay at the default clocks.
"""


def _end_of(day: datetime.date) -> int:
    """The last second of a day here, in s since 1970."""
    after = datetime.datetime.combine(day + datetime.timedelta(1), datetime.time.min)
    return int(after.timestamp()) - 1


def _lua(text: str) -> str:
    """A string in Lua; every byte that is not plain is written by its number."""
    plain = set(range(32, 127)) - {ord('"'), ord("\\")}
    written = (chr(b) if b in plain else "\\" + f"{b:03d}" for b in text.encode())
    return '"' + "".join(written) + '"'


ENVIRONMENT = """\
# A clock policy for job scripts. In a script, before the first srun:
#   . /path/to/dvfs_policy.sh
# It sets a variable that srun reads, and records what it did in the job's comment. It never ends
# the script.

dvfs_policy() {{
    [ -n "${{SLURM_JOB_ID:-}}" ] || return 0
    dvfs_today=$(date +%Y%m%d) || return 0
    [ "$dvfs_today" -le {until:%Y%m%d} ] || {{
        echo "clock policy not applied: it has expired" >&2
        return 0
    }}
    [ -z "${{{opt_out}+set}}${{SLURM_CPU_FREQ_REQ+set}}${{SLURM_GPU_FREQ+set}}" ] || return 0
    # An array's number alone would mean all of its tasks.
    dvfs_job=${{SLURM_ARRAY_JOB_ID:+${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID:-}}}}
    dvfs_job=${{dvfs_job:-$SLURM_JOB_ID}}
    dvfs_comment=$(squeue --noheader --jobs="$dvfs_job" --format=%k 2>/dev/null | head -n 1)
    case " $dvfs_comment " in *" "{opt_out_word}" "*) return 0 ;; esac
{other_cluster}{choices}    return 0
}}

# The first 32 bits of SHA-256 of SEED:JOB_ID decide about the arm.
dvfs_apply() {{
    dvfs_draw=$(printf %s "{seed}:$SLURM_JOB_ID" | sha256sum 2>/dev/null | cut -c1-8) || return 0
    case $dvfs_draw in ????????) ;; *) return 0 ;; esac
    dvfs_arm=control
    if [ "$((0x$dvfs_draw))" -ge {threshold} ]; then
        dvfs_arm=policy
        export "$2=$3"
    fi
    case $dvfs_comment in "" | "(null)") dvfs_comment= ;; *) dvfs_comment="$dvfs_comment " ;; esac
    dvfs_comment="${{dvfs_comment}}{mark}$1:$dvfs_arm"
    scontrol update JobId="$dvfs_job" Comment="$dvfs_comment" >/dev/null 2>&1
    return 0
}}

dvfs_policy || :
"""
VARIABLES = {"cpu-freq": "SLURM_CPU_FREQ_REQ", "gpu-freq": "SLURM_GPU_FREQ"}
"""The variable by which srun takes an option (section INPUT ENVIRONMENT VARIABLES of its
manual)."""
JOB_VARIABLES = {
    "job_name": "SLURM_JOB_NAME",
    "account": "SLURM_JOB_ACCOUNT",
    "partition": "SLURM_JOB_PARTITION",
}


def environment(policy: Policy, today: datetime.date) -> dict[str, str]:
    """A file of POSIX shell that a job script reads, for sites without the filter."""
    choices = ""
    for entry in policy.in_order(today):
        option, value = _flag(policy, entry)
        apply = f"dvfs_apply {shlex.quote(entry.mark)} {VARIABLES[option]} {shlex.quote(value)}"
        last = _last(policy, entry)
        if last < policy.until:
            apply = f'if [ "$dvfs_today" -le {last:%Y%m%d} ]; then {apply}; fi'
        tests = [
            f'case "${{{JOB_VARIABLES[key]}:-}}" in {_shell_pattern(pattern)}) ;; *) false ;; esac'
            for key, pattern in entry.patterns.items()
        ]
        condition = " && ".join(tests) or "true"
        choices += f"    if {condition}; then\n        {apply}\n        return 0\n    fi\n"
    guard = ""
    if policy.cluster:
        guard = f'    [ "${{SLURM_CLUSTER_NAME:-}}" = {shlex.quote(policy.cluster)} ] || return 0\n'
    text = ENVIRONMENT.format(
        until=policy.until,
        opt_out=policy.opt_out.variable,
        opt_out_word=shlex.quote(policy.opt_out.comment),
        other_cluster=guard,
        choices=choices,
        seed=policy.seed,
        threshold=policy.control_threshold,
        mark=MARK,
    )
    return {"dvfs_policy.sh": text}


def _shell_pattern(pattern: str) -> str:
    """A pattern of a shell's ``case``: wildcards bare, all else quoted."""
    parts = filter(None, re.split("([*?])", pattern))
    return "".join(part if part in ("*", "?") else shlex.quote(part) for part in parts)


PROLOG = """\
#!/bin/sh
# Prolog of slurm.conf, as root on each node: sets the job's clocks by campaign exec, which waits
# until the epilog ends it and then restores them. For nodes that one job has alone. It never fails.
exec >/dev/null 2>&1 </dev/null
held={state}/$SLURM_JOB_ID
mkdir -p -m 700 {state} || exit 0
setsid {campaign} exec --policy {policy} --site {site} --records {state}/records.jsonl \\
    -- sh -c 'echo $$ > "$1.tmp" && mv "$1.tmp" "$1" && exec sleep infinity' sh "$held" &
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    [ -e "$held" ] && break
    sleep 0.25
done
exit 0
"""
EPILOG = """\
#!/bin/sh
# Epilog of slurm.conf, as root on each node: ends what the prolog started; the clocks are restored.
exec >/dev/null 2>&1 </dev/null
held={state}/$SLURM_JOB_ID
[ -e "$held" ] && kill -TERM "$(cat "$held")"
rm -f "$held"
exit 0
"""
STATE = "/run/dvfs-policy"


def slurm_prolog(policy: Policy, today: datetime.date) -> dict[str, str]:
    """Scripts for sites whose clocks a control of ours sets; paths are to be filled in."""
    del today  # campaign exec reads the policy itself
    filled = {
        "state": STATE,
        "campaign": "/usr/local/bin/campaign",
        "policy": "/etc/slurm/policy.toml",
        "site": shlex.quote(f"/etc/slurm/{policy.site}.toml"),
    }
    return {"prolog.sh": PROLOG.format(**filled), "epilog.sh": EPILOG.format(**filled)}


def geopm(policy: Policy, today: datetime.date) -> dict[str, str]:
    """A policy of GEOPM's agent frequency_map for each entry, by geopm_agent_frequency_map(7) of
    GEOPM 3.1: FREQ_CPU_DEFAULT is required, in Hz; not tried with GEOPM.

    Raises:
        ArgumentError: the clocks are a GPU's, which the agent sets beside a CPU clock alone.
    """
    files = {}
    lines = ["# GEOPM_AGENT=frequency_map GEOPM_POLICY=FILE geopmlaunch srun ...", ""]
    for entry in policy.in_order(today):
        core_mhz, mem_mhz = entry.clocks.clocks
        if policy.device != "cpu" or core_mhz is None:
            raise ArgumentError(
                f"entry {entry.name!r}: GEOPM's frequency map needs a CPU clock; use another form"
            )
        clocks = {"FREQ_CPU_DEFAULT": core_mhz * 1e6}
        clocks |= {} if mem_mhz is None else {"FREQ_CPU_UNCORE": mem_mhz * 1e6}
        files[f"{entry.name}.json"] = json.dumps(clocks) + "\n"
        lines.append(f"{entry.name}.json: {_jobs(entry)}")
    return files | {"README.dvfs": "\n".join([*lines, ""])}


def ear(policy: Policy, today: datetime.date) -> dict[str, str]:
    """The srun options of each entry, by the user guide of EAR 6.0: the clock in kHz, for users
    whom ear.conf authorises; not tried with EAR.

    Raises:
        ArgumentError: the clocks are not a CPU's core clock alone.
    """
    lines = ["# Jobs -> options of srun and sbatch, for users whom ear.conf authorises", ""]
    for entry in policy.in_order(today):
        core_mhz, mem_mhz = entry.clocks.clocks
        if policy.device != "cpu" or core_mhz is None or mem_mhz is not None:
            raise ArgumentError(
                f"entry {entry.name!r}: EAR's options set a CPU's core clock; use another form"
            )
        options = f"--ear=on --ear-policy=monitoring --ear-cpufreq={core_mhz * 1000:.0f}"
        lines.append(f"{_jobs(entry)}: {options}")
    return {"ear_options.txt": "\n".join([*lines, ""])}


def _jobs(entry: Entry) -> str:
    """Which jobs an entry is for, for people."""
    return ", ".join(f"{key} {glob}" for key, glob in entry.patterns.items()) or "all other jobs"


FORMS: Mapping[str, Form] = {
    "slurm-cli-filter": Form(
        "Slurm's cli_filter/lua: every srun, sbatch and salloc",
        MATCH_KEYS,
        slurm_cli_filter,
        empty=True,
    ),
    "env": Form(
        "a file that job scripts read before srun", tuple(JOB_VARIABLES), environment, empty=True
    ),
    "slurm-prolog": Form(
        "prolog and epilog that set the clocks of a node by this site's control",
        ("account", "partition", "comment"),
        slurm_prolog,
    ),
    "geopm": Form("GEOPM's agent frequency_map, a file an entry", MATCH_KEYS, geopm),
    "ear": Form("EAR's options of srun", MATCH_KEYS, ear),
}
"""The forms by name."""


def install(policy: Policy, form: str, folder: Path, today: datetime.date) -> list[Path]:
    """Write what an administrator copies; the paths.

    Raises:
        ArgumentError: no entry holds, an entry's match or clocks are not for this form, or the
            folder cannot be written.
    """
    chosen = FORMS[form]
    entries = list(policy.in_order(today))
    if not entries and not chosen.empty:
        raise ArgumentError(f"no entry holds on {today}; write a new policy, or correct `until`")
    for entry in entries:
        for key in entry.patterns:
            if key not in chosen.match_keys:
                raise ArgumentError(
                    f"entry {entry.name!r}: matches by {key}, which {form} does not know; it knows "
                    f"{', '.join(chosen.match_keys)}: edit the match"
                )
    files = chosen.files(policy, today)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_output(folder / name, text)
    except OSError as error:
        raise ArgumentError(
            f"{folder}: cannot be written ({error.strerror}); name another folder"
        ) from None
    return [folder / name for name in files]
