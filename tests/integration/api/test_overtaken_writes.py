"""Conflicting writes: between a write's plan and its submit a workspace closes, a namespace is deleted, a right is
withdrawn, or the object changes. In process, with one change before `Store.queue`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path

import pytest

from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import CLUSTER_ROLE_BINDINGS, CONFIG_MAPS, LOGICAL_CLUSTERS, NAMESPACES
from atoll.machinery.meta.wellknown import INACTIVE
from atoll.machinery.storage.contract import Delete, Guard, Mutation, Put, Scope
from harness.clients.api import APPLY, JSON_PATCH, MERGE, STRATEGIC
from harness.clients.tenants import token_file, user
from harness.servers.in_process.requests import InProcessClient
from harness.servers.in_process.shard import InsideShard, shard_inside

Change = Callable[["Workspace"], Awaitable[None]]
Write = tuple[str, str, Object | list[Object] | None, str]

SPACE = "space"
MAPS = f"/api/v1/namespaces/{SPACE}/configmaps"


def configmap(name: str, value: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": value}}


DATA = {"data": {"k": "new"}}
JSON = "application/json"
CREATES: dict[str, Write] = {
    "create": ("POST", MAPS, configmap("made", "new"), JSON),
    "apply that creates": ("PATCH", f"{MAPS}/made?fieldManager=me", configmap("made", "new"), APPLY),
}
UPDATES: dict[str, Write] = {
    "update": ("PUT", f"{MAPS}/one", configmap("one", "new"), JSON),
    "merge patch": ("PATCH", f"{MAPS}/one", DATA, MERGE),
    "strategic merge patch": ("PATCH", f"{MAPS}/one", DATA, STRATEGIC),
    "JSON patch": ("PATCH", f"{MAPS}/one", [{"op": "replace", "path": "/data/k", "value": "new"}], JSON_PATCH),
    "apply": ("PATCH", f"{MAPS}/one?fieldManager=me&force=true", configmap("one", "new"), APPLY),
}
DELETES: dict[str, Write] = {
    "delete": ("DELETE", f"{MAPS}/one", None, JSON),
    "delete of a held object": ("DELETE", f"{MAPS}/held", None, JSON),
    "deletecollection": ("DELETE", MAPS, None, JSON),
}
ALL = {**CREATES, **UPDATES, **DELETES}
#: Objects without a deletionTimestamp after each deletion.
LEFT = {"delete": {"held"}, "delete of a held object": {"one"}, "deletecollection": set[str]()}


class Workspace:
    """A workspace that alice administers, with a namespace and two ConfigMaps: `one`, and `held` by a finalizer."""

    def __init__(self, shard: InsideShard, cluster: str, alice: InProcessClient) -> None:
        self.shard, self.cluster, self.alice = shard, cluster, alice
        self.changes: list[Change] = []
        #: Held during a change by the task that makes it: a deletecollection submits several writes at a time.
        self._lock = asyncio.Lock()
        self._changing: asyncio.Task[object] | None = None

    def target(self, type: ResourceType, name: str, namespace: str = "") -> Target:
        return self.shard.target(type, self.cluster, namespace, name)

    async def make(self, type: ResourceType, obj: Object, namespace: str = "") -> None:
        await self.shard.loopback.create(self.target(type, obj["metadata"]["name"], namespace), obj)

    async def change(
        self, type: ResourceType, name: str, edit: Callable[[Object], object], namespace: str = ""
    ) -> None:
        obj = self.shard.loopback.get(type, self.cluster, namespace, name)
        assert obj is not None
        edit(obj)
        await self.shard.loopback.update(self.target(type, name, namespace), obj)

    async def delete(self, type: ResourceType, name: str, namespace: str = "") -> None:
        await self.shard.loopback.delete(self.target(type, name, namespace), DeleteOptions())

    def maps(self) -> list[Object]:
        return list(self.shard.loopback.each(Scope(CONFIG_MAPS, self.cluster, SPACE)))

    def ours(self) -> list[Object]:
        return [each for each in self.maps() if each["metadata"]["name"] in {"one", "held", "made"}]

    def names(self) -> set[str]:
        return {each["metadata"]["name"] for each in self.ours()}

    def left(self) -> set[str]:
        """The names of the objects without a deletionTimestamp."""
        return {each["metadata"]["name"] for each in self.ours() if "deletionTimestamp" not in each["metadata"]}

    async def send(self, write: Write, *changes: Change) -> tuple[int, str]:
        """The code and message of alice's write; one change is made before each submit of it."""
        self.changes = list(changes)
        code, body = await self.alice.send(*write)
        assert not self.changes, "the write was not submitted"
        return code, str(body.get("message", ""))

    def is_to_wait(self, mutations: Sequence[Mutation]) -> bool:
        """Whether the write is alice's, and not part of a change."""
        task = asyncio.current_task()
        return (task is None or self._changing is not task) and any(self._is_alices(each) for each in mutations)

    async def overtake(self) -> None:
        """Make the next change before a write of alice's; others of hers wait for it."""
        async with self._lock:
            if self.changes:
                self._changing = asyncio.current_task()
                await self.changes.pop(0)(self)
                self._changing = None

    def _is_alices(self, mutation: Mutation) -> bool:
        if not isinstance(mutation, Put | Delete):
            return False
        return (mutation.key.type, mutation.key.cluster) == (CONFIG_MAPS, self.cluster)


