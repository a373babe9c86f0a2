"""The rows of the comparison of FMMs: points, errors to reach and precisions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SEED = 5
CUT = 20.0
"""The radius at which the Plummer model is cut off, in its own unit."""
PLACES = (
    ("uniform", 65_536),
    ("uniform", 131_072),
    ("uniform", 262_144),
    ("plummer", 131_072),
    ("sphere", 131_072),
)
GOALS = ((3e-4, "double"), (3e-6, "double"), (1e-8, "double"), (3e-4, "single"))


@dataclass(frozen=True)
class Row:
    """A set of points and an error to reach. ``file``: the file with the points."""

    number: int
    place: str
    n: int
    goal: float
    precision: str
    file: str = ""

    @property
    def name(self) -> str:
        """The row in words."""
        return f"{self.place} {self.n:,} {self.goal:.0e} {self.precision}"


def uniform(random: np.random.Generator, n: int) -> np.ndarray:
    """Points of the unit cube."""
    return random.random((n, 3))


def directions(random: np.random.Generator, n: int) -> np.ndarray:
    """Vectors of length 1."""
    v = random.normal(size=(n, 3))
    return v / np.linalg.norm(v, axis=1)[:, None]


def plummer(random: np.random.Generator, n: int) -> np.ndarray:
    """Points of a Plummer model, cut off and scaled into the unit cube."""
    r = np.empty(0)
    while len(r) < n:
        more = 1 / np.sqrt(random.random(n) ** (-2 / 3) - 1)
        r = np.concatenate([r, more[more < CUT]])
    return 0.5 + directions(random, n) * r[:n, None] / (2 * CUT)


def sphere(random: np.random.Generator, n: int) -> np.ndarray:
    """Points of the surface of the sphere in the unit cube."""
    return 0.5 + 0.5 * directions(random, n)


MAKERS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "uniform": uniform,
    "plummer": plummer,
    "sphere": sphere,
}


def make_rows(folder: Path, numbers: set[int], n: int | None) -> list[Row]:
    """The selected rows, their points written to the folder; ``n``: of points in every row."""
    rows = []
    for number, (place, goal_of_row) in enumerate(((p, g) for p in PLACES for g in GOALS), 1):
        if number not in numbers:
            continue
        (kind, points), (goal, precision) = place, goal_of_row
        count = n or points
        file = folder / f"{kind}{count}.bin"
        if not file.exists():
            random = np.random.default_rng(SEED)
            x = MAKERS[kind](random, count)
            np.column_stack([x, random.uniform(-1, 1, count)]).astype("<f8").tofile(file)
        rows.append(Row(number, kind, count, goal, precision, str(file)))
    return rows


def numbers_of(text: str) -> set[int]:
    """``1-4,7`` -> {1, 2, 3, 4, 7}."""
    numbers: set[int] = set()
    for part in text.split(","):
        low, _, high = part.partition("-")
        numbers |= set(range(int(low), int(high or low) + 1))
    return numbers
