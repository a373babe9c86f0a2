"""The intensity microbenchmarks: exact counts, checked results, every level of this machine."""

from __future__ import annotations

import threading
import time
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from dvfs.dataset import CLASS_UNITS
from kernels.host.caches import Cache, Level, memory_bytes, read_caches, working_set_bytes
from kernels.host.ranks import Team
from kernels.kernel import Kernel, KernelError, ResultError
from kernels.microbench.chains import REGISTER_STEPS, Affine, ChainParams, words_per_iteration
from kernels.microbench.chase import HOPS, ChaseParams, chase
from kernels.microbench.fma import dp_fma, sp_fma
from kernels.microbench.integer import int_mad
from kernels.microbench.load import WORDS, LoadParams, load

MIB = 1 << 20
LEVELS: tuple[Level, ...] = ("l1", "l2", "l3", "dram")
CHAINS = ((sp_fma, "sp", 4), (dp_fma, "dp", 8), (int_mad, "int", 4))
ICE_LAKE = [Cache(1, 48 << 10, 64, 2), Cache(2, 1280 << 10, 64, 2), Cache(3, 48 * MIB, 64, 64)]


def prepared(kernel: Kernel, **given: Any) -> Any:
    return kernel.prepare(kernel.params(**given), Team())


def has_level(level: str) -> bool:
    return level in {"register", "dram"} or int(level[1:]) in {c.level for c in read_caches()}


# Counts


@settings(deadline=None)
@given(
    st.sampled_from(CHAINS),
    st.sampled_from(LEVELS),
    st.integers(1, 1 << 14),
    st.integers(1, 128),
)
def test_chains_count_two_operations_a_step_and_every_byte_once(
    chain: Any, level: Any, ops: Any, threads: Any
) -> None:
    kernel, operation_class, word_bytes = chain
    params = ChainParams(level=level, ops_per_word=ops, threads=threads)
    counts = kernel.counts(params)
    words, remainder = divmod(counts[level], word_bytes)
    assert remainder == 0
    assert words % threads == 0
    assert counts == {operation_class: 2 * words * ops, level: words * word_bytes}
    assert set(counts) <= set(CLASS_UNITS)
    per_thread = int(words) // threads
    assert per_thread & (per_thread - 1) == 0, "only a power of two divides every working set"
    assert 1 << 12 <= per_thread <= 1 << 24


@pytest.mark.parametrize(("kernel", "operation_class", "_word_bytes"), CHAINS)
def test_chains_in_registers_count_no_bytes(
    kernel: Any, operation_class: Any, _word_bytes: Any
) -> None:
    assert kernel.counts(ChainParams()) == {operation_class: 2 * 3 * 2**24}


@pytest.mark.parametrize(("kernel", "operation_class", "word_bytes"), CHAINS)
def test_the_loop_counts_are_what_the_loop_executes(
    kernel: Any, operation_class: Any, word_bytes: Any
) -> None:
    """Lanes times steps, from the arrays that the loop runs on, are the counted steps."""
    run = prepared(kernel)
    part = run.parts[0]
    assert part.start.size * part._steps * 2 == run.counts()[operation_class]
    assert part._steps % 2 == 0
    run.close()
    run = prepared(kernel, level="l1", ops_per_word=5)
    part = run.parts[0]
    rows, remainder = divmod(part._words, part.start.size)
    assert remainder == 0
    assert rows % 2 == 0, "the loop's body holds two rows of words"
    assert rows * part.start.size * word_bytes == run.counts()["l1"]
    assert part.data.size % (2 * part.start.size) == 0
    run.close()


def test_load_and_chase_counts() -> None:
    for level in LEVELS:
        assert load.counts(LoadParams(level=level)) == {"int": 2**24, level: 2**27}
        line = 8 if level == "l1" else 64
        assert chase.counts(ChaseParams(level=level)) == {level: HOPS[level] * line}
    assert WORDS == 2**24


@pytest.mark.parametrize("kernel", [sp_fma, dp_fma, int_mad, load, chase])
def test_two_threads_do_twice_the_work(kernel: Any) -> None:
    given: dict[str, Any] = {"level": "l1"}
    if kernel in (sp_fma, dp_fma, int_mad):
        given["ops_per_word"] = 3
    one = kernel.counts(kernel.params(**given))
    run = prepared(kernel, **given, threads=2)
    assert run.counts() == {name: 2 * value for name, value in one.items()}
    assert len(run.parts) == 2
    run.run(2)
    run.check()
    run.close()


