"""The request parser alone: requests that it accepts, requests that it refuses, and none after a refused one."""

from __future__ import annotations

import pytest

from atoll.machinery.meta.status import ApiError
from atoll.machinery.wire.exchange import HttpRequest, Peer
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.parser import BODY, HEAD, IDLE, RequestParser, bodies_full

PEER = Peer("127.0.0.1", 1)
POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def parse(data: bytes, limits: Limits | None = None) -> RequestParser:
    parser = RequestParser(limits or Limits(), PEER, lambda size: None)
    parser.feed(data)
    return parser


def only(data: bytes) -> HttpRequest:
    parser = parse(data)
    assert parser.refusal is None
    (parsed,) = parser.ready
    return parsed.request


def refused(data: bytes, limits: Limits | None = None) -> ApiError:
    parser = parse(data, limits)
    assert not parser.ready
    assert parser.refusal is not None
    assert parser.ended
    return parser.refusal


def test_a_request_keeps_its_method_raw_target_headers_and_body() -> None:
    request = only(b"PUT /a%2Fb?x=%20&x=2 HTTP/1.1\r\nHost: h:1\r\nContent-Length: 3\r\n\r\nabc")
    assert (request.method, request.target, request.body) == ("PUT", b"/a%2Fb?x=%20&x=2", b"abc")
    assert request.peer is PEER


def test_header_names_are_lower_case_and_values_stay_in_order_without_padding() -> None:
    request = only(b"GET / HTTP/1.1\r\nHost: a\r\nX-Group: one \t\r\nx-group:two\r\nEmpty:\r\n\r\n")
    assert request.headers["x-group"] == ["one", "two"]
    assert request.headers["empty"] == [""]
    assert request.header("x-group") == "one"
    assert request.header("absent", "none") == "none"


def test_header_values_are_utf8() -> None:
    assert only("GET / HTTP/1.1\r\nHost: a\r\nX: é\r\n\r\n".encode()).header("x") == "é"
    assert refused(b"GET / HTTP/1.1\r\nHost: a\r\nX: \xe9\r\n\r\n").code == 400


def test_a_chunked_body_is_joined() -> None:
    assert only(CHUNKED + b"3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").body == b"abcde"


def test_a_trailer_is_never_taken_for_a_header() -> None:
    request = only(CHUNKED + b"1\r\na\r\n0\r\nX-Remote-User: root\r\nHost: b\r\n\r\n")
    assert "x-remote-user" not in request.headers
    assert request.headers["host"] == ["a"]


@pytest.mark.parametrize(
    ("absolute", "target"),
    [(b"http://a:1/b?c=http://d/", b"/b?c=http://d/"), (b"HTTPS://a:1?c", b"/?c"), (b"https://a:1", b"/")],
)
def test_an_absolute_target_is_a_path_of_its_own_host(absolute: bytes, target: bytes) -> None:
    request = only(b"GET %b HTTP/1.1\r\nHost: other\r\n\r\n" % absolute)
    assert (request.target, request.headers["host"]) == (target, ["a:1"])


@pytest.mark.parametrize("target", [b"http://user@a/b", b"ftp://a/b"])
def test_other_targets_than_paths_are_passed_on_as_they_are(target: bytes) -> None:
    parser = parse(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % target)
    assert parser.refusal is not None or parser.ready[0].request.target == target


