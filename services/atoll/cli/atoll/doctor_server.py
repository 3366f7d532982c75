"""Findings of `atoll doctor --kubeconfig` about a running server: what it offers, whom it lets in, how it is.

Each check asks as the user of the kubeconfig, or as somebody without a credential. What the server measures is in
`doctor_metrics`. Invariant: nothing is written; the one POST is a review, which tells its caller's name.
"""

from __future__ import annotations

import asyncio
import ssl
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from socket import create_connection
from typing import NamedTuple

from cryptography import x509

from atoll.cli.atoll.doctor_settings import certificate_end
from atoll.cli.atoll.finding import FAIL, OK, WARN, Finding
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.client.target import Entry, Target, make_target, split_workspace
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.user import AUTHENTICATED
from atoll.machinery.wire.client import ClientLimits, ClientResponse, HttpClient, Origin
from atoll.machinery.wire.exchange import Headers

#: The context that reaches a shard itself, past the proxies of a site.
DIRECT = "shard-base"
ANSWER_S = 10.0
#: Seconds by which clocks may differ; a shard refuses what a proxy says of a user from 10 s on.
CLOCK_WARN_S, CLOCK_FAIL_S = 2.0, 10.0
_SECRETS = "/api/v1/secrets"
#: Nobody without a credential gets an answer there. Health and version alone are for all.
_CLOSED = (
    *("/api", "/apis", "/openapi/v2", "/openapi/v3", "/metrics", "/debug/pprof/", "/logs", _SECRETS),
    *(f"/clusters/{cluster}{_SECRETS}" for cluster in ("root", "*", "system:admin")),
    "/services/cache/shards/*/clusters/*/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/services/apiexport/root/tenancy.kcp.io/clusters/*/apis",
)
#: Nobody gets an answer there who has a name and no rights. Discovery is for all who have a name.
_RESTRICTED = ("/metrics", "/debug/pprof/", *(path for path in _CLOSED if path.endswith(_SECRETS)))
_REFUSALS = (401, 403, 404)
_MASTERS = (("x-remote-user", "atoll-doctor"), ("x-remote-group", "system:masters"))
_POWERLESS = "atoll-doctor"
_REVIEWS = "/clusters/root/apis/authentication.k8s.io/v1/selfsubjectreviews"
#: What a client of earlier times would offer: ends of connections that can be read later, or altered.
_WEAK_CIPHERS = "ALL:!ECDHE+AESGCM:!ECDHE+CHACHA20:!ECDHE+AESCCM:!ECDHE+ARIAGCM:!DHE+AESGCM:@SECLEVEL=0"
_ALL_CIPHERS = "ALL:@SECLEVEL=0"


class Server(NamedTuple):
    """A running server as a kubeconfig names it."""

    kubeconfig: Kubeconfig
    context: str

    @property
    def admin(self) -> Target:
        """It, with the user's credential. Raises KubeconfigError."""
        return self.kubeconfig.target(self.context)

    @property
    def plain(self) -> Target:
        """It, without a credential. Raises KubeconfigError."""
        return make_target(Entry(self.context, self.kubeconfig.cluster_of(self.context), self.kubeconfig.path), None)

    def get(self, path: str, headers: Headers = ()) -> ClientResponse:
        """A GET of the user. Raises ClientError, OSError, TimeoutError."""
        return asyncio.run(_ask(self.admin, "GET", path, headers))

    def post(self, path: str, body: object, headers: Headers = ()) -> ClientResponse:
        """A POST of the user. Raises ClientError, OSError, TimeoutError."""
        return asyncio.run(_ask(self.admin, "POST", path, headers, encode_json(body)))


async def _ask(target: Target, method: str, path: str, headers: Headers, body: bytes = b"") -> ClientResponse:
    client = HttpClient(
        Origin(target.host, target.port, target.tls, target.server_name), ClientLimits(request_timeout_s=ANSWER_S)
    )
    content = (("content-type", "application/json"),) if body else ()
    try:
        below = split_workspace(target.path)[0]
        return await client.request(method, below + path, (*target.headers, *content, *headers), body)
    finally:
        await client.close()


def server_of(file: str, context: str) -> Server:
    """The server of a kubeconfig's context: unless one is named, a shard itself, else the current one. Raises
    KubeconfigError."""
    kubeconfig = Kubeconfig.load(file)
    chosen = context or (DIRECT if kubeconfig.has("context", DIRECT) else kubeconfig.current)
    found = Server(kubeconfig, chosen)
    _ = found.admin
    return found


# --- transport


