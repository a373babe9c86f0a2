"""The FMM against direct sums, its tree and lists against their definitions."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.fmm import FmmInputError, evaluate, evaluate_with_gradient, prepare
from kernels.fmm.operators.disk_cache import cached
from kernels.fmm.phases import v_slabs as spectra
from kernels.fmm.tree.lists import build_lists
from kernels.fmm.tree.octree import build_octree
from kernels.host.worker_threads import WorkerThreads

SCREENING = 2.5


def points(name: str, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=(n, 3))
    direction /= np.linalg.norm(direction, axis=1)[:, None]
    match name:
        case "uniform":
            return rng.random((n, 3))
        case "plummer":
            radius = 1 / np.sqrt(rng.uniform(0.001, 0.997, n) ** (-2 / 3) - 1)
            return direction * radius[:, None]
        case "sphere":
            return direction * 3 + 100
        case "line":
            return np.outer(rng.random(n), [1.0, 0.0, 0.0])
        case "equal":
            return np.full((n, 3), 0.3)
    raise ValueError(name)


def direct(sources, charges, targets, screening=0.0):
    """Potentials and gradients by summing over all pairs."""
    apart = targets[:, None] - sources[None]
    r = np.linalg.norm(apart, axis=2)
    here = r == 0
    r[here] = 1.0
    value = np.where(here, 0.0, np.exp(-screening * r) / r / (4 * np.pi))
    slope = -(screening + 1 / r) * value / r
    return value @ charges, np.einsum("ts,tsx,s->tx", slope, apart, charges)


def error(computed, right):
    return np.linalg.norm(computed - right) / np.linalg.norm(right)


def test_strong_screening_leaves_only_near_interactions():
    """Beyond 700 decay lengths exp() is 0, and so are the potentials of distant cells."""
    sources, charges = points("uniform", 800, 2), np.ones(800)
    options = {"interaction": "yukawa", "parameter": 3000.0}
    right, _ = direct(sources, charges, sources, 3000.0)
    assert error(evaluate(sources, charges, digits=6, q=20, **options), right) <= 1e-6


@pytest.mark.parametrize("name", ["uniform", "plummer", "sphere", "line"])
@pytest.mark.parametrize("digits", [3, 4, 5, 6, 7, 8, 9, 10])
def test_the_error_is_at_most_the_one_requested(name, digits):
    n = 4000
    sources, charges = points(name, n, digits), np.random.default_rng(1).uniform(-1, 1, n)
    some = np.arange(0, n, 10)
    right, _ = direct(sources, charges, sources[some])
    assert error(evaluate(sources, charges, digits=digits, q=30)[some], right) <= 10.0**-digits


@pytest.mark.parametrize("digits", [3, 4, 5])
def test_single_precision(digits):
    sources, charges = points("plummer", 3000, 3), np.random.default_rng(2).uniform(-1, 1, 3000)
    computed = evaluate(sources, charges, digits=digits, precision="single", q=40)
    assert computed.dtype == np.float32
    assert error(computed, direct(sources, charges, sources)[0]) <= 10.0**-digits


@pytest.mark.parametrize("size", [1e-300, 1e-44, 1e36, 1e300])
def test_charges_beyond_single_precision(size):
    """Four digits are computed in single precision, and given in double precision."""
    sources, charges = points("plummer", 1000, 4), np.random.default_rng(4).uniform(-1, 1, 1000)
    right, slopes = direct(sources, charges, sources)
    potential = evaluate(sources, charges * size, digits=4, q=30)
    assert error(potential / size, right) <= 1e-4
    again, gradient = evaluate_with_gradient(sources, charges * size, digits=4, q=30)
    assert error(again / size, right) <= 1e-4
    assert error(gradient / size, slopes) <= 4e-4


@pytest.mark.parametrize(("interaction", "digits"), [("laplace", 4), ("laplace", 8), ("yukawa", 6)])
def test_separate_targets_with_gradients(interaction, digits):
    """Some targets are sources, some are outside the cube, some have no sources nearby."""
    rng = np.random.default_rng(4)
    sources, charges = points("plummer", 2000, 5), rng.normal(size=2000)
    targets = np.concatenate([sources[:50], rng.normal(size=(400, 3)), rng.random((50, 3)) * 40])
    options = {} if interaction == "laplace" else {"interaction": "yukawa", "parameter": SCREENING}
    right = direct(sources, charges, targets, SCREENING if options else 0.0)
    computed = evaluate_with_gradient(sources, charges, targets, digits, q=40, **options)
    for mine, theirs in zip(computed, right, strict=True):
        assert error(mine, theirs) <= 2 * 10.0**-digits
    alone = evaluate(sources, charges, targets, digits, q=40, **options)
    assert error(alone, right[0]) <= 10.0**-digits


def test_gradients_at_the_sources():
    sources, charges = points("uniform", 2000, 6), np.random.default_rng(6).normal(size=2000)
    computed = evaluate_with_gradient(sources, charges, digits=5, q=30, threads=2)
    for mine, theirs in zip(computed, direct(sources, charges, sources), strict=True):
        assert error(mine, theirs) <= 1e-5


@pytest.mark.parametrize("digits", [3, 6, 9, 10])
def test_points_that_coincide_and_points_that_nearly_do(digits):
    once = points("uniform", 600, 7)
    charges = np.random.default_rng(7).uniform(-1, 1, 1200)
    for apart in (0.0, 1e-12, 1e-9, 1e-6):
        sources = np.repeat(once, 2, axis=0)
        sources[1::2, 1] += apart
        right, slopes = direct(sources, charges, sources)
        assert error(evaluate(sources, charges, digits=digits, q=40), right) <= 10.0**-digits
        _, gradient = evaluate_with_gradient(sources, charges, digits=digits, q=40)
        assert error(gradient, slopes) <= 10 * 10.0**-digits


@pytest.mark.parametrize("digits", [3, 4, 6, 8])
def test_gradients_where_more_points_coincide_than_a_leaf_holds(digits):
    """Their own cell is as large as the others': in a small one the gradient would be lost."""
    sources = np.concatenate([points("uniform", 500, 8), np.full((100, 3), 0.3)])
    charges = np.random.default_rng(8).uniform(-1, 1, 600)
    for targets in (None, sources[450:550]):
        _, slopes = direct(sources, charges, sources if targets is None else targets)
        _, gradient = evaluate_with_gradient(sources, charges, targets, digits, q=40)
        assert error(gradient, slopes) <= 10 * 10.0**-digits