def test_an_asterisk_is_passed_on() -> None:
    assert only(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").target == b"*"


@pytest.mark.parametrize(
    ("head", "keeps"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", False),
    ],
)
def test_keep_alive_is_read_from_version_and_connection_header(head: bytes, keeps: bool) -> None:
    parser = parse(head)
    assert parser.ready[0].keep_alive is keeps
    assert parser.ended is not keeps


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
)
def test_what_follows_the_last_request_is_not_parsed(head: bytes) -> None:
    parser = parse(head + b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
    parser.feed(b"GET /later HTTP/1.1\r\nHost: a\r\n\r\n")
    assert [p.request.target for p in parser.ready] == [b"/"]
    assert parser.refusal is None


@pytest.mark.parametrize(
    "data",
    [
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: identity\r\nContent-Length: 1\r\n\r\nx",
        POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        POST + b"Content-Length: 1, 1\r\n\r\nx",
        POST + b"Content-Length: +1\r\n\r\nx",
        POST + b"Content-Length: -1\r\n\r\nx",
        POST + b"Content-Length: 0x1\r\n\r\nx",
        POST + b"Content-Length:\r\n\r\nx",
        POST + b"Content-Length: 99999999999999999999999\r\n\r\nx",
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        CHUNKED + b"3\r\nabcX\r\n0\r\n\r\n",
        CHUNKED + b"3\nabc\n0\n\n",
        CHUNKED + b"3;a\nabc\r\n0\r\n\r\n",
        CHUNKED + b"-3\r\nabc\r\n0\r\n\r\n",
        CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n",
        CHUNKED + b"3 \r\nabc\r\n0\r\n\r\n",
        CHUNKED + b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
        CHUNKED + b"\r\n3\r\nabc\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\x00b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHo st: a\r\n\r\n",
        b"GET / HTTP/1.1\r\n: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /a\x01 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /é HTTP/1.1\r\nHost: a\r\n\r\n".encode(),
        b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET a HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.2\r\nHost: a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"NONSENSE / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\xff" * 100,
    ],
)
def test_ambiguous_and_malformed_requests_are_refused_whole(data: bytes) -> None:
    assert refused(data).code == 400


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        (b"GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (POST + b"Expect: 200-ok\r\nContent-Length: 1\r\n\r\n", 417),
    ],
)
def test_what_is_not_served_is_refused_with_its_own_code(data: bytes, code: int) -> None:
    assert refused(data).code == code


def test_requests_before_a_refused_one_stay_ready() -> None:
    parser = parse(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\nrubbish\r\n\r\n")
    assert [p.request.target for p in parser.ready] == [b"/1", b"/2"]
    assert parser.refusal is not None


LIMITS = Limits(header_bytes=200, header_count=4, target_bytes=50, body_bytes=10)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET /" + b"a" * 50 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 200 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * 4 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: " + b"a" * 500, 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX:" + b" " * 500, 431),
        (POST + b"Content-Length: 11\r\n\r\n", 413),
        (CHUNKED + b"6\r\nabcdef\r\n6\r\nabcdef\r\n", 413),
        (CHUNKED + b"1\r\na\r\n0\r\n" + b"T: a\r\n" * 4 + b"\r\n", 431),
    ],
)
def test_each_size_has_its_limit(data: bytes, code: int) -> None:
    assert refused(data, LIMITS).code == code


def test_a_body_at_the_limit_passes_and_the_message_names_kubernetes_limit() -> None:
    assert parse(POST + b"Content-Length: 10\r\n\r\n" + b"x" * 10, LIMITS).ready[0].request.body == b"x" * 10
    error = refused(POST + b"Content-Length: 3145729\r\n\r\n")
    assert error.message == "Request entity too large: limit is 3145728"
    assert error.reason == "RequestEntityTooLarge"


def test_framing_without_content_is_refused() -> None:
    parser = RequestParser(Limits(), PEER, lambda size: None)
    parser.feed(CHUNKED)
    for _ in range(100):
        parser.feed(b"1;" + b"e" * 1000 + b"\r\na\r\n")
    assert parser.refusal is not None
    assert parser.refusal.code == 400


def test_phases_and_the_wish_for_100_continue_follow_the_bytes() -> None:
    parser = RequestParser(Limits(), PEER, lambda size: None)
    assert parser.phase == IDLE
    parser.feed(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Le")
    assert (parser.phase, parser.awaits_continue) == (HEAD, False)
    parser.feed(b"ngth: 2\r\n\r\n")
    assert (parser.phase, parser.awaits_continue) == (BODY, True)
    parser.feed(b"a")
    assert (parser.phase, parser.awaits_continue, parser.body_bytes) == (BODY, False, 1)
    parser.feed(b"b")
    assert (parser.phase, parser.awaits_continue, parser.body_bytes) == (IDLE, False, 0)
    assert parser.ready[0].request.body == b"ab"


def test_no_continue_is_wished_for_without_a_body() -> None:
    parser = parse(POST + b"Expect: 100-continue\r\nContent-Length: 0\r\n\r\n")
    assert not parser.awaits_continue
    assert len(parser.ready) == 1


def test_body_bytes_are_accounted_and_too_many_are_refused() -> None:
    taken: list[int] = []

    def account(size: int) -> None:
        taken.append(size)
        if sum(taken) > 8:
            raise bodies_full()

    parser = RequestParser(Limits(), PEER, account)
    parser.feed(POST + b"Content-Length: 20\r\n\r\n" + b"x" * 8)
    assert parser.refusal is None
    parser.feed(b"x")
    assert parser.refusal is not None
    assert (parser.refusal.code, sum(taken), parser.body_bytes) == (503, 9, 9)
