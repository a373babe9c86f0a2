"""`campaign verify` on simulated histories of jobs with known effects. All figures are simulated.

    .venv/bin/python -m benchmarks.verify_histories [--histories N] [--jobs N] [--policies N]

Each history has users with several inputs each, whose energies differ by factors, gains that differ
between users, noise between runs, a tenth of control jobs, and a promise of 10 % (8 to 12). It
prints how often the 95 % interval holds the true saving, how often a kept promise is called not
kept, and how often a broken one is seen, compared with a plain t-test of the logarithms of all
jobs; how often a policy of 20 entries that all save exactly their promise is called not kept; and
the processor time of `verify` for 10,000 jobs of a table of sacct.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import special

from benchmarks.shared import argument_parser
from campaign.policy.accounting import COLUMNS, read_jobs
from campaign.policy.policy_file import Entry, Match, Policy, PolicySetting, Promise
from campaign.policy.verification import BROKEN, KEPT, verify

PROMISED_PCT, LEAST_PCT, MOST_PCT = 10.0, 8.0, 12.0
USER_SD, INPUT_SD, GAIN_SD, RUN_SD = 1.0, 0.7, 0.01, 0.04
START = datetime.datetime(2026, 11, 1)


@dataclass(frozen=True)
class Kind:
    """One kind of history: the true saving in %, and the relative drift of all energies over the
    history."""

    name: str
    saving_pct: float
    drift: float = 0.0


KINDS = (
    Kind("kept", PROMISED_PCT),
    Kind("broken by 5 points", PROMISED_PCT - 5.0),
    Kind("null", 0.0),
    Kind("drifted, kept", PROMISED_PCT, 0.2),
)
JUST_KEPT = Kind("just kept", LEAST_PCT)
ENTRIES, ENTRY_JOBS = 20, 150


def the_policy(*names: str) -> Policy:
    """Return a policy with entries at 2000 MHz."""
    return Policy(
        site="simulated",
        device="cpu",
        until=START.date() + datetime.timedelta(3650),
        entries=[
            Entry(
                name=name,
                match=Match(job_name="app*"),
                setting=PolicySetting(core_mhz=2000.0),
                promise=Promise(
                    saving_pct=PROMISED_PCT,
                    saving_pct_95=(LEAST_PCT, MOST_PCT),
                    slowdown_pct=3.0,
                    slowdown_pct_95=(1.0, 5.0),
                ),
            )
            for name in names or ("app",)
        ],
    )


def history(kind: Kind, jobs: int, rng: np.random.Generator, entry: str = "app") -> str:
    """Return a table of sacct with jobs of an entry; the kind's saving is the mean of the users'
    gains."""
    users = int(rng.integers(3, 20))
    inputs = int(rng.integers(1, 4))
    share = rng.lognormal(0.0, 0.7, users)
    user = rng.choice(users, jobs, p=share / share.sum())
    which = rng.integers(0, inputs, jobs)
    level = rng.normal(0.0, USER_SD, users)[user]
    level = level + rng.normal(0.0, INPUT_SD, (users, inputs))[user, which]
    gain = rng.normal(np.log1p(-kind.saving_pct / 100.0), GAIN_SD, users)[user]
    control = rng.random(jobs) < 0.1
    begin_s = np.sort(rng.uniform(0.0, 30 * 86400.0, jobs))
    log_j = 10.0 + level + kind.drift * begin_s / (30 * 86400.0) + rng.normal(0.0, RUN_SD, jobs)
    energy_j = np.exp(log_j + np.where(control, 0.0, gain))
    log_s = 6.0 + level + rng.normal(0.0, RUN_SD, jobs) + np.where(control, 0.0, np.log(1.03))
    time_s = np.round(np.exp(log_s)).astype(int)
    return "\n".join(_rows(entry, user, which, control, begin_s, energy_j, time_s)) + "\n"


def _rows(
    entry: str,
    user: np.ndarray,
    which: np.ndarray,
    control: np.ndarray,
    begin_s: np.ndarray,
    energy_j: np.ndarray,
    time_s: np.ndarray,
) -> Iterator[str]:
    yield "|".join(COLUMNS)
    for i in range(len(user)):
        began = START + datetime.timedelta(seconds=int(begin_s[i]))
        ended = began + datetime.timedelta(seconds=max(int(time_s[i]), 1))
        arm = "control" if control[i] else "policy"
        clock = "Unknown" if control[i] else "2G"
        common = f"COMPLETED|{began.isoformat()}|{ended.isoformat()}|{max(time_s[i], 1)}"
        where = f"1|n{i}"  # every job has a separate node
        comment = f"dvfs={entry}:2000/-:{arm}"
        name = f"app{which[i]}"
        yield f"{i}|u{user[i]}|{name}|{common}||Unknown|{where}|{comment}"
        yield f"{i}.extern||extern|{common}|{energy_j[i]:.0f}|Unknown|{where}|"
        yield f"{i}.0||{name}|{common}|{energy_j[i]:.0f}|{clock}|{where}|"


def plain_t(table: str) -> tuple[float, float]:
    """Return low and high of the saving in %, by a t-test of the logarithms of all jobs (Welch)."""
    jobs = [job for job in read_jobs(table) if job.energy_j]
    policy_log_j = np.log([job.energy_j for job in jobs if job.arm == "policy"])
    control_log_j = np.log([job.energy_j for job in jobs if job.arm == "control"])
    a, b = (
        policy_log_j.var(ddof=1) / len(policy_log_j),
        control_log_j.var(ddof=1) / len(control_log_j),
    )
    freedom = (a + b) ** 2 / (a**2 / (len(policy_log_j) - 1) + b**2 / (len(control_log_j) - 1))
    reach = special.stdtrit(freedom, 0.975) * np.sqrt(a + b)
    low, high = (
        np.expm1(d) * -100.0
        for d in (policy_log_j.mean() - control_log_j.mean() + reach * np.array([1, -1]))
    )
    return float(low), float(high)


def is_called_not_kept(rng: np.random.Generator) -> bool:
    """Return whether a policy whose entries all save exactly their promise is called not kept."""
    names = [f"app{i}" for i in range(ENTRIES)]
    jobs = [job for name in names for job in read_jobs(history(JUST_KEPT, ENTRY_JOBS, rng, name))]
    verdicts = verify(the_policy(*names), jobs).verdicts
    return any(verdict.verdict == BROKEN for verdict in verdicts)


def main() -> None:
    """Print the table."""
    parser = argument_parser(__doc__)
    parser.add_argument("--histories", type=int, default=250, help="of each kind")
    parser.add_argument("--jobs", type=int, default=600)
    parser.add_argument("--policies", type=int, default=500, help=f"of {ENTRIES} entries")
    arguments = parser.parse_args()
    policy = the_policy()
    rng = np.random.default_rng(20261128)
    print("simulated histories; verdicts and 95 % intervals of the saving")
    print(f"{'kind':20} {'holds':>6} {'kept':>6} {'not kept':>9} {'t holds':>8} {'t not kept':>10}")
    for kind in KINDS:
        covered, called_kept, called_broken, t_held, t_broken = [], [], [], [], []
        for _ in range(arguments.histories):
            table = history(kind, arguments.jobs, rng)
            (verdict,) = verify(policy, read_jobs(table)).verdicts
            assert verdict.saving_pct_95 is not None
            low, high = verdict.saving_pct_95
            covered.append(low <= kind.saving_pct <= high)
            called_kept.append(verdict.verdict == KEPT)
            called_broken.append(verdict.verdict == BROKEN)
            low, high = plain_t(table)
            t_held.append(low <= kind.saving_pct <= high)
            t_broken.append(high < LEAST_PCT)
        means = [np.mean(x) for x in (covered, called_kept, called_broken, t_held, t_broken)]
        print(
            f"{kind.name:20} {means[0]:6.1%} {means[1]:6.1%} {means[2]:9.1%} {means[3]:8.1%} "
            f"{means[4]:10.1%}"
        )
    called = [is_called_not_kept(rng) for _ in range(arguments.policies)]
    print(f"{ENTRIES} entries, each just kept: not kept in {np.mean(called):.1%} of the policies")
    table = history(KINDS[0], 10_000, rng)
    began_s = time.process_time()
    verify(policy, read_jobs(table))
    print(f"verify of 10,000 jobs: {time.process_time() - began_s:.2f} s of processor time")


if __name__ == "__main__":
    main()