# Parameters


@pytest.mark.parametrize(
    ("kernel", "given"),
    [
        (sp_fma, {"level": "register", "ops_per_word": 1}),
        (dp_fma, {"level": "l1"}),
        (int_mad, {"level": "l1", "ops_per_word": 0}),
        (dp_fma, {"level": "l4", "ops_per_word": 1}),
        (dp_fma, {"threads": 0}),
        (load, {"level": "register"}),
        (load, {}),
        (chase, {"level": "l2", "hops": 3}),
    ],
)
def test_invalid_parameters_are_refused(kernel: Any, given: Any) -> None:
    with pytest.raises(ValidationError):
        kernel.params(**given)


# Results


@pytest.mark.parametrize(("kernel", "_class", "_word_bytes"), CHAINS)
@pytest.mark.parametrize("ops", [1, 2, 3, 8, 33])
@pytest.mark.parametrize("level", ["l1", "l2"])
def test_chains_are_right_and_wrong_results_are_detected(
    kernel: Any, _class: Any, _word_bytes: Any, ops: Any, level: Any
) -> None:
    run = prepared(kernel, level=level, ops_per_word=ops)
    run.run(3)
    run.check()
    part = run.parts[0]
    first = (part._next - part._words) % part.data.size
    # Change the words of the last row, which have the largest weight.
    last = first + min(part._words, part.data.size)
    part.data[last - part.start.size : last] += part.data.dtype.type(100)
    with pytest.raises(ResultError):
        run.check()
    run.run(1 if part._words >= part.data.size else part.data.size // part._words)
    run.check()
    largest = np.abs(part.end).argmax()
    part.end[largest] = -part.end[largest] - 1
    with pytest.raises(ResultError):
        run.check()
    run.close()


@pytest.mark.parametrize(("kernel", "_class", "_word_bytes"), CHAINS)
def test_missing_steps_of_chains_in_registers_are_detected(
    kernel: Any, _class: Any, _word_bytes: Any
) -> None:
    run = prepared(kernel)
    run.run(2)
    run.check()
    part = run.parts[0]
    whole = part._steps
    part._steps = whole * 98 // 100 // 2 * 2
    run.run(1)
    part._steps = whole
    with pytest.raises(ResultError):
        run.check()
    run.run(1)
    part.end[:] = np.roll(part.end, 1)
    with pytest.raises(ResultError):
        run.check()
    run.close()


def test_a_chain_that_was_not_run_is_a_wrong_result() -> None:
    run = prepared(dp_fma)
    run.parts[0].end[:] = np.nan
    with pytest.raises(ResultError):
        run.check()
    run.close()


def test_the_compiled_chain_agrees_with_single_steps() -> None:
    """A short stretch against exact 32-bit arithmetic in plain Python."""
    for ops in (1, 2, 5, 6):
        run = prepared(int_mad, level="l1", ops_per_word=ops)
        part = run.parts[0]
        part._words = 4 * part.start.size
        part._next = 0
        run.run(1)
        constants = [int(c) for c in part._arithmetic.constants]
        for lane in (0, part.start.size - 1):
            x, step = int(part.start[lane]), 0
            for row in range(4):
                for i in range(ops):
                    factor, term = constants[2 * (step % 2) : 2 * (step % 2) + 2]
                    if i == 0:
                        term = int(part.data[row * part.start.size + lane])
                    x, step = (factor * x + term) % 2**32, step + 1
            assert x == int(part.end[lane]) % 2**32
        run.check()
        run.close()


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 40))
def test_a_power_of_an_affine_map_is_the_repeated_map(factor: Any, term: Any, times: Any) -> None:
    x = 5
    for _ in range(times):
        x = (factor * x + term) % 101
    power = Affine(factor, term, 101).power(times)
    assert (power.factor * 5 + power.term) % 101 == x


def test_a_wrong_sum_is_detected() -> None:
    run = prepared(load, level="l2")
    run.run(2)
    run.check()
    part = run.parts[0]
    part.data[12] ^= 1
    with pytest.raises(ResultError):
        run.check()
    part.data[12] ^= 1
    part.end[0] += 1
    with pytest.raises(ResultError):
        run.check()
    run.close()


