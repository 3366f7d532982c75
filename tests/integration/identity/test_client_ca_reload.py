"""CAs of clients and of proxies are reloaded from their files while a shard runs."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from atoll.machinery.process import pki
from atoll.machinery.process.private_files import Pair
from harness.clients.api import eventually
from harness.servers.shard_process import ShardProcess

REVIEWS = "/clusters/root/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
PROXY = "front-proxy"
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
    flags = (
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
