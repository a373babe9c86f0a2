"""Do 95 % intervals hold the truth in 95 % of cases, and are picks as sure as they say?

    .venv/bin/python -m benchmarks.interval_coverage [--seeds 400] [--auto-seeds 400]
        [--boards 60] [--data DIR] [--splits 24] [--store STORE --site X] [--only NAME]

Compared with known truths, on the simulated Jetson TK1: every seed is a campaign, the noise-free
energies times normal noise. One part of the noise is shared by all runs of a setting, one differs
between runs; times have noise, too.

- ``smooth model``: the truth is the noise-free model. The noise that a setting's runs share is an
  error of the campaign, drawn anew for each. The constants' intervals are judged by this truth too.
- ``board``: the noise that a setting's runs share belongs to the board and to the truth
  (``--boards``).

Compared with measurements that the fit does not see, of public data (``--data``, the folder of
``benchmarks/public_data.py``) and of a store (``--store``): a random half of the settings,
``--splits`` times, or half of the repeats. The measured savings and best settings are the truth.
Kept-back repeats are noisy: for this comparison the intervals are widened by the noise from a fit
of all repeats; "bare" is without.

``judged_picks.py`` says how picks are judged. Simulated results are marked.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from benchmarks.shared import argument_parser

# The matrices are small: threads would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.judged_picks import HEADER, Picks, true_energies
from benchmarks.public_data import add_data, cpus, gpus, phones, read_sets

SETTING_GAIN = 0.015
RUN_GAIN = 0.025
TIME_GAIN = 0.003


def campaign(quiet, seed: int):
    """Return the noise-free rows with the noise of one seed, and with only the settings' shared
    noise."""
    rng = np.random.default_rng(seed)
    n = len(quiet)
    shared = 1 + rng.normal(0, SETTING_GAIN, len(quiet.settings))[quiet.setting]
    gain = shared + rng.normal(0, RUN_GAIN, n)
    slower = 1 + rng.normal(0, TIME_GAIN, n)
    noisy = replace(quiet, energy_j=quiet.energy_j * gain, time_s=quiet.time_s * slower)
    return noisy, replace(quiet, energy_j=quiet.energy_j * shared)


def truths(quiet) -> dict[str, float]:
    """Return term -> constant, from the noise-free rows; 0 for a term that the rows do not have."""
    from analysis.energy.fit import fit

    fitted = fit(quiet, "choi", "known", intervals=False)
    return {
        term.name: 0.0 if value < 1e-4 else float(value)
        for term, value in zip(fitted.terms, fitted.value, strict=True)
    }


def constants(quiet, model: str, seeds: int) -> tuple[dict, dict, dict, Picks]:
    """Return, over all seeds, coverage and half-widths by constant, the chosen forms, and the
    picks."""
    from analysis.choice.candidates import all_candidates
    from analysis.energy.fit import fit
    from analysis.energy.fitted import costs_at

    truth, true_j = truths(quiet), true_energies(quiet)
    exact = fit(quiet, "choi", "known")
    held, width, forms, all_picks = defaultdict(list), defaultdict(list), defaultdict(int), Picks()
    for seed in range(seeds):
        data, _ = campaign(quiet, seed)
        fitted = fit(data, model, "known")
        forms[fitted.model] += 1
        for i, term in enumerate(fitted.terms):
            true = truth.get(term.name, 0.0)
            held[term.name].append(fitted.low[i] <= true <= fitted.high[i])
            if true > 0:
                width[term.name].append((fitted.high[i] - fitted.low[i]) / 2 / true)
        for s in range(0, len(quiet.settings), 5):
            pair, at_setting = quiet.settings[s], quiet.setting == s
            volt = float(quiet.core_v[at_setting][0]), float(quiet.mem_v[at_setting][0])
            power_w, low, high = costs_at(fitted, pair, *volt).constant_w
            true = costs_at(exact, pair, *volt).constant_w[0]
            held["constant power"].append(low <= true <= high)
            width["constant power"].append((high - low) / 2 / power_w)
        for kernel, among in all_candidates(data).items():
            all_picks.add(among, true_j[kernel], seed)
    return held, width, forms, all_picks


def boards(quiet, seeds: int) -> Picks:
    """Return picks from campaigns of boards whose settings have different gains, which are true."""
    from analysis.choice.candidates import all_candidates

    all_picks = Picks()
    for seed in range(seeds):
        data, board = campaign(quiet, seed)
        true_j = true_energies(board)
        for kernel, among in all_candidates(data).items():
            all_picks.add(among, true_j[kernel], seed)
    return all_picks


def kept_back_settings(sites: list, splits: int) -> Picks:
    """Return picks from fits of half of the settings (three at least), judged by all settings."""
    from analysis.choice.candidates import all_candidates

    all_picks = Picks()
    for number, data in enumerate(sites):
        true_j, n = true_energies(data), len(data.settings)
        volts = {
            data.settings[s]: (
                float(data.core_v[data.setting == s].mean()),
                float(data.mem_v[data.setting == s].mean()),
            )
            for s in np.unique(data.setting)
        }
        for split in range(splits):
            rng = np.random.default_rng(split)
            training_settings = rng.permutation(n)[: max(n // 2, min(3, n - 1))]
            training = data.take(np.isin(data.setting, training_settings))
            among = all_candidates(training, None, volts)
            part = number * splits + split
            for kernel, candidates in among.items():
                all_picks.add(candidates, true_j[kernel], part, as_measured=True)
    return all_picks


def kept_back_repeats(sites: list) -> Picks | None:
    """Return picks from fits of the even repeats, judged by the odd ones, and vice versa."""
    from analysis.choice.candidates import all_candidates, measured_volts
    from analysis.predict.site import site_posterior

    all_picks = Picks()
    for number, data in enumerate(sites):
        repeat = repeats(data)
        if not repeat.any():
            continue
        noise_once = site_posterior(data, measured_volts(data)).noise[2]
        for half in (0, 1):
            training, test = data.take(repeat % 2 == half), data.take(repeat % 2 != half)
            true_j = true_energies(test)
            for kernel, among in all_candidates(training).items():
                repeat_count = (test.kernel == kernel).sum() / len(true_j[kernel])
                noise = noise_once / repeat_count
                all_picks.add(among, true_j[kernel], 2 * number + half, noise=noise)
    return all_picks if all_picks.cases else None


def repeats(data) -> np.ndarray:
    """Return, int64 (rows,), how many rows of the same kernel and setting precede each row."""
    before: dict[tuple[str, int], int] = defaultdict(int)
    number = np.empty(len(data), np.int64)
    for i, cell in enumerate(zip(data.labels.tolist(), data.setting.tolist(), strict=True)):
        number[i] = before[cell]
        before[cell] += 1
    return number


def show_coverage(held: dict, width: dict) -> None:
    """Print the table of constants, and the pooled coverage of the classes."""
    print(f"  {'constant':<16}{'campaigns':>10}{'held %':>9}{'half-width %':>14}")
    for name in sorted(held):
        half = f"{np.median(width[name]) * 100:14.1f}" if width.get(name) else f"{'(is 0)':>14}"
        print(f"  {name:<16}{len(held[name]):>10}{np.mean(held[name]) * 100:>9.1f}{half}")
    classes = [hit for name, hits in held.items() if name.startswith("c0_") for hit in hits]
    print(f"  {'all classes':<16}{len(classes):>10}{np.mean(classes) * 100:>9.1f}")


def simulated(arguments: argparse.Namespace) -> None:
    """Judge by both truths of the simulated board."""
    from analysis.measurements.observations import observations
    from tests.analysis.simulated_tk1 import simulated_columns

    quiet = observations(simulated_columns("off", per_family=arguments.per_family), "tk1")
    print(
        f"simulated Jetson TK1: {len(set(quiet.labels.tolist()))} kernels x "
        f"{len(quiet.settings)} settings = {len(quiet)} rows a campaign; noise: setting "
        f"{SETTING_GAIN:.1%}, run {RUN_GAIN:.1%}, time {TIME_GAIN:.1%}"
    )
    for model, seeds in (("choi", arguments.seeds), ("auto", arguments.auto_seeds)):
        if seeds <= 0:
            continue
        start = time.monotonic()
        held, width, forms, all_picks = constants(quiet, model, seeds)
        chosen = ", ".join(f"{name} {n}" for name, n in sorted(forms.items(), key=lambda f: -f[1]))
        took_s = time.monotonic() - start
        print(f"\nmodel {model}: {seeds} simulated campaigns, chosen {chosen} ({took_s:.0f} s)")
        show_coverage(held, width)
        print(f"\n{HEADER}")
        all_picks.show("smooth model (simulated)")
    if arguments.boards:
        print(f"\n{HEADER}")
        boards(quiet, arguments.boards).show("board (simulated)")


def kept_back(arguments: argparse.Namespace) -> None:
    """Judge by kept-back measurements of a store and of public data."""
    folder, sets = arguments.data, {}
    if arguments.store:
        from campaign.results import open_store

        sets["store"] = lambda: [open_store(arguments.store).observations(arguments.site)]
    if folder:
        sets |= gpus(folder) | cpus(folder)
        sets["phones, every cluster a site"] = lambda: list(phones(folder, 10))
    print(f"\n{HEADER}")
    for name, sites in read_sets(sets, arguments.only):
        kept_back_settings(sites, arguments.splits).show(f"{name}: settings")
        if (by_repeats := kept_back_repeats(sites)) is not None:
            by_repeats.show(f"{name}: repeats")


def main() -> int:
    parser = argument_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=400, help="campaigns with model choi")
    parser.add_argument("--auto-seeds", type=int, default=400, help="campaigns with model auto")
    parser.add_argument("--boards", type=int, default=60, help="boards with gains of their own")
    parser.add_argument("--per-family", type=int, default=8, help="kernels of each family")
    add_data(parser, required=False)
    parser.add_argument("--store", type=Path, help="a store, half of whose settings are kept back")
    parser.add_argument("--site", default="jetson-tk1", help="of the store")
    parser.add_argument("--splits", type=int, default=24, help="random halves of the settings")
    arguments = parser.parse_args()
    if arguments.seeds or arguments.auto_seeds or arguments.boards:
        simulated(arguments)
    if arguments.data or arguments.store:
        kept_back(arguments)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
