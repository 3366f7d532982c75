"""Heads of requests to shards: what is kept of the last one is sent only where a new one would be the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from atoll.frontproxy.authentication import GroupFilter, ProxyAuthentication, RequestUser
from atoll.frontproxy.shard_heads import MAX_KEPT_BYTES, ShardHeads
from atoll.machinery.apiserver.authentication import assertion
from atoll.machinery.apiserver.authentication.assertion import LIFE_S, AssertionSigner, signing_key
from atoll.machinery.apiserver.authentication.request_headers import RequestHeaders
from atoll.machinery.meta.user import User
from atoll.machinery.process import pki
from atoll.machinery.wire.exchange import HeaderSet, HttpRequest, Peer
from atoll.machinery.wire.parser import WHOLE, RequestBody
from atoll.machinery.wire.proxy.streaming import StreamingExchange

PAIR = pki.make_client(pki.make_ca("proxies"), "front-proxy")
KEY = assertion.assertion_key(PAIR.x509.public_key())
ALICE, BOB = (RequestUser(User(name), verified=True) for name in ("alice", "bob"))
HEADERS = {"host": ["a"], "authorization": ["Bearer secret"], "accept": ["application/json"]}


class Site:
    """A proxy whose clock the test sets, and a client's connection."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0
        unused = cast(Any, None)
        signer = AssertionSigner(signing_key(PAIR.key), self.clock)
        self.made = 0
        #: Requests are of HTTP/1.0.
        self.old = False
        authentication = ProxyAuthentication(unused, unused, RequestHeaders(), GroupFilter(), signer)
        forwarded = authentication.forwarded

        def counted(request: HttpRequest, requester: RequestUser) -> list[tuple[str, str]]:
            self.made += 1
            return forwarded(request, requester)

        cast(Any, authentication).forwarded = counted
        self.heads = ShardHeads(authentication)
        self.shared = HeaderSet(HEADERS)

    def clock(self) -> float:
        return self.now_s

    def head(
        self,
        target: str = "/clusters/1org/api",
        authority: str = "east:1",
        user: RequestUser = ALICE,
        cluster: str = "1org",
        *,
        headers: dict[str, list[str]] | None = None,
        body: RequestBody = WHOLE,
    ) -> bytes:
        shared = self.shared if headers is None else HeaderSet(headers)
        request = HttpRequest("GET", b"/", shared.headers, b"", Peer("192.0.2.7", 5), header_set=shared)
        exchange = StreamingExchange(cast(Any, None), request, True, self.old, body)
        return self.heads.head(exchange, target, authority, user, cluster)

    def head_of_http_1_0(self) -> bytes:
        self.old = True
        try:
            return self.head()
        finally:
            self.old = False

    def claims(self, head: bytes, cluster: str = "1org") -> User:
        assert KEY is not None
        said = [line[17:] for line in head.decode().split("\r\n") if line.lower().startswith("atoll-assertion: ")]
        return assertion.AssertionVerifier(self.clock).user(said, KEY, b"", cluster)


def test_another_target_has_the_same_headers() -> None:
    site = Site()
    first, second = site.head(), site.head("/clusters/1org/api/v1?watch=1")
    assert first.startswith(b"GET /clusters/1org/api HTTP/1.1\r\nhost: east:1\r\n")
    assert second.startswith(b"GET /clusters/1org/api/v1?watch=1 HTTP/1.1\r\nhost: east:1\r\n")
    assert first.partition(b"\r\n")[2] == second.partition(b"\r\n")[2]
    assert first.endswith(b"via: 1.1 atoll-front-proxy\r\n\r\n")
    assert b"x-forwarded-for: 192.0.2.7\r\n" in first
    assert b"secret" not in first
    assert site.made == 1


def test_another_user_has_another_assertion() -> None:
    site = Site()
    assert [site.claims(site.head(user=user)).name for user in (ALICE, BOB, ALICE)] == ["alice", "bob", "alice"]


def test_another_cluster_has_another_assertion() -> None:
    site = Site()
    site.head()
    head = site.head("/clusters/2other/api", cluster="2other")
    assert site.claims(head, "2other").name == "alice"
    with pytest.raises(Exception, match="another cluster"):
        site.claims(head)


def test_another_shard_has_its_own_name() -> None:
    site = Site()
    site.head()
    assert b"host: west:2\r\n" in site.head(authority="west:2")


@pytest.mark.parametrize("step_s", [LIFE_S / 2, -2.0])
def test_an_assertion_is_renewed_whichever_way_the_clock_goes(step_s: float) -> None:
    site = Site()
    first = site.head()
    site.now_s += LIFE_S / 2 - 1
    assert site.head() == first
    site.now_s += step_s if step_s > 0 else step_s - LIFE_S / 2
    renewed = site.head()
    assert renewed != first
    assert site.claims(renewed).name == "alice"


def test_a_user_that_the_shard_authenticates_keeps_the_credential() -> None:
    site = Site()
    for _ in range(2):
        head = site.head(user=RequestUser(User("system:serviceaccount:default:bot")))
        assert b"authorization: Bearer secret\r\n" in head
        assert b"atoll-assertion" not in head
    assert site.made == 1
    assert site.claims(site.head()).name == "alice"
    assert b"secret" in site.head(user=RequestUser())


@pytest.mark.parametrize(
    "unlike",
    [
        lambda site: site.head(headers={**HEADERS, "content-length": ["0"]}),
        lambda site: site.head(body=RequestBody(None, announced=True)),
        lambda site: site.head(
            body=RequestBody(0, announced=False, upgrades=True), headers={**HEADERS, "upgrade": ["h"]}
        ),
        lambda site: site.head_of_http_1_0(),
    ],
)
def test_a_request_with_a_body_an_upgrade_or_an_old_version_shares_nothing(unlike: Callable[[Site], bytes]) -> None:
    site = Site()
    plain = site.head().partition(b"\r\n")[2]
    first = unlike(site).partition(b"\r\n")[2]
    assert first != plain
    assert unlike(site).partition(b"\r\n")[2] == first
    assert site.head().partition(b"\r\n")[2] == plain
    assert site.made == 3


def test_a_large_identity_is_not_kept_by_every_connection() -> None:
    site = Site()
    large = RequestUser(User("large", tuple(f"group-{number}" for number in range(MAX_KEPT_BYTES // 8))), verified=True)
    for _ in range(2):
        assert len(site.head(user=large)) > MAX_KEPT_BYTES
        assert site.shared.fields is None
    site.head()
    assert len(site.shared.fields.text) <= MAX_KEPT_BYTES


def test_a_target_never_ends_its_line() -> None:
    site = Site()
    for target in ("/a b", "/a\r\nx: y", "/a\n", "/a\0"):
        with pytest.raises(ValueError, match="in a target"):
            site.head(target)
