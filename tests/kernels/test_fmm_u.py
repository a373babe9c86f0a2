"""The U phase in variants: the declared space, correct sums, exact counts, the refined peak."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from dvfs.dataset import CLASS_UNITS
from kernels.fmm.constants import BOTH_WAYS, ITSELF
from kernels.fmm_u.kernel import (
    FmmUParams,
    build_leaves,
    count_interactions,
    fmm_u,
    make_schedule,
)
from kernels.fmm_u.variants import (
    REGISTERS,
    Variant,
    flops,
    instructions,
    registers,
    tolerance,
    variants,
)
from kernels.host.ranks import Team
from kernels.kernel import ResultError

N, Q = 700, 60
FIELDS = ("layout", "lanes", "tile", "unroll", "ways", "precision", "root")
SAMPLE: list[dict[str, Any]] = [
    {"layout": "soa", "lanes": "targets", "tile": 4, "unroll": 1, "root": "newton1"},
    {"layout": "aos", "lanes": "sources", "tile": 2, "ways": "both", "root": "estimate"},
    {"layout": "blocked", "lanes": "targets", "tile": 1, "unroll": 4, "ways": "both"}
    | {"precision": "double", "root": "newton2"},
    {"layout": "blocked", "lanes": "sources", "tile": 1, "unroll": 2, "ways": "one"}
    | {"precision": "double", "root": "sqrt"},
]
"""Every value of every field, in four variants."""


def params_of(given: dict[str, Any], **more: Any) -> FmmUParams:
    return FmmUParams(**{"n": N, "q": Q, "vector_bits": host_bits(), **given, **more})


def host_bits() -> int:
    from kernels.host.vectors import HOST

    return 512 if HOST.bytes == 64 else 256


def touching(params: FmmUParams) -> Iterator[tuple[int, int]]:
    """Leaves (target, source) whose cubes share a point, by their corners."""
    tree = build_leaves(params.n, params.q, params.precision).tree
    side = 0.5 ** tree.level.astype(float)
    low = tree.anchor * side[:, None]
    high = low + side[:, None]
    for b in tree.leaves:
        for a in tree.leaves:
            if (low[a] <= high[b]).all() and (low[b] <= high[a]).all():
                yield int(b), int(a)


# The space


@pytest.mark.parametrize("vector_bits", [256, 512])
def test_the_space_has_several_hundred_different_variants(vector_bits: int) -> None:
    space = variants(vector_bits)
    assert 300 <= len(space) <= 500
    assert len({v.name() for v in space}) == len(space)
    assert len({v.model_dump_json() for v in space}) == len(space)
    assert all(registers(v) <= REGISTERS and v.vector_bits == vector_bits for v in space)
    assert all(Variant(**v.model_dump()) == v for v in space)
    assert variants(vector_bits) == space


def test_the_sample_covers_every_value() -> None:
    space = variants()
    sample = [Variant(**given) for given in SAMPLE]
    for field in FIELDS:
        assert {getattr(v, field) for v in sample} == {getattr(v, field) for v in space}
    assert set(sample) <= set(space)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"tile": 4, "unroll": 4}, "need 39 vector registers of 32"),
        ({"precision": "double", "root": "estimate"}, "14 of double precision's 53 bits"),
        ({"precision": "single", "root": "newton2"}, "more bits than single precision's 24"),
        ({"tile": 3}, "Input should be 1, 2 or 4"),
        ({"layout": "rows"}, "'soa', 'aos' or 'blocked'"),
        ({"vector_bits": 128}, "256 or 512"),
        ({"threads": 0}, "greater than or equal to 1"),
        ({"n": 0}, "greater than or equal to 1"),
        ({"q": 0}, "greater than or equal to 1"),
        ({"q": -5}, "greater than or equal to 1"),
        ({"distribution": "plummer"}, "'uniform'"),
        ({"tiles": 2}, "Extra inputs are not permitted"),
    ],
)
def test_variants_that_cannot_be_built_are_refused_with_a_reason(
    given: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValidationError, match=says) as refused:
        FmmUParams(**given)
    assert refused.value.error_count() == 1


def test_the_mix_is_eleven_flops_in_eight_instructions() -> None:
    """Choi & Vuduc 2012, section 5.4."""
    mix = instructions("estimate", "one")
    assert sum(mix.values()) == 8
    assert flops(mix) == 11


# Results


@pytest.mark.parametrize("given", SAMPLE, ids=lambda given: Variant(**given).name())
@pytest.mark.parametrize("threads", [1, 2])
def test_sums_are_those_of_numpy(given: dict[str, Any], threads: int) -> None:
    """All targets, over the leaves whose cubes touch, in double precision."""
    params = params_of(given, threads=threads)
    run = fmm_u.prepare(params, Team())
    try:
        run.run(2)
        run.check()
        leaves = build_leaves(params.n, params.q, params.precision)
        schedule = run.parts[0]._schedule
        computed = run.parts[0]._arrays.sums[schedule.slot] / params.unit
        tree = leaves.tree
        right, scale, terms = np.zeros(N), np.zeros(N), np.zeros(N, int)
        for b, a in touching(params):
            t = tree.order[tree.begin[b] : tree.end[b]]
            s = tree.order[tree.begin[a] : tree.end[a]]
            r = np.linalg.norm(leaves.points[t, None] - leaves.points[s], axis=2)
            inverse = np.divide(1.0, r, out=np.zeros_like(r), where=r > 0)
            right[t] += inverse @ leaves.charges[s]
            scale[t] += inverse @ np.abs(leaves.charges[s])
            terms[t] += len(s)
        error = np.abs(computed - right) / scale
        assert error.max() <= tolerance(params, int(terms.max()))
        # Wrong sums are detected.
        for part in run.parts:
            part._arrays.sums[:] *= 1.01
            with pytest.raises(ResultError, match=r"the sum at point \d+ is"):
                part.check()
    finally:
        run.close()


@pytest.mark.parametrize("n", [1, 2, 17])
def test_few_points_work_too(n: int) -> None:
    run = fmm_u.prepare(params_of(SAMPLE[0], n=n, threads=2), Team())
    try:
        run.run(1)
        run.check()
        assert run.counts() == fmm_u.counts(params_of(SAMPLE[0], n=n, threads=2))
    finally:
        run.close()


# Counts


def walked(params: FmmUParams) -> dict[str, float]:
    """Counts from walking through every job as the loops do, instruction by instruction."""
    schedule = make_schedule(
        params.n, params.q, params.precision, params.ways, params.width, params.threads
    )
    width, item, targets_in_lanes = params.width, params.item_bytes, params.lanes == "targets"
    name = "sp" if params.precision == "single" else "dp"
    count = dict.fromkeys((name, "int", "l1", "l2", "dram"), 0.0)
    root = {"sqrt": 2, "estimate": 1, "newton1": 5, "newton2": 10}[params.root]
    for share in schedule.shares:
        count["l1"] += (share.end - share.begin) * item
        for t0, t1, first, last, what in share.jobs:
            both, itself = what == BOTH_WAYS, what == ITSELF
            left = -(-(t1 - t0) // width) if targets_in_lanes else t1 - t0
            sizes = []
            while left:
                sizes.append(max(size for size in (1, 2, 4) if size <= min(left, params.tile)))
                left -= sizes[-1]
            for tile, size in enumerate(sizes):
                held = size * (width if targets_in_lanes else 1)
                if not itself:
                    needs_charge = both or (targets_in_lanes and params.layout == "aos")
                    count["l2"] += (4 if needs_charge else 3) * held * item
                count["l1"] += 2 * held * item
                if not targets_in_lanes:
                    count[name] += size * (width - 1 + 1)
                for s0, s1 in share.spans[first:last]:
                    number, left = (
                        (1, s1 - s0) if targets_in_lanes else (width, -((s0 - s1) // width))
                    )
                    unroll = 1 if itself else params.unroll
                    while left:
                        taken = unroll if left >= unroll else 1
                        left -= taken
                        count["int"] += 2
                        for _ in range(taken):
                            count["int"] += 6 if both else 4
                            served = "l1" if tile or itself else "l2"
                            count[served] += (5 if both else 4) * number * item
                            count["l1"] += number * item if both else 0
                            count[name] += size * width * (3 + 1 + 4 + root + 2)
                            count["int"] += size * width if itself else 0
                            if both and targets_in_lanes:
                                count[name] += (2 * size - 1) * width + width - 1 + 1
                            elif both:
                                count[name] += 2 * size * width
    rooms = [
        -(-size // width) * width for size in schedule.leaves.sizes[schedule.leaves.tree.leaves]
    ]
    count["dram"] = sum(rooms) * item * 6.0
    return count


@pytest.mark.parametrize("given", SAMPLE, ids=lambda given: Variant(**given).name())
@pytest.mark.parametrize("threads", [1, 3])
def test_counts_are_what_the_loops_execute(given: dict[str, Any], threads: int) -> None:
    params = params_of(given, threads=threads, n=300, q=30)
    counts = fmm_u.counts(params)
    assert counts == walked(params)
    assert counts is not None
    assert set(counts) <= set(CLASS_UNITS)
    assert all(count > 0 for count in counts.values())


@pytest.mark.parametrize("given", SAMPLE[:2], ids=lambda given: Variant(**given).name())
@pytest.mark.parametrize(("n", "q"), [(N, Q), (400, 7)])
def test_interactions_are_the_pairs_of_leaves_that_touch(
    given: dict[str, Any], n: int, q: int
) -> None:
    params = params_of(given, n=n, q=q)
    sizes = build_leaves(n, q, params.precision).sizes
    pairs = sum(int(sizes[b] * sizes[a]) for b, a in touching(params)) - n
    assert count_interactions(params) == pairs
    executed = (fmm_u.counts(params) or {})["sp"]
    assert executed >= pairs / (2 if params.ways == "both" else 1) * flops(
        instructions(params.root, params.ways)
    )


# The refined peak


def test_the_refined_peak_is_below_the_bound_of_its_ports() -> None:
    params = params_of({"root": "sqrt"})
    from kernels.fmm_u.peak import PeakMeter

    meter = PeakMeter([("single", "sqrt", "one")], params.vector_bits)
    meter.measure(5)
    peak = meter.peak("single", "sqrt", "one")
    mix = instructions("sqrt", "one")
    assert set(peak.rates_per_s) == {*mix, "load"}
    assert set(peak.pressure_s) == {*mix, "arithmetic", "roots", "mix"}
    # Fewer instructions never take longer, and the whole mix no longer than its parts in turn; a
    # busy machine changes its speed from one loop to the next.
    assert max(peak.pressure_s.values()) == peak.pressure_s["mix"]
    alone_s = sum(count / peak.rates_per_s[name] for name, count in mix.items())
    assert peak.pressure_s["mix"] <= 1.5 * alone_s
    assert 0.3 * peak.bound_per_s <= peak.mix_per_s <= peak.bound_per_s
    # A tile of one loads four numbers for each vector of pairs.
    one = params_of({"root": "sqrt", "tile": 1, "unroll": 1})
    assert peak.variant_bound_per_s(one) <= peak.bound_per_s


def test_the_pressure_of_a_mix_on_known_ports() -> None:
    """Two ports that add and multiply, and 3 operations of an estimate of which 2 need the first
    of them: 3 + 1 + 3 + 3 operations on 2 ports, 5 cycles; with 1 load a cycle and tiles of 1 the
    loads' 4 cycles do not count, with half as many they do."""
    from kernels.fmm_u.peak import Peak

    cycle_s = 1e-9
    pressure_s = {"add": 1.5, "mul": 0.5, "fma": 1.5, "estimate": 2.0, "arithmetic": 3.5, "mix": 5}
    for loads_per_cycle, cycles in ((1.0, 5.0), (0.5, 8.0)):
        peak = Peak(
            {"load": loads_per_cycle / cycle_s},
            {name: cycles * cycle_s for name, cycles in pressure_s.items()},
            16,
            3e9,
        )
        assert peak.bound_per_s == pytest.approx(16 / 5e-9)
        variant = params_of({"root": "estimate", "tile": 1, "ways": "one"})
        assert peak.variant_bound_per_s(variant) == pytest.approx(16 / (cycles * cycle_s))
