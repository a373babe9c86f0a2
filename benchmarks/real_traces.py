"""Do energies of real GPUs agree with an external meter within their stated uncertainty?

    .venv/bin/python -m benchmarks.real_traces [--windows 1000] [--seed 0]

Random windows of 0.5 to 6 s of the traces in tests/data/gpu_power_traces are compared, as in
tests/campaign/test_real_traces.py. For each board and load, the table has the number of windows,
the share of windows within two stated standard uncertainties, the mean error, and the root mean
squares of the error (spread) and of the stated standard uncertainty, in % of the energy.
"""

from __future__ import annotations

from benchmarks.shared import argument_parser


def main() -> int:
    import numpy as np

    from tests.campaign.test_real_traces import judge, read_traces, root_mean_square

    parser = argument_parser(__doc__)
    parser.add_argument("--windows", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    windows = judge(arguments.windows, arguments.seed)
    print(
        f"{'trace':<16}{'windows':>8}{'inside %':>10}{'mean %':>9}{'spread %':>10}{'stated %':>10}"
    )
    for name in [*(real.name for real in read_traces()), "all"]:
        chosen = [window for window in windows if name in ("all", window.name)]
        if not chosen:
            continue
        errors = [window.error for window in chosen]
        stated = root_mean_square([window.std_j / window.true_j for window in chosen])
        inside = np.mean([window.is_inside for window in chosen])
        print(
            f"{name:<16}{len(chosen):>8}{100 * inside:>10.1f}"
            f"{100 * np.mean(errors):>9.2f}{100 * root_mean_square(errors):>10.2f}"
            f"{100 * stated:>10.2f}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
