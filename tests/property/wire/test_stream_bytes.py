"""For any order of writes, pauses, deliveries and ends, each stream of a connection carries its own bytes, in order."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from harness.servers.in_process.joined_streams import Joined, Reader, turns

STREAMS = 3


class Step(NamedTuple):
    """What one end of a stream does: write so many bytes, or a verb."""

    stream: int
    is_client: bool
    verb: str
    size: int


steps = st.builds(
    Step,
    st.integers(0, STREAMS - 1),
    st.booleans(),
    st.sampled_from(["write"] * 6 + ["pause", "resume"] * 2 + ["close", "carry"]),
    st.integers(1, 100_000),
)


class Ends:
    """The two ends of a stream, and what each has written."""

    def __init__(self, near: Reader, far: Reader) -> None:
        self.ends = near, far
        self.written = [b"", b""]
        self.closed = [False, False]

    def take(self, step: Step, filling: int) -> None:
        side = int(not step.is_client)
        end = self.ends[side]
        if step.verb == "write" and not any(self.closed):
            data = bytes([filling % 256]) * step.size
            self.written[side] += data
            end.transport.write(data)
        elif step.verb == "pause" and not end.ends:
            end.transport.pause_reading()
        elif step.verb == "resume" and not end.ends:
            end.transport.resume_reading()
        elif step.verb == "close" and not any(self.closed):
            self.closed[side] = True
            end.transport.close()


async def _run(taken: list[Step], most: int) -> None:
    joined = Joined()
    near = [joined.open() for _ in range(STREAMS)]
    await joined.carry(most)
    streams = [Ends(*pair) for pair in zip(near, joined.served, strict=True)]
    for filling, step in enumerate(taken):
        if step.verb == "carry":
            await joined.carry(most)
        else:
            streams[step.stream].take(step, filling)
        await turns()
    for stream in streams:
        for end in stream.ends:
            end.transport.resume_reading()
    await joined.carry(most)
    for stream in streams:
        for side, end in enumerate(stream.ends):
            assert end.ends == ([None] if any(stream.closed) else [])
            if not stream.closed[side]:
                # All that the other end wrote; one that closed its own reads no more.
                assert end.data == stream.written[1 - side]
            else:
                assert stream.written[1 - side].startswith(end.data)
    assert not joined.near.is_over
    assert not joined.far.is_over


@given(st.lists(steps, max_size=30), st.sampled_from([1000, 7001, 1 << 30]))
def test_each_stream_carries_its_own_bytes(taken: list[Step], most: int) -> None:
    asyncio.run(_run(taken, most))
