"""Requests through a tenant's endpoint into a view of the same shard: their user, and the path of the view."""

from __future__ import annotations

from typing import cast

import pytest

from atoll.machinery.apiserver.authorization.effective_users import WARRANT
from atoll.machinery.apiserver.call.preferences import preferences_of
from atoll.machinery.apiserver.call.requestinfo import RequestInfo, parse
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.request import Observer, Request
from atoll.machinery.apiserver.serving.open_watches import OpenWatches
from atoll.machinery.apiserver.serving.pipeline import Route
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.status import Forbidden, NotFound
from atoll.machinery.meta.user import User
from atoll.machinery.storage.contract import Snapshot
from atoll.machinery.wire.exchange import Exchange, HttpRequest, Peer
from atoll.shard.forwarding.virtual_resources import ShardObject, VirtualResources
from atoll.virtualworkspaces.export_user import acting

CALLER = User("ann", ("team",))


class Closed:
    """A view that refuses every user and records them."""

    def __init__(self) -> None:
        self.came: list[User] = []

    def enter(self, request: Request, snapshot: Snapshot) -> None:
        self.came.append(request.user)

    def acts_within(self, info: RequestInfo) -> str:
        return ""

    def users_of(self, info: RequestInfo, snapshot: Snapshot) -> str:
        return ""


class _Exchange:
    request = HttpRequest("GET", b"/clusters/shop/api/v1/things", {}, b"", Peer("127.0.0.1", 1))


def entered(target: bytes) -> Closed:
    """Pass a request with a warrant to an endpoint; return the view."""
    view = Closed()
    shard = ShardObject(ResourceType("core.kcp.io", "shards"), "root")
    resources = VirtualResources(
        Catalogs([]), shard, {"closed": view}, cast(Route, None), None, cast(OpenWatches, None)
    )
    info = parse("GET", _Exchange.request.target)
    preferences, user = preferences_of(_Exchange.request), acting(CALLER, "shop")
    request = Request(cast(Exchange, _Exchange()), preferences, "", info, cast(Observer, None), 0.0, user=user)
    with pytest.raises(Forbidden):
        resources._enter(request, target, cast(Snapshot, None))
    return view


def test_what_one_view_lends_its_caller_is_not_had_in_another() -> None:
    (came,) = entered(b"/services/closed/clusters/shop/api/v1/things").came
    assert (came.name, came.groups) == ("ann", ("team",)) and WARRANT not in came.extra


def test_a_view_is_found_below_services_and_nowhere_else() -> None:
    with pytest.raises(NotFound):
        entered(b"/clusters/shop/services/closed/clusters/shop/api/v1/things")
