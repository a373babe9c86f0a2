"""The rate at which traces become durable: a journal's records compared with ``numpy.save``.

    .venv/bin/python -m benchmarks.trace_store [--rounds 7] [--folder F]

The journal acknowledges each record after fdatasync; ``numpy.save`` writes the same arrays with
fsync and rename. One writer and two. A measurement has one of two shapes: eight channels of 10,000
samples, or one of 1,000; times are int64 and values float32, noisy as a real meter's. Both sides
run in turn, in processes that start before the clock does; the ratio is that of the medians of
bytes of samples per second. ``numpy.save`` has less to do: one file takes all arrays of a
measurement, and nothing is checked.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np

from benchmarks.shared import argument_parser, interleaved, seconds_of
from campaign.store.journal import JournalWriter, encode
from campaign.store.measurement import Measurement, Trace
from dvfs.setting import Setting
from tests.points import a_point

SHAPES = {"8 channels of 10,000": (8, 10_000, 150), "1 channel of 1,000": (1, 1000, 1000)}
"""Shape -> channels, samples, and measurements of a writer in a round."""


def measurements(channels: int, samples: int, count: int) -> list[Measurement]:
    """Return ``count`` measurements, repeating a few distinct ones."""
    rng = np.random.default_rng(1)
    distinct = []
    for i in range(8):
        traces = []
        for channel in range(channels):
            time_ns = np.arange(samples, dtype=np.int64) * 1_000_000
            time_ns += rng.integers(0, 20_000, samples)
            value = rng.normal(150.0, 3.0, samples).astype(np.float32)
            traces.append(Trace(f"meter:{channel}", "node", "W", time_ns, value))
        point = a_point(setting=Setting(852.0, None), repeat=i)
        distinct.append(
            Measurement(point=point, status="ok", energy_j=1.0, time_s=1.0, traces=tuple(traces))
        )
    return [distinct[i % len(distinct)] for i in range(count)]


def save(folder: Path, records: Sequence[Measurement]) -> None:
    """Write the baseline: one file per measurement, durable before it gets its name."""
    for i, measurement in enumerate(records):
        new = folder / f"{os.getpid()}-{i}.new"
        with new.open("wb") as file:
            for trace in measurement.traces:
                np.save(file, trace.time_ns)
                np.save(file, trace.value)
            file.flush()
            os.fsync(file.fileno())
        new.rename(new.with_suffix(".npy"))


def journal(folder: Path, records: Sequence[Measurement]) -> None:
    """Write our journal: one record per measurement, durable when append returns."""
    with JournalWriter(folder) as writer:
        for measurement in records:
            writer.append(encode(measurement))


WRITE = {"journal": journal, "numpy.save": save}


def work(
    side: str, folder: Path, shape: str, ready: Barrier, seconds: multiprocessing.Queue
) -> None:  # type: ignore[type-arg]
    """Run a writer's process: prepare the records, wait for all writers, then write."""
    records = measurements(*SHAPES[shape])
    write = partial(WRITE[side], folder)
    write(records[:5])
    ready.wait()
    seconds.put(seconds_of(partial(write, records)))


def throughput_mb_s(side: str, shape: str, writers: int, folder: Path) -> float:
    """Return the MB of samples that all writers together make durable per second."""
    channels, samples, count = SHAPES[shape]
    round_folder = folder / "round"
    round_folder.mkdir()
    ready = multiprocessing.Barrier(writers)
    seconds: multiprocessing.Queue[float] = multiprocessing.Queue()
    processes = [
        multiprocessing.Process(target=work, args=(side, round_folder, shape, ready, seconds))
        for _ in range(writers)
    ]
    for process in processes:
        process.start()
    slowest_s = max(seconds.get() for _ in processes)
    for process in processes:
        process.join()
    shutil.rmtree(round_folder)
    return writers * count * channels * samples * 12 / slowest_s / 1e6


def main() -> None:
    """Measure both sides in turn, and print medians and ratios."""
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="on the file system to be measured")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="trace-store-", dir=arguments.folder))
    try:
        for shape in SHAPES:
            for writers in (1, 2):
                sides = {
                    side: partial(throughput_mb_s, side, shape, writers, folder) for side in WRITE
                }
                rates = interleaved(sides, arguments.rounds)
                ours, peer = (statistics.median(rates[side]) for side in WRITE)
                print(
                    f"{shape}, {writers} writer{'s' if writers > 1 else ''}: journal "
                    f"{ours:.0f} MB/s, numpy.save {peer:.0f} MB/s, "
                    f"ratio {ours / peer:.2f} (at least 1.5)",
                    flush=True,
                )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
