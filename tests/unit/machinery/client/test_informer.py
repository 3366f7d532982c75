"""An informer keeps the state when its watches fail, and calls its handler once for each change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import structlog

from atoll.machinery.client import informer as module
from atoll.machinery.client.client import Client
from atoll.machinery.client.informer import Informer, head, unmanaged, whole
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Expired, Forbidden
from atoll.machinery.meta.wellknown import CLUSTER
from atoll.machinery.process.backoff import Backoff
from harness.servers.stand_ins.canned_api import Answer, CannedApi, bookmark, event, serving, thing, watching

THINGS = Resource("example.com", "v1", "things")
AT = "GET /clusters/*/apis/example.com/v1/things"


class Watched:
    """A running informer on a canned server, and its handler's calls as (name, old revision, new revision)."""

    def __init__(self, api: CannedApi, client: Client) -> None:
        self.api = api
        self.calls: list[tuple[str, str, str]] = []
        self.changed = asyncio.Event()
        self.objects: list[tuple[Object | None, Object | None]] = []
        self._client = client
        self.keep(whole)
        self._task: asyncio.Task[None] | None = None

    def keep(self, keep: Callable[[Object], Object]) -> None:
        self.informer = Informer(self._client, THINGS, self._handle, keep, labelSelector="a=b")

    def begin(self, *answers: Answer) -> None:
        self.api.on(AT, *answers)
        self._task = asyncio.create_task(self.informer.run())

    async def end(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _handle(self, old: Object | None, new: Object | None) -> None:
        def revision(obj: Object | None) -> str:
            return obj["metadata"]["resourceVersion"] if obj else ""

        self.objects.append((old, new))
        self.calls.append(((new or old or {})["metadata"]["name"], revision(old), revision(new)))
        self.changed.set()

    async def until_notified(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.calls) < count:
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture
async def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    monkeypatch.setattr(module, "BACKOFF", Backoff(0.001, module.MAX_DELAY_S))
    async with (
        serving(CannedApi()) as api,
        Client.from_kubeconfig(str(api.kubeconfig(tmp_path)), cluster="*") as client,
    ):
        watched = Watched(api, client)
        yield watched
        await watched.end()


def added(name: str, revision: int, cluster: str = "one") -> Object:
    return event("ADDED", thing(name, revision, cluster))


async def test_the_state_is_whole_when_the_annotated_bookmark_came(watched: Watched) -> None:
    watched.begin(watching(added("a", 3), added("a", 1, "two"), bookmark(2), bookmark(5, end=True)))
    await asyncio.wait_for(watched.informer.synced.wait(), 30)
    assert sorted(watched.informer.objects) == [("one", "", "a"), ("two", "", "a")]
    assert watched.calls == [("a", "", "3"), ("a", "", "1")]
    query = watched.api.requests[0].query
    assert query.pop("allowWatchBookmarks") == query.pop("watch") == "true"
    assert query == {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "labelSelector": "a=b"}


async def test_it_is_not_synced_by_another_bookmark(watched: Watched) -> None:
    watched.begin(watching(added("a", 3), bookmark(4)))
    await watched.until_notified(1)
    assert not watched.informer.synced.is_set()


async def test_changes_are_told_with_the_object_before(watched: Watched) -> None:
    events = (added("a", 1), bookmark(1, end=True), event("MODIFIED", thing("a", 2, "one")))
    watched.begin(watching(*events, event("DELETED", thing("a", 3, "one"))))
    await watched.until_notified(3)
    # The last state of a deleted object is the object of the DELETED event.
    assert watched.calls == [("a", "", "1"), ("a", "1", "2"), ("a", "3", "")]
    assert watched.informer.objects == {}


async def test_of_an_object_only_what_is_to_be_kept_is_there_and_told(watched: Watched) -> None:
    managed = thing("a", 2, "one", spec={"x": 1})
    managed["metadata"]["managedFields"] = [{"manager": "m"}]
    watched.keep(head)
    watched.begin(watching(event("ADDED", managed), bookmark(2, end=True), event("DELETED", {**managed, "spec": 2})))
    await watched.until_notified(2)
    kept = {"metadata": {"name": "a", "resourceVersion": "2", "annotations": {CLUSTER: "one"}}}
    assert watched.objects == [(None, kept), (kept, None)]
    assert unmanaged(managed) == thing("a", 2, "one", spec={"x": 1})


@pytest.mark.parametrize("then", ["end", "cut"])
async def test_it_goes_on_from_the_last_revision_after_an_end(watched: Watched, then: str) -> None:
    first = watching(added("a", 1), bookmark(4, end=True), added("b", 6), then=then)
    second = watching(bookmark(9), then="end")
    watched.begin(first, second, watching(added("c", 10)))
    await watched.until_notified(3)
    assert [each.query.get("resourceVersion") for each in watched.api.requests] == [None, "6", "9"]
    assert "sendInitialEvents" not in watched.api.requests[1].query
    assert [name for name, _, _ in watched.calls] == ["a", "b", "c"]


async def test_a_state_that_came_only_in_part_is_not_gone_on_from(watched: Watched) -> None:
    whole = watching(added("a", 7), added("b", 2), bookmark(8, end=True))
    watched.begin(watching(added("a", 7), then="cut"), whole)
    await asyncio.wait_for(watched.informer.synced.wait(), 30)
    assert [each.query.get("sendInitialEvents") for each in watched.api.requests] == ["true", "true"]
    assert watched.calls == [("a", "", "7"), ("b", "", "2")]


@pytest.mark.parametrize("how", ["event", "status"])
async def test_a_revision_that_is_gone_means_the_state_again(watched: Watched, how: str) -> None:
    first = watching(added("a", 1), added("b", 1), added("c", 1), bookmark(4, end=True), then="end")
    gone: Answer = Expired("gone") if how == "status" else watching(event("ERROR", Expired("gone").status()))
    again = watching(added("a", 1), added("b", 7), bookmark(8, end=True))
    watched.begin(first, gone, again)
    await watched.until_notified(5)
    assert watched.calls[3:] == [("b", "1", "7"), ("c", "1", "")]
    assert [each.query.get("resourceVersion") for each in watched.api.requests] == [None, "4", None]
    assert sorted(name for _, _, name in watched.informer.objects) == ["a", "b"]


async def test_a_refusal_is_tried_again_and_the_revision_kept(watched: Watched) -> None:
    first = watching(bookmark(4, end=True), then="end")
    watched.begin(first, Forbidden("not now"), Forbidden("not now"), watching(added("a", 5)))
    await watched.until_notified(1)
    assert [each.query.get("resourceVersion") for each in watched.api.requests] == [None, "4", "4", "4"]


async def test_waits_grow_while_nothing_comes_and_begin_again_with_an_event(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BACKOFF", Backoff(0.004, 0.05, least=0.75))
    monkeypatch.setattr(module, "MAX_DELAY_S", 0.05)
    empty = watching(then="end")
    with structlog.testing.capture_logs() as logged:
        watched.begin(*[empty] * 6, watching(added("a", 1), then="end"), empty, watching(added("b", 2)))
        await watched.until_notified(2)
    delays_ms = [round(entry["again_s"] * 1000) for entry in logged if entry["event"] == "watch interrupted"]
    bounds_ms = [4, 8, 16, 32, 50, 50, 4, 8]
    assert len(delays_ms) == len(bounds_ms)
    assert all(bound * 0.75 <= delay <= bound for delay, bound in zip(delays_ms, bounds_ms, strict=True))


async def test_what_a_handler_raises_ends_it(tmp_path: Path) -> None:
    def broken(old: Object | None, new: Object | None) -> None:
        raise LookupError("handler")

    async with serving(CannedApi()) as api:
        api.on(AT, watching(added("a", 1)))
        async with Client.from_kubeconfig(str(api.kubeconfig(tmp_path)), cluster="*") as client:
            with pytest.raises(LookupError):
                await asyncio.wait_for(Informer(client, THINGS, broken).run(), 30)
