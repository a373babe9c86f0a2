"""What is measured next of a simulated board, and what its picks then lose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.choice.next_measurements import (
    FIRST_SETTINGS,
    MeasuredCells,
    _beliefs,
    measurements_like,
    next_measurements,
)
from analysis.choice.objectives import ENERGY, objective
from analysis.choice.pick import picks
from analysis.energy.fit import fit
from analysis.measurements.observations import FitError, measured_volts
from analysis.predict.site import site_posterior
from dvfs.setting import Setting
from tests.analysis.synthetic import grid_observations

KERNELS = 8


class Board:
    """Kernels at 36 settings, of which some cells have been measured."""

    def __init__(self, seed):
        self.all = grid_observations(
            seed,
            kernels=KERNELS,
            noise=0.02,
            setting_noise=0.02,
            known_voltage=False,
            core_mhz=tuple(np.geomspace(200, 1600, 9).round()),
            mem_mhz=tuple(np.geomspace(400, 1600, 4).round()),
        )
        self.labels = list(dict.fromkeys(self.all.labels.tolist()))
        self.kernel = np.array([self.labels.index(k) for k in self.all.labels.tolist()])
        self.shape = (KERNELS, len(self.all.settings))
        self.joules = np.empty(self.shape)
        self.joules[self.kernel, self.all.setting] = self.all.energy_j
        self.measured = np.zeros(self.shape, bool)

    @property
    def data(self):
        """The rows of the measured cells; None without any."""
        rows = self.measured[self.kernel, self.all.setting]
        return self.all.take(rows) if rows.any() else None

    def offer(self, hours=1.0, again=False, repeats=1):
        """All cells that are not measured, each measurement for so many hours; with ``again`` the
        measured ones too."""
        return MeasuredCells(
            labels=[
                label if self.measured[k].any() else None for k, label in enumerate(self.labels)
            ],
            settings=self.all.settings,
            measured=self.measured,
            free=~self.measured | again,
            measurements=np.where(self.measured, 1, repeats),
            node_hours=lambda kernel, time_s: np.full(len(time_s), hours),
        )

    def chosen(self, offer, **options):
        """What is chosen of an offer, by what was measured."""
        data = self.data
        found = None if data is None else site_posterior(data, measured_volts(self.all))
        return next_measurements(data, found, offer, ENERGY, **{"budget_h": np.inf} | options)

    def next(self, **options):
        """The next measurements, which are then made."""
        chosen = self.chosen(self.offer(), **options)
        for cell in chosen.cells:
            assert not self.measured[cell]
            self.measured[cell] = True
        return chosen

    def lost_pct(self):
        """What the picks lose, (K,)."""
        made = picks(self.data, self.labels, volts=measured_volts(self.all))
        place = {setting: s for s, setting in enumerate(self.all.settings)}
        at = [place[pick.setting] for pick in made]
        least = self.joules.min(axis=1)
        return (self.joules[np.arange(KERNELS), at] / least - 1.0) * 100.0


def test_first_come_five_settings_for_all_kernels_the_fastest_first():
    board = Board(1)
    chosen = board.next()
    assert chosen.ended == "spread"
    assert chosen.spread == len(chosen.cells) == FIRST_SETTINGS * KERNELS
    assert np.isnan(chosen.lost_pct)
    assert board.all.settings[chosen.cells[0][1]] == Setting(1600.0, 1600.0)
    there = board.measured.sum(axis=0)
    assert sorted(there[there > 0]) == [KERNELS] * FIRST_SETTINGS


def test_a_budget_holds_from_the_first_settings_on():
    board = Board(1)
    chosen = board.next(budget_h=11.0)
    assert len(chosen.cells) == 11
    assert sum(chosen.node_hours) == 11.0
    rest = board.next()
    assert len(rest.cells) == FIRST_SETTINGS * KERNELS - 11
    assert len(board.next(most=7).cells) == 7


def test_a_kernel_that_was_never_measured_comes_first():
    board = Board(2)
    board.next()
    board.measured[3] = False
    chosen = board.next(most=6)
    assert chosen.spread == 2
    assert {kernel for kernel, _ in chosen.cells[:2]} == {3}
    assert board.all.settings[chosen.cells[0][1]] == Setting(1600.0, 1600.0)
    assert len(chosen.cells) == 6


def test_stated_loss_falls_as_cells_are_measured_and_it_ends_by_itself():
    board = Board(3)
    board.next()
    said = []
    for _ in range(40):
        chosen = board.next(most=8, more_h=8.0)
        said.append(chosen.lost_pct)
        assert chosen.then_lost_pct <= chosen.lost_pct
        assert chosen.more_lost_pct <= chosen.then_lost_pct + 0.05
        if not chosen.cells:
            break
    assert chosen.ended in ("enough", "settled")
    assert said[-1] < said[0] / 3
    assert board.measured.mean() < 0.8


@pytest.mark.timeout(300)
def test_a_quarter_of_the_grid_chosen_beats_a_quarter_at_random():
    """Nine of 36 settings, four boards whose settings differ from the model by 2 %."""
    won, chosen_lost, random_lost = 0, [], []
    for seed in range(4):
        board = Board(seed)
        board.next()
        while (left := board.measured.size // 4 - int(board.measured.sum())) > 0:
            board.next(most=min(left, 16), enough=0.0)
        chosen_lost.append(board.lost_pct().mean())
        board.measured[:] = False
        board.measured[:, np.random.default_rng(seed).choice(36, 9, replace=False)] = True
        random_lost.append(board.lost_pct().mean())
        won += chosen_lost[-1] < random_lost[-1]
    assert won == 4
    assert np.mean(chosen_lost) < 0.5 * np.mean(random_lost)


class NoisyBoard(Board):
    """Every measurement has 2 % of noise of its own; ``joules`` has none."""

    def __init__(self, seed):
        super().__init__(seed)
        exact = grid_observations(
            seed,
            kernels=KERNELS,
            known_voltage=False,
            core_mhz=tuple(np.geomspace(200, 1600, 9).round()),
            mem_mhz=tuple(np.geomspace(400, 1600, 4).round()),
        )
        self.rng = np.random.default_rng(seed + 77)
        real = np.exp(0.02 * self.rng.normal(size=len(exact.settings)))
        self.all = replace(exact, energy_j=exact.energy_j * real[exact.setting])
        self.joules[self.kernel, self.all.setting] = self.all.energy_j
        self.row = np.empty(self.shape, int)
        self.row[self.kernel, self.all.setting] = np.arange(self.all.energy_j.size)
        self.rows, self.noisy_j = [], []

    @property
    def data(self):
        if not self.rows:
            return None
        return replace(self.all.take(np.array(self.rows)), energy_j=np.array(self.noisy_j))

    def measure(self, cells):
        for cell in cells:
            self.rows.append(self.row[cell])
            self.noisy_j.append(self.joules[cell] * np.exp(0.02 * self.rng.normal()))
            self.measured[cell] = True

    def spend(self, count, again):
        """So many measurements, chosen in batches of 24; the mean loss of the picks then."""
        while (left := count - len(self.rows)) > 0:
            most = min(left, 24) if self.rows else left
            chosen = self.chosen(self.offer(again=again), most=most, enough=0.0)
            self.measure(chosen.cells)
        return self.lost_pct().mean()


def test_where_noise_limits_the_picks_points_are_measured_again():
    """As many measurements, with and without repeats: the mean of six boards, since the
    losses of one differ by more than the two ways do."""
    again, once = (
        np.mean([NoisyBoard(seed).spend(136, again=repeats) for seed in range(6)])
        for repeats in (True, False)
    )
    assert again < 0.75 * once


def test_a_repeat_costs_one_measurement_and_a_new_cell_all_its_repeats():
    board = Board(3)
    board.measured[:, ::2] = True
    offer = board.offer(hours=0.5, again=True, repeats=3)
    chosen = board.chosen(offer, budget_h=30.0, enough=0.0)
    cost = [0.5 if board.measured[cell] else 1.5 for cell in chosen.cells]
    assert chosen.node_hours == cost
    assert {0.5, 1.5} == set(cost)
    assert len(set(chosen.cells)) == len(chosen.cells)


def test_anchors_are_measured_cells_at_settings_far_apart_and_a_tenth_of_all():
    board = Board(3)
    board.next()

    def chosen(most, anchors=4, budget_h=np.inf):
        offer = board.offer(again=True)
        return board.chosen(offer, budget_h=budget_h, most=most, anchors=anchors, enough=0.0)

    many = chosen(40)
    assert len(many.anchors) == 4
    assert len(many.cells) == 36
    assert len(many.node_hours) == 40
    assert not set(many.anchors) & set(many.cells)
    assert all(board.measured[cell] for cell in many.anchors)
    mhz = [board.all.settings[setting] for _, setting in many.anchors]
    assert len(set(mhz)) == 2
    assert Setting(1600.0, 1600.0) in mhz
    assert len(chosen(39).anchors) == 3
    assert len(chosen(9).anchors) == 0
    assert len(chosen(40, anchors=1).anchors) == 1
    assert chosen(40, anchors=0).anchors == []
    few = chosen(None, budget_h=25.0)
    assert len(few.anchors) == 2
    assert sum(few.node_hours) <= 25.0
    # They are the same in the next batch, so that every batch is compared with the first.
    for cell in many.cells:
        board.measured[cell] = True
    assert chosen(40).anchors == many.anchors


def test_nothing_is_an_anchor_where_nothing_was_measured():
    board = Board(1)
    assert board.chosen(board.offer(again=True), anchors=4).anchors == []


def test_anchors_are_of_the_kernels_on_offer_and_never_cells_that_were_not_measured():
    """The store has kernels that the campaign no longer names, the first of which are the cheapest,
    and three of the others were measured: two anchors each."""
    board = Board(3)
    board.next()
    board.measured[5:] = False
    rows = np.arange(2, KERNELS)
    every = board.offer(again=True)
    offer = MeasuredCells(
        labels=every.labels[2:],
        settings=every.settings,
        measured=board.measured[rows],
        free=every.free[rows],
        measurements=every.measurements[rows],
        node_hours=lambda kernel, time_s: np.full(len(time_s), 1.0 + kernel),
    )
    chosen = board.chosen(offer, most=100, anchors=9, enough=0.0)
    assert len(chosen.anchors) == len(set(chosen.anchors)) == 6
    assert all(offer.measured[cell] for cell in chosen.anchors)
    assert [kernel for kernel, _ in chosen.anchors] == [0, 0, 1, 1, 2, 2]
    assert chosen.node_hours[-6:] == [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]


class NewSite:
    """A site like a board that was measured at every other setting. It has five of the board's
    kernels and one more, 20 of its settings and one more, all in another order."""

    def __init__(self, seed):
        self.board = Board(seed)
        self.board.measured[:, ::2] = True
        self.data = self.board.data
        self.fitted = fit(self.data, "choi", "floor")
        self.labels = [*self.board.labels[::-1][:5], None]
        self.settings = [*self.board.all.settings[::-1][:20], Setting(100.0, 100.0)]
        self.measured = np.zeros((6, 21), bool)

    def chosen(self, budget_h=np.inf, most=None):
        """What is chosen. Each cell is measured three times; a measurement takes as many node-hours
        as the kernel takes seconds."""
        offer = MeasuredCells(
            labels=self.labels,
            settings=self.settings,
            measured=self.measured,
            free=~self.measured,
            measurements=np.full(self.measured.shape, 3),
            node_hours=lambda kernel, time_s: time_s,
        )
        volts = dict.fromkeys(self.board.all.settings, (1.0, 1.0))
        return measurements_like(self.data, self.fitted, offer, volts, budget_h=budget_h, most=most)

    def seconds(self, cell):
        """The time of a cell on the known board."""
        of, (k, s) = self.board.all, cell
        mine = of.labels == self.labels[k]
        at = [of.settings[i] == self.settings[s] for i in of.setting]
        return float(of.time_s[mine & at][0])


def test_what_is_chosen_of_a_site_with_other_settings_costs_the_times_of_the_known_one():
    new = NewSite(1)
    chosen = new.chosen(most=12)
    assert (chosen.ended, chosen.spread) == ("like", 0)
    assert len(set(chosen.cells)) == 12
    assert all(new.labels[k] is not None and s < 20 for k, s in chosen.cells)
    true = 3.0 * np.array([new.seconds(cell) for cell in chosen.cells])
    assert chosen.node_hours == pytest.approx(true, rel=0.1)
    little = new.chosen(budget_h=0.3 * sum(chosen.node_hours))
    assert little.cells
    assert sum(little.node_hours) <= 0.3 * sum(chosen.node_hours)
    # What was measured is not chosen again, and counts.
    new.measured[tuple(np.transpose(chosen.cells))] = True
    more = new.chosen(most=3)
    assert not set(more.cells) & set(chosen.cells)
    assert more.error_ratio < chosen.error_ratio
    new.measured[:] = True
    assert new.chosen(most=3).cells == []


def test_a_known_site_that_cannot_say_what_to_measure_is_refused():
    new = NewSite(3)
    new.labels = [None] * 6
    with pytest.raises(
        FitError, match="synthetic has measured none of these kernels; name another"
    ):
        new.chosen()
    new = NewSite(3)
    new.data = new.data.take(new.data.setting < 4)
    new.fitted = fit(new.data, "choi", "floor")
    # A fit from this one is refused as well.
    with pytest.raises(FitError, match="synthetic does not say how sure it is"):
        new.chosen()


SCORES = {
    "energy": lambda e, t: e,
    "time": lambda e, t: t,
    "edp": lambda e, t: e * t,
    "ed2p": lambda e, t: e * t**2,
    "weighted:0.3": lambda e, t: 0.3 * t + 0.7 * e,
}
"""Of energies and times that are relative to a kernel's least ones."""


