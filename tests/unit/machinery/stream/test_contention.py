"""Two processes that read by one consumer are told once that lasts: at a restart both run for a moment."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from atoll.machinery.stream import connection
from atoll.machinery.stream.connection import ConsumerTaken, Reconnection, Unavailable
from atoll.machinery.stream.contention import CALM_S, PATIENCE_S, Contention
from harness.jumping_loop import JumpingLoop


class Clock:
    """Seconds by hand."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("pauses_s", "lasts"),
    [
        ((), False),
        ((0.1, 0.2, 0.4, 0.8), False),
        ((4.0, 4.0, 4.0), True),
        ((CALM_S - 1.0,), True),
        ((CALM_S + 1.0, CALM_S + 1.0), False),
        ((PATIENCE_S - 1.0, CALM_S + 1.0, PATIENCE_S - 1.0), False),
    ],
)
def test_it_is_told_where_it_goes_on_for_longer_than_a_restart(pauses_s: tuple[float, ...], lasts: bool) -> None:
    clock = Clock()
    contention = Contention(clock)
    contention.note()
    for pause_s in pauses_s:
        clock.now += pause_s
        contention.note()
    assert contention.lasts == lasts
    clock.now += CALM_S + 1.0
    assert not contention.lasts, "it has ended"


@pytest.mark.parametrize(("error", "is_said"), [(ConsumerTaken, True), (Unavailable, False)])
def test_a_reader_says_so_in_its_log(error: type[Unavailable], is_said: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = JumpingLoop()

    async def contend() -> bool:
        retries = Reconnection("atoll consumer follow-proxy")
        monkeypatch.setattr(retries, "_contention", Contention(loop.time))
        for _ in range(12):
            retries.begin()
            await retries.failed(error("gone"))
        return retries.is_contended

    monkeypatch.setattr(connection, "log", connection.log.bind())
    with capture_logs() as logs, asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert runner.run(contend()) == is_said
    said = [each for each in logs if each["log_level"] == "error"]
    assert bool(said) == is_said
    assert {(each["reader"], each["remedy"]) for each in said} <= {
        ("atoll consumer follow-proxy", "give each process a NATS user of its own")
    }
