"""Requests with known headers are parsed as on a new connection, whatever came before, and however they are cut."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from atoll.machinery.wire.exchange import HttpRequest, Peer
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.parser import RequestParser
from harness.data.stream_all import StreamAll

PEER = Peer("127.0.0.1", 1)
LIMITS = Limits(header_bytes=160, header_count=6, target_bytes=40, body_bytes=64)

lines = st.sampled_from(
    [
        "Host: a",
        "host: a",
        "Content-Length: ",
        "Content-Length: 3",
        "content-length: 3",
        "Content-Length: 12",
        "Content-Length: 03",
        "CONTENT-LENGTH: 3",
        "X: Content-Length: 3",
        "X: b",
        "X: " + "b" * 60,
        "Accept: */*",
        "Connection: close",
        "Connection: keep-alive",
        "Expect: 100-continue",
        "Transfer-Encoding: chunked",
        "Upgrade: websocket",
        " folded",
        "X:b\nY: c",
    ]
)
targets = st.sampled_from(
    ["/", "/a", "/b?c=d", "//", "/%2F", "/a#b", "*", "a", "http://h/p", "/" + "a" * 39, "/a" * 21]
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    method = draw(st.sampled_from(["GET", "GET", "POST", "PUT", "HEAD", "CONNECT"]))
    version = draw(st.sampled_from(["1.1"] * 6 + ["1.0"]))
    headers = ["Host: a", *draw(st.lists(lines, max_size=3))]
    body = draw(st.sampled_from(["", "abc", "abcabcabcabc", "\r\n", "abc\r\n", "a\r\n\r\n", "GET / HTTP/1.1\r\n\r\n"]))
    head = "".join(f"{line}\r\n" for line in (f"{method} {draw(targets)} HTTP/{version}", *headers, ""))
    return (head + body).encode()


def outcome(pieces: list[bytes], *, streaming: bool) -> tuple[object, ...]:
    held = 0

    def account(size: int) -> None:
        nonlocal held
        held += size

    parser = RequestParser(LIMITS, PEER, account, StreamAll() if streaming else None)
    for piece in pieces:
        parser.feed(piece)
    found = [
        (replace(each.request, header_set=None), each.keep_alive, each.old, each.body.ended, b"".join(each.body.parts))
        for each in parser.ready
    ]
    refused = parser.refusal is not None
    return found, refused, parser.ended, refused or (parser.phase, parser.awaits_continue, held, parser.held_bytes())


@given(st.lists(requests(), min_size=1, max_size=3), st.booleans())
@example([b"POST / HTTP/1.1\r\nHost: a\r\nX: Content-Length: 3\r\n\r\n"] * 2, False)
@example([b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (n, b"a" * n) for n in (3, 12, 65)], False)
def test_requests_of_one_connection_are_parsed_alike_whole_and_in_bytes(sent: list[bytes], streaming: bool) -> None:
    again = [*sent, *sent]
    data = b"".join(again)
    assert outcome(again, streaming=streaming) == outcome(
        [data[at : at + 1] for at in range(len(data))], streaming=streaming
    )


def parsed(*sent: bytes) -> list[HttpRequest]:
    parser = RequestParser(Limits(), PEER, lambda size: None)
    for data in sent:
        parser.feed(data)
    assert parser.refusal is None
    return [each.request for each in parser.ready]


def test_requests_with_the_same_headers_share_them() -> None:
    first, second = parsed(*(b"GET /%d HTTP/1.1\r\nHost: a\r\nX: b\r\n\r\n" % number for number in range(2)))
    assert (first.target, second.target) == (b"/0", b"/1")
    assert first.header_set is second.header_set
    assert first.headers is second.headers


def test_content_length_is_not_shared() -> None:
    sent = (b"PUT / HTTP/1.1\r\nContent-Length: %d\r\nHost: a\r\n\r\n%b" % (len(body), body) for body in (b"a", b"bcd"))
    first, second = parsed(*sent)
    assert (first.body, second.body) == (b"a", b"bcd")
    assert (first.header("content-length"), second.header("content-length")) == ("1", "3")
    assert first.header_set is second.header_set


def test_another_value_of_a_header_is_another_set() -> None:
    first, second = parsed(*(b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %d\r\n\r\n" % at for at in range(2)))
    assert second.header("authorization") == "Bearer 1"
    assert first.header_set is not second.header_set