@pytest.mark.parametrize("name", SCORES)
def test_the_noise_of_a_measurement_is_that_of_what_picks_minimise(name):
    """Against the scatter of the rows' scores; energies and times scatter together."""
    exact = grid_observations(4, kernels=6, counted=0.0, repeats=8)
    rng = np.random.default_rng(1)
    later, more = np.exp(rng.normal(0.0, [[0.02], [0.01]], (2, len(exact))))
    data = replace(exact, time_s=exact.time_s * later, energy_j=exact.energy_j * later * more)
    found = site_posterior(data, measured_volts(data))
    kernels = [data.labels == label for label in found.labels]
    shape = (len(kernels), len(found.settings))
    offer = MeasuredCells(
        labels=found.labels,
        settings=found.settings,
        measured=np.ones(shape, bool),
        free=np.ones(shape, bool),
        measurements=np.full(shape, 2),
        node_hours=lambda kernel, time_s: np.ones(len(time_s)),
    )
    beliefs = _beliefs(found, offer, range(len(kernels)), objective(name))
    log_score = np.empty(len(data))
    for rows in kernels:
        relative = (
            v[rows] / e[rows].min()
            for v, e in ((data.energy_j, exact.energy_j), (data.time_s, exact.time_s))
        )
        log_score[rows] = np.log(SCORES[name](*relative))
    true = [
        np.var(log_score[rows & (data.setting == s)], ddof=1)
        for rows in kernels
        for s in range(shape[1])
    ]
    stated = np.array([belief.noise for belief in beliefs])
    assert stated.mean() == pytest.approx(np.mean(true) / 2, rel=0.03)
