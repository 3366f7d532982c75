"""A mailbox as its syncer sees it, in memory: downsyncitems, writes of status, the Lease, Events, tokens.

async with MailboxView.serving() as view:
    view.place(configmap("c", namespace="default"))
    view.withdraw(ref)
    view.cut(), view.join(), view.expire()

It is held to what the real view does by tests/integration/edge/test_syncer_mailbox.py.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from atoll.machinery.client.target import Target
from atoll.machinery.edge.names import THE_ONE, UPSYNCED, ObjectRef
from atoll.machinery.edge.placements import upsync_set
from atoll.machinery.edge.syncerconfigs import plan_parts, specs_of
from atoll.machinery.meta.objects import Object, annotations_of, encode_json
from atoll.machinery.meta.status import AlreadyExists, ApiError, Conflict, Expired, Forbidden, NotFound
from atoll.machinery.patch.merge_patch import merge_patch
from atoll.machinery.wire.exchange import Exchange
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.server import Server

GROUP = "edge.kubestellar.io"
ITEMS = f"/apis/{GROUP}/v2alpha1/downsyncitems"
JSON = [("content-type", "application/json")]


def ref_of(obj: Object, resource: str) -> ObjectRef:
    """The reference of an object."""
    group = obj["apiVersion"].rpartition("/")[0]
    return ObjectRef(group, resource, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


class MailboxView:
    """One mailbox. `requests` are method and path of each request."""

    def __init__(self) -> None:
        self.port, self.revision = 0, 100
        self.objects: dict[ObjectRef, Object] = {}
        self.others: dict[str, Object] = {}
        self.requests: list[tuple[str, str]] = []
        #: How many lists of items were begun.
        self.lists = 0
        #: Most items of a page, whatever is asked for.
        self.page_size = 500
        self._log: list[tuple[int, str, Object]] = []
        self._oldest, self._is_cut = 0, False
        self._open: set[Exchange] = set()
        self._watches: set[Exchange] = set()
        self._listed: dict[ObjectRef, str] = {}
        self._upsync: list[Object] = []
        self._associated: list[Object] = []

    @classmethod
    @asynccontextmanager
    async def serving(cls) -> AsyncIterator[MailboxView]:
        view = cls()
        # `the-one` is there from birth.
        view.write_config()
        server = Server(view, Limits())
        view.port = await server.start("127.0.0.1", 0)
        try:
            yield view
        finally:
            view.cut()
            await server.drain(1.0)

    @property
    def target(self) -> Target:
        return Target("127.0.0.1", self.port, "", None)

    # --- what the center does

    def place(self, *objects: Object, resource: str = "configmaps") -> list[ObjectRef]:
        """Put objects into the mailbox, and list them."""
        refs = [ref_of(obj, resource) for obj in objects]
        for ref, obj in zip(refs, objects, strict=True):
            self.put(ref, obj)
            self._listed[ref] = obj["apiVersion"].rpartition("/")[2]
        self.write_config()
        return refs

    def withdraw(self, *refs: ObjectRef) -> None:
        """List objects no more: they go before the list says so."""
        for ref in refs:
            self._listed.pop(ref, None)
            self.delete(ref)
        self.write_config()

    def upsync(self, sets: Iterable[Object]) -> None:
        """Ask for objects of the edge."""
        self._upsync = list(sets)
        self.write_config()

    def associate(self, rows: Iterable[Object]) -> None:
        """Ask for associated objects."""
        self._associated = list(rows)
        self.write_config()

    def write_config(self) -> None:
        """Write the SyncerConfigs that list what is to be listed."""
        existing = [obj for ref, obj in self.objects.items() if ref.resource == "syncerconfigs"]
        upsync = [upsync_set(each) for each in self._upsync]
        plans = plan_parts(specs_of(dict(self._listed), upsync, associated=self._associated), existing, 1)
        for config in (*plans.create, *plans.apply):
            ref = ref_of(config, "syncerconfigs")
            self.put(ref, {**config, "status": self.objects.get(ref, {}).get("status", {})})
        for config in plans.delete:
            self.delete(ref_of(config, "syncerconfigs"))

    def put(self, ref: ObjectRef, obj: Object) -> Object:
        """Store an object as a new revision."""
        self.revision += 1
        before = self.objects.get(ref)
        uid = before["metadata"]["uid"] if before else str(uuid.uuid4())
        metadata = {**obj["metadata"], "uid": uid, "resourceVersion": str(self.revision)}
        self.objects[ref] = {**obj, "metadata": metadata}
        self._tell("MODIFIED" if before else "ADDED", ref, self.objects[ref])
        return self.objects[ref]

    def delete(self, ref: ObjectRef) -> None:
        """Delete an object."""
        obj = self.objects.pop(ref)
        self.revision += 1
        gone = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.revision)}}
        self._tell("DELETED", ref, gone)

    def status(self, ref: ObjectRef) -> Object:
        """The status of an object, as it was reported."""
        found: Object = self.objects[ref].get("status") or {}
        return found

    @property
    def config_status(self) -> Object:
        """The status of SyncerConfig `the-one`."""
        ref = ObjectRef(GROUP, "syncerconfigs", "", THE_ONE)
        return self.status(ref) if ref in self.objects else {}

    # --- faults

    def cut(self) -> None:
        """Break every connection, and refuse new requests."""
        self._is_cut = True
        for exchange in list(self._open):
            exchange.abort()

    def join(self) -> None:
        """Serve again."""
        self._is_cut = False

    def end_watches(self) -> None:
        """End every watch, as a server does after a while."""
        for exchange in list(self._watches):
            exchange.finish()
            self._forget(exchange)

    def expire(self) -> None:
        """Forget all revisions but the current one."""
        self._log.clear()
        self._oldest = self.revision

    # --- the API

    def __call__(self, exchange: Exchange) -> None:
        parts = urlsplit(exchange.request.target.decode())
        if self._is_cut:
            exchange.abort()
            return
        self.requests.append((exchange.request.method, parts.path))
        self._open.add(exchange)
        exchange.on_close(lambda: self._forget(exchange))
        try:
            query = dict(parse_qsl(parts.query))
            if parts.path == ITEMS and query.get("watch"):
                self._watch(exchange, int(query["resourceVersion"]))
                return
            answer = self._answer(exchange.request.method, parts.path, query, exchange.request.body)
            exchange.reply(201 if exchange.request.method == "POST" else 200, JSON, encode_json(answer))
        except ApiError as error:
            exchange.reply(error.code, JSON, encode_json(error.status()))
        if not exchange.closed:
            self._open.discard(exchange)

    def _forget(self, exchange: Exchange) -> None:
        self._open.discard(exchange)
        self._watches.discard(exchange)

    def _answer(self, method: str, path: str, query: dict[str, str], body: bytes) -> Object:
        sent: Any = msgspec.json.decode(body) if body else {}
        if path == ITEMS:
            return self._list(min(int(query.get("limit", "500")), self.page_size), query.get("continue", ""))
        if method == "PATCH" and path.endswith("/status"):
            return self._write_status(path.removesuffix("/status"), sent)
        return self._other(method, path.removesuffix("/status"), sent)

    def _other(self, method: str, path: str, sent: Object) -> Object:
        """Read or write an object that is no item: a Lease, an Event, what came up."""
        name = path if method != "POST" else f"{path}/{sent['metadata'].get('name', uuid.uuid4().hex)}"
        held = self.others.get(name)
        if method == "GET" and held is None and _is_collection(path):
            kept = [obj for key, obj in self.others.items() if _collection(key) == path and _is_visible(key, obj)]
            return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": kept}
        if method != "POST" and held is not None and not _is_visible(name, held):
            raise Forbidden("it did not come up")
        if method != "POST" and held is None:
            raise NotFound("not found")
        if method == "POST" and held is not None:
            raise AlreadyExists("it is there")
        if method == "GET":
            return held or {}
        if method == "DELETE":
            return self.others.pop(name)
        if held is not None and held["metadata"]["resourceVersion"] != sent["metadata"].get("resourceVersion"):
            raise Conflict("the object has been modified")
        # These have revisions of their own here.
        number = int(held["metadata"]["resourceVersion"]) + 1 if held else 1
        uid = held["metadata"]["uid"] if held else str(uuid.uuid4())
        whole = merge_patch(held or {}, sent) if method == "PATCH" else sent
        metadata = {**whole["metadata"], "resourceVersion": str(number), "uid": uid}
        self.others[name] = {**whole, "metadata": metadata}
        return self.others[name]

    def _write_status(self, path: str, patch: Object) -> Object:
        for ref, obj in self.objects.items():
            group = f"/apis/{ref.group}" if ref.group else "/api"
            place = f"/namespaces/{ref.namespace}" if ref.namespace else ""
            version = obj["apiVersion"].rpartition("/")[2]
            if path == f"{group}/{version}{place}/{ref.resource}/{ref.name}":
                expected = patch.get("metadata", {}).get("resourceVersion")
                if expected not in (None, obj["metadata"]["resourceVersion"]):
                    raise Conflict("the object has been modified")
                annotations = patch.get("metadata", {}).get("annotations", {})
                kept = {"status": patch["status"], "metadata": {"annotations": annotations}}
                return self.put(ref, merge_patch(obj, kept))
        raise NotFound("not found")

    def _list(self, limit: int, token: str) -> Object:
        refs = sorted(self.objects)
        self.lists += not token
        begin = int(token or 0)
        metadata = {"resourceVersion": str(self.revision)}
        if begin + limit < len(refs):
            metadata["continue"] = str(begin + limit)
        items = [_item(ref, self.objects[ref]) for ref in refs[begin : begin + limit]]
        return {"apiVersion": f"{GROUP}/v2alpha1", "kind": "DownsyncItemList", "metadata": metadata, "items": items}

    def _watch(self, exchange: Exchange, since: int) -> None:
        if since < self._oldest:
            raise Expired("too old resource version")
        exchange.start(200, JSON)
        self._watches.add(exchange)
        for revision, type_, item in self._log:
            if revision > since:
                exchange.write(_line(type_, item))

    def _tell(self, type_: str, ref: ObjectRef, obj: Object) -> None:
        item = _item(ref, obj)
        self._log.append((self.revision, type_, item))
        for exchange in self._watches:
            exchange.write(_line(type_, item))


def _is_visible(path: str, obj: Object) -> bool:
    """Whether a syncer may see an object: its Lease, its states and what came up."""
    return "/leases/" in path or "/associatedstates/" in path or UPSYNCED in annotations_of(obj)


def _collection(path: str) -> str:
    """The path of all objects of a kind, of that of one."""
    parts = path.split("/")[:-1]
    if "namespaces" in parts[:-1]:
        at = parts.index("namespaces")
        parts = parts[:at] + parts[at + 2 :]
    return "/".join(parts)


def _is_collection(path: str) -> bool:
    """Whether a path names all objects of a kind in all namespaces."""
    parts = path.split("/")
    return len(parts) == (4 if parts[1] == "api" else 5)


def _item(ref: ObjectRef, obj: Object) -> Object:
    name = f"{ref.resource}.{ref.group}:{ref.namespace}:{ref.name}"
    metadata = {key: obj["metadata"][key] for key in ("resourceVersion", "uid")}
    head: Object = {"apiVersion": f"{GROUP}/v2alpha1", "kind": "DownsyncItem", "metadata": {"name": name, **metadata}}
    return {**head, "resource": ref.resource, "object": obj}


def _line(type_: str, item: Object) -> bytes:
    return encode_json({"type": type_, "object": item}) + b"\n"
