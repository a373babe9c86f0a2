"""Whether the 95 % intervals hold the truth in 95 % of campaigns, and picks are as sure as said.

    .venv/bin/python benchmarks/interval_coverage.py [--seeds 400] [--auto-seeds 400]

Every seed is a simulated campaign: the noise-free energies of the simulated Jetson TK1 times
fresh normal noise, of which each setting has a part that all its runs share, each run one of its
own, and each time one. The truth is the fit of the noise-free rows, so only noise stands between
a campaign's fit and it. All that is printed is simulated.

Picks are made as ``campaign predict`` makes them. A pick hits where it is the setting with the
least noise-free energy; two settings that are equal to 1e-7 count by the first.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

SETTING_GAIN = 0.015
RUN_GAIN = 0.025
TIME_GAIN = 0.003
DECILES = 10
TIE = 7
"""Decimals of energy over the least energy: what is alike to these is a tie."""


def campaign(quiet, seed: int):
    """The noise-free rows with the noise of one seed."""
    rng = np.random.default_rng(seed)
    n = len(quiet)
    gain = 1 + rng.normal(0, SETTING_GAIN, len(quiet.settings))[quiet.setting]
    gain += rng.normal(0, RUN_GAIN, n)
    slower = 1 + rng.normal(0, TIME_GAIN, n)
    return replace(quiet, energy_j=quiet.energy_j * gain, time_s=quiet.time_s * slower)


def truths(quiet) -> dict[str, float]:
    """Term -> its constant, from the noise-free rows; 0 for a term that they have none of."""
    from analysis.energy.fit import fit

    fitted = fit(quiet, "choi", "known", intervals=False)
    return {
        term.name: 0.0 if value < 1e-4 else float(value)
        for term, value in zip(fitted.terms, fitted.value, strict=True)
    }


def least_energies(quiet) -> dict[str, dict[tuple[float, float], float]]:
    """Kernel -> setting -> noise-free joules, in the order of the settings."""
    least_j: dict[str, dict[tuple[float, float], float]] = defaultdict(dict)
    for i in np.argsort(quiet.setting, kind="stable"):
        least_j[quiet.kernel[i]][quiet.settings[quiet.setting[i]]] = float(quiet.energy_j[i])
    return dict(least_j)


def measure(quiet, model: str, seeds: int) -> tuple[dict, dict, np.ndarray, np.ndarray, float]:
    """Of all seeds: coverage and half-widths by constant, the picks, forms chosen, and seconds.

    The picks: float64 (cases, 4) of probability, hit, expected and actual loss in %.
    """
    from analysis.choice.pick import picks
    from analysis.energy.fit import fit
    from analysis.energy.fitted import costs_at

    truth, least = truths(quiet), least_energies(quiet)
    exact = fit(quiet, "choi", "known")
    held, width, forms, made = defaultdict(list), defaultdict(list), defaultdict(int), []
    start = time.monotonic()
    for seed in range(seeds):
        data = campaign(quiet, seed)
        fitted = fit(data, model, "known")
        forms[fitted.model] += 1
        for i, term in enumerate(fitted.terms):
            true = truth.get(term.name, 0.0)
            held[term.name].append(fitted.low[i] <= true <= fitted.high[i])
            if true > 0:
                width[term.name].append((fitted.high[i] - fitted.low[i]) / 2 / true)
        for s in range(0, len(quiet.settings), 5):
            pair, mine = quiet.settings[s], quiet.setting == s
            volt = float(quiet.core_v[mine][0]), float(quiet.mem_v[mine][0])
            power_w, low, high = costs_at(fitted, *pair, *volt).constant_w
            true = costs_at(exact, *pair, *volt).constant_w[0]
            held["constant power"].append(low <= true <= high)
            width["constant power"].append((high - low) / 2 / power_w)
        for chosen in picks(fitted, data):
            true_j = np.array(list(least[chosen.label].values()))
            relative = np.round(true_j / true_j.min(), TIE)
            best = list(least[chosen.label])[int(np.argmin(relative))]
            mine_j = least[chosen.label][chosen.core_mhz, chosen.mem_mhz]
            hit = (chosen.core_mhz, chosen.mem_mhz) == best
            lost = (mine_j / true_j.min() - 1) * 100
            made.append((chosen.best_probability, hit, chosen.expected_loss_pct, lost))
    return held, width, forms, np.array(made), time.monotonic() - start


def show_coverage(held: dict, width: dict) -> None:
    """The table of constants, and the pooled coverage of the classes."""
    print(f"  {'constant':<16}{'campaigns':>10}{'held %':>9}{'half-width %':>14}")
    for name in sorted(held):
        half = f"{np.median(width[name]) * 100:14.1f}" if width.get(name) else f"{'(is 0)':>14}"
        print(f"  {name:<16}{len(held[name]):>10}{np.mean(held[name]) * 100:>9.1f}{half}")
    classes = [hit for name, hits in held.items() if name.startswith("c0_") for hit in hits]
    print(f"  {'all classes':<16}{len(classes):>10}{np.mean(classes) * 100:>9.1f}")


def show_picks(made: np.ndarray) -> None:
    """Cases, mean probability and hit rate by decile of probability; expected and actual loss."""
    probability, hit, expected, lost = made.T
    decile = np.minimum((probability * DECILES).astype(int), DECILES - 1)
    print(f"  {'probability':<14}{'cases':>8}{'mean said':>11}{'hit rate':>10}", end="")
    print(f"{'loss said %':>13}{'loss real %':>13}")
    rows = [(f"{k / DECILES:.1f} to {(k + 1) / DECILES:.1f}", decile == k) for k in range(DECILES)]
    for name, mine in [*rows, ("all", np.ones(len(made), bool))]:
        if mine.any():
            print(f"  {name:<14}{mine.sum():>8}{probability[mine].mean():>11.3f}", end="")
            print(f"{hit[mine].mean():>10.3f}{expected[mine].mean():>13.3f}", end="")
            print(f"{lost[mine].mean():>13.3f}")


def main() -> int:
    from analysis.measurements.observations import observations
    from tests.analysis.twin_data import twin_dataset

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=400, help="campaigns with model choi")
    parser.add_argument("--auto-seeds", type=int, default=400, help="campaigns with model auto")
    parser.add_argument("--per-family", type=int, default=8, help="kernels of each family")
    arguments = parser.parse_args()
    quiet = observations(twin_dataset("off", per_family=arguments.per_family), "tk1")
    print(
        f"simulated Jetson TK1: {len(set(quiet.kernel.tolist()))} kernels x "
        f"{len(quiet.settings)} settings = {len(quiet)} rows a campaign; noise: setting "
        f"{SETTING_GAIN:.1%}, run {RUN_GAIN:.1%}, time {TIME_GAIN:.1%}"
    )
    for model, seeds in (("choi", arguments.seeds), ("auto", arguments.auto_seeds)):
        if seeds <= 0:
            continue
        held, width, forms, made, took_s = measure(quiet, model, seeds)
        chosen = ", ".join(f"{name} {n}" for name, n in sorted(forms.items(), key=lambda f: -f[1]))
        print(f"\nmodel {model}: {seeds} simulated campaigns, chosen {chosen} ({took_s:.0f} s)")
        show_coverage(held, width)
        print()
        show_picks(made)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