def test_a_chase_that_leaves_its_cycle_is_detected() -> None:
    run = prepared(chase, level="l1")
    run.run(3)
    run.check()
    part = run.parts[0]
    address = part._address
    part._address = int(part.links[(address - part._base) // 64, 0])
    with pytest.raises(ResultError, match="ended at line"):
        run.check()
    part._address = address
    # Two cycles instead of one.
    a, b = part._order[3], part._order[9]
    part.links[[a, b], 0] = part.links[[b, a], 0]
    with pytest.raises(ResultError, match="one cycle"):
        run.check()
    run.close()


def test_the_chase_visits_every_line_once_before_it_comes_back() -> None:
    run = prepared(chase, level="l1")
    part = run.parts[0]
    seen: set[int] = set()
    line = 0
    while line not in seen:
        seen.add(line)
        line = (int(part.links[line, 0]) - part._base) // 64
    assert line == 0
    assert len(seen) == len(part.links)
    run.close()


# Running


@pytest.fixture
def small_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels read a recorded tree, whose caches make a working set for dram of 64 MiB."""
    record_tree(tmp_path, last_cache="16M")
    for name in ("chains", "chase", "load"):
        module = import_module(f"kernels.microbench.{name}")
        monkeypatch.setattr(module, "read_caches", partial(read_caches, tmp_path))


@pytest.mark.parametrize("kernel", [sp_fma, dp_fma, int_mad, load, chase])
@pytest.mark.parametrize("level", ["register", *LEVELS])
def test_every_kernel_runs_at_every_level(
    kernel: Any, level: Any, request: pytest.FixtureRequest
) -> None:
    if level == "dram":
        # This machine's own working set may have 1 GiB; one kernel is run on it below.
        request.getfixturevalue("small_caches")
    given: dict[str, Any] = {"level": level}
    if kernel in (load, chase):
        if level == "register":
            return
    elif level != "register":
        given["ops_per_word"] = 4
    if not has_level(level):
        with pytest.raises(KernelError, match=level):
            prepared(kernel, **given)
        return
    run = prepared(kernel, **given)
    run.run(1)
    run.check()
    run.run(2)
    run.check()
    run.close()
    assert run.parts == []


@pytest.mark.usefixtures("small_caches")
def test_an_iteration_continues_where_the_last_one_ended() -> None:
    run = prepared(dp_fma, level="dram", ops_per_word=64)
    part = run.parts[0]
    assert 3 * words_per_iteration(64) < part.data.size == 8 * MIB
    before = part._next
    run.run(3)
    assert part._next == (before + 3 * words_per_iteration(64)) % part.data.size
    run.check()
    run.close()


def test_time_grows_with_the_iterations() -> None:
    """No iteration is optimised away."""
    cases: list[tuple[Kernel, dict[str, Any]]] = [(dp_fma, {}), (int_mad, {})]
    for kernel, params in (*cases, (load, {"level": "l1"})):
        run = prepared(kernel, **params)
        spans_s: dict[int, list[float]] = {4: [], 40: []}
        for _ in range(5):
            for iterations, spans in spans_s.items():
                begin_s = time.thread_time()  # other programs may have the processor meanwhile
                run.run(iterations)
                spans.append(time.thread_time() - begin_s)
        run.close()
        assert min(spans_s[40]) > 5 * min(spans_s[4])


def test_another_thread_advances_while_a_kernel_runs() -> None:
    run = prepared(dp_fma)
    ticks: list[float] = []
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.002)

    ticker = threading.Thread(target=tick)
    ticker.start()
    begin = time.perf_counter()
    run.run(200)
    end = time.perf_counter()
    done.set()
    ticker.join()
    run.close()
    assert sum(begin < t < end for t in ticks) > (end - begin) / 0.002 / 10


def test_this_machines_largest_working_set_is_run_and_its_every_page_written() -> None:
    run = prepared(load, level="dram")
    expected = working_set_bytes("dram", read_caches(), memory_bytes())
    assert run.parts[0].data.nbytes == expected
    words_per_page = 4096 // 8
    assert np.all(run.parts[0].data[::words_per_page] != 0)
    assert run.parts[0].data.ctypes.data % (2 * MIB) == 0
    run.run(1)
    run.check()
    run.run(2)
    run.check()
    run.close()


# Caches


def write_cache(root: Path, index: int, **entries: str) -> None:
    folder = root / f"index{index}"
    folder.mkdir(parents=True)
    for name, text in entries.items():
        (folder / name).write_text(text + "\n", encoding="ascii")


def record_tree(root: Path, last_cache: str = "48M") -> None:
    line = {"coherency_line_size": "64"}
    write_cache(root, 0, level="1", type="Data", size="48K", shared_cpu_list="0,64", **line)
    write_cache(root, 1, level="1", type="Instruction", size="32K", shared_cpu_list="0,64", **line)
    write_cache(root, 2, level="2", type="Unified", size="1280K", shared_cpu_list="0,64", **line)
    write_cache(
        root, 3, level="3", type="Unified", size=last_cache, shared_cpu_list="0-31,64-95", **line
    )


def test_caches_are_read_from_a_recorded_tree(tmp_path: Any) -> None:
    record_tree(tmp_path)
    assert read_caches(tmp_path) == ICE_LAKE


def test_a_tree_without_caches_or_sizes_is_a_failure(tmp_path: Any) -> None:
    with pytest.raises(KernelError, match="no data cache"):
        read_caches(tmp_path)
    record_tree(tmp_path)
    (tmp_path / "index2" / "size").unlink()
    with pytest.raises(KernelError, match="index2"):
        read_caches(tmp_path)


def test_working_sets_of_a_known_machine() -> None:
    memory = 256 << 30
    sizes: dict[str, int] = {level: working_set_bytes(level, ICE_LAKE, memory) for level in LEVELS}
    assert sizes == {"l1": 32 << 10, "l2": 512 << 10, "l3": 8 * MIB, "dram": 256 * MIB}


@settings(deadline=None)
@given(
    st.sampled_from(LEVELS),
    st.integers(13, 17),
    st.integers(17, 22),
    st.integers(20, 30),
    st.integers(28, 40),
    st.integers(1, 64),
    st.integers(1, 64),
)
def test_a_working_set_lies_between_its_cache_and_the_next(
    level: Any, first: Any, second: Any, third: Any, memory: Any, parts: Any, sharing: Any
) -> None:
    caches = [
        Cache(1, 1 << first, 64, 1),
        Cache(2, 3 << second, 64, 1),
        Cache(3, 5 << third, 64, sharing),
    ]
    try:
        size = working_set_bytes(level, caches, 1 << memory, parts)
    except KernelError:
        return
    assert size & (size - 1) == 0
    together = size * min(parts, sharing)
    if level == "dram":
        assert together >= 2 * caches[2].size_bytes // 2
        assert size <= 1 << 30
        assert size * parts <= (1 << memory) // 4
    elif level == "l3":
        assert 2 * caches[1].size_bytes <= size
        assert together <= caches[2].size_bytes // 2
    elif level == "l2":
        assert 2 * caches[0].size_bytes <= size <= caches[1].size_bytes // 2
    else:
        assert size <= caches[0].size_bytes * 3 // 4


def test_a_missing_level_or_too_little_memory_is_a_failure() -> None:
    two = ICE_LAKE[:2]
    with pytest.raises(KernelError, match="no l3 cache"):
        working_set_bytes("l3", two, 8 << 30)
    with pytest.raises(KernelError, match="no working set for dram"):
        working_set_bytes("dram", ICE_LAKE, 256 * MIB)
    with pytest.raises(KernelError, match="no working set for l3"):
        working_set_bytes("l3", ICE_LAKE, 256 << 30, parts=64)


def test_too_little_memory_is_a_failure() -> None:
    from kernels.host.memory import paged_array

    with pytest.raises(KernelError, match="cannot allocate"):
        paged_array(1 << 60, np.dtype(np.float64))


def test_arrays_may_lie_on_huge_pages() -> None:
    """Linux keeps shared memory on ordinary pages unless it is set up otherwise."""
    from kernels.host.memory import HUGE_PAGE_BYTES, paged_array

    array = paged_array(1 << 20, np.dtype(np.float64))
    at = array.ctypes.data
    assert at % HUGE_PAGE_BYTES == 0
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    spans = [([int(word, 16) for word in line[0].split("-")], line[1]) for line in lines]
    assert [rights for (begin, end), rights in spans if begin <= at < end] == ["rw-p"]


def test_registers_hold_three_times_two_to_the_24_steps() -> None:
    assert REGISTER_STEPS == 3 * 2**24
