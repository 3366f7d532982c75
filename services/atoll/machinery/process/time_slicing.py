"""Long computations in time slices, so that the event loop keeps running.

Request handlers use it for pure functions that may take long: rules over an object, the check of a definition, large
documents. The function calls `pause` often, or `checkpoint`, which needs no parameter. It first runs on the loop. If it
takes longer than TRY_S, it is restarted on a thread that runs only while the loop blocks for it, SLICE_S at a time;
between two slices the loop does everything that is ready. So there is no contention for the interpreter, no worker
process and no serialization, and a slice ends as precisely as the function pauses.

Garbage is not collected while computations are in slices: a collection walks all of a large document, which has no
cycles, in one step. Collections are held off for about HOLD_S at most.

Invariants: at most SLOTS computations are in slices at once, the others wait; none outlives its deadline or its caller;
the thread never runs at the same time as the loop.
"""

from __future__ import annotations

import asyncio
import gc
import math
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Final, Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
Work = Callable[[Callable[[], None]], T]

TRY_S: Final = 0.004
SLICE_S: Final = 0.008
#: What is tried on the loop ends after so many times its limit, however little the thread ran.
LONGEST_TRIES: Final = 3
SLOTS: Final = 2
#: Items of a list or mapping between two checkpoints.
PART: Final = 512
#: No computation starts in slices beside another one so long after garbage was last collected.
HOLD_S: Final = 30.0


class Stopped(BaseException):
    """Ends a computation from inside `pause`. A BaseException, so that no `except Exception` catches it."""


class _Current(threading.local):
    """The pause of the computation that runs in this thread."""

    pause: Callable[[], None] | None = None
    #: When it next has to be called, in seconds of the monotonic clock.
    due_s = math.inf
    #: It runs on the loop and may be stopped there.
    is_tried = False
    #: What is tried is stopped after so much CPU time of the thread, or at this moment.
    cpu_end_s = end_s = math.inf


_current = _Current()


def checkpoint() -> None:
    """Pause the computation that runs in this thread, if its slice is over; elsewhere do nothing.

    Walks of unbounded values call it once for each list and mapping, at a cost of 50 ns.
    """
    if time.monotonic() > _current.due_s and (pause := _current.pause) is not None:
        pause()


def in_parts(items: Collection[T]) -> Iterable[T]:
    """Return items to walk, with a checkpoint after each PART of many; a few as they are."""
    return items if len(items) <= PART else _with_checkpoints(items)


def _with_checkpoints(items: Iterable[T]) -> Iterator[T]:
    left = PART
    for item in items:
        left -= 1
        if not left:
            checkpoint()
            left = PART
        yield item


def slice_pause() -> Callable[[], None] | None:
    """Return the pause of the computation that runs in slices in this thread; elsewhere None."""
    return None if _current.is_tried else _current.pause


def require_slices() -> None:
    """Stop the computation of this thread if it is only tried on the loop: what follows takes long."""
    if _current.is_tried:
        raise Stopped


async def run_sliced(work: Work[T], deadline_s: float, *, is_long: bool = False) -> T:
    """Run `work(pause)` and return its result, without blocking the loop for longer than a slice or two.

    `work` may be called twice and must have no side effects; with `is_long` it is not tried on the loop first. Its
    exceptions are raised as they are. Raises TimeoutError if it is not done after `deadline_s` seconds, including the
    wait for a slot.
    """
    end = time.monotonic() + deadline_s
    if not is_long:
        try:
            return try_on_loop(work, TRY_S)
        except Stopped:
            await asyncio.sleep(0)
    slots = _slots()
    async with asyncio.timeout(max(end - time.monotonic(), 0.0)):
        await slots.acquire()
    try:
        return await _Sliced(work, end).run()
    finally:
        slots.release()


def try_on_loop(work: Work[T], limit_s: float) -> T:
    """Run `work(pause)` and return its result. Raises Stopped at a pause after `limit_s`, or by `require_slices`."""
    return _tried(partial(work, _stop_when_due), limit_s)


