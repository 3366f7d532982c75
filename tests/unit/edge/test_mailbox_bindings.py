"""Which bindings of a mailbox are made and which go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from atoll.edge.mailbox_bindings import MARK, MailboxBindings, planned
from atoll.edge.store import EdgeStore
from atoll.machinery.client.client import Client
from atoll.machinery.edge.what import export_of
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import NotFound

KUBERNETES, GAUGES = ("root", "kubernetes"), ("root:x", "gauges")


def others(name: str, export: tuple[str, str], **metadata: object) -> Object:
    spec = {"reference": {"export": {"path": export[0], "name": export[1]}}}
    return {"metadata": {"name": name, **metadata}, "spec": spec}


def test_a_missing_binding_is_made_once_with_the_mark_and_an_export_that_somebody_bound_is_bound() -> None:
    (made, other), _ = planned([KUBERNETES, GAUGES], [])
    assert (export_of(made), export_of(other)) == (KUBERNETES, GAUGES)
    assert made["metadata"]["labels"] == {MARK: "yes"}
    assert made["metadata"]["name"] != other["metadata"]["name"]
    assert planned([KUBERNETES, GAUGES], [made, other]) == ([], [])
    assert planned([KUBERNETES], [others("theirs", KUBERNETES)]) == ([], [])


def test_what_is_not_wanted_goes_if_it_has_the_mark() -> None:
    (made,), _ = planned([KUBERNETES], [])
    assert planned([], [made, others("theirs", GAUGES)]) == ([], [made])
    assert planned([GAUGES], [made])[1] == [made]


def test_a_binding_that_is_being_deleted_is_made_again_once_it_is_gone() -> None:
    (made,), _ = planned([KUBERNETES], [])
    going = {**made, "metadata": {**made["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert planned([KUBERNETES], [going]) == ([], [])
    assert planned([], [going]) == ([], [])


class Bound:
    """The bindings of a mailbox, and how often they were listed."""

    def __init__(self) -> None:
        self.bindings, self.lists, self.is_refusing = list[Object](), 0, False

    def cluster(self, name: str) -> Bound:
        return self

    async def list(self, resource: object) -> Object:
        self.lists += 1
        return {"items": list(self.bindings)}

    async def create(self, resource: object, obj: Object) -> None:
        self.bindings.append({**obj, "metadata": {**obj["metadata"], "uid": "u"}})

    async def discover(self, path: str) -> Object:
        return {"items": []}

    async def request(self, method: str, path: str, body: Any = None) -> None:
        if self.is_refusing:
            raise NotFound("it goes")
        self.bindings.clear()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EdgeStore]:
    found = EdgeStore(tmp_path, allow_any_filesystem=True)
    yield found
    found.close()


async def test_where_nothing_is_configured_a_mailbox_is_looked_at_once_also_over_a_restart(store: EdgeStore) -> None:
    bound = Bound()
    store.begin("", "1")
    for lists in (1, 1):
        bindings = MailboxBindings(cast(Client, bound), (), store)
        assert await bindings.ensure("m")
        bindings.changed("m")
        assert await bindings.ensure("m")
        assert bound.lists == lists
    # Another process worked meanwhile.
    store.begin("2", "3")
    assert await MailboxBindings(cast(Client, bound), (), store).ensure("m")
    assert bound.lists == 2


async def test_what_was_configured_meanwhile_goes_again(store: EdgeStore) -> None:
    bound = Bound()
    client = cast(Client, bound)
    assert await MailboxBindings(client, (), store).ensure("m")
    for _ in range(2):
        assert await MailboxBindings(client, [KUBERNETES], store).ensure("m")
        assert len(bound.bindings) == 1
    bound.is_refusing = True
    assert not await MailboxBindings(client, (), store).ensure("m")
    bound.is_refusing = False
    assert await MailboxBindings(client, (), store).ensure("m")
    assert bound.bindings == []
    assert bound.lists == 5
