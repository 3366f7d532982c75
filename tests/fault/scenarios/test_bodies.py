"""Hostile bodies: each verb answers each body with a clear 4xx, stores nothing, and the server survives.

A native kind and a custom resource; memory is judged by the peak that the kernel kept, not by a sample.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest

from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object
from atoll.machinery.wire.client import ClientResponse
from fault.traffic import bodies
from fault.traffic.bodies import BODIES, PATCHES, PROTOBUFS, Body
from fault.traffic.shardapi import CONFIGMAPS, ShardApi
from harness.clients.raw_http import RawClient
from harness.servers.memory import forget_peak, peak_bytes, rss_bytes
from harness.servers.shard_process import ShardProcess
from harness.tiers import every

MIB = 1 << 20
#: Above what the shard held before any of this. One request holds its body, the tree of it and a copy: what 3 MiB of
#: JSON can become; what the allocator keeps of that after all of them is below one such peak.
PEAK_ABOVE_MIB, KEPT_MIB = 192, 128
THINGS = Resource("fault.atoll.dev", "v1", "things")
STRICT = "?fieldValidation=Strict"
APPLYING = STRICT + "&fieldManager=bodies&force=true"


def definition(schema: Object) -> Object:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.fault.atoll.dev"},
        "spec": {
            "group": "fault.atoll.dev",
            "scope": "Namespaced",
            "versions": [version],
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
        },
    }


#: `x` accepts any value, so that only the decoder and the limits can reject it.
OPEN = {"x-kubernetes-preserve-unknown-fields": True}
PART = {"type": "object", **OPEN, "properties": {"x": {**OPEN, "maxProperties": 1000}}}
SCHEMA: Object = {"type": "object", "properties": {"spec": PART, "status": PART}}


class Kind(msgspec.Struct, frozen=True):
    resource: Resource
    api_version: str
    kind: str
    member: str

    def document(self, name: str, revision: str = "") -> Object:
        """A valid object; its free member is not set yet. An update of a custom resource names the revision."""
        metadata = {"name": name, "resourceVersion": revision} if revision else {"name": name}
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata}


NATIVE = Kind(CONFIGMAPS, "v1", "ConfigMap", "data")
CUSTOM = Kind(THINGS, "fault.atoll.dev/v1", "Thing", "spec")


class Attempt(msgspec.Struct, frozen=True):
    """A way to write: verb, path, media type, and the bodies that fit it."""

    method: str
    media: str
    subresource: str = ""
    named: bool = True
    query: str = STRICT

    def __str__(self) -> str:
        return " ".join(filter(None, (self.method, self.media.partition("/")[2], self.subresource)))

    def path(self, kind: Kind) -> str:
        name = "victim" if self.named else ""
        return "/clusters/root" + kind.resource.path("default", name, self.subresource) + self.query

    def bodies(self) -> list[Body]:
        return [body for body in (*BODIES, *PATCHES, *PROTOBUFS) if self.media in body.media]


WRITES = (
    Attempt("POST", bodies.JSON, named=False),
    Attempt("POST", bodies.YAML, named=False),
    Attempt("PUT", bodies.JSON),
    Attempt("PUT", bodies.YAML),
    Attempt("PATCH", bodies.JSON_PATCH),
    Attempt("PATCH", bodies.MERGE),
    Attempt("PATCH", bodies.APPLY, query=APPLYING),
)
OF_NATIVE = (
    Attempt("PATCH", bodies.STRATEGIC),
    Attempt("POST", bodies.PROTOBUF, named=False),
    Attempt("PUT", bodies.PROTOBUF),
)
OF_CUSTOM = (
    Attempt("PUT", bodies.JSON, "status"),
    Attempt("PATCH", bodies.MERGE, "status"),
    Attempt("PATCH", bodies.APPLY, "status", query=APPLYING),
)
CASES = [
    *((NATIVE, attempt) for attempt in (*WRITES, *OF_NATIVE)),
    *((CUSTOM, attempt) for attempt in (*WRITES, *OF_CUSTOM)),
]


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    with ShardProcess(tmp_path_factory.mktemp("bodies")) as process:
        asyncio.run(prepare(process))
        yield process


async def prepare(shard: ShardProcess) -> None:
    async with ShardApi(shard) as api:
        client = api.client("root")
        await api.define("root", definition(SCHEMA), THINGS)
        for kind in (NATIVE, CUSTOM):
            await client.create(kind.resource, {**kind.document("victim"), kind.member: {"a": "b"}}, "default")


@pytest.fixture(scope="module")
def before(shard: ShardProcess) -> int:
    """Resident bytes of the shard before the first bad body."""
    return rss_bytes(shard.pid)


@pytest.fixture
def bounded(shard: ShardProcess, before: int) -> Iterator[None]:
    """Fails if the shard's memory peaked above the bound during the test, or stayed above it."""
    forget_peak(shard.pid)
    yield
    peak_mib, kept_mib = ((now - before) // MIB for now in (peak_bytes(shard.pid), rss_bytes(shard.pid)))
    assert peak_mib <= PEAK_ABOVE_MIB, f"memory peaked {peak_mib} MiB above what it was"
    assert kept_mib <= KEPT_MIB, f"the shard kept {kept_mib} MiB"


async def revision_for(api: ShardApi, kind: Kind, attempt: Attempt) -> str:
    """What a good body of this attempt has as its resourceVersion."""
    if attempt.method != "PUT":
        return ""
    found = await api.client("root").get(kind.resource, "victim", "default")
    return str(found["metadata"]["resourceVersion"])


async def stored(api: ShardApi, kind: Kind) -> object:
    answer = await api.ask("GET", "/clusters/root" + kind.resource.path())
    return msgspec.json.decode(answer.body)["items"]


def problem_of(answer: ClientResponse, codes: tuple[int, ...]) -> str:
    """The fault of an error response; empty if it is right."""
    status = msgspec.json.decode(answer.body)
    if answer.status not in codes:
        return f"answered {answer.status} instead of {codes}: {answer.body[:200]!r}"
    if (status.get("kind"), status.get("status"), status.get("code")) != ("Status", "Failure", answer.status):
        return f"the answer is no Status: {answer.body[:200]!r}"
    if not status.get("message") or not status.get("reason"):
        return "the Status says nothing"
    return "" if len(answer.body) < 64 * 1024 else f"the Status has {len(answer.body)} bytes"


@pytest.mark.parametrize(("kind", "attempt"), every(2, CASES), ids=lambda value: getattr(value, "kind", str(value)))
async def test_bad_bodies_are_refused_clearly_and_leave_nothing(
    shard: ShardProcess, bounded: None, kind: Kind, attempt: Attempt
) -> None:
    wrong: list[str] = []
    name = "victim" if attempt.named else "new"
    member = attempt.subresource or kind.member
    async with ShardApi(shard) as api:
        before = await stored(api, kind)
        document = kind.document(name, await revision_for(api, kind, attempt))
        for body in attempt.bodies():
            data = body.spoil(document, member)
            try:
                answer = await api.ask(attempt.method, attempt.path(kind), data, attempt.media)
            except TimeoutError:
                wrong.append(f"{body.name}: no answer")
                continue
            if problem := problem_of(answer, body.codes):
                wrong.append(f"{body.name}: {problem}")
        assert not wrong, "\n" + "\n".join(wrong)
        assert await stored(api, kind) == before


@pytest.mark.parametrize("kind", [NATIVE, CUSTOM], ids=["native", "custom"])
async def test_the_documents_that_are_spoiled_are_good_ones(shard: ShardProcess, kind: Kind) -> None:
    """The valid documents are accepted; otherwise the errors above could have another cause."""
    async with ShardApi(shard) as api:
        for attempt in WRITES:
            name = "victim" if attempt.named else "good"
            revision = await revision_for(api, kind, attempt)
            document = {**kind.document(name, revision), kind.member: {"x": "y"}}
            data: object = document
            if attempt.media == bodies.JSON_PATCH:
                data = [{"op": "add", "path": f"/{kind.member}/x", "value": "y"}]
            path = attempt.path(kind) + "&dryRun=All"
            answer = await api.ask(attempt.method, path, json.dumps(data).encode(), attempt.media)
            assert answer.status in {200, 201}, (str(attempt), answer.body)


#: Kubernetes decodes delete options leniently: repeated or unknown fields are no error.
LENIENT = {"empty", "duplicate keys", "150,000 unexpected members"}
DELETE_BODIES = [body for body in BODIES if bodies.JSON in body.media and body.name not in LENIENT]


@pytest.mark.parametrize("kind", [NATIVE, CUSTOM], ids=["native", "custom"])
@pytest.mark.parametrize("name", ["victim", ""], ids=["delete", "deletecollection"])
async def test_bad_delete_options_delete_nothing(shard: ShardProcess, bounded: None, kind: Kind, name: str) -> None:
    options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
    path = "/clusters/root" + kind.resource.path("default", name)
    wrong: list[str] = []
    async with ShardApi(shard) as api:
        before = await stored(api, kind)
        for body in DELETE_BODIES:
            answer = await api.ask("DELETE", path + STRICT, body.spoil(options, "preconditions"), bodies.JSON)
            if problem := problem_of(answer, (*body.codes, 400, 413, 422)):
                wrong.append(f"{body.name}: {problem}")
        assert not wrong, "\n" + "\n".join(wrong)
        assert await stored(api, kind) == before


async def test_a_body_that_never_comes_whole_stores_nothing(shard: ShardProcess, bounded: None) -> None:
    """The client promises more bytes than it sends and hangs up."""
    path = "/clusters/root" + CONFIGMAPS.path("default")
    document = json.dumps(NATIVE.document("half")).encode()
    async with ShardApi(shard) as api:
        before = await stored(api, NATIVE)
        for sent in (document, document[: len(document) // 2], b""):
            raw = await RawClient.connect(api.target.port, shard.tls())
            head = f"POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {shard.token()}\r\n"
            await raw.send(f"{head}Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n".encode() + sent)
            raw.close()
        assert (await api.ask("GET", "/livez")).status == 200
        assert await stored(api, NATIVE) == before


def selectors() -> dict[str, str]:
    return {
        "a hundred thousand terms": ",".join(f"k{number}=v" for number in range(100_000)),
        "two thousand terms": ",".join(f"k{number}=v" for number in range(2_000)),
        "values without end": "a in (" + ",".join("v" * 8 for _ in range(3_000)) + ")",
        "only opened": "a in (" * 3_000,
        "only bangs": "!" * 20_000,
        "only commas": "," * 20_000,
        "a number of a thousand digits": "a>" + "9" * 1_000,
        "a name of ten thousand characters": "a" * 10_000 + "=b",
    }


@pytest.mark.parametrize("parameter", ["labelSelector", "fieldSelector"])
@pytest.mark.parametrize("verb", ["list", "watch", "deletecollection"])
async def test_huge_selectors_are_refused(shard: ShardProcess, bounded: None, verb: str, parameter: str) -> None:
    method = "DELETE" if verb == "deletecollection" else "GET"
    path = "/clusters/root" + CONFIGMAPS.path("default") + "?timeoutSeconds=1&watch=" + str(verb == "watch").lower()
    wrong: list[str] = []
    async with ShardApi(shard) as api:
        before = await stored(api, NATIVE)
        for name, selector in selectors().items():
            answer = await api.ask(method, f"{path}&{parameter}={quote(selector)}")
            if not 400 <= answer.status < 500:
                wrong.append(f"{name}: answered {answer.status}: {answer.body[:200]!r}")
        assert not wrong, "\n" + "\n".join(wrong)
        assert await stored(api, NATIVE) == before


def nested(depth: int, **leaf: object) -> bytes:
    """A definition whose schema is `depth` objects deep, as bytes: `json` itself gives up at such depths."""
    lead, end = b'{"type":"object","properties":{"a":', b"}}"
    inner = lead * depth + json.dumps({"type": "string", **leaf}).encode() + end * depth
    document = {**definition({"@@": 1}), "metadata": {"name": "deep.fault.atoll.dev"}}
    document["spec"]["names"] = {"plural": "deep", "singular": "deep", "kind": "Deep"}
    return json.dumps(document).encode().replace(b'{"@@": 1}', inner)


def wide(branches: int, depth: int) -> Object:
    """Every level occurs `branches` times in an `anyOf`: small as text, large as a tree."""
    schema: Object = {"minLength": 1}
    for _ in range(depth):
        schema = {"anyOf": [schema] * branches}
    return {"type": "object", "properties": {"spec": {"type": "string", **schema}}}


def crds() -> dict[str, bytes]:
    def named(schema: Object) -> bytes:
        document = {**definition(schema), "metadata": {"name": "deep.fault.atoll.dev"}}
        document["spec"]["names"] = {"plural": "deep", "singular": "deep", "kind": "Deep"}
        return json.dumps(document).encode()

    broken = {"type": "object", "properties": {"spec": {"type": "string", "pattern": "(" * 5_000}}}
    endless = {"type": "object", "properties": {"spec": {"type": "string", "pattern": "(((a{1000}){1000}){1000})"}}}
    itself = {"type": "object", "properties": {"spec": {"$ref": "#/properties/spec"}}}
    return {
        "10,000 deep": nested(10_000),
        "1,000 deep": nested(1_000),
        "a default of the wrong kind at depth": nested(40, default={"a": 1}),
        "branches without end": named(wide(4, 8)),
        "a pattern that does not compile": named(broken),
        "a pattern that would be huge": named(endless),
        "a schema that is its own part": named(itself),
    }


async def test_definitions_that_are_too_deep_or_too_wide_are_refused(shard: ShardProcess, bounded: None) -> None:
    wrong: list[str] = []
    path = "/clusters/root/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    async with ShardApi(shard) as api:
        for name, data in crds().items():
            answer = await api.ask("POST", path + STRICT, data, bodies.JSON)
            if problem := problem_of(answer, (400, 413, 422)):
                wrong.append(f"{name}: {problem}")
        assert not wrong, "\n" + "\n".join(wrong)
        found = await api.ask("GET", path)
        names = [item["metadata"]["name"] for item in msgspec.json.decode(found.body)["items"]]
        assert names == ["things.fault.atoll.dev"]


def test_nothing_of_all_this_was_an_error_of_the_server(shard: ShardProcess) -> None:
    """Runs last in this module: the shard's log has no traceback, and the shard drains and ends in order."""
    assert shard.stop() == 0
    assert "Traceback" not in Path(shard.stderr_path).read_text(errors="replace")
