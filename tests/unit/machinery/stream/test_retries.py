"""When the next connection to NATS is opened after one failed."""

from __future__ import annotations

import asyncio

from atoll.machinery.process.backoff import Backoff
from atoll.machinery.stream.connection import ApiError, Reconnection, Retries, Unavailable

STEADY = Backoff(0.05, 5.0, least=1.0)


class Attempts:
    """Connections one after the other, on a clock of the test's own."""

    def __init__(self) -> None:
        self.now = 0.0
        self._retries = Retries(STEADY, lambda: self.now)

    def after(self, lasted_s: float, error: Exception, progress: bool = False) -> float:
        """The delay after one that lasted so long."""
        self._retries.begin()
        self.now += lasted_s
        return self._retries.delay_s(error, progress)


def test_a_server_that_is_away_is_tried_less_and_less_often() -> None:
    attempts = Attempts()
    delays = [attempts.after(0.001, Unavailable("refused")) for _ in range(12)]
    assert delays[:3] == [0.1, 0.2, 0.4]
    assert delays[-3:] == [5.0, 5.0, 5.0]


def test_a_cluster_without_quorum_which_takes_connections_and_refuses_work_is_tried_about_once_a_second() -> None:
    attempts = Attempts()
    delays = [attempts.after(0.02, ApiError(10008, "jetstream system temporarily unavailable")) for _ in range(12)]
    assert min(delays[-6:]) >= 0.5


def test_a_connection_that_brought_something_or_lasted_is_followed_by_the_next_at_once() -> None:
    attempts = Attempts()
    for _ in range(6):
        attempts.after(0.001, Unavailable("refused"))
    assert attempts.after(0.001, Unavailable("lost"), progress=True) == 0.1
    assert attempts.after(0.001, Unavailable("lost"), progress=True) == 0.1, "a leader that steps down each second"
    assert attempts.after(0.001, Unavailable("refused")) == 0.2
    assert attempts.after(60.0, Unavailable("lost")) == 0.1


async def test_a_reader_that_is_stopped_ends_although_cleaning_up_fails() -> None:
    retries, waiting = Reconnection("reader"), asyncio.Event()

    async def read() -> None:
        while True:
            retries.begin()
            try:
                try:
                    waiting.set()
                    await asyncio.Event().wait()
                finally:
                    raise Unavailable("CONSUMER.DELETE was not answered")
            except Unavailable as error:
                await retries.failed(error)

    task = asyncio.create_task(read())
    await waiting.wait()
    task.cancel()
    done, _ = await asyncio.wait((task,), timeout=60.0)
    assert done, "it reads on"
    assert task.cancelled()