class Shop:
    """A shard in which alice gets a workspace for each verb."""

    def __init__(self, shard: InsideShard) -> None:
        self._shard, self._pipeline = shard, shard.app.pipeline()
        self.workspaces: list[Workspace] = []

    async def each(self, verbs: Iterable[str]) -> AsyncIterator[tuple[str, Workspace]]:
        for number, verb in enumerate(verbs):
            yield verb, await self.open(f"w{number}")

    async def open(self, name: str) -> Workspace:
        cluster = await self._shard.workspace(name)
        here = Workspace(self._shard, cluster, InProcessClient(self._pipeline, cluster, "alice-token"))
        await self._fill(here)
        self.workspaces.append(here)
        return here

    async def _fill(self, here: Workspace) -> None:
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        right = {"metadata": {"name": "right"}, "subjects": [user("alice")], "roleRef": reference}
        await here.make(CLUSTER_ROLE_BINDINGS, right)
        await here.make(NAMESPACES, {"metadata": {"name": SPACE}})
        held = configmap("held", "old")
        held["metadata"]["finalizers"] = ["example.com/held"]
        for obj in (configmap("one", "old"), held):
            await here.make(CONFIG_MAPS, obj, SPACE)
        await self._shard.until_idle()


@pytest.fixture
async def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shop]:
    _, tokens = token_file(tmp_path)
    async with shard_inside(tmp_path, tokens=tokens) as shard:
        made, queue = Shop(shard), shard.app.store.queue

        async def overtaken(here: Workspace, mutations: Sequence[Mutation], guards: Sequence[Guard]) -> list[int]:
            await here.overtake()
            return await queue(mutations, guards)

        def overtaken_queue(mutations: Sequence[Mutation], guards: Sequence[Guard] = ()) -> asyncio.Future[list[int]]:
            for here in made.workspaces[-1:]:
                if here.is_to_wait(mutations):
                    return asyncio.ensure_future(overtaken(here, mutations, guards))
            return queue(mutations, guards)

        monkeypatch.setattr(shard.app.store, "queue", overtaken_queue)
        yield made


# --- concurrent changes ---


async def deactivate(here: Workspace) -> None:
    await here.change(
        LOGICAL_CLUSTERS, "cluster", lambda obj: obj["metadata"]["annotations"].update({INACTIVE: "true"})
    )


async def activate(here: Workspace) -> None:
    await here.change(LOGICAL_CLUSTERS, "cluster", lambda obj: obj["metadata"]["annotations"].pop(INACTIVE))


async def deactivate_for_a_moment(here: Workspace) -> None:
    """The final state is unchanged, but writes planned before are planned again."""
    await deactivate(here)
    await activate(here)