def test_few_points_and_equal_points():
    assert evaluate([[1.0, 2.0, 3.0]], [5.0]) == 0
    two = evaluate([[0.0, 0, 0], [0, 0, 2]], [1.0, 3.0])
    np.testing.assert_allclose(two * 4 * np.pi, [1.5, 0.5])
    assert not evaluate(points("equal", 500, 0), np.ones(500)).any()
    with_one_apart = np.append(points("equal", 500, 0), [[1.3, 0.3, 0.3]], axis=0)
    np.testing.assert_allclose(
        evaluate(with_one_apart, np.ones(501)) * 4 * np.pi, [1.0] * 500 + [500.0], rtol=1e-6
    )


def test_threads_share_the_work_and_agree():
    sources, charges = points("plummer", 5000, 8), np.random.default_rng(8).normal(size=5000)
    one, three = (evaluate(sources, charges, digits=6, q=50, threads=t) for t in (1, 3))
    assert error(three, one) < 1e-9


@pytest.mark.parametrize(("precision", "digits"), [("double", 6), ("single", 4)])
def test_slabs_of_frequencies_add_up(precision, digits, monkeypatch):
    """The sum over slabs of one kz each equals the result of all frequencies at once."""
    sources = points("uniform", 3000, 5)
    charges = np.random.default_rng(6).uniform(-1, 1, 3000)
    computed = []
    for slab_bytes in (1, 1 << 40):
        monkeypatch.setattr(spectra, "SLAB_BYTES", slab_bytes)
        computed.append(evaluate(sources, charges, digits=digits, q=30, precision=precision))
    assert error(*computed) <= (1e-14 if precision == "double" else 1e-6)


