"""The subscription's side of HTTP: making it, asking how it is, tokens for NATS, and lists of its objects.

`subscriber` calls it. Each question reads the credential anew, so that a token that is renewed in its file is taken.
Invariant: nothing is asked of the API but what the subscriber may read anyway.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from atoll.events.subscription_options import Options
from atoll.machinery.client.client import Client
from atoll.machinery.client.discovery import served_kinds
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.client.target import Entry, KubeconfigError, Target, make_target
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.stream.tenants.subscriptions import Subscription, SubscriptionRequest, Token
from atoll.machinery.wire.pending_response import BadResponse

SERVICE = "events"
_PAGE = "500"

Answer = TypeVar("Answer", Subscription, Token)


class Listed(msgspec.Struct, frozen=True):
    """The objects of one resource at a revision: the revision of each, and its JSON where it is wanted."""

    revision: int
    objects: dict[ObjectKey, tuple[int, bytes]]


class SubscriptionApi:
    """The service `events` of one workspace. Raises ValueError for a credential that cannot be used."""

    def __init__(self, url: str, cluster: str, options: Options) -> None:
        self._url, self._options = url, options
        try:
            target = self._target()
        except KubeconfigError as error:
            raise ValueError(str(error)) from error
        self._cluster = cluster or target.workspace
        if not self._cluster:
            raise ValueError("no workspace is named")

    async def subscribe(self, request: SubscriptionRequest) -> Subscription:
        """Make the subscription, or return the one that is there. Raises ApiError, ClientError, TimeoutError."""
        body = msgspec.to_builtins(request)
        return await self._answer("POST", "/subscriptions", Subscription, body)

    async def get(self, name: str) -> Subscription:
        """The subscription as it is now. Raises as `subscribe`."""
        return await self._answer("GET", f"/subscriptions/{name}", Subscription)

    async def token(self) -> Token:
        """A token for NATS. Raises as `subscribe`."""
        return await self._answer("POST", "/token", Token, {})

    async def listed(self, cluster: str, type: ResourceType, *, full: bool) -> Listed:
        """All objects of a resource. Raises as `subscribe`, and LookupError if the workspace does not serve it."""
        async with self._client() as client:
            at = client.cluster(cluster)
            resource = (await served_kinds(at))[type.group, type.resource].resource
            revision, found = 0, {}
            async for page in at.pages(resource, limit=_PAGE):
                revision = int(page["metadata"]["resourceVersion"])
                for item in page["items"]:
                    metadata = item["metadata"]
                    key = ObjectKey(type, cluster, metadata.get("namespace", ""), metadata["name"])
                    found[key] = int(metadata["resourceVersion"]), encode_json(item) if full else b""
        return Listed(revision, found)

    async def _answer(self, method: str, path: str, form: type[Answer], body: Object | None = None) -> Answer:
        async with self._client() as client:
            service = client.view(client.target.service_url(SERVICE), self._cluster)
            answer = await service.request(method, path, body=body)
        try:
            return msgspec.convert(answer, form)
        except msgspec.ValidationError as error:
            raise BadResponse(f"not a {form.__name__}: {error}") from error

    @asynccontextmanager
    async def _client(self) -> AsyncGenerator[Client, None]:
        async with Client(self._target()) as client:
            yield client

    def _target(self) -> Target:
        options = self._options
        if "token" not in options:
            target = Kubeconfig.load(options.get("kubeconfig", "")).target(options.get("context", ""))
            if not self._url:
                return target
            other = make_target(Entry("server", {"server": self._url}, Path()), None)
            return msgspec.structs.replace(target, host=other.host, port=other.port, path=other.path)
        token = options["token"]
        server = {"server": self._url, "certificate-authority": options.get("ca_file", "")}
        user = {"token": token if isinstance(token, str) else token()}
        return make_target(Entry("server", server, Path()), Entry("user", user, Path()))