async def delete_workspace(here: Workspace) -> None:
    await here.delete(LOGICAL_CLUSTERS, "cluster")


async def delete_namespace(here: Workspace) -> None:
    await here.delete(NAMESPACES, SPACE)


async def withdraw(here: Workspace) -> None:
    await here.delete(CLUSTER_ROLE_BINDINGS, "right")


async def change_objects(here: Workspace) -> None:
    for name in ("one", "held"):
        await here.change(CONFIG_MAPS, name, lambda obj: obj["data"].update(other="x"), SPACE)


async def withdraw_and_replan(here: Workspace) -> None:
    await withdraw(here)
    await deactivate_for_a_moment(here)


async def withdraw_and_change_objects(here: Workspace) -> None:
    await withdraw(here)
    await change_objects(here)


# --- result of the write ---


async def test_no_write_lands_in_a_workspace_that_became_inactive(shop: Shop) -> None:
    async for verb, here in shop.each(ALL):
        before = here.maps()
        code, message = await here.send(ALL[verb], deactivate)
        assert (code, "is marked inactive" in message) == (403, True), (verb, message)
        assert here.maps() == before, verb


@pytest.mark.parametrize("verb", CREATES)
async def test_nothing_is_created_in_a_workspace_that_is_being_deleted(shop: Shop, verb: str) -> None:
    here = await shop.open("w")
    code, message = await here.send(CREATES[verb], delete_workspace)
    assert (code, "because it is being deleted" in message) == (403, True), message
    assert "made" not in here.names()


@pytest.mark.parametrize("verb", CREATES)
async def test_nothing_is_created_in_a_namespace_that_is_being_deleted(shop: Shop, verb: str) -> None:
    here = await shop.open("w")
    code, message = await here.send(CREATES[verb], delete_namespace)
    wanted = f"unable to create new content in namespace {SPACE} because it is being terminated"
    assert (code, message) == (403, f'configmaps "made" is forbidden: {wanted}')
    assert "made" not in here.names()


async def test_a_write_that_is_planned_again_is_authorized_again(shop: Shop) -> None:
    async for verb, here in shop.each(ALL):
        before = here.maps()
        code, message = await here.send(ALL[verb], withdraw_and_replan)
        assert (code, "access was withdrawn" in message) == (403, True), (verb, message)
        assert here.maps() == before, verb


@pytest.mark.long
async def test_so_is_one_whose_object_changed(shop: Shop) -> None:
    async for verb, here in shop.each({**UPDATES, **DELETES}):
        code, message = await here.send(ALL[verb], withdraw_and_change_objects)
        assert (code, "access was withdrawn" in message) == (403, True), (verb, message)
        assert here.names() == {"one", "held"}, verb
        assert [each["data"] for each in here.ours()] == [{"k": "old", "other": "x"}] * 2, verb


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_a_delete_is_planned_again_unless_its_precondition_fails(shop: Shop, field: str) -> None:
    here = await shop.open("w")
    known = next(each["metadata"] for each in here.ours() if each["metadata"]["name"] == "one")
    delete = ("DELETE", f"{MAPS}/one", {"preconditions": {field: known[field]}}, JSON)
    code, message = await here.send(delete, change_objects)
    assert (code, here.left()) == ((200, {"held"}) if field == "uid" else (409, {"held", "one"})), message


async def test_with_its_right_a_write_is_planned_again_until_it_lands(shop: Shop) -> None:
    async for verb, here in shop.each(ALL):
        changes = [deactivate_for_a_moment, *([change_objects] if verb in UPDATES else ())]
        code, message = await here.send(ALL[verb], *changes)
        assert code in {200, 201}, (verb, message)
        if verb in CREATES:
            assert "made" in here.names(), verb
        elif verb in UPDATES:
            kept = {} if verb == "update" else {"other": "x"}
            assert (
                next(each for each in here.ours() if each["metadata"]["name"] == "one")["data"] == DATA["data"] | kept
            )
        else:
            assert here.left() == LEFT[verb], verb
