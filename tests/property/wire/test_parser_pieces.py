"""For any split of the bytes, the parser yields the same requests and the error after the same one.

A request that breaks two rules may be refused for either: a header is reported when the next one begins.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from atoll.machinery.wire.exchange import Peer
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.parser import RequestParser

PEER = Peer("127.0.0.1", 1)
LIMITS = Limits(header_bytes=400, header_count=8, target_bytes=64, body_bytes=64)

token = st.text("abcXYZ019-_", min_size=1, max_size=8)
value = st.text("abc XYZ019;=,é", max_size=20)
body = st.binary(max_size=80)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    method = draw(st.sampled_from(["GET", "POST", "PUT", "HEAD", "DELETE", "PATCH", "BREW"]))
    target = "/" + draw(st.text("ab/%20?=&", max_size=70))
    version = draw(st.sampled_from(["1.1"] * 8 + ["1.0", "2.0"]))
    fields = [("Host", "a")] * draw(st.sampled_from([1] * 8 + [0, 2]))
    fields += draw(st.lists(st.tuples(token, value), max_size=6))
    fields += draw(st.sampled_from([[]] * 4 + [[("Connection", "close")], [("Expect", "100-continue")]]))
    content = draw(body)
    framing = draw(st.sampled_from(["length", "chunked", "none", "both", "short"]))
    if framing in ("length", "both"):
        fields.append(("Content-Length", str(len(content))))
    if framing == "short":
        fields.append(("Content-Length", str(max(0, len(content) - 3))))
    if framing in ("chunked", "both"):
        fields.append(("Transfer-Encoding", "chunked"))
        cut = draw(st.integers(1, 40))
        pieces = [content[at : at + cut] for at in range(0, len(content), cut)]
        content = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    head = f"{method} {target} HTTP/{version}\r\n" + "".join(f"{n}: {v}\r\n" for n, v in fields) + "\r\n"
    return head.encode() + content


@st.composite
def mangled(draw: st.DrawFn) -> bytes:
    """Requests one after another, now and then with a byte changed, lost or added."""
    data = bytearray(b"".join(draw(st.lists(requests(), min_size=1, max_size=3))))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(data) - 1))
        data[at : at + draw(st.integers(0, 1))] = draw(st.binary(max_size=1))
        if not data:
            break
    return bytes(data)


def outcome(pieces: list[bytes]) -> tuple[object, ...]:
    held = 0

    def account(size: int) -> None:
        nonlocal held
        held += size

    parser = RequestParser(LIMITS, PEER, account)
    for piece in pieces:
        parser.feed(piece)
    if parser.refusal is not None:
        return list(parser.ready), "refused", parser.ended
    return list(parser.ready), parser.ended, parser.phase, parser.awaits_continue, held


@given(mangled())
def test_byte_by_byte_is_the_same_as_at_once(data: bytes) -> None:
    assert outcome([data]) == outcome([data[at : at + 1] for at in range(len(data))])


@given(mangled(), st.lists(st.integers(0, 600), max_size=8))
def test_any_cut_is_the_same_as_at_once(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    assert outcome([data]) == outcome([data[start:end] for start, end in pairwise(edges)])


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    outcome([data, data])
