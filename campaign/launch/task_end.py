"""How a task that Dask calls finished has ended: with a result, an error, or neither."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from distributed import Future

RESULT_S = 1.0


@dataclass(frozen=True)
class TaskEnd:
    """A task's result, or its error; neither where the scheduler dropped the task."""

    result: Any = None
    error: BaseException | None = None


def task_end(future: Future[Any], timeout_s: float = RESULT_S) -> TaskEnd | None:
    """How the task of ``future`` has ended; None where its result does not come in time.

    The worker that has the result may have died: then Dask runs the task again. The scheduler may
    drop the task while its result is waited for. ``Future.result`` with a time limit then fails now
    and then with an ``UnboundLocalError``: ``distributed.utils.sync`` does not catch the
    ``asyncio.CancelledError`` of what it awaits. So the result is awaited here.

    A request that did not get its result in time is not given up: the next call goes on waiting
    for it. Dask joins the requests of a client, and where one is cancelled before it was sent, all
    later ones wait for it and never get a result.
    """
    end: TaskEnd | None = future.client.sync(_end, future, timeout_s)
    return end


_AWAITED: dict[int, asyncio.Future[Any]] = {}
"""By the identity of their futures, the results that are being waited for: each keeps its future
alive, so that no other has the same identity."""


async def _end(future: Future[Any], timeout_s: float) -> TaskEnd | None:
    taken = _AWAITED.get(id(future))
    if taken is None:
        taken = _AWAITED[id(future)] = asyncio.ensure_future(future.result())
    await asyncio.wait({taken}, timeout=timeout_s)
    if not taken.done():
        return None
    del _AWAITED[id(future)]
    error = None if taken.cancelled() else taken.exception()
    if not taken.cancelled() and error is None:
        return TaskEnd(taken.result())
    if future.cancelled():
        return TaskEnd()
    return None if error is None else TaskEnd(error=error)
