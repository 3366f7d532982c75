"""CAs of clients and of proxies, revocation lists and tokens are reloaded from their files while a shard runs."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from atoll.machinery.process import pki, revocation
from atoll.machinery.process.private_files import Pair
from harness.clients.api import eventually
from harness.servers.shard_process import ShardProcess

REVIEWS = "/clusters/root/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
PROXY = "front-proxy"
WATCH = "/clusters/root/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=600"
TOKENS = "one-token,ann,1,system:kcp:admin\ntwo-token,ben,2,system:kcp:admin\n"
ALICE = {"X-Remote-User": "alice", "X-Remote-Group": "system:kcp:admin"}


class Visitor:
    """A client with a certificate; each `ask` opens a connection unless one is passed."""

    def __init__(self, shard: ShardProcess, pair: Pair, folder: Path) -> None:
        self._shard, self._context = shard, shard.new_tls()
        file = folder / "visitor.pem"
        file.write_bytes(pair.certificate + pair.key)
        self._context.load_cert_chain(file)

    def connection(self) -> http.client.HTTPSConnection:
        parts = urlsplit(self._shard.url)
        return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=60, context=self._context)

    def ask(self, headers: dict[str, str], kept: http.client.HTTPSConnection | None = None) -> tuple[int, str]:
        """Status code and user; 0 if the handshake failed."""
        connection = kept or self.connection()
        with contextlib.ExitStack() as stack:
            if kept is None:
                stack.enter_context(contextlib.closing(connection))
            try:
                connection.request("POST", REVIEWS, REVIEW, {"Content-Type": "application/json", **headers})
                response = connection.getresponse()
                body = json.loads(response.read())
            except (ssl.SSLError, ConnectionError):
                return 0, ""
            return response.status, body["status"]["userInfo"]["username"] if response.status == 201 else ""


@pytest.fixture(scope="module")
def authorities() -> tuple[Pair, Pair]:
    return pki.make_ca("first"), pki.make_ca("second")


@pytest.fixture
def shard(request: pytest.FixtureRequest, tmp_path: Path, authorities: tuple[Pair, Pair]) -> Iterator[ShardProcess]:
    """One with so many workers as the test's parameter says."""
    for name in ("clients.pem", "proxies.pem"):
        (tmp_path / name).write_bytes(authorities[0].certificate)
    (tmp_path / "client.crl").write_bytes(revocation.added(b"", authorities[0]))
    (tmp_path / "tokens.csv").write_text(TOKENS)
    flags = (
        "--client-crl-file",
        str(tmp_path / "client.crl"),
        "--token-auth-file",
        str(tmp_path / "tokens.csv"),
        "--client-ca-file",
        str(tmp_path / "clients.pem"),
        "--workers",
        request.param,
        "--requestheader-client-ca-file",
        str(tmp_path / "proxies.pem"),
        "--requestheader-allowed-names",
        PROXY,
    )
    with ShardProcess(tmp_path, *flags) as running:
        yield running


@pytest.mark.parametrize(
    ("shard", "file", "name", "headers"),
    [
        ("0", "clients.pem", "alice", {}),
        pytest.param("0", "proxies.pem", PROXY, ALICE, marks=pytest.mark.long),
        pytest.param("2", "clients.pem", "alice", {}, marks=pytest.mark.long),
        pytest.param("2", "proxies.pem", PROXY, ALICE, marks=pytest.mark.long),
    ],
    indirect=["shard"],
)
def test_who_an_authority_vouches_for_comes_and_goes_with_the_file(
    shard: ShardProcess, tmp_path: Path, authorities: tuple[Pair, Pair], file: str, name: str, headers: dict[str, str]
) -> None:
    other = "proxies.pem" if file == "clients.pem" else "clients.pem"
    (tmp_path / other).write_bytes(pki.make_ca("of somebody else").certificate)
    first, second = authorities
    visitors = []
    for number, authority in enumerate(authorities):
        folder = tmp_path / str(number)
        folder.mkdir()
        pair = pki.make_client(authority, name, ["system:kcp:admin"])
        visitors.append(Visitor(shard, pair, folder))
    old, new = visitors

    def counts(visitor: Visitor) -> bool:
        """Send enough requests to reach each worker."""
        return all(visitor.ask(headers) == (201, "alice") for _ in range(8))

    def refused(visitor: Visitor) -> bool:
        return all(visitor.ask(headers)[0] in {0, 401} for _ in range(8))

    assert counts(old)
    assert refused(new)
    with contextlib.closing(old.connection()) as kept:
        assert old.ask(headers, kept) == (201, "alice")
        (tmp_path / file).write_bytes(first.certificate + second.certificate)
        eventually(lambda: counts(new), "the second authority counts")
        assert counts(old)
        assert old.ask(headers, kept) == (201, "alice")
        (tmp_path / file).write_bytes(second.certificate)
        eventually(lambda: refused(old), "the first authority no longer counts")
        assert counts(new)
        # New connections go to the worker with the fewest, which need not be the one of this one.
        eventually(lambda: old.ask(headers, kept)[0] == 401, "what was open before is judged too")