def _stop_when_due() -> None:
    """The pause of what is tried on the loop. Time in which the thread did not run counts only in the long run: on a
    busy machine most work would else be stopped for it, and done twice."""
    current, now = _current, time.monotonic()
    if now > current.due_s:
        left_s = current.cpu_end_s - time.thread_time()
        if left_s <= 0 or now > current.end_s:
            raise Stopped
        current.due_s = min(now + left_s, current.end_s)


def _tried(work: Callable[[], T], limit_s: float) -> T:
    current, now = _current, time.monotonic()
    current.pause, current.due_s, current.is_tried = _stop_when_due, now + limit_s, True
    current.cpu_end_s, current.end_s = time.thread_time() + limit_s, now + LONGEST_TRIES * limit_s
    try:
        return work()
    finally:
        current.pause, current.due_s, current.is_tried = None, math.inf, False


def within_limit(work: Callable[[], T], limit_s: float) -> T:
    """Run `work` and return its result. Raises Stopped at a checkpoint after `limit_s` on the loop.

    Part of a computation that is tried or in slices is limited as that is.
    """
    return work() if _current.pause is not None else _tried(work, limit_s)


class _Slots:
    """The computations of one loop that are in slices. Garbage is collected while there are none."""

    def __init__(self) -> None:
        self._queue = asyncio.Lock()
        self._released = asyncio.Event()
        self._used = 0
        self._hold_end = 0.0

    async def acquire(self) -> None:
        """Wait for a slot, in the order of calls."""
        async with self._queue:
            while self._used >= SLOTS or (self._used and time.monotonic() > self._hold_end):
                self._released.clear()
                await self._released.wait()
            if not self._used:
                self._hold_end = time.monotonic() + HOLD_S
                gc.disable()
            self._used += 1

    def release(self) -> None:
        self._used -= 1
        if not self._used:
            gc.enable()
            if time.monotonic() > self._hold_end:
                # Computations that wait would hold off the next collection at once.
                gc.collect(1)
        self._released.set()


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Slots] = WeakKeyDictionary()


def _slots() -> _Slots:
    loop = asyncio.get_running_loop()
    found = _of_loop.get(loop)
    if found is None:
        found = _of_loop[loop] = _Slots()
    return found


class _Sliced(Generic[T]):
    """One computation: its thread, and the semaphores that pass the turn between it and the loop."""

    def __init__(self, work: Work[T], end: float) -> None:
        self._work = work
        self._end = end
        self._slice_end = 0.0
        self._stopped = False
        self._done = False
        self._its_turn = threading.Semaphore(0)
        self._our_turn = threading.Semaphore(0)
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._compute, name="slice", daemon=True)

    async def run(self) -> T:
        """Run slices until the computation is done."""
        self._thread.start()
        try:
            while not self._turn():
                if time.monotonic() > self._end:
                    raise TimeoutError("the computation was cut at its deadline")
                await asyncio.sleep(0)
        finally:
            self._stop()
        if self._error is not None:
            try:
                raise self._error
            finally:
                # Its traceback leads to this object: a circle that would keep the document until a collection.
                self._error = None
        return self._results[0]

    def _turn(self) -> bool:
        """Run one slice while the loop's thread blocks. Return whether the computation is done."""
        self._slice_end = time.monotonic() + SLICE_S
        self._its_turn.release()
        self._our_turn.acquire()
        return self._done

    def _stop(self) -> None:
        """End the thread, which waits in a pause."""
        if not self._done:
            self._stopped = True
            self._its_turn.release()
        self._thread.join()

    def _compute(self) -> None:
        self._its_turn.acquire()
        _current.pause, _current.due_s = self._pause, self._slice_end
        try:
            if not self._stopped:
                self._results.append(self._work(self._pause))
        except Stopped:
            pass
        except BaseException as error:
            # The frames that raised it hold the document.
            traceback.clear_frames(error.__traceback__)
            self._error = error
        finally:
            self._done = True
            self._our_turn.release()

    def _pause(self) -> None:
        if time.monotonic() < self._slice_end:
            return
        self._our_turn.release()
        self._its_turn.acquire()
        _current.due_s = self._slice_end
        if self._stopped:
            raise Stopped
