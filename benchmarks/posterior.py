"""The posterior on public data: the loss of its picks, and whether its intervals hold.

    .venv/bin/python -m benchmarks.posterior --data DIR [--only NAME] [--settings 3,4,6,8,12]
        [--new 1,2,3] [--seeds 5] [--draws 3] [--phone-seeds 1] [--speed]

``DIR``: as for ``public_data.py``. ``m``: all kernels are measured at m random settings only.
``q``: all settings are measured, but a tenth of the kernels at a time at q settings only, the draws
of ``few_measurements.py``. ``out``: each setting is left out in turn (by block formulas, with the
prior's sizes fixed), all kernels are measured at the others; ``out, t``: with the measured time at
the left-out setting. Each cluster of cores of the phones is a site.

``lost``: the picks' mean energy above each kernel's best, in %; ``others``: the smallest loss of a
quadratic, a Gaussian process, the best single setting and each kernel's best measured one on the
same draws (``smooth_models.py``; - where not tried).
``stated``: the loss that the model expects of its picks. ``energy``, ``saving``: how many 95 %
intervals hold, in %, of energies of unmeasured cells and of their savings relative to the fastest
setting. ``P said``, ``hit``: P(best), and how often the pick was the best; ``deciles``: the deciles
of P(best) within 10 points, of all with 20 cases or more. ``s``: processor time of a fit with its
picks.

``--speed``: processor time of simulated sites instead.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from dataclasses import dataclass, field

from benchmarks.shared import argument_parser

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd

from analysis.choice.few_crossval import few_folds
from analysis.measurements.observations import measured_volts
from analysis.predict.posterior import Posterior
from benchmarks.public_data import Grid, add_data, clusters, cpus, gpus, read_sets
from benchmarks.smooth_models import by_process, by_quadratic, places

TIE_PCT = 1e-5
HEADER = (
    f"{'data':<25}{'row':>7}{'lost':>8}{'others':>9}{'stated':>8}{'energy':>8}{'saving':>8}"
    f"{'P said':>8}{'hit':>6}{'deciles':>9}{'s':>7}"
)


def posterior_of(site, measured):
    """Return the posterior from the measured cells, bool (K, S)."""
    times = np.where(measured, site.log_s, np.nan)
    powers = np.where(measured, site.log_j - site.log_s, np.nan)
    volts = list(measured_volts(site.data).values()) if site.data.voltage != "unit" else None
    return Posterior.of(site.mhz, np.hstack([times, powers]), volts=volts and np.array(volts))


def lost_by_others(site, measured):
    """Return the mean loss of the other models from some measured settings, %."""
    log_j = site.log_j[:, measured]
    mean = np.exp(log_j - log_j.min(axis=1, keepdims=True)).mean(axis=0)
    picked = {
        "single": np.full(len(log_j), measured[int(np.argmin(mean))]),
        "measured": measured[log_j.argmin(axis=1)],
    }
    for name, predict in (("quadratic", by_quadratic), ("process", by_process)):
        predicted = predict(places(site.mhz), site.log_j, measured)
        predicted[:, measured] = log_j
        picked[name] = predicted.argmin(axis=1)
    rows = np.arange(len(log_j))
    return {
        name: float(site.truth.above_pct[rows, columns].mean()) for name, columns in picked.items()
    }


def pick_of(log_j):
    """Return, from draws (n, S) of log energies, the setting with the least expected loss, its
    probability of being the best, and its expected loss in %."""
    above = np.expm1(log_j - log_j.min(axis=1, keepdims=True))
    loss = above.mean(axis=0)
    setting = int(np.argmin(loss))
    return setting, float((above[:, setting] <= 1e-7).mean()), float(loss[setting]) * 100.0


@dataclass
class Score:
    """Picks and intervals of a row."""

    lost: list[float] = field(default_factory=list)
    cases: list[tuple[float, float, float, float]] = field(default_factory=list)
    energy: list[bool] = field(default_factory=list)
    saving: list[bool] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    baselines: list[dict[str, float]] = field(default_factory=list)

    def add(self, site: Grid, posterior: Posterior, cells, kernels):
        """Judge the picks and intervals of some kernels."""
        lost = []
        for k, drawn, _ in posterior.draws():
            if k not in kernels:
                continue
            log_j = drawn.T
            setting, probability, stated = pick_of(log_j)
            lost.append(site.truth.above_pct[k, setting])
            self.cases.append((probability, lost[-1] <= TIE_PCT, stated, lost[-1]))
            low, high = np.percentile(log_j, [2.5, 97.5], axis=0)
            hidden, f = ~cells[k], site.truth.fastest[k]
            self.energy += ((low <= site.log_j[k]) & (site.log_j[k] <= high))[hidden].tolist()
            low, high = np.percentile(log_j - log_j[:, [f]], [2.5, 97.5], axis=0)
            true = site.log_j[k] - site.log_j[k, f]
            judged = (hidden | hidden[f]) & (np.arange(len(true)) != f)
            self.saving += ((low <= true) & (true <= high))[judged].tolist()
        self.lost.append(float(np.mean(lost)))

    def show(self, name: str, row: str):
        """Print a line of the table."""
        probability, hit, stated, _ = np.array(self.cases, float).T
        decile = np.minimum((probability * 10).astype(int), 9)
        judged = [decile == d for d in range(10) if (decile == d).sum() >= 20]
        calibrated = sum(abs(probability[d].mean() - hit[d].mean()) <= 0.1 for d in judged)
        least_text = f"{'-':>9}"
        if self.baselines:
            least_text = f"{pd.DataFrame(self.baselines).mean().min():9.2f}"
        print(
            f"{name:<25}{row:>7}{np.mean(self.lost):8.2f}{least_text}{stated.mean():8.2f}"
            f"{np.mean(self.energy) * 100:8.1f}{np.mean(self.saving) * 100:8.1f}"
            f"{probability.mean():8.2f}{hit.mean():6.2f}{f'{calibrated}/{len(judged)}':>9}"
            f"{np.mean(self.seconds):7.2f}",
            flush=True,
        )


def few(sites: list[Grid], count: int, seeds: int) -> Score:
    """Judge fits with all kernels at ``count`` random settings."""
    score = Score()
    for site in sites:
        for seed in range(seeds if site.shape[1] > count else 0):
            chosen = site.random_settings(count, seed)
            cells = site.cells_of(chosen)
            begin = time.process_time()
            posterior = posterior_of(site, cells)
            score.add(site, posterior, cells, range(site.shape[0]))
            score.seconds.append(time.process_time() - begin)
            score.baselines.append(lost_by_others(site, chosen))
    return score


def new(site: Grid, count: int, draws: int) -> Score:
    """Judge fits with a tenth of the kernels at ``count`` settings and all others everywhere."""
    score, K, S = Score(), *site.shape
    for fold in few_folds(site.data, site.labels, S, count, draws):
        kernels = [site.labels.index(label) for label in fold.judged]
        cells = np.ones((K, S), bool)
        cells[kernels] = np.isin(site.truth.settings, fold.judged_settings)
        begin = time.process_time()
        posterior = posterior_of(site, cells)
        score.add(site, posterior, cells, set(kernels))
        score.seconds.append(time.process_time() - begin)
    return score


def left_out(site: Grid) -> list[tuple[float, float, float]]:
    """Leave each setting out in turn, with its time predicted and then given. Return for each the
    loss of the predicted best setting and how many 95 % intervals of energies hold, both in %, and
    processor time in s."""
    K, S = site.shape
    rows = []
    for time_given in (False, True):
        begin = time.process_time()
        posterior = posterior_of(site, np.ones(site.shape, bool))
        mean, in_interval = np.empty(site.shape), []
        for s in range(S):
            hidden = np.zeros((K, 2 * S), bool)
            hidden[:, S + s] = True
            hidden[:, s] = not time_given
            for k, drawn, _ in posterior.without(hidden).draws():
                mean[k, s] = np.median(drawn[s])
                low, high = np.percentile(drawn[s], [2.5, 97.5])
                in_interval.append(low <= site.log_j[k, s] <= high)
        lost = site.lost_pct(mean)
        seconds = time.process_time() - begin
        rows.append((float(lost.mean()), float(np.mean(in_interval)) * 100.0, seconds))
    return rows


def speed() -> None:
    """Print the processor time of simulated sites, one thread."""
    from analysis.predict.population import DEVICE_NUMBERS, KERNEL_NUMBERS, simulate

    for kernels, cores, mems, per_kernel in ((116, 4, 4, 16), (200, 15, 7, 105), (200, 15, 7, 12)):
        rng = np.random.default_rng(0)
        mhz = np.array(
            [(c, m) for c in np.linspace(300, 1500, cores) for m in np.linspace(400, 3000, mems)]
        )
        theta = 0.5 * rng.standard_normal(DEVICE_NUMBERS)
        z = simulate(mhz, None, theta, rng.standard_normal((kernels, KERNEL_NUMBERS)))
        z += 0.005 * rng.standard_normal(z.shape)
        S = len(mhz)
        for ragged in (False, True) if per_kernel < S else (False,):
            measured = np.zeros((kernels, S), bool)
            shared_settings = rng.choice(S, per_kernel, replace=False)
            for k in range(kernels):
                settings = rng.choice(S, per_kernel, replace=False) if ragged else shared_settings
                measured[k, settings] = True
            times, powers = (np.where(measured, part, np.nan) for part in (z[:, :S], z[:, S:]))
            begin = time.process_time()
            posterior = Posterior.of(mhz, np.hstack([times, powers]))
            fitted = time.process_time()
            for _, drawn, _ in posterior.draws():
                pick_of(drawn.T)
            picked = time.process_time()
            print(
                f"{kernels} x {S}, {per_kernel} measured{' (ragged)' if ragged else ''}: fit "
                f"{fitted - begin:.2f} s, picks {picked - fitted:.2f} s",
                flush=True,
            )


def numbers(text: str) -> list[int]:
    """Return ``3,4`` as [3, 4]."""
    return [int(part) for part in text.split(",") if part]


def main() -> int:
    """Print the table."""
    parser = argument_parser(__doc__)
    add_data(parser, required=False)
    parser.add_argument("--settings", type=numbers, default=[3, 4, 6, 8, 12])
    parser.add_argument("--new", type=numbers, default=[1, 2, 3])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--phone-seeds", type=int, default=1)
    parser.add_argument("--speed", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.speed:
        speed()
        return 0
    if arguments.data is None:
        parser.error("--data is needed")
    print(HEADER)
    folder = arguments.data
    sets = gpus(folder) | cpus(folder) | {"phones": lambda: clusters(folder)}
    without_counts = {name: load for name, load in sets.items() if "counts" not in name}
    for name, data in read_sets(without_counts, arguments.only):
        sites = [Grid(observations) for observations in data]
        for count in arguments.settings:
            if any(site.shape[1] > count for site in sites):
                seeds = arguments.phone_seeds if name == "phones" else arguments.seeds
                few(sites, count, seeds).show(name, f"m = {count}")
        if name == "phones":
            continue
        for count in arguments.new:
            if sites[0].shape[1] > count:
                new(sites[0], count, arguments.draws).show(name, f"q = {count}")
        for row, (lost, held, seconds) in zip(("out", "out, t"), left_out(sites[0]), strict=True):
            print(
                f"{name:<25}{row:>7}{lost:8.2f}{'':17}{held:8.1f}{'':31}{seconds:7.2f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
