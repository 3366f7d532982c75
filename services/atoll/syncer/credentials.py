"""Credentials: the targets of both sides, and tokens that are renewed in time.

The token of the center is renewed after 80 % of its life and put into a Secret at the edge; whatever a file says is
read again, as a mounted Secret and a cluster's own token change there. Invariants: how old a token is, is asked of
the center's clock, never of this machine's; a renewal that fails leaves the old token; a process serves one mailbox.
"""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import msgspec
import structlog

from atoll.machinery.client.client import Client
from atoll.machinery.client.in_cluster import in_cluster
from atoll.machinery.client.kubeconfig import Kubeconfig, Target
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.status import ApiError
from atoll.machinery.wire.pending_response import ClientError

log = structlog.get_logger()

SECRETS = Resource("", "v1", "secrets")
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/syncer"
INTERVAL_S = 60.0
#: How often the center is asked for its time; in between this machine counts on, asleep or not.
CLOCK_S = 3600.0
RENEWED_AT = 0.8
#: OpenSSL's X509_V_FLAG_NO_CHECK_TIME.
_NO_CHECK_TIME = 0x200000


class ServerMoved(Exception):
    """A kubeconfig names another server, or another mailbox; what was read of the one before says nothing of it."""


class _Claims(msgspec.Struct):
    exp: int = 0
    iat: int = 0
    sub: str = ""

    @property
    def path(self) -> str:
        """The path of new tokens of the account."""
        namespace, _, name = self.sub.removeprefix("system:serviceaccount:").partition(":")
        return f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"


def target(kubeconfig: str, context: str, environment: Mapping[str, str] = os.environ) -> Target:
    """Return where to connect: a context of a kubeconfig, or without one the cluster around. Raises KubeconfigError.

    The machine's clock may be wrong by a year, so the time of certificates is not looked at; authority and name are.
    """
    found = Kubeconfig.load(kubeconfig).target(context) if kubeconfig else in_cluster(environment)
    if found.tls is not None:
        found.tls.verify_flags |= _NO_CHECK_TIME
    return found


def is_due(token: str, now_s: float, share: float = RENEWED_AT) -> bool:
    """Whether a token of the center is to be renewed. One that does not say when it ends never is."""
    claims = _claims(token)
    return 0 < claims.iat < claims.exp and now_s >= claims.iat + share * (claims.exp - claims.iat)


class Tokens:
    """Keeps the tokens of both clients good; `secret` empty: that of the center is not renewed."""

    def __init__(self, center: Client, edge: Client, secret: str, namespace: str) -> None:
        self._center, self._edge = center, edge
        self._secret, self._namespace = secret, namespace
        #: What each client's files said last.
        self._read: dict[Client, str] = {}
        #: The center's time, and when it was asked for.
        self._clock = (0.0, -CLOCK_S)

    async def run(self, sources: Mapping[Client, tuple[str, str]]) -> None:
        """Look at the tokens every minute until cancelled; `sources` has kubeconfig and context of each client.

        Raises ServerMoved.
        """
        while True:
            for client, source in sources.items():
                self.reload(client, *source)
            try:
                await self.renew()
            except (ApiError, ClientError, TimeoutError, OSError) as error:
                log.warning("token not renewed", reason=str(error) or type(error).__name__)
            await asyncio.sleep(INTERVAL_S)

    async def renew(self, share: float = RENEWED_AT) -> None:
        """Renew the token of the center, if this share of its life is over, and store it."""
        token = _token(self._center.target)
        if not (self._secret and is_due(token, await self._center_time(), share)):
            return
        claims = _claims(token)
        # As long as the one that somebody chose: the link may be cut for hours.
        spec = {"expirationSeconds": claims.exp - claims.iat}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": spec}
        token = (await self._center.request("POST", claims.path, None, body))["status"]["token"]
        data = {"data": {"token": base64.b64encode(token.encode()).decode()}}
        await self._edge.patch(SECRETS, self._secret, data, self._namespace)
        _set_token(self._center, token)
        log.info("token renewed")

    async def _center_time(self) -> float:
        """Return the seconds of the center's clock."""
        now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        if now_s - self._clock[1] >= CLOCK_S:
            answer = await self._center.exchange("GET", LEASE)
            self._clock = parsedate_to_datetime(answer.header("date")).timestamp(), now_s
        time_s, asked_at_s = self._clock
        return time_s + now_s - asked_at_s

    def reload(self, client: Client, kubeconfig: str, context: str) -> None:
        """Take a token that its file has since the last look. Raises ServerMoved."""
        try:
            found = target(kubeconfig, context)
            token = _token(found)
        except Exception as error:
            log.warning("credentials not read", reason=str(error) or type(error).__name__)
            return
        if _place(found) != _place(client.target):
            raise ServerMoved(f"{kubeconfig} names {_place(found)} now, no more {_place(client.target)}")
        before = self._read.get(client)
        self._read[client] = token
        # A file that is behind a renewal of ours does not count until it changes.
        if before is not None and token != before:
            _set_token(client, token)


def _claims(token: str) -> _Claims:
    """Return what a token says of itself; nothing if it is none of a service account."""
    try:
        payload = token.split(".")[1]
        return msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=_Claims)
    except (IndexError, ValueError):
        return _Claims()


def _place(found: Target) -> str:
    return f"{found.host}:{found.port}{found.path}"


def _token(found: Target) -> str:
    return dict(found.headers).get("authorization", "").removeprefix("Bearer ")


def _set_token(client: Client, token: str) -> None:
    others = [each for each in client.target.headers if each[0] != "authorization"]
    headers = (("authorization", f"Bearer {token}"), *others)
    client.target = msgspec.structs.replace(client.target, headers=headers)
