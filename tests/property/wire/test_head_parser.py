"""The parser that yields requests before their bodies yields the same requests, bodies and errors as the other one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.machinery.wire.exchange import Peer
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.parser import RequestParser
from harness.data.stream_all import StreamAll
from harness.seeds import drawn

LIMITS = Limits(header_bytes=300, target_bytes=60, body_bytes=64, header_count=8)
PEER = Peer("10.0.0.1", 1)

_bodies = st.binary(max_size=80).map(lambda body: b"Content-Length: %d\r\n\r\n" % len(body) + body)
_chunks = st.lists(st.binary(min_size=1, max_size=30), max_size=4).map(
    lambda parts: (
        b"Transfer-Encoding: chunked\r\n\r\n"
        + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
        + b"0\r\nX-Late: 1\r\n\r\n"
    )
)
_odd = st.sampled_from(
    [
        b"\r\n",
        b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Connection: close\r\n\r\n",
        b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\nab",
        b"Connection: Upgrade\r\nUpgrade: x\r\n\r\nbytes",
        b"Content-Length: 70\r\n\r\n",
        b"X: " + b"y" * 400 + b"\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"Host: b\r\n\r\n",
        b"Connection: Upgrade\r\nUpgrade: x\r\nContent-Length: 2\r\n\r\nabrest",
    ]
)
_lines = (b"POST /a HTTP/1.1\r\nHost: a\r\n", b"GET /b HTTP/1.1\r\nHost: a\r\n", b"PUT /c HTTP/1.0\r\n")
_heads = st.sampled_from(_lines)
_requests = st.tuples(_heads, st.one_of(_bodies, _chunks, _odd)).map(b"".join)


@settings(max_examples=drawn(300), deadline=None)
@given(st.lists(_requests, min_size=1, max_size=4).map(b"".join), st.data())
def test_bodies_that_come_later_are_the_same_bodies(data: bytes, cut: st.DataObject) -> None:
    whole = RequestParser(LIMITS, PEER, lambda size: None)
    whole.feed(data)
    held = [0]

    def account(size: int) -> None:
        held[0] += size

    heads = RequestParser(LIMITS, PEER, account, StreamAll())
    at = 0
    while at < len(data):
        step = cut.draw(st.integers(1, len(data) - at))
        heads.feed(data[at : at + step])
        at += step
    requests = [(parsed.request.method, parsed.request.target, parsed.request.headers) for parsed in heads.ready]
    complete = [parsed.body for parsed in heads.ready if parsed.body.ended]
    expected = [(parsed.request.method, parsed.request.target, parsed.request.headers) for parsed in whole.ready]
    assert requests[: len(complete)] == expected
    assert [b"".join(inflow.parts) for inflow in complete] == [parsed.request.body for parsed in whole.ready]
    assert [parsed.keep_alive for parsed in heads.ready][: len(complete)] == [p.keep_alive for p in whole.ready]
    assert (heads.refusal is None) == (whole.refusal is None)
    if heads.refusal is not None and whole.refusal is not None:
        assert heads.refusal.code == whole.refusal.code
    assert len(requests) - len(complete) <= 1, "one body at a time"
    assert held[0] == sum(parsed.body.held_bytes for parsed in heads.ready)
