"""Streams of one connection: their bytes, their turns and their credit, and what ends one, or all."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.multiplex import frames
from atoll.machinery.wire.multiplex.frames import (
    CREDIT,
    DATA,
    END,
    MAX_STREAMS,
    OPEN,
    PAYLOAD_BYTES,
    RESET,
    WINDOW_BYTES,
    BrokenFrame,
    FrameReader,
)
from atoll.machinery.wire.multiplex.stream import HIGH_BYTES
from atoll.machinery.wire.peer import PEER
from harness.servers.in_process.joined_streams import Joined, Reader, turns

MIB = 1 << 20


def sent(joined: Joined) -> list[tuple[int, int, int]]:
    """Kind, stream and size of the frames that the client has sent and nobody carried over."""
    found = FrameReader().feed(b"".join(joined.near.writes))
    return [(kind, number, len(payload)) for kind, number, payload in found]


@pytest.mark.parametrize(
    "data",
    [
        frames.head(0, 1),
        frames.head(6, 1),
        frames.head(255, 1, 3),
        frames.head(DATA, 1),
        frames.head(DATA, 1, PAYLOAD_BYTES + 1),
        frames.head(CREDIT, 1, 3),
        frames.head(CREDIT, 1, 5),
        frames.head(OPEN, 1, 1),
        frames.head(END, 1, 1),
        frames.head(RESET, 1, 1),
    ],
)
def test_a_frame_that_cannot_be_is_refused_by_its_head(data: bytes) -> None:
    with pytest.raises(BrokenFrame):
        list(FrameReader().feed(data))


async def test_streams_carry_bytes_both_ways_and_end_for_both_sides() -> None:
    joined = Joined()
    first, second = joined.open(), joined.open()
    first.transport.write(b"to")
    await joined.carry()
    joined.served[0].transport.write(b"back")
    second.transport.close()
    joined.served[0].transport.close()
    await joined.carry()
    assert (joined.served[0].data, first.data) == (b"to", b"back")
    assert [each.ends for each in (first, second, *joined.served)] == [[None]] * 4
    assert not joined.client.streams
    assert not joined.server.streams


async def test_what_was_written_arrives_before_the_end() -> None:
    joined = Joined()
    near = joined.open()
    near.transport.write(bytes(MIB))
    near.transport.close()
    near.transport.write(b"dropped")
    await joined.carry()
    assert joined.served[0].data == bytes(MIB)
    assert joined.served[0].ends == near.ends == [None]


async def test_a_cut_stream_is_not_taken_for_one_that_ended() -> None:
    joined = Joined()
    near = joined.open()
    await joined.carry()
    joined.served[0].transport.write(bytes(MIB))
    joined.served[0].transport.abort()
    await joined.carry()
    assert isinstance(near.ends[0], ConnectionResetError)
    assert (len(near.ends), joined.served[0].ends) == (1, [None])


async def test_a_reader_that_stops_holds_its_own_stream_alone() -> None:
    joined = Joined()
    stopped, other = joined.open(), joined.open()
    await joined.carry()
    stopped.transport.pause_reading()
    for end in joined.served:
        end.transport.write(bytes(MIB))
        assert end.is_paused
    await joined.carry()
    assert (len(stopped.data), len(other.data)) == (0, MIB)
    assert joined.served[0].transport.get_write_buffer_size() == MIB - WINDOW_BYTES
    assert [end.is_paused for end in joined.served] == [True, False]
    stopped.transport.resume_reading()
    await joined.carry()
    assert len(stopped.data) == MIB
    assert not joined.served[0].is_paused


async def test_credit_is_no_matter_of_whole_frames() -> None:
    joined = Joined()
    near = joined.open()
    await joined.carry()
    near.transport.pause_reading()
    joined.served[0].transport.write(b"x")
    await joined.carry()
    joined.served[0].transport.write(bytes(MIB))
    await joined.carry()
    assert not joined.near.is_over
    assert joined.served[0].transport.get_write_buffer_size() == MIB + 1 - WINDOW_BYTES


async def test_what_arrives_after_a_pause_comes_behind_what_was_held() -> None:
    joined = Joined()
    near = joined.open()
    await joined.carry()
    near.transport.pause_reading()
    joined.client.data_received(frames.head(DATA, 1, 1) + b"a")
    near.transport.resume_reading()
    joined.client.data_received(frames.head(DATA, 1, 1) + b"b")
    await turns()
    assert near.data == b"ab"
    near.transport.pause_reading()
    near.transport.resume_reading()
    joined.client.data_received(frames.head(END, 1))
    await turns()
    assert near.ends == [None]


async def test_a_stream_that_is_closed_receives_nothing_and_ends_once() -> None:
    joined = Joined()
    near = joined.open()
    await joined.carry()
    joined.served[0].transport.pause_reading()
    near.transport.write(bytes(MIB))
    near.transport.close()
    joined.served[0].transport.write(bytes(MIB))
    await joined.carry()
    assert (near.data, near.ends) == (b"", [])
    near.transport.abort()
    near.transport.abort()
    await joined.carry()
    assert near.ends == [None]
    assert isinstance(joined.served[0].ends[0], ConnectionResetError)


async def test_the_end_of_a_stream_is_heard_behind_what_is_not_read_yet() -> None:
    joined = Joined()
    near = joined.open()
    await joined.carry()
    near.transport.pause_reading()
    joined.served[0].transport.write(b"last")
    joined.served[0].transport.close()
    await joined.carry()
    assert (near.data, near.ends) == (b"", [])
    near.transport.resume_reading()
    await turns()
    assert (near.data, near.ends) == (b"last", [None])


async def test_streams_take_turns() -> None:
    joined = Joined()
    long, short = joined.open(), joined.open()
    long.transport.write(bytes(WINDOW_BYTES))
    short.transport.write(b"x")
    await turns()
    assert sent(joined)[2:5] == [(DATA, 1, PAYLOAD_BYTES), (DATA, 2, 1), (DATA, 1, PAYLOAD_BYTES)]


async def test_frames_of_a_turn_leave_in_one_write() -> None:
    joined = Joined()
    ends = [joined.open() for _ in range(100)]
    for each in ends:
        each.transport.write(b"a")
        each.transport.write(b"b")
    await turns()
    assert len(joined.near.writes) == 1
    await joined.carry()
    assert [end.data for end in joined.served] == [b"ab"] * 100


async def test_data_stays_in_its_stream_while_the_socket_takes_nothing() -> None:
    joined = Joined()
    near = joined.open()
    joined.client.pause_writing()
    near.transport.write(bytes(HIGH_BYTES))
    await joined.carry()
    assert near.transport.get_write_buffer_size() == HIGH_BYTES
    assert not joined.served
    joined.client.resume_writing()
    await joined.carry()
    assert near.transport.get_write_buffer_size() == 0
    assert joined.served[0].data == bytes(HIGH_BYTES)


_PIECE = frames.head(DATA, 1, PAYLOAD_BYTES) + bytes(PAYLOAD_BYTES)


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(frames.head(OPEN, 1), id="open again"),
        pytest.param(frames.head(RESET, 1) + frames.head(OPEN, 1), id="number used again"),
        pytest.param(frames.head(OPEN, 3) + frames.head(OPEN, 2), id="numbers that fall"),
        pytest.param(frames.head(OPEN, 0), id="number 0"),
        pytest.param(frames.head(END, 0), id="end of number 0"),
        pytest.param(frames.head(DATA, 2, 1) + b"x", id="data before open"),
        pytest.param(_PIECE * (WINDOW_BYTES // PAYLOAD_BYTES) + frames.head(DATA, 1, 1) + b"x", id="beyond credit"),
        pytest.param(frames.credit(1, 1), id="credit for nothing"),
        pytest.param(frames.credit(1, (1 << 32) - 1), id="much credit for nothing"),
        pytest.param(frames.head(DATA, 1, 1) + b"x" + frames.head(END, 1) + frames.head(7, 1), id="unknown kind"),
        pytest.param(b"".join(frames.head(OPEN, 2 + each) for each in range(MAX_STREAMS)), id="too many streams"),
    ],
)
async def test_who_breaks_a_rule_loses_the_connection(attack: bytes) -> None:
    joined = Joined()
    joined.open()
    await joined.carry()
    # What a paused reader holds is not given back as credit.
    joined.served[0].transport.pause_reading()
    joined.server.data_received(attack)
    assert joined.far.is_over
    assert not joined.server.streams
    assert all(len(each.ends) == 1 for each in joined.served)
    joined.server.data_received(frames.head(OPEN, 1 << 31))
    assert not joined.server.streams


async def test_a_server_opens_no_stream() -> None:
    joined = Joined()
    near = joined.open()
    joined.client.data_received(frames.head(OPEN, 2))
    assert joined.near.is_over
    assert isinstance(near.ends[0], ConnectionResetError)


async def test_frames_that_were_on_their_way_when_a_stream_ended_are_dropped() -> None:
    joined = Joined()
    near, other = joined.open(), joined.open()
    await joined.carry()
    joined.served[0].transport.write(bytes(MIB))
    await turns()
    near.transport.abort()
    joined.served[1].transport.write(b"still here")
    await joined.carry()
    assert (near.data, other.data) == (b"", b"still here")
    assert not joined.near.is_over
    assert len(joined.client.streams) == len(joined.server.streams) == 1


async def test_ten_thousand_streams_that_are_opened_and_cut_leave_nothing() -> None:
    joined = Joined()
    joined.server.data_received(
        b"".join(frames.head(OPEN, each) + frames.head(RESET, each) for each in range(1, 10_001))
    )
    assert not joined.server.lost
    assert not joined.server.streams
    assert [len(each.ends) for each in joined.served] == [1] * 10_000


async def test_a_stream_beyond_the_connections_of_the_server_is_cut() -> None:
    joined = Joined(Limits(connections=5))
    joined.host.connections = 5
    near = joined.open()
    await joined.carry()
    assert isinstance(near.ends[0], ConnectionResetError)
    assert not joined.served
    assert not joined.near.is_over


class _Raising(Reader):
    def data_received(self, data: bytes) -> None:
        raise RuntimeError("a mistake")


async def test_a_protocol_that_raises_ends_its_own_stream() -> None:
    joined = Joined()
    broken, other = _Raising(), Reader()
    joined.client.open(broken)
    joined.client.open(other)
    await joined.carry()
    for end in joined.served:
        end.transport.write(b"x")
    await joined.carry()
    assert (broken.ends, other.data, other.ends) == ([None], b"x", [])


async def test_with_its_connection_every_stream_is_lost_once() -> None:
    joined = Joined()
    ends = [joined.open() for _ in range(3)]
    await joined.carry()
    ends[0].transport.write(bytes(MIB))
    ends[0].transport.close()
    ends[1].transport.abort()
    await turns()
    for session in (joined.client, joined.server):
        session.connection_lost(None)
    await turns()
    assert [len(each.ends) for each in (*ends, *joined.served)] == [1] * 6
    assert isinstance(ends[2].ends[0], ConnectionResetError)
    assert not joined.client.opens


async def test_a_connection_that_takes_nothing_is_cut() -> None:
    joined = Joined()
    near = joined.open()
    await turns()
    joined.client.check_stall(1000.0, 60.0)
    joined.client.check_stall(1059.0, 60.0)
    joined.near.writes.append(joined.near.writes.pop()[:-1])
    joined.client.check_stall(1061.0, 60.0)
    joined.client.check_stall(1120.0, 60.0)
    assert not joined.near.is_over
    joined.client.check_stall(1121.0, 60.0)
    assert joined.near.is_over
    assert isinstance(near.ends[0], ConnectionResetError)


async def test_a_connection_without_streams_is_closed_when_it_is_idle() -> None:
    joined = Joined(Limits(idle_timeout_s=120))
    near = joined.open()
    await joined.carry()
    now_s = asyncio.get_running_loop().time() + 1000
    joined.server.check(now_s)
    assert not joined.far.is_over
    near.transport.close()
    await joined.carry()
    joined.server.check(joined.server.idle_since_s + 119)
    assert not joined.far.is_over
    joined.server.check(joined.server.idle_since_s + 120)
    assert joined.far.is_over


async def test_a_draining_server_closes_the_connection_with_its_last_stream() -> None:
    joined = Joined()
    joined.open()
    await joined.carry()
    joined.host.draining = True
    joined.server.drain()
    assert not joined.far.is_over
    joined.served[0].transport.close()
    await turns()
    assert joined.far.is_over
    assert b"".join(joined.far.writes) == frames.head(END, 1)


async def test_a_connection_is_closed_behind_the_end_of_its_last_stream() -> None:
    joined = Joined()
    joined.open()
    await joined.carry()
    joined.server.pause_writing()
    joined.served[0].transport.close()
    joined.server.drain()
    assert joined.far.is_over
    assert b"".join(joined.far.writes) == frames.head(END, 1)


async def test_a_connection_that_is_not_accepted_has_no_streams() -> None:
    accepted = [False]
    joined = Joined(accepts=lambda _: accepted[0])
    joined.open()
    await joined.carry()
    assert joined.far.is_over
    assert not joined.served


async def test_a_connection_is_cut_once_its_client_is_not_accepted_any_more() -> None:
    accepted = [True]
    joined = Joined(accepts=lambda _: accepted[0])
    joined.open()
    await joined.carry()
    joined.server.cut_request(lambda request: False)
    assert not joined.served[0].ends
    accepted[0] = False
    joined.server.cut_request(lambda request: False)
    assert joined.far.is_over
    assert len(joined.served[0].ends) == 1


@pytest.mark.parametrize("name", ["socket", PEER])
async def test_streams_know_their_connection_but_its_socket(name: str) -> None:
    joined = Joined()
    ends = joined.open(), joined.open()
    await joined.carry()
    found = [end.transport.get_extra_info(name) for end in joined.served]
    assert found[0] is found[1]
    assert (found[0] is None) == (name == "socket")
    assert ends[0].transport.get_extra_info(name) is None


async def test_a_stream_that_is_over_is_freed_without_the_collector() -> None:
    joined = Joined()
    ends = [joined.open() for _ in range(2)]
    await joined.carry()
    ends[0].transport.close()
    joined.served[1].transport.abort()
    gc.disable()
    try:
        await joined.carry()
        freed = [weakref.ref(each) for each in (*ends, *joined.served)]
        ends.clear()
        joined.served.clear()
        assert [each() for each in freed] == [None] * 4
    finally:
        gc.enable()


async def test_a_quiet_stream_is_small() -> None:
    joined = Joined()
    near = joined.open()
    near.transport.write(bytes(WINDOW_BYTES))
    await joined.carry()
    transport = near.transport
    assert not hasattr(transport, "__dict__")
    assert transport.__sizeof__() < 256
    assert transport._unsent is None
    assert transport._held is None
