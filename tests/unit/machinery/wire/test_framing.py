"""Heads for the next hop: rewritten headers, parts copied byte for byte, and refused line breaks."""

from __future__ import annotations

import pytest

from atoll.machinery.wire.exchange import HttpRequest, Peer
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.parser import RequestBody, RequestParser
from atoll.machinery.wire.proxy import framing
from harness.data.stream_all import StreamAll


def parsed(data: bytes) -> tuple[HttpRequest, RequestBody]:
    parser = RequestParser(Limits(), Peer("10.0.0.1", 1), lambda size: None, StreamAll())
    parser.feed(data)
    assert parser.refusal is None
    return parser.ready[0].request, parser.ready[0].body


def sent_on(data: bytes, *headers: tuple[str, str], target: str = "/t", old: bool = False) -> bytes:
    request, body = parsed(data)
    return framing.request_head(request, target, "shard:6444", headers, body, old=old)


POST = b"POST / HTTP/1.1\r\nHost: a\r\n"


def test_a_request_is_framed_by_what_was_understood_of_it() -> None:
    assert sent_on(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", ("accept", "*/*")) == (
        b"GET /t HTTP/1.1\r\nhost: shard:6444\r\naccept: */*\r\n" + b"\r\n"
    )
    assert sent_on(POST + b"Content-Length: 5\r\n\r\n").endswith(b"content-length: 5\r\n\r\n")
    assert sent_on(POST + b"Content-Length: 0\r\n\r\n").endswith(b"content-length: 0\r\n\r\n")
    assert sent_on(POST + b"Transfer-Encoding: Chunked\r\n\r\n").endswith(b"transfer-encoding: chunked\r\n\r\n")
    expecting = sent_on(POST + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    assert expecting.endswith(b"content-length: 5\r\nexpect: 100-continue\r\n\r\n")


def test_an_upgrade_is_asked_for_again_and_only_then() -> None:
    asked = sent_on(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Upgrade\r\nUpgrade: websocket\r\n\r\n")
    assert asked.endswith(b"upgrade: websocket\r\nconnection: upgrade\r\n\r\n")
    unlisted = sent_on(b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n")
    assert b"upgrade" not in unlisted


def test_an_old_client_is_asked_for_in_its_own_version() -> None:
    old = sent_on(b"GET / HTTP/1.0\r\n\r\n", old=True)
    assert old.startswith(b"GET /t HTTP/1.0\r\n")
    assert old.endswith(b"connection: close\r\n\r\n")


@pytest.mark.parametrize("bad", ["a\r\nX-Remote-User: admin", "a\nb", "a\rb", "a\0b"])
def test_nothing_gets_out_of_its_line(bad: str) -> None:
    for headers, target in (([("x", bad)], "/t"), ([(bad, "x")], "/t"), ([], bad)):
        with pytest.raises(ValueError, match="line break"):
            sent_on(POST + b"\r\n", *headers, target=target)
    with pytest.raises(ValueError, match="space"):
        sent_on(POST + b"\r\n", target="/a HTTP/1.1")


def test_targets_are_bytes_as_they_came_and_headers_text() -> None:
    head = sent_on(POST + b"\r\n", ("x", "é"), target="/\xe9")
    assert head.startswith(b"POST /\xe9 HTTP/1.1\r\n")
    assert "x: é\r\n".encode() in head


def test_an_answer_keeps_what_is_not_of_the_hop() -> None:
    headers = [
        (b"Content-Length", b"5"),
        (b"Connection", b"X-Own, content-length"),
        (b"X-Own", b"1"),
        (b"Keep-Alive", b"5"),
        (b"Warning", b"a"),
        (b"Warning", b"b"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Upgrade", b"h2c"),
    ]
    assert framing.response_head(b"HTTP/1.1 200 Fine", headers, b"Connection: close\r\n") == (
        b"HTTP/1.1 200 Fine\r\nContent-Length: 5\r\nWarning: a\r\nWarning: b\r\nTransfer-Encoding: chunked\r\n"
        b"Connection: close\r\n\r\n"
    )
    assert framing.response_head(b"HTTP/1.0 200 OK", [], b"").startswith(b"HTTP/1.1 200 OK\r\n")
    both = [(b"Upgrade", b"x"), (b"Connection", b"upgrade")]
    switched = framing.response_head(b"HTTP/1.1 101 S", both, b"", upgrade=True)
    assert switched == b"HTTP/1.1 101 S\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