@given(st.integers(2, 14), st.integers(1, 10**6), st.sampled_from([4, 8]))
def test_slabs_cover_every_frequency_once(order, parents, itemsize):
    cuts = spectra.slabs(order, parents, itemsize)
    assert [kz for a, b in cuts for kz in range(a, b)] == list(range(order))
    widest = max(b - a for a, b in cuts)
    of_one = 2 * spectra.plane_frequencies(order) * (parents + 1) * 2 * 8 * itemsize
    assert widest == 1 or widest * of_one <= spectra.SLAB_BYTES


def test_one_preparation_serves_many_evaluations():
    sources = points("sphere", 2000, 9)
    method = prepare(sources, digits=6, q=60)
    rng = np.random.default_rng(9)
    one, two = rng.normal(size=(2, 2000))
    sums = method.evaluate(one) + method.evaluate(two)
    np.testing.assert_allclose(method.evaluate(one + two), sums, rtol=1e-9, atol=1e-9)
    assert set(method.seconds) >= {"tree", "up", "v", "x", "down", "w", "u"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sources": np.full((5, 3), np.nan)}, "sources must be finite; 15 numbers"),
        ({"sources": np.zeros((5, 2))}, r"shape \(5, 2\)"),
        ({"sources": np.zeros((0, 3))}, r"n >= 1"),
        ({"sources": "abc"}, "sources are not numbers"),
        ({"targets": [[1, 2, np.inf]]}, "targets must be finite"),
        ({"charges": np.ones(4)}, r"shape \(4,\); 5 sources need \(5,\)"),
        ({"charges": [1, 2, np.nan, 4, 5]}, "charges must be finite"),
        ({"q": 0}, "q is 0"),
        ({"q": -3}, "q is -3"),
        ({"digits": 11}, "cannot be computed in double precision; 3 to 10 can"),
        ({"digits": 2}, "cannot be computed in double precision; 3 to 10 can"),
        ({"digits": 6, "precision": "single"}, "3 to 5 can"),
        ({"precision": "half"}, "single, double"),
        ({"order": 40}, "order 40 cannot be computed"),
        ({"threads": 0}, "threads is 0"),
        ({"interaction": "stokes"}, "laplace, yukawa"),
        ({"interaction": "yukawa"}, "needs a parameter"),
        ({"parameter": 1.0}, "takes no parameter"),
    ],
)
def test_bad_input_gives_one_clear_error(change, says):
    given = {"sources": np.random.default_rng(0).random((5, 3)), "charges": np.ones(5)} | change
    with pytest.raises(FmmInputError, match=says):
        evaluate(**given)


def test_a_damaged_cache_file_is_replaced(tmp_path, monkeypatch):
    """Truncated files, and one with a flipped bit, are computed again; no partial file remains."""
    monkeypatch.setenv("CAMPAIGN_FMM_CACHE", str(tmp_path))
    computed = []

    def compute():
        computed.append(1)
        return {"first": np.arange(5000.0), "second": np.ones((3, 2), np.float32)}

    for _ in range(2):
        cached("laplace-6-float64", compute)
    assert len(computed) == 1
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for i, bad in enumerate([whole[:1000], whole[:-30], b"", bytes(flipped)]):
        file.write_bytes(bad)
        again = cached("laplace-6-float64", compute)
        assert len(computed) == 2 + i
        np.testing.assert_array_equal(again["first"], np.arange(5000.0))
        assert file.read_bytes() == whole
        assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setenv("CAMPAIGN_FMM_CACHE", "/proc/nowhere")
    assert set(cached("laplace-6-float64", compute)) == {"first", "second"}


