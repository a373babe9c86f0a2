"""The order of points where a change of the setting costs a job step."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from dvfs.setting import Setting

BATCH = 16
"""At most so many points of a setting follow each other."""


def in_batches(
    block: np.ndarray, settings: Sequence[Setting], seed: int, repeat: int
) -> np.ndarray:
    """A block's points in batches of one setting.

    ``block``: shape (inputs * settings,), input * len(settings) + setting, in random order; every
    setting has all inputs. The points of a setting are divided at random into batches of
    :data:`BATCH` at most. In each round every setting has one batch, in a random order of the
    settings that is a new one in each round: that of a hash of seed, repeat, round and setting.
    """
    of_setting = block[np.argsort(block % len(settings), kind="stable")].reshape(len(settings), -1)
    rounds = -(-of_setting.shape[1] // BATCH)
    batches = []
    for turn in range(rounds):
        front = f"{seed}:{repeat}:{turn}:"
        keys = [hashlib.sha256((front + s.hash_text).encode()).digest() for s in settings]
        places = sorted(range(len(settings)), key=keys.__getitem__)
        batches += [of_setting[place, turn::rounds] for place in places]
    return np.concatenate(batches)