@pytest.mark.long
@pytest.mark.parametrize("shard", ["0", pytest.param("2", marks=pytest.mark.long)], indirect=True)
def test_a_file_that_became_unusable_leaves_what_was_in_force(
    shard: ShardProcess, tmp_path: Path, authorities: tuple[Pair, Pair]
) -> None:
    alice = Visitor(shard, pki.make_client(authorities[0], "alice"), tmp_path)
    file = tmp_path / "clients.pem"
    before = file.read_bytes()

    def reported(times: int) -> bool:
        return shard.stderr_path.read_text().count("client CAs not reloaded") >= times

    # Once for each process that listens.
    listening = max(1, int(shard.flags[shard.flags.index("--workers") + 1]))
    spoils: tuple[Callable[[], object], ...] = (lambda: file.write_text("nothing\n"), file.unlink)
    for round_, spoil in enumerate(spoils, 1):
        spoil()
        eventually(partial(reported, round_ * listening), "refusal in the log")
        assert all(alice.ask({})[0] in {201, 403} for _ in range(8))
    file.write_bytes(before + pki.make_ca("third").certificate)
    eventually(lambda: "client CAs reloaded" in shard.stderr_path.read_text(), "taken over again")
    assert alice.ask({})[0] in {201, 403}


def watched(connection: http.client.HTTPSConnection, headers: dict[str, str]) -> http.client.HTTPResponse:
    """A watch that has begun."""
    connection.request("GET", WATCH, headers=headers)
    response = connection.getresponse()
    assert response.status == 200
    return response


def is_refused(visitor: Visitor, headers: dict[str, str]) -> bool:
    """Send enough requests to reach each worker."""
    return all(visitor.ask(headers)[0] == 401 for _ in range(8))


def ended(watch: http.client.HTTPResponse) -> bool:
    """Read a watch to its end; fails after the client's time limit, while it goes on."""
    with contextlib.suppress(http.client.IncompleteRead, ConnectionError):
        while watch.read1():
            pass
    return True


@pytest.mark.long
@pytest.mark.parametrize("shard", ["0", "2"], indirect=True)
def test_a_revoked_certificate_and_a_removed_token_end_open_watches_and_count_no_more(
    shard: ShardProcess, tmp_path: Path, authorities: tuple[Pair, Pair]
) -> None:
    pairs = {name: pki.make_client(authorities[0], name, ["system:kcp:admin"]) for name in ("alice", "bob")}
    visitors = {}
    for name, pair in pairs.items():
        (tmp_path / name).mkdir()
        visitors[name] = Visitor(shard, pair, tmp_path / name)
    (tmp_path / "nobody").mkdir()
    plain = Visitor(shard, pki.make_client(authorities[0], "nobody"), tmp_path / "nobody")
    plain._context = shard.new_tls()
    callers: list[tuple[Visitor, dict[str, str]]] = [(visitors["alice"], {}), (visitors["bob"], {})]
    callers += [(plain, {"Authorization": f"Bearer {token}"}) for token in ("one-token", "two-token")]
    with contextlib.ExitStack() as stack:
        # Two of each, which are with different workers.
        connections = [
            [stack.enter_context(contextlib.closing(visitor.connection())) for _ in range(2)] for visitor, _ in callers
        ]
        watches = [
            [watched(connection, headers) for connection in pair]
            for pair, (_, headers) in zip(connections, callers, strict=True)
        ]
        (tmp_path / "client.crl").write_bytes(revocation.added(b"", authorities[0], [pairs["alice"].x509]))
        (tmp_path / "tokens.csv").write_text(TOKENS.partition("\n")[2])
        began_s = time.monotonic()
        for gone in (0, 2):
            visitor, headers = callers[gone]
            assert all(map(ended, watches[gone]))
            eventually(partial(is_refused, visitor, headers), "refused", 40)
        assert time.monotonic() - began_s < 40.0
        for kept in (1, 3):
            visitor, headers = callers[kept]
            assert visitor.ask(headers)[0] == 201
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "end"}}
        with contextlib.closing(visitors["bob"].connection()) as connection:
            path = WATCH.partition("?")[0]
            connection.request("POST", path, json.dumps(made), {"Content-Type": "application/json"})
            assert connection.getresponse().status == 201
        for watch in (*watches[1], *watches[3]):
            seen = b""
            while b'"name":"end"' not in seen:
                seen += watch.read1()