def transport(server: Server) -> Iterator[Finding]:
    """Check the certificate that is served, and that neither old versions of TLS nor weak ciphers are taken."""
    target = server.plain
    if target.tls is None:
        yield Finding(FAIL, "tls", f"{target.base_url} is served without TLS")
        return
    try:
        found = _handshake(server, target.tls)
    except ssl.SSLCertVerificationError as error:
        yield Finding(FAIL, "served-certificate", f"clients refuse it: {error.verify_message}")
        return
    yield certificate_end("served-certificate", x509.load_der_x509_certificate(found))
    weak = [
        *(f"TLS {name}" for name, version in _OLD.items() if _takes(server, version, version, _ALL_CIPHERS)),
        *(["ciphers without forward secrecy or authenticated encryption"] if _takes(server, *_WEAK) else []),
    ]
    if weak:
        yield Finding(FAIL, "tls", f"it takes {', '.join(weak)}")
    else:
        yield Finding(OK, "tls", "it takes TLS 1.2 and later with strong ciphers alone")


_OLD = {"1.0": ssl.TLSVersion.TLSv1, "1.1": ssl.TLSVersion.TLSv1_1}
_WEAK = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2, _WEAK_CIPHERS)


def _takes(server: Server, least: ssl.TLSVersion, most: ssl.TLSVersion, ciphers: str) -> bool:
    """Whether the server completes a handshake with these versions and ciphers alone."""
    context = server.plain.tls
    assert context is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.set_ciphers(ciphers)
        context.minimum_version, context.maximum_version = least, most
    try:
        _handshake(server, context)
    except (ssl.SSLError, ConnectionError):
        return False
    return True


def _handshake(server: Server, context: ssl.SSLContext) -> bytes:
    """Connect with a context; return the certificate that is served, DER. Raises OSError."""
    target = server.plain
    name = target.server_name or target.host
    with (
        create_connection((target.host, target.port), ANSWER_S) as raw,
        context.wrap_socket(raw, server_hostname=name) as stream,
    ):
        return stream.getpeercert(binary_form=True) or b""


# --- who is let in


def strangers(server: Server) -> Iterator[Finding]:
    """Check that nobody gets an answer without a credential, by a name in headers, or by a token of nobody."""
    for name, headers in (
        ("anonymous", ()),
        ("forged-names", _MASTERS),
        ("unknown-tokens", (("authorization", "Bearer atoll-doctor"),)),
    ):
        codes = asyncio.run(_codes(server.plain, _CLOSED, headers))
        yield _refused(name, codes)


def powerless(server: Server) -> Iterator[Finding]:
    """Check that a user without rights sees no secret and no metric; the user of the kubeconfig stands for him."""
    headers = (("impersonate-user", _POWERLESS), ("impersonate-group", AUTHENTICATED))
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = server.post(_REVIEWS, review, headers)
    if _POWERLESS.encode() not in answer.body or answer.status != 201:
        yield Finding(WARN, "users-without-rights", "not tried: the user of the kubeconfig may not impersonate others")
        return
    target = server.admin
    yield _refused("users-without-rights", asyncio.run(_codes(target, _RESTRICTED, headers)))


def profiling(server: Server) -> Iterator[Finding]:
    """Check that nobody, not even an administrator, gets profiles."""
    code = server.get("/debug/pprof/").status
    fact = "there are no profiles" if code in _REFUSALS else f"/debug/pprof/ answers {code}"
    yield Finding(OK if code in _REFUSALS else FAIL, "profiling", fact)


async def _codes(target: Target, paths: tuple[str, ...], headers: Headers) -> dict[str, int]:
    return {path: (await _ask(target, "GET", path, headers)).status for path in paths}


def _refused(name: str, codes: dict[str, int]) -> Finding:
    answered = [f"{path} ({code})" for path, code in codes.items() if code not in _REFUSALS]
    if answered:
        return Finding(FAIL, name, f"answered at {', '.join(answered)}")
    return Finding(OK, name, f"refused at each of {len(codes)} paths")


# --- how it is


def health(server: Server) -> Iterator[Finding]:
    """Name the health checks that fail."""
    answer = server.get("/readyz?verbose")
    lines = answer.body.decode(errors="replace").splitlines()
    failed = [line[3:].split()[0] for line in lines if line.startswith("[-]")]
    if failed or answer.status != 200:
        yield Finding(FAIL, "ready", f"failing: {', '.join(failed) or f'HTTP {answer.status}'}")
    else:
        yield Finding(OK, "ready", "all health checks pass")


def times(server: Server) -> Iterator[Finding]:
    """Check that the clocks of the server and of this machine agree."""
    before = datetime.now(UTC)
    text = server.get("/version").header("date")
    if not text:
        yield Finding(WARN, "server-clock", "the server does not tell its time")
        return
    # The time has whole seconds.
    theirs, after = parsedate_to_datetime(text), datetime.now(UTC)
    behind, ahead = before - theirs - timedelta(seconds=1), theirs - after
    off_s = max(behind.total_seconds(), ahead.total_seconds(), 0.0)
    level = FAIL if off_s > CLOCK_FAIL_S else WARN if off_s > CLOCK_WARN_S else OK
    fact = f"{off_s:.0f} s from the clock of this machine" if level != OK else "as the clock of this machine"
    yield Finding(level, "server-clock", fact)
