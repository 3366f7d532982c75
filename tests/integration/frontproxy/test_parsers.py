"""The proxy and the shard behind it parse bytes alike: neither forwards what the other rejects, and no request is
smuggled in another's body.
"""

from __future__ import annotations

from pathlib import Path

from atoll.machinery.wire.limits import Limits
from harness.clients.raw_http import RawClient
from harness.servers.in_process.front_proxy import BEARER, Shard, client_tls, echoing, front

#: The path of the smuggled request.
INNER = b"GET /clusters/1org/smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /clusters/1org/x HTTP/1.1\r\nHost: a\r\n" + BEARER.encode()
GET = POST.replace(b"POST", b"GET")

CASES = {
    "two-framings": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + INNER,
    "framings-other-way": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + INNER,
    "two-lengths": POST + b"Content-Length: 0\r\nContent-Length: 49\r\n\r\n" + INNER,
    "length-list": POST + b"Content-Length: 0, 49\r\n\r\n" + INNER,
    "length-sign": POST + b"Content-Length: +0\r\n\r\n" + INNER,
    "length-hex": POST + b"Content-Length: 0x0\r\n\r\n" + INNER,
    "length-empty": POST + b"Content-Length: \r\n\r\n" + INNER,
    "length-huge": POST + b"Content-Length: 99999999999999999999999\r\n\r\n" + INNER,
    "length-space-before-colon": POST + b"Content-Length : 49\r\n\r\n" + INNER,
    "length-underscore": POST + b"Content_Length: 49\r\n\r\n" + INNER,
    "coding-identity": POST + b"Transfer-Encoding: identity\r\n\r\n" + INNER,
    "coding-twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + INNER,
    "coding-list": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + INNER,
    "coding-odd": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + INNER,
    "coding-tab": POST + b"Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n" + INNER,
    "coding-vt": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n" + INNER,
    "coding-folded": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + INNER,
    "coding-old": POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + INNER,
    "connection-hides-length": POST + b"Connection: Content-Length\r\nContent-Length: 49\r\n\r\n" + INNER,
    "connection-hides-coding": POST + b"Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunk-extension": POST + b"Transfer-Encoding: chunked\r\n\r\n1;a=b\r\nx\r\n0\r\n\r\n",
    "chunk-bare-lf": POST + b"Transfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n" + INNER,
    "chunk-size-sign": POST + b"Transfer-Encoding: chunked\r\n\r\n+1\r\nx\r\n0\r\n\r\n" + INNER,
    "chunk-size-huge": POST + b"Transfer-Encoding: chunked\r\n\r\n10000000000000001\r\nx\r\n0\r\n\r\n" + INNER,
    "chunk-too-long": POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n" + INNER,
    "trailers": POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 49\r\nX-Remote-User: a\r\n\r\n",
    "bare-lf": GET.replace(b"\r\n", b"\n") + b"\n",
    "bare-cr": GET + b"X: a\rb\r\n\r\n",
    "nul": GET + b"X: a\0b\r\n\r\n",
    "folded": GET + b"X: a\r\n b\r\n\r\n",
    "name-with-space": GET + b"X Y: a\r\n\r\n",
    "no-name": GET + b": a\r\n\r\n",
    "no-colon": GET + b"nonsense\r\n\r\n",
    "space-first": b"GET /clusters/1org/x HTTP/1.1\r\n Host: a\r\n\r\n",
    "no-host": b"GET /clusters/1org/x HTTP/1.1\r\n\r\n",
    "two-hosts": GET + b"Host: b\r\n\r\n",
    "absolute-target": GET.replace(b"/clusters", b"http://elsewhere/clusters") + b"\r\n",
    "fragment": GET.replace(b"/x ", b"/x#y ") + b"\r\n",
    "space-in-target": GET.replace(b"/x ", b"/x y ") + b"\r\n",
    "high-byte-in-target": GET.replace(b"/x ", b"/x\xc3\xa9 ") + b"\r\n",
    "encoded-slash": GET.replace(b"/x ", b"/..%2f..%2fx ") + b"\r\n",
    "dots": GET.replace(b"/x ", b"/../../services/x ") + b"\r\n",
    "encoded-dots": GET.replace(b"/x ", b"/%2e%2e/x ") + b"\r\n",
    "encoded-nul": GET.replace(b"/x ", b"/%00 ") + b"\r\n",
    "version-2": GET.replace(b"HTTP/1.1", b"HTTP/2.0") + b"\r\n",
    "version-0.9": GET.replace(b"HTTP/1.1", b"HTTP/0.9") + b"\r\n",
    "preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "connect": b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
    "method-unknown": GET.replace(b"GET", b"GRAB") + b"\r\n",
    "many-headers": GET + b"X: y\r\n" * 600 + b"\r\n",
    "long-header": GET + b"X: " + b"y" * 70_000 + b"\r\n\r\n",
    "long-target": GET.replace(b"/x ", b"/" + b"x" * 40_000 + b" ") + b"\r\n",
    "header-not-utf8": GET + b"X: \xff\r\n\r\n",
    "expect-odd": POST + b"Content-Length: 1\r\nExpect: 200-ok\r\n\r\nx",
    "body-too-long": POST + b"Content-Length: 3145729\r\n\r\n",
    "body-of-get": GET + b"Content-Length: 49\r\n\r\n" + INNER,
}

#: Limits with a short linger: the bytes of a refused client are read and dropped for 50 ms.
QUICK = Limits(linger_s=0.05)
#: Requests that the proxy refuses, and a shard only after its parser. The proxy forwards no unknown path.
_REFUSED_LATER = {"encoded-slash", "dots", "encoded-dots", "encoded-nul"}


async def received(client: RawClient, shard: Shard, data: bytes) -> tuple[list[bytes], list[tuple[str, str, str]]]:
    """The statuses of the answers, and the requests that the shard parsed: method, target and body."""
    shard.seen.clear()
    end = b"GET /clusters/1org/end HTTP/1.1\r\nHost: a\r\n" + BEARER.encode() + b"Connection: close\r\n\r\n"
    await client.send(data + end)
    answer = await client.rest()
    statuses = [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]
    return statuses, [(told["method"], told["target"], told["body"]) for told in shard.seen]


async def test_proxy_and_shard_read_alike(tmp_path: Path) -> None:
    async with (
        echoing(limits=QUICK) as shard,
        front(tmp_path, {"east": shard.url, "root": shard.url}, limits=QUICK) as proxy,
    ):
        for case, data in CASES.items():
            direct = await RawClient.connect(shard.port, client_tls())
            alone = await received(direct, shard, data)
            direct.close()
            behind = await received(await proxy.connect(), shard, data)
            if case in _REFUSED_LATER:
                assert behind[0][0] in {b"400", b"403"}, case
            else:
                assert behind == alone, case
