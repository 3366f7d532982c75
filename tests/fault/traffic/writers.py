"""Writers: create, update, patch, apply, delete and read, on hot keys that all share and cold ones of their own.

Each write carries a tag of its own in the object, so the log tells later who wrote what; each is recorded before it
is sent, so none is forgotten when the shard dies under it. Nothing is retried: an unknown outcome stays one.
"""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import msgspec
from google_crc32c import value as crc32c

from atoll.machinery.wire.client import ClientError, ClientResponse, Unreachable
from fault.recorder.history import History, Key, Outcome, Read, Write, now_us
from fault.traffic.fleet import Fleet
from fault.traffic.shardapi import CONFIGMAPS

HOT_KEYS, COLD_KEYS = 10, 125
COLOURS = ("red", "green", "blue")
NAMESPACE = "default"
_HOT_SHARE = 0.3
_MERGE, _JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
_APPLY = "application/apply-patch+yaml"


class _Meta(msgspec.Struct):
    uid: str = ""
    resourceVersion: str = ""


class _Details(msgspec.Struct):
    uid: str = ""


class _Answer(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    details: _Details = msgspec.field(default_factory=_Details)


_decode = msgspec.json.Decoder(_Answer).decode


class Writer:
    """One client that writes until cancelled."""

    def __init__(self, number: int, fleet: Fleet, history: History, dice: random.Random) -> None:
        self._name, self._fleet, self._history, self._dice = f"w{number}", fleet, history, dice
        self._count = 0
        #: The last revision of each key that this writer received; 0: absent.
        self._revisions: dict[Key, int] = {}

    async def run(self) -> None:
        while True:
            await self._fleet.writable.wait()
            self._fleet.writing += 1
            try:
                await self._one()
            finally:
                self._fleet.writing -= 1

    async def _one(self) -> None:
        key, dice = self._key(), self._dice.random()
        known = self._revisions.get(key)
        if not known:
            await (self._create(key) if known == 0 or dice < 0.7 else self._get(key))
        elif dice < 0.35:
            await self._update(key, known if self._dice.random() < 0.6 else -1)
        elif dice < 0.65:
            await self._patch(key)
        elif dice < 0.75:
            await self._apply(key)
        elif dice < 0.88:
            await self._delete(key, known if self._dice.random() < 0.5 else -1)
        else:
            await self._get(key)

    def _key(self) -> Key:
        cluster = self._dice.choice(self._fleet.clusters)
        if self._dice.random() < _HOT_SHARE:
            return Key(cluster, NAMESPACE, f"hot-{self._dice.randrange(HOT_KEYS)}")
        return Key(cluster, NAMESPACE, f"cold-{self._name}-{self._dice.randrange(COLD_KEYS)}")

    # --- verbs

    async def _create(self, key: Key) -> None:
        write, document = self._document("create", key, 0)
        await self._send(write, "POST", self._path(key, ""), document)

    async def _update(self, key: Key, expected: int) -> None:
        write, document = self._document("update", key, expected)
        if expected >= 0:
            document["metadata"]["resourceVersion"] = str(expected)
        await self._send(write, "PUT", self._path(key), document)

    async def _patch(self, key: Key) -> None:
        write = self._new("patch", key)
        if self._dice.random() < 0.5:
            write.labels = {"colour": self._dice.choice(COLOURS)}
            patch: Any = {"data": {"tag": write.tag}, "metadata": {"labels": write.labels}}
            await self._send(write, "PATCH", self._path(key), patch, _MERGE)
        else:
            patch = [{"op": "replace", "path": "/data/tag", "value": write.tag}]
            await self._send(write, "PATCH", self._path(key), patch, _JSON_PATCH)

    async def _apply(self, key: Key) -> None:
        write = self._new("apply", key)
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": key.name}, "data": {"tag": write.tag}}
        await self._send(write, "PATCH", f"{self._path(key)}?fieldManager={self._name}&force=true", document, _APPLY)

    async def _delete(self, key: Key, expected: int) -> None:
        write = Write("delete", key, "", now_us(), expected)
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if expected >= 0:
            options["preconditions"] = {"resourceVersion": str(expected)}
        await self._send(write, "DELETE", self._path(key), options)

    async def _get(self, key: Key) -> None:
        called = now_us()
        try:
            answer = await self._fleet.api.ask("GET", self._path(key))
        except (ClientError, TimeoutError):
            return
        revision = int(_decode(answer.body).metadata.resourceVersion or 0) if answer.status == 200 else 0
        if answer.status in {200, 404}:
            self._revisions[key] = revision
            checksum = crc32c(answer.body.rstrip(b"\n")) if revision else 0
            self._history.reads.append(Read(key, called, now_us(), revision, checksum))

    # --- one write

    def _new(self, verb: str, key: Key, expected: int = -1) -> Write:
        self._count += 1
        return Write(verb, key, f"{self._name}-{self._count}", now_us(), expected)

    def _document(self, verb: str, key: Key, expected: int) -> tuple[Write, dict[str, Any]]:
        write = self._new(verb, key, expected)
        pad = "x" * int(self._dice.paretovariate(1.2) * 20 % 6000)
        write.content = {"tag": write.tag, "pad": pad}
        metadata = {"name": key.name, "labels": {"colour": self._dice.choice(COLOURS)}}
        return write, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": write.content}

    def _path(self, key: Key, name: str | None = None) -> str:
        below = CONFIGMAPS.path(key.namespace, key.name if name is None else name)
        return f"/clusters/{key.cluster}{below}"

    async def _send(self, write: Write, method: str, path: str, body: Any, media: str = "application/json") -> None:
        self._history.writes.append(write)
        write.called = now_us()
        try:
            answer = await self._fleet.api.ask(method, path, json.dumps(body).encode(), media)
        except Unreachable:
            write.outcome, write.returned = Outcome.REFUSED, now_us()
            await asyncio.sleep(0.01)
            return
        except (ClientError, TimeoutError):
            self._revisions.pop(write.key, None)
            return
        write.returned, write.code = now_us(), answer.status
        self._record_answer(write, answer)

    def _record_answer(self, write: Write, answer: ClientResponse) -> None:
        if answer.status >= 500:
            self._revisions.pop(write.key, None)
            return
        if answer.status >= 300:
            write.outcome = Outcome.REFUSED
            self._revisions.pop(write.key, None)
            if answer.status == 404:
                self._revisions[write.key] = 0
            return
        write.outcome, found = Outcome.ACKED, _decode(answer.body)
        if write.verb == "delete":
            write.uid, self._revisions[write.key] = found.details.uid, 0
        else:
            write.revision = self._revisions[write.key] = int(found.metadata.resourceVersion)