def touching(tree, a, b):
    """Whether two nodes' closed cells have a point in common."""
    finest = max(tree.level[a], tree.level[b])
    low = [tree.anchor[n].astype(int) << int(finest - tree.level[n]) for n in (a, b)]
    high = [(tree.anchor[n].astype(int) + 1) << int(finest - tree.level[n]) for n in (a, b)]
    return bool((low[0] <= high[1]).all() and (low[1] <= high[0]).all())


def family(tree, node):
    """A node and all its ancestors."""
    ancestors = [node]
    while tree.parent[ancestors[-1]] >= 0:
        ancestors.append(tree.parent[ancestors[-1]])
    return ancestors


clouds = st.tuples(
    st.sampled_from(["uniform", "plummer", "sphere", "line"]),
    st.integers(1, 90),
    st.integers(1, 20),
    st.integers(0, 1000),
)


@settings(max_examples=40, deadline=None)
@given(clouds)
def test_the_tree_holds_every_point_once_in_small_leaves(cloud):
    name, n, q, seed = cloud
    sources = points(name, n, seed)
    tree = build_octree(sources, None, q)
    leaves = tree.leaves
    assert sorted(tree.order.tolist()) == list(range(n))
    spans = sorted((int(tree.begin[leaf]), int(tree.end[leaf])) for leaf in leaves)
    assert [a for a, _ in spans] == [0] + [b for _, b in spans[:-1]]
    assert spans[-1][1] == n
    assert all(0 < b - a <= q for a, b in spans)
    for leaf in leaves:
        half = tree.size * 0.5 ** (tree.level[leaf] + 1)
        mine = sources[tree.order[tree.begin[leaf] : tree.end[leaf]]]
        assert (np.abs(mine - tree.centres()[leaf]) <= half * (1 + 1e-9)).all()
    inner = np.flatnonzero(tree.first_child >= 0)
    assert (tree.end[inner] - tree.begin[inner] > q).all()


@settings(max_examples=20, deadline=None)
@given(clouds, st.integers(0, 30))
def test_every_pair_of_leaves_meets_exactly_once(cloud, few):
    """Directly, or through V, W or X of one pair of their ancestors, by the lists' definitions."""
    name, n, q, seed = cloud
    tree = build_octree(points(name, n, seed), None, q)
    lists = build_lists(tree, few)
    near = {(int(a), int(b)) for a, b in lists.near}
    assert len(near) == len(lists.near)
    near |= {(b, a) for a, b in near}
    w = {(int(a), int(b)) for a, b in lists.far}
    for leaf, node in w:
        assert not touching(tree, leaf, node)
        assert touching(tree, leaf, tree.parent[node])
        assert tree.level[node] > tree.level[leaf]
    leaves = [int(leaf) for leaf in tree.leaves]
    for a in leaves:
        for b in leaves:
            ways = int((a, b) in near)
            ways += sum((a, of) in w for of in family(tree, b))
            ways += sum((b, of) in w for of in family(tree, a))
            for of_a in family(tree, a):
                for of_b in family(tree, b):
                    if tree.level[of_a] == tree.level[of_b] > 0 and not touching(tree, of_a, of_b):
                        ways += touching(tree, tree.parent[of_a], tree.parent[of_b])
            assert ways == 1, (a, b)
            if touching(tree, a, b):
                assert (a, b) in near


def test_an_error_on_another_thread_is_raised_and_the_threads_go_on():
    workers = WorkerThreads(3)
    caller, seen = threading.get_ident(), set()

    def fails_elsewhere() -> None:
        seen.add(threading.get_ident())
        time.sleep(0.05)
        if threading.get_ident() != caller:
            raise ValueError("elsewhere")

    with workers.awake():
        time.sleep(0.1)  # until the other threads are awake
        with pytest.raises(ValueError, match="elsewhere"):
            workers.run(fails_elsewhere)
        assert len(seen) == 3
        done = []
        workers.run(lambda: done.append(threading.get_ident()))
    assert caller in done
    with workers.awake():
        workers.run(lambda: done.append(0))
    assert 0 in done
