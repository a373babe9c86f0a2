"""The cost of a policy: `campaign exec` around a program, and the filter in srun.

    .venv/bin/python -m benchmarks.policy_costs exec [--runs N] [--seconds S]
    .venv/bin/python -m benchmarks.policy_costs filter [--runs N] [--entries N]

Both sides are interleaved; medians are printed. ``exec``: wall and processor time of ``true`` with
byte code and checked files in caches, which is the cost of a start; and the processor time that a
loop of about ``--seconds`` measures of itself, as the median ratio of 4 N pairs under exec and
alone. ``filter``: wall time of ``srun true`` on a real Slurm of one machine, with a filter that
does nothing and with a policy of ``--entries`` entries, of which the last matches; as root.
"""

from __future__ import annotations

import datetime
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.shared import CAMPAIGN, Cost, argument_parser, cost_of, interleaved

LOOP = "import time\nn = {n}\nwhile n:\n    n -= 1\nprint(time.process_time())\n"
LOOP_STEPS = 2_000_000


def own_s(argv: Sequence[str], environment: dict[str, str]) -> float:
    """Return the processor time that a program prints of itself, s."""
    return float(cost_of(argv, environment).output)


def medians(costs: list[Cost]) -> tuple[float, float]:
    """Return the medians of wall and processor time, s."""
    return (
        statistics.median(cost.wall_s for cost in costs),
        statistics.median(cost.cpu_s for cost in costs),
    )


def exec_costs(runs: int, seconds: float) -> None:
    """Measure `true` and a loop, alone and under exec."""
    with tempfile.TemporaryDirectory() as folder:
        records = f"{folder}/records.jsonl"
        environment = os.environ | {"PYTHONPYCACHEPREFIX": folder, "XDG_CACHE_HOME": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        around = [*CAMPAIGN, "exec", "--site", "localhost"]
        around += ["--records", records, "--"]
        cost_of([*around, "true"], environment)
        sides = {"alone": ["true"], "under": [*around, "true"]}
        costs = interleaved(
            {name: partial(cost_of, argv, environment) for name, argv in sides.items()}, runs
        )
        alone, under = map(medians, costs.values())
        print(
            f"true  alone {alone[0]:.3f} s wall, {alone[1]:.3f} s processor; under exec "
            f"{under[0] - alone[0]:+.3f} and {under[1] - alone[1]:+.3f} s"
        )
        loop = [sys.executable, "-c", LOOP.format(n=LOOP_STEPS)]
        steps = round(LOOP_STEPS * seconds / own_s(loop, environment))
        loop[-1] = LOOP.format(n=steps)
        # Which of the two is first alternates.
        times_s = interleaved(
            {
                "alone": partial(own_s, loop, environment),
                "under": partial(own_s, [*around, *loop], environment),
            },
            4 * runs,
        )
        ratios = [
            under_s / alone_s
            for alone_s, under_s in zip(times_s["alone"], times_s["under"], strict=True)
        ]
        low, middle, high = statistics.quantiles(ratios, n=4)
        error = 1.25 * (high - low) / 1.35 / len(ratios) ** 0.5
        print(
            f"loop  of {seconds:g} s: its own processor time under exec "
            f"{100 * (middle - 1):+.2f} %, standard error {100 * error:.2f} %"
        )


def filter_costs(runs: int, entries: int) -> None:
    """Measure srun with a filter that does nothing, and with the policy's."""
    from campaign.policy.forms import install
    from campaign.policy.policy_file import Entry, Match, Policy, PolicySetting
    from tests.accounting_cluster import FILTER, AccountingCluster

    today = datetime.date.today()
    policy = Policy(
        site="benchmark",
        device="cpu",
        until=today,
        entries=[
            Entry(
                name=f"e{i}",
                match=Match(job_name=f"*some{i}*name"),
                setting=PolicySetting(core_mhz=1800.0),
            )
            for i in range(entries - 1)
        ]
        + [Entry(name="last", match=Match(job_name="a*"), setting=PolicySetting(core_mhz=1800.0))],
    )
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        AccountingCluster(Path(folder) / "s", "costs", nodes=2) as cluster,
    ):
        form_folder = Path(folder) / "policy"
        install(policy, "slurm-cli-filter", form_folder, today)
        table = cluster.filter.parent / "dvfs_policy.lua"
        table.write_text((form_folder / table.name).read_text())

        def srun(lua: str) -> Cost:
            cluster.set_filter(lua)
            return cost_of(["srun", "--job-name=app", "true"], cluster.environment)

        ours = (form_folder / "cli_filter.lua").read_text()
        srun(ours)
        costs = interleaved({"without": partial(srun, FILTER), "with": partial(srun, ours)}, runs)
        without, with_it = map(medians, costs.values())
    print(
        f"srun without {without[0] * 1e3:.1f} ms; with {entries} entries "
        f"{(with_it[0] - without[0]) * 1e3:+.1f} ms wall, "
        f"{(with_it[1] - without[1]) * 1e3:+.1f} ms processor"
    )


def main() -> None:
    """Print one of the two tables."""
    parser = argument_parser(__doc__)
    parser.add_argument("what", choices=("exec", "filter"))
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--entries", type=int, default=100)
    arguments = parser.parse_args()
    if arguments.what == "exec":
        exec_costs(arguments.runs, arguments.seconds)
    else:
        filter_costs(arguments.runs, arguments.entries)


if __name__ == "__main__":
    main()
